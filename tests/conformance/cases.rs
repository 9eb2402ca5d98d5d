//! The list: each case is a test.

/// Makes a test of each case, on the server that [`super::standing`] gives.
macro_rules! on {
    ($standing:ident: $($module:ident { $($case:ident)* })*) => {
        $(mod $module {
            $(#[tokio::test]
            async fn $case() {
                let standing = crate::conformance::standing::$standing().await;
                crate::conformance::$module::$case(&standing.server).await;
            })*
        })*
    };
}

on! { talking:
    access {
        an_administrator_may_do_everything
        an_account_may_do_what_it_was_given_and_nothing_else
        an_account_may_write_either_the_object_or_its_status
        whoever_brings_no_token_is_nobody_and_may_do_nothing
        whoever_brings_a_wrong_token_is_turned_away_at_the_door
    }
    claims {
        a_claim_begins_pending_with_defaults
        a_claim_without_a_class_stays_without_while_there_is_no_default
        a_claim_has_what_it_must
        a_data_source_is_told_twice
        an_unbound_claim_changes_its_volume_once
        a_bound_claim_may_grow
        a_claims_old_class_annotation_stays
        a_deleted_claim_takes_no_finalizer
        a_claims_status_is_apart
    }
    classes {
        a_class_has_what_it_must
        a_class_never_changes_what_made_volumes
        an_attributes_class_never_changes
        a_capacity_belongs_to_a_segment_and_a_class
        a_csi_nodes_topology_keys_are_labels
        a_node_has_labels
    }
    deleting {
        a_finalizer_holds_a_deleted_object
        a_deleted_object_gets_no_new_finalizer
        deletion_is_not_written_by_clients
        preconditions_spare_a_namesake
        a_patch_by_uid_spares_a_namesake
        a_collection_is_deleted_by_selector
        a_deleted_claim_comes_back_and_a_map_does_not
    }
    forms {
        kubectl_gets_tables
        metadata_alone_is_told
        a_page_of_a_table_goes_on
        discovery_tells_of_each_kind
    }
    lists {
        pages_are_of_one_version
        a_continue_token_must_be_the_servers
        labels_select
        fields_select
        a_list_is_as_new_as_asked
        a_version_of_the_future_is_waited_for_and_refused
    }
    patches {
        a_json_patch_is_all_or_nothing
        json_patch_pointers_escape_slashes
        a_merge_patch_replaces_lists_and_null_removes
        a_merge_patch_of_an_object_and_its_version_is_one_of_that_or_none
        a_strategic_patch_merges_lists_by_key
        a_patch_of_another_type_is_refused
        apply_makes_owns_and_conflicts
        apply_of_a_finalizer_leaves_those_of_others
        managed_fields_tell_who_wrote_what
    }
    provisioned {
        a_provisioned_volume_is_kept_as_it_is
        an_affinity_has_terms
        an_affinity_is_added_and_then_stays
        a_volumes_attributes_class_is_not_taken_away
    }
    quotas {
        a_claim_counts_what_it_asks_for_and_for_its_class
        a_claim_beyond_its_quota_does_not_grow
        a_quota_of_attributes_classes_counts_who_names_one
    }
    statuses {
        a_write_to_the_object_leaves_its_status
        a_write_to_the_status_leaves_the_rest
        a_volumes_phase_is_its_status
        an_error_message_is_at_most_1024_bytes
        an_error_has_a_code_and_a_time
        what_is_being_deleted_still_gets_its_status
    }
    strategic {
        a_condition_is_merged_by_its_type
        a_claims_status_loses_single_keys
        a_strategic_patch_spares_a_namesake
        a_strategic_patch_directs_maps_and_lists
        a_malformed_strategic_patch_is_refused
        managed_fields_tell_whose_condition_it_is
    }
    validation {
        a_change_of_what_never_changes_is_shown
        unknown_and_double_fields_are_told_as_the_client_asks
        unknown_and_double_fields_of_a_patch_are_told_as_the_client_asks
        names_are_dns_names
        an_attachment_names_one_source
        an_attachments_spec_never_changes
        a_volumes_source_never_changes
        a_volume_has_what_it_must
        a_csi_node_lists_each_driver_once
        leases_are_checked
        events_belong_to_their_objects_namespace
        wrong_types_are_bad_requests
        immutable_maps_and_secrets_stay
    }
    watches {
        a_watch_tells_every_change_after_its_version
        a_watch_without_a_version_begins_with_what_is_there
        a_watch_by_selector_tells_of_what_comes_and_goes
        initial_events_end_with_a_bookmark
        bookmarks_of_a_running_watch_tell_how_far_the_store_has_come
        a_finalized_object_is_modified_then_deleted
        a_watch_ends_when_its_time_is_up
        a_watch_of_nonsense_is_refused
    }
    writes {
        what_exists_is_not_created_again
        a_write_with_an_old_version_conflicts
        a_write_that_changes_nothing_keeps_the_version
        a_write_to_a_namesake_conflicts_by_uid
        names_in_path_and_body_must_agree
        what_is_not_there_is_not_written_to
        defaults_are_filled_in
        a_generated_name_begins_as_asked
        a_dry_run_writes_nothing
    }
}

on! { forgetting:
    compaction {
        a_page_of_a_compacted_version_has_expired
        a_watch_from_a_compacted_version_is_gone
    }
    contents {
        unknown_and_double_fields_of_an_installed_kind_are_told
        a_content_has_one_source_and_keeps_it
        a_content_has_what_it_must
        a_content_names_its_snapshot_and_its_class_may_change
        a_contents_status_has_types
        a_snapshot_has_one_source_and_keeps_it
        a_snapshot_class_names_driver_and_policy
        a_status_write_by_uid_spares_no_namesake_of_an_installed_kind
        a_status_of_an_installed_kind_is_written_by_test_or_by_version
        a_status_grows_member_by_member
        a_content_is_begun_by_one_patch_or_not_at_all
        the_last_annotation_takes_the_map_with_it
        the_same_finalizer_may_be_there_twice
        a_deleted_content_takes_annotations_and_no_finalizer
        a_whole_map_replaces_what_others_wrote
    }
    installed {
        snapshots_are_there_once_installed
        kubectl_gets_tables_of_installed_kinds
    }
}

on! { protecting:
    protection {
        new_claims_volumes_and_attributes_classes_are_held
        the_default_class_is_filled_in
    }
}

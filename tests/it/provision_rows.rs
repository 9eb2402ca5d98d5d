//! The provisioner's regression list: each row, and the tests that prove it.
//!
//! The rows are those of provisioner spec 8, from external-provisioner's change logs. As in [`crate::rows`], scenarios
//! prove the rows that a user could notice, and unit tests prove the others.

use crate::rows::{Row, assert_proven, by_number, rows};

/// What becomes of a claim of a class of the in-tree plugin that the driver has taken over.
pub(crate) const MIGRATED: &str = "m14_m25_r37_r43_s0_a_claim_of_the_plugins_class_gets_a_volume_of_the_plugin";

/// Number, what must hold, proof.
pub(crate) const ROWS: &[Row] = rows! {
    1, "a snapshot that was left protected is let go of":
        "r1_a_snapshot_that_was_left_protected_is_let_go_of_when_a_daemon_starts",
        "r1_a_snapshot_that_goes_and_has_lost_its_content_is_found_by_the_sweep_and_let_go_of";
    2, "nodes at one place make one segment, also where two watches tell of them at once":
        "r2_a_node_and_its_csi_node_that_change_at_once_make_one_segment_of_the_place_that_both_tell",
        "nodes_at_one_place_make_one_segment_r2";
    3, "a label that a node gets late is seen":
        "r3_a_label_that_a_node_gets_late_is_waited_for_and_seen_at_once", "r3_labels_are_those_of_now_and_missing_ones_are_named";
    4, "controller-modify secrets are taken, stripped and written down":
        "row_04_every_secret_is_found_and_none_of_its_keys_is_sent", "row_04_every_key_of_ours_is_taken_out_and_the_deprecated_ones_stay",
        "r28_r4_a_volume_object_says_all_that_its_class_and_its_driver_say";
    5, "a snapshot is protected during the restore, and let go of after it":
        "s0_r5_the_first_finished_restore_leaves_the_snapshot_protected_for_the_other",
        "rows_06_and_05_a_deleting_snapshot_goes_on_once_a_restore_has_begun";
    6, "a snapshot deleted after a restore began: on to the final answer":
        "r6_a_snapshot_deleted_while_it_is_restored_is_held_until_the_final_answer";
    7, "a retry asks for the same places, byte by byte":
        "r9_r7_a_retry_asks_the_same_although_the_node_is_gone", "row_07_a_retry_sends_the_same_requirement_in_the_same_order",
        "r7_r9_asking_again_gives_the_same_and_changes_nothing", "a_retry_asks_the_same_byte_by_byte_although_the_class_was_replaced";
    8, "a node that is gone before the call: given back to the scheduler":
        "r8_r22_s0_a_claim_for_a_node_that_is_gone_is_given_back_to_the_scheduler", "r8_r22_a_selected_node_that_is_gone_is_rescheduled";
    9, "a node that is gone between two attempts: the same request":
        "r9_r7_a_retry_asks_the_same_although_the_node_is_gone",
        "r9_s0_a_successor_asks_again_for_the_same_place_although_the_node_is_gone";
    10, "what can never be is tried again rarely":
        "r10_s0_the_wait_after_an_infeasible_claim_is_the_configured_one", "row_10_only_an_invalid_argument_is_infeasible";
    11, "an API without classes of attributes"
        instead "such classes are read when a claim names one, and never watched: there is nothing to switch off":
        "r11_a_class_of_attributes_goes_into_the_request_and_one_of_another_driver_does_not";
    12, "flags are defined before they are parsed"
        instead "there is a configuration file; what became of each flag is a table that is held against the code":
        "the_table_of_flags_is_true_and_complete";
    13, "long node names in labels": "r13_a_long_nodes_label_is_valid_and_the_go_sidecars";
    14, "secrets of migrated Portworx volumes": "m17_a_secret_of_portworx_is_for_six_kinds_of_calls";
    15, "no volume stays Terminating": "r15_s0_forty_volumes_are_deleted_by_forty_calls";
    16, "a cached object is not changed in place"
        instead "what a cache holds is shared and cannot be changed; a finalizer is removed by a patch that tests its place":
        "a_source_of_two_clones_is_let_go_of_by_the_last", "r36_removing_a_finalizer_tests_its_place_and_touches_no_other";
    17, "a question for capacity without capabilities":
        "r17_the_driver_is_asked_with_its_own_parameters_without_capabilities_and_for_the_segment_if_there_is_one",
        "r17_a_pod_waits_for_room_and_goes_where_it_comes";
    18, "finalizers of others survive": "r18_s0_finalizers_of_others_stay_on_a_volume_that_goes_and_it_is_deleted_once";
    19, "an annotation in the name of the provisioner's secret":
        "r19_an_annotation_of_the_claim_may_choose_the_secret", "row_19_annotations_may_name_the_provisioners_secret_and_every_other";
    20, "topology is on by default": "row_20_topology_is_on_and_the_other_defaults_are_the_go_sidecars";
    21, "another mode than the snapshot's needs leave":
        "r21_a_snapshot_becomes_a_volume_of_another_mode_only_with_leave", "row_21_another_mode_than_the_snapshots_needs_leave";
    22, "no pod is stuck because its node was deleted":
        "r8_r22_s0_a_claim_for_a_node_that_is_gone_is_given_back_to_the_scheduler",
        "r22_a_claim_that_waits_for_a_pod_goes_back_to_the_scheduler_where_its_node_is_gone";
    23, "modes are compared by value": "rows_23_and_52_modes_are_compared_by_value_and_unset_is_filesystem";
    24, "a volume without a claim":
        "row_24_a_volume_without_a_claim_is_deleted_without_a_crash",
        "r61_r24_a_volume_that_people_made_is_protected_while_bound_and_deleted_when_released";
    25, "the probe for the capacity API is in our namespace"
        instead "there is no probe: one version is spoken, and objects are watched and written in our namespace alone":
        "ours_are_watched_in_our_namespace_by_both_labels";
    26, "a deletion that no watch saw":
        "r24_r26_deletes_during_a_broken_watch_are_heard_after_the_list_that_follows",
        "r24_r26_a_delete_that_no_watch_saw_is_delivered_by_the_next_list";
    27, "the largest volume's size is kept up to date": "r27_only_what_differs_is_written";
    28, "the deletion's secret is on the volume":
        "r28_a_volume_is_deleted_with_its_secret_although_its_class_is_gone", "row_28_the_secret_on_the_volume_survives_its_class",
        "row_28_a_full_volume_has_every_field_of_the_table";
    29, "capacity has limits of its own"
        instead "there is no rate that capacity could use up for the claims: requests are bounded by how many are in flight":
        "as_many_questions_as_there_are_workers_are_asked_at_a_time", "watches_of_one_kind_are_paced_and_nothing_else_is",
        "no_more_requests_are_in_flight_than_allowed";
    30, "a clone of another class of the driver":
        "r30_a_clone_of_another_class_of_the_driver_has_the_sources_content",
        "row_30_a_bound_claim_of_any_class_of_the_driver_gives_its_handle";
    31, "two daemons on one host":
        "r31_s0_two_daemons_on_one_host_never_ask_for_one_volume_at_once", "r31_identities_are_sanitised_and_differ_on_one_host";
    32, "a question for capacity ends in time":
        "r32_a_question_that_hangs_is_given_up_and_holds_up_no_other", "r32_a_call_ends_at_its_deadline_and_tells_it_to_the_driver";
    33, "a full driver ends the work for a claim that is gone":
        "r33_a_final_error_after_the_claims_deletion_ends_the_work", "row_33_a_full_driver_is_a_final_answer";
    34, "raw volumes":
        "r34_r49_a_raw_claim_has_no_file_system_and_no_class_gets_one_that_it_does_not_name", "row_34_a_raw_device_has_no_file_system";
    35, "no race in the protection of clones' sources"
        instead "data races do not compile; a source is let go of under the lock that its users take":
        "a_source_of_two_clones_is_let_go_of_by_the_last";
    36, "capacity follows the nodes":
        "r36_nodes_labels_and_classes_are_followed_at_once", "r36_a_segment_that_comes_or_goes_wakes_each_class";
    37, "migrated volumes name the in-tree plugin": MIGRATED;
    38, "a claim is taken over from a node that is gone":
        "r38_a_claim_whose_node_is_gone_is_freed_of_it_whatever_its_class",
        "r38_a_claim_of_a_node_that_is_gone_is_taken_over_and_one_of_a_node_that_is_down_is_not";
    39, "migrated volumes have region and zone":
        "m8_m14_m15_r39_the_volume_of_a_plugins_class_is_stored_as_the_plugin_would_have_stored_it";
    40, "allowed topologies where each node provisions":
        "r40_an_instance_of_one_node_knows_its_own_place_only", "r40_a_node_outside_of_the_allowed_topologies_does_not_compete",
        "r53_r40_allowed_topologies_choose_the_place_with_and_without_a_node";
    41, "capacity objects that nobody wants go":
        "r41_objects_of_unwanted_slots_and_second_objects_are_deleted",
        "r41_objects_of_the_one_before_are_adopted_and_those_that_nobody_wants_go";
    42, "a capacity object that somebody changed meanwhile":
        "r42_a_conflict_has_the_object_read_again_and_makes_no_twin", "r42_an_object_that_somebody_deletes_or_changes_is_put_right";
    43, "secrets of migrated volumes at their deletion":
        MIGRATED, "r37_r39_r43_a_migrated_in_tree_volume_is_not_deleted_and_told_who_could";
    44, "secrets are never logged": "r44_a_secret_is_used_and_shown_nowhere", "row_44_no_secret_is_printed";
    45, "sizes and capacities are stored exactly":
        "r45_a_new_object_shows_exactly_the_drivers_answer",
        "r45_r55_a_volume_has_the_drivers_size_exactly_or_the_requested_and_a_smaller_one_goes", "row_45_a_size_is_written_exactly",
        "rows_45_and_55_the_size_is_the_drivers_exactly_or_the_requested_one";
    46, "an unknown source is no crash":
        "r46_r47_a_source_that_only_a_populator_knows_makes_no_empty_volume", "rows_46_and_47_no_unknown_source_makes_an_empty_volume";
    47, "an unknown source makes no empty volume": "r46_r47_a_source_that_only_a_populator_knows_makes_no_empty_volume";
    48, "nothing is deleted while it is attached":
        "r48_s0_a_volume_is_deleted_as_soon_as_it_is_detached_and_waiting_is_no_warning", "r48_what_is_attached_waits_and_is_no_error";
    49, "no file system that nobody named":
        "r34_r49_a_raw_claim_has_no_file_system_and_no_class_gets_one_that_it_does_not_name",
        "row_49_without_a_default_no_file_system_is_named", "row_49_a_raw_device_or_an_unnamed_file_system_has_no_fs_type";
    50, "the Lease is not starved by the work": "r30_r50_s0_work_watches_and_elections_have_their_own_connections";
    51, "a full node is given back to the scheduler":
        "r51_s0_a_second_node_after_a_full_first_one_gets_a_volume_in_its_own_zone",
        "r51_a_pod_goes_to_another_node_when_the_driver_says_that_the_first_is_full", "row_51_a_full_driver_sends_the_pod_to_another_node";
    52, "a clone has its source's mode": "rows_23_and_52_modes_are_compared_by_value_and_unset_is_filesystem";
    53, "allowed topologies that say less than the node":
        "r53_allowed_topologies_that_say_less_than_the_node_are_accepted",
        "r53_r40_allowed_topologies_choose_the_place_with_and_without_a_node";
    54, "a driver that ignores the source": "r54_a_driver_that_ignores_the_source_has_its_volume_deleted";
    55, "an answer of no capacity":
        "r45_r55_a_volume_has_the_drivers_size_exactly_or_the_requested_and_a_smaller_one_goes",
        "rows_45_and_55_the_size_is_the_drivers_exactly_or_the_requested_one", "r55_no_capacity_at_all_is_published_too";
    56, "a timeout, and then the claim's deletion":
        "r56_a_timeout_and_then_the_claims_deletion_leave_nothing_even_if_the_class_goes_too", "row_56_a_timeout_lets_go_of_nothing";
    57, "claims of in-tree plugins are ignored": "r57_claims_of_in_tree_plugins_that_the_driver_has_not_taken_over_are_left_alone";
    58, "an API that is away while the volume is to be saved":
        "r58_a_volume_that_cannot_be_saved_while_the_api_is_away_is_saved_later_and_never_deleted",
        "r58_a_volume_that_the_daemon_may_not_save_is_told_and_kept_until_it_may";
    59, "a volume that the cache does not show is not made again":
        "r59_s0_a_volume_object_that_is_there_ends_the_work_whatever_its_prefix",
        "r59_a_volume_object_that_the_watch_has_not_shown_is_not_made_again",
        "r59_s0_a_stranger_under_the_name_of_the_volume_is_named_and_never_taken_for_it";
    60, "an item is finished once": "r60_an_item_is_finished_once_and_a_stale_run_can_change_nothing";
    61, "volumes that people made are protected and deleted":
        "r61_r24_a_volume_that_people_made_is_protected_while_bound_and_deleted_when_released",
        "r61_a_volume_that_people_made_of_a_class_that_provisions_nothing_is_deleted_when_released",
        "r61_a_volume_that_people_made_misses_no_secret";
    62, "labels of Leases that are malformed": "r62_labels_that_the_api_would_refuse_are_refused_here";
    63, "gates that were retired" instead "there are no gates: what became of each flag and gate is a table that is held against the code":
        "the_table_of_flags_is_true_and_complete";
};

#[test]
fn every_row_of_the_provisioners_list_is_proven_by_tests_that_cite_it() {
    assert_proven(ROWS, 63, by_number);
}

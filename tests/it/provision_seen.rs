//! The faults of external-provisioner that were observed with a real API server, and the tests that prove that our
//! provisioner does not have them. From provisioner spec 0; the rest of the list is in [`crate::provision_rows`].

use crate::provision_rows::MIGRATED;
use crate::rows::{Row, assert_proven, rows};

/// What was seen of the Go sidecar when it was played, and must not be seen of ours.
const SEEN: &[Row] = rows! {
    1, "two processes on one host both lead, and make one volume at once":
        "r31_s0_two_daemons_on_one_host_never_ask_for_one_volume_at_once";
    2, "Leases are renewed at the pace of capacity": "r30_r50_s0_work_watches_and_elections_have_their_own_connections";
    3, "the wait of infeasible claims ignores the configuration": "r10_s0_the_wait_after_an_infeasible_claim_is_the_configured_one";
    4, "a leak when the node is taken back in background and the claim then deleted":
        "s0_a_claim_that_loses_its_node_in_background_and_is_deleted_leaves_nothing";
    5, "a leak when the claim is bound elsewhere in background and then deleted":
        "s0_a_claim_that_somebody_binds_elsewhere_in_background_and_is_deleted_leaves_nothing";
    6, "a leak when a clone's source is deleted midway and then the clone":
        "s0_a_clone_whose_source_is_deleted_midway_and_that_is_deleted_then_leaves_nothing";
    7, "a clone and its deleted source wait for each other":
        "s0_a_source_deleted_while_it_is_cloned_holds_nobody_up", "s0_a_deleting_clone_source_goes_on_once_it_is_protected";
    8, "an answer without a volume is a crash":
        "s0_an_answer_without_a_volume_is_an_error_and_no_crash",
        "s0_an_answer_without_volume_or_id_is_an_error_and_nothing_can_be_deleted";
    9, "nothing but empty places make a volume that can never be saved":
        "s0_an_answer_of_nothing_but_empty_places_is_deleted_and_asked_again",
        "s0_a_volume_in_empty_places_is_deleted_instead_of_never_saved";
    10, "the old annotation of the class is a crash where each node provisions":
        "s0_a_claim_whose_class_is_in_the_old_annotation_alone_is_provisioned",
        "s0_a_claim_that_names_its_class_by_the_old_annotation_is_provisioned", "s0_old_annotations_are_read_as_kubernetes_reads_them";
    11, "a second node gets a volume in the first one's segment":
        "r51_s0_a_second_node_after_a_full_first_one_gets_a_volume_in_its_own_zone";
    12, "a Node that is gone while its CSINode is there is waited for, for ever":
        "r8_r22_s0_a_claim_for_a_node_that_is_gone_is_given_back_to_the_scheduler";
    13, "one event of a class asks once per node, and failures make a storm":
        "s0_one_event_of_a_class_asks_once_per_segment", "s0_one_event_of_a_class_wakes_each_segment_once_however_many_nodes_it_has",
        "s0_a_driver_that_fails_is_asked_ever_more_rarely_and_the_last_answer_stands";
    14, "another owner level never comes to be": "s0_another_owner_level_replaces_the_controller_and_keeps_the_other_owners";
    15, "snapshot and clone through a migrated class": MIGRATED;
    16, "a crash leaks: during the call, in background, before the volume object, with one that can't be saved":
        "a_successor_resumes_what_the_daemon_before_it_had_begun",
        "r9_s0_a_successor_asks_again_for_the_same_place_although_the_node_is_gone",
        "s0_a_crash_with_a_volume_that_is_not_saved_leaves_an_entry_that_leads_to_it";
    17, "volumes are deleted twice":
        "r15_s0_forty_volumes_are_deleted_by_forty_calls", "r18_s0_finalizers_of_others_stay_on_a_volume_that_goes_and_it_is_deleted_once";
    18, "a custom prefix makes volumes twice, and takes strangers for its own":
        "r59_s0_a_volume_object_that_is_there_ends_the_work_whatever_its_prefix",
        "r59_s0_a_stranger_under_the_name_of_the_volume_is_named_and_never_taken_for_it";
    19, "the first finished restore takes the protection away under another":
        "s0_r5_the_first_finished_restore_leaves_the_snapshot_protected_for_the_other";
    20, "retired gates are fatal" instead "there are no gates": "the_table_of_flags_is_true_and_complete";
    21, "a volume is deleted seconds after it was detached":
        "r48_s0_a_volume_is_deleted_as_soon_as_it_is_detached_and_waiting_is_no_warning";
    22, "an edited claim that was infeasible is not tried again":
        "r10_s0_a_claim_that_can_never_be_is_tried_again_at_once_when_it_is_edited";
};

#[test]
fn everything_seen_of_the_go_sidecar_is_proven_by_tests_that_say_so() {
    // They are provisioner spec 0: it has no numbers of its own in the names.
    assert_proven(SEEN, 22, |name, _| name.split('_').any(|word| word == "s0"));
}

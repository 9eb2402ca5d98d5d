//! The attach/detach controller's regression list (attach-detach spec 16): each row, and the tests that prove it.

use crate::rows::{Row, assert_proven, by_letter, rows};

/// Number, what must hold, proof.
pub(crate) const ROWS: &[Row] = rows! {
    1, "a claim that is bound after its pod has a node":
        "d1_a_pod_gets_its_volume_when_its_claim_is_bound_and_reads_that_it_has_it",
        "cases_6_and_7_and_d1_a_claim_leads_to_its_volume_once_both_are_bound_to_each_other";
    2, "a pod that is gone while its node uses the volume":
        "d2_a_volume_in_use_stays_and_is_withdrawn_before_it_is_deleted",
        "d2_a_pod_gets_its_volume_and_gives_it_back_once_its_node_does_not_use_it";
    3, "a volume for one node moves":
        "d3_d27_an_exclusive_volume_moves_with_its_pod", "d3_d18_and_d34_who_waits_for_an_exclusive_volume_reads_for_whom_and_what_for",
        "section_6_and_d3_an_exclusive_volume_waits_for_each_other_node_and_others_do_not";
    4, "a volume for many nodes":
        "d4_a_shared_volume_is_attached_to_each_node_and_goes_with_the_last_pod_there",
        "d4_and_all_detaches_come_before_attaches_and_shared_volumes_go_side_by_side";
    5, "the timer forces only nodes that are not ready": "d5_d6_d7_a_lost_node_is_forced_by_the_timer_or_the_taint_alone";
    6, "without the timer only the taint forces": "d5_d6_d7_a_lost_node_is_forced_by_the_timer_or_the_taint_alone";
    7, "the taint forces at once, and is counted apart": "d5_d6_d7_a_lost_node_is_forced_by_the_timer_or_the_taint_alone";
    8, "the cache calls a volume free, and the live node does not": "d8_what_the_cache_calls_free_and_the_live_node_does_not_stays";
    9, "an attachment that is gone between decision and deletion": "d9_what_is_gone_between_decision_and_deletion_is_not_deleted_twice";
    10, "a start with an attachment that nobody wants": "d10_d16_and_section_11_a_leader_finds_out_what_to_do_from_what_there_is";
    11, "a node that registers anew":
        "d11_a_node_that_registers_anew_gets_its_report_back_and_counts_as_using_its_volumes_until_it_is_ready";
    12, "a status that cannot be written": "d12_and_d26_nothing_is_deleted_while_the_status_cannot_be_written";
    13, "a deletion that is refused":
        "d13_what_cannot_be_deleted_is_reported_again", "d13_a_refused_deletion_is_asked_for_again_after_a_while",
        "d13_after_a_failed_deletion_the_name_is_put_back_if_the_attachment_is_live";
    14, "an attach that has failed, and a pod that is gone": "d14_what_never_was_attached_goes_with_its_pod_and_lets_the_next_node_have_it";
    15, "a node that never reports again": "d15_and_each_case_of_the_table_of_gates";
    16, "a start while an attachment is being deleted": "d10_d16_and_section_11_a_leader_finds_out_what_to_do_from_what_there_is";
    17, "an attachment that is deleted by hand": "d17_what_is_deleted_by_hand_is_withdrawn_and_made_anew";
    18, "a wait and a conflict read differently, and other holders are told":
        "d18_d19_a_pod_reads_who_has_the_volume_and_whether_that_ends", "d18_other_holders_are_told_anew_and_the_same_after_five_minutes";
    19, "the texts about other holders": "d18_d19_a_pod_reads_who_has_the_volume_and_whether_that_ends";
    20, "a claim or a volume that is missing for a while":
        "case_10_and_d20_a_wish_stays_while_its_claim_or_volume_cannot_be_read",
        "d20_a_claim_that_is_deleted_by_force_takes_no_volume_from_a_pod";
    21, "what comes last: a volume, an annotation": "d21_a_node_is_managed_once_its_annotation_comes_and_frozen_once_it_goes";
    22, "the ephemeral claim of another pod": "d22_the_claim_of_an_ephemeral_volume_counts_only_if_the_pod_controls_it";
    23, "when a pod that is being deleted has ended": "cases_1_to_5_and_d23_when_a_pod_wants_its_volumes";
    24, "any handle": "d24_any_handle_has_a_name_and_is_found_again_in_it";
    25, "two writers of one status": "d25_what_another_writes_into_the_list_at_the_same_time_survives";
    26, "failures of each request":
        "d12_and_d26_nothing_is_deleted_while_the_status_cannot_be_written", "d26_lost_answers_of_each_request_lead_to_the_same_end",
        "d26_what_the_api_may_still_delete_is_kept_before_it_is_reported_again",
        "d26_what_the_api_may_still_delete_is_written_before_its_name_is_put_back";
    27, "another leader after each step":
        "d27_what_a_pod_wants_is_attached_and_reported", "d27_what_nobody_wants_is_withdrawn_and_then_deleted",
        "d3_d27_an_exclusive_volume_moves_with_its_pod", "d27_d32_an_attachment_of_no_known_volume_is_deleted",
        "d27_what_an_earlier_leader_may_have_asked_to_delete_is_kept_before_it_is_reported";
    28, "beside the controller of kube-controller-manager":
        "d28_a_node_proves_it_only_if_the_other_has_written_its_list_after_this_leader",
        "d28_the_role_stops_once_the_other_controller_writes_a_node_and_goes_on_once_that_is_gone",
        "d28_a_process_is_gone_once_it_does_not_hold_its_lease",
        "d28_nothing_is_written_once_the_other_controller_has_made_an_attachment_until_that_is_gone";
    29, "a driver object that is made anew": "d29_a_driver_that_is_deleted_and_made_anew_attaches_nothing_meanwhile";
    30, "in-tree volumes":
        "case_9_and_d30_in_tree_volumes_are_wanted_by_their_csi_handles",
        "d30_an_in_tree_volume_of_a_pod_is_attached_by_the_handle_of_the_driver_that_has_taken_it_over";
    31, "a pod that is gone without an event": "d31_what_a_pod_wants_ends_with_a_list_that_lacks_the_pod";
    32, "a volume that is deleted by force": "d32_each_case_of_the_table_of_orphans", "d27_d32_an_attachment_of_no_known_volume_is_deleted";
    33, "a node that is deleted":
        "d33_what_a_node_has_that_is_deleted_goes_at_once_or_after_six_minutes_if_it_was_in_use",
        "d33_what_was_reported_to_a_node_that_a_list_lacks_counts_as_in_use";
    34, "two pods at once for one volume":
        "case_5_16_and_d34_the_oldest_pod_gets_an_exclusive_volume_every_time",
        "d3_d18_and_d34_who_waits_for_an_exclusive_volume_reads_for_whom_and_what_for";
    35, "a burst":
        "d35_a_burst_costs_one_status_patch_and_each_attachment_one_request",
        "d35_names_are_gathered_for_a_moment_while_more_are_on_their_way_and_nothing_is_taken_out";
};

#[test]
fn every_row_of_the_attach_detach_controllers_list_is_proven_by_tests_that_cite_it() {
    assert_proven(ROWS, 35, by_letter('d'));
}

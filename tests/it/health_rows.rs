//! The health monitor's regression list (node-and-health spec C6): each row, and the tests that prove it.

use crate::rows::{Row, assert_proven, by_letter, rows};

/// Number, what must hold, proof.
pub(crate) const ROWS: &[Row] = rows! {
    1, "a recovery is told only after what was wrong":
        "h1_a_recovery_is_told_once_after_what_was_wrong_and_never_before",
        "h1_h7_h8_what_is_wrong_is_told_at_once_and_that_all_is_well_only_after_it";
    2, "what is wrong in the first round after a restart is told, and what was told is not told again":
        "h2_h25_what_a_claim_or_an_event_holds_is_told_by_no_new_leader_and_its_end_is",
        "h2_h25_the_next_leader_repeats_nothing_and_tells_the_end_of_what_the_last_one_told",
        "h2_h25_the_next_leader_clears_what_the_last_one_wrote_and_writes_nothing_twice";
    3, "a volume that is gone between question and report": "h3_h6_h18_what_is_gone_meanwhile_is_not_written_and_not_asked_for_again";
    4, "raw devices": "h4_raw_devices_and_in_tree_volumes_that_the_driver_has_taken_over_are_asked_for";
    5, "no watch of pods and nodes": "h5_neither_pods_nor_nodes_are_watched_unless_that_is_asked_for";
    6, "a volume that is gone is not queued again": "h3_h6_h18_what_is_gone_meanwhile_is_not_written_and_not_asked_for_again";
    7, "diagnostics, and health of the election":
        "h1_h7_h8_what_is_wrong_is_told_at_once_and_that_all_is_well_only_after_it",
        "h7_a_driver_that_is_silent_for_five_intervals_fails_the_role_and_an_unhealthy_volume_does_not";
    8, "the first question comes before the first pause":
        "h8_h13_each_volume_is_asked_for_once_in_an_interval_the_first_at_once",
        "h1_h7_h8_what_is_wrong_is_told_at_once_and_that_all_is_well_only_after_it";
    9, "no workers are refused": "h9_what_makes_no_sense_is_refused";
    10, "all pages, and no endless chain of them": "h10_an_endless_chain_of_tokens_ends_the_pass_and_the_next_one_lists_all";
    11, "an entry without a volume": "h10_h11_h22_a_driver_that_lists_no_nodes_has_passes_for_health_alone";
    12, "a volume that is bound later":
        "h12_a_claim_that_is_bound_later_is_asked_for_at_once",
        "h12_h24_a_volume_that_is_bound_later_is_asked_for_at_once_and_one_answer_is_for_all_its_claims";
    13, "each volume is asked for in each interval": "h8_h13_each_volume_is_asked_for_once_in_an_interval_the_first_at_once";
    14, "a pass that fails clears nothing": "h14_h15_what_leaves_the_list_is_asked_for_and_a_pass_that_fails_means_nothing";
    15, "only an answer clears what leaves the list":
        "h14_h15_what_leaves_the_list_is_asked_for_and_a_pass_that_fails_means_nothing",
        "h15_what_leaves_the_list_is_cleared_by_an_answer_alone", "h15_i1_what_a_list_has_said_meanwhile_comes_before_an_older_answer";
    16, "a server that drops the field":
        "h16_a_server_that_drops_the_field_gets_one_write_and_then_events",
        "h16_a_server_that_drops_the_field_is_tried_once_and_events_tell_what_is_wrong",
        "h16_a_server_that_keeps_the_field_has_what_is_wrong_in_the_status_and_no_events",
        "h16_h25_a_server_that_drops_the_field_gets_events_and_one_try_an_hour";
    17, "what the API takes":
        "h17_what_counts_least_is_left_out_and_counted", "h17_a_reason_that_the_api_refuses_is_spelled_as_it_takes_it",
        "h17_of_a_status_and_reason_that_come_twice_the_first_counts", "h17_the_api_takes_whatever_a_driver_says",
        "h17_the_server_takes_what_is_too_long_too_much_and_told_twice";
    18, "another claim of the same name": "h3_h6_h18_what_is_gone_meanwhile_is_not_written_and_not_asked_for_again";
    19, "kinds that are not known":
        "h19_a_kind_that_is_not_known_is_kept_apart_and_is_not_healthy", "h19_unknown_kinds_are_told_once_for_each_set_and_clear_nothing";
    20, "new words, the same kinds": "h20_new_words_are_written_and_the_time_changes_only_with_statuses_and_reasons";
    21, "one pass for two roles":
        "h21_one_pass_runs_at_a_time_for_all_that_had_joined_when_it_began",
        "h21_passes_come_at_the_shortest_interval_that_a_living_term_asks_for",
        "h21_two_roles_make_one_pass_in_an_interval_and_either_goes_on_without_the_other",
        "h21_the_reconciler_and_the_health_monitor_make_one_pass_in_an_interval";
    22, "passes for health alone":
        "h10_h11_h22_a_driver_that_lists_no_nodes_has_passes_for_health_alone",
        "h22_a_driver_that_does_not_list_nodes_has_passes_for_health_alone";
    23, "a node that is deleted, and a pod that is scheduled later":
        "h23_a_failure_is_told_once_when_it_has_lasted_and_its_end_if_it_was_told",
        "h23_a_node_that_is_not_ready_for_long_is_told_once_on_each_claim_of_its_pods_and_so_is_its_end",
        "h23_a_node_that_is_deleted_has_failed_at_once_and_one_that_is_back_soon_has_not",
        "h23_claims_are_told_that_the_node_of_their_pods_is_gone_and_that_it_is_back";
    24, "two volumes with one handle":
        "h24_the_claims_of_two_volumes_with_one_handle_are_told_by_one_answer", "h24_all_claims_of_a_volume_are_told_by_one_answer",
        "h12_h24_a_volume_that_is_bound_later_is_asked_for_at_once_and_one_answer_is_for_all_its_claims";
    25, "another leader between what is wrong and its end":
        "h2_h25_what_a_claim_or_an_event_holds_is_told_by_no_new_leader_and_its_end_is",
        "h2_h25_the_next_leader_repeats_nothing_and_tells_the_end_of_what_the_last_one_told",
        "h2_h25_the_next_leader_clears_what_the_last_one_wrote_and_writes_nothing_twice",
        "h25_events_that_a_new_leader_cannot_read_at_first_are_read_again_and_it_reports_the_end";
};

#[test]
fn every_row_of_the_health_monitors_list_is_proven_by_tests_that_cite_it() {
    assert_proven(ROWS, 25, by_letter('h'));
}

//! The resizer's regression list, row by row: what must hold, and which tests prove it.
//!
//! The rows are those of resizer spec 12. As in [`crate::rows`], a row is proven by scenarios where a user could notice it, by unit
//! tests where only the code could.

use crate::rows::{Row, assert_proven, by_letter, rows};

const FOREIGN: &str = "z1_z2_z3_z31_z36_what_is_not_ours_or_not_bound_here_is_never_touched";
const NODE_ONLY: &str =
    "z10_z17_a_node_only_driver_is_asked_nothing_and_a_smaller_wish_is_taken_after_its_node_has_failed";
const DEVICE: &str = "z7_z11_z27_a_device_grows_and_what_its_driver_made_of_it_is_recorded";
const INFEASIBLE: &str = "z12_z18_an_infeasible_size_is_asked_for_once_a_pause_and_another_one_at_once";
const CHARGED: &str = "z12_z13_what_was_begun_is_charged_until_less_is_begun_which_an_unknown_outcome_forbids";
const BACKOFF: &str = "z19_z20_z56_the_gaps_between_failures_grow_whatever_the_code_and_a_success_ends_the_story";
const IN_USE: &str = "z21_z24_a_volume_in_use_waits_for_its_pods_and_is_expanded_when_the_last_one_ends";
const PODS: &str = "z22_z23_pods_are_looked_at_only_where_a_driver_has_refused_a_volume_in_use";
const SIZES: &str = "z25_z26_an_answer_without_a_size_counts_and_one_that_is_too_small_does_not";
const TOO_SMALL: &str = "z14_z26_a_smaller_request_comes_after_an_answer_that_was_too_small";
const REBOUND: &str = "z30_z31_a_volume_that_is_bound_anew_before_its_node_has_acted_is_finished_for_the_new_claim";
const UNABLE: &str = "z33_z34_a_driver_that_can_do_nothing_of_it_is_told_once_and_ends_nothing";
const CLASSES: &str = "z35_z37_z46_a_claim_gets_its_first_class_and_another_one";
const LATE: &str = "z38_z39_a_class_that_comes_after_the_wish_is_used_at_once";
const REFUSED: &str = "z40_z41_an_infeasible_class_is_asked_for_once_a_pause_and_the_way_back_at_once";
const UNCERTAIN: &str = "z43_z44_what_may_still_be_running_is_asked_for_again_also_after_a_restart";
const SECRETS: &str = "z45_z46_the_secret_of_the_volume_and_the_names_of_the_claim_go_with_the_call";
const BOTH: &str = "z49_z50_both_wishes_at_once_are_served_one_after_the_other_or_together_where_the_driver_needs_that";
const CALL: &str = "z8_z9_the_call_says_how_the_volume_is_used_and_brings_its_secret";
const NODE: &str = "z4_z11_z15_z16_a_node_finishes_before_the_next_size_begins";

/// Number, what must hold, proof.
pub(crate) const ROWS: &[Row] = rows! {
    1, "a volume that the cache lacks is waited for":
        FOREIGN, "z1_a_claim_whose_volume_the_watch_shows_late_is_expanded_as_soon_as_it_does";
    2, "a claim without a volume is left alone": FOREIGN;
    3, "a volume that is bound elsewhere is left alone": FOREIGN, "z3_z36_only_our_volumes_that_are_bound_to_this_claim_are_touched";
    4, "no further call while the node has to act": NODE;
    5, "failing claims do not disturb each other": "z5_many_failing_claims_do_not_disturb_each_other";
    6, "no call without its mark": "z6_a_mark_that_cannot_be_written_is_no_call_and_no_event";
    7, "an edit during the call costs no second one": DEVICE, "z7_a_conflict_costs_one_read_and_one_write";
    8, "the secret is the volume's": CALL;
    9, "the call says how the volume is used": CALL, "z8_z9_an_expansion_is_prepared_in_order_and_says_how_the_volume_is_used";
    10, "a node-only driver is asked nothing": NODE_ONLY, "z10_z17_a_node_only_driver_is_asked_nothing_and_its_record_may_sink";
    11, "the annotation that no node is needed": DEVICE, NODE;
    12, "an infeasible size can be lowered": INFEASIBLE, CHARGED;
    13, "an unknown outcome pins the size": "z13_what_may_still_be_running_is_asked_for_again_whatever_is_wished_by_now", CHARGED;
    14, "a final error does not":
        "z14_a_final_error_lets_a_smaller_wish_through_also_after_a_restart_and_after_a_death",
        "z13_z14_a_refused_size_that_is_being_asked_for_again_is_no_longer_one_that_was_refused",
        "z14_a_class_that_was_refused_is_not_asked_for_again_by_the_next_leader",
        "z14_a_final_error_is_known_by_the_reason_that_it_has_left",
        "z14_only_a_call_that_repeats_a_refused_one_is_marked_again_and_the_mark_ends_the_word",
        "z14_a_class_that_was_refused_is_marked_again_before_the_driver_is_asked_again";
    15, "the node finishes first": NODE;
    16, "the next size begins by itself": NODE;
    17, "a node that cannot": NODE_ONLY, "z17_a_real_driver_verifies_the_size_that_its_node_could_not_reach";
    18, "one infeasible call a pause": INFEASIBLE, "z18_an_infeasible_size_waits_out_its_pause_and_another_size_does_not";
    19, "back-off after errors":
        BACKOFF, "z19_classes_that_are_listed_late_do_not_end_the_back_off_of_an_expansion",
        "z19_a_modification_that_fails_as_a_term_begins_waits_for_its_back_off";
    20, "back-off after deadlines": BACKOFF;
    21, "a volume in use waits": IN_USE;
    22, "unless that is switched off": PODS;
    23, "no pod is listed without need": PODS;
    24, "generic ephemeral volumes count": IN_USE;
    25, "an answer without a size": SIZES;
    26, "an answer that is too small": SIZES, TOO_SMALL;
    27, "an answer that is larger": DEVICE;
    28, "what others wrote survives": "z28_what_others_have_written_into_the_status_survives";
    29, "a crash anywhere":
        "z29_whenever_the_daemon_dies_its_successor_comes_to_the_same_end",
        "z29_whichever_write_is_the_last_of_a_daemon_its_successor_comes_to_the_same_end", "z29_z55_a_failure_to_write_the_end_is_got_over";
    30, "a volume that is bound anew": REBOUND;
    31, "the note of the former size":
        REBOUND, FOREIGN, "z31_the_size_before_is_noted_once_and_removed_when_the_claim_has_caught_up",
        "z31_a_note_that_another_program_removes_at_the_same_time_costs_one_write_that_changes_nothing";
    32, "a driver that dies": "z32_a_driver_that_dies_while_it_expands_is_asked_again";
    33, "no Node service": UNABLE, "z33_a_driver_without_expansion_still_modifies";
    34, "a driver with neither": UNABLE;
    35, "a first class": CLASSES;
    36, "foreign volumes": FOREIGN, "z36_what_is_not_ours_is_left_alone";
    37, "nothing is left after a success": CLASSES;
    38, "a class that comes later": LATE, "z38_a_class_that_is_missing_is_looked_up_once_and_then_waited_for";
    39, "the order of class and claim does not matter": LATE;
    40, "an infeasible class": REFUSED, "z40_an_infeasible_class_waits_out_its_pause";
    41, "the way back": REFUSED;
    42, "a first class that is taken back": "z42_a_first_class_that_was_refused_can_be_taken_back";
    43, "an unknown outcome pins the class": UNCERTAIN, "z43_a_class_that_was_begun_and_is_gone_is_given_up_only_when_it_is_gone_for_long";
    44, "also after a restart": UNCERTAIN, "z14_z44_a_refused_class_that_is_being_asked_for_again_is_no_longer_one_that_was_refused";
    45, "the secret of a modification": SECRETS, "z45_z46_a_modification_is_prepared_in_order";
    46, "the names of claim and volume": SECRETS, CLASSES, "z45_z46_a_modification_is_prepared_in_order";
    47, "no right to read classes": "z47_without_the_right_to_read_classes_or_any_volumes_still_grow";
    48, "the class of another driver":
        "z48_the_parameters_of_another_driver_never_reach_ours",
        "z48_the_class_of_another_driver_is_never_sent_to_ours_and_the_claim_says_so",
        "z48_what_is_said_of_another_drivers_class_goes_with_the_class";
    49, "no conflicts between our own jobs": BOTH, "z49_both_wishes_at_once_meet_no_conflict_of_our_own";
    50, "paired calls":
        BOTH, "z50_both_jobs_of_a_claim_share_a_turn_only_where_calls_are_paired",
        "z50_a_pair_that_begins_and_ends_together_is_three_writes_for_both",
        "z50_a_pair_of_which_one_is_refused_records_what_each_was_answered";
    51, "one call per volume at a time":
        "z51_two_volumes_with_one_handle_are_never_changed_at_once",
        "z51_a_claim_that_is_expanded_and_attached_at_once_is_changed_by_one_call_at_a_time";
    52, "no job holds up the other": "z52_one_job_that_pauses_does_not_hold_up_the_other";
    53, "a namesake inherits nothing": "z53_a_namesake_inherits_no_error_no_pause_and_no_back_off";
    54, "a leader that was frozen": "z54_a_leader_that_was_cut_off_past_its_lease_writes_nothing_when_it_is_back";
    55, "failures of each write":
        "z49_z55_a_failure_to_write_the_mark_is_got_over", "z55_a_failure_to_write_the_volume_is_got_over",
        "z29_z55_a_failure_to_write_the_end_is_got_over";
    56, "a success after a timeout": BACKOFF;
    57, "what the claim says already is not written again":
        "z57_an_expansion_that_fails_again_and_again_is_written_at_its_beginning_and_its_end",
        "z57_a_modification_that_fails_again_and_again_is_written_at_its_beginning_and_its_end",
        "z57_what_is_open_already_is_not_written_again",
        "z57_a_pair_that_fails_again_and_again_is_one_write_for_both_at_each_beginning_and_end";
    58, "less than was refused, and the volume has enough": "z58_a_claim_that_comes_down_to_what_its_volume_has_asks_for_no_more_than_that";
};

#[test]
fn every_row_of_the_resizers_list_is_proven_by_tests_that_cite_it() {
    assert_proven(ROWS, 58, by_letter('z'));
}

//! What the snapshotter promises beyond its regression list ([`crate::snapshot_rows`]): each hole of the Go sidecar that is closed
//! (snapshotter spec 14.2), what is new in v8.7 (snapshotter spec 15.1), each invariant (snapshotter spec 16), and the tests that prove
//! it.
//!
//! The invariants are checked at every step of the simulation, whose test has no number in its name. That the checks can fail is what
//! the tests with a number show there.

use crate::rows::Proof::{self, Tests};
use crate::rows::{Row, assert_proven, by_letter, rows};

/// Random schedules, and all invariants at every step.
const PLAYED: &str = "snapshots_come_to_rest_and_break_no_invariant_on_the_way";

/// Number, what closes it, proof.
pub(crate) const HOLES: &[Row] = rows! {
    1, "the finalizer comes first": "s29_l1_a_content_has_its_finalizer_before_the_driver_is_asked";
    2, "a wiped mark comes back":
        "l2_s55_a_mark_that_is_wiped_during_the_call_comes_back_and_the_deletion_survives",
        "l2_s55_marks_that_are_wiped_come_back_and_a_deletion_survives_our_writes",
        "s39_l2_a_mark_that_the_snapshot_controller_wipes_during_the_call_is_put_back_and_nothing_leaks";
    3, "no write of ours wipes a deletion": "s30_l3_a_deletion_that_is_asked_for_while_the_driver_fails_survives_our_writes";
    4, "a name that is taken is not let go": "s31_l4_a_name_that_is_taken_is_not_let_go_of_after_an_answer_that_never_came";
    5, "a given snapshot goes with its content":
        "s33_l5_a_snapshot_that_was_there_before_and_is_deleted_before_its_first_look_up_does_not_stay";
    6, "the same name whatever is configured":
        "l6_l9_a_namesake_that_asks_by_another_name_is_no_heir",
        "s41_l6_what_was_asked_is_asked_again_whatever_configuration_and_class_say_by_now";
    7, "a secret that goes is waited for": "l7_a_secret_that_goes_while_an_answer_is_owed_is_waited_for";
    8, "another id is told": "l8_s49_another_id_for_a_name_that_has_none_yet_is_recorded_and_the_one_after_it_told";
    9, "a content that is gone by force leaves nothing, and nothing is deleted that somebody keeps":
        "l9_a_group_whose_content_is_taken_away_by_force_is_deleted_at_the_driver",
        "l9_a_namesake_takes_over_the_call_and_deletes_the_snapshot_though_it_never_asked_by_itself",
        "l9_a_policy_that_no_watch_has_shown_counts_for_a_content_that_is_gone",
        "l9_a_policy_that_no_watch_has_shown_counts_for_a_content_that_is_removed_by_force",
        "l9_a_snapshot_is_deleted_without_its_content_only_if_it_was_taken_after_that_was_made",
        "l9_a_snapshot_whose_content_was_removed_by_force_is_deleted";
    10, "a frozen leader writes nothing": "l10_a_leader_that_was_cut_off_past_its_lease_writes_nothing_when_it_is_back";
    11, "no retry and no deletion is lost":
        "s28_l11_a_watch_that_lags_behind_our_own_writes_loses_no_retry",
        "s3_l11_a_snapshot_that_is_deleted_while_the_driver_cuts_it_goes_as_soon_as_it_is_cut";
    12, "what may be left over is named":
        "l12_of_a_driver_that_lists_nothing_the_name_of_what_may_be_left_is_told",
        "l12_what_may_be_left_at_the_driver_after_a_refusal_is_named_and_not_deleted";
};

/// Number after the fourteenth, what holds, proof: what v8.7 of external-snapshotter has mended, or not (snapshotter spec 15.1).
pub(crate) const NEWEST: &[Row] = rows! {
    1, "without the kinds of groups snapshots are served":
        "s35_ns15_without_the_kinds_of_groups_snapshots_are_taken_and_the_page_says_why_groups_are_not";
    2, "kinds that come are served within a minute": "s35_ns16_kinds_that_come_later_are_served_within_a_minute_and_hold_nothing_up_before";
    3, "an unready group is polled without a write":
        "s24_ns17_a_group_that_is_not_ready_is_asked_for_by_its_id_without_a_request_to_the_api";
    4, "the finalizer's removal is retried, the deletion not":
        "ns18_a_finalizer_that_cannot_be_removed_is_tried_again_and_the_group_is_deleted_once";
    5, "a group that was there before is polled without a write":
        "ns19_a_group_that_was_there_before_and_is_not_ready_is_looked_at_without_a_write";
    6, "ready, marked and deleted: gone at once": "s42_ns20_a_ready_group_with_a_mark_that_is_being_deleted_goes_without_a_resync";
    7, "without one right no group is touched":
        "s35_ns21_without_the_right_to_read_the_classes_groups_are_left_as_they_are_until_it_is_granted";
};

/// Number, what holds, proof.
pub(crate) const INVARIANTS: &[Row] = rows! {
    1, "asked only with finalizer and mark":
        PLAYED, "i1_a_daemon_that_asks_without_mark_or_finalizer_is_found_out",
        "i1_a_group_is_taken_at_the_turns_of_all_its_volumes_after_finalizer_mark_and_intent";
    2, "released only when nothing is left": PLAYED, "i2_a_daemon_that_releases_what_is_unanswered_or_there_is_found_out";
    3, "one call at once":
        PLAYED, "i3_a_daemon_that_asks_while_a_call_runs_is_found_out", "i3_a_group_and_the_snapshots_of_its_volumes_take_turns";
    4, "one name and one handle for life": PLAYED, "i4_a_daemon_that_asks_for_something_else_or_stores_another_handle_is_found_out";
    5, "ready only if the driver says so": PLAYED, "i5_a_daemon_that_says_ready_too_soon_is_found_out";
    6, "nothing is deleted that somebody needs":
        PLAYED, "i6_a_daemon_that_deletes_what_somebody_needs_or_keeps_is_found_out",
        "i6_the_content_is_read_before_its_snapshot_is_deleted_and_the_status_is_cleared_before_others_see_it";
    7, "what is others' stays": PLAYED, "i7_a_daemon_that_writes_what_is_others_is_found_out";
    8, "only the leader works": PLAYED, "i8_a_daemon_that_works_without_the_lease_is_found_out";
    9, "gaps grow": PLAYED, "i9_a_daemon_that_tries_again_at_once_is_found_out";
    10, "secrets are not told": PLAYED, "i10_a_daemon_that_tells_a_secret_is_found_out";
    11, "the same end after a crash": PLAYED, "i11_a_daemon_that_leaves_a_mark_is_found_out";
    12, "nothing is lost to the API's faults": PLAYED, "i12_a_daemon_that_forgets_a_content_is_found_out";
    13, "nor to the driver's": PLAYED, "i13_a_daemon_that_has_two_snapshots_of_one_content_is_found_out";
    14, "no snapshot that nobody knows": PLAYED, "i14_a_daemon_that_leaks_is_found_out";
};

#[test]
fn every_hole_and_every_invariant_of_the_snapshotter_is_proven_by_tests_that_cite_it() {
    assert_proven(HOLES, 12, by_letter('l'));
    assert_proven(NEWEST, 7, |name, row| name.split('_').any(|word| word == format!("ns{}", row + 14)));
    assert_proven(INVARIANTS, 14, |name, row| name == PLAYED || by_letter('i')(name, row));
    let has_own = |proof: &Proof| matches!(proof, Tests(names) if names.iter().any(|name| *name != PLAYED));
    assert!(INVARIANTS.iter().all(|(.., proof)| has_own(proof)), "each has a test of its own");
}

//! The snapshotter's regression list: each row, and the tests that prove it.
//!
//! The rows are those of snapshotter spec 15, proven as those of [`crate::rows`] are.

use crate::rows::{Row, assert_proven, by_letter, rows};

/// Number, what must hold, proof.
pub(crate) const ROWS: &[Row] = rows! {
    1, "asked until final, then deleted":
        "s1_a_call_without_an_answer_is_repeated_before_the_deletion",
        "s1_a_snapshot_whose_making_has_no_answer_is_asked_for_until_it_has_one_and_then_deleted",
        "s1_s2_a_deleted_snapshot_is_asked_for_until_the_answer_is_final";
    2, "a final error lets go":
        "s1_s2_a_deleted_snapshot_is_asked_for_until_the_answer_is_final",
        "s2_a_group_that_is_being_deleted_is_released_with_the_refusal_and_nothing_is_asked_any_more",
        "s2_a_snapshot_that_the_driver_refuses_at_last_goes_without_being_deleted_at_the_driver",
        "s2_s19_s47_a_refusal_is_in_the_status_until_the_driver_says_otherwise", "s2_s31_only_a_final_answer_ends_the_mark",
        "s2_what_is_being_deleted_is_released_with_the_refusal_and_nothing_is_asked_any_more";
    3, "deleted at once after the answer":
        "s3_a_deletion_during_the_call_goes_on_with_its_answer",
        "s3_l11_a_snapshot_that_is_deleted_while_the_driver_cuts_it_goes_as_soon_as_it_is_cut",
        "s3_many_snapshots_that_are_deleted_while_they_are_cut_all_go", "s3_s42_a_deletion_that_waited_for_the_answer_goes_on_at_once";
    4, "a failed deletion keeps the finalizer":
        "s4_a_deletion_that_fails_keeps_the_content_and_says_why", "s4_s12_s13_s14_deletion_row_by_row";
    5, "the finalizer's removal is retried": "s5_a_failure_to_let_go_is_got_over";
    6, "gaps double, whatever the code": "s6_the_gaps_between_failures_grow_whatever_the_code";
    7, "own writes wake nothing":
        "s7_our_own_writes_wake_nothing", "s7_s21_s35_a_snapshot_is_cut_once_and_what_the_driver_made_is_recorded";
    8, "polled to the end":
        "s8_a_snapshot_is_looked_at_in_time_though_its_volume_is_never_free",
        "s8_a_snapshot_that_is_not_ready_is_polled_without_a_request_to_the_api",
        "s8_s47_a_slow_snapshot_is_asked_for_until_it_is_ready_also_after_an_error",
        "s8_s9_a_snapshot_that_is_not_ready_is_asked_for_at_its_own_pace_until_it_is",
        "s8_the_pauses_between_two_looks_grow_up_to_their_limit_and_end_with_readiness";
    9, "no call once ready":
        "s8_s9_a_snapshot_that_is_not_ready_is_asked_for_at_its_own_pace_until_it_is", "s9_a_ready_content_wants_nothing",
        "s9_a_ready_snapshot_is_never_asked_for_again", "s9_a_snapshot_costs_three_writes_and_its_deletion_one";
    10, "resync looks at every content": "s10_a_resync_looks_again_at_a_content_that_nothing_else_wakes";
    11, "a driver that lists nothing is believed":
        "s11_s16_a_given_snapshot_is_looked_up_with_the_secret_of_its_class_or_believed",
        "s11_s33_a_given_snapshot_is_looked_up_and_deleted_by_its_id",
        "s11_without_look_ups_a_snapshot_that_was_there_before_counts_as_ready_at_once";
    12, "Retain makes no call": "s12_what_is_retained_can_be_deleted_and_stays_at_the_driver", "s4_s12_s13_s14_deletion_row_by_row";
    13, "an edited policy counts":
        "s13_a_policy_that_becomes_delete_at_the_last_moment_counts_though_no_watch_has_shown_it",
        "s13_a_policy_that_becomes_retain_at_the_last_moment_counts_though_no_watch_has_shown_it",
        "s13_the_policy_counts_that_a_content_has_when_it_goes", "s4_s12_s13_s14_deletion_row_by_row";
    14, "deletion needs no class":
        "s14_s18_a_deletion_needs_no_class_and_has_the_contents_own_secret", "s4_s12_s13_s14_deletion_row_by_row";
    15, "no size is no size": "s15_a_size_of_nothing_is_none", "s15_a_size_that_is_none_is_not_recorded";
    16, "secrets for look-ups":
        "s11_s16_a_given_snapshot_is_looked_up_with_the_secret_of_its_class_or_believed",
        "s16_a_snapshot_that_was_there_before_is_looked_up_with_the_classs_list_secret",
        "s16_the_secret_for_look_ups_is_the_class_s_with_one_token";
    17, "secrets of groups":
        "s17_a_look_has_the_secret_of_its_class_and_a_change_that_of_the_annotations",
        "s17_the_secret_for_look_ups_of_a_group_is_the_class_s_with_one_token",
        "s17_the_secrets_of_a_group_are_the_annotations_and_for_looks_the_classes";
    18, "the deletion's secret is the content's":
        "s14_s18_a_deletion_needs_no_class_and_has_the_contents_own_secret",
        "s18_a_deletion_goes_without_its_secret_only_where_that_is_allowed",
        "s18_a_secret_that_may_not_be_read_is_waited_for_also_where_a_deletion_may_go_without_one",
        "s18_the_secret_of_a_content_is_where_its_annotations_say_and_half_of_them_is_an_error";
    19, "errors reach status and Event":
        "s19_an_error_that_cannot_be_written_is_told_by_an_event",
        "s19_s32_a_failure_is_told_in_the_status_and_by_an_event_after_the_first_attempt",
        "s19_s32_a_failure_is_written_once_for_each_text", "s19_s53_a_failure_to_record_the_snapshot_is_got_over_and_wipes_nothing",
        "s19_texts_are_the_sidecars_byte_for_byte", "s2_s19_s47_a_refusal_is_in_the_status_until_the_driver_says_otherwise";
    20, "a concurrent write is no failure": "s20_what_the_snapshot_controller_writes_at_the_same_time_is_no_failure";
    21, "the Lease carries the driver":
        "s21_names_are_those_of_the_go_sidecar", "s7_s21_s35_a_snapshot_is_cut_once_and_what_the_driver_made_is_recorded";
    22, "names of groups":
        "s22_s23_a_group_becomes_ready_with_its_members_and_goes_with_one_call",
        "s22_s23_a_group_costs_three_writes_and_its_deletion_one_in_any_version",
        "s22_the_name_is_made_of_the_groups_uid_and_the_objects_names_go_along_if_asked_for";
    23, "members need no class and no call":
        "s22_s23_a_group_becomes_ready_with_its_members_and_goes_with_one_call", "s23_s27_s30_what_waits_for_others_waits";
    24, "groups are polled":
        "s24_a_group_that_fails_over_and_over_is_asked_for_ever_less_often",
        "s24_ns17_a_group_that_is_not_ready_is_asked_for_by_its_id_without_a_request_to_the_api",
        "s24_s25_a_refusal_of_a_group_is_seen_at_once_and_wakes_nothing",
        "s24_s51_a_group_that_is_not_ready_is_looked_at_without_a_write_until_it_and_its_members_are";
    25, "errors of groups": "s24_s25_a_refusal_of_a_group_is_seen_at_once_and_wakes_nothing", "s25_texts_are_the_sidecars";
    26, "groups with missing members":
        "s23_s26_a_deletion_has_the_turns_of_the_group_and_of_all_members_and_names_them_once",
        "s26_a_group_with_missing_members_is_a_group", "s26_a_group_without_known_members_is_deleted_by_its_id_alone",
        "s26_the_ids_of_a_deletion_are_those_of_the_status_else_those_of_the_spec_else_none";
    27, "deleted by hand: untouched, said why":
        "s23_s27_s30_what_waits_for_others_waits", "s27_a_content_that_is_deleted_by_hand_and_whose_snapshot_never_was_is_kept_and_shown";
    28, "a late watch loses no retry": "s28_l11_a_watch_that_lags_behind_our_own_writes_loses_no_retry";
    29, "the finalizer comes before the call":
        "s29_a_snapshot_is_taken_in_the_order_that_leaks_nothing", "s29_l1_a_content_has_its_finalizer_before_the_driver_is_asked",
        "s29_p1_puts_finalizer_mark_and_intent_in_one_patch";
    30, "deleted without its snapshot: waits":
        "s23_s27_s30_what_waits_for_others_waits", "s30_a_content_that_is_deleted_by_hand_waits_for_its_snapshot_and_then_goes_at_once",
        "s30_l3_a_deletion_that_is_asked_for_while_the_driver_fails_survives_our_writes";
    31, "a name that is taken is not let go":
        "s2_s31_only_a_final_answer_ends_the_mark", "s31_every_code_has_its_class_and_a_name_that_is_taken_is_not_let_go",
        "s31_l4_a_name_that_is_taken_is_not_let_go_of_after_an_answer_that_never_came";
    32, "ResourceExhausted is visible":
        "s19_s32_a_failure_is_told_in_the_status_and_by_an_event_after_the_first_attempt",
        "s19_s32_a_failure_is_written_once_for_each_text";
    33, "given, deleted before its first look-up":
        "s11_s33_a_given_snapshot_is_looked_up_and_deleted_by_its_id", "s33_a_given_snapshot_is_deleted_by_its_own_id",
        "s33_l5_a_snapshot_that_was_there_before_and_is_deleted_before_its_first_look_up_does_not_stay";
    34, "no definitions at the start":
        "s34_kinds_that_come_later_are_looked_for_once_a_minute_and_served_within_one",
        "s34_without_the_kinds_the_daemon_waits_for_them_and_serves_them_when_they_come";
    35, "no definitions of groups":
        "s35_groups_that_may_not_be_read_hold_no_snapshot_up_and_are_served_once_they_may",
        "s35_ns16_kinds_that_come_later_are_served_within_a_minute_and_hold_nothing_up_before",
        "s35_ns21_without_the_right_to_read_the_classes_groups_are_left_as_they_are_until_it_is_granted",
        "s35_ns15_without_the_kinds_of_groups_snapshots_are_taken_and_the_page_says_why_groups_are_not";
    36, "a driver that restarts": "s36_a_driver_that_dies_while_it_cuts_is_asked_again_and_has_one_snapshot";
    37, "what is wrong here leaves no mark":
        "s37_our_keys_are_not_passed_on_and_unknown_ones_of_the_prefix_are_refused",
        "s37_what_is_wrong_before_the_driver_is_asked_leaves_nothing_behind", "s37_what_is_wrong_here_leaves_no_mark";
    38, "others' finalizers and annotations survive":
        "s38_a_finalizer_of_others_survives_ours", "s38_p1_leaves_what_is_others",
        "s38_what_others_have_put_on_a_content_survives_the_whole_of_its_life";
    39, "a wiped mark":
        "s39_a_mark_that_cannot_be_put_back_at_once_comes_back_while_the_call_hangs",
        "s39_a_mark_that_is_wiped_during_the_call_comes_back_at_once", "s39_a_wiped_mark_comes_back_also_under_deletion",
        "s39_l2_a_mark_that_the_snapshot_controller_wipes_during_the_call_is_put_back_and_nothing_leaks",
        "s39_what_an_unanswered_call_needs_is_missed", "s39_what_the_process_remembers_counts_more_than_a_wiped_mark";
    40, "a crash after each step": "s40_a_failure_to_begin_is_got_over", "s40_whenever_the_daemon_dies_its_successor_comes_to_the_same_end";
    41, "the same request whatever is configured by now":
        "s41_a_begun_request_is_asked_again_without_its_class",
        "s41_an_intent_is_read_as_it_was_written_and_tells_one_request_from_another",
        "s41_l6_what_was_asked_is_asked_again_whatever_configuration_and_class_say_by_now",
        "s41_what_is_recorded_is_asked_whatever_class_and_configuration_say_by_now",
        "s41_what_was_asked_is_asked_again_by_a_successor_without_the_class";
    42, "a crash before the mark leaves":
        "s3_s42_a_deletion_that_waited_for_the_answer_goes_on_at_once",
        "s42_a_content_that_was_left_ready_marked_and_deleted_goes_when_a_daemon_starts",
        "s42_a_content_with_mark_and_handle_is_deleted_though_the_driver_refuses_to_look_at_its_snapshot";
    43, "odd answers":
        "s43_an_answer_that_cannot_be_used_is_an_error_of_the_driver_and_is_not_recorded",
        "s43_an_odd_answer_is_an_error_and_nothing_is_made_up", "s43_the_entry_of_the_snapshot_is_found_wherever_it_is_in_the_list";
    44, "a detach waits for one cut at most": "s44_a_detach_waits_for_at_most_one_of_the_many_snapshots_of_its_volume";
    45, "restores and deletion":
        "s45_a_snapshot_is_not_deleted_while_volumes_are_made_from_it",
        "s45_a_volume_and_a_snapshot_of_the_same_id_do_not_wait_for_each_other",
        "s45_restores_share_a_snapshot_and_its_deletion_has_it_alone";
    46, "ids in texts":
        "s46_s47_a_new_id_is_no_news_and_an_answer_clears_the_error",
        "s46_texts_that_are_never_the_same_make_no_tight_loop_and_no_flood_of_events";
    47, "an answer clears the error":
        "s2_s19_s47_a_refusal_is_in_the_status_until_the_driver_says_otherwise",
        "s46_s47_a_new_id_is_no_news_and_an_answer_clears_the_error",
        "s8_s47_a_slow_snapshot_is_asked_for_until_it_is_ready_also_after_an_error";
    48, "a class that comes": "s48_a_class_or_a_secret_that_comes_later_is_enough", "s48_a_class_that_comes_or_changes_wakes_its_contents";
    49, "another id":
        "l8_s49_another_id_for_a_name_that_has_none_yet_is_recorded_and_the_one_after_it_told",
        "s49_another_id_for_the_same_name_is_told_and_the_first_one_kept", "s49_another_id_is_told_and_the_stored_one_kept";
    50, "a member that is filled": "s50_a_member_is_looked_up_as_soon_as_it_has_its_handles", "s50_a_member_that_is_filled_is_looked_at";
    51, "readiness of members":
        "s24_s51_a_group_that_is_not_ready_is_looked_at_without_a_write_until_it_and_its_members_are",
        "s51_members_are_refreshed_while_the_group_is_not_ready";
    52, "a namesake":
        "s52_l9_a_content_that_is_taken_away_during_the_call_and_made_again_is_cut_and_not_lost",
        "s52_the_answer_of_a_call_is_not_written_to_a_namesake_of_another_volume",
        "s52_what_was_removed_by_force_is_asked_to_the_end_and_deleted_unless_another_has_it";
    53, "a status whose answer was lost":
        "s19_s53_a_failure_to_record_the_snapshot_is_got_over_and_wipes_nothing",
        "s53_p2_adds_what_is_missing_and_never_overwrites_a_handle";
    54, "readiness is not taken back":
        "s54_a_failure_to_take_the_mark_off_is_got_over", "s54_a_mark_that_cannot_be_taken_off_takes_no_readiness_back",
        "s54_a_ready_snapshot_is_never_taken_back";
    55, "the snapshot's deletion survives mark writes":
        "l2_s55_a_mark_that_is_wiped_during_the_call_comes_back_and_the_deletion_survives",
        "l2_s55_marks_that_are_wiped_come_back_and_a_deletion_survives_our_writes", "s55_p3_takes_off_what_is_there_and_nothing_of_others";
};

#[test]
fn every_row_of_the_snapshotters_list_is_proven_by_tests_that_cite_it() {
    assert_proven(ROWS, 55, by_letter('s'));
}

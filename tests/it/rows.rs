//! The attacher's regression list: each row, and the tests that prove it.
//!
//! The rows are those of attacher spec 2.12: external-attacher's fixes, and the ones found since. Scenarios of this
//! suite prove the rows that a user could notice, and unit tests prove the others.

use std::collections::BTreeSet;
use std::path::Path;

/// The proof of a row.
pub(crate) enum Proof {
    /// These tests, here or beside the code.
    Tests(&'static [&'static str]),
    /// The row is about something that the daemon does not do, for this reason; the tests show what it does instead.
    Instead(&'static str, &'static [&'static str]),
}

use Proof::{Instead, Tests};

/// Number, what must hold, proof.
pub(crate) type Row = (u32, &'static str, Proof);

/// A table of rows: number, what must hold, and the tests that prove it, after the reason where they prove something `instead`.
macro_rules! rows {
    ($($number:literal, $what:literal $(instead $why:literal)?: $($name:expr),+;)+) => {
        &[$(($number, $what, $crate::rows::rows!(@proof $($why,)? [$($name),+]))),+]
    };
    (@proof [$($name:expr),+]) => {
        $crate::rows::Proof::Tests(&[$($name),+])
    };
    (@proof $why:literal, [$($name:expr),+]) => {
        $crate::rows::Proof::Instead($why, &[$($name),+])
    };
}
pub(crate) use rows;

/// The attacher's rows.
pub(crate) const ROWS: &[Row] = rows! {
    1, "our own error in the status does not cut the back-off short": "r1_r2_r3_r49_no_write_of_ours_cuts_the_back_off_short";
    2, "nor do its managedFields": "r1_r2_r3_r49_no_write_of_ours_cuts_the_back_off_short";
    3, "the back-off is configurable": "r1_r2_r3_r49_no_write_of_ours_cuts_the_back_off_short";
    4, "no error of an unpublish counts as detached": "r4_no_error_of_an_unpublish_counts_as_detached";
    5, "one unpublish per detach; the finalizer before the status; a status that is not found is no failure":
        "r5_r6_an_attach_is_one_publish_and_a_detach_one_unpublish",
        "r5_an_attachment_that_is_gone_when_its_status_is_written_is_no_failure",
        "r5_the_status_is_written_only_if_another_finalizer_keeps_the_object";
    6, "the finalizer's removal reaches the API apart from the status":
        "r5_r6_an_attach_is_one_publish_and_a_detach_one_unpublish",
        "r6_r7_metadata_and_status_are_separate_patches_with_their_own_content_type";
    7, "patches only":
        "r7_an_attach_is_three_writes_a_second_one_two_and_a_detach_one_all_of_them_patches",
        "r7_the_shipped_rights_without_any_update_of_objects_are_enough";
    8, "a volume whose attach failed can be deleted": "r8_a_volume_whose_attach_failed_can_be_deleted_after_its_attachment";
    9, "a deleted in-tree volume is released": "r9_a_deleted_in_tree_volume_with_our_finalizer_is_released";
    10, "so is one whose migration was rolled back": "r10_an_in_tree_volume_whose_migration_was_rolled_back_is_released";
    11, "access modes of the translated volume": "r11_m1_an_in_tree_volume_is_published_with_the_access_modes_of_its_csi_form";
    12, "inline volumes": "r12_an_inline_volume_is_attached_and_detached";
    13, "block volumes": "r13_a_block_volume_is_published_as_a_block_device";
    14, "read-only needs PUBLISH_READONLY": "r14_read_only_is_asked_for_only_where_the_driver_can", "r14_readonly_needs_the_capability";
    15, "a gone node is detached": "r15_a_gone_node_is_detached_by_its_recorded_id";
    16, "so is a node without the driver": "r16_a_driver_gone_from_its_node_is_detached_by_the_recorded_id";
    17, "node ids are found without an annotation": "r17_a_lost_attachment_without_a_recorded_node_id_is_found_through_its_node";
    18, "the node's annotation is not consulted": "r18_an_annotation_of_the_node_is_never_consulted";
    19, "lost volumes are repaired through the queue": "r19_r20_a_volume_that_was_lost_is_attached_again_and_recorded_anew";
    20, "for plain CSI volumes too": "r19_r20_a_volume_that_was_lost_is_attached_again_and_recorded_anew";
    21, "entries without volume or status do no harm":
        "r21_listings_that_say_nothing_of_a_volume_force_nothing", "r21_entries_without_volume_or_status_do_no_harm";
    22, "listings have pages": "r22_a_listing_of_several_pages_is_read_to_its_end";
    23, "foreign attachments are left alone": "r23_foreign_attachments_are_left_alone", "r23_foreign_attachments_are_not_repaired";
    24, "deletes that only a new list shows":
        "r24_a_delete_that_only_a_new_list_shows_frees_the_volume", "r24_r26_a_delete_that_no_watch_saw_is_delivered_by_the_next_list";
    25, "unreadable secrets are told, empty ones are none":
        "r25_a_missing_secret_is_told_and_one_that_appears_is_used", "r25_an_empty_secret_is_no_error";
    26, "access modes": "r26_access_modes_reach_the_driver_as_it_understands_them";
    27, "the default file system":
        "r27_file_system_mount_options_and_attributes_reach_the_driver", "r27_the_volumes_own_file_system_wins_over_the_default";
    28, "slow starts": "r28_r41_a_driver_that_is_slow_to_get_ready_is_waited_for", "each_call_of_the_handshake_has_its_own_deadline_r28";
    29, "a lost driver ends leadership"
        instead "one process hosts many roles: it survives the driver, meets it anew, and only then goes on":
        "r29_a_restart_of_the_driver_between_two_attaches_is_survived_by_the_daemon", "the_end_of_an_idle_connection_is_noticed_r29";
    30, "renewals have their own client": "r30_r50_s0_work_watches_and_elections_have_their_own_connections";
    31, "nothing before leadership": "r31_nothing_is_done_before_leadership_and_work_begins_when_the_lease_is_released";
    32, "calls have a deadline and are repeated": "r32_a_publish_that_hangs_is_given_up_at_its_deadline_and_tried_again";
    33, "zero workers are refused": "zero_workers_are_refused_r33";
    34, "huge answers are cut in the log": "a_huge_response_is_cut_in_the_log_r34";
    35, "errorCode comes and goes with the error": "r35_an_attach_error_has_the_drivers_code_until_the_next_outcome";
    36, "finalizers of others on volumes":
        "r36_removing_our_finalizer_leaves_the_others_alone", "r36_removing_a_finalizer_tests_its_place_and_touches_no_other";
    37, "the lease is released on an orderly exit": "r37_an_orderly_stop_ends_what_is_in_flight_and_hands_the_lease_over";
    38, "the metric label migrated" instead "the label is not there: calls for in-tree volumes are counted among the driver's others":
        "m23_a_volume_is_attached_by_the_driver_that_has_taken_its_plugin_over_and_by_no_other";
    39, "one registry of metrics, served from the start": "r39_status_page_and_metrics_tell_of_a_failure_and_of_its_end";
    40, "the log's sanitiser": "unknown_enum_numbers_print_as_numbers_r40", "nested_messages_strip_their_secrets_too_r40";
    41, "the first probe is immediate": "the_first_probe_is_immediate_and_a_ready_driver_is_known_at_once_r41";
    42, "labels of leases may be left out": "r42_leases_carry_the_labels_that_are_asked_for_and_none_otherwise";
    43, "two attachments of one volume in parallel":
        "r43_two_attachments_of_one_volume_in_parallel_put_the_finalizer_once",
        "r43_a_finalizer_that_the_cache_has_not_seen_is_not_put_twice";
    44, "a namesake starts afresh":
        "r44_a_namesake_inherits_neither_delay_nor_finalizer",
        "r44_a_namesake_recreated_at_once_after_failing_publishes_is_tried_after_the_first_delay_again",
        "r44_another_epoch_inherits_no_delay_no_count_and_no_cause";
    45, "a recreated node": "r45_a_recreated_node_is_detached_by_the_id_that_it_was_attached_with";
    46, "long messages": "r46_a_message_of_5_kib_is_cut_between_characters_and_seen";
    47, "a refused attachment blocks no later one":
        "r47_an_attachment_refused_for_a_deleted_volume_does_not_block_a_later_one_of_the_same_handle";
    48, "a success clears an error that the cache has not seen": "r48_a_success_clears_an_error_that_the_watch_has_not_shown_yet";
    49, "our own patch does not wake us": "r1_r2_r3_r49_no_write_of_ours_cuts_the_back_off_short";
    50, "upper-case driver names": "r50_a_driver_with_upper_case_letters_has_a_lease_and_is_served";
    51, "inline volumes are repaired": "r51_an_inline_volume_that_was_lost_is_attached_again";
    52, "a frozen leader writes nothing": "r52_a_frozen_holder_wakes_without_the_right_to_write";
    53, "a listing that loops is ended":
        "r53_a_listing_that_never_ends_is_ended_and_does_not_hammer_the_driver", "r53_a_token_seen_before_ends_the_pass";
};

/// Tests that prove a row of a list without its number in their names, and why they have another.
const OF_ANOTHER_NAME: &[(&str, &str)] = &[
    (
        "a_successor_resumes_what_the_daemon_before_it_had_begun",
        "the crash during the call; the other moments are crashes in tests that cite them",
    ),
    (
        "a_retry_asks_the_same_byte_by_byte_although_the_class_was_replaced",
        "about the class; the row is about the places, which are in the same request",
    ),
    (
        "m17_a_secret_of_portworx_is_for_six_kinds_of_calls",
        "it cites the migration specification's row; the provisioner's is the same defect",
    ),
];

/// The names of all functions below a folder that are tests and are played in every run.
fn tests_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.extend(tests_in(&std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The names of the tests in a file that are not ignored.
pub(crate) fn tests_in(text: &str) -> Vec<String> {
    let (mut is_test, mut is_ignored, mut found) = (false, false, Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_ignored = true;
        } else if let Some((_, rest)) = line.split_once("fn ").filter(|_| is_test) {
            found.extend(rest.split(['(', '<']).next().filter(|_| !is_ignored).map(str::to_owned));
            (is_test, is_ignored) = (false, false);
        }
    }
    found
}

/// The rows that a test's name cites: `r24_...`, `..._r28`, `row_07_...`, `rows_23_and_52_...`.
pub(crate) fn cited_in(name: &str) -> BTreeSet<u32> {
    let (mut cited, mut follows) = (BTreeSet::new(), false);
    for word in name.split('_') {
        let number: Option<u32> = word.parse().ok().filter(|_| follows);
        cited.extend(number.or_else(|| word.strip_prefix('r')?.parse().ok()));
        follows = matches!(word, "row" | "rows") || (follows && (number.is_some() || word == "and"));
    }
    cited
}

/// Asserts that these are the rows from 1 to `last`, each once, and that each names tests that exist, are played, and say
/// themselves that they are about it: `cites` a row, given a name.
pub(crate) fn assert_proven(rows: &[Row], last: u32, cites: impl Fn(&str, u32) -> bool) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeSet::new();
    tests_below(&root.join("src"), &mut found);
    tests_below(&root.join("crates"), &mut found);
    tests_below(&root.join("tests"), &mut found);
    let numbers: Vec<u32> = rows.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "each row once");
    let mut wrong = Vec::new();
    for (number, what, proof) in rows {
        let (Tests(names) | Instead(_, names)) = proof;
        assert!(!what.is_empty() && !names.is_empty(), "R{number} has no proof");
        if let Instead(why, _) = proof {
            assert!(!why.is_empty(), "R{number} has no reason");
        }
        for name in *names {
            assert!(found.contains(*name), "R{number}: there is no test {name} that is played");
            let is_named_so = OF_ANOTHER_NAME.iter().any(|(other, _)| other == name);
            // A substitute that does not concern the row.
            if matches!(proof, Tests(_)) && !cites(name, *number) && !is_named_so {
                wrong.push(format!("R{number}: {name} does not say that it is about it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Whether a test's name cites a row by its number.
pub(crate) fn by_number(name: &str, row: u32) -> bool {
    cited_in(name).contains(&row)
}

/// The same by its letter and number: `..._z24_...`.
pub(crate) fn by_letter(letter: char) -> impl Fn(&str, u32) -> bool {
    move |name, row| name.split('_').any(|word| word == format!("{letter}{row}"))
}

#[test]
fn every_row_of_the_regression_list_is_proven_by_tests_that_cite_it() {
    assert_proven(ROWS, 53, by_number);
}

#[test]
fn a_test_cites_what_is_in_its_name_and_proves_nothing_while_it_is_ignored() {
    assert_eq!(cited_in("r1_r2_the_3_rows_of_4_and_5"), [1, 2].into());
    assert_eq!(cited_in("rows_23_and_52_modes_are_compared_r7"), [7, 23, 52].into());
    assert_eq!(cited_in("row_07_a_retry_row_and_8"), [7, 8].into());
    let text = "#[test]\n#[ignore = \"why\"]\nfn never() {}\n#[tokio::test]\nasync fn always() {}\nfn helper() {}";
    assert_eq!(tests_in(text), ["always"]);
}

//! Which change leads from which phase to which, and that no sequence of changes loses a volume that may exist.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::process::Clock;
use crate::roles::provisioner::claims::error::ClaimReason;
use crate::roles::provisioner::claims::phase::MadeFrom;
use crate::roles::provisioner::fixtures;

fn plan() -> Plan {
    let request = Arc::new(fixtures::request(json!({}), json!({})));
    let (made_from, node) = (MadeFrom::default(), Some("node-1".to_owned()));
    Plan { request, written: "{}".into(), made_from, node, doubtful: false, unfit: false, untrusted: false }
}

fn volume() -> Created {
    let context = std::collections::BTreeMap::new();
    Created { volume_id: "vol-1".into(), capacity_bytes: 1, context, affinity: None }
}

fn failure() -> AttemptError {
    ClaimReason::Unfit("vol-1".into()).into()
}

fn begun() -> Instant {
    Clock::system().now()
}

/// Every change, by name.
const CHANGES: [&str; 22] = [
    "Renewed",
    "Replanned",
    "Resumed",
    "Planned",
    "Marked",
    "Asking",
    "Confirmed",
    "NothingBegun",
    "Doubted",
    "Made",
    "Unusable",
    "Refused",
    "Hopeless",
    "MayBeStored",
    "AskAgain",
    "Discarded",
    "Abandoned",
    "Stored",
    "Found",
    "SuccessTold",
    "Concluded",
    "LetGo",
];

fn change(name: &str) -> Change {
    match name {
        "Renewed" => Change::Renewed,
        "Replanned" => Change::Replanned,
        "Resumed" => Change::Resumed,
        "Planned" => Change::Planned(Box::new(plan())),
        "Marked" => Change::Marked,
        "Asking" => Change::Asking { secret: None },
        "Confirmed" => Change::Confirmed,
        "NothingBegun" => Change::NothingBegun,
        "Doubted" => Change::Doubted,
        "Made" => Change::Made { volume: volume(), begun: begun() },
        "Unusable" => Change::Unusable { volume_id: "vol-1".into(), why: failure() },
        "Refused" => Change::Refused { reschedule: true, failure: failure() },
        "Hopeless" => Change::Hopeless { reschedule: true, node: None, failure: failure() },
        "MayBeStored" => Change::MayBeStored(true),
        "AskAgain" => Change::AskAgain,
        "Discarded" => Change::Discarded,
        "Abandoned" => Change::Abandoned { failure: None },
        "Stored" => Change::Stored,
        "Found" => Change::Found,
        "SuccessTold" => Change::SuccessTold,
        "Concluded" => Change::Concluded,
        "LetGo" => Change::LetGo,
        other => panic!("no such change: {other}"),
    }
}

/// Every phase, by name.
fn phase(name: &str) -> Phase {
    let (boxed, kept) = (Some(Box::new(plan())), None);
    match name {
        "Idle" => Phase::default(),
        "Planned" => Phase::Idle { plan: boxed },
        "Marked" => Phase::Marked { plan: boxed },
        "Resumed" => Phase::resumed(),
        "Creating" => Phase::Creating { plan: boxed, by: Asker::Us, confirmed: true, kept },
        "Created" => transition(phase("Creating"), change("Made")),
        "Discarding" => transition(phase("Creating"), change("Unusable")),
        "Finished" => transition(phase("Creating"), change("Refused")),
        "Stored" => transition(phase("Created"), change("Stored")),
        other => panic!("no such phase: {other}"),
    }
}

fn name(phase: &Phase) -> &'static str {
    match phase {
        Phase::Idle { plan: None } => "Idle",
        Phase::Idle { plan: Some(_) } => "Planned",
        Phase::Marked { .. } => "Marked",
        Phase::Creating { by: Asker::Another, .. } => "Resumed",
        Phase::Creating { .. } => "Creating",
        Phase::Created(_) => "Created",
        Phase::Discarding(_) => "Discarding",
        Phase::Finished { .. } => "Finished",
        Phase::Stored { .. } => "Stored",
    }
}

/// From, by which changes, to. Any other change leaves the phase as it is.
const TABLE: &[(&str, &[&str], &str)] = &[
    ("Idle", &["Planned"], "Planned"),
    ("Idle", &["Marked"], "Marked"),
    ("Idle", &["Resumed"], "Resumed"),
    ("Idle", &["Hopeless"], "Finished"),
    ("Idle", &["Found"], "Stored"),
    ("Planned", &["Renewed", "Replanned", "LetGo"], "Idle"),
    ("Planned", &["Marked"], "Marked"),
    ("Planned", &["Resumed"], "Resumed"),
    ("Planned", &["Asking"], "Creating"),
    ("Planned", &["Hopeless"], "Finished"),
    ("Planned", &["Found"], "Stored"),
    ("Marked", &["LetGo"], "Idle"),
    ("Marked", &["Resumed"], "Resumed"),
    ("Marked", &["Asking"], "Creating"),
    ("Marked", &["Hopeless"], "Finished"),
    ("Marked", &["Found"], "Stored"),
    ("Resumed", &["LetGo"], "Idle"),
    ("Resumed", &["NothingBegun", "Refused"], "Finished"),
    ("Resumed", &["Found", "Stored"], "Stored"),
    ("Creating", &["Made"], "Created"),
    ("Creating", &["Unusable"], "Discarding"),
    ("Creating", &["NothingBegun", "Refused"], "Finished"),
    ("Creating", &["Found", "Stored"], "Stored"),
    ("Created", &["AskAgain"], "Creating"),
    ("Created", &["Discarded", "Abandoned"], "Finished"),
    ("Created", &["Found", "Stored"], "Stored"),
    ("Discarding", &["Discarded", "Abandoned"], "Finished"),
    ("Discarding", &["Found"], "Stored"),
    ("Finished", &["Concluded"], "Idle"),
    ("Stored", &[], "Stored"),
];

#[test]
fn each_change_leads_where_the_table_says_and_no_other_leads_anywhere() {
    for from in ["Idle", "Planned", "Marked", "Resumed", "Creating", "Created", "Discarding", "Finished", "Stored"] {
        assert_eq!(name(&phase(from)), from);
        for by in CHANGES {
            let row = TABLE.iter().find(|(at, changes, _)| *at == from && changes.contains(&by));
            let expected = row.map_or(from, |(_, _, to)| *to);
            assert_eq!(name(&transition(phase(from), change(by))), expected, "{from} by {by}");
        }
    }
}

#[test]
fn what_another_has_begun_is_ours_too_once_our_driver_is_asked() {
    let planned = transition(Phase::resumed(), change("Planned"));
    let asked = transition(planned, change("Asking"));
    assert!(matches!(asked, Phase::Creating { by: Asker::AnotherAndUs, confirmed: true, .. }), "{asked:?}");
    assert_eq!(name(&transition(asked, change("LetGo"))), "Creating", "our driver owes an answer");
    let found = transition(Phase::resumed(), change("Found"));
    assert!(matches!(found, Phase::Stored { by: Asker::Another, .. }));
    assert_eq!(name(&transition(found, change("LetGo"))), "Idle");
}

#[test]
fn an_answer_that_our_driver_was_not_asked_for_in_this_term_changes_nothing() {
    let planned = || transition(Phase::resumed(), change("Planned"));
    for by in ["Made", "Unusable"] {
        let after = transition(planned(), change(by));
        assert!(
            matches!(after, Phase::Creating { plan: Some(_), by: Asker::Another, confirmed: false, .. }),
            "{after:?}"
        );
    }
}

#[test]
fn what_we_alone_have_asked_stays_ours_however_often_it_is_asked() {
    let asked = transition(phase("Creating"), change("Asking"));
    assert!(matches!(asked, Phase::Creating { by: Asker::Us, .. }), "{asked:?}");
    let found = transition(asked, change("Found"));
    assert!(matches!(found, Phase::Stored { by: Asker::Us, .. }), "{found:?}");
}

#[test]
fn a_volume_that_may_be_stored_says_so_until_it_is_known_not_to_be() {
    let may_be_stored = |phase: &Phase| matches!(phase, Phase::Created(made) if made.may_be_stored);
    let made = phase("Created");
    assert!(!may_be_stored(&made));
    let doubted = transition(made, Change::MayBeStored(true));
    assert!(may_be_stored(&doubted));
    assert!(!may_be_stored(&transition(doubted, Change::MayBeStored(false))));
}

#[test]
fn what_ends_keeps_what_is_still_to_be_told_and_to_be_given_back() {
    let Phase::Finished { reschedule, marked, node, failure } = phase("Finished") else { panic!() };
    assert_eq!((reschedule, marked, node.as_deref(), failure.is_some()), (true, true, Some("node-1"), true));
    let Phase::Finished { failure, .. } = transition(phase("Discarding"), change("Discarded")) else { panic!() };
    assert!(failure.is_some(), "why the volume could not be used");
    let Phase::Finished { failure, .. } = transition(phase("Created"), change("Discarded")) else { panic!() };
    assert!(failure.is_none(), "the claim wanted no volume any more");
    let Phase::Finished { marked, .. } = transition(phase("Planned"), change("Hopeless")) else { panic!() };
    assert!(!marked, "a mark that comes now is another's");
    let Phase::Stored { success, .. } = phase("Stored") else { panic!() };
    assert!(success.is_some());
}

proptest! {
    /// A phase in which a volume may exist is left only because it is stored, because the driver's answer is final, because it is
    /// deleted, or because it is another's to bring to an end.
    #[test]
    fn no_sequence_of_changes_loses_a_volume_that_may_exist(changes in vec(0..CHANGES.len(), 0..40)) {
        const ENDS: [&str; 6] = ["Stored", "Found", "Refused", "NothingBegun", "Discarded", "Abandoned"];
        let mut state = Phase::default();
        for by in changes.into_iter().map(|index| CHANGES[index]) {
            let (before, plan) = (name(&state), matches!(&state, Phase::Creating { plan: Some(_), .. }));
            let may_exist = matches!(before, "Resumed" | "Creating" | "Created" | "Discarding");
            let is_ours = before != "Resumed";
            state = transition(state, change(by));
            let after = name(&state);
            let still = matches!(after, "Resumed" | "Creating" | "Created" | "Discarding");
            prop_assert!(!may_exist || still || ENDS.contains(&by) || by == "LetGo" && !is_ours, "{before} by {by}");
            prop_assert!(!is_ours || after != "Resumed" || !may_exist, "{before} by {by} forgets that we have asked");
            // What is asked is pinned: only a change of the class unpins what is in doubt.
            let unpinned = plan && matches!(&state, Phase::Creating { plan: None, .. });
            prop_assert!(!unpinned || by == "Replanned", "{before} by {by}");
        }
    }
}

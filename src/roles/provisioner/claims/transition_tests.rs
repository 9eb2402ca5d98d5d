//! Which change leads from which phase to which, and that no sequence of changes loses a volume that may exist.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::process::Clock;
use crate::roles::provisioner::claims::error::ClaimReason;
use crate::roles::provisioner::fixtures;

fn plan() -> Plan {
    let request = Arc::new(fixtures::request(json!({}), json!({})));
    Plan { request, source: None, node: Some("node-1".to_owned()), no_error_is_final: false, unproven: None }
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
const CHANGES: [&str; 20] = [
    "Renewed",
    "Planned",
    "Asking",
    "Confirmed",
    "Proven",
    "LeftAlone",
    "NoErrorIsFinal",
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
    "Seen",
    "SuccessTold",
    "Concluded",
];

fn change(name: &str) -> Change {
    match name {
        "Renewed" => Change::Renewed,
        "Planned" => Change::Planned(Box::new(plan())),
        "Asking" => Change::Asking { secret: None },
        "Confirmed" => Change::Confirmed,
        "Proven" => Change::Proven,
        "LeftAlone" => Change::LeftAlone,
        "NoErrorIsFinal" => Change::NoErrorIsFinal,
        "Made" => Change::Made { volume: volume(), begun: begun() },
        "Unusable" => Change::Unusable { volume_id: "vol-1".into(), why: failure() },
        "Refused" => Change::Refused { reschedule: true, failure: failure() },
        "Hopeless" => Change::Hopeless { reschedule: true, node: None, failure: failure() },
        "MayBeStored" => Change::MayBeStored(true),
        "AskAgain" => Change::AskAgain,
        "Discarded" => Change::Discarded,
        "Abandoned" => Change::Abandoned { failure: None },
        "Stored" => Change::Stored { version: Some(7) },
        "Found" => Change::Found { version: None },
        "Seen" => Change::Seen,
        "SuccessTold" => Change::SuccessTold,
        "Concluded" => Change::Concluded,
        other => panic!("no such change: {other}"),
    }
}

/// Every phase, by name.
fn phase(name: &str) -> Phase {
    let (boxed, kept) = (Some(Box::new(plan())), None);
    match name {
        "Idle" => Phase::default(),
        "Planned" => Phase::Idle { plan: boxed },
        "Resumed" => Phase::Creating { plan: Box::new(plan()), by: Asker::EarlierTerm, confirmed: false, kept },
        "Creating" => Phase::Creating { plan: Box::new(plan()), by: Asker::ThisTerm, confirmed: true, kept },
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
        Phase::Creating { by: Asker::EarlierTerm, .. } => "Resumed",
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
    ("Idle", &["Hopeless"], "Finished"),
    ("Idle", &["Found"], "Stored"),
    ("Planned", &["Renewed"], "Idle"),
    ("Planned", &["Asking"], "Creating"),
    ("Planned", &["Hopeless"], "Finished"),
    ("Planned", &["Found"], "Stored"),
    ("Resumed", &["Asking"], "Creating"),
    ("Resumed", &["LeftAlone"], "Finished"),
    ("Resumed", &["Found", "Stored"], "Stored"),
    ("Creating", &["Made"], "Created"),
    ("Creating", &["Unusable"], "Discarding"),
    ("Creating", &["Refused", "LeftAlone"], "Finished"),
    ("Creating", &["Found", "Stored"], "Stored"),
    ("Created", &["AskAgain"], "Creating"),
    ("Created", &["Discarded", "Abandoned", "LeftAlone"], "Finished"),
    ("Created", &["Found", "Stored"], "Stored"),
    ("Discarding", &["Discarded", "Abandoned", "LeftAlone"], "Finished"),
    ("Discarding", &["Found"], "Stored"),
    ("Finished", &["Concluded"], "Idle"),
    ("Stored", &["Seen"], "Idle"),
];

#[test]
fn each_change_leads_where_the_table_says_and_no_other_leads_anywhere() {
    for from in ["Idle", "Planned", "Resumed", "Creating", "Created", "Discarding", "Finished", "Stored"] {
        assert_eq!(name(&phase(from)), from);
        for by in CHANGES {
            let row = TABLE.iter().find(|(at, changes, _)| *at == from && changes.contains(&by));
            let expected = row.map_or(from, |(_, _, to)| *to);
            assert_eq!(name(&transition(phase(from), change(by))), expected, "{from} by {by}");
        }
    }
}

#[test]
fn a_resumed_claim_is_called_for_in_both_terms_once_our_driver_is_called() {
    let asked = transition(phase("Resumed"), change("Asking"));
    assert!(matches!(asked, Phase::Creating { by: Asker::BothTerms, confirmed: true, .. }), "{asked:?}");
    let found = transition(phase("Resumed"), change("Found"));
    assert!(matches!(found, Phase::Stored { by: Asker::EarlierTerm, .. }));
}

#[test]
fn an_answer_that_our_driver_was_not_asked_for_in_this_term_changes_nothing() {
    for by in ["Made", "Unusable", "Refused"] {
        let after = transition(phase("Resumed"), change(by));
        assert!(matches!(after, Phase::Creating { by: Asker::EarlierTerm, confirmed: false, .. }), "{after:?}");
    }
}

#[test]
fn that_no_error_is_final_stays_with_the_request() {
    let doubted = transition(phase("Creating"), change("NoErrorIsFinal"));
    let Phase::Creating { plan, .. } = transition(doubted, change("Asking")) else { panic!() };
    assert!(plan.no_error_is_final);
}

#[test]
fn what_we_alone_have_asked_stays_ours_however_often_it_is_asked() {
    let asked = transition(phase("Creating"), change("Asking"));
    assert!(matches!(asked, Phase::Creating { by: Asker::ThisTerm, .. }), "{asked:?}");
    let found = transition(asked, change("Found"));
    assert!(matches!(found, Phase::Stored { by: Asker::ThisTerm, .. }), "{found:?}");
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
    let Phase::Finished { reschedule, node, failure } = phase("Finished") else { panic!() };
    assert_eq!((reschedule, node.as_deref(), failure.is_some()), (true, Some("node-1"), true));
    let Phase::Finished { failure, .. } = transition(phase("Discarding"), change("Discarded")) else { panic!() };
    assert!(failure.is_some(), "why the volume could not be used");
    let Phase::Finished { failure, .. } = transition(phase("Created"), change("Discarded")) else { panic!() };
    assert!(failure.is_none(), "the claim wanted no volume any more");
    let Phase::Finished { node, .. } = transition(phase("Planned"), change("Hopeless")) else { panic!() };
    assert_eq!(node.as_deref(), Some("node-1"));
    let Phase::Stored { version, success, .. } = phase("Stored") else { panic!() };
    assert_eq!((version, success.is_some()), (Some(7), true));
    let Phase::Stored { version, success, .. } = transition(phase("Stored"), change("SuccessTold")) else { panic!() };
    assert_eq!((version, success.is_some()), (Some(7), false));
}

proptest! {
    /// A claim leaves a phase in which a volume may exist only because the PersistentVolume is stored, because the driver's answer is
    /// final, because the volume is deleted or another PersistentVolume's, or because it is left alone and reported.
    #[test]
    fn no_sequence_of_changes_loses_a_volume_that_may_exist(changes in vec(0..CHANGES.len(), 0..40)) {
        const ENDS: [&str; 6] = ["Stored", "Found", "Refused", "Discarded", "Abandoned", "LeftAlone"];
        let mut state = phase("Resumed");
        for by in changes.into_iter().map(|index| CHANGES[index]) {
            let before = name(&state);
            let may_exist = |name: &str| matches!(name, "Resumed" | "Creating" | "Created" | "Discarding");
            state = transition(state, change(by));
            let after = name(&state);
            prop_assert!(!may_exist(before) || may_exist(after) || ENDS.contains(&by), "{before} by {by}");
            prop_assert!(after != "Resumed" || before == "Resumed", "{before} by {by} forgets that we have called");
        }
    }
}

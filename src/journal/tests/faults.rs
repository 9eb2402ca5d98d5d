//! What goes wrong while a journal runs: people, a second writer, lost answers, the end of the term.

use super::*;
use crate::sandbox::api::pure::rejection::Rejection;

#[tokio::test(start_paused = true)]
async fn a_segment_that_is_deleted_by_hand_is_back_within_half_a_minute() {
    let rig = Rig::new();
    let me = rig.start().await;
    me.keep("u1").await.unwrap();
    let uid =
        || rig.server.object(configmaps(), "storage", "demo-csi-journal-0").map(|it| it["metadata"]["uid"].clone());
    let before = uid();
    rig.delete(0);
    until(31 * S, || rig.keys() == ["u1"]).await;
    assert_ne!(uid(), before);
    assert!(rig.data(0).unwrap()["u1"].as_str().unwrap().starts_with(&format!(r#"{{"in":{},"#, uid().unwrap())));
    assert!(rig.meter.render().contains("journal_entries_rewritten_total{driver_name=\"demo.csi\"} 1"));
    assert!(me.adopted().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_entry_that_is_edited_by_hand_is_written_again() {
    let rig = Rig::new();
    let me = rig.start().await;
    me.keep("u1").await.unwrap();
    let before = rig.data(0);
    let edited = r#"{"at":"2026-01-01T00:00:00Z","volumeName":"pvc-other","bytes":1}"#;
    rig.edit(0, json!({ "data": { "u1": edited } }));
    until(31 * S, || rig.data(0) == before).await;
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_becomes_unreadable_stops_the_journal_until_it_is_repaired() {
    let rig = Rig::new();
    let me = rig.start().await;
    me.keep("u1").await.unwrap();
    rig.edit(0, json!({ "data": { "note": "hello" } }));
    until(31 * S, || me.journal.status().fault.is_some()).await;
    let error = me.keep("u2").await.unwrap_err();
    let text = error_chain(&error);
    assert_eq!(error.label(), "journal_unreadable");
    assert!(text.contains("\"storage/demo-csi-journal-0\"") && text.contains("\"note\""), "{text}");
    rig.edit(0, json!({ "data": { "note": null } }));
    until(6 * S, || me.journal.status().fault.is_none()).await;
    me.keep("u2").await.unwrap();
    assert_eq!(rig.keys(), ["u1", "u2"]);
}

#[tokio::test(start_paused = true)]
async fn two_journals_on_one_place_adopt_each_other_s_entries_and_remove_none_unseen() {
    let rig = Rig::new();
    let (one, two) = (rig.start().await, rig.start().await);
    for n in 0..4 {
        one.keep(&format!("one-{n}")).await.unwrap();
        two.keep(&format!("two-{n}")).await.unwrap();
    }
    tokio::time::sleep(120 * S).await;
    let expected: Vec<String> = ["one", "two"].iter().flat_map(|it| (0..4).map(move |n| format!("{it}-{n}"))).collect();
    assert_eq!(rig.keys(), expected);
    for (me, other) in [(&one, "two-"), (&two, "one-")] {
        let adopted = me.adopted();
        assert!(adopted.len() >= 2 && adopted.iter().all(|name| name.starts_with(other)), "{adopted:?}");
        assert_eq!(me.journal.len(), 4 + adopted.len());
    }
    // Each removes all, as a role does that finds the volumes stored.
    for name in &expected {
        one.journal.remove(name);
        two.journal.remove(name);
    }
    until(60 * S, || rig.keys().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_fails_the_recording_and_what_landed_is_removed() {
    let rig = Rig::new();
    let me = rig.start().await;
    rig.fault("create", Action::CutAfter, 1);
    let error = me.keep("u1").await.unwrap_err();
    assert_eq!(error.label(), "connection");
    assert!(error_chain(&error).starts_with("the API has not confirmed the entry of the journal: cannot create"));
    // The object was created: it has no entry before its uid is known.
    assert_eq!((rig.data(0), me.journal.len()), (Some(json!({})), 0));
    rig.fault("patch", Action::CutAfter, 1);
    assert_eq!(me.keep("u1").await.unwrap_err().label(), "connection");
    assert_eq!((rig.keys(), me.journal.len()), (vec!["u1".to_owned()], 0));
    me.keep("u2").await.unwrap();
    until(40 * S, || rig.keys() == ["u2"]).await;
    rig.fault("patch", Action::RefuseAfter(Rejection::internal("no")), 1);
    let asked = Asked { bytes: 7, ..Asked::volume("u2") };
    assert_eq!(me.journal.record("u2", &asked).await.unwrap_err().label(), "server_error");
    me.journal.record("u2", &asked).await.unwrap();
    assert!(me.adopted().is_empty(), "all of this was ours: {:?}", me.adopted());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_hangs_holds_up_no_other_entry_for_more_than_a_second() {
    let rig = Rig::new();
    let me = rig.start().await;
    me.keep("u0").await.unwrap();
    me.journal.remove("u0");
    let first_segment = Matching::any().verb("patch").name("demo-csi-journal-0");
    let hold = rig.server.faults().add(Fault::on(first_segment, Action::Hold));
    let first = rig.record_beside(&me, "u1");
    tokio::time::sleep(10 * MS).await;
    let begun = rig.clock.now();
    me.keep("u2").await.unwrap();
    assert!(rig.clock.now() - begun < S + 100 * MS, "{:?}", rig.clock.now() - begun);
    assert_eq!(rig.keys(), ["u0", "u2"]);
    until(31 * S, || first.lock().unwrap().is_some()).await;
    assert_eq!(first.lock().unwrap().as_ref().unwrap().as_ref().unwrap_err().label(), "timeout");
    // It is done now, after everybody has given it up.
    rig.server.faults().remove(hold);
    until(S, || rig.keys() == ["u1", "u2"]).await;
    until(200 * S, || rig.keys() == ["u2"]).await;
    assert!(me.adopted().is_empty() && me.journal.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn while_the_api_is_away_a_recording_fails_with_its_reason_and_afterwards_works_again() {
    let rig = Rig::new();
    let me = rig.start().await;
    for verb in ["create", "patch", "get"] {
        rig.fault(verb, Action::CutBefore, 1_000_000);
    }
    for n in 0..50 {
        let begun = rig.clock.now();
        let error = me.keep(&format!("u{n}")).await.unwrap_err();
        assert_eq!(error.label(), "connection");
        assert!(rig.clock.now() - begun < 2 * S, "{:?}", rig.clock.now() - begun);
    }
    rig.server.faults().clear();
    tokio::time::sleep(31 * S).await;
    me.keep("u").await.unwrap();
    assert_eq!((rig.keys(), me.journal.len()), (vec!["u".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn after_the_term_nothing_is_written_and_a_recording_fails() {
    let rig = Rig::new();
    let term = Term::unattended(rig.clock, 10 * S);
    let (journal, _) = Journal::open(&term, rig.api().await, place(), rig.meter.clone(), rig.clock).await.unwrap();
    let me = rig.run(journal, Vec::new());
    me.keep("u1").await.unwrap();
    tokio::time::sleep(10 * S).await;
    let writes = rig.writes();
    for name in ["u1", "u2", "u3"] {
        me.journal.remove("u1");
        let error = me.keep(name).await.unwrap_err();
        assert!(matches!(error, JournalError::TermOver(_)), "{error:?}");
    }
    tokio::time::sleep(100 * S).await;
    assert_eq!((rig.writes(), rig.keys()), (writes, vec!["u1".to_owned()]));
    assert!(rig.tasks.running().contains(&"rig.journal".to_owned()), "it waits for the end of its task");
    let closed = Journal::<Asked>::open(&term, rig.api().await, place(), rig.meter.clone(), rig.clock).await;
    assert!(matches!(closed.unwrap_err(), OpenError::TermOver(_)));
}

#[tokio::test(start_paused = true)]
async fn a_recording_does_not_outlive_the_task_that_writes() {
    let rig = Rig::new();
    let me = rig.start().await;
    rig.fault("create", Action::Hold, 1);
    let (outcome, ()) = futures::future::join(me.keep("u1"), async {
        tokio::time::sleep(S).await;
        rig.tasks.abort_all();
    })
    .await;
    assert!(matches!(outcome, Err(JournalError::TermOver(_))), "{outcome:?}");
    assert!(matches!(me.keep("u2").await, Err(JournalError::TermOver(_))));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_being_deleted_refuses_the_entry() {
    let rig = Rig::new();
    let me = rig.start().await;
    let namespaces = find("", "v1", "namespaces").unwrap();
    let hold = json!({ "metadata": { "finalizers": ["example.com/hold"] } });
    rig.server.patch_object(namespaces, "", "storage", PatchBody::Merge(hold), false).unwrap();
    rig.server.delete_object(namespaces, "", "storage").unwrap();
    let error = me.keep("u1").await.unwrap_err();
    assert!(error_chain(&error).contains("because it is being terminated"), "{}", error_chain(&error));
    assert_eq!(error.label(), "forbidden");
}

#[tokio::test(start_paused = true)]
async fn j9_a_copy_of_a_segment_is_reported_and_left_alone_and_new_entries_go_elsewhere() {
    let rig = Rig::new();
    let entry = r#"{"in":"another-object","since":"1","at":"2026-01-01T00:00:00Z","volumeName":"pvc-u1","bytes":1}"#;
    let copy = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "u1": entry },
        "metadata": { "name": "demo-csi-journal-0", "namespace": "storage",
            "labels": { "csi-control-plane.io/journal": "demo.csi" },
            "annotations": { "csi-control-plane.io/journal-version": "1" } } });
    rig.server.create_value(copy).unwrap();
    let me = rig.start().await;
    assert!(me.opened().is_empty(), "nothing is done for it");
    let left = me.journal.left().remove(0);
    assert_eq!((left.entry.key.as_str(), left.because), ("u1", LeftReason::Foreign));
    assert_eq!(left.segment.name(), "demo-csi-journal-0");
    me.keep("u2").await.unwrap();
    assert_eq!(rig.data(0), Some(json!({ "u1": entry })), "it is as it was");
    assert!(rig.data(1).unwrap().get("u2").is_some());
    assert!(rig.meter.render().contains("journal_foreign_entries{driver_name=\"demo.csi\"} 1"));
    me.journal.gone("u1", S).await.unwrap();
    rig.edit(0, json!({ "data": { "u1": null } }));
    until(62 * S, || me.journal.left().is_empty()).await;
    me.journal.remove("u2");
    until(40 * S, || rig.keys().is_empty()).await;
    me.keep("u3").await.unwrap();
    assert!(rig.data(0).unwrap().get("u3").is_some());
    assert!(me.adopted().is_empty());
}

#[tokio::test(start_paused = true)]
async fn j9_what_appears_in_a_segment_after_the_first_minutes_of_a_term_is_left_alone() {
    let rig = Rig::new();
    let me = rig.start().await;
    me.keep("u1").await.unwrap();
    let saved = rig.data(0).unwrap();
    me.journal.remove("u1");
    until(4 * S, || rig.keys().is_empty()).await;
    for wait in [130 * S, S] {
        tokio::time::sleep(wait).await;
        rig.edit(0, json!({ "data": saved }));
        me.keep("u2").await.unwrap();
        until(31 * S, || me.journal.left().len() == 1).await;
        let left = me.journal.left().remove(0);
        assert_eq!((left.entry.key.as_str(), left.because), ("u1", LeftReason::Appeared));
        assert!(me.adopted().is_empty());
        me.journal.remove("u2");
        until(40 * S, || rig.keys() == ["u1"]).await;
        me.journal.gone("u1", S).await.unwrap();
        // A person deletes it: it is not written again.
        rig.edit(0, json!({ "data": { "u1": null } }));
        until(62 * S, || me.journal.left().is_empty()).await;
        assert!(rig.keys().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn j8_who_waits_until_an_entry_is_gone_has_it_removed_at_once() {
    let rig = Rig::new();
    let me = rig.start().await;
    me.journal.gone("u1", S).await.unwrap();
    me.keep("u1").await.unwrap();
    let error = me.journal.gone("u1", S).await.unwrap_err();
    assert_eq!(error_chain(&error), "the entry of the volume cannot be removed from the journal yet");
    me.journal.remove("u1");
    assert!(!me.journal.is_gone("u1"));
    let (begun, writes) = (rig.clock.now(), rig.writes());
    me.journal.gone("u1", S).await.unwrap();
    assert!(rig.clock.now() - begun < 100 * MS && rig.keys().is_empty());
    assert_eq!(rig.writes(), writes + 1);
    // While it cannot be removed, the reason is told.
    me.keep("u2").await.unwrap();
    me.journal.remove("u2");
    rig.fault("patch", Action::Refuse(Rejection::internal("no")), 1_000);
    let error = me.journal.gone("u2", 10 * S).await.unwrap_err();
    assert!(error_chain(&error).contains("cannot patch configmaps"), "{}", error_chain(&error));
    rig.server.faults().clear();
    me.journal.gone("u2", 60 * S).await.unwrap();
}

type Ended = Arc<Mutex<Option<Result<(), JournalError>>>>;

impl Rig {
    /// Records an entry in the background.
    fn record_beside(&self, me: &Running, name: &'static str) -> Ended {
        let ended = Ended::default();
        let (journal, slot) = (me.journal.clone(), Arc::clone(&ended));
        self.tasks.spawn(name, async move {
            let outcome = journal.record(name, &Asked::volume(name)).await;
            *slot.lock().unwrap() = Some(outcome);
        });
        ended
    }
}

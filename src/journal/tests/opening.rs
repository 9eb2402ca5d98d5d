//! What a new leader finds, who may open a journal, and whose segments are deleted.

use super::*;
use crate::cluster::ObjectName;
use crate::cluster::names::ANNOTATION_JOURNAL_NODE;
use crate::journal::{Lost, LostEntry, UnreadableReason, read};
use crate::sandbox::api::pure::rejection::Rejection;

#[tokio::test(start_paused = true)]
async fn a_new_leader_gets_the_entries_of_its_predecessor() {
    let rig = Rig::new();
    let (before, _) = rig.try_open().await.unwrap();
    let (tasks, _) = Tasks::new("before");
    tasks.spawn("journal", before.clone().run(|_| {}));
    for name in ["u1", "u2"] {
        before.record(name, &Asked::volume(name)).await.unwrap();
    }
    tasks.abort_all();
    tokio::time::sleep(5 * S).await;
    let me = rig.start().await;
    assert_eq!(me.opened(), ["u1", "u2"]);
    assert_eq!(
        (&me.opened[0].content, me.opened[0].at),
        (&Asked::volume("u1"), "2026-01-01T00:00:00Z".parse().unwrap())
    );
    let writes = rig.writes();
    me.keep("u1").await.unwrap();
    assert_eq!(rig.writes(), writes, "it is durable");
    me.journal.remove("u1");
    until(4 * S, || rig.keys() == ["u2"]).await;
}

#[tokio::test(start_paused = true)]
async fn another_reader_sees_the_entries_and_those_that_are_copies() {
    let rig = Rig::new();
    rig.server.admit(TOKEN, identity(&rules(None, true)));
    assert_eq!(read::<Asked>(&rig.api().await, &place()).await.unwrap(), []);
    let me = rig.start().await;
    me.keep("u1").await.unwrap();
    let copy = json!({ "at": "2026-01-01T00:00:00Z", "volumeName": "pvc-copy", "bytes": 1 }).to_string();
    rig.server.create_value(segment(7, &json!({ "data": { "u2": copy } }))).unwrap();
    let names = read::<Asked>(&rig.api().await, &place()).await.unwrap().into_iter();
    assert_eq!(names.map(|entry| entry.content.volume_name).collect::<Vec<_>>(), ["pvc-u1", "pvc-copy"]);
    rig.fault("get", Action::Refuse(Rejection::internal("no")), 1_000);
    assert!(matches!(read::<Asked>(&rig.api().await, &place()).await, Err(OpenError::Api(_))));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_entries_are_read_at_once() {
    let rig = Rig::new();
    for n in 0..16 {
        let data: serde_json::Map<String, Value> = (0..64)
            .map(|entry| {
                let line = json!({ "at": "2026-01-01T00:00:00Z", "volumeName": "x".repeat(1000), "bytes": 1 });
                (format!("{n}-{entry}"), line)
            })
            .collect();
        rig.fill(n, data);
    }
    rig.network.set_latency("me", "api", 50 * MS);
    let begun = rig.clock.now();
    let me = rig.start().await;
    assert_eq!(me.opened.len(), 1024);
    assert!(rig.clock.now() - begun < S, "{:?}", rig.clock.now() - begun);
}

/// A segment of ours, merged with `more`.
fn segment(n: usize, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": format!("demo-csi-journal-{n}"), "namespace": "storage",
            "labels": { "csi-control-plane.io/journal": "demo.csi" },
            "annotations": { "csi-control-plane.io/journal-version": "1" } },
    });
    for (key, value) in more.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

#[tokio::test(start_paused = true)]
async fn a_segment_that_cannot_be_read_stops_the_leader_and_stays_as_it_is() {
    let newer = json!({ "name": "demo-csi-journal-7", "namespace": "storage",
        "annotations": { "csi-control-plane.io/journal-version": "2" } });
    for (n, more, expected) in [
        (7, json!({ "metadata": newer }), "a newer version of the daemon has written it"),
        (3, json!({ "data": { "u1": "x" } }), "the value of the key \"u1\" is not an entry in the format \"1\""),
        (0, json!({ "immutable": true }), "it is immutable"),
    ] {
        let rig = Rig::new();
        let object = rig.server.create_value(segment(n, &more)).unwrap();
        let error = rig.try_open().await.unwrap_err();
        let text = error_chain(&error);
        let begins = format!("cannot open the journal: configmap \"storage/demo-csi-journal-{n}\" is not a readable");
        assert!(text.starts_with(&begins) && text.contains(expected), "{text}");
        let is_newer = |reason: &UnreadableReason| matches!(reason, UnreadableReason::Newer { version: 2 });
        assert!(matches!(&error, OpenError::Unreadable(fault) if is_newer(&fault.reason) == (n == 7)));
        assert_eq!(rig.server.object(configmaps(), "storage", &format!("demo-csi-journal-{n}")), Some(object));
        assert_eq!(rig.writes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn each_right_is_needed_and_its_lack_is_named() {
    let all = rules(Some("demo-csi"), false);
    for verb in ["create", "get", "patch"] {
        let rig = Rig::new();
        let without = all.iter().cloned().map(|mut rule| {
            rule.verbs.remove(verb);
            rule
        });
        let without: Vec<Rule> = without.collect();
        if verb == "get" {
            rig.server.admit(TOKEN, identity(&without));
            let text = error_chain(&rig.try_open().await.unwrap_err());
            assert!(text.starts_with("cannot open the journal: cannot get configmaps"), "{text}");
            continue;
        }
        let me = rig.start().await;
        if verb == "patch" {
            me.keep("u0").await.unwrap();
        }
        rig.server.admit(TOKEN, identity(&without));
        // A second content of the first entry must be written where that is.
        let asked = Asked { bytes: 2, ..Asked::volume("u0") };
        let error = me.journal.record("u0", &asked).await.unwrap_err();
        let text = error_chain(&error);
        assert_eq!(error.label(), "forbidden", "{text}");
        let expected = format!("is \"{verb}\" on \"configmaps\" granted to this service account?");
        assert!(text.contains(&expected), "{text}");
        assert!(me.journal.status().fault.unwrap().contains(&expected));
        rig.server.admit(TOKEN, identity(&all));
        me.journal.record("u0", &asked).await.unwrap();
        assert_eq!(me.journal.status().fault, None);
    }
}

#[test]
fn the_rights_are_on_named_objects_unless_the_nodes_are_in_the_names() {
    let shown = |rules: Vec<Rule>| {
        let of = |rule: Rule| {
            let verbs: Vec<String> = rule.verbs.into_iter().collect();
            (verbs.join(" "), rule.resource_names.len(), rule.resource_names.into_iter().next().unwrap_or_default())
        };
        rules.into_iter().map(of).collect::<Vec<_>>()
    };
    let right = |verbs: &str, count, first: &str| (verbs.to_owned(), count, first.to_owned());
    let named = [right("create", 0, ""), right("get patch", 16, "demo-csi-journal-0")];
    assert_eq!(shown(rules(Some("demo-csi"), false)), named);
    assert_eq!(shown(rules(None, false)), [right("create", 0, ""), right("get patch", 0, "")]);
    let per_node = [right("create", 0, ""), right("get patch", 0, ""), right("delete list", 0, "")];
    assert_eq!(shown(rules(Some("demo-csi"), true)), per_node);
}

#[tokio::test(start_paused = true)]
async fn the_segments_of_a_node_that_is_gone_are_deleted_once_nothing_in_them_may_be_left_over_and_no_others() {
    let rig = Rig::new();
    rig.server.admit(TOKEN, identity(&rules(None, true)));
    let place_of = |node: &str| place().of_node(node);
    for node in ["n1", "n2"] {
        let (journal, _) =
            Journal::open(&rig.term(), rig.api().await, place_of(node), rig.meter.clone(), rig.clock).await.unwrap();
        let running = rig.run(journal, Vec::new());
        for name in ["u1", "u2"] {
            running.keep(name).await.unwrap();
        }
    }
    // Somebody else's, with a name of ours.
    let mut other = segment(9, &json!({}));
    other["metadata"]["name"] = json!("demo-csi-n1-journal-9");
    other["metadata"]["labels"] = json!({});
    rig.server.create_value(other).unwrap();
    let api = rig.api().await;
    let left = || -> Vec<String> { rig.server.objects(configmaps(), "storage").unwrap().iter().map(name_of).collect() };
    // The first request is over, the second is not: the segment stays, and is told again each time.
    for _ in 0..2 {
        let lost = clear_lost::<Asked>(&api, &place_of("n1"), |entry| *entry == Asked::volume("u1")).await.unwrap();
        let [entry] = &lost.entries[..] else { panic!("{lost:?}") };
        assert_eq!((lost.deleted, entry.segment.name(), &*entry.key), (0, "demo-csi-n1-journal-0", "u2"));
        assert_eq!(entry.content.as_ref().map(|(_, content)| content), Some(&Asked::volume("u2")));
    }
    assert_eq!(left(), ["demo-csi-n1-journal-0", "demo-csi-n1-journal-9", "demo-csi-n2-journal-0"]);
    for deleted in [1, 0] {
        let lost = clear_lost::<Asked>(&api, &place_of("n1"), |_| true).await.unwrap();
        assert_eq!(lost, Lost { deleted, entries: Vec::new() });
    }
    assert_eq!(left(), ["demo-csi-n1-journal-9", "demo-csi-n2-journal-0"]);
}

#[tokio::test(start_paused = true)]
async fn another_program_reads_the_journals_of_the_driver_with_and_without_a_node_and_no_others() {
    let rig = Rig::new();
    rig.server.admit(TOKEN, identity(&rules(None, true)));
    let elsewhere = Place { driver: "other.csi".into(), stem: "other-csi".into(), ..place() };
    let places = [place(), place().of_node("n1"), place().of_node("n2"), elsewhere.of_node("n1")];
    for (place, name) in places.into_iter().zip(["u0", "u1", "u2", "others"]) {
        let (journal, _) =
            Journal::open(&rig.term(), rig.api().await, place, rig.meter.clone(), rig.clock).await.unwrap();
        rig.run(journal, Vec::new()).keep(name).await.unwrap();
    }
    let of_node = |n: usize, name: &str, data: Value| {
        let mut object = segment(n, &json!({ "data": data }));
        object["metadata"]["name"] = json!(name);
        object["metadata"]["annotations"][ANNOTATION_JOURNAL_NODE] = json!("n1");
        rig.server.create_value(object).unwrap()
    };
    // A name that no daemon reads.
    of_node(0, "backup-of-journal-0", json!({ "unread": "?" }));
    let api = rig.api().await;
    let keys = async || {
        let read = read::<Asked>(&api, &place()).await?;
        Ok::<_, OpenError>(read.into_iter().map(|entry| entry.key).collect::<Vec<_>>())
    };
    assert_eq!(keys().await.unwrap(), ["u0", "u1", "u2"]);
    of_node(3, "demo-csi-n1-journal-3", json!({ "u4": "?" }));
    let text = error_chain(&keys().await.unwrap_err());
    assert!(text.contains("storage/demo-csi-n1-journal-3"), "{text}");
    rig.server.admit(TOKEN, identity(&rules(Some("demo-csi"), false)));
    let text = error_chain(&keys().await.unwrap_err());
    assert!(text.starts_with("cannot open the journal: cannot list configmaps"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_entry_in_the_journal_of_a_node_that_is_gone_may_stand_for_one() {
    for (field, value) in [("data", "?"), ("binaryData", "AA==")] {
        let rig = Rig::new();
        rig.server.admit(TOKEN, identity(&rules(None, true)));
        let node = Place { node: Some("n1".to_owned()), ..place() };
        let mut object = segment(0, &json!({}));
        object["metadata"]["annotations"][ANNOTATION_JOURNAL_NODE] = json!("n1");
        object[field] = json!({ "u1": value });
        rig.server.create_value(object).unwrap();
        let lost = clear_lost::<Asked>(&rig.api().await, &node, |_| true).await.unwrap();
        let segment = ObjectName::namespaced("storage", "demo-csi-journal-0");
        let entries = vec![LostEntry { segment, key: "u1".to_owned(), content: None }];
        assert_eq!(lost, Lost { deleted: 0, entries });
    }
}

fn name_of(object: &Arc<Value>) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

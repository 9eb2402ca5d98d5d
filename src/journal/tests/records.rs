//! Recording and removing, and what is shown of it.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_entry_is_on_its_object_when_it_is_recorded_and_leaves_after_it_was_removed() {
    let rig = Rig::new();
    let me = rig.start().await;
    assert!(me.opened().is_empty() && me.journal.is_empty());
    me.keep("u1").await.unwrap();
    let line = r#""at":"2026-01-01T00:00:00Z","volumeName":"pvc-u1","bytes":1073741824}"#;
    let data = rig.data(0).unwrap();
    let text = data["u1"].as_str().unwrap();
    let uid = &rig.server.object(configmaps(), "storage", "demo-csi-journal-0").unwrap()["metadata"]["uid"];
    assert!(text.starts_with(&format!(r#"{{"in":{uid},"since":""#)) && text.ends_with(line), "{text}");
    let object = rig.server.object(configmaps(), "storage", "demo-csi-journal-0").unwrap();
    assert_eq!(object["metadata"]["labels"], json!({ "csi-control-plane.io/journal": "demo.csi" }));
    me.journal.remove("u1");
    assert!(me.journal.is_empty());
    until(4 * S, || rig.data(0) == Some(json!({}))).await;
    // The object is created, the entry is written and removed.
    assert_eq!((rig.writes(), rig.server.audit().count("get", "configmaps")), (3, 16));
}

#[tokio::test(start_paused = true)]
async fn the_same_content_makes_no_request_and_another_replaces_it() {
    let rig = Rig::new();
    let me = rig.start().await;
    me.keep("u1").await.unwrap();
    tokio::time::sleep(S).await;
    me.keep("u1").await.unwrap();
    assert_eq!(rig.writes(), 2);
    let discarding = Asked { discarding: Some("vol-1".into()), ..Asked::volume("u1") };
    me.journal.record("u1", &discarding).await.unwrap();
    let text = rig.data(0).unwrap()["u1"].as_str().unwrap().to_owned();
    assert!(text.contains(r#""at":"2026-01-01T00:00:00Z""#) && text.contains("vol-1"), "{text}");
    assert_eq!(rig.writes(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_500_shares_a_few_writes() {
    let rig = Rig::new();
    let me = rig.start().await;
    let (tasks, mut ends) = Tasks::new("workers");
    for worker in 0..100 {
        let journal = me.journal.clone();
        tasks.spawn(worker, async move {
            for claim in 0..5 {
                let name = format!("{worker}-{claim}");
                journal.record(&name, &Asked::volume(&name)).await.unwrap();
                tokio::time::sleep(20 * MS + MS * (worker % 10)).await;
                journal.remove(&name);
            }
        });
    }
    for _ in 0..100 {
        ends.next().await.unwrap();
    }
    until(5 * S, || rig.keys().is_empty()).await;
    assert!(rig.writes() <= 40, "{}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn people_see_the_entries_oldest_first_and_the_metrics() {
    let rig = Rig::new();
    let me = rig.start().await;
    for name in ["b", "a"] {
        me.keep(name).await.unwrap();
        tokio::time::sleep(2 * S).await;
    }
    let rows: Vec<_> = me.journal.entries().into_iter().map(|row| (row.key, row.age.as_secs())).collect();
    assert_eq!(rows, [("b".to_owned(), 4), ("a".to_owned(), 2)]);
    assert_eq!(me.journal.entries()[0].content, Asked::volume("b"));
    let status = me.journal.status();
    assert_eq!((status.segments, status.waiting, status.is_full, status.fault), (1, 0, false, None));
    let shown = |line: &str| rig.meter.render().contains(line);
    let of =
        |name: &str, value: &str| format!("csi_control_plane_journal_{name}{{driver_name=\"demo.csi\"}} {value}\n");
    assert!(shown(&of("entries", "2")) && shown(&of("bytes", &status.bytes.to_string())), "{}", rig.meter.render());
    assert!(!shown(&of("oldest_entry_age_seconds", "0")) && shown(&of("commit_entries_count", "2")));
    assert!(shown("journal_commits_total{driver_name=\"demo.csi\",result=\"ok\"} 3"));
    rig.tasks.abort_all();
    drop(me);
    tokio::time::sleep(S).await;
    for name in ["entries", "bytes", "oldest_entry_age_seconds"] {
        assert!(shown(&of(name, "0")), "a replica that does not lead has no journal: {}", rig.meter.render());
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_an_entry_is_refused_without_a_request() {
    let rig = Rig::new();
    let me = rig.start().await;
    for key in ["", "a/b", ".."] {
        let error = me.journal.record(key, &Asked::volume("u1")).await.unwrap_err();
        assert_eq!(error.label(), "journal_entry_unwritable");
    }
    let large = Asked { volume_name: "x".repeat(300_000), ..Asked::volume("u1") };
    let error = me.journal.record("u1", &large).await.unwrap_err();
    assert!(error_chain(&error).contains("the journal takes no entry of more than 262144"), "{}", error_chain(&error));
    assert_eq!(rig.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_journal_asks_for_nothing_after_the_first_minutes_of_a_term() {
    let rig = Rig::new();
    let _me = rig.start().await;
    tokio::time::sleep(1000 * S).await;
    // Each segment at first, and four times while a write of the last leader may still land.
    assert_eq!(rig.server.audit().count("get", "configmaps"), 16 * 5);
    tokio::time::sleep(1000 * S).await;
    assert_eq!(rig.server.audit().count("get", "configmaps"), 16 * 5);
    assert_eq!(rig.writes(), 0);
}

//! Kinds that the cluster has and does not show: what is known of them, what the log says, and when they are looked for again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Answer, Seen, Server, pass, status};
use crate::cluster::cache::Cache;
use crate::cluster::caches::Caches;
use crate::cluster::objects::{CsiNode, VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotContent};
use crate::cluster::scope::Viewpoint;
use crate::process::{Clock, Rng, TaskEnds, Tasks};
use crate::telemetry::Meter;
use crate::testing::Warnings;

const SECOND: Duration = Duration::from_secs(1);

type Fault = fn() -> Answer;
/// The list of a plural, or of a version, is answered so.
type Faults = Arc<Mutex<Vec<(&'static str, Fault)>>>;

fn error(code: u16) -> Answer {
    Answer::Json(code, status(code, "InternalError", "conversion webhook for snapshot.storage.k8s.io/v1 failed"))
}

fn broken() -> Answer {
    error(500)
}

/// What a kube-apiserver 1.36 answers if the webhook that converts what it has stored is gone.
fn unfilled() -> Answer {
    let message = "storage is (re)initializing: failed to list snapshot.storage.k8s.io/v1, Kind=VolumeSnapshot: conversion webhook for \
                   snapshot.storage.k8s.io/v1beta1, Kind=VolumeSnapshot failed";
    Answer::Json(429, status(429, "TooManyRequests", message))
}

fn lacking() -> Answer {
    error(404)
}

fn forbidden() -> Answer {
    error(403)
}

/// How many warnings are ours: kube's own have no field `error`.
fn told(warnings: &Warnings) -> usize {
    warnings.errors().iter().filter(|error| !error.is_empty()).count()
}

struct World {
    faults: Faults,
    server: Server,
    caches: Caches,
    meter: Meter,
    _tasks: (Tasks, TaskEnds),
}

/// Watches these kinds of a server whose lists `faults` answers, and which has one object of each kind.
async fn world(faults: &[(&'static str, Fault)], want: impl FnOnce(&Caches)) -> World {
    let faults: Faults = Arc::new(Mutex::new(faults.to_vec()));
    let script = Arc::clone(&faults);
    let object = json!({ "metadata": { "name": "a", "namespace": "shop", "uid": "a", "resourceVersion": "3" } });
    let server = Server::new(move |seen: &Seen| {
        let faults = script.lock().unwrap();
        if seen.is_watch() {
            let (sender, receiver) = mpsc::unbounded_channel();
            std::mem::forget(sender);
            return Answer::Watch(receiver);
        }
        match faults.iter().find(|(part, _)| seen.path.contains(part)) {
            Some((_, fault)) => fault(),
            None => Answer::Json(200, json!({ "metadata": { "resourceVersion": "5" }, "items": [object] })),
        }
    });
    let (caches, meter, (tasks, ends)) = (Caches::new(), Meter::new(), Tasks::new("cluster"));
    want(&caches);
    let clients = server.clients().await;
    caches.start(&clients, &Viewpoint::of("demo"), &tasks, &meter, Clock::system(), Rng::seeded(1));
    World { faults, server, caches, meter, _tasks: (tasks, ends) }
}

impl World {
    fn mend(&self) {
        self.faults.lock().unwrap().clear();
    }

    fn is_shown_unreadable(&self, kind: &str) -> bool {
        self.meter.render().contains(&format!("csi_control_plane_cache_unreadable{{kind=\"{kind}\"}} 1"))
    }

    fn lists(&self, part: &str) -> usize {
        self.server.seen().iter().filter(|seen| !seen.is_watch() && seen.path.contains(part)).count()
    }
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_cannot_be_read_is_known_to_be_so_and_told_once() {
    let cases: [(&str, Fault); 7] = [
        ("a broken conversion", broken),
        ("a cache of the server's that it cannot fill", unfilled),
        ("no acceptable form", || error(406)),
        ("a proxy's page", || Answer::Text(200, "<html>", vec![])),
        ("half a body", || Answer::Text(200, "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[{", vec![])),
        ("an object that is none", || {
            Answer::Json(200, json!({ "metadata": { "resourceVersion": "5" }, "items": [{ "metadata": 7 }] }))
        }),
        ("a list without a version", || Answer::Json(200, json!({ "metadata": {}, "items": [] }))),
    ];
    for (what, fault) in cases {
        let warnings = Warnings::begin();
        let world = world(&[("/volumesnapshots", fault)], |caches| {
            caches.want::<VolumeSnapshot>();
            caches.want::<VolumeSnapshotContent>();
        })
        .await;
        let (snapshots, contents) =
            (world.caches.want::<VolumeSnapshot>(), world.caches.want::<VolumeSnapshotContent>());
        let begun = Instant::now();
        snapshots.settled().await;
        // A server that has just got the kind answers so, too, and is given time.
        let most = if matches!(fault(), Answer::Json(429, _)) { 40 } else { 15 };
        assert!(begun.elapsed() < most * SECOND, "{what}: {:?}", begun.elapsed());
        pass(300 * SECOND).await;
        assert!(
            !snapshots.is_synced() && !snapshots.is_known() && !snapshots.is_absent(),
            "{what}: it may have objects"
        );
        assert!(contents.is_known(), "{what}: what is installed beside it");
        let missing = snapshots.missing().unwrap();
        assert!(missing.starts_with("VolumeSnapshots cannot be read: "), "{what}: {missing}");
        let status = snapshots.status();
        assert!(status.unreadable.is_some() && status.last_error.is_some() && !status.needed, "{what}: {status:?}");
        assert!(world.is_shown_unreadable("VolumeSnapshot"), "{what}");
        assert!(!world.is_shown_unreadable("VolumeSnapshotContent"), "{what}");
        assert_eq!(told(&warnings), 1, "{what}: {:?}", warnings.errors());

        world.mend();
        pass(46 * SECOND).await;
        assert!(snapshots.is_known() && snapshots.len() == 1, "{what}: {:?}", snapshots.status());
        assert_eq!((snapshots.missing(), snapshots.status().unreadable), (None, None), "{what}");
        assert!(!world.is_shown_unreadable("VolumeSnapshot"), "{what}");
        assert_eq!(told(&warnings), 1, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_could_be_read_once_keeps_its_objects_when_it_no_longer_can() {
    let world = world(&[], |caches| drop(caches.want::<VolumeSnapshot>())).await;
    let snapshots = world.caches.want::<VolumeSnapshot>();
    snapshots.synced().await;
    world.faults.lock().unwrap().push(("/volumesnapshots", broken));
    assert!(tokio::time::timeout(60 * SECOND, snapshots.relisted()).await.is_err(), "it is still waited for");
    assert!(snapshots.is_known() && snapshots.len() == 1, "what is missing in no list is not gone");
    assert!(snapshots.status().unreadable.is_some() && world.is_shown_unreadable("VolumeSnapshot"));
}

#[tokio::test(start_paused = true)]
async fn of_a_kind_in_several_versions_the_next_is_read_where_one_cannot_be() {
    let want = |caches: &Caches| drop(caches.want::<VolumeGroupSnapshotContent>());
    let group = |world: &World| -> Cache<VolumeGroupSnapshotContent> { world.caches.want() };
    let forms: [(Fault, &str); 3] = [
        (broken, "it cannot be converted"),
        (|| Answer::Text(200, "<html>", vec![]), "it cannot be understood"),
        (lacking, "it is not served"),
    ];
    for (fault, what) in forms {
        let world = world(&[("/v1/", fault)], want).await;
        let cache = group(&world);
        pass(SECOND).await;
        assert_eq!((cache.len(), cache.version(), cache.is_absent()), (1, Some("v1beta2"), false), "{what}");
    }

    let world = world(&[("/v1/", broken), ("/v1beta2/", lacking)], want).await;
    let cache = group(&world);
    pass(SECOND).await;
    assert_eq!((cache.len(), cache.version()), (1, Some("v1beta1")));
    world.mend();
    cache.relisted().await;
    assert_eq!((cache.len(), cache.version()), (1, Some("v1")), "the better one, as soon as it can be read");
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_not_absent_where_one_version_fails_and_the_others_are_not_served() {
    for (faults, failing) in [
        ([("/v1/", broken as Fault), ("/v1beta2/", lacking as Fault), ("/v1beta1/", lacking as Fault)], "v1"),
        ([("/v1/", lacking), ("/v1beta2/", broken), ("/v1beta1/", lacking)], "v1beta2"),
        ([("/v1/", lacking), ("/v1beta2/", lacking), ("/v1beta1/", broken)], "v1beta1"),
    ] {
        let world = world(&faults, |caches| drop(caches.want::<VolumeGroupSnapshotContent>())).await;
        let cache = world.caches.want::<VolumeGroupSnapshotContent>();
        cache.settled().await;
        assert!(!cache.is_absent() && !cache.is_known(), "{failing}");
        let missing = cache.missing().unwrap();
        assert!(missing.contains("conversion webhook") && missing.contains("(500)"), "{failing}: {missing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_needed_kind_warns_once_until_its_failure_changes() {
    let warnings = Warnings::begin();
    let world = world(&[("/csinodes", forbidden)], |caches| drop(caches.want::<CsiNode>())).await;
    let nodes = world.caches.want::<CsiNode>();
    assert!(nodes.status().needed);
    pass(300 * SECOND).await;
    assert_eq!(told(&warnings), 1, "{:?}", warnings.errors());
    *world.faults.lock().unwrap() = vec![("/csinodes", broken)];
    pass(300 * SECOND).await;
    assert_eq!(told(&warnings), 2, "{:?}", warnings.errors());
    world.mend();
    pass(60 * SECOND).await;
    assert!(nodes.is_synced());
    world.faults.lock().unwrap().push(("/csinodes", forbidden));
    let relisted = tokio::time::timeout(60 * SECOND, nodes.relisted()).await;
    assert_eq!((relisted.is_err(), told(&warnings)), (true, 3), "it is news again");
}

#[tokio::test(start_paused = true)]
async fn what_is_granted_or_mended_together_is_looked_for_together() {
    for fault in [forbidden as Fault, broken, lacking] {
        let world = world(&[("/csinodes", fault), ("/volumesnapshots", fault)], |caches| {
            caches.want::<CsiNode>();
            caches.want::<VolumeSnapshot>();
        })
        .await;
        let (nodes, snapshots) = (world.caches.want::<CsiNode>(), world.caches.want::<VolumeSnapshot>());
        pass(300 * SECOND).await;
        let before = world.lists("/csinodes") + world.lists("/volumesnapshots");
        pass(60 * SECOND).await;
        let looks = world.lists("/csinodes") + world.lists("/volumesnapshots") - before;
        assert!((2..=14).contains(&looks), "rarely: {looks}");
        world.mend();
        tokio::select! {
            () = nodes.relisted() => {}
            () = snapshots.relisted() => {}
        }
        pass(2 * SECOND).await;
        assert!(nodes.is_known() && snapshots.is_known(), "{:?} {:?}", nodes.status(), snapshots.status());
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_just_got_a_kind_causes_no_warning_unless_it_lasts() {
    let initializing: Fault = || Answer::Json(429, status(429, "TooManyRequests", "storage is (re)initializing"));
    let warnings = Warnings::begin();
    let world = world(&[("/volumesnapshots", initializing)], |caches| drop(caches.want::<VolumeSnapshot>())).await;
    let snapshots = world.caches.want::<VolumeSnapshot>();
    pass(3 * SECOND).await;
    assert!(!snapshots.is_synced() && snapshots.status().last_error.is_some(), "the page says so");
    world.mend();
    pass(10 * SECOND).await;
    assert_eq!((snapshots.is_synced(), told(&warnings)), (true, 0), "{:?}", warnings.errors());
    world.faults.lock().unwrap().push(("/volumesnapshots", initializing));
    let _ = tokio::time::timeout(120 * SECOND, snapshots.relisted()).await;
    assert_eq!(told(&warnings), 1, "it goes on: {:?}", warnings.errors());
}

/// A watch that begins at a version that the server no longer has.
#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_is_listed_again_without_a_warning() {
    let warnings = Warnings::begin();
    let watches = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&watches);
    let server = Server::new(move |seen: &Seen| {
        if !seen.is_watch() {
            return Answer::Json(200, json!({ "metadata": { "resourceVersion": "5" }, "items": Vec::<Value>::new() }));
        }
        let mut watches = counted.lock().unwrap();
        *watches += 1;
        let (sender, receiver) = mpsc::unbounded_channel();
        match *watches {
            1 => return Answer::Json(410, status(410, "Expired", "too old resource version: 5 (9)")),
            2 => sender.send(json!({ "type": "ERROR", "object": status(410, "Expired", "too old") })).unwrap(),
            _ => {}
        }
        std::mem::forget(sender);
        Answer::Watch(receiver)
    });
    let (caches, (tasks, _ends)) = (Caches::new(), Tasks::new("cluster"));
    let cache = caches.want::<CsiNode>();
    let clients = server.clients().await;
    caches.start(&clients, &Viewpoint::of("demo"), &tasks, &Meter::new(), Clock::system(), Rng::seeded(1));
    pass(60 * SECOND).await;
    assert_eq!((*watches.lock().unwrap(), cache.status().lists, cache.status().last_error), (3, 3, None));
    assert_eq!(told(&warnings), 0, "{:?}", warnings.errors());
}

/// A watch that shows an object of an unknown shape.
#[tokio::test(start_paused = true)]
async fn an_object_of_a_watch_that_cannot_be_read_is_named_and_the_watch_goes_on() {
    let warnings = Warnings::begin();
    let (sender, receiver) = mpsc::unbounded_channel();
    let watch = Mutex::new(Some(receiver));
    let server = Server::new(move |seen: &Seen| match watch.lock().unwrap().take_if(|_| seen.is_watch()) {
        Some(events) => Answer::Watch(events),
        None if seen.is_watch() => Answer::Silence,
        None => Answer::Json(200, json!({ "metadata": { "resourceVersion": "5" }, "items": Vec::<Value>::new() })),
    });
    let (caches, (tasks, _ends)) = (Caches::new(), Tasks::new("cluster"));
    let cache = caches.want::<CsiNode>();
    let clients = server.clients().await;
    caches.start(&clients, &Viewpoint::of("demo"), &tasks, &Meter::new(), Clock::system(), Rng::seeded(1));
    let shown = |name: &str, drivers: Value| {
        let metadata = json!({ "name": name, "uid": name, "resourceVersion": "6" });
        json!({ "type": "ADDED", "object": { "metadata": metadata, "spec": { "drivers": drivers } } })
    };
    sender.send(shown("node-1", json!("none"))).unwrap();
    pass(SECOND).await;
    let told = cache.status().last_error.unwrap();
    assert!(told.starts_with("the watch broke: ") && told.contains("node-1: invalid type: string"), "{told}");
    assert!(warnings.errors().iter().any(|error| error.contains("node-1: ")), "{:?}", warnings.errors());
    sender.send(shown("node-2", json!([]))).unwrap();
    pass(60 * SECOND).await;
    assert_eq!((cache.len(), cache.status().last_error), (1, None));
}

//! Kinds that are not watched whole: a part, the metadata alone, or nothing where the cluster lacks them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tracing::field::Field;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use super::{Answer, Seen, Server, pass, status};
use crate::cluster::api::{Api, ApiOptions};
use crate::cluster::caches::Caches;
use crate::cluster::names::ObjectName;
use crate::cluster::objects::{
    CsiStorageCapacity, Fields, Node, PersistentVolume, PersistentVolumeClaim, VolumeAttachment, VolumeAttributesClass,
    VolumeGroupSnapshotClass, VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent,
};
use crate::cluster::scope::{Viewpoint, WatchScope};
use crate::process::{Clock, Rng, TaskEnds, Tasks};
use crate::telemetry::Meter;
use crate::testing::listen;

/// A server that answers every list with `items`, or with an error if `code` is one, and every watch with silence.
fn serve(code: &Arc<AtomicU16>, items: Value) -> Server {
    let code = Arc::clone(code);
    Server::new(move |seen: &Seen| match code.load(Ordering::Relaxed) {
        200 if seen.is_watch() => Answer::Watch(mpsc::unbounded_channel().1),
        200 => Answer::Json(200, json!({ "metadata": { "resourceVersion": "5" }, "items": items })),
        code => Answer::Json(code, status(code, "NotFound", "the server could not find the requested resource")),
    })
}

async fn start(server: &Server, caches: &Caches) -> (Tasks, TaskEnds) {
    start_with(server, caches, &Meter::new()).await
}

async fn start_with(server: &Server, caches: &Caches, meter: &Meter) -> (Tasks, TaskEnds) {
    let (tasks, ends) = Tasks::new("cluster");
    let view = Viewpoint { namespace: Some("kube"), ..Viewpoint::of("demo") };
    caches.start(&server.clients().await, &view, &tasks, meter, Clock::system(), Rng::seeded(1));
    (tasks, ends)
}

fn ok() -> Arc<AtomicU16> {
    Arc::new(AtomicU16::new(200))
}

fn object(name: &str, more: &Value) -> Value {
    let mut object = json!({ "metadata": { "name": name, "namespace": "shop", "uid": name, "resourceVersion": "3" } });
    object.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    object
}

#[tokio::test(start_paused = true)]
async fn a_part_is_asked_for_in_its_namespace_and_by_its_labels() {
    let server = serve(&ok(), json!([object("csisc-1", &json!({ "storageClassName": "fast" }))]));
    let caches = Caches::new();
    let cache = caches.want_in::<CsiStorageCapacity>(|view| WatchScope {
        namespace: view.namespace.map(str::to_owned),
        labels: Some(format!("driver={}", view.driver)),
    });
    let _tasks = start(&server, &caches).await;
    cache.synced().await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(cache.len(), 1);
    let seen = server.seen();
    assert!(seen.iter().any(Seen::is_watch));
    for request in seen {
        assert_eq!(request.path, "/apis/storage.k8s.io/v1/namespaces/kube/csistoragecapacities");
        assert!(request.query.contains("labelSelector=driver%3Ddemo"), "{}", request.query);
    }
}

/// A role that is added by a reload reads more of an object than is held, and the object itself has not changed.
#[tokio::test(start_paused = true)]
async fn fields_are_held_from_the_list_after_a_role_asks_for_them_until_it_goes() {
    let bound =
        json!({ "spec": { "volumeName": "pv" }, "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } });
    let server = serve(&ok(), json!([object("a", &bound)]));
    let lists = || server.seen().iter().filter(|seen| !seen.is_watch()).count();
    let caches = Caches::new();
    let (cache, _provisioner) = caches.watch::<PersistentVolumeClaim>();
    let _tasks = start(&server, &caches).await;
    let name = ObjectName::namespaced("shop", "a");
    let size = || cache.get(&name).unwrap().status.resize.as_ref().map(|resize| resize.capacity.clone().unwrap());
    cache.synced().await;
    pass(Duration::from_secs(1)).await;
    assert_eq!((lists(), size()), (1, None), "nobody reads it");
    let (sender, mut changes) = mpsc::unbounded_channel();
    let _told = cache.subscribe(move |change| sender.send((change.old.is_some(), change.new.is_some())).unwrap());
    assert_eq!(changes.try_recv().unwrap(), (false, true));

    let (same, resizer) = caches.watch_with::<PersistentVolumeClaim>(Fields::RESIZE);
    assert!(!same.is_synced(), "what is held lacks what the role reads");
    same.synced().await;
    assert_eq!((lists(), size().as_deref()), (2, Some("1Gi")), "of the same version");
    assert_eq!(changes.try_recv().unwrap(), (true, true), "who listens hears of what is seen only now");
    let (_, second) = caches.watch_with::<PersistentVolumeClaim>(Fields::RESIZE);
    pass(Duration::from_secs(1)).await;
    assert!(same.is_synced() && lists() == 2, "it is there already");

    drop(resizer);
    pass(Duration::from_secs(1)).await;
    assert_eq!((lists(), size().as_deref()), (2, Some("1Gi")), "one reads it still");
    drop(second);
    assert!(cache.is_synced(), "more is held than anybody reads, which hinders nobody");
    pass(Duration::from_secs(1)).await;
    assert_eq!((lists(), size()), (3, None), "the memory is given back");
    assert_eq!(changes.try_recv().unwrap(), (true, true));
}

#[tokio::test(start_paused = true)]
async fn of_a_kind_whose_metadata_is_enough_nothing_else_is_asked_for() {
    let mut node = object("n1", &json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1" }));
    node["metadata"]["labels"] = json!({ "zone": "a" });
    node["metadata"].as_object_mut().unwrap().remove("namespace");
    let server = serve(&ok(), json!([node]));
    let caches = Caches::new();
    let cache = caches.want::<Node>();
    let _tasks = start(&server, &caches).await;
    cache.synced().await;
    pass(Duration::from_secs(1)).await;
    let labels = cache.get(&ObjectName::cluster("n1")).unwrap().metadata.labels.clone().unwrap();
    assert_eq!(labels["zone"], "a");
    let seen = server.seen();
    assert!(
        seen.len() >= 2 && seen.iter().all(|request| request.accept.contains("as=PartialObjectMetadata")),
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_the_cluster_lacks_is_empty_and_looked_for_every_half_minute_at_last() {
    let code = Arc::new(AtomicU16::new(404));
    let server = serve(&code, json!([object("snap", &json!({}))]));
    let caches = Caches::new();
    let cache = caches.want::<VolumeSnapshot>();
    let _tasks = start(&server, &caches).await;
    cache.synced().await;
    pass(Duration::from_secs(1)).await;
    assert!(cache.is_absent() && cache.is_empty() && cache.is_synced());
    let status = cache.status();
    assert_eq!((status.absent, status.errors, status.last_error), (true, 0, None), "no error, and not degraded by it");
    pass(Duration::from_secs(118)).await;
    assert_eq!(server.seen().len(), 8, "after 0, 1, 3, 7, 15, 31, 61 and 91 s");
    cache.relisted().await;
    assert_eq!(server.seen().len(), 9, "who wants to know for certain need not wait");

    code.store(200, Ordering::Relaxed);
    pass(Duration::from_secs(31)).await;
    assert!(!cache.is_absent() && cache.len() == 1);
    code.store(404, Ordering::Relaxed);
    cache.relisted().await;
    assert!(cache.is_absent() && cache.is_empty(), "its CRD was removed, and its objects with it");
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_installed_together_are_found_together() {
    let (code, other) = (Arc::new(AtomicU16::new(404)), Arc::new(AtomicU16::new(404)));
    let codes = (Arc::clone(&code), Arc::clone(&other));
    let server = Server::new(move |seen: &Seen| {
        let code = if seen.path.ends_with("/volumesnapshots") { &codes.0 } else { &codes.1 };
        match code.load(Ordering::Relaxed) {
            200 if seen.is_watch() => Answer::Watch(mpsc::unbounded_channel().1),
            200 => Answer::Json(200, json!({ "metadata": { "resourceVersion": "5" }, "items": [] })),
            _ => Answer::Json(404, status(404, "NotFound", "the server could not find the requested resource")),
        }
    });
    let caches = Caches::new();
    let (snapshots, contents) = (caches.want::<VolumeSnapshot>(), caches.want::<VolumeSnapshotContent>());
    let _tasks = start(&server, &caches).await;
    snapshots.synced().await;
    contents.synced().await;
    // Both are looked for every half minute by now, and the one is asked for.
    pass(Duration::from_secs(62)).await;
    let looks = || server.seen().iter().filter(|seen| seen.path.ends_with("/volumesnapshots")).count();
    let before = looks();
    for _ in 0..100 {
        snapshots.look_again();
        pass(Duration::from_millis(20)).await;
    }
    assert!((1..=3).contains(&(looks() - before)), "once a second, however many name it: {}", looks() - before);
    pass(Duration::from_secs(2)).await;
    other.store(200, Ordering::Relaxed);
    code.store(200, Ordering::Relaxed);
    assert!(snapshots.is_absent() && contents.is_absent());
    snapshots.look_again();
    pass(Duration::from_millis(100)).await;
    assert!(!snapshots.is_absent(), "it is looked for when something names it");
    assert!(!contents.is_absent(), "and so is what is installed with it");
    // The watches of this server end at once, and begin again by themselves.
    let lists = || server.seen().iter().filter(|seen| !seen.is_watch()).count();
    let before = lists();
    snapshots.look_again();
    pass(Duration::from_secs(1)).await;
    assert_eq!(lists(), before, "a kind that is there is not listed again");
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_read_and_written_in_the_best_version_that_the_server_has() {
    let offered = Arc::new(std::sync::Mutex::new("v1beta2"));
    let answers = Arc::clone(&offered);
    let server = Server::new(move |seen: &Seen| {
        let version = *answers.lock().unwrap();
        if !seen.path.contains(&format!("/{version}/")) {
            return Answer::Json(404, status(404, "NotFound", "the server could not find the requested resource"));
        }
        match seen.method.as_str() {
            "GET" if seen.is_watch() => Answer::Watch(mpsc::unbounded_channel().1),
            "GET" if seen.path.ends_with("contents") => {
                Answer::Json(200, json!({ "metadata": { "resourceVersion": "5" }, "items": [object("g", &json!({}))] }))
            }
            _ => Answer::Json(200, object("g", &json!({}))),
        }
    });
    let caches = Caches::new();
    let cache = caches.want::<VolumeGroupSnapshotContent>();
    let _tasks = start(&server, &caches).await;
    cache.synced().await;
    assert_eq!((cache.len(), cache.version(), cache.is_absent()), (1, Some("v1beta2"), false));
    let clients = server.clients().await;
    let api = Api::new(clients.work, &ApiOptions::default(), Meter::new()).in_version_of(&cache);
    api.get::<VolumeGroupSnapshotContent>(&ObjectName::cluster("g")).await.unwrap();
    let path = "/apis/groupsnapshot.storage.k8s.io/v1beta2/volumegroupsnapshotcontents/g";
    assert_eq!(server.seen().pop().unwrap().path, path);

    *offered.lock().unwrap() = "v1";
    cache.relisted().await;
    assert_eq!((cache.len(), cache.version()), (1, Some("v1")), "the other is no longer served");
    *offered.lock().unwrap() = "none";
    cache.relisted().await;
    assert!(cache.is_absent() && cache.is_empty());
    *offered.lock().unwrap() = "v1beta2";
    pass(Duration::from_secs(2)).await;
    assert_eq!((cache.len(), cache.version()), (1, Some("v1beta2")), "looked for soon after it went");
}

/// The rights that the warnings of this thread name.
struct Rights(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> Layer<S> for Rights {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        event.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "right" {
                self.0.lock().unwrap().push(format!("{value:?}"));
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn each_kind_that_may_not_be_read_is_one_warning_that_names_the_right() {
    let named = Arc::<Mutex<Vec<String>>>::default();
    let _guard = listen(tracing_subscriber::registry().with(Rights(Arc::clone(&named))));

    let server = serve(&Arc::new(AtomicU16::new(403)), json!([]));
    let caches = Caches::new();
    caches.want::<VolumeAttributesClass>();
    caches.want::<VolumeSnapshot>();
    caches.want::<VolumeSnapshotContent>();
    caches.want::<VolumeSnapshotClass>();
    caches.want::<VolumeGroupSnapshotContent>();
    caches.want::<VolumeGroupSnapshotClass>();
    caches.want::<PersistentVolumeClaim>();
    let _tasks = start(&server, &caches).await;
    pass(Duration::from_secs(300)).await;
    let named = named.lock().unwrap().clone();
    for (resource, group) in [
        ("volumeattributesclasses", "storage.k8s.io"),
        ("volumesnapshots", "snapshot.storage.k8s.io"),
        ("volumesnapshotcontents", "snapshot.storage.k8s.io"),
        ("volumesnapshotclasses", "snapshot.storage.k8s.io"),
        ("volumegroupsnapshotcontents", "groupsnapshot.storage.k8s.io"),
        ("volumegroupsnapshotclasses", "groupsnapshot.storage.k8s.io"),
    ] {
        let right = format!("list and watch on {resource} in apiGroup {group:?}");
        assert_eq!(named.iter().filter(|it| **it == format!("{right:?}")).count(), 1, "{right}: {named:?}");
    }
    let claims = named.iter().filter(|it| it.contains("on persistentvolumeclaims ")).count();
    assert_eq!((claims, named.len()), (1, 7), "also what the daemon cannot do without: {named:?}");
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_taken_away_empties_nothing_but_one_never_given_does() {
    let code = Arc::new(AtomicU16::new(403));
    let server = serve(&code, json!([object("snap", &json!({}))]));
    let caches = Caches::new();
    let cache = caches.want::<VolumeSnapshot>();
    let meter = Meter::new();
    let _tasks = start_with(&server, &caches, &meter).await;
    let is_counted = || meter.render().contains("resource=\"volumesnapshots\",outcome=\"forbidden\"");
    cache.synced().await;
    assert!(cache.is_empty());
    pass(Duration::from_secs(130)).await;
    assert_eq!(cache.status().errors, 0, "still none, and nothing that is counted");
    assert!(!is_counted(), "{}", meter.render());
    let told = cache.status().last_error;
    assert!(told.is_some_and(|error| error.contains("403")), "but whoever wonders is told");
    code.store(200, Ordering::Relaxed);
    pass(Duration::from_secs(31)).await;
    assert_eq!((cache.len(), cache.status().last_error), (1, None));
    code.store(403, Ordering::Relaxed);
    pass(Duration::from_secs(700)).await;
    assert_eq!(cache.len(), 1);
    assert!(cache.status().last_error.is_some_and(|error| error.contains("403")));
    assert!(is_counted(), "{}", meter.render());
}

/// A snapshot knows its content, the content its volume, and that its claim.
#[tokio::test(start_paused = true)]
async fn a_claims_name_finds_what_belongs_to_it() {
    let of_cluster = |name: &str, spec: Value| json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "3" }, "status": { "phase": "Bound" }, "spec": spec });
    let volume = move |name: &str, claim: &str| {
        of_cluster(
            name,
            json!({ "csi": { "driver": "demo", "volumeHandle": format!("vol-{name}") },
            "claimRef": { "namespace": "shop", "name": claim } }),
        )
    };
    let attachment = move |name: &str, volume: &str| {
        of_cluster(name, json!({ "attacher": "demo", "nodeName": "n1", "source": { "persistentVolumeName": volume } }))
    };
    let content = move |name: &str, volume: &str| {
        of_cluster(
            name,
            json!({ "driver": "demo", "deletionPolicy": "Delete",
            "volumeSnapshotRef": { "namespace": "shop", "name": format!("of-{volume}") },
            "source": { "volumeHandle": format!("vol-{volume}") } }),
        )
    };
    let snapshot =
        |name: &str, content: &str| object(name, &json!({ "status": { "boundVolumeSnapshotContentName": content } }));
    let items = move |path: &str| match path.rsplit('/').next().unwrap() {
        "persistentvolumes" => json!([volume("pv-1", "data"), volume("pv-2", "other")]),
        "volumeattachments" => json!([attachment("a-1", "pv-1"), attachment("a-2", "pv-2"), attachment("a-3", "pv-3")]),
        "volumesnapshotcontents" => json!([content("c-1", "pv-1"), content("c-2", "pv-2")]),
        "volumesnapshots" => json!([snapshot("s-1", "c-1"), snapshot("s-2", "c-2"), snapshot("s-3", "c-3")]),
        path => panic!("{path}"),
    };
    let server = Server::new(move |seen: &Seen| {
        if seen.is_watch() {
            return Answer::Watch(mpsc::unbounded_channel().1);
        }
        Answer::Json(200, json!({ "metadata": { "resourceVersion": "5" }, "items": items(&seen.path) }))
    });
    let caches = Caches::new();
    let (volumes, attachments) = (caches.want::<PersistentVolume>(), caches.want::<VolumeAttachment>());
    let (snapshots, contents) = (caches.want::<VolumeSnapshot>(), caches.want::<VolumeSnapshotContent>());
    let _tasks = start(&server, &caches).await;
    volumes.synced().await;
    attachments.synced().await;
    snapshots.synced().await;
    contents.synced().await;
    pass(Duration::from_secs(1)).await;
    let found = caches.find(&|texts| texts.iter().any(|text| text.contains("shop/data")));
    let told: Vec<String> =
        found.iter().map(|it| format!("{}: {}", it.name, it.whereabouts.as_ref().unwrap())).collect();
    let expected = [
        "pv-1: Bound, claim shop/data",
        "a-1: pv-1 is not attached to n1, claim shop/data",
        "shop/s-1: not ready to use, c-1, claim shop/data",
        "c-1: not ready to use, snapshot shop/of-pv-1, claim shop/data",
    ];
    assert_eq!(told, expected);
    assert_eq!(found[0].handle.as_deref(), Some("vol-pv-1"));
}

//! Probes, metrics and the status of a daemon after some failures.

use csi_control_plane::cluster::names::ANNOTATION_STORAGE_PROVISIONER;
use csi_control_plane::process::Clock;
use csi_control_plane::roles::metrics::catalogue;
use csi_control_plane::roles::{attach_detach, attacher};
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Matching, WatchEnd};
use csi_control_plane::sandbox::api::pure::resources;
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use csi_control_plane::sandbox::kubelet::{Deed, Kubelet, Retries};
use csi_control_plane::telemetry::names::{self, Kind, Metric};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};
use tonic::Code;

use super::beside;
use super::collector::Collector;
use super::exposition::{Family, parse};
use super::program::{Program, eventually, get, role};
use super::rbac_snapshots;
use super::theatre::{DRIVER, NODE, Theatre, node_id};

/// Only a fault of ours would make them appear.
const ACCIDENTS: [&Metric; 3] = [&names::ROLE_RESTARTS, &names::TASK_FAILURES, &names::RPC_LIMIT];

/// What dashboards and alerts for the Go sidecars are made of: csi-lib-utils, client-go's queues and elections, and
/// sig-storage-lib-external-provisioner. Written down here and not taken from the catalogue: a change of that must be seen.
const OF_GO: [(&str, &str, &[&str]); 18] = [
    ("csi_sidecar_operations_seconds", "histogram", &["driver_name", "method_name", "grpc_status_code"]),
    ("leader_election_master_status", "gauge", &["name"]),
    ("workqueue_depth", "gauge", &["name"]),
    ("workqueue_adds_total", "counter", &["name"]),
    ("workqueue_queue_duration_seconds", "histogram", &["name"]),
    ("workqueue_work_duration_seconds", "histogram", &["name"]),
    ("workqueue_unfinished_work_seconds", "gauge", &["name"]),
    ("workqueue_longest_running_processor_seconds", "gauge", &["name"]),
    ("workqueue_retries_total", "counter", &["name"]),
    ("controller_persistentvolumeclaim_provision_total", "counter", &["class", "source"]),
    ("controller_persistentvolumeclaim_provision_failed_total", "counter", &["class", "source"]),
    ("controller_persistentvolumeclaim_provision_duration_seconds", "histogram", &["class", "source"]),
    ("controller_persistentvolume_delete_total", "counter", &["class"]),
    ("controller_persistentvolume_delete_failed_total", "counter", &["class"]),
    ("controller_persistentvolume_delete_duration_seconds", "histogram", &["class"]),
    ("csistoragecapacities_desired_goal", "gauge", &[]),
    ("csistoragecapacities_desired_current", "gauge", &[]),
    ("csistoragecapacities_obsolete", "gauge", &[]),
];

/// A daemon that attached, failed, recovered, detached, listed, found drift and lost a watch; and that provisioned, deleted,
/// failed at both, and found a claim that another had begun and nobody wants any more; and that expanded a volume at the second try, which
/// is not healthy,
/// took and deleted a snapshot, found one that another had begun, and one whose content was removed by force; and that answered a probe of
/// the driver, and was refused by a kubelet.
async fn experienced(theatre: &Theatre, collector: &Collector) -> Program {
    theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gold"},
        "provisioner": DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}));
    // The driver is in one place, whose room is told again when the volume comes.
    theatre.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}));
    theatre.put(claim("begun"));
    theatre.begin_provisioning().await;
    theatre.testbed.api.delete::<PersistentVolumeClaim>("default", "begun").unwrap();
    // A content that another daemon, or csi-snapshotter, has marked.
    theatre.testbed.install_snapshots();
    rbac_snapshots::put_class(theatre);
    theatre.driver().seed(["source"]);
    rbac_snapshots::put_content(theatre, "begun", &json!({"volumeHandle": "source"}));
    rbac_snapshots::mark(theatre, "begun");
    let (probed, registry) = (beside::free(), theatre.path("registry"));
    std::fs::create_dir(&registry).unwrap();
    let nowhere = |_: &str| "/no/such/socket".into();
    let kubelet = Kubelet::start(&registry, Retries::BackingOff, Clock::system(), nowhere);
    let daemon = theatre.daemon_with("daemon", |config| {
        config["roles"]["liveness"] = json!({"listen": probed});
        config["roles"]["registrar"] = json!({"directory": registry});
        config["telemetry"] = json!({"traces": {"endpoint": collector.endpoint()}});
        config["roles"]["reconciler"] = json!({"interval": "100ms", "orphans": true});
        config["roles"]["healthMonitor"] = json!({"interval": "100ms", "listInterval": "100ms"});
        let capacity = json!({"enabled": true, "immediateBinding": true, "ownerLevel": -1});
        config["roles"]["provisioner"] = json!({"retry": {"initial": "100ms", "max": "1s"}, "capacity": capacity});
        config["roles"]["resizer"] = json!({"retry": {"initial": "100ms", "max": "1s"}});
        config["roles"]["snapshotter"] = json!({"retry": {"initial": "100ms", "max": "1s"}});
    });
    daemon.is("serving").await;
    assert_eq!(get(probed, "/healthz").await.code, 200);
    let refused = |deed: &Deed| matches!(deed, Deed::Refused(_));
    eventually("the kubelet refuses", async || kubelet.deeds().iter().any(refused).then_some(())).await;
    provisioned_and_deleted(theatre).await;
    grown(theatre).await;
    rbac_snapshots::ready(theatre, "begun").await;
    rbac_snapshots::delete_content(theatre, "begun");
    snapshots(theatre).await;
    let publish = Method::ControllerPublishVolume;
    theatre.driver().inject(Fault::on(publish, Action::fail(Code::Internal, "no luck")).volume("failing").times(2));
    for volume in ["failing", "drifting", "leaving"] {
        theatre.attach(volume);
        theatre.attached(volume).await;
    }
    theatre.detach("leaving");
    theatre.gone("leaving").await;
    theatre.driver().detach_behind("drifting", &node_id());
    eventually("the drift is repaired", async || (!theatre.driver().published("drifting").is_empty()).then_some(()))
        .await;
    theatre.testbed.api.faults().drop_watches(Matching::any().resource("persistentvolumes"), WatchEnd::Cut);
    daemon
}

fn claim(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "annotations": {ANNOTATION_STORAGE_PROVISIONER: DRIVER}},
        "spec": {"storageClassName": "gold", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
}

/// A claim becomes a volume and the volume is deleted, each at the second try.
async fn provisioned_and_deleted(theatre: &Theatre) {
    let api = &theatre.testbed.api;
    let gone = async || theatre.driver().state().volumes().values().all(|it| it.name.is_empty()).then_some(());
    eventually("what nobody wants is deleted", gone).await;
    for method in [Method::CreateVolume, Method::DeleteVolume] {
        theatre.driver().inject(Fault::on(method, Action::fail(Code::Internal, "no luck")).times(1));
    }
    theatre.put(claim("data"));
    let name = eventually("a volume for the claim", async || {
        let volumes: Vec<PersistentVolume> = api.list("").unwrap();
        volumes.iter().filter_map(|it| it.metadata.name.clone()).find(|name| name.starts_with("pvc-"))
    });
    let name = name.await;
    // As in a cluster: without its claim, which would get another volume of this name at once.
    api.delete::<PersistentVolumeClaim>("default", "data").unwrap();
    let released = PatchBody::Merge(json!({"status": {"phase": "Released"}}));
    api.patch_status::<PersistentVolume>("", &name, released).unwrap();
    eventually("the volume is deleted", async || api.get::<PersistentVolume>("", &name).is_err().then_some(())).await;
}

/// A claim on a raw device grows, at the second try.
async fn grown(theatre: &Theatre) {
    let api = &theatre.testbed.api;
    theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "grows"},
        "provisioner": DRIVER, "allowVolumeExpansion": true}));
    theatre.driver().seed(["grown"]);
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "grown", "namespace": "default"},
        "spec": {"storageClassName": "grows", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block", "volumeName": "grown",
            "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = api.create_value(claim).unwrap();
    theatre.put(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "grown"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "storageClassName": "grows", "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "default", "name": "grown", "uid": claim["metadata"]["uid"]},
            "csi": {"driver": DRIVER, "volumeHandle": "grown"}}}));
    let expand = Method::ControllerExpandVolume;
    theatre.driver().inject(Fault::on(expand, Action::fail(Code::Internal, "no luck")).times(1));
    let bound = PatchBody::Merge(json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}));
    api.patch_status::<PersistentVolumeClaim>("default", "grown", bound).unwrap();
    let wish = PatchBody::Merge(json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
    api.patch::<PersistentVolumeClaim>("default", "grown", wish).unwrap();
    eventually("the claim has grown", async || {
        let claim: PersistentVolumeClaim = api.get("default", "grown").unwrap();
        let capacity = claim.status?.capacity?;
        (capacity["storage"].0 == "2Gi").then_some(())
    })
    .await;
    // And it is not healthy, in a way that is known and in one that is not.
    let bound = PatchBody::Merge(json!({"status": {"phase": "Bound"}}));
    api.patch_status::<PersistentVolume>("", "grown", bound).unwrap();
    assert!(theatre.driver().set_health("grown", [(3, "Torn", "block 7"), (99, "New", "nobody knows")]));
}

/// A snapshot is taken at the second try and deleted; and a content is removed by force while the driver is called for it.
async fn snapshots(theatre: &Theatre) {
    theatre.driver().inject(Fault::on(Method::CreateSnapshot, Action::fail(Code::Internal, "no luck")).once());
    rbac_snapshots::put_content(theatre, "kept", &json!({"volumeHandle": "source"}));
    rbac_snapshots::ready(theatre, "kept").await;
    rbac_snapshots::delete_content(theatre, "kept");
    rbac_snapshots::gone(theatre, "kept").await;
    let asked = theatre.driver().calls_of(Method::CreateSnapshot).len();
    theatre.driver().inject(Fault::on(Method::CreateSnapshot, Action::Hold).once());
    rbac_snapshots::put_content(theatre, "forced", &json!({"volumeHandle": "source"}));
    let is_asked = async || (theatre.driver().calls_of(Method::CreateSnapshot).len() > asked).then_some(());
    eventually("the driver is asked", is_asked).await;
    let contents = resources::of_kind("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent").unwrap();
    let stripped = PatchBody::Merge(json!({"metadata": {"finalizers": null}}));
    theatre.testbed.api.patch_object(contents, "", "forced", stripped, false).unwrap();
    theatre.testbed.api.delete_object(contents, "", "forced").unwrap();
    theatre.driver().release();
    let is_deleted = async || (theatre.driver().state().snapshots().is_empty()).then_some(());
    eventually("what nobody has is deleted", is_deleted).await;
}

#[tokio::test]
async fn every_metric_of_the_catalogue_appears_as_it_is_described_and_prometheus_can_read_it() {
    let theatre = Theatre::open_with(super::theatre::profile().with_volume_health()).await;
    let daemon = experienced(&theatre, &Collector::open().await).await;
    // And followed its file.
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(theatre.path("daemon.yaml")).unwrap()).unwrap();
    config["csi"]["maxLogLength"] = 100.into();
    theatre.file("daemon.yaml", &config.to_string());
    daemon.signal("HUP").await;
    // The role that works for all drivers takes away what was attached here by hand: its own figures are shown in `for_all_drivers`.
    let elsewhere = ACCIDENTS.into_iter().chain(attach_detach::metrics::ALL);
    let expected: Vec<&Metric> =
        catalogue().filter(|metric| elsewhere.clone().all(|other| other.name != metric.name)).collect();
    let mut missing = Vec::new();
    let families = eventually("all metrics", async || {
        let answer = daemon.get("/metrics").await;
        assert_eq!(answer.code, 200);
        assert_eq!(answer.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
        let families = parse(&answer.body);
        let has = |metric: &Metric| families.get(metric.name).is_some_and(|family| !family.samples.is_empty());
        missing = expected.iter().filter(|metric| !has(metric)).map(|metric| metric.name).collect();
        // The missing watch was requested just now: the end of a watch takes a moment to be noticed.
        missing.is_empty().then_some(families)
    });
    let families = families.await;
    for metric in &expected {
        describes(metric, &families[metric.name]);
    }
    let unknown = |name: &&String| !name.starts_with("process_") && catalogue().all(|it| it.name != name.as_str());
    assert_eq!(families.keys().filter(unknown).collect::<Vec<_>>(), Vec::<&String>::new());

    let value = |metric: &Metric, label: &str, wanted: &str| {
        let samples = families[metric.name].samples.iter();
        let found: Vec<f64> = samples.filter(|it| it.label(label) == Some(wanted)).map(|it| it.value).collect();
        assert_eq!(found.len(), 1, "{} {label}={wanted}: {found:?}", metric.name);
        found[0]
    };
    let is = |found: f64, expected: f64| assert!((found - expected).abs() < f64::EPSILON, "{found} is not {expected}");
    is(value(&names::DRIVER_READY, "driver_name", DRIVER), 1.0);
    is(value(&names::ROLE_SERVING, "role", "attacher"), 1.0);
    is(value(&names::LEADER_STATUS, "name", "external-attacher-leader-demo-csi-example-com"), 1.0);
    is(value(&names::CACHE_OBJECTS, "kind", "VolumeAttachment"), 2.0);
    is(value(&attacher::metrics::OPERATION_ERRORS, "error", "Internal"), 2.0);
    is(value(&attacher::metrics::DRIFT, "direction", "attach"), 1.0);
    for name in [
        "cpu_seconds_total",
        "resident_memory_bytes",
        "virtual_memory_bytes",
        "open_fds",
        "max_fds",
        "start_time_seconds",
    ] {
        assert!(families.contains_key(&format!("process_{name}")), "client_golang's process_{name}");
    }
    for (name, kind, labels) in OF_GO {
        let family = families.get(name).unwrap_or_else(|| panic!("the Go sidecars have {name}"));
        assert_eq!(family.kind, kind, "{name}");
        for sample in &family.samples {
            let found: Vec<&str> =
                sample.labels.iter().map(|(label, _)| label.as_str()).filter(|it| *it != "le").collect();
            assert_eq!(found, labels, "{name}");
        }
    }
}

/// The family has the catalogue's kind, help, labels and buckets.
pub(crate) fn describes(metric: &Metric, family: &Family) {
    let (kind, buckets) = match metric.kind {
        Kind::Counter => ("counter", 0),
        Kind::Gauge => ("gauge", 0),
        Kind::Histogram(bounds) => ("histogram", bounds.len() + 1),
    };
    assert_eq!(family.kind, kind, "{}", metric.name);
    assert_eq!(family.help, metric.help, "{}", metric.name);
    for sample in &family.samples {
        let labels: Vec<&str> =
            sample.labels.iter().map(|(label, _)| label.as_str()).filter(|it| *it != "le").collect();
        assert_eq!(labels, metric.labels, "{}", sample.name);
    }
    let bounds = family.samples.iter().filter(|it| it.label("le").is_some()).count();
    let series = family.samples.iter().filter(|it| it.name.ends_with("_count")).count();
    assert!(buckets == 0 || bounds == buckets * series, "{}: {bounds} buckets of {series} series", metric.name);
}

#[tokio::test]
async fn probes_and_status_tell_of_a_daemon_at_work() {
    let theatre = Theatre::open().await;
    let daemon = experienced(&theatre, &Collector::open().await).await;
    // The kubelet asks again now and then. Between its question and its refusal the check says that it has asked.
    eventually("the check names the refusal", async || {
        let answer = daemon.get("/readyz?verbose").await;
        let is_named = answer.body.contains("[-]registrar failed: kubelet refused");
        (answer.code == 500 && is_named).then_some(())
    })
    .await;
    for (path, checks) in [
        ("/livez?", &[][..]),
        ("/readyz?exclude=registrar", &["driver", "caches"]),
        ("/healthz/leader-election?", &["leases"]),
    ] {
        let answer = daemon.get(path).await;
        assert_eq!((answer.code, answer.body.as_str()), (200, "ok"), "{path}");
        let verbose = daemon.get(&format!("{path}&verbose")).await.body;
        for check in checks {
            assert!(verbose.contains(&format!("[+]{check} ok\n")), "{path}: {verbose}");
        }
        assert!(verbose.ends_with("check passed\n"), "{path}: {verbose}");
    }
    theatre.driver().inject(
        Fault::on(Method::ControllerPublishVolume, Action::fail(Code::OutOfRange, "too big")).volume("hopeless"),
    );
    theatre.attach("hopeless");
    let status = daemon
        .shows("the failing volume", |status| {
            status["work"].as_array().unwrap().iter().any(|work| {
                work["key"] == "hopeless" && work["lastError"].as_str().is_some_and(|error| error.contains("too big"))
            })
        })
        .await;
    assert_eq!(status["overall"], "degraded");
    assert_eq!(status["driver"]["name"], DRIVER);
    assert_eq!(status["caches"].as_array().unwrap().len(), 14);
    assert_eq!(role(&status, "reconciler")["state"], "serving");
    assert_eq!(status["taskFailuresTotal"], 0);
    assert!(
        role(&status, "attacher")["lease"].as_str().unwrap().ends_with("external-attacher-leader-demo-csi-example-com")
    );

    let page = daemon.get("/").await;
    assert_eq!((page.code, page.headers["content-type"].as_str()), (200, "text/html; charset=utf-8"));
    for text in [DRIVER, "hopeless", "too big", "attacher", "reconciler", "VolumeAttachment"] {
        assert!(page.body.contains(text), "{text}");
    }
    assert_eq!(daemon.get("/nothing").await.code, 404);
    assert_eq!(theatre.driver().violations(), []);
}

#[tokio::test]
async fn diagnostics_can_be_switched_off() {
    let theatre = Theatre::open().await;
    let mut daemon = theatre.daemon_with("daemon", |config| config["diagnostics"]["listen"] = Value::Null);
    theatre.attach("volume");
    theatre.attached("volume").await;
    // When it has ended, all that it said is here.
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0), "{}", daemon.stderr());
    assert!(
        daemon
            .log()
            .iter()
            .any(|line| line["message"] == "stopping: waiting for work in flight, then releasing the leases")
    );
    assert!(daemon.log().iter().all(|line| line["message"] != "serving diagnostics"), "{}", daemon.stderr());
}

//! Edge cases of the attacher: loops that must end, pauses that must be kept, and stops that must not wait.
//!
//! Each daemon is the real one, on the sandbox's API and driver, over a simulated network and in paused time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so may its helpers")]

use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources;
use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method, Profile};
use csi_control_plane::sandbox::network::{Cut, Network};
use csi_control_plane::sandbox::testbed::{DRIVER_HOST, Daemon, TestBed, Transport};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::logs;

const DRIVER: &str = "demo.csi.example.com";
const LEASE: &str = "external-attacher-leader-demo-csi-example-com";
const SECOND: Duration = Duration::from_secs(1);

struct Scene {
    network: Network,
    testbed: TestBed,
    daemon: Daemon,
}

impl Scene {
    /// Three nodes, the volume `vol-1` that all may share, and a daemon with this attacher.
    async fn set(attacher: &str) -> Self {
        let network = Network::new();
        let profile = Profile::with_nodes(["id-1", "id-2", "id-3"]);
        let ground = Transport::Network(network.clone());
        let testbed = TestBed::set_up(ground, profile, Clock::system(), Rng::seeded(7)).await.unwrap();
        testbed.driver.seed(["vol-1"]);
        for node in 1..=3 {
            let drivers = json!([{ "name": DRIVER, "nodeID": format!("id-{node}"), "topologyKeys": null }]);
            testbed
                .api
                .create_value(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                "metadata": { "name": format!("node-{node}") }, "spec": { "drivers": drivers } }))
                .unwrap();
        }
        testbed
            .api
            .create_value(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "pv-1" },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": { "driver": DRIVER, "volumeHandle": "vol-1" } } }))
            .unwrap();
        let config =
            format!("csi: {{ timeout: 5s }}\ndiagnostics: {{ listen: null }}\nroles:\n  attacher: {attacher}\n");
        let daemon = testbed.start("daemon", &config).await.unwrap();
        Self { network, testbed, daemon }
    }

    fn attach(&self, node: u32) -> String {
        let name = format!("csi-{node}");
        self.testbed
            .api
            .create_value(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": name },
            "spec": { "attacher": DRIVER, "nodeName": format!("node-{node}"),
                "source": { "persistentVolumeName": "pv-1" } } }))
            .unwrap();
        name
    }

    fn attachment(&self, name: &str) -> Option<VolumeAttachment> {
        self.testbed.api.get("", name).ok()
    }

    async fn attached(&self, name: &str) {
        let attached = || self.attachment(name).and_then(|object| object.status).is_some_and(|status| status.attached);
        until(attached).await;
    }

    fn refuse(&self, verb: &str, subresource: &str, how: Rejection, times: u64) {
        let on = Matching::any().verb(verb).resource("volumeattachments").subresource(subresource);
        self.testbed.api.faults().add(ApiFault::on(on, ApiAction::Refuse(how)).times(times));
    }

    fn publishes(&self) -> Vec<Arc<Call>> {
        self.testbed.driver.calls_of(Method::ControllerPublishVolume)
    }

    fn status_patches(&self) -> usize {
        self.testbed.api.audit().matching(|entry| entry.verb == "patch" && entry.subresource == "status").len()
    }
}

async fn until(done: impl Fn() -> bool) {
    let waited = timeout(600 * SECOND, async {
        while !done() {
            sleep(Duration::from_millis(10)).await;
        }
    });
    waited.await.unwrap();
}

/// How often the daemon goes through all attachments in an hour.
async fn resyncs_in_an_hour(attacher: &str) -> usize {
    let (resyncs, _log) = logs::count("resync");
    let scene = Scene::set(attacher).await;
    scene.attached(&scene.attach(1)).await;
    sleep(3600 * SECOND).await;
    scene.daemon.stop().await.unwrap();
    *resyncs.borrow()
}

#[tokio::test(start_paused = true)]
async fn a_resync_of_0s_means_never_and_any_other_as_often_as_it_says() {
    assert_eq!(resyncs_in_an_hour("{ resync: 0s }").await, 0);
    let often = resyncs_in_an_hour("{ resync: 60s }").await;
    assert!((45..=60).contains(&often), "{often}");
}

#[tokio::test(start_paused = true)]
async fn r44_a_namesake_recreated_at_once_after_failing_publishes_is_tried_after_the_first_delay_again() {
    const FAILURES: usize = 5;
    let scene = Scene::set("{ retry: { initial: 1s, max: 1h } }").await;
    let refused = Action::fail(Code::Internal, "not yet");
    // The last of them meets the namesake.
    let times = u32::try_from(FAILURES + 1).unwrap();
    scene.testbed.driver.inject(Fault::on(Method::ControllerPublishVolume, refused).times(times));
    let name = scene.attach(1);
    until(|| scene.publishes().iter().filter(|call| call.ended.is_some()).count() == FAILURES).await;
    scene.testbed.api.delete::<VolumeAttachment>("", &name).unwrap();
    until(|| scene.attachment(&name).is_none()).await;
    assert_eq!(scene.attach(1), name);
    scene.attached(&name).await;
    let calls = scene.publishes();
    let pauses: Vec<Duration> =
        calls.windows(2).map(|pair| pair[1].started.saturating_sub(pair[0].ended.unwrap())).collect();
    assert_eq!(calls.len(), FAILURES + 2);
    assert!(pauses[FAILURES - 2] >= 8 * SECOND, "it had grown: {pauses:?}");
    // Jitter lengthens by a fifth at most.
    let of_namesake = pauses[FAILURES];
    assert!(of_namesake >= SECOND && of_namesake < 2 * SECOND, "{pauses:?}");
    scene.daemon.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r43_attachments_of_one_volume_that_begin_together_all_succeed_at_once() {
    let scene = Scene::set("{}").await;
    let names = [1, 2, 3].map(|node| scene.attach(node));
    for name in &names {
        scene.attached(name).await;
    }
    assert_eq!(scene.status_patches(), 3, "each is recorded, and none has to tell of an error");
    assert_eq!(scene.publishes().len(), 3);
    scene.daemon.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn r5_a_detached_status_that_finds_no_object_is_not_written_again() {
    let scene = Scene::set("{}").await;
    let name = scene.attach(1);
    scene.attached(&name).await;
    // For the daemon, another controller's finalizer keeps the attachment.
    let keep = PatchBody::Json(json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/keep" }]));
    scene.testbed.api.patch::<VolumeAttachment>("", &name, keep).unwrap();
    let attachments = resources::of_kind("storage.k8s.io/v1", "VolumeAttachment").unwrap();
    scene.refuse("patch", "status", Rejection::not_found(attachments, &name), 50);
    // The daemon believes that only after a read.
    scene.refuse("get", "", Rejection::not_found(attachments, &name), 50);
    let before = scene.status_patches();
    scene.testbed.api.delete::<VolumeAttachment>("", &name).unwrap();
    until(|| scene.status_patches() > before).await;
    sleep(60 * SECOND).await;
    assert_eq!(scene.status_patches() - before, 1);
    scene.daemon.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn i9_a_server_that_says_429_again_and_again_does_not_defeat_the_back_off() {
    let scene = Scene::set("{ retry: { initial: 1s, max: 5m } }").await;
    scene.refuse("patch", "status", Rejection::too_many_requests(1), 10_000);
    scene.attach(1);
    until(|| scene.publishes().len() > 6).await;
    let starts: Vec<Duration> = scene.publishes().iter().map(|call| call.started).collect();
    for (failures, pair) in starts.windows(2).enumerate() {
        let promised = SECOND * 2_u32.pow(u32::try_from(failures).unwrap());
        let gap = pair[1].saturating_sub(pair[0]);
        assert!(gap >= promised, "after {} failures: {gap:?}", failures + 1);
    }
    scene.daemon.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_pause_that_a_server_asked_for() {
    let scene = Scene::set("{}").await;
    scene.refuse("patch", "status", Rejection::too_many_requests(600), 10_000);
    scene.attach(1);
    until(|| scene.status_patches() > 0).await;
    let asked = Instant::now();
    scene.daemon.stop().await.unwrap();
    assert!(asked.elapsed() < 10 * SECOND, "{:?}", asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_one_call_to_the_driver_and_not_for_the_line_behind_it() {
    let scene = Scene::set("{}").await;
    scene.testbed.driver.inject(Fault::on(Method::ControllerPublishVolume, Action::Delay(4 * SECOND)));
    for node in 1..=3 {
        scene.attach(node);
    }
    until(|| scene.publishes().len() == 1).await;
    sleep(SECOND).await;
    let asked = Instant::now();
    scene.daemon.terminate();
    scene.daemon.ended().await.unwrap();
    assert!(asked.elapsed() < 6 * SECOND, "{:?}", asked.elapsed());
    let published = scene.testbed.driver.calls_of(Method::ControllerPublishVolume);
    assert_eq!(published.len(), 1, "nothing is begun once the term is being wound down");
    let recorded: Vec<VolumeAttachment> = scene.testbed.api.list("").unwrap();
    let attached = recorded.iter().filter(|object| object.status.as_ref().is_some_and(|status| status.attached));
    assert_eq!(attached.count(), 1, "what the driver has answered is recorded");
}

#[tokio::test(start_paused = true)]
async fn r29_a_driver_that_is_gone_for_changing_reasons_is_gone_all_the_same() {
    let scene = Scene::set("{}").await;
    scene.attached(&scene.attach(1)).await;
    let holder = || {
        let lease: Lease = scene.testbed.api.get("kube-system", LEASE).unwrap();
        lease.spec.and_then(|spec| spec.holder_identity).filter(|holder| !holder.is_empty())
    };
    assert!(holder().is_some());
    scene.network.partition("daemon", DRIVER_HOST, Cut::Refuse);
    scene.network.reset("daemon", DRIVER_HOST);
    for round in 0..6 {
        sleep(8 * SECOND).await;
        let cut = if round % 2 == 0 { Cut::Hang } else { Cut::Refuse };
        scene.network.partition("daemon", DRIVER_HOST, cut);
    }
    assert_eq!(holder(), None, "a replica beside a living driver does better");
    scene.daemon.stop().await.unwrap();
}

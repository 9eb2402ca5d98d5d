//! What users see when something fails, and how often it is tried again.

use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::cluster::names;
use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method, Outcome};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use kube::api::PostParams;
use serde_json::json;
use tonic::Code;

use crate::supplier::figure;
use crate::world::World;
use crate::world::wait::asked;

/// Short enough to wait for, and longer than a busy machine takes for a call that does not hang.
const DEADLINE: &str = "5s";

fn fail(method: Method, code: Code, message: &str) -> Fault {
    Fault::on(method, Action::fail(code, message))
}

/// The pauses between calls: from one's end to the next one's start.
fn pauses(calls: &[Arc<Call>]) -> Vec<Duration> {
    calls.windows(2).map(|pair| pair[1].started.saturating_sub(pair[0].ended.unwrap())).collect()
}

#[tokio::test]
async fn r1_r2_r3_r49_no_write_of_ours_cuts_the_back_off_short() {
    let world = World::new().await;
    let retry = json!({ "roles": { "attacher": { "retry": { "initial": "100ms", "max": "800ms" } } } });
    let _daemon = world.daemon(retry).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    // Another message each time: another write of the error, with other managed fields, each time.
    for message in ["first", "second", "third", "fourth", "fifth"] {
        world.driver().inject(fail(Method::ControllerPublishVolume, Code::Internal, message).once());
    }
    let attachment = world.attach(&volume, &node).await;
    world.attached(&attachment).await;
    let calls = world.publishes(&volume);
    assert_eq!(calls.len(), 6);
    for (pause, least) in pauses(&calls).into_iter().zip([100, 200, 400, 800, 800]) {
        // Jitter only lengthens.
        assert!(pause >= Duration::from_millis(least), "{pause:?} is less than {least} ms");
    }
}

#[tokio::test]
async fn r35_an_attach_error_has_the_drivers_code_until_the_next_outcome() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let node = world.name("node");
    world.know_node(&world.node_id(&node));
    let volume = world.volume("pv").await;
    let publish = Method::ControllerPublishVolume;
    world.driver().inject(fail(publish, Code::ResourceExhausted, "the node is full").times(3));
    let attachment = world.attach(&volume, &node).await;

    // An error of Kubernetes' side has no gRPC code.
    let failed = world.failed(&attachment, "CSINode").await;
    assert_eq!(failed.status.unwrap().attach_error.unwrap().error_code, None);
    assert_eq!(failed.metadata.finalizers, None, "nothing was begun");

    world.register(&node, &world.node_id(&node)).await;
    let failed = world.failed(&attachment, "the node is full").await;
    let error = failed.status.unwrap().attach_error.unwrap();
    assert_eq!(error.error_code, Some(8));
    assert_eq!(error.message.unwrap(), "rpc error: code = ResourceExhausted desc = the node is full");
    assert!(error.time.is_some());

    let attached = world.attached(&attachment).await;
    assert_eq!(attached.status.unwrap().attach_error, None);
}

#[tokio::test]
async fn error_codes_can_be_switched_off() {
    let (world, _daemon) = World::with_daemon(json!({ "roles": { "attacher": { "errorCodes": false } } })).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    world.driver().inject(fail(Method::ControllerPublishVolume, Code::ResourceExhausted, "full"));
    let attachment = world.attach(&volume, &node).await;
    let failed = world.failed(&attachment, "full").await;
    assert_eq!(failed.status.unwrap().attach_error.unwrap().error_code, None);
}

#[tokio::test]
async fn r46_a_message_of_5_kib_is_cut_between_characters_and_seen() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    // Three bytes a character, so that most places to cut are inside of one.
    let message = "\u{6c34}".repeat(5 * 1024 / 3);
    world.driver().inject(fail(Method::ControllerPublishVolume, Code::Internal, &message));
    world.driver().inject(fail(Method::ControllerUnpublishVolume, Code::Internal, &message));
    let attachment = world.attach(&volume, &node).await;
    let failed = world.failed(&attachment, "\u{6c34}\u{6c34}").await;
    let shown = failed.status.unwrap().attach_error.unwrap().message.unwrap();
    assert!(shown.len() <= 1024 && shown.len() > 900, "{} bytes", shown.len());
    world.detach(&attachment).await;
    let failed = world.detach_failed(&attachment, "\u{6c34}\u{6c34}").await;
    assert!(failed.status.unwrap().detach_error.unwrap().message.unwrap().len() <= 1024);
}

#[tokio::test]
async fn r4_no_error_of_an_unpublish_counts_as_detached() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    let codes: Vec<Code> = (1..17).map(Code::from).collect();
    for code in codes {
        let volume = world.volume(&format!("pv-{}", code as i32)).await;
        let attachment = world.attach(&volume, &node).await;
        world.attached(&attachment).await;
        let refused = fail(Method::ControllerUnpublishVolume, code, "not now");
        world.driver().inject(refused.volume(&world.handle(&volume)));
        world.detach(&attachment).await;
        let object = world.detach_failed(&attachment, "not now").await;
        assert!(object.finalizers().contains(&world.finalizer()), "{code:?}");
        assert!(object.status.unwrap().attached, "{code:?}: the record stays as it was");
        world.driver().clear_faults();
        world.gone::<VolumeAttachment>(&attachment).await;
        assert!(!world.is_published(&volume, &node), "{code:?}");
    }
}

#[tokio::test]
async fn every_error_of_a_publish_is_tried_again_and_shows_its_code() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    for code in (1..17).map(Code::from) {
        let volume = world.volume(&format!("pv-{}", code as i32)).await;
        let refused = fail(Method::ControllerPublishVolume, code, "not now");
        world.driver().inject(refused.volume(&world.handle(&volume)));
        let attachment = world.attach(&volume, &node).await;
        let error = world.failed(&attachment, "not now").await.status.unwrap().attach_error.unwrap();
        assert_eq!(error.error_code, Some(code as i32));
        world.driver().clear_faults();
        world.attached(&attachment).await;
    }
}

#[tokio::test]
async fn r32_a_publish_that_hangs_is_given_up_at_its_deadline_and_tried_again() {
    let (world, _daemon) = World::with_daemon(json!({ "csi": { "timeout": DEADLINE } })).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::DoneButHang).once());
    let attachment = world.attach(&volume, &node).await;
    world.failed(&attachment, "DeadlineExceeded").await;
    world.attached(&attachment).await;
    let calls = world.publishes(&volume);
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].outcome, Outcome::Abandoned);
    let waited = calls[0].ended.unwrap().saturating_sub(calls[0].started);
    // Not before its deadline, and not after the one that every other scenario has.
    assert!(waited >= Duration::from_millis(4_900) && waited < Duration::from_secs(60), "{waited:?}");
}

#[tokio::test]
async fn an_unpublish_that_hangs_is_given_up_and_tried_again() {
    let (world, _daemon) = World::with_daemon(json!({ "csi": { "timeout": DEADLINE } })).await;
    let (_, volume, attachment) = world.attached_anew().await;
    world.driver().inject(Fault::on(Method::ControllerUnpublishVolume, Action::Hang).once());
    world.detached(&attachment).await;
    assert_eq!(world.unpublishes(&volume).len(), 2);
}

#[tokio::test]
async fn a_failure_and_its_recovery_are_told_once_each_on_claim_and_attachment() {
    let (world, _daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": world.name("claim"), "namespace": "default" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    }))
    .unwrap();
    let claim = world.namespaced::<PersistentVolumeClaim>().create(&PostParams::default(), &claim).await.unwrap();
    let reference = json!({ "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default",
        "name": claim.name_any(), "uid": claim.uid() } });
    let volume = world.volume_with("pv", reference).await;
    world.driver().inject(fail(Method::ControllerPublishVolume, Code::Internal, "the array is on fire").times(4));
    let attachment = world.attach(&volume, &node).await;
    let attached = world.attached(&attachment).await;

    for uid in [claim.uid().unwrap(), attached.uid().unwrap()] {
        let both = |reasons: &[String]| reasons.len() >= 2;
        let events = world
            .events_until(&uid, "a failure and a recovery", |events| {
                both(&events.iter().filter_map(|event| event.reason.clone()).collect::<Vec<_>>())
            })
            .await;
        let mut told: Vec<(String, String)> =
            events.iter().map(|it| (it.type_.clone().unwrap(), it.reason.clone().unwrap())).collect();
        told.sort();
        let expected = [("Normal", "VolumeAttachRecovered"), ("Warning", "VolumeAttachFailed")];
        assert_eq!(told, expected.map(|(kind, reason)| (kind.to_owned(), reason.to_owned())));
        let failure = events.iter().find(|it| it.type_.as_deref() == Some("Warning")).unwrap();
        let text = failure.message.as_deref().unwrap();
        assert!(text.contains("the array is on fire") && text.contains(&node), "{text}");
    }
}

#[tokio::test]
async fn r39_status_page_and_metrics_tell_of_a_failure_and_of_its_end() {
    let (world, daemon) = World::with_daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    world.driver().inject(fail(Method::ControllerPublishVolume, Code::Internal, "the array is on fire"));
    let attachment = world.attach(&volume, &node).await;
    world.failed(&attachment, "the array is on fire").await;
    // A second attempt has begun, so the first one's account is complete.
    world.driver_until("a second attempt", |_| world.publishes(&volume).len() > 1).await;

    let status = world.status(&daemon).await;
    assert_eq!(status["driver"]["name"], world.driver_name());
    let work = status["work"].as_array().unwrap();
    let item = work.iter().find(|item| item["key"] == attachment.as_str()).unwrap_or_else(|| panic!("{status:#}"));
    let text = item.to_string();
    assert!(text.contains("the array is on fire") && text.contains(&volume) && text.contains(&node), "{text}");
    assert_eq!(status["overall"], "degraded", "{status:#}");

    let metrics = world.metrics(&daemon).await;
    let method = "method_name=\"/csi.v1.Controller/ControllerPublishVolume\"";
    let failures = metrics.lines().find(|line| {
        line.starts_with("csi_sidecar_operations_seconds_count") && line.contains(method) && line.contains("Internal")
    });
    assert!(failures.is_some(), "{metrics}");
    // attacher R39: one registry, with the process's own figures and the leadership.
    for line in ["process_start_time_seconds ", "leader_election_master_status{"] {
        assert!(metrics.lines().any(|it| it.starts_with(line)), "{line}");
    }
    let failing = |metrics: &str| {
        let line =
            metrics.lines().find(|it| it.contains("failing") && it.contains("\"attach\"") && !it.starts_with('#'));
        line.map(|line| line.rsplit(' ').next().unwrap().to_owned())
    };
    assert_eq!(failing(&metrics).as_deref(), Some("1"), "{metrics}");

    world.driver().clear_faults();
    world.attached(&attachment).await;
    // The next attachment's end comes after this one's account was closed.
    let next = world.volume("next").await;
    world.attached(&world.attach(&next, &node).await).await;
    assert_eq!(failing(&world.metrics(&daemon).await).as_deref(), Some("0"));
    assert!(!world.status(&daemon).await.to_string().contains("the array is on fire"));
}

#[tokio::test]
async fn what_a_claims_author_writes_freely_is_no_label() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let invented = world.name("invented");
    let owner = json!({ names::ANNOTATION_STORAGE_PROVISIONER: world.driver_name() });
    let from = json!({ "apiGroup": "example.com", "kind": invented, "name": "monday" });
    let plain = world.claim("plain", &invented, json!({ "metadata": { "annotations": owner } })).await;
    let dump = json!({ "metadata": { "annotations": owner }, "spec": { "dataSourceRef": from } });
    let dump = world.claim("dump", &invented, dump).await;
    for claim in [&plain, &dump] {
        world.claim_told(claim, "ProvisioningFailed", &invented).await;
    }
    let failed = "controller_persistentvolumeclaim_provision_failed_total";
    for source in ["source=\"\"", "source=\"populator\""] {
        let metrics = world.metrics(&daemon).await;
        assert!(figure(&metrics, failed, &["class=\"\"", source]).is_some(), "{source}: {metrics}");
        assert!(!metrics.contains(&invented), "{metrics}");
    }
}

#[tokio::test]
async fn a_daemon_that_does_not_know_its_node_does_not_claim_to_serve_it() {
    let (world, daemon) = World::with_supplier(json!({ "nodeDeployment": { "enabled": true } })).await;
    let told = async || {
        let status = world.status(&daemon).await;
        let roles = status["roles"].as_array().unwrap();
        let role = roles.iter().find(|role| role["name"] == "provisioner")?;
        let says =
            role["lastError"].as_str().is_some_and(|error| error.contains(" ago: ") && error.contains("NODE_NAME"));
        (says && role["state"] == "restarting" && role["restarts"].as_u64() > Some(0)).then_some(())
    };
    asked("the role says what is missing", told).await;
    let metrics = world.metrics(&daemon).await;
    let restarts = figure(&metrics, "csi_control_plane_role_restarts_total", &["provisioner"]);
    assert!(restarts > Some(0.0), "{metrics}");
}

#[tokio::test]
async fn the_status_tells_what_runs() {
    let (world, daemon) = World::with_daemon(json!({ "roles": { "reconciler": { "interval": "100ms" } } })).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hang));
    world.attach(&volume, &node).await;
    let handle = world.handle(&volume);
    let told = async || {
        let status = world.status(&daemon).await;
        let all = |of: &str| status[of].as_array().cloned().unwrap_or_default();
        let runs = |task: &str| all("tasks").iter().any(|it| it == task);
        let table = all("tables").into_iter().find(|it| it["name"] == "volumeCalls");
        let calls = table.is_some_and(|it| it["rows"].as_array().unwrap().iter().any(|row| row["volume"] == handle));
        let passes = all("roles").iter().any(|it| it["name"] == "reconciler" && it["facts"][0]["name"] == "last pass");
        (calls && passes && runs("app.csi") && runs("attacher.drift")).then_some(())
    };
    asked("the status tells of tasks, of the last pass and of the call", told).await;
}

#[tokio::test]
async fn an_attachment_that_is_gone_when_its_attempt_fails_does_not_stay_in_the_figures() {
    let (world, daemon) = World::with_daemon(json!({ "csi": { "timeout": DEADLINE } })).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let hang = Fault::on(Method::ControllerPublishVolume, Action::Hang).volume(&world.handle(&volume));
    world.driver().inject(hang);
    let attachment = world.attach(&volume, &node).await;
    world.driver_until("asked", |_| world.publishes(&volume).len() == 1).await;
    // By force, as a user may do who has given up.
    world.detach(&attachment).await;
    world.drop_finalizer::<VolumeAttachment>(&attachment, 0).await;
    world.gone::<VolumeAttachment>(&attachment).await;
    let ended = "csi_sidecar_operations_seconds_count";
    asked("the end of the call", async || figure(&world.metrics(&daemon).await, ended, &["DeadlineExceeded"])).await;
    // The next attachment's end comes after this one's account was closed.
    let next = world.volume("next").await;
    world.attached(&world.attach(&next, &node).await).await;
    let failing = "csi_control_plane_attachments_failing";
    for operation in ["\"attach\"", "\"detach\""] {
        assert_eq!(figure(&world.metrics(&daemon).await, failing, &[operation]), Some(0.0), "{operation}");
    }
}

//! What a term of the attach/detach controller writes and tells, under paused time.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1 as storage;
use serde_json::json;

use crate::diagnostics::Cell;
use crate::roles::attach_detach::fixtures::{
    asking, at, attach, attachment, attachments, bind, cluster, delete_pod, events, failure, id, node, pod, report,
    reported, says, set_attached, settled, uses,
};
use crate::roles::kit::served::Served;
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action, Fault, Matching};
use crate::sandbox::api::pure::rejection::Rejection;

use super::*;

const ONCE: &str = "ReadWriteOnce";
/// How many pods come at once.
const PODS: usize = 100;
const MANY: &str = "ReadWriteMany";
/// Longer than anything that follows at once.
const SOON: Duration = Duration::from_secs(5);

fn writes(world: &Served, verb: &str, resource: &str) -> u64 {
    world.testbed.api.audit().count(verb, resource)
}

#[tokio::test(start_paused = true)]
async fn d1_a_pod_gets_its_volume_when_its_claim_is_bound_and_reads_that_it_has_it() {
    let world = cluster(json!({})).await;
    pod(&world, "web", "n1", "data");
    world.lead();
    tokio::time::sleep(SOON).await;
    let missing = "claim data does not exist";
    assert_eq!(waiting(&world), [("default/web".to_owned(), missing.to_owned())]);
    assert_eq!(events(&world), [], "it is mostly there soon");
    tokio::time::sleep(Duration::from_secs(600)).await;
    let first = ("FailedAttachVolume".to_owned(), "web".to_owned(), format!("AttachVolume.Attach waits: {missing}"));
    assert_eq!(events(&world), std::slice::from_ref(&first), "once");
    bind(&world, "data", "v", ONCE);
    world.until("it is asked for", |world| attachments(world) == at(&["n1"])).await;
    assert_eq!(waiting(&world)[0].1, "the attacher of other.csi");
    attach(&world);
    world.until("it is told", |world| events(world).len() > 1).await;
    let note = "AttachVolume.Attach succeeded for volume \"pv-data\" ";
    assert_eq!(events(&world), [first, ("SuccessfulAttachVolume".to_owned(), "web".to_owned(), note.to_owned())]);
    assert_eq!((reported(&world, "n1"), waiting(&world)), (vec!["v".to_owned()], vec![]));
    world.testbed.tear_down().await;
}

/// The pods of the table of the status page, and what they wait for.
fn waiting(world: &Served) -> Vec<(String, String)> {
    let tables = world.context.board.report().tables;
    let table = tables.into_iter().find(|table| table.name == "waitingPods").unwrap();
    let text = |cell: &Cell| cell.text().unwrap_or_default().to_owned();
    table.rows.iter().map(|row| (text(&row["pod"]), text(&row["waitsFor"]))).collect()
}

#[tokio::test(start_paused = true)]
async fn d2_a_volume_in_use_stays_and_is_withdrawn_before_it_is_deleted() {
    let world = settled(json!({})).await;
    uses(&world, "n1", &["v"]);
    delete_pod(&world, "web");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((attachments(&world), reported(&world, "n1")), (at(&["n1"]), vec!["v".to_owned()]), "D5: it is healthy");
    // The name is out before the attachment is gone.
    let held = world.testbed.api.faults().add(Fault::on(Matching::any().verb("delete"), Action::Hold));
    uses(&world, "n1", &[]);
    world.until("the deletion is sent", |world| world.testbed.api.faults().hits(held) == 1).await;
    assert_eq!((attachments(&world), reported(&world, "n1")), (at(&["n1"]), vec![]));
    world.testbed.api.faults().clear();
    world.until("it is gone", |world| attachments(world).is_empty()).await;
    world.rest().await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d8_what_the_cache_calls_free_and_the_live_node_does_not_stays() {
    let world = settled(json!({})).await;
    world.testbed.api.faults().hold_watches(Matching::any().resource("nodes"));
    uses(&world, "n1", &["v"]);
    delete_pod(&world, "web");
    tokio::time::sleep(SOON).await;
    assert_eq!((attachments(&world), reported(&world, "n1")), (at(&["n1"]), vec!["v".to_owned()]));
    assert_eq!(writes(&world, "delete", "volumeattachments"), 0);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d5_d6_d7_a_lost_node_is_forced_by_the_timer_or_the_taint_alone() {
    let lost = json!({ "conditions": [{ "type": "Ready", "status": "Unknown" }] });
    for (is_forced, section) in [(true, json!({})), (false, json!({ "forceDetachOnTimeout": false }))] {
        let world = settled(section).await;
        uses(&world, "n1", &["v"]);
        says(&world, "n1", &lost);
        delete_pod(&world, "web");
        tokio::time::sleep(Duration::from_secs(350)).await;
        assert_eq!(attachments(&world), at(&["n1"]), "it may come back");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(attachments(&world).is_empty(), is_forced);
        let taint =
            json!({ "spec": { "taints": [{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute" }] } });
        world.testbed.api.patch::<core::Node>("", "n1", PatchBody::Merge(taint)).unwrap();
        world.until("it is forced", |world| attachments(world).is_empty()).await;
        let reason = if is_forced { "timeout" } else { "out-of-service" };
        let series = format!("forced_detaches{{reason=\"{reason}\"}} 1");
        assert!(world.context.meter.render().contains(&series), "{series}");
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn d12_and_d26_nothing_is_deleted_while_the_status_cannot_be_written() {
    let patches = || Matching::any().verb("patch").resource("nodes").subresource("status");
    for action in [Action::Refuse(broken()), Action::Refuse(Rejection::too_many_requests(1)), Action::CutBefore] {
        let world = settled(json!({})).await;
        world.testbed.api.faults().add(Fault::on(patches(), action.clone()));
        delete_pod(&world, "web");
        tokio::time::sleep(Duration::from_secs(400)).await;
        let held = (attachments(&world), reported(&world, "n1"));
        assert_eq!(held, (at(&["n1"]), vec!["v".to_owned()]), "{action:?}");
        assert_eq!(writes(&world, "delete", "volumeattachments"), 0, "{action:?}");
        let failure = failure(&world).unwrap();
        assert!(failure.starts_with("the attached volumes of 1 nodes cannot be reported"), "{failure}");
        world.testbed.api.faults().clear();
        world.until("it is gone", |world| attachments(world).is_empty()).await;
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn d26_lost_answers_of_each_request_lead_to_the_same_end() {
    for (verb, resource) in [("patch", "nodes"), ("delete", "volumeattachments"), ("create", "volumeattachments")] {
        for action in [Action::CutAfter, Action::CutBefore, Action::RefuseAfter(broken()), Action::Refuse(broken())] {
            let world = cluster(json!({})).await;
            let fault = Fault::on(Matching::any().verb(verb).resource(resource), action.clone()).times(2);
            world.testbed.api.faults().add(fault);
            bind(&world, "data", "v", ONCE);
            pod(&world, "web", "n1", "data");
            world.lead();
            world.until("it is reported", |world| (attach(world), reported(world, "n1")).1 == ["v"]).await;
            delete_pod(&world, "web");
            world.until("it is gone", |world| attachments(world).is_empty()).await;
            assert_eq!(reported(&world, "n1"), Vec::<String>::new(), "{verb} {action:?}");
            world.testbed.tear_down().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn d26_what_the_api_may_still_delete_is_kept_before_it_is_reported_again() {
    let world = settled(json!({})).await;
    let name = id("v").attachment_name("n1");
    let uid = |world: &Served| world.testbed.api.get::<storage::VolumeAttachment>("", &name).ok()?.metadata.uid;
    let first = uid(&world);
    let deletes = Matching::any().verb("delete").resource("volumeattachments");
    let late =
        world.testbed.api.faults().add(Fault::on(deletes, Action::DelayBefore(Duration::from_secs(80))).times(1));
    delete_pod(&world, "web");
    world.until("the deletion is under way", |world| world.testbed.api.faults().hits(late) == 1).await;
    pod(&world, "next", "n1", "data");
    world.until("it is reported", |world| reported(world, "n1") == ["v"]).await;
    assert_eq!(world.testbed.api.faults().hits(late), 1, "the deletion is under way still");
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!((uid(&world), reported(&world, "n1")), (first, vec!["v".to_owned()]), "it names another version");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d27_what_an_earlier_leader_may_have_asked_to_delete_is_kept_before_it_is_reported() {
    let world = cluster(json!({})).await;
    bind(&world, "data", "v", ONCE);
    attachment(&world, "n1", "v", "data", true);
    pod(&world, "web", "n1", "data");
    let name = id("v").attachment_name("n1");
    let version = |world: &Served| {
        world.testbed.api.get::<storage::VolumeAttachment>("", &name).unwrap().metadata.resource_version
    };
    let patches = Matching::any().verb("patch").resource("volumeattachments");
    let (first, held) = (version(&world), world.testbed.api.faults().add(Fault::on(patches, Action::Hold)));
    world.lead();
    world.until("it is being kept", |world| world.testbed.api.faults().hits(held) == 1).await;
    tokio::time::sleep(SOON).await;
    assert_eq!((version(&world), reported(&world, "n1")), (first.clone(), vec![]), "it may go at any moment");
    world.testbed.api.faults().clear();
    world.until("it is reported", |world| reported(world, "n1") == ["v"]).await;
    assert_ne!(version(&world), first, "what was sent before names another version");
    assert_eq!(writes(&world, "patch", "volumeattachments"), 1);
    world.testbed.tear_down().await;
}

fn broken() -> Rejection {
    Rejection::internal("broken")
}

#[tokio::test(start_paused = true)]
async fn d13_what_cannot_be_deleted_is_reported_again() {
    let world = settled(json!({})).await;
    let fault = Fault::on(Matching::any().verb("delete").resource("volumeattachments"), Action::Refuse(broken()));
    let refused = world.testbed.api.faults().add(fault);
    delete_pod(&world, "web");
    world.until("it is refused", |world| world.testbed.api.faults().hits(refused) > 0).await;
    world.until("it is reported again", |world| reported(world, "n1") == ["v"]).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(world.testbed.api.faults().hits(refused) < 20, "it backs off");
    world.testbed.api.faults().clear();
    world.until("it is gone", |world| attachments(world).is_empty()).await;
    assert_eq!(reported(&world, "n1"), Vec::<String>::new());
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d17_what_is_deleted_by_hand_is_withdrawn_and_made_anew() {
    let world = settled(json!({})).await;
    let name = id("v").attachment_name("n1");
    let uid = |world: &Served| world.testbed.api.get::<storage::VolumeAttachment>("", &name).ok()?.metadata.uid;
    let first = uid(&world);
    let held = world.testbed.api.faults().add(Fault::on(Matching::any().verb("create"), Action::Hold));
    assert!(world.testbed.api.delete::<storage::VolumeAttachment>("", &name).is_ok());
    world.until("it is asked for anew", |world| world.testbed.api.faults().hits(held) > 0).await;
    assert_eq!(reported(&world, "n1"), Vec::<String>::new(), "withdrawn before");
    world.testbed.api.faults().clear();
    world.until("it is reported", |world| (attach(world), reported(world, "n1")).1 == ["v"]).await;
    assert!(uid(&world).is_some() && uid(&world) != first);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d4_a_shared_volume_is_attached_to_each_node_and_goes_with_the_last_pod_there() {
    let world = cluster(json!({})).await;
    node(&world, "n3");
    bind(&world, "data", "v", MANY);
    for (name, on) in [("a", "n1"), ("b", "n2"), ("c", "n3"), ("d", "n3")] {
        pod(&world, name, on, "data");
    }
    world.lead();
    let is_at = |nodes: &'static [&str]| move |world: &Served| (attach(world), attachments(world)).1 == at(nodes);
    world.until("three", is_at(&["n1", "n2", "n3"])).await;
    delete_pod(&world, "c");
    delete_pod(&world, "a");
    world.until("two", is_at(&["n2", "n3"])).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(attachments(&world), at(&["n2", "n3"]), "another pod of n3 wants it");
    delete_pod(&world, "d");
    world.until("one", is_at(&["n2"])).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d3_d18_and_d34_who_waits_for_an_exclusive_volume_reads_for_whom_and_what_for() {
    let world = settled(json!({})).await;
    pod(&world, "late", "n2", "data");
    let told =
        |world: &Served| events(world).into_iter().filter(|it| it.1 == "late").map(|it| it.2).collect::<Vec<_>>();
    world.until("it is told", |world| told(world).len() == 1).await;
    let used = "Multi-Attach error for volume \"pv-data\" Volume is already used by pod(s) web";
    assert_eq!((told(&world), waiting(&world)), (vec![used.to_owned()], vec![("default/late".into(), used.into())]));
    uses(&world, "n1", &["v"]);
    delete_pod(&world, "web");
    world.until("it is told anew", |world| told(world).len() == 2).await;
    assert!(told(&world)[1].starts_with("Waiting for detach for volume \"pv-data\""), "{:?}", told(&world));
    uses(&world, "n1", &[]);
    world.until("it moves", |world| (attach(world), reported(world, "n2")).1 == ["v"]).await;
    assert_eq!((attachments(&world), reported(&world, "n1")), (at(&["n2"]), vec![]));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d21_a_node_is_managed_once_its_annotation_comes_and_frozen_once_it_goes() {
    let world = cluster(json!({})).await;
    let managed = |value: serde_json::Value| {
        let key = "volumes.kubernetes.io/controller-managed-attach-detach";
        let patch = PatchBody::Merge(json!({ "metadata": { "annotations": { key: value } } }));
        world.testbed.api.patch::<core::Node>("", "n1", patch).unwrap();
    };
    managed(json!(null));
    bind(&world, "data", "v", ONCE);
    pod(&world, "web", "n1", "data");
    world.lead();
    tokio::time::sleep(SOON).await;
    assert_eq!(attachments(&world), at(&[]));
    managed(json!("true"));
    world.until("it is asked for", |world| attachments(world) == at(&["n1"])).await;
    managed(json!(null));
    tokio::time::sleep(SOON).await;
    attach(&world);
    delete_pod(&world, "web");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((attachments(&world), reported(&world, "n1")), (at(&["n1"]), vec![]), "frozen");
    managed(json!(""));
    world.until("it is gone", |world| attachments(world).is_empty()).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d29_a_driver_that_is_deleted_and_made_anew_attaches_nothing_meanwhile() {
    let world = cluster(json!({ "driverGrace": "2m" })).await;
    let driver = || {
        let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": "other.csi" },
            "spec": { "attachRequired": false } });
        world.testbed.api.create_value(object).unwrap();
    };
    driver();
    bind(&world, "data", "v", ONCE);
    pod(&world, "web", "n1", "data");
    world.lead();
    tokio::time::sleep(SOON).await;
    for _ in 0..2 {
        assert!(world.testbed.api.delete::<storage::CSIDriver>("", "other.csi").is_ok());
        tokio::time::sleep(Duration::from_secs(110)).await;
        assert_eq!(attachments(&world), at(&[]));
        driver();
        tokio::time::sleep(Duration::from_secs(300)).await;
    }
    assert_eq!(attachments(&world), at(&[]), "never");
    assert!(world.testbed.api.delete::<storage::CSIDriver>("", "other.csi").is_ok());
    world.until("after the grace it is attached", |world| attachments(world) == at(&["n1"])).await;
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d10_d16_and_section_11_a_leader_finds_out_what_to_do_from_what_there_is() {
    let world = cluster(json!({})).await;
    // Nobody wants the first; the second is being deleted and reported still, and a pod wants it; of the third only the report is left.
    bind(&world, "old", "old", ONCE);
    attachment(&world, "n1", "old", "old", true);
    bind(&world, "data", "v", ONCE);
    attachment(&world, "n1", "v", "data", true);
    let name = id("v").attachment_name("n1");
    let finalizer = |list: serde_json::Value| {
        let patch = PatchBody::Merge(json!({ "metadata": { "finalizers": list } }));
        world.testbed.api.patch::<storage::VolumeAttachment>("", &name, patch).unwrap();
    };
    finalizer(json!(["external-attacher/other-csi"]));
    world.testbed.api.delete::<storage::VolumeAttachment>("", &name).unwrap();
    pod(&world, "web", "n1", "data");
    report(&world, "n1", &["old", "v", "stale"]);
    world.lead();
    world.until("withdrawn", |world| reported(world, "n1").is_empty()).await;
    world.until("the first is gone", |world| attachments(world) == at(&["n1"])).await;
    tokio::time::sleep(SOON).await;
    assert_eq!(writes(&world, "create", "volumeattachments"), 0, "it waits for the end of the old one");
    let uid = || world.testbed.api.get::<storage::VolumeAttachment>("", &name).ok().and_then(|held| held.metadata.uid);
    let first = uid();
    finalizer(json!([]));
    world.until("it is made anew", |world| (attach(world), reported(world, "n1")).1 == ["v"]).await;
    assert_ne!(uid(), first);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d28_the_role_stops_once_the_other_controller_writes_a_node_and_goes_on_once_that_is_gone() {
    let world = settled(json!({})).await;
    let theirs = PatchBody::Merge(json!({ "metadata": { "managedFields": [{ "manager": "kube-controller-manager",
        "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "subresource": "status",
        "fieldsV1": { "f:status": { "f:volumesAttached": {} } } }] } }));
    world.testbed.api.patch::<core::Node>("", "n1", theirs).unwrap();
    tokio::time::sleep(SOON).await;
    delete_pod(&world, "web");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((attachments(&world), reported(&world, "n1")), (at(&["n1"]), vec!["v".to_owned()]));
    let failed = failure(&world).unwrap();
    assert!(failed.contains("kube-controller-manager is active (it wrote node n1)"), "{failed}");
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "kube-controller-manager", "namespace": "kube-system" },
        "spec": { "holderIdentity": "the-other", "leaseDurationSeconds": 3600 } });
    world.testbed.api.create_value(lease).unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((attachments(&world), failure(&world)), (at(&["n1"]), Some(failed)));
    let released = PatchBody::Merge(json!({ "spec": { "holderIdentity": "" } }));
    world.testbed.api.patch::<Lease>("kube-system", "kube-controller-manager", released).unwrap();
    world.until("what was to do is done", |world| attachments(world).is_empty()).await;
    assert_eq!((reported(&world, "n1"), failure(&world)), (vec![], None));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn d35_a_burst_costs_one_status_patch_and_each_attachment_one_request() {
    let world = cluster(json!({ "workers": 100 })).await;
    for number in 0..PODS {
        bind(&world, &format!("c{number}"), &format!("v{number}"), ONCE);
        pod(&world, &format!("p{number}"), "n1", &format!("c{number}"));
    }
    world.lead();
    world.until("all are asked for", |world| attachments(world).len() == PODS).await;
    world.until("rest", |world| world.work().iter().all(|work| work.next_try.is_some())).await;
    let patches = writes(&world, "patch", "nodes");
    attach(&world);
    world.until("all are reported", |world| reported(world, "n1").len() == PODS).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    let patches = writes(&world, "patch", "nodes") - patches;
    assert!(patches <= 20, "{patches} patches");
    assert_eq!(writes(&world, "create", "volumeattachments"), PODS as u64);
    assert_eq!(writes(&world, "get", "volumeattachments") + writes(&world, "get", "nodes"), 0);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_attach_error_is_told_once_and_shown() {
    let world = asking(json!({})).await;
    let error = json!({ "status": { "attached": false, "attachError": {
        "time": "2026-01-01T00:00:00Z", "message": "no slot is left", "errorCode": 8 } } });
    let name = id("v").attachment_name("n1");
    world.testbed.api.patch_status::<storage::VolumeAttachment>("", &name, PatchBody::Merge(error)).unwrap();
    world.until("it is told", |world| events(world).len() == 1).await;
    tokio::time::sleep(Duration::from_secs(700)).await;
    let text = "AttachVolume.Attach failed for volume \"pv-data\" : no slot is left";
    assert_eq!(events(&world), [("FailedAttachVolume".to_owned(), "web".to_owned(), text.to_owned())]);
    assert_eq!(waiting(&world)[0].1, "the node has as many volumes as it may have: no slot is left");
    set_attached(&world, &name, true);
    world.until("it is reported", |world| reported(world, "n1") == ["v"]).await;
    world.testbed.tear_down().await;
}

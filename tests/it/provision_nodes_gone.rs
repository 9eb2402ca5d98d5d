//! Claims whose node is gone, with one daemon and one driver per node: another node's daemon removes the lost node from
//! the claim, and the lost driver's request is not sent to another driver.

use csi_control_plane::sandbox::driver::{Action, Lie, Method};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::provision_kept::LEFT_OVER;
use super::provision_nodes::Local;
use crate::ground::Daemon;
use crate::journal::entries;
use crate::supplier::{create, figure, unanswered};
use crate::supply::{SELECTED_NODE, ZONE, phase};
use crate::world::World;

impl World {
    /// A node's object goes, as when its machine does.
    async fn lose(&self, local: &Local) {
        self.all::<Node>().delete(&local.node, &DeleteParams::default()).await.unwrap();
    }
}

/// The log line of each entry that a lost node has left.
const LEFT_BEHIND: &str =
    "a node is gone and has left an entry in its journal: the volume may be left over in its storage";
/// Counts the entries in the journals of nodes that are gone.
const LOST: &str = "csi_control_plane_journal_lost_node_entries";

impl World {
    /// A daemon tells what the driver of a lost node was asked for, and the entry stays.
    async fn left_behind(&self, daemon: &Daemon, lost: &Local, volume: &str) {
        self.counts(daemon, LOST, 1.0).await;
        let why = format!("its node \"{}\" is gone", lost.node);
        self.page_names(daemon, &["Volumes that may be left over", volume, &why, "kubectl -n kube-system patch"]).await;
        assert_eq!(entries(&self.segments_of(&lost.node).await).len(), 1);
    }
}

impl Local {
    /// Its daemon begins a claim, and is gone before anybody knows how far its driver got.
    async fn begins_and_dies(&self, world: &World, section: Value) {
        self.driver.inject(unanswered());
        let daemon = self.daemon(world, section).await;
        self.driver_until("the volume is asked for", |it| !it.calls_of(Method::CreateVolume).is_empty()).await;
        daemon.kill();
    }
}

#[tokio::test]
async fn r38_a_claim_of_a_node_that_is_gone_is_taken_over_and_one_of_a_node_that_is_down_is_not() {
    for is_gone in [true, false] {
        let (world, [lost, other]) = Local::each(["lost", "other"]).await;
        let daemon = lost.daemon(&world, json!({})).await;
        // It owns the claim, and its driver has begun the volume; how far is not known.
        lost.driver.inject(unanswered());
        let (_, claim) = world.claim_anew("claim").await;
        lost.driver_until("the volume is asked for", |it| !it.calls_of(Method::CreateVolume).is_empty()).await;
        daemon.kill();
        if is_gone {
            world.all::<Node>().delete(&lost.node, &DeleteParams::default()).await.unwrap();
        }
        let successor = other.daemon(&world, json!({})).await;
        if is_gone {
            let volume = world.on_node(&claim, &other).await;
            // The PersistentVolume of that name is the other node's.
            world.left_behind(&successor, &lost, &volume.name_any()).await;
            continue;
        }
        // A daemon that is away comes back: the others look whether its node is there, and leave the claim to it.
        let looked = |metrics: &str| {
            figure(metrics, "csi_control_plane_api_requests_total", &["verb=\"get\"", "resource=\"nodes\"", "\"ok\""])
                .is_some_and(|looks| looks > 1.0)
        };
        world.metrics_until(&successor, "it looks twice for the node", looked).await;
        assert_eq!(world.claim_now(&claim).await.annotations()[SELECTED_NODE], lost.node);
        lost.driver.clear_faults();
        let _back = lost.daemon(&world, json!({})).await;
        world.on_node(&claim, &lost).await;
        other.assert_left_alone();
        let created = lost.driver.state().volumes().len();
        assert_eq!(created, 1, "what had been begun was resumed");
    }
}

#[tokio::test]
async fn r22_a_claim_that_waits_for_a_pod_goes_back_to_the_scheduler_where_its_node_is_gone() {
    for is_begun in [true, false] {
        let (world, [lost]) = Local::each(["lost"]).await;
        let values = [world.name("lost"), world.name("other")];
        let allowed = json!([{ "matchLabelExpressions": [{ "key": ZONE, "values": values }] }]);
        let class = world.waiting_class("class", json!({ "allowedTopologies": allowed })).await;
        let claim = world.claim("claim", &class, json!({})).await;
        let pod = world.pod("pod", &[&claim], None).await;
        assert_eq!(world.selected(&claim).await, lost.node);
        if is_begun {
            lost.begins_and_dies(&world, json!({})).await;
        }
        world.lose(&lost).await;
        let other = Local::set(&world, "other", 10).await;
        let _successor = other.daemon(&world, json!({})).await;
        world.on_node(&claim, &other).await;
        assert_eq!(world.scheduled(&pod).await, other.node);
        world.delete_pod(&pod).await;
    }
}

#[tokio::test]
async fn what_a_node_that_is_gone_had_begun_is_reported_and_finished_once_the_node_is_back() {
    for (waits, competes) in [(true, true), (false, true), (false, false)] {
        let (world, [lost, other]) = Local::each(["lost", "other"]).await;
        let section = json!({ "nodeDeployment": { "immediateBinding": competes } });
        let class =
            if waits { world.waiting_class("class", json!({})).await } else { world.class("class", json!({})).await };
        let claim = world.claim("claim", &class, json!({})).await;
        world.select(&claim, Some(&lost.node)).await;
        lost.begins_and_dies(&world, section.clone()).await;
        let volume = format!("pvc-{}", world.claim_uid(&claim).await);
        world.delete_claim_and_wait(&claim).await;
        assert!(world.is_recorded(&claim).await);
        world.lose(&lost).await;
        let (mut told, _log) = crate::logs::count(LEFT_BEHIND);
        let elsewhere = other.daemon(&world, section.clone()).await;
        told.wait_for(|told| *told == 1).await.unwrap();
        world.left_behind(&elsewhere, &lost, &volume).await;
        other.assert_left_alone();
        let labels = json!({ ZONE: lost.node, "kubernetes.io/hostname": lost.node });
        world.create::<Node>(json!({ "metadata": { "name": lost.node, "labels": labels } })).await;
        lost.driver.clear_faults();
        let _back = lost.daemon(&world, section).await;
        lost.driver_until("its volume is deleted", |it| it.calls_of(Method::DeleteVolume).len() == 1).await;
        world.journal_is_empty().await;
        assert_eq!(lost.driver.state().volumes().len(), 0);
        other.assert_left_alone();
    }
}

#[tokio::test]
async fn the_segments_of_a_node_that_is_gone_go_where_each_request_has_its_volume() {
    let (world, [lost, other]) = Local::each(["lost", "other"]).await;
    let (_, claim) = world.claim_anew("claim").await;
    world.select(&claim, Some(&lost.node)).await;
    // The entry stays behind, as when the node goes before it is removed.
    lost.driver.inject(create(Action::Hold));
    let daemon = lost.daemon(&world, json!({})).await;
    lost.driver_until("the volume is asked for", |it| !it.calls_of(Method::CreateVolume).is_empty()).await;
    let left = entries(&world.segments_of(&lost.node).await);
    lost.driver.release();
    world.on_node(&claim, &lost).await;
    world.journal_is_empty().await;
    daemon.kill();
    let segment = world.segments_of(&lost.node).await[0].name_any();
    world.write_entries(&segment, &left).await;
    world.lose(&lost).await;
    let elsewhere = other.daemon(&world, json!({})).await;
    world.segments_gone(&lost.node).await;
    world.counts(&elsewhere, LOST, 0.0).await;
    assert_eq!(lost.driver.state().volumes().len(), 1);
}

/// Within one term the daemon knows whose claim it is, also once the claim is bound and the other's PersistentVolume is gone.
#[tokio::test]
async fn what_is_made_for_a_claim_that_has_another_nodes_volume_by_then_does_not_take_its_place() {
    let (world, [first, other]) = Local::each(["first", "other"]).await;
    let (class, claim) = world.claim_anew("claim").await;
    world.select(&claim, Some(&first.node)).await;
    first.driver.inject(create(Action::Hold).once());
    let slow = first.daemon(&world, json!({})).await;
    first.driver_until("the volume is asked for", |it| !it.calls_of(Method::CreateVolume).is_empty()).await;
    world.select(&claim, Some(&other.node)).await;
    let _elsewhere = other.daemon(&world, json!({})).await;
    let volume = world.on_node(&claim, &other).await;
    world.bound(&claim).await;
    world.all::<PersistentVolume>().delete(&volume.name_any(), &DeleteParams::default()).await.unwrap();
    let by_force = json!({ "metadata": { "finalizers": null } });
    world.merge_patch::<PersistentVolume>(&volume.name_any(), by_force).await;
    world.gone::<PersistentVolume>(&volume.name_any()).await;
    // The first daemon has seen that once it has seen a later change.
    let later = world.claim("later", &class, json!({})).await;
    world.select(&later, Some(&first.node)).await;
    world.page_names(&slow, &[&later]).await;
    first.driver.release();
    first.driver_until("its own is deleted", |it| it.calls_of(Method::DeleteVolume).len() == 1).await;
    world.on_node(&later, &first).await;
    world.journal_is_empty().await;
    assert_eq!(first.driver.state().volumes().len(), 1, "the later claim's");
    assert_eq!(world.all::<PersistentVolume>().get_opt(&volume.name_any()).await.unwrap(), None);
}

#[tokio::test]
async fn a_claim_of_a_node_that_is_gone_is_nobodys_where_immediate_binding_is_off() {
    let (world, [lost, other]) = Local::each(["lost", "other"]).await;
    let section = json!({ "nodeDeployment": { "immediateBinding": false } });
    let (_, claim) = world.claim_anew("claim").await;
    world.select(&claim, Some(&lost.node)).await;
    lost.begins_and_dies(&world, section.clone()).await;
    world.lose(&lost).await;
    let elsewhere = other.daemon(&world, section).await;
    let has_no_node = |it: &PersistentVolumeClaim| !it.annotations().contains_key(SELECTED_NODE);
    let free = world.claim_until(&claim, "free of its node", has_no_node).await;
    assert_eq!(phase(&free), "Pending");
    other.assert_left_alone();
    world.select(&claim, Some(&other.node)).await;
    let volume = world.on_node(&claim, &other).await;
    world.left_behind(&elsewhere, &lost, &volume.name_any()).await;
}

#[tokio::test]
async fn what_a_lost_nodes_driver_was_asked_is_asked_of_no_other() {
    let (world, [lost, other]) = Local::each(["lost", "other"]).await;
    // It makes the volume and does not say which: from then on no error is its last word.
    lost.driver.inject(create(Action::Lie(Lie::NoVolume)));
    let (_, claim) = world.claim_anew("claim").await;
    let daemon = lost.daemon(&world, json!({})).await;
    let uid = world.claim_uid(&claim).await;
    let is_known = |entry: Option<&Value>| entry.is_some_and(|it| it["noErrorIsFinal"] == true);
    world.journal_until("no error is final", |it| is_known(it.get(&uid))).await;
    daemon.kill();
    world.lose(&lost).await;
    let _successor = other.daemon(&world, json!({})).await;
    world.on_node(&claim, &other).await;
    assert_eq!(other.changes().len(), 1, "one request: its own");
}

#[tokio::test]
async fn a_node_that_was_taken_for_gone_and_lives_deletes_what_it_has_made_for_a_claim_that_is_anothers_now() {
    // Also what its daemon had begun before it was started again.
    for is_resumed in [false, true] {
        let (world, [lost, other]) = Local::each(["lost", "other"]).await;
        let (class, claim) = world.claim_anew("claim").await;
        world.select(&claim, Some(&lost.node)).await;
        if is_resumed {
            lost.begins_and_dies(&world, json!({})).await;
            lost.driver.clear_faults();
        }
        let asked = |local: &Local| local.driver.calls_of(Method::CreateVolume).len();
        // Its driver takes its time.
        let before = asked(&lost);
        lost.driver.inject(create(Action::Hold));
        let alive = lost.daemon(&world, json!({})).await;
        lost.driver_until("the volume is asked for", |it| it.calls_of(Method::CreateVolume).len() > before).await;
        // Its Node goes, and it does not know.
        world.lose(&lost).await;
        other.driver.inject(create(Action::Hold));
        let _successor = other.daemon(&world, json!({})).await;
        other.driver_until("the other is asked for it", |it| !it.calls_of(Method::CreateVolume).is_empty()).await;
        // The first daemon has seen that once it has seen a later change.
        let later = world.claim("later", &class, json!({})).await;
        world.select(&later, Some(&other.node)).await;
        other.driver_until("the other is asked for both", |it| it.calls_of(Method::CreateVolume).len() == 2).await;
        world.page_names(&alive, &[&later]).await;
        let of_other = world.segments_of(&other.node).await;
        assert_eq!(entries(&of_other).len(), 2);
        lost.driver.release();
        lost.driver_until("its own is deleted", |it| it.calls_of(Method::DeleteVolume).len() == 1).await;
        assert_eq!(world.segments_of(&other.node).await, of_other);
        other.driver.release();
        world.on_node(&claim, &other).await;
        world.on_node(&later, &other).await;
        assert_eq!((lost.driver.state().volumes().len(), other.driver.state().volumes().len()), (0, 2));
        world.journal_is_empty().await;
    }
}

/// A PersistentVolume of the same name says nothing of what this node's driver has made, also where it is gone by now.
#[tokio::test]
async fn what_was_made_for_a_claim_that_then_came_and_went_on_another_node_is_deleted_or_reported() {
    // The claim is there for as long as its daemon is away, or is gone.
    for is_bound in [true, false] {
        let (world, [first, other]) = Local::each(["first", "other"]).await;
        let (_, claim) = world.claim_anew("claim").await;
        world.select(&claim, Some(&first.node)).await;
        first.begins_and_dies(&world, json!({})).await;
        first.driver.clear_faults();
        world.select(&claim, Some(&other.node)).await;
        let elsewhere = other.daemon(&world, json!({})).await;
        let volume = world.on_node(&claim, &other).await;
        let retain = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
        world.merge_patch::<PersistentVolume>(&volume.name_any(), retain).await;
        if is_bound {
            world.bound(&claim).await;
        } else {
            world.delete_claim_and_wait(&claim).await;
        }
        world.all::<PersistentVolume>().delete(&volume.name_any(), &DeleteParams::default()).await.unwrap();
        if is_bound {
            // The API's own finalizer holds the PersistentVolume of a claim.
            let by_force = json!({ "metadata": { "finalizers": null } });
            world.merge_patch::<PersistentVolume>(&volume.name_any(), by_force).await;
        }
        world.gone::<PersistentVolume>(&volume.name_any()).await;
        let back = first.daemon(&world, json!({})).await;
        if is_bound {
            // The claim gets no empty volume in the place of the one that it had.
            world.counts(&back, LEFT_OVER, 1.0).await;
            world.page_names(&back, &["Volumes that may be left over", &volume.name_any()]).await;
        } else {
            first.driver_until("its own is deleted", |it| it.calls_of(Method::DeleteVolume).len() == 1).await;
            world.journal_is_empty().await;
        }
        assert_eq!(first.driver.state().volumes().len(), usize::from(is_bound));
        assert_eq!(world.volumes().await.len(), 0);
        assert_eq!(other.driver.state().volumes().len(), 1, "its user has kept it");
        drop(elsewhere);
    }
}

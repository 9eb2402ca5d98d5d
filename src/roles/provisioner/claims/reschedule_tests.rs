//! What another program does to a claim between the driver's refusal and the write that removes the claim's node. csi-provisioner 6.4
//! removes whatever node the claim has by then, of a namesake, too.

use super::*;
use crate::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};

fn on_node(node: &str) -> Value {
    json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: node } } })
}

fn claim(world: &Served) -> Option<PersistentVolumeClaim> {
    world.testbed.api.get(SPACE, CLAIM).ok()
}

fn node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.annotations.as_ref()?.get(names::ANNOTATION_SELECTED_NODE).map(String::as_str)
}

fn calls(world: &Served) -> usize {
    world.testbed.driver.calls_of(Method::CreateVolume).len()
}

fn patch(world: &Served, patch: Value) {
    world.testbed.api.patch::<PersistentVolumeClaim>(SPACE, CLAIM, PatchBody::Merge(patch)).unwrap();
}

fn remove_node(world: &Served) {
    patch(world, json!({ "metadata": { "annotations": { names::ANNOTATION_SELECTED_NODE: null } } }));
}

fn remove_claim(world: &Served) {
    patch(world, json!({ "metadata": { "finalizers": null } }));
    world.testbed.api.delete::<PersistentVolumeClaim>(SPACE, CLAIM).unwrap();
}

fn make_claim_anew(world: &Served) {
    let old = claim(world).unwrap();
    remove_claim(world);
    let metadata = json!({ "namespace": SPACE, "name": CLAIM, "annotations": old.metadata.annotations });
    let new = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": old.spec });
    world.testbed.api.create_value(new).unwrap();
}

/// Plays a claim whose node is full. `act` changes the claim just before our write, and the watch shows the change only after it. Returns
/// the claim before that write and after it.
async fn play(act: impl FnOnce(&Served)) -> (Served, Option<PersistentVolumeClaim>, Option<PersistentVolumeClaim>) {
    let pools = [Pool::at([("zone", FULL)], 0), Pool::at([("zone", ROOMY)], 1 << 40)];
    let world = scene(Profile::default().in_pools(pools), "WaitForFirstConsumer", &on_node(FULL)).await;
    let faults = world.testbed.api.faults();
    let on_claims = || Matching::any().resource("persistentvolumeclaims");
    let late = ApiAction::DelayBefore(Duration::from_secs(5));
    let late = faults.add(ApiFault::on(on_claims().verb("patch"), late).nth(1));
    world.lead();
    world.until("the node is about to be removed", |world| world.testbed.api.faults().hits(late) == 1).await;
    let held = faults.hold_watches(on_claims());
    act(&world);
    let before = claim(&world);
    tokio::time::sleep(Duration::from_secs(6)).await;
    let after = claim(&world);
    faults.remove(held);
    (world, before, after)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_chosen_meanwhile_stays_and_gets_the_volume() {
    let (world, before, after) = play(|world| patch(world, on_node(ROOMY))).await;
    assert_eq!(after, before);
    let objects = |world: &Served| world.testbed.api.list::<PersistentVolume>("").unwrap().len();
    world.until("there is a second volume", |world| objects(world) == 2).await;
    assert_eq!((claim(&world).as_ref().and_then(node), calls(&world)), (Some(ROOMY), 2));
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn the_node_is_removed_whatever_else_was_written_meanwhile() {
    let note = json!({ "metadata": { "annotations": { "example.com/note": "yes" } } });
    let (world, before, after) = play(|world| patch(world, note)).await;
    let (mut before, after) = (before.unwrap(), after.unwrap());
    assert_eq!((node(&before), node(&after)), (Some(FULL), None));
    let annotations = before.metadata.annotations.as_mut().unwrap();
    annotations.remove(names::ANNOTATION_SELECTED_NODE);
    assert_eq!(after.metadata.annotations, before.metadata.annotations, "the note stays");
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_where_the_node_or_the_claim_is_gone_already() {
    for (act, what) in [(remove_node as fn(&Served), "without the node"), (remove_claim, "without the claim")] {
        let (world, before, after) = play(act).await;
        assert_eq!(after, before, "{what}");
        world.until(what, |world| world.work().is_empty()).await;
        assert_eq!((calls(&world), world.testbed.driver.state().volumes().len()), (1, 1), "{what}");
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_namesake_keeps_its_node_until_the_driver_has_refused_the_namesake_itself() {
    let (world, before, after) = play(make_claim_anew).await;
    assert_eq!(after, before);
    assert_eq!((before.as_ref().and_then(node), calls(&world)), (Some(FULL), 1));
    let is_without = |world: &Served| claim(world).is_some_and(|claim| node(&claim).is_none());
    world.until("it is refused, too", is_without).await;
    assert_eq!(calls(&world), 2);
    world.testbed.tear_down().await;
}

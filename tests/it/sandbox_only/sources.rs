//! An API that is slow about one content source.

use std::time::Duration;

use csi_control_plane::sandbox::api::faults::{Action, Fault, Matching};
use serde_json::json;

use super::{api, by_daemon};
use crate::provision_sources::is_held;
use crate::supplier::unanswered;
use crate::world::World;
use crate::world::wait::asked;

const CLAIM: &str = "PersistentVolumeClaim";

#[tokio::test]
async fn a_source_whose_protection_hangs_holds_up_no_other_claim() {
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({})).await;
    let _daemon = world.supplier(json!({ "workers": 2 })).await;
    let (slow, quick) = (world.claim("slow", &class, json!({})).await, world.claim("quick", &class, json!({})).await);
    world.supplied_with(&slow).await;
    world.supplied_with(&quick).await;
    let on: Matching = by_daemon(&world).verb("patch").resource("persistentvolumeclaims").name(&slow);
    let hung = api(&world).faults().add(Fault::on(on, Action::Hold));
    let mut held = Vec::new();
    for number in 0..3 {
        held.push(world.claim_from(&format!("held-{number}"), &class, CLAIM, &slow).await);
    }
    let begun = async || (api(&world).faults().hits(hung) > 0).then_some(());
    asked("the source is to be protected", begun).await;
    let clone = world.claim_from("clone", &class, CLAIM, &quick).await;
    let plain = world.claim("plain", &class, json!({})).await;
    world.supplied_with(&clone).await;
    world.supplied_with(&plain).await;
    assert_eq!(api(&world).faults().hits(hung), 1, "one at a time for each source");
    for claim in &held {
        let name = world.volume_name(claim).await;
        assert_eq!(world.driver().creates_of(&name).len(), 0, "{claim} has no source to be made from yet");
    }
}

#[tokio::test]
async fn a_clone_that_comes_while_its_source_is_let_go_of_protects_it_again() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let (class, source, _) = world.supplied_claim().await;
    world.driver().inject(unanswered());
    let first = world.claim_from("first", &class, CLAIM, &source).await;
    world.asked(&first, 1).await;
    let on = by_daemon(&world).verb("patch").resource("persistentvolumeclaims").name(&source);
    let slow = api(&world).faults().add(Fault::on(on, Action::DelayBefore(Duration::from_secs(3))).nth(1));
    world.driver().clear_faults();
    let begun = async || (api(&world).faults().hits(slow) > 0).then_some(());
    asked("the source is about to be let go of", begun).await;
    // This one still sees the finalizer.
    world.driver().inject(unanswered());
    let second = world.claim_from("second", &class, CLAIM, &source).await;
    world.asked(&second, 1).await;
    assert!(is_held(&world.claim_now(&source).await), "the driver may still copy from it");
    world.driver().clear_faults();
    world.supplied_with(&second).await;
    world.claim_until(&source, "let go of by the last", |it| !is_held(it)).await;
    world.assert_nothing_leaked().await;
}

//! Failed writes to a data source: the daemon reads the source again before it concludes anything, and reports an
//! outage once instead of each attempt.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim as Object;
use serde_json::{Value, json};

use crate::cluster::names;
use crate::roles::kit::cuts::assert_the_same_end;
use crate::roles::kit::fixtures::Warnings;
use crate::roles::kit::served::Served;
use crate::roles::provisioner::REGISTRATION;
use crate::sandbox::api::PatchBody;
use crate::sandbox::api::faults::{Action, Fault, Matching};
use crate::sandbox::api::pure::rejection::Rejection;
use crate::sandbox::api::pure::resources::{Resource, find};
use crate::sandbox::driver::Profile;

const NAMESPACE: &str = "default";
const SOURCE: &str = "source";
const DELAY: Duration = Duration::from_secs(5);

/// A world in which only the tested work brings a key back.
async fn world() -> Served {
    let section = json!({ "resync": "0s", "snapshotSweepInterval": "0s" });
    Served::new(&REGISTRATION, &section, Profile::default()).await
}

/// Creates a claim that still has the finalizer although nobody clones it.
fn source(world: &Served, name: &str, finalizers: &[&str]) {
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "namespace": NAMESPACE, "name": name, "finalizers": finalizers },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": { "requests": { "storage": "1Gi" } } } });
    world.testbed.api.create_value(claim).unwrap();
}

fn on(verb: &str) -> Matching {
    Matching::any().verb(verb).resource("persistentvolumeclaims")
}

fn claims() -> &'static Resource {
    find("", "v1", "persistentvolumeclaims").unwrap()
}

/// The finalizers of the source; none, if there is no source.
fn finalizers(world: &Served) -> Option<Vec<String>> {
    let claim = world.testbed.api.get::<Object>(NAMESPACE, SOURCE).ok()?;
    Some(claim.metadata.finalizers.unwrap_or_default())
}

fn merge(world: &Served, patch: Value) {
    world.testbed.api.patch::<Object>(NAMESPACE, SOURCE, PatchBody::Merge(patch)).unwrap();
}

#[tokio::test(start_paused = true)]
async fn wherever_a_release_is_cut_the_next_leader_comes_to_the_same_end() {
    let scene = async || {
        let world = world().await;
        source(&world, SOURCE, &["example.com/other", names::FINALIZER_CLONING]);
        world
    };
    assert_the_same_end(scene, |world| finalizers(world).filter(|left| left.len() == 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_404_to_a_write_is_not_the_end_of_a_source_that_the_api_still_has() {
    let world = world().await;
    source(&world, SOURCE, &[names::FINALIZER_CLONING]);
    let not_found = Action::Refuse(Rejection::not_found(claims(), SOURCE));
    let fault = world.testbed.api.faults().add(Fault::on(on("patch"), not_found).nth(1));
    world.lead();
    world.until_quietly("released", |world| finalizers(world) == Some(vec![])).await;
    assert_eq!(world.testbed.api.faults().hits(fault), 1);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_gone_before_the_watch_says_so_costs_one_read_and_no_retry() {
    let world = world().await;
    source(&world, SOURCE, &[names::FINALIZER_CLONING]);
    let faults = world.testbed.api.faults();
    let slow = faults.add(Fault::on(on("patch"), Action::DelayBefore(DELAY)).nth(1));
    world.lead();
    world.until_quietly("it is about to be written", |_| faults.hits(slow) == 1).await;
    faults.hold_watches(Matching::any().resource("persistentvolumeclaims"));
    world.testbed.api.delete::<Object>(NAMESPACE, SOURCE).unwrap();
    merge(&world, json!({ "metadata": { "finalizers": null } }));
    assert_eq!(finalizers(&world), None);
    world.until_quietly("settled", |world| world.work().is_empty()).await;
    let asked = world.testbed.api.audit().matching(|entry| entry.verb == "get" && entry.resource == claims().plural);
    assert_eq!(asked.len(), 1);
    world.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_other_writers_were_faster_than_is_made_again_at_once_however_the_api_says_so() {
    for conflict in [false, true] {
        let world = world().await;
        source(&world, SOURCE, &["example.com/one", "example.com/two", names::FINALIZER_CLONING]);
        let faults = world.testbed.api.faults();
        faults.hold_watches(Matching::any().resource("persistentvolumeclaims"));
        let slow = faults.add(Fault::on(on("patch"), Action::DelayBefore(DELAY)).times(2));
        if conflict {
            faults.add(Fault::on(on("patch"), Action::Refuse(Rejection::conflict(claims(), SOURCE))).times(2));
        }
        let begun = world.context.clock.now();
        world.lead();
        // Twice another finalizer is removed just before ours: ours has another place in the list then.
        for (written, left) in
            [(1, vec!["example.com/two", names::FINALIZER_CLONING]), (2, vec![names::FINALIZER_CLONING])]
        {
            world.until_quietly("it is about to be written", |_| faults.hits(slow) == written).await;
            merge(&world, json!({ "metadata": { "finalizers": left } }));
        }
        world.until_quietly("released", |world| finalizers(world) == Some(vec![])).await;
        let took = world.context.clock.now().saturating_duration_since(begun);
        assert!(took < 2 * DELAY + Duration::from_millis(500), "{took:?}");
        world.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_api_costs_a_warning_for_each_step_of_the_back_off_and_not_for_each_source() {
    const SOURCES: u64 = 50;
    let world = world().await;
    let faults = world.testbed.api.faults();
    let broken = faults.add(Fault::on(on("patch"), Action::Refuse(Rejection::internal("down"))));
    for number in 0..SOURCES {
        source(&world, &format!("source-{number}"), &[names::FINALIZER_CLONING]);
    }
    let warnings = Warnings::begin();
    world.lead();
    world.until("each has failed again and again", |_| faults.hits(broken) >= 4 * SOURCES).await;
    assert!((1..10).contains(&warnings.count()), "{} warnings", warnings.count());
    world.testbed.tear_down().await;
}

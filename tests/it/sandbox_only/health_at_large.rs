//! The health of thousands of volumes: what a pass costs the driver and the API, and what the role watches.

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::driver::Method::{
    self, ControllerGetVolumeHealth as GET, ControllerListVolumeHealth as LIST,
};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::orphans::MINUTE;
use super::{api, user, writes};
use crate::monitoring::{DEGRADED, monitor};
use crate::objects::{self, merge};
use crate::world::World;

const COUNT: usize = 3_000;
const ILL: usize = 300;
const HEALED: usize = 100;

/// Claims that are bound to volumes of their own. Returns the names of the volumes, which are their handles, too.
fn bound(world: &World) -> Vec<String> {
    let api = api(world);
    let is_bound = || PatchBody::Merge(json!({ "status": { "phase": "Bound" } }));
    let one = |number: usize| {
        let name = format!("volume-{number:05}");
        let claim = api.create_value(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
                "resources": { "requests": { "storage": "1Gi" } } } }));
        let uid = claim.unwrap()["metadata"]["uid"].clone();
        let mut volume = objects::volume(&name, world.driver_name(), &name);
        merge(&mut volume, json!({ "spec": { "claimRef": { "namespace": "default", "name": name, "uid": uid } } }));
        api.create_value(volume).unwrap();
        api.patch_status::<PersistentVolume>("", &name, is_bound()).unwrap();
        api.patch_status::<PersistentVolumeClaim>("default", &name, is_bound()).unwrap();
        name
    };
    (0..COUNT).map(one).collect()
}

#[tokio::test]
async fn volumes_that_are_not_healthy_cost_a_write_each_and_the_others_nothing() {
    let world = World::keeping_health(|profile| *profile = profile.clone().with_volume_health()).await;
    let names = bound(&world);
    world.driver().seed(names.iter().map(String::as_str));
    for name in &names[..ILL] {
        assert!(world.driver().set_health(name, [DEGRADED]));
    }
    let calls = |method: Method| world.driver().calls_of(method).len();
    let daemon = world.daemon(monitor(json!({ "interval": "1m", "listInterval": "10m", "pageSize": 500 }))).await;
    sleep(5 * MINUTE).await;
    let kinds = |verb: &str| {
        writes(&world).iter().filter(|it| it.verb == verb && it.resource == "persistentvolumeclaims").count()
    };
    assert_eq!((calls(LIST), calls(GET), kinds("patch")), (1, 0, ILL));

    // Nothing changes: the list alone.
    api(&world).audit().clear();
    sleep(30 * MINUTE).await;
    assert_eq!((calls(LIST), calls(GET), writes(&world).len()), (4, 0, 0));

    // What leaves the list is asked for, and only that.
    for name in &names[..HEALED] {
        assert!(world.driver().set_health(name, []));
    }
    sleep(10 * MINUTE).await;
    assert_eq!((calls(LIST), calls(GET), kinds("patch")), (5, HEALED, HEALED));
    daemon.stop().await.unwrap();
}

/// The kinds that a daemon watches with this health monitor beside the other roles of a controller, each as often as it is watched. Each
/// role with a Lease watches that, too.
async fn watched(monitor: &Value) -> Vec<&'static str> {
    let world = World::keeping_health(|profile| *profile = profile.clone().with_volume_health()).await;
    let roles = json!({ "provisioner": {}, "resizer": {}, "healthMonitor": monitor });
    let daemon = world.daemon(json!({ "roles": roles })).await;
    sleep(MINUTE).await;
    let user = user(&world);
    let watches = api(&world).audit().matching(|it| it.user == user && it.verb == "watch" && it.resource != "leases");
    daemon.stop().await.unwrap();
    let mut kinds: Vec<_> = watches.iter().map(|it| it.resource).collect();
    kinds.sort_unstable();
    kinds
}

#[tokio::test]
async fn beside_the_other_roles_the_health_monitor_watches_nothing_more_but_nodes_and_pods_if_it_is_to() {
    let without = watched(&Value::Null).await;
    assert!(without.contains(&"persistentvolumes") && without.contains(&"persistentvolumeclaims"), "{without:?}");
    assert_eq!(watched(&json!({})).await, without);
    let mut more = [without, vec!["nodes", "pods"]].concat();
    more.sort_unstable();
    assert_eq!(watched(&json!({ "nodeWatch": true })).await, more);
}

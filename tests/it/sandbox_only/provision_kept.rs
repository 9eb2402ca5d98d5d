//! Volumes that users have kept although the daemon does not know that it has stored them: the answer to the write of the
//! PersistentVolume was lost, and its watches are behind.

use std::time::Duration;

use csi_control_plane::sandbox::api::faults::{Action, Fault, FaultId, WatchEnd};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;

use super::{api, by_daemon};
use crate::provision_kept::LEFT_OVER;
use crate::world::{PATIENCE, World, settled};

const VOLUMES: &str = "persistentvolumes";
const CLAIMS: &str = "persistentvolumeclaims";

/// What keeps the daemon from learning that its PersistentVolume was stored.
struct Unseen {
    /// Later writes of PersistentVolumes are refused.
    busy: FaultId,
    volumes: FaultId,
    claims: FaultId,
}

impl Unseen {
    /// The next PersistentVolume is stored, and the answer is cut off.
    fn begin(world: &World) -> Self {
        let (faults, writes) = (api(world).faults(), || by_daemon(world).verb("create").resource(VOLUMES));
        faults.add(Fault::on(writes(), Action::CutAfter).nth(1));
        let refuse = Action::Refuse(Rejection::service_unavailable("busy"));
        Self {
            busy: faults.add(Fault::on(writes(), refuse).from_nth(2)),
            volumes: faults.hold_watches(by_daemon(world).resource(VOLUMES)),
            claims: faults.hold_watches(by_daemon(world).resource(CLAIMS)),
        }
    }
}

#[tokio::test]
async fn j10_a_volume_that_is_kept_does_not_come_back_although_the_answer_to_its_write_was_lost() {
    for policy in ["Delete", "Retain"] {
        for has_history in [true, false] {
            let (world, daemon) = World::with_supplier(json!({})).await;
            let faults = api(&world).faults();
            let mut unseen = None;
            let made = world.made_while("claim", policy, || unseen = Some(Unseen::begin(&world))).await;
            let unseen = unseen.unwrap();
            world.keep_by_force(&made).await;
            let end = |held, resource: &str| {
                if !has_history {
                    // The watch cannot go on: the daemon sees only what a list shows.
                    faults.drop_watches(by_daemon(&world).resource(resource), WatchEnd::Cut);
                }
                faults.remove(held);
            };
            if !has_history {
                api(&world).compact();
            }
            end(unseen.claims, CLAIMS);
            world.daemon_has_seen("later").await;
            let watches =
                Fault::on(by_daemon(&world).verb("watch").resource(VOLUMES), Action::DelayBefore(Duration::ZERO));
            let relisted = faults.add(watches);
            faults.remove(unseen.busy);
            settled("the end of the claim's request", PATIENCE, async || {
                let stored = world.all::<PersistentVolume>().get_opt(&made.volume).await.unwrap();
                assert_eq!(stored, None, "{policy}: it has come back");
                let is_judged = faults.hits(relisted) > 0 || !world.is_recorded(&made.claim).await;
                if is_judged { Ok(()) } else { Err("it was not judged") }
            })
            .await;
            end(unseen.volumes, VOLUMES);
            if has_history {
                world.forgotten(&made.claim).await;
                world.counts(&daemon, LEFT_OVER, 0.0).await;
            } else {
                world.counts(&daemon, LEFT_OVER, 1.0).await;
                world.page_names(&daemon, &["Volumes that may be left over", &made.volume, "nothing proves"]).await;
            }
            world.works("next").await;
            world.is_kept(&made).await;
        }
    }
}

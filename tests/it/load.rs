//! Attachments in numbers: some come while others go.

use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::json;
use tonic::Code;

use crate::world::World;

/// Volumes and their attachments to one node.
pub(crate) struct Load {
    /// Their names.
    pub(crate) volumes: Vec<String>,
    pub(crate) attachments: Vec<String>,
}

impl Load {
    /// Asks for this many volumes.
    pub(crate) async fn put(world: &World, node: &str, name: &str, count: usize) -> Self {
        let mut load = Self { volumes: Vec::new(), attachments: Vec::new() };
        for number in 0..count {
            let volume = world.volume(&format!("{name}-{number}")).await;
            load.attachments.push(world.attach(&volume, node).await);
            load.volumes.push(volume);
        }
        load
    }

    /// Waits until all are attached.
    pub(crate) async fn attached(&self, world: &World) {
        for attachment in &self.attachments {
            world.attached(attachment).await;
        }
    }

    pub(crate) async fn detach(&self, world: &World) {
        for attachment in &self.attachments {
            world.detach(attachment).await;
        }
    }

    pub(crate) async fn gone(&self, world: &World) {
        for attachment in &self.attachments {
            world.gone::<VolumeAttachment>(attachment).await;
        }
    }
}

/// Some volumes are there and go while others come: returns those that come and those that go. The driver was asked for all of
/// them, and answers when it is released: what comes before that comes in the middle of the work.
pub(crate) async fn coming_and_going(world: &World, node: &str) -> (Load, Load) {
    const EACH: usize = 4;
    let going = Load::put(world, node, "going", EACH).await;
    going.attached(world).await;
    for method in [Method::ControllerPublishVolume, Method::ControllerUnpublishVolume] {
        world.driver().inject(Fault::on(method, Action::Hold).times(u32::try_from(EACH).unwrap()));
    }
    let before = world.changing_calls().len();
    let coming = Load::put(world, node, "coming", EACH).await;
    going.detach(world).await;
    world.driver_until("work in flight", |_| world.changing_calls().len() == before + 2 * EACH).await;
    (coming, going)
}

/// Everything comes and goes, and each volume is asked for at most this often in each direction, since these calls.
pub(crate) async fn came_and_went(world: &World, (coming, going): &(Load, Load), times: usize, since: &[Arc<Call>]) {
    coming.attached(world).await;
    going.gone(world).await;
    world.balanced().await;
    world.called_at_most(times, coming.volumes.iter().chain(&going.volumes), since);
}

/// On so many calls the driver works at once.
const MOST: usize = 4;
const PUBLISH: &str = "/csi.v1.Controller/ControllerPublishVolume";

#[tokio::test]
async fn a_driver_that_refuses_calls_gets_fewer_at_once_and_all_volumes_are_attached() {
    let (world, daemon) = World::with_daemon(json!({})).await;
    let node = world.node("node").await;
    // So long that more calls come than it works on, however slowly the API answers.
    let takes = Duration::from_secs(1);
    let crowded = Action::Crowded { most: MOST, takes, code: Code::ResourceExhausted };
    world.driver().inject(Fault::on(Method::ControllerPublishVolume, crowded));
    let load = Load::put(&world, &node, "crowd", 32).await;
    load.attached(&world).await;

    let status = world.status(&daemon).await;
    let mut tables = status["tables"].as_array().unwrap().iter();
    let table = tables.find(|it| it["name"] == "limitedCalls").expect("the RPC is limited");
    let row = &table["rows"][0];
    assert_eq!((&row["rpc"], &row["lastRefusal"]), (&json!(PUBLISH), &json!("ResourceExhausted")), "{row}");
    let limit = row["limit"].as_u64().unwrap();
    assert!((1..=2 * MOST as u64).contains(&limit), "{row}");
    let metrics = world.metrics(&daemon).await;
    assert!(metrics.contains("csi_control_plane_rpc_concurrency_limit{"), "{metrics}");
}

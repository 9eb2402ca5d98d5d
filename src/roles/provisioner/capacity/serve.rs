//! One term of the capacity loop.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tracing::{info, info_span, warn};

use crate::process::error_chain;
use crate::queue::{Backoff, WorkQueue};
use crate::roles::kit::{Controllers, queues};
use crate::roles::provisioner::{NAME, names};
use crate::roles::{RoleContext, RoleError};

use super::config::CapacitySection;
use super::context::{CapacityContext, Shared};
use super::desired::{ClassFilter, Slot};
use super::diff::ObjectTemplate;
use super::invalidation::CapacityInvalidationReceiver;
use super::reconcile::Slots;
use super::report::{self, TABLE, show_reason, update_gauges};
use super::{labels, owner, triggers};

/// The queue of the slots to refresh.
pub fn queue(role: &RoleContext, section: &CapacitySection, backoff: Backoff) -> WorkQueue<Slot> {
    queues::make(
        role,
        names::QUEUE_CAPACITY,
        &[("capacity", section.workers)],
        backoff,
        |slot: &Slot| info_span!(parent: None, "capacity", role = NAME, class = %slot.class, segment = %slot.segment),
    )
}

/// Keeps the `CSIStorageCapacity` objects until the term is over and the attempts in flight have ended. `Err`: a trigger or a
/// task has panicked.
///
/// If the driver has no `GET_CAPACITY`, the function only says so, and leaves the objects of an earlier version of the driver as
/// they are. To the scheduler, a missing object is a segment without room
/// (<https://kubernetes.io/docs/concepts/storage/storage-capacity/#scheduling>): if the driver's `CSIDriver` object asks for the
/// check, no pod would find a node without the objects. With an old figure the driver refuses the volume at worst, and the
/// scheduler picks another node.
pub async fn run(cx: CapacityContext, invalidations: CapacityInvalidationReceiver) -> Result<(), RoleError> {
    let term = cx.scope.term.clone();
    if !cx.scope.capabilities.get_capacity() {
        warn!("capacity is enabled, but the driver has no GET_CAPACITY: no capacity is published");
        let capacities = cx.stores.capacities.clone();
        let _shown = show_reason(&cx, move || {
            let off = "off: the driver does not have the capability GET_CAPACITY";
            match capacities.len() {
                0 => off.to_owned(),
                left => format!("{off}; old CSIStorageCapacity objects that are left as they are: {left}"),
            }
        });
        term.over().await;
        return Ok(());
    }
    let prepare = async {
        cx.stores.classes.synced().await;
        cx.nodes.synced().await;
        // The volumes that are there when the term begins are no news.
        cx.stores.volumes.synced().await;
        // The cache of a new leader may lack what the leader before has created. Without it, everything would be created twice.
        cx.stores.capacities.relisted().await;
        find_owner(&cx).await
    };
    let owner = tokio::select! {
        biased;
        () = term.over() => return Ok(()),
        owner = prepare => owner,
    };
    serve(cx, owner, invalidations).await
}

async fn serve(
    cx: CapacityContext,
    owner: Option<OwnerReference>,
    invalidations: CapacityInvalidationReceiver,
) -> Result<(), RoleError> {
    let driver = &cx.scope.driver_name;
    let filter = ClassFilter { driver: driver.clone(), immediate: cx.section.immediate_binding };
    let template = ObjectTemplate {
        namespace: cx.instance.namespace.clone().unwrap_or_default(),
        labels: labels::labels(driver, cx.nodes.own_node()),
        owner,
    };
    let mut controllers = Controllers::new(NAME, &cx.board, &cx.scope);
    let shared = Shared::new(cx, filter, template);
    let cx = &shared.cx;
    let subject = |slot: &Slot| Some(slot.segment.to_string());
    controllers.drive(&cx.queue, "Capacity to ask for", subject, Slots(Arc::clone(&shared)));
    controllers.show_table(&TABLE, &shared, report::rows);
    triggers::follow(&mut controllers, &shared, &invalidations);
    controllers.task("capacity.poll", triggers::poll(Arc::clone(&shared)));
    controllers.task("capacity.invalidations", triggers::take_invalidations(Arc::clone(&shared), invalidations));
    controllers.task("capacity.counts", update_gauges(Arc::clone(&shared)));
    info!("serving capacity");
    controllers.serve().await
}

/// Finds the owner of the objects. Tries again until the API answers.
async fn find_owner(cx: &CapacityContext) -> Option<OwnerReference> {
    let (namespace, pod) = (cx.instance.namespace.as_deref(), cx.instance.pod.as_deref());
    let mut shown = None;
    for failures in 1.. {
        let found = cx.scope.in_task(async |api| owner::find(&api, namespace, pod, cx.section.owner_level).await);
        // The term is over, and nothing will be written.
        let Ok(found) = found.await else { return std::future::pending().await };
        match found {
            Ok(owner) => return owner,
            Err(error) => {
                let text = error_chain(&error);
                warn!(error = text, "no capacity is published yet: the owner of its objects is not known");
                drop(shown.replace(show_reason(cx, move || text.clone())));
                tokio::time::sleep(cx.backoff.delay(failures, None, cx.scope.rng.fraction())).await;
            }
        }
    }
    None
}

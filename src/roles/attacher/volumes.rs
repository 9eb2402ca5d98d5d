//! Lets go of volumes: removes our finalizer once the volume is going and no attachment names it (spec 2.11).

use std::sync::Arc;

use tracing::{info, warn};

use crate::cluster::PersistentVolume;
use crate::cluster::{ApiErrorKind, BY_VOLUME, ObjectName, patch};
use crate::process::Chain;
use crate::queue::{Outcome, Ticket};

use super::decide::is_releasable;
use super::desk::Desk;

/// Works one ticket of the volume queue.
pub(super) async fn handle(desk: Arc<Desk>, mut ticket: Ticket<String>) -> Outcome {
    let name = ObjectName::cluster(ticket.key());
    let releasable = |desk: &Desk, volume: &PersistentVolume| {
        let is_attached = !desk.known.attachments.find(BY_VOLUME, name.name()).is_empty();
        is_releasable(volume, is_attached, &desk.rules)
    };
    let Some(volume) = desk.known.volumes.get(&name) else { return Outcome::Forget };
    if !releasable(&desk, &volume) {
        // What may still change, a deletion of the volume or of its last attachment, wakes this key.
        return Outcome::Settled;
    }
    tokio::select! {
        biased;
        () = desk.term.over() => return Outcome::Retry { cap: None },
        () = ticket.park(desk.attachments_of_term()) => {}
    }
    let Some(volume) = desk.known.volumes.get(&name) else { return Outcome::Forget };
    if !releasable(&desk, &volume) {
        return Outcome::Settled;
    }
    let Some(patch) = patch::remove_finalizer(&volume.metadata, &desk.rules.finalizer) else { return Outcome::Settled };
    let Ok(api) = desk.api.use_now() else { return Outcome::Retry { cap: None } };
    match api.patch::<PersistentVolume>(&name, &patch).await {
        Ok(written) => {
            desk.confirmed.forget(written.metadata.uid.as_deref().unwrap_or_default());
            desk.known.volumes.absorb(written);
            info!("released the volume");
            Outcome::Settled
        }
        Err(error) if error.kind() == ApiErrorKind::NotFound => Outcome::Settled,
        Err(error) => {
            // Another controller's finalizer may have come or gone (R36): the next try reads the volume as it is now.
            if error.kind().is_stale()
                && let Ok(fresh) = api.get::<PersistentVolume>(&name).await
            {
                desk.known.volumes.absorb(fresh);
            }
            warn!(error = %Chain(&error), attempt = ticket.attempt() + 1, "could not release the volume");
            ticket.note(Chain(&error).to_string());
            error.retry_after().map_or(Outcome::Retry { cap: None }, Outcome::RetryNoSooner)
        }
    }
}

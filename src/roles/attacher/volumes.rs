//! Lets go of volumes: removes our finalizer once the volume is going and no attachment names it (spec 2.11).

use std::sync::Arc;

use tracing::{info, warn};

use crate::cluster::PersistentVolume;
use crate::cluster::{ApiError, ApiErrorKind, BY_VOLUME, ObjectName, patch};
use crate::queue::{Outcome, Ticket};
use crate::roles::attempt::{self, Failure as _};

use super::context::Context;
use super::decide::is_releasable;

/// Why an attempt ended without its volume being settled.
type Stop = attempt::Stop<ApiError>;

/// Works one ticket of the volume queue.
pub(super) async fn handle(cx: Arc<Context>, mut ticket: Ticket<String>) -> Outcome {
    match release(&cx, &mut ticket).await {
        Ok(outcome) => outcome,
        Err(Stop::Failed(error)) => {
            let message = error.message();
            warn!(error = message, attempt = ticket.attempt() + 1, "could not release the volume");
            ticket.note(message);
            error.outcome()
        }
        Err(stop) => stop.outcome(),
    }
}

async fn release(cx: &Context, ticket: &mut Ticket<String>) -> Result<Outcome, Stop> {
    let name = ObjectName::cluster(ticket.key());
    let releasable = |volume: &PersistentVolume| {
        let is_attached = !cx.stores.attachments.find(BY_VOLUME, name.name()).is_empty();
        is_releasable(volume, is_attached, &cx.rules)
    };
    let Some(volume) = cx.stores.volumes.get(&name) else { return Ok(Outcome::Forget) };
    if !releasable(&volume) {
        // What may still change, a deletion of the volume or of its last attachment, wakes this key.
        return Ok(Outcome::Settled);
    }
    ticket.park(cx.term.unless_over(cx.attachments_of_term())).await?;
    let Some(volume) = cx.stores.volumes.get(&name) else { return Ok(Outcome::Forget) };
    if !releasable(&volume) {
        return Ok(Outcome::Settled);
    }
    let Some(patch) = patch::remove_finalizer(&volume.metadata, &cx.rules.finalizer) else {
        return Ok(Outcome::Settled);
    };
    let api = cx.api.use_now()?;
    match api.patch::<PersistentVolume>(&name, &patch).await {
        Ok(written) => {
            cx.confirmed.forget(written.metadata.uid.as_deref().unwrap_or_default());
            cx.stores.volumes.apply_own_write(written);
            info!("released the volume");
            Ok(Outcome::Settled)
        }
        Err(error) if error.kind() == ApiErrorKind::NotFound => Ok(Outcome::Settled),
        Err(error) => {
            // Another controller's finalizer may have come or gone (R36): the next try reads the volume as it is now.
            if error.kind().is_stale()
                && let Ok(fresh) = api.get::<PersistentVolume>(&name).await
            {
                cx.stores.volumes.apply_own_write(fresh);
            }
            Err(error.into())
        }
    }
}

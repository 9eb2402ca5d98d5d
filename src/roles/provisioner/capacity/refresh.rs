//! One pass over one item: ask the driver, then write what differs.
//!
//! The driver is asked as it will be asked for volumes, with the class's parameters but for those that are ours (the Go
//! sidecar sends the secrets' names too), and without capabilities: it is not known yet which a claim will want. A
//! place is sent only if there is one; a driver without topology must not be given any.

use std::sync::Arc;

use tracing::{debug, warn};

use super::context::Shared;
use super::desired::Slot;
use super::diff::{Capacity, Write};
use crate::cluster::{ApiError, ApiErrorKind, CsiStorageCapacity, ObjectName, StorageClass};
use crate::csi::RpcError;
use crate::proto::GetCapacityRequest;
use crate::queue::{Cause, Outcome, Ticket};
use crate::roles::attempt::{self, Failure};
use crate::roles::provisioner::parameters::{self, ParameterError};

/// How often a pass plans anew because an object was gone or another's when it was written.
const ROUNDS: usize = 3;

/// Why an item's object could not be brought up to date.
#[derive(Debug, thiserror::Error)]
enum RefreshError {
    #[error("the class's parameters cannot be used")]
    Parameters(#[source] ParameterError),
    #[error("cannot ask for the capacity")]
    Ask(#[source] RpcError),
    #[error("the driver answers a capacity of {0} bytes")]
    Negative(i64),
    #[error("cannot write the capacity")]
    Write(#[source] ApiError),
    #[error("cannot look at the object of the capacity")]
    Look(#[source] ApiError),
    #[error("the object of the capacity is changed by others all the time")]
    Contended,
}

/// Why a pass ended without its item being up to date.
type Stop = attempt::Stop<RefreshError>;

/// Handles one ticket.
pub(super) async fn handle(shared: Arc<Shared>, ticket: Ticket<Slot>) -> Outcome {
    let slot = ticket.key();
    match refresh(&shared, slot, ticket.causes().contains(Cause::Resync)).await {
        Ok(()) => Outcome::Settled,
        Err(Stop::Failed(error)) => {
            let text = error.message();
            warn!(attempt = ticket.attempt() + 1, error = text, "could not refresh the capacity");
            ticket.note(text.clone());
            shared.index().note_error(slot, text);
            error.outcome()
        }
        Err(stop) => stop.outcome(),
    }
}

async fn refresh(shared: &Shared, slot: &Slot, polled: bool) -> Result<(), Stop> {
    let class = shared.index().desired.wants(slot).cloned();
    if let Some(class) = class {
        let room = ask(shared, slot, &class).await?;
        shared.index().note_room(slot, shared.cx.clock.now(), room);
    }
    if polled {
        confirm(shared, slot).await?;
    }
    for _ in 0..ROUNDS {
        // The class or the segment may have gone while the driver was asked: then there is nothing to write but a
        // delete.
        let writes = shared.index().writes(slot);
        if writes.is_empty() {
            return Ok(());
        }
        for write in writes {
            perform(shared, write).await?;
        }
    }
    Err(RefreshError::Contended.into())
}

async fn ask(shared: &Shared, slot: &Slot, class: &StorageClass) -> Result<Capacity, Stop> {
    let parameters = parameters::for_driver(&class.parameters).map_err(RefreshError::Parameters)?;
    let request = GetCapacityRequest {
        volume_capabilities: Vec::new(),
        parameters: parameters.into_iter().collect(),
        accessible_topology: (!slot.segment.is_empty()).then(|| slot.segment.to_proto()),
    };
    let client = &shared.cx.client;
    let answer = client.term().during(client.use_now()?.get_capacity(request)).await?.map_err(RefreshError::Ask)?;
    let sizes = [Some(answer.available_capacity), answer.maximum_volume_size];
    if let Some(negative) = sizes.into_iter().flatten().find(|bytes| *bytes < 0) {
        return Err(RefreshError::Negative(negative).into());
    }
    Ok(Capacity { capacity: answer.available_capacity, largest: answer.maximum_volume_size })
}

/// Looks for the objects that we made and the watch has not shown. One may have been deleted before it could.
async fn confirm(shared: &Shared, slot: &Slot) -> Result<(), Stop> {
    let objects = shared.index().objects(slot);
    for object in objects {
        let name = ObjectName::of(object.as_ref());
        if shared.cx.stores.capacities.get(&name).is_some() {
            continue;
        }
        let found: Option<CsiStorageCapacity> =
            shared.cx.api.use_now()?.get_opt(&name).await.map_err(RefreshError::Look)?;
        if found.is_none_or(|found| found.metadata.uid != object.metadata.uid) {
            shared.index().lose(&object);
        }
    }
    Ok(())
}

async fn perform(shared: &Shared, write: Write) -> Result<(), Stop> {
    let api = shared.cx.api.use_now()?;
    match write {
        Write::Create(body) => {
            let place = ObjectName::namespaced(shared.index().namespace(), "");
            let object = api.create::<CsiStorageCapacity>(&place, &body).await.map_err(RefreshError::Write)?;
            debug!(object = object.metadata.name.as_deref(), "made a csistoragecapacity");
            // Before the watch shows it: the next pass must not make a second one.
            shared.index().hold(&Arc::new(object));
        }
        Write::Update(object, patch) => {
            let name = ObjectName::of(object.as_ref());
            match api.patch::<CsiStorageCapacity>(&name, &patch).await {
                Ok(written) => written_over(shared, written),
                Err(error) => look_again(shared, &object, error).await?,
            }
        }
        Write::Delete(object) => {
            let name = ObjectName::of(object.as_ref());
            let uid = object.metadata.uid.as_deref().unwrap_or_default();
            match api.delete::<CsiStorageCapacity>(&name, uid).await {
                // Held by a finalizer of somebody's: it is on its way, and counts no more.
                Ok(Some(going)) => written_over(shared, going),
                Ok(None) => shared.index().lose(&object),
                Err(error) => look_again(shared, &object, error).await?,
            }
        }
    }
    Ok(())
}

fn written_over(shared: &Shared, object: CsiStorageCapacity) {
    shared.index().hold(&Arc::new(object.clone()));
    shared.cx.stores.capacities.apply_own_write(object);
}

/// What was planned no longer fits: the object has changed, is another's of its name, or is gone. Only the API can say which;
/// an object that is taken for gone and is there would get a twin.
async fn look_again(shared: &Shared, object: &CsiStorageCapacity, error: ApiError) -> Result<(), Stop> {
    match error.kind() {
        ApiErrorKind::NotFound => {
            shared.index().lose(object);
            return Ok(());
        }
        ApiErrorKind::Conflict | ApiErrorKind::PreconditionFailed => {}
        _ => return Err(RefreshError::Write(error).into()),
    }
    let found = shared.cx.api.use_now()?.get_opt::<CsiStorageCapacity>(&ObjectName::of(object)).await;
    match found.map_err(RefreshError::Look)? {
        Some(found) if found.metadata.uid == object.metadata.uid => written_over(shared, found),
        _ => shared.index().lose(object),
    }
    Ok(())
}

impl Failure for RefreshError {
    fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Write(error) | Self::Look(error) => Some(error),
            Self::Parameters(_) | Self::Ask(_) | Self::Negative(_) | Self::Contended => None,
        }
    }

    fn driver(&self) -> Option<&RpcError> {
        if let Self::Ask(error) = self { Some(error) } else { None }
    }
}

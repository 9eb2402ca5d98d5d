//! The requests of both jobs about a claim and its volume. Every write goes through the fence of the term, carries a precondition, and
//! waits for its turn.

use std::sync::Arc;

use crate::cluster::{ObjectName, Patch, PersistentVolume, PersistentVolumeClaim, SecretRef};
use crate::roles::kit::freshness::{Freshness, read_again};
use crate::roles::kit::{Op, Secret, secrets};

use super::context::{Context, Objects};
use super::error::{CONFIRM, ChangeError, InvalidChange, LOAD_SECRET, REFRESH};
use super::turn::Turn;

/// Why a step ended the attempt.
pub(super) type Stop = crate::roles::kit::Stop<InvalidChange>;

/// Writes to the claim's status, and tells the cache. `None`: the other job of the claim has just written to it, so look again.
pub(super) async fn patch_claim(
    cx: &Context,
    now: &Objects,
    turn: &Turn,
    patch: &Patch,
    op: Op,
) -> Result<Option<PersistentVolumeClaim>, Stop> {
    let _writes = turn.writes().await;
    let name = now.name();
    let held = cx.stores.claims.get(&name);
    if held.is_none_or(|held| held.metadata.resource_version != now.claim.metadata.resource_version) {
        return Ok(None);
    }
    let api = cx.scope.api.use_now()?;
    let written: PersistentVolumeClaim = api.patch_status(&name, patch).await.map_err(|error| op.failed(error))?;
    // Before the other job may write.
    cx.stores.claims.apply_own_write(written.clone());
    Ok(Some(written))
}

/// Writes to the volume's object.
pub(super) async fn patch_volume(
    cx: &Context,
    volume: &Arc<PersistentVolume>,
    turn: Option<&Turn>,
    patch: &Patch,
    op: Op,
) -> Result<(), Stop> {
    let _writes = match turn {
        Some(turn) => Some(turn.writes().await),
        None => None,
    };
    let name = ObjectName::of(volume.as_ref());
    let held = cx.stores.volumes.get(&name);
    if held.is_none_or(|held| held.metadata.resource_version != volume.metadata.resource_version) {
        return Ok(());
    }
    let api = cx.scope.api.use_now()?;
    let written: PersistentVolume = api.patch(&name, patch).await.map_err(|error| op.failed(error))?;
    cx.stores.volumes.apply_own_write(written);
    Ok(())
}

/// Reads the secret of a call as it is now.
pub(super) async fn read_secret(cx: &Context, place: &SecretRef) -> Result<Secret, Stop> {
    let found = secrets::read(cx.scope.api.use_now()?, place).await;
    Ok(found.map_err(|error| LOAD_SECRET.failed(error))?)
}

/// Has the API confirm, once a term, that the claim is what the cache says, before the driver is asked. `false`: it is gone.
pub(super) async fn confirm(cx: &Context, now: &Objects) -> Result<bool, Stop> {
    let api = cx.scope.api.use_now()?;
    let name = now.name();
    let found = api.get_opt::<PersistentVolumeClaim>(&name).await.map_err(|error| CONFIRM.failed(error))?;
    let Some(found) = found else { return Ok(false) };
    if found.metadata.uid != now.claim.metadata.uid {
        // The cache takes a namesake only from its own watch, so another look would see no more than this one did.
        return Err(crate::roles::kit::Stop::Behind(InvalidChange::Replaced(name.to_string()).into()));
    }
    cx.stores.claims.apply_own_write(found);
    cx.confirmed.note(now.uid());
    Ok(true)
}

/// What a second look at claim and volume has brought, after a write that one of them was too new for.
pub(super) async fn refresh(cx: &Context, now: &Objects, error: &ChangeError) -> Result<Freshness, Stop> {
    let api = cx.scope.api.use_now()?;
    let read = read_again(api, &cx.stores.claims, now.claim.as_ref()).await;
    let claim = read.map_err(|error| REFRESH.failed(error))?;
    if claim == Freshness::Gone {
        return Ok(Freshness::Gone);
    }
    let volume = match &now.volume {
        None => Freshness::Same,
        Some(volume) => {
            let read = read_again(api, &cx.stores.volumes, volume.as_ref()).await;
            read.map_err(|error| REFRESH.failed(error))?
        }
    };
    // A 404 to the write was hearsay if the API has the objects.
    let is_hearsay = error.says_not_found() && volume != Freshness::Gone;
    let is_newer = [claim, volume].contains(&Freshness::Newer) || is_hearsay;
    Ok(if is_newer { Freshness::Newer } else { Freshness::Same })
}

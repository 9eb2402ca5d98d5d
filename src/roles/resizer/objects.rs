//! The API requests of both jobs for a claim and its PersistentVolume. Every write goes through the fence of the term, has a
//! precondition, and waits for its turn.

use std::time::Duration;

use crate::cluster::{ObjectName, Patch, PersistentVolume, PersistentVolumeClaim, SecretRef};
use crate::roles::kit::freshness::{Freshness, read_again};
use crate::roles::kit::{Op, Secret, secrets};

use super::context::{Context, Objects};
use super::error::{
    BEGIN_EXPANSION, BEGIN_MODIFICATION, CONFIRM, ChangeError, InvalidChange, LOAD_SECRET, RECORD_CLASS, RECORD_DONE,
    RECORD_MODIFIED, RECORD_NODE, RECORD_REFUSAL, RECORD_SIZE, REFRESH,
};
use super::joint::{Meeting, Place, Told};
use super::memory::Job;
use super::predicates;
use super::turn::Turn;

/// Why a step ended the attempt.
pub(super) type Stop = crate::roles::kit::Stop<InvalidChange>;

/// How long a mark waits for the other job's, where both are due: the calls are to reach the driver within 100 ms (resizer spec 5.3).
const MARK_PATIENCE: Duration = Duration::from_millis(50);
/// How long a result waits for the other job's. A driver that merges both calls answers them together.
const RESULT_PATIENCE: Duration = Duration::from_millis(500);

/// Writes to the claim's status, and passes the answer to the cache. `None`: the claim has changed, for example by the claim's other
/// job, so the caller must observe again.
pub(super) async fn patch_claim(
    cx: &Context,
    now: &Objects,
    turn: &Turn,
    patch: &Patch,
    op: Op,
) -> Result<Option<PersistentVolumeClaim>, Stop> {
    let name = now.name();
    let version = now.claim.metadata.resource_version.as_deref().unwrap_or_default();
    let (patch, told) = match turn.desk().meet(Place::Claim, version, patch, patience(cx, now, turn, op)).await {
        Meeting::Write(patch, told) => (patch, told),
        Meeting::Written => return Ok(cx.stores.claims.get(&name).map(|claim| PersistentVolumeClaim::clone(&claim))),
        Meeting::LookAgain => return Ok(None),
    };
    let _writes = turn.writes().await;
    let _turn = cx.scope.term.until_lost(cx.stores.claims.write_turn(&name)).await?;
    let held = cx.stores.claims.get(&name);
    if held.is_none_or(|held| held.metadata.resource_version != now.claim.metadata.resource_version) {
        return Ok(None);
    }
    let api = cx.scope.api.use_now()?;
    let written: PersistentVolumeClaim = api.patch_status(&name, &patch).await.map_err(|error| op.failed(error))?;
    // The cache must have the answer before the other job writes.
    cx.stores.claims.apply_own_write(written.clone());
    told.written();
    Ok(Some(written))
}

/// How long the other job is waited for with this write.
fn patience(cx: &Context, now: &Objects, turn: &Turn, op: Op) -> Duration {
    if !cx.turns.pairs() {
        return Duration::ZERO;
    }
    let is_due = |job| {
        let (volume, driver) = (now.volume.as_deref(), cx.scope.driver_name.as_str());
        predicates::wants(&now.claim, volume, job, driver, cx.expansion.get())
    };
    match op {
        BEGIN_EXPANSION | BEGIN_MODIFICATION if turn.is_shared() || Job::ALL.into_iter().all(is_due) => MARK_PATIENCE,
        RECORD_SIZE | RECORD_CLASS | RECORD_NODE | RECORD_DONE | RECORD_MODIFIED | RECORD_REFUSAL
            if turn.is_shared() =>
        {
            RESULT_PATIENCE
        }
        _ => Duration::ZERO,
    }
}

/// Writes to the PersistentVolume.
pub(super) async fn patch_volume(
    cx: &Context,
    now: &Objects,
    turn: Option<&Turn>,
    patch: &Patch,
    op: Op,
) -> Result<(), Stop> {
    let Some(volume) = &now.volume else { return Ok(()) };
    let version = volume.metadata.resource_version.as_deref().unwrap_or_default();
    let meeting = match turn {
        Some(turn) => turn.desk().meet(Place::Volume, version, patch, patience(cx, now, turn, op)).await,
        None => Meeting::Write(patch.clone(), Told::default()),
    };
    let Meeting::Write(patch, told) = meeting else { return Ok(()) };
    let _writes = match turn {
        Some(turn) => Some(turn.writes().await),
        None => None,
    };
    let name = ObjectName::of(volume.as_ref());
    let _turn = cx.scope.term.until_lost(cx.stores.volumes.write_turn(&name)).await?;
    let held = cx.stores.volumes.get(&name);
    if held.is_none_or(|held| held.metadata.resource_version != volume.metadata.resource_version) {
        return Ok(());
    }
    let api = cx.scope.api.use_now()?;
    let written: PersistentVolume = api.patch(&name, &patch).await.map_err(|error| op.failed(error))?;
    cx.stores.volumes.apply_own_write(written);
    told.written();
    Ok(())
}

/// Reads the secret of a call as it is now.
pub(super) async fn read_secret(cx: &Context, place: &SecretRef) -> Result<Secret, Stop> {
    let found = secrets::read(cx.scope.api.use_now()?, place).await;
    Ok(found.map_err(|error| LOAD_SECRET.failed(error))?)
}

/// Reads the claim from the API once per term, before the driver is called, because the cache may be old. `false`: the claim is gone.
pub(super) async fn confirm(cx: &Context, now: &Objects) -> Result<bool, Stop> {
    let api = cx.scope.api.use_now()?;
    let name = now.name();
    let found = api.get_opt::<PersistentVolumeClaim>(&name).await.map_err(|error| CONFIRM.failed(error))?;
    let Some(found) = found else { return Ok(false) };
    if found.metadata.uid != now.claim.metadata.uid {
        // The cache takes a claim with another uid only from its watch, so the next observation would be the same.
        return Err(crate::roles::kit::Stop::Behind(InvalidChange::Replaced(name.to_string()).into()));
    }
    cx.stores.claims.apply_own_write(found);
    cx.confirmed.note(now.uid());
    Ok(true)
}

/// Reads the claim and the PersistentVolume again, after the API has refused a write because one of them has changed.
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
    // If the API has the objects, the 404 to the write was wrong.
    let is_hearsay = error.says_not_found() && volume != Freshness::Gone;
    let is_newer = [claim, volume].contains(&Freshness::Newer) || is_hearsay;
    Ok(if is_newer { Freshness::Newer } else { Freshness::Same })
}

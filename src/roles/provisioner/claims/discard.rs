//! What becomes of a volume that the driver has made and that its claim does not get: it is deleted, unless a volume object of
//! somebody else tells of it by now.
//!
//! A driver answers a name that it knows with the volume that it has made before. So what it answers may long be in use: somebody
//! has found the volume in the storage while the claim still waited and has made a PersistentVolume for it, bound to this claim or
//! to another; or two claims have got one name (`volumeNameUuidLength`). To delete it for the claim's sake would take away the
//! data of whoever uses it, which is worse than any leak.

use std::sync::Arc;

use tracing::warn;

use crate::cluster::{BY_HANDLE, ObjectName, PersistentVolume};
use crate::proto::DeleteVolumeRequest;
use crate::roles::kit::secrets::Secret;

use super::decide::{NameStatus, is_unwanted};
use super::error::{AttemptError, CONFIRM, ClaimReason};
use super::observe::Observed;
use super::pending_on::Dependency;
use super::perform::read;
use super::reconcile::{Attempt, Stop};
use super::state::{Made, Phase};
use crate::roles::provisioner::context::Context;

impl Context {
    /// The volume objects that name this volume of our driver, as the cache has them. Where each node has a driver of its own,
    /// those that are certain to be other nodes' name other volumes.
    pub fn volumes_of(&self, handle: &str) -> Vec<Arc<PersistentVolume>> {
        let mut found = self.stores.volumes.find(BY_HANDLE, handle);
        found.retain(|volume| self.scope.may_be_here(volume));
        found
    }

    /// The other volume objects of the driver's volume that this one names.
    pub fn same_handle(&self, volume: &PersistentVolume) -> Vec<Arc<PersistentVolume>> {
        let Some(csi) = &volume.spec.csi else { return Vec::new() };
        let mut found = self.volumes_of(&csi.volume_handle);
        found.retain(|other| other.metadata.uid != volume.metadata.uid);
        found
    }

    /// Whether this volume object, which may not have come through the cache, names this volume of our driver.
    pub fn names(&self, volume: &PersistentVolume, handle: &str) -> bool {
        let csi = volume.spec.csi.as_ref().filter(|csi| csi.driver == self.rules.driver);
        csi.is_some_and(|csi| csi.volume_handle == handle) && self.scope.may_be_here(volume)
    }
}

impl Attempt<'_> {
    /// Deletes a volume that nobody wants, or nobody can use, and that no volume object tells of.
    /// One that a volume object of somebody else tells of is left to it.
    pub(in crate::roles::provisioner) async fn delete_created(
        &mut self,
        now: &Observed,
        volume_id: &str,
    ) -> Result<(), Stop> {
        let Some(request) = self.state.request.clone() else { return Ok(()) };
        let cx = self.cx;
        if cx.relisted.get().is_none() {
            // What the driver has answered is still acted on while the term is wound down: only its loss ends the wait.
            return Ok(self.ticket.park(cx.term.until_lost(cx.relist())).await?);
        }
        // Many drivers take the name for the id. Nothing is looked at again after the wait but whose the volume is: that nobody
        // waits for it, or can use it, does not change back.
        self.operation = None;
        let both = cx.operations.lock_pair(&request.volume_name, volume_id);
        let _turns = match cx.operations.try_lock_pair(&request.volume_name, volume_id) {
            Some(turns) => turns,
            None => self.ticket.park(cx.term.until_lost(both)).await?,
        };
        if let Some(other) = self.other_owner(now, volume_id).await? {
            self.abandon_to(now, volume_id, &other);
            return Ok(());
        }
        let client = cx.driver.use_now()?;
        let secrets = self.secrets.as_ref().map(Secret::texts).unwrap_or_default();
        let asked = DeleteVolumeRequest { volume_id: volume_id.to_owned(), secrets };
        let answer = cx.term.during(client.delete_volume(asked)).await?;
        let name = self.volume_name(&now.claim).ok();
        let is_wanted = !is_unwanted(&now.claim, now.present, name.as_deref());
        let unfit = self.state.failure.as_ref().filter(|_| is_wanted).cloned().map(Box::new);
        let handle = volume_id.to_owned();
        answer.map_err(|source| AttemptError::from(ClaimReason::Discard { handle, unfit, source }))?;
        self.tell_discarded(volume_id);
        // What comes next is another volume, which is not made without its secret.
        self.secrets = None;
        self.state.end(false);
        self.note();
        Ok(())
    }

    /// Before a volume is stored: one that somebody else's object tells of is left to that. Two objects of one volume are one too
    /// many, and two claims would share its data.
    pub(in crate::roles::provisioner) async fn is_left(&mut self, now: &Observed, made: &Made) -> Result<bool, Stop> {
        let (cx, handle) = (self.cx, made.volume.volume_id.as_str());
        let name = self.volume_name(&now.claim).ok();
        let is_unwanted = is_unwanted(&now.claim, now.present, name.as_deref());
        // What a claim waits for is most likely new: it is stored on the word of the watch, and no list holds it up.
        if is_unwanted && cx.relisted.get().is_none() {
            self.ticket.park(cx.term.until_lost(cx.relist())).await?;
        }
        let Some(other) = self.other_owner(now, handle).await? else { return Ok(false) };
        if is_unwanted || name.as_deref() == Some(other.as_str()) {
            self.abandon_to(now, handle, &other);
            return Ok(true);
        }
        // The claim goes on to want a volume, and the other object may go, with this one or without: then the driver's answer
        // is another. One that may be stored is looked for first.
        cx.pending_on.add(Dependency::Name(ObjectName::cluster(&other)), now.claim.key.clone());
        if !made.may_be_stored {
            self.state.phase = Phase::Creating;
            self.note();
        }
        Err(AttemptError::from(ClaimReason::Anothers { handle: handle.to_owned(), other }).into())
    }

    /// The name of a volume object other than the claim's own that tells of the volume.
    ///
    /// Whoever is about to delete has listed volumes in this term. An object that the watch has not brought since is most likely
    /// the one that the claim was bound to just now, so that one is asked for.
    pub(in crate::roles::provisioner) async fn other_owner(
        &self,
        now: &Observed,
        volume_id: &str,
    ) -> Result<Option<String>, Stop> {
        let cx = self.cx;
        let own = self.volume_name(&now.claim).ok();
        let name_of = |volume: &PersistentVolume| volume.metadata.name.as_deref().unwrap_or_default().to_owned();
        // One that people made may well be bound to this very claim.
        let is_other = |volume: &PersistentVolume| {
            volume.metadata.name.as_deref() != own.as_deref() || cx.place(&now.claim, Some(volume)) != NameStatus::Ours
        };
        if let Some(other) = cx.volumes_of(volume_id).iter().find(|volume| is_other(volume)) {
            return Ok(Some(name_of(other)));
        }
        let claim = cx.find(self.ticket.key());
        let bound = claim.as_ref().unwrap_or(&now.claim).volume_name.as_deref();
        let Some(bound) = bound.map(ObjectName::cluster) else { return Ok(None) };
        if cx.stores.volumes.get(&bound).is_some() {
            return Ok(None);
        }
        let found: Option<PersistentVolume> = read(cx, &bound, CONFIRM).await?;
        Ok(found.filter(|found| is_other(found) && cx.names(found, volume_id)).as_ref().map(name_of))
    }

    /// The volume is another object's: nothing of it is the claim's any more.
    pub(in crate::roles::provisioner) fn abandon_to(&mut self, now: &Observed, volume_id: &str, other: &str) {
        let error = AttemptError::from(ClaimReason::Anothers { handle: volume_id.to_owned(), other: other.to_owned() });
        warn!(volume = volume_id, other, "left a volume alone: another persistentvolume names it");
        let name = self.volume_name(&now.claim).ok();
        self.tell_resumed("left");
        self.state.end(false);
        if is_unwanted(&now.claim, now.present, name.as_deref()) {
            self.tell_left(&error);
        } else {
            self.state.failure = Some(error);
        }
        self.note();
    }
}

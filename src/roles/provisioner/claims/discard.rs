//! Deletes a volume that the driver has created and that its claim does not get, unless another PersistentVolume has the volume.
//!
//! If a driver knows the name in a request, it answers with the volume that it has created before. So this volume may be in use:
//! somebody found it in the storage while the claim still waited, and created a PersistentVolume for it, bound to this claim or to
//! another one; or two claims have the same volume name (`volumeNameUuidLength`). To delete such a volume would destroy the data of
//! its user, which is worse than a leak.

use std::sync::Arc;

use tracing::warn;

use crate::cluster::{BY_HANDLE, IdKind, InTree, ObjectName, PersistentVolume};
use crate::proto::DeleteVolumeRequest;
use crate::roles::kit::{Attempt, Secret};

use super::attempt::Happened;
use super::claim::ClaimKey;
use super::decide::{NameStatus, is_unwanted};
use super::error::{AttemptError, CONFIRM, ClaimReason, Stop};
use super::observe::{Look, Observed};
use super::pending_on::Dependency;
use super::perform::read;
use super::phase::Phase;
use super::transition::Change;
use crate::roles::provisioner::context::Context;
use crate::translation::csi_form;

impl Context {
    /// The cached PersistentVolumes whose handle may be of the volume with this handle of our driver. With node deployment, without
    /// those that certainly belong to another node: there the same handle is another volume.
    pub fn volumes_of(&self, handle: &str) -> Vec<Arc<PersistentVolume>> {
        let driver = &self.rules.driver;
        let mut found = self.stores.volumes.find(BY_HANDLE, &IdKind::Volume.key(driver, handle));
        if InTree::of_driver(driver).is_some() {
            // No index has the handles of in-tree volumes.
            let mut in_tree = self.stores.volumes.all();
            in_tree.retain(|volume| volume.spec.migration.is_some());
            found.extend(in_tree);
        }
        found.retain(|volume| self.names(volume, handle));
        found
    }

    /// The other PersistentVolumes that may have the same volume.
    pub fn same_handle(&self, volume: &PersistentVolume) -> Vec<Arc<PersistentVolume>> {
        let Some(handle) = self.handle_of(volume) else { return Vec::new() };
        let mut found = self.volumes_of(&handle);
        found.retain(|other| other.metadata.uid != volume.metadata.uid);
        found
    }

    /// Whether this PersistentVolume, which may not be from the cache, may have the volume with this handle of our driver.
    pub fn names(&self, volume: &PersistentVolume, handle: &str) -> bool {
        let is_same = |own: &String| IdKind::Volume.may_be_same(&self.rules.driver, own, handle);
        self.handle_of(volume).as_ref().is_some_and(is_same) && self.deployment.may_be_here(volume)
    }

    /// The handle of our driver that a PersistentVolume has, or that its CSI form has.
    pub fn handle_of(&self, volume: &PersistentVolume) -> Option<String> {
        let driver = &self.rules.driver;
        let form = csi_form(volume, driver).ok()?;
        form.csi.as_ref().filter(|csi| csi.driver == *driver).map(|csi| csi.volume_handle.clone())
    }
}

impl Look<'_> {
    /// Deletes a volume that no claim wants, or that cannot be used. If another PersistentVolume has the volume, it is not deleted.
    pub(in crate::roles::provisioner) async fn delete_created(
        &self,
        now: &Observed,
        volume_id: &str,
        attempt: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Happened, Stop> {
        let (cx, Some(request)) = (self.cx, self.known().request()) else { return Ok(Happened::Nothing) };
        // Many drivers use the name as the ID, so both are locked.
        if !attempt.lock_pair(&request.volume_name, volume_id, &cx.scope.volume_locks, &cx.scope.term).await? {
            return Ok(Happened::Nothing);
        }
        // Claims and PersistentVolumes have watches of their own: one may show that the claim is gone before the other shows who has
        // the volume now.
        if !self.state.has_listed {
            attempt.park(&cx.scope.term, cx.stores.volumes.relisted()).await?;
            return Ok(Happened::Listed);
        }
        if let Some(other) = self.other_owner(now, volume_id).await? {
            return Ok(self.abandon_to(now, volume_id, &other));
        }
        let client = cx.scope.driver.use_now()?.for_migrated(request.plan.in_tree);
        let secrets = self.state.secrets.as_ref().map(Secret::texts).unwrap_or_default();
        let asked = DeleteVolumeRequest { volume_id: volume_id.to_owned(), secrets };
        let answer = cx.scope.term.during(client.delete_volume(asked)).await?;
        attempt.unlock();
        let unfit = match self.known().phase() {
            Phase::Discarding(unusable) if !self.is_unwanted(now) => Some(Box::new(unusable.why.clone())),
            _ => None,
        };
        let handle = volume_id.to_owned();
        answer.map_err(|source| AttemptError::from(ClaimReason::Discard { handle, unfit, source }))?;
        self.tell_discarded(volume_id);
        Ok(Change::Discarded.into())
    }

    /// Whether the claim no longer wants the volume.
    fn is_unwanted(&self, now: &Observed) -> bool {
        is_unwanted(&now.claim, now.present, self.volume_name(&now.claim).ok().as_deref())
    }

    /// Checks, before a volume is stored, that no other PersistentVolume has it. With two PersistentVolumes of one volume, two claims
    /// would share its data.
    pub(in crate::roles::provisioner) async fn check_handle(
        &self,
        now: &Observed,
        attempt: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Happened, Stop> {
        let Phase::Created(made) = self.known().phase() else { return Ok(Happened::Nothing) };
        let (cx, handle, is_unwanted) = (self.cx, made.volume.volume_id.as_str(), self.is_unwanted(now));
        // A volume that a claim waits for is most likely new: the cache is enough, so that no list delays the claim.
        if is_unwanted && !cx.deletion.is_listed() {
            attempt.park(&cx.scope.term, cx.deletion.list()).await?;
        }
        let Some(other) = self.other_owner(now, handle).await? else { return Ok(Happened::Checked) };
        if is_unwanted || self.volume_name(&now.claim).is_ok_and(|name| name == other) {
            return Ok(self.abandon_to(now, handle, &other));
        }
        // The claim still wants a volume. The other PersistentVolume may go, with its volume or without; then the driver's answer
        // is another one. If a PersistentVolume may be stored already, the next attempt looks for it first.
        cx.pending_on.add(Dependency::Name(ObjectName::cluster(&other)), now.claim.key.clone());
        let failure = AttemptError::from(ClaimReason::Anothers { handle: handle.to_owned(), other });
        if made.may_be_stored {
            return Err(failure.into());
        }
        Ok(Happened::Failed(Change::AskAgain, failure))
    }

    /// The name of a PersistentVolume other than the claim's own that has the volume.
    ///
    /// Before a deletion, PersistentVolumes were listed in this attempt. Before a PersistentVolume is stored, the watch may lack one,
    /// most likely the one to which the claim was bound just now, so that one is read from the API.
    async fn other_owner(&self, now: &Observed, volume_id: &str) -> Result<Option<String>, Stop> {
        let cx = self.cx;
        let own = self.volume_name(&now.claim).ok();
        let name_of = |volume: &PersistentVolume| volume.metadata.name.to_string();
        // A PersistentVolume that a person created may be bound to this claim.
        let is_other = |volume: &PersistentVolume| {
            Some(&*volume.metadata.name) != own.as_deref() || cx.place(&now.claim, Some(volume)) != NameStatus::Ours
        };
        if let Some(other) = cx.volumes_of(volume_id).iter().find(|volume| is_other(volume)) {
            return Ok(Some(name_of(other)));
        }
        let claim = cx.find(&now.claim.key);
        let bound = claim.as_ref().unwrap_or(&now.claim).volume_name.as_deref();
        let Some(bound) = bound.map(ObjectName::cluster) else { return Ok(None) };
        if cx.stores.volumes.get(&bound).is_some() {
            return Ok(None);
        }
        let found: Option<PersistentVolume> = read(cx, &bound, CONFIRM).await?;
        Ok(found.filter(|found| is_other(found) && cx.names(found, volume_id)).as_ref().map(name_of))
    }

    /// Leaves the volume to another PersistentVolume.
    pub(in crate::roles::provisioner) fn abandon_to(&self, now: &Observed, volume_id: &str, other: &str) -> Happened {
        let error = AttemptError::from(ClaimReason::Anothers { handle: volume_id.to_owned(), other: other.to_owned() });
        warn!(
            volume = volume_id,
            other, "did not delete or store the volume: another persistentvolume has the same handle"
        );
        self.tell_resumed("left");
        let failure = if self.is_unwanted(now) {
            self.tell_left(&error);
            None
        } else {
            Some(error)
        };
        Change::Abandoned { failure }.into()
    }
}

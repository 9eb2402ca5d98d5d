//! Deletes a volume that the driver has created and that its claim does not get, unless another PersistentVolume has the volume.
//!
//! If a driver knows the name in a request, it answers with the volume that it has created before. So this volume may be in use:
//! somebody found it in the storage while the claim still waited, and created a PersistentVolume for it, bound to this claim or to
//! another one; or two claims have the same volume name (`volumeNameUuidLength`). To delete such a volume would destroy the data of
//! its user, which is worse than a leak.

use std::sync::Arc;

use crate::cluster::{BY_HANDLE, IdKind, InTree, PersistentVolume};
use crate::csi::Client;
use crate::proto::DeleteVolumeRequest;
use crate::roles::provisioner::context::Context;
use crate::translation::csi_form;

use super::answer::{Happened, anothers};
use super::error::{AttemptError, ClaimReason, Stop};
use super::perform::Act;
use super::phase::Phase;
use super::transition::Change;

impl Context {
    /// The cached PersistentVolumes whose handle may be of the volume with this handle of our driver. With node deployment, without
    /// those that certainly belong to another node: there the same handle is another volume.
    pub fn volumes_of(&self, handle: &str) -> Vec<Arc<PersistentVolume>> {
        let driver = &self.claims.rules.driver;
        let mut found = self.stores.volumes.find(BY_HANDLE, &IdKind::Volume.key(driver, handle));
        if InTree::of_driver(driver).is_some() {
            // No index has the handles of in-tree volumes.
            let mut in_tree = self.stores.volumes.own();
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
        let is_same = |own: &String| IdKind::Volume.may_be_same(&self.claims.rules.driver, own, handle);
        self.handle_of(volume).as_ref().is_some_and(is_same) && self.deployment.may_be_here(volume)
    }

    /// The handle of our driver that a PersistentVolume has, or that its CSI form has.
    pub fn handle_of(&self, volume: &PersistentVolume) -> Option<String> {
        let driver = &self.claims.rules.driver;
        let form = csi_form(volume, driver).ok()?;
        form.csi.as_ref().filter(|csi| csi.driver == *driver).map(|csi| csi.volume_handle.clone())
    }
}

impl Act<'_, '_> {
    /// Deletes a volume that no claim wants, or that cannot be used, and that no other PersistentVolume has.
    pub(super) async fn delete_created(&self, volume_id: String) -> Result<Happened, Stop> {
        let known = &self.progress.known;
        let Some(in_tree) = known.request().map(|request| request.plan.in_tree) else { return Ok(Happened::Nothing) };
        let asked = DeleteVolumeRequest { volume_id: volume_id.clone(), secrets: self.secrets() };
        let delete = async move |client: Client| client.for_migrated(in_tree).delete_volume(asked).await;
        let unfit = match known.phase() {
            Phase::Discarding(unusable) if !self.seen.is_unwanted() => Some(Box::new(unusable.why.clone())),
            _ => None,
        };
        match self.io.call(delete).await {
            Ok(_) => Ok(Change::Discarded.into()),
            Err(Stop::Failed(AttemptError::Driver(source))) => {
                Err(ClaimReason::Discard { handle: volume_id, unfit, source }.into())
            }
            Err(stop) => Err(stop),
        }
    }

    /// Leaves the volume to another PersistentVolume. With two PersistentVolumes of one volume, two claims would share its data.
    pub(super) fn leave_to(&self, other: String) -> Happened {
        let volume_id = self.progress.volume_id().unwrap_or_default().to_owned();
        Happened::Abandoned { volume_id, other, is_unwanted: self.seen.is_unwanted() }
    }

    /// The claim still wants a volume. The other PersistentVolume may go, with its volume or without; then the driver's answer is another
    /// one. If a PersistentVolume may be stored already, the next attempt looks for it first.
    pub(super) fn yield_to(&self, other: &str) -> Happened {
        let Phase::Created(made) = self.progress.known.phase() else { return Happened::Nothing };
        let change = (!made.may_be_stored).then_some(Change::AskAgain);
        Happened::Failed(change, anothers(&made.volume.volume_id, other))
    }
}

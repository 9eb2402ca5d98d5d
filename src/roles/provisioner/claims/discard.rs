//! Deletes a volume that the driver has created and that its claim does not get, unless another PersistentVolume has the volume.
//!
//! If a driver knows the name in a request, it answers with the volume that it has created before. So this volume may be in use:
//! a person found it in the storage while the claim still waited, and created a PersistentVolume for it, bound to this claim or to
//! another one; or two claims have the same volume name (`volumeNameUuidLength`). To delete such a volume would destroy the data of
//! its user, which is worse than a leak.

use crate::csi::Client;
use crate::proto::DeleteVolumeRequest;

use super::answer::{Happened, anothers};
use super::error::{AttemptError, ClaimReason, Stop};
use super::perform::Act;
use super::phase::Phase;
use super::transition::Change;

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

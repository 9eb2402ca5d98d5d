//! Looks a group up: one that was there before its content, and one that is cut and not ready (snapshotter spec 10). Pure.

use crate::cluster::VolumeGroupSnapshotContent;
use crate::roles::snapshotter::content::policy::{LookUp, Refusal, Step, View, look_up::class_secret};
use crate::roles::snapshotter::content::record::{Operation, facts};
use crate::roles::snapshotter::secrets::for_group;

impl LookUp for VolumeGroupSnapshotContent {
    /// `GetVolumeGroupSnapshot` comes with the capability that the other two calls come with, and takes no turn.
    fn ask(view: &View<'_, Self>) -> Result<Step, Refusal> {
        let Some(handle) = facts::handle(view.content) else { return Ok(Step::Settled) };
        view.takes(Operation::Ready)?;
        let place = class_secret(view, for_group).map_err(|reason| (Operation::Ready, reason))?;
        if let Some(read) = view.read(place, Operation::Ready, true) {
            return Ok(read);
        }
        Ok(Step::LookUp(handle.to_owned()))
    }
}

//! Looks an independent snapshot or a member of a group up (snapshotter spec 6.1). Pure.

use crate::cluster::VolumeSnapshotContent;
use crate::roles::snapshotter::content::policy::{LookUp, Refusal, Step, View, look_up::class_secret};
use crate::roles::snapshotter::content::record::{Operation, facts};
use crate::roles::snapshotter::secrets::for_listing;

impl LookUp for VolumeSnapshotContent {
    /// A driver that cannot be asked is believed, and neither class nor secret are needed for that.
    fn ask(view: &View<'_, Self>) -> Result<Step, Refusal> {
        let Some(handle) = facts::handle(view.content) else { return Ok(Step::Settled) };
        if !view.rules.lists && !view.rules.gets {
            return Ok(Step::Assume(handle.to_owned()));
        }
        let is_member = facts::group_handle(view.content).is_some();
        // A snapshot of ours has its secret on the content, and the class has one for snapshots that were there before.
        let by_annotations = is_member || facts::given_handle(view.content).is_none();
        let place = if by_annotations { view.secret_place() } else { class_secret(view, for_listing) };
        let place = place.map_err(|reason| (Operation::Ready, reason))?;
        if let Some(read) = view.read(place, Operation::Ready, !by_annotations) {
            return Ok(read);
        }
        Ok(Step::LookUp(handle.to_owned()))
    }
}

//! Looks a group up: one that was there before its content, and one that is cut and not ready (snapshotter spec 10). Pure.

use crate::cluster::{SecretRef, VolumeGroupSnapshotContent};
use crate::roles::snapshotter::content::attempt::Operation;
use crate::roles::snapshotter::content::error::InvalidSnapshot;
use crate::roles::snapshotter::content::facts::{self, ClassView};
use crate::roles::snapshotter::content::kind::Content as _;
use crate::roles::snapshotter::content::look_up::LookUp;
use crate::roles::snapshotter::content::view::{Refusal, Step, View};
use crate::roles::snapshotter::secrets::for_group;

impl LookUp for VolumeGroupSnapshotContent {
    /// `GetVolumeGroupSnapshot` comes with the capability that the other two calls come with, and takes no turn.
    fn ask(view: &View<'_, Self>) -> Result<Step, Refusal> {
        let Some(handle) = facts::handle(view.content) else { return Ok(Step::Settled) };
        view.takes(Operation::Ready)?;
        let place = get_secret(view).map_err(|reason| (Operation::Ready, reason))?;
        if let Some(read) = view.read(place, Operation::Ready, true) {
            return Ok(read);
        }
        Ok(Step::LookUp(handle.to_owned()))
    }
}

fn get_secret(view: &View<'_, VolumeGroupSnapshotContent>) -> Result<Option<SecretRef>, InvalidSnapshot> {
    let classes = VolumeGroupSnapshotContent::NAMES.classes;
    match view.class {
        ClassView::Unnamed => Ok(None),
        ClassView::Ours(class) => {
            for_group(&class.parameters, &view.content.metadata.name).map_err(InvalidSnapshot::ListSecret)
        }
        ClassView::Missing(name) => Err(InvalidSnapshot::ListClassMissing(classes, name.to_owned())),
        ClassView::Unread(name, why) => Err(InvalidSnapshot::ClassUnread(classes, name.to_owned(), why.to_owned())),
        // The decision comes before: a content of a foreign class is left alone.
        ClassView::Foreign(class) => Err(InvalidSnapshot::ListClassMissing(classes, class.metadata.name.to_string())),
    }
}

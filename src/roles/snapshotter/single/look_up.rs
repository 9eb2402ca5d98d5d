//! Looks an independent snapshot or a member of a group up (snapshotter spec 6.1). Pure.

use crate::cluster::{SecretRef, VolumeSnapshotContent};
use crate::roles::snapshotter::content::attempt::Operation;
use crate::roles::snapshotter::content::error::InvalidSnapshot;
use crate::roles::snapshotter::content::facts::{self, ClassView};
use crate::roles::snapshotter::content::kind::Content;
use crate::roles::snapshotter::content::look_up::LookUp;
use crate::roles::snapshotter::content::view::{Refusal, Step, View};
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
        let place = if by_annotations { view.secret_place() } else { list_secret(view) };
        let place = place.map_err(|reason| (Operation::Ready, reason))?;
        if let Some(read) = view.read(place, Operation::Ready, !by_annotations) {
            return Ok(read);
        }
        Ok(Step::LookUp(handle.to_owned()))
    }
}

fn list_secret(view: &View<'_, VolumeSnapshotContent>) -> Result<Option<SecretRef>, InvalidSnapshot> {
    let missing = |name: &str| InvalidSnapshot::ListClassMissing(VolumeSnapshotContent::NAMES.classes, name.to_owned());
    match view.class {
        ClassView::Unnamed => Ok(None),
        ClassView::Ours(class) => {
            for_listing(&class.parameters, &view.content.metadata.name).map_err(InvalidSnapshot::ListSecret)
        }
        ClassView::Missing(name) => Err(missing(name)),
        ClassView::Unread(name, why) => {
            let classes = VolumeSnapshotContent::NAMES.classes;
            Err(InvalidSnapshot::ClassUnread(classes, name.to_owned(), why.to_owned()))
        }
        // The decision comes before: a content of a foreign class is left alone.
        ClassView::Foreign(class) => Err(missing(&class.metadata.name)),
    }
}

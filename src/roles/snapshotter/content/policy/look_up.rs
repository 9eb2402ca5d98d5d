//! Looks a snapshot up: one that was there before its content, a member of a group (snapshotter spec 6.1), or a group that is cut and
//! not ready. Pure.

use std::collections::BTreeMap;

use crate::cluster::{Object as _, SecretRef};
use crate::roles::snapshotter::content::record::{Class as _, ClassView, Content, InvalidSnapshot, Wait, facts};
use crate::roles::snapshotter::secrets::SecretFault;

use super::view::{Refusal, Step, View};

/// How a kind of contents is looked up.
pub trait LookUp: Content {
    /// Asks the driver, or says why it cannot be asked.
    fn ask(view: &View<'_, Self>) -> Result<Step, Refusal>;
}

/// Row 8.
pub(super) fn step<K: LookUp>(view: &View<'_, K>) -> Result<Step, Refusal> {
    // A content with a handle waits for no call that takes a snapshot.
    before(view, false).map_or_else(|| K::ask(view), Ok)
}

/// What comes before the next look, if it is not due. The mark goes first: it would hold up the deletion as long as the looks fail.
pub(super) fn before<K: Content>(view: &View<'_, K>, keep_intent: bool) -> Option<Step> {
    if facts::has_mark(view.content) {
        return Some(Step::Unmark { keep_intent });
    }
    if view.progress.found.is_some() {
        return Some(Step::Wait(Wait::NotReady));
    }
    view.known.pause_left.map(|left| Step::Wait(Wait::NotDue(left)))
}

/// Reads from the parameters of a class where the secret of a look-up is, for the name of a content.
type FindSecret = fn(&BTreeMap<String, String>, &str) -> Result<Option<SecretRef>, SecretFault>;

/// Where the class says that the secret of a look-up is.
pub fn class_secret<K: Content>(view: &View<'_, K>, find: FindSecret) -> Result<Option<SecretRef>, InvalidSnapshot> {
    let (classes, content) = (K::NAMES.classes, &view.content.meta().name);
    let missing = |name: &str| Err(InvalidSnapshot::ListClassMissing(classes, name.to_owned()));
    match view.class {
        ClassView::Unnamed => Ok(None),
        ClassView::Ours(class) => find(class.parameters(), content).map_err(InvalidSnapshot::ListSecret),
        ClassView::Missing(name) => missing(name),
        ClassView::Unread(name, why) => Err(InvalidSnapshot::ClassUnread(classes, name.to_owned(), why.to_owned())),
        // The decision comes before: a content of a foreign class is left alone.
        ClassView::Foreign(class) => missing(&class.meta().name),
    }
}

//! What to do next for one volume object. Pure, total, and asserted without a server.
//!
//! ```text
//!   Bound ──> Protect (our finalizer)
//!   Released ──> detached? ─> hold ─> confirm ─> secret ─> Delete (driver) ─> Remove (the object) ─> Release (our finalizer)
//! ```
//!
//! What is waited for comes first, then a look at the object where what is known of it may be old, and the secret last: it is
//! the one that the object names by then.
//!
//! The driver is asked to delete only what no attachment names any more, and once in a term: that it has is remembered by
//! the object's uid, whatever an older view of the object says (spec 3.2: the Go sidecar asks twice).

use std::ops::Range;
use std::time::Duration;

use jiff::SignedDuration;

use crate::cluster::{InTree, PersistentVolume};
use crate::roles::provisioner::names;

/// A run that had to wait this long for a worker reads the volume before the driver is asked to delete it. Where many volumes go
/// at once, the watch is as likely to be behind as the workers, and people who see what is coming say `Retain` in that time.
/// Shorter waits are as old as any view of a watch, and must not cost a request each.
pub const LONG_IN_QUEUE: Duration = Duration::from_secs(1);
/// A volume whose phase is younger than this, by the API's clock and ours, was released just now: no watch has shown that late.
/// An older phase is read again before the driver is asked, because people who say `Retain` in that time may not be heard yet. The
/// API stamps whole seconds, so that one of the two seconds is its rounding. A phase from the future says that the clocks disagree
/// by more than that, and then its age proves nothing.
pub const YOUNG: Range<SignedDuration> = SignedDuration::from_secs(-1)..SignedDuration::from_secs(2);

/// What is the same for every volume of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Our driver.
    pub driver: String,
    /// The finalizer on volumes whose deletion is ours.
    pub finalizer: &'static str,
    /// The driver attaches volumes: one that is attached must not be deleted.
    pub attaches: bool,
}

/// Everything that a decision depends on.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct View<'a> {
    /// The volume.
    pub volume: &'a PersistentVolume,
    /// Whether it has a handle of our driver: its own, or that of its CSI form.
    pub has_handle: bool,
    /// How many attachments name it.
    pub attachments: usize,
    /// Another object that names the same volume of the driver and is not to be deleted itself: [`keeps`].
    pub kept_by: Option<&'a str>,
    /// Whether its topology is that of this node, where each node has a daemon of its own.
    pub is_here: bool,
    /// What was done of it in this term.
    pub done: Done,
    /// Whether this attempt has locked the volume.
    pub held: bool,
    /// Whether the driver may be asked on the word of the cache: the API has shown the object since this attempt has last
    /// waited, or [`Past::is_fresh`] and it has not.
    pub fresh: bool,
    /// Whether no later leader can find an entry of the journal for the volume (J8).
    pub forgotten: bool,
    /// Whether this attempt has read the secret that the volume names now, or found that there is none.
    pub has_secret: bool,
    /// The term's rules.
    pub rules: &'a Rules,
}

/// What a volume has behind it when an attempt begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Past {
    /// It had to wait until it was detached.
    pub detached: bool,
    /// So many attempts have failed.
    pub failures: u32,
    /// So long it has waited for a worker.
    pub queued: Duration,
    /// So long it is in its phase, as far as the object says when that began.
    pub phase_age: Option<SignedDuration>,
}

impl Past {
    /// Whether what the cache shows was just heard. Otherwise people may have decided to keep the volume meanwhile, and the watch
    /// may be late.
    pub fn is_fresh(self) -> bool {
        let is_young = self.phase_age.is_some_and(|age| YOUNG.contains(&age));
        is_young && !self.detached && self.failures == 0 && self.queued < LONG_IN_QUEUE
    }
}

/// What was done of a volume in this term.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Volumes and attachments were listed since the term began: a new leader's watches may be behind.
    pub relisted: bool,
    /// The driver has deleted it.
    pub deleted: bool,
    /// The API no longer has the object.
    pub gone: bool,
}

/// The next thing to do for a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// None of ours.
    Ignore,
    /// Nothing: what is wanted is so.
    Settled,
    /// Nothing, until the last of so many attachments is gone: that wakes the key.
    WaitForDetach(usize),
    /// Give up this attempt: the volume is this other object's, too.
    Shared(String),
    /// Put our finalizer on it.
    Protect,
    /// List volumes and attachments once.
    Relist,
    /// Lock the volume, by its name and by its handle: a `CreateVolume` knows the one, the attacher the other. What is known of the
    /// volume is old after a wait.
    Hold,
    /// Read the object itself, while the volume is locked. A watch that is behind may have hidden that the volume is kept, bound or
    /// replaced by a namesake, or that its secret is elsewhere.
    Confirm,
    /// Find and read the secret for the driver: the last thing before it is asked, so that what is wrong with the secret holds up
    /// no volume that has yet to wait, or that is another node's.
    ReadSecret,
    /// `DeleteVolume`.
    Delete,
    /// Wait until the journal has no entry of the volume: without its object, the entry would be all that is left of it.
    Forget,
    /// Delete the object.
    Remove,
    /// Take our finalizer off it.
    Release,
    /// It has no CSI source that could be deleted.
    NotCsi,
}

/// What to do next for the volume of `view`.
pub fn next_step(view: &View<'_>) -> Step {
    let volume = view.volume;
    if !is_ours(volume, &view.rules.driver) {
        return Step::Ignore;
    }
    let is_protected = is_protected(volume, view.rules);
    if !view.is_here {
        // Our finalizer leaves a volume that is kept without the driver, and the volume's own node may be gone for good (spec 3.2).
        let is_kept = is_protected && !is_delete(volume) && !view.done.gone;
        return if is_kept { Step::Release } else { Step::Ignore };
    }
    let is_deleting = volume.metadata.deletion_timestamp.is_some();
    if view.done.gone {
        return Step::Settled;
    }
    if view.done.deleted {
        return match (is_deleting, is_protected) {
            (false, _) => forgotten_then(view, Step::Remove),
            (true, true) => forgotten_then(view, Step::Release),
            (true, false) => Step::Settled,
        };
    }
    if !is_delete(volume) {
        return if is_protected { forgotten_then(view, Step::Release) } else { Step::Settled };
    }
    if !is_released(volume) {
        let is_unprotected = !is_deleting && !is_protected && volume.phase.as_deref() == Some("Bound");
        return if is_unprotected { Step::Protect } else { Step::Settled };
    }
    if is_deleting && !is_protected {
        // Already gone for us: whoever else holds it, the volume was deleted before our finalizer left.
        return Step::Settled;
    }
    if !view.has_handle {
        return Step::NotCsi;
    }
    if view.rules.attaches && view.attachments > 0 {
        return Step::WaitForDetach(view.attachments);
    }
    if !view.done.relisted {
        return Step::Relist;
    }
    if let Some(other) = view.kept_by {
        return Step::Shared(other.to_owned());
    }
    if !view.held {
        return Step::Hold;
    }
    if !view.fresh {
        return Step::Confirm;
    }
    if view.has_secret { Step::Delete } else { Step::ReadSecret }
}

/// The step, once the journal has no entry of the volume (J8).
fn forgotten_then(view: &View<'_>, step: Step) -> Step {
    if view.forgotten { step } else { Step::Forget }
}

/// Whether the volume is ours to keep house for (spec 3.1): by who provisioned it, else by its source.
pub fn is_ours(volume: &PersistentVolume, driver: &str) -> bool {
    let source = volume.spec.csi.as_ref().map(|csi| csi.driver.as_str());
    let is_of_source = provisioned_by(volume).is_none() && source == Some(driver);
    is_of_source || was_made_by(volume, driver) || volume.migrated_to() == Some(driver)
}

/// Whether it names our driver as its provisioner, or the in-tree plugin that our driver has taken over: the plugin has made it, or
/// we have for a class of the plugin (migration spec 10).
pub fn was_made_by(volume: &PersistentVolume, driver: &str) -> bool {
    let plugin = InTree::of_driver(driver).map(InTree::plugin);
    provisioned_by(volume).is_some_and(|by| by == driver || plugin == Some(by))
}

/// Which provisioner made it, if one did.
pub fn provisioned_by(volume: &PersistentVolume) -> Option<&str> {
    volume.metadata.annotation(names::ANNOTATION_PROVISIONED_BY)
}

/// Whether our finalizer is on it.
pub fn is_protected(volume: &PersistentVolume, rules: &Rules) -> bool {
    volume.metadata.has_finalizer(rules.finalizer)
}

/// Whether an object that names a volume of the driver stands for data that somebody uses or wants kept. Two that are both
/// released and to be deleted need not wait for each other: the second deletion finds nothing, and that is success in CSI.
pub fn keeps(volume: &PersistentVolume) -> bool {
    !(is_released(volume) && is_delete(volume))
}

/// Whether the volume goes with its claim.
pub fn is_delete(volume: &PersistentVolume) -> bool {
    volume.spec.reclaim_policy.as_deref() == Some("Delete")
}

/// Whether its claim is gone.
pub fn is_released(volume: &PersistentVolume) -> bool {
    volume.phase.as_deref() == Some("Released")
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

//! The next step for one PersistentVolume. Pure, and total: tests need no server.
//!
//! ```text
//!   Bound ──> Protect (our finalizer)
//!   Released ──> detached? ─> hold ─> confirm ─> secret ─> Delete (driver) ─> Remove (the object) ─> Release (our finalizer)
//! ```
//!
//! The waits come first, then a read of the object if the cache may be old, and the secret last, so that it is the one
//! that the object names at that time.
//!
//! The driver deletes only a volume that no attachment names any more, and once per term: the term remembers the
//! object's uid, whatever an older version of the object says (spec 3.2: the Go sidecar calls twice).

use std::ops::Range;
use std::time::Duration;

use jiff::SignedDuration;

use crate::cluster::{InTree, PersistentVolume};
use crate::roles::provisioner::names;

/// After this long a wait for a worker or for the secret, the attempt reads the volume before it calls the driver. If many volumes are
/// deleted at once, the watch is as likely to be behind as the workers, and people who notice set `Retain` in that
/// time. A shorter wait is no longer than the delay of any watch, and must not cost a request each.
pub const LONG_IN_QUEUE: Duration = Duration::from_secs(1);
/// A volume whose phase is younger than this, by the API's clock and ours, was released just now, so its watch is not
/// late. For an older phase the attempt reads the volume before it calls the driver, because people may have set
/// `Retain` meanwhile and the watch may not show it yet. The API stamps whole seconds, so one of the two seconds is
/// rounding. A phase from the future means that the clocks differ by more than that; then its age proves nothing.
pub const YOUNG: Range<SignedDuration> = SignedDuration::from_secs(-1)..SignedDuration::from_secs(2);

/// The settings of a term for all volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Our driver.
    pub driver: String,
    /// The finalizer on the volumes that this daemon deletes.
    pub finalizer: &'static str,
    /// Whether the driver attaches volumes: an attached volume must not be deleted.
    pub attaches: bool,
    /// Whether volumes get the finalizer, so that one whose object is deleted before its claim is deleted, too. Otherwise those that
    /// have it lose it, and nothing is deleted of which the object is being deleted already (spec 3.2).
    pub honors_policy: bool,
}

/// The input of a decision.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct View<'a> {
    /// The volume.
    pub volume: &'a PersistentVolume,
    /// Whether the volume has a handle of our driver: its own, or that of its CSI form.
    pub has_handle: bool,
    /// How many attachments name the volume.
    pub attachments: usize,
    /// Another object with the same handle that is not to be deleted itself: [`keeps`].
    pub kept_by: Option<&'a str>,
    /// Whether this node's driver can reach the volume, with one daemon per node.
    pub is_here: bool,
    /// What this term has done for the volume.
    pub done: Done,
    /// Whether this attempt has locked the volume.
    pub held: bool,
    /// Whether the cache is good enough to call the driver: the API has shown the object since this attempt last
    /// waited, or [`Past::is_fresh`] and it has not waited.
    pub fresh: bool,
    /// Whether no later leader can find an entry of the journal for the volume (J8).
    pub forgotten: bool,
    /// Whether this attempt has read the secret that the volume names now, or found that there is none.
    pub has_secret: bool,
    /// The term's rules.
    pub rules: &'a Rules,
}

/// The history of a volume when an attempt begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Past {
    /// It had to wait for its detach.
    pub detached: bool,
    /// How many attempts have failed.
    pub failures: u32,
    /// How long it has waited for a worker.
    pub queued: Duration,
    /// How long it has been in its phase, if the object says when that began.
    pub phase_age: Option<SignedDuration>,
}

impl Past {
    /// Whether the cache is recent. Otherwise people may have decided to keep the volume, and the watch may be late.
    pub fn is_fresh(self) -> bool {
        let is_young = self.phase_age.is_some_and(|age| YOUNG.contains(&age));
        is_young && !self.detached && self.failures == 0 && self.queued < LONG_IN_QUEUE
    }
}

/// What this term has done for a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// It has listed volumes and attachments, for a new leader's watches may be behind, and knows each volume that is older than this
    /// version of the object, which may have come in an answer.
    pub relisted: bool,
    /// The driver has deleted it.
    pub deleted: bool,
    /// The API no longer has the object.
    pub gone: bool,
}

/// The next step for a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Not ours.
    Ignore,
    /// Nothing: all is as it should be.
    Settled,
    /// Nothing, until the last of so many attachments is gone, which wakes the key.
    WaitForDetach(usize),
    /// End this attempt with an error: this other object has the same handle.
    Shared(String),
    /// Add our finalizer.
    Protect,
    /// List volumes and attachments once.
    Relist,
    /// Lock the volume, by its name and by its handle: `CreateVolume` knows the name, the attacher the handle. After a
    /// wait for the lock, what the attempt knew is old.
    Hold,
    /// Read the object while the volume is locked. If the watch is behind, the volume may be kept, bound or replaced by
    /// a new object of the same name, or name another secret.
    Confirm,
    /// Find and read the secret, directly before the call: a problem with the secret delays no volume that has to wait
    /// anyway, or that belongs to another node.
    ReadSecret,
    /// Call `DeleteVolume`.
    Delete,
    /// Wait until the journal has no entry for the volume: without the object, the entry would be all that remains of
    /// the volume.
    Forget,
    /// Delete the object.
    Remove,
    /// Remove our finalizer.
    Release,
    /// End with an error: it has no CSI source.
    NotCsi,
}

/// The next step for the volume of `view`.
pub fn next_step(view: &View<'_>) -> Step {
    let volume = view.volume;
    if !is_ours(volume, &view.rules.driver) {
        return Step::Ignore;
    }
    let is_protected = is_protected(volume, view.rules);
    if !view.is_here {
        // A kept volume loses our finalizer without a call to the driver, because its node may be gone for good
        // (spec 3.2).
        let is_kept = is_protected && !keeps_finalizer(volume, view.rules) && !view.done.gone;
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
    if is_protected && !keeps_finalizer(volume, view.rules) {
        return forgotten_then(view, Step::Release);
    }
    if !is_delete(volume) {
        return Step::Settled;
    }
    if !is_released(volume) {
        let is_unprotected = !is_deleting && !is_protected && volume.phase.as_deref() == Some("Bound");
        return if is_unprotected && view.rules.honors_policy { Step::Protect } else { Step::Settled };
    }
    if is_deleting && !is_protected {
        // The object is gone for us: another finalizer holds it, and the volume was deleted before ours was removed.
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

/// The step, once the journal has no entry for the volume (J8).
fn forgotten_then(view: &View<'_>, step: Step) -> Step {
    if view.forgotten { step } else { Step::Forget }
}

/// Whether this daemon looks after the volume (spec 3.1): by its provisioner, or else by its source.
pub fn is_ours(volume: &PersistentVolume, driver: &str) -> bool {
    let source = volume.spec.csi.as_ref().map(|csi| csi.driver.as_str());
    let is_of_source = provisioned_by(volume).is_none() && source == Some(driver);
    is_of_source || was_made_by(volume, driver) || volume.migrated_to() == Some(driver)
}

/// Whether the volume's provisioner is our driver, or the in-tree plugin that our driver has taken over: the plugin has
/// created the volume, or we have, for a class of the plugin (migration spec 10).
pub fn was_made_by(volume: &PersistentVolume, driver: &str) -> bool {
    let plugin = InTree::of_driver(driver).map(InTree::plugin);
    provisioned_by(volume).is_some_and(|by| by == driver || plugin == Some(by))
}

/// The provisioner that created the volume, if the object names one.
pub fn provisioned_by(volume: &PersistentVolume) -> Option<&str> {
    volume.metadata.annotation(names::ANNOTATION_PROVISIONED_BY)
}

/// Whether the volume has our finalizer.
pub fn is_protected(volume: &PersistentVolume, rules: &Rules) -> bool {
    volume.metadata.has_finalizer(rules.finalizer)
}

/// Whether the volume's finalizer stays on it.
pub fn keeps_finalizer(volume: &PersistentVolume, rules: &Rules) -> bool {
    rules.honors_policy && is_delete(volume)
}

/// Whether an object stands for data that somebody uses or wants to keep. Two objects of one volume that are both
/// released and to be deleted need not wait for each other: the second deletion finds no volume, which is success in
/// CSI.
pub fn keeps(volume: &PersistentVolume) -> bool {
    !(is_released(volume) && is_delete(volume))
}

/// Whether the volume is deleted with its claim.
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

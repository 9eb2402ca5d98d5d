//! The next step for one PersistentVolume. Pure, and total: tests need no server.
//!
//! ```text
//!   Bound ──> Protect (our finalizer)
//!   Released ──> detached? ─> listed? ─> confirm ─> secret ─> Delete (driver) ─> Remove (the object) ─> Release (our finalizer)
//! ```
//!
//! The waits come first, then a read of the object if the cache may be old, and the secret last, so that it is the one
//! that the object names at that time. From that read to the call the volume is locked.
//!
//! The driver deletes only a volume that no attachment names any more, and once per term.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::Instant;

use crate::cluster::{PersistentVolume, SecretRef};
use crate::roles::kit::drive::Next;
use crate::roles::provisioner::parameters::secrets::{DeletionSecret, SecretError};
use crate::roles::provisioner::volume::{is_delete, is_ours, is_released};
use crate::translation::{NotServed, csi_form};

use super::error::DeleteReason;
use super::progress::{Progress, Waiting};

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
#[expect(clippy::struct_excessive_bools, reason = "each is a setting by itself")]
pub struct Rules {
    /// Our driver.
    pub driver: String,
    /// The finalizer on the volumes that this daemon deletes.
    pub finalizer: &'static str,
    /// Whether the driver attaches volumes: an attached volume must not be deleted.
    pub attaches: bool,
    /// The capability without which the driver deletes no volumes, if it lacks it.
    pub lacks: Option<&'static str>,
    /// Whether volumes get the finalizer, so that one whose object is deleted before its claim is deleted, too. Otherwise those that
    /// have it lose it, and a volume whose object is being deleted already is kept (spec 3.2).
    pub honors_policy: bool,
    /// Whether a volume is deleted without its secret, if there is none any more.
    pub without_secret: bool,
    /// Whether there are Events.
    pub has_events: bool,
}

/// What a decision is made from, besides what the attempt has done.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct View {
    /// The term's rules.
    pub rules: Arc<Rules>,
    /// The volume.
    pub volume: Arc<PersistentVolume>,
    /// The driver's id of the volume: its own, or that of its CSI form.
    pub handle: Result<String, DeleteReason>,
    /// How many attachments name the volume, through any object with its handle.
    pub attachments: usize,
    /// Another object with the same handle that is not to be deleted itself: [`keeps`](crate::roles::provisioner::volume::keeps).
    pub kept_by: Option<Keeper>,
    /// Whether this node's driver can reach the volume, with one daemon per node.
    pub is_here: bool,
    /// Whether volumes and attachments were listed since the term began: a new leader's watches may be behind.
    pub is_listed: bool,
    /// Whether the cache may lack a volume that is older than this version of the object, which may have come in an answer.
    pub is_ahead: bool,
    /// Whether no later leader can find an entry of the journal for the volume (J8).
    pub is_forgotten: bool,
    /// Where the secret for the deletion is.
    pub secret: Result<DeletionSecret, SecretError>,
    /// The driver has deleted the volume in this term.
    pub is_deleted: bool,
    /// It has waited for its detach.
    pub has_waited: bool,
    /// How long it has been in its phase, if the object says when that began.
    pub phase_age: Option<SignedDuration>,
    /// Now.
    pub now: Instant,
}

/// Another object with the same handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keeper {
    /// Its name.
    pub name: String,
    /// How it spells the handle, if not the same way.
    pub spelled: Option<String>,
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

/// The next step for a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Add our finalizer.
    Protect,
    /// Note that it waits for its detach. The end of the last attachment wakes the key.
    Wait(Waiting),
    /// List volumes and attachments once.
    List,
    /// Wait until the cache has all that is older than the object.
    CatchUp,
    /// Read the object while the volume is locked. If the watch is behind, the volume may be kept, bound or replaced by
    /// a new object of the same name, or name another secret.
    Confirm,
    /// Read the secret, directly before the call: a problem with the secret delays no volume that has to wait anyway, or
    /// that belongs to another node.
    ReadSecret(SecretRef),
    /// Call `DeleteVolume` with the volume's handle.
    Delete(String),
    /// Wait until the journal has no entry for the volume: without the object, the entry would be all that remains of
    /// the volume.
    Forget,
    /// Delete the object.
    Remove,
    /// Remove our finalizer.
    Release,
    /// End the attempt with an error.
    Refuse(DeleteReason),
}

/// The next step for the volume of `view`.
pub fn next_step(view: &View, progress: &Progress) -> Next<Step> {
    let (volume, rules) = (view.volume.as_ref(), view.rules.as_ref());
    if !is_ours(volume, &rules.driver) || progress.is_gone {
        return Next::Done;
    }
    let is_protected = is_protected(volume, rules);
    let is_let_go = is_protected && !keeps_finalizer(volume, rules);
    if !view.is_here {
        // A kept volume loses our finalizer without a call to the driver, because its node may be gone for good
        // (spec 3.2).
        return if is_let_go { Next::Do(Step::Release) } else { Next::Done };
    }
    let is_deleting = volume.metadata.deletion_timestamp.is_some();
    if progress.is_deleted {
        return match (is_deleting, is_protected) {
            (false, _) => forgotten_then(view, Step::Remove),
            (true, true) => forgotten_then(view, Step::Release),
            (true, false) => Next::Done,
        };
    }
    if is_let_go {
        return forgotten_then(view, Step::Release);
    }
    if !is_delete(volume) {
        return Next::Done;
    }
    if !is_released(volume) {
        let is_unprotected = !is_deleting && !is_protected && volume.phase.as_deref() == Some("Bound");
        return if is_unprotected && rules.honors_policy { Next::Do(Step::Protect) } else { Next::Done };
    }
    if is_deleting && !is_protected {
        // The object is gone for us: another finalizer holds it, and the volume was deleted before ours was removed.
        return Next::Done;
    }
    let handle = match &view.handle {
        Ok(handle) => handle,
        Err(reason) => return Next::Do(Step::Refuse(reason.clone())),
    };
    if rules.attaches && view.attachments > 0 {
        if progress.waits == Some(view.attachments) {
            return Next::Done;
        }
        let waiting = Waiting { volume: volume.metadata.name.to_string(), attachments: view.attachments };
        return Next::Do(Step::Wait(waiting));
    }
    Next::Do(delete(view, progress, handle))
}

/// The next step to delete a volume that is to be deleted, and is attached nowhere.
fn delete(view: &View, progress: &Progress, handle: &str) -> Step {
    if !view.is_listed {
        return Step::List;
    }
    if view.is_ahead {
        return Step::CatchUp;
    }
    if let Some(Keeper { name, spelled }) = &view.kept_by {
        let (handle, other, spelled) = (handle.to_owned(), name.clone(), spelled.clone());
        return Step::Refuse(DeleteReason::Shared { handle, other, spelled });
    }
    if !progress.is_fresh {
        return Step::Confirm;
    }
    match &view.secret {
        Err(error) => return Step::Refuse(error.clone().into()),
        Ok(DeletionSecret::Unknown(why)) if !view.rules.without_secret => {
            return Step::Refuse(DeleteReason::SecretUnknown(why));
        }
        Ok(DeletionSecret::At(place)) if progress.secret.as_ref().is_none_or(|(read, _)| read != place) => {
            return Step::ReadSecret(place.clone());
        }
        Ok(_) => {}
    }
    match view.rules.lacks {
        Some(capability) => Step::Refuse(DeleteReason::Capability { driver: view.rules.driver.clone(), capability }),
        None => Step::Delete(handle.to_owned()),
    }
}

/// The step, once the journal has no entry for the volume (J8).
fn forgotten_then(view: &View, step: Step) -> Next<Step> {
    Next::Do(if view.is_forgotten { step } else { Step::Forget })
}

/// The driver's id of the volume. The id of an in-tree volume may lack parts that the driver fills in
/// (migration spec 10).
pub fn handle_of(volume: &PersistentVolume, driver: &str) -> Result<String, DeleteReason> {
    let form = csi_form(volume, driver).map_err(|why| match why {
        NotServed::NotCsi => DeleteReason::NotCsi,
        NotServed::OtherDriver(kind) => DeleteReason::InTree(kind),
        NotServed::Untranslatable(cause) => DeleteReason::Untranslatable(cause),
    })?;
    form.csi.as_ref().map(|csi| csi.volume_handle.clone()).ok_or(DeleteReason::NotCsi)
}

/// Whether the volume has our finalizer.
pub fn is_protected(volume: &PersistentVolume, rules: &Rules) -> bool {
    volume.metadata.has_finalizer(rules.finalizer)
}

/// Whether the volume's finalizer stays on it.
pub fn keeps_finalizer(volume: &PersistentVolume, rules: &Rules) -> bool {
    rules.honors_policy && is_delete(volume)
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

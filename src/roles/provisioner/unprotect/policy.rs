//! The next step for one data source. Pure.
//!
//! ```text
//!   found ─> protected and unused ─> claims listed ─> of our driver ─> locked ─> Release
//! ```
//!
//! A claim that begins to use the source holds the same lock while it protects it. So no claim begins to use a source between the
//! last look and the release.

use crate::cluster::ObjectName;
use crate::csi::VolumeLock;
use crate::roles::kit::drive::Next;

use super::object::SourceObject;
use crate::roles::provisioner::sources::protection::{SourceKey, SourceKind};

/// A data source that may have lost its last user, as the caches show it.
#[derive(Debug)]
pub struct View {
    /// Its kind and name.
    pub key: SourceKey,
    /// The same as a text.
    pub id: String,
    /// The source. `None`: the watch may be behind, or not allowed.
    pub cached: Option<SourceObject>,
    /// Whether a claim needs it.
    pub is_used: bool,
    /// Whether claims were listed since the term began: one that the watch has not shown yet may need the source.
    pub is_listed: bool,
    /// The volume that it is bound to, if the cache has that, and whether it is our driver's.
    pub bound: Option<Bound>,
}

/// The volume or the content that a source is bound to, and whether our driver serves it.
pub type Bound = (ObjectName, bool);

/// What one attempt has found out, beside the caches.
#[derive(Debug, Default)]
pub struct Progress {
    /// The source, as the API has it.
    pub read: Read,
    /// What the source is bound to, as the API has it.
    pub bound: Option<Bound>,
    /// The source's lock.
    pub lock: Option<VolumeLock>,
    /// Our finalizer is removed.
    pub is_released: bool,
}

/// What the API has said of the source.
#[derive(Debug, Default)]
pub enum Read {
    /// It was not asked.
    #[default]
    NotYet,
    /// It does not have the source, or does not show it to this daemon. The watch may not have seen that yet.
    Absent,
    /// It has this one.
    Found(SourceObject),
}

/// One request or wait.
#[derive(Debug)]
pub enum Step {
    /// Read the source.
    Find,
    /// List claims once.
    List,
    /// Read the volume or the content that the source is bound to: it names the driver.
    FindDriver(SourceKind, ObjectName),
    /// Lock the source.
    Lock,
    /// Remove our finalizer.
    Release(SourceObject),
}

/// What a step has brought.
#[derive(Debug)]
pub enum Answer {
    /// Nothing to remember: the next view shows it.
    Nothing,
    /// What the API has said of the source.
    Read(Read),
    /// What the source is bound to.
    Bound(Bound),
    /// The source is locked.
    Locked(VolumeLock),
    /// Our finalizer is removed.
    Released,
}

impl Progress {
    /// Applies a step's answer.
    pub fn apply(&mut self, answer: Answer) {
        match answer {
            Answer::Nothing => {}
            Answer::Read(read) => self.read = read,
            Answer::Bound(bound) => self.bound = Some(bound),
            Answer::Locked(lock) => self.lock = Some(lock),
            Answer::Released => self.is_released = true,
        }
    }
}

/// What to do next for the source of `view`.
pub fn next_step(view: &View, progress: &Progress) -> Next<Step> {
    if progress.is_released || view.is_used {
        return Next::Done;
    }
    let source = match (&progress.read, &view.cached) {
        (Read::Absent, _) => return Next::Done,
        (_, Some(source)) | (Read::Found(source), None) => source,
        (Read::NotYet, None) => return Next::Do(Step::Find),
    };
    let is_protected = source.meta().has_finalizer(source.kind().finalizer());
    let is_ours = is_ours(source, view, progress);
    if !is_protected || is_ours == Some(false) {
        return Next::Done;
    }
    Next::Do(match (is_ours, source.bound()) {
        _ if !view.is_listed => Step::List,
        (None, Some(bound)) => Step::FindDriver(source.kind(), bound),
        _ if progress.lock.is_none() => Step::Lock,
        _ => Step::Release(source.clone()),
    })
}

/// Whether we may remove the finalizer: the provisioners of other drivers use the same one. `None`: what the source is bound to must be
/// read first.
///
/// A source that has lost its volume or content names no driver any more, and no driver can create a volume from it. The finalizer then
/// keeps nothing but the object, and no other provisioner would ever remove it.
fn is_ours(source: &SourceObject, view: &View, progress: &Progress) -> Option<bool> {
    let Some(bound) = source.bound() else { return Some(true) };
    // The watch may be behind, and contents are not watched.
    let mut known = view.bound.iter().chain(&progress.bound);
    known.find(|(name, _)| *name == bound).map(|(_, is_ours)| *is_ours)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::cluster::names;
    use crate::csi::VolumeLocks;
    use crate::process::Clock;
    use crate::roles::provisioner::fixtures::claim;

    fn source(finalizers: &[&str], volume: Option<&str>) -> SourceObject {
        let claim = claim(json!({ "metadata": { "finalizers": finalizers }, "spec": { "volumeName": volume } }));
        SourceObject::Claim(Arc::new(claim))
    }

    fn bound(name: &str, is_ours: bool) -> Bound {
        (ObjectName::cluster(name), is_ours)
    }

    /// All is known, and the source is locked.
    fn releasable() -> (View, Progress) {
        let key = SourceKey { kind: SourceKind::Claim, name: ObjectName::namespaced("shop", "data") };
        let view = View {
            id: key.to_string(),
            key,
            cached: Some(source(&[names::FINALIZER_CLONING], Some("pv-1"))),
            is_used: false,
            is_listed: true,
            bound: Some(bound("pv-1", true)),
        };
        let lock = VolumeLocks::new(Clock::system()).try_acquire("source");
        (view, Progress { lock, ..Progress::default() })
    }

    fn name(next: &Next<Step>) -> &'static str {
        match next {
            Next::Do(Step::Find) => "find",
            Next::Do(Step::List) => "list",
            Next::Do(Step::FindDriver(..)) => "find the driver",
            Next::Do(Step::Lock) => "lock",
            Next::Do(Step::Release(_)) => "release",
            Next::Done => "done",
            Next::Together(_) => "several",
        }
    }

    #[test]
    fn a_finalizer_is_removed_once_all_is_known_and_the_source_is_locked() {
        type Change = fn(&mut View, &mut Progress);
        let cases: [(Change, &str); 17] = [
            (|_, _| {}, "release"),
            (|_, progress| progress.lock = None, "lock"),
            (|view, _| view.bound = None, "find the driver"),
            (|view, _| view.bound = Some(bound("pv-2", true)), "find the driver"),
            (|view, progress| (view.bound, progress.bound) = (None, Some(bound("pv-1", true))), "release"),
            (|view, progress| (view.bound, progress.bound) = (None, Some(bound("pv-1", false))), "done"),
            (|view, _| view.bound = Some(bound("pv-1", false)), "done"),
            (|view, _| (view.bound, view.is_listed) = (None, false), "list"),
            (|view, _| (view.bound, view.is_listed) = (Some(bound("pv-1", false)), false), "done"),
            (|view, _| view.cached = Some(source(&[names::FINALIZER_CLONING], None)), "release"),
            (|view, _| (view.cached, view.is_listed) = (None, false), "find"),
            (|view, progress| (view.cached, progress.read) = (None, Read::Absent), "done"),
            (|_, progress| progress.read = Read::Absent, "done"),
            (|view, _| view.cached = Some(source(&["example.com/other"], Some("pv-1"))), "done"),
            (|view, _| view.is_used = true, "done"),
            (|view, _| (view.is_used, view.cached) = (true, None), "done"),
            (|_, progress| progress.is_released = true, "done"),
        ];
        for (number, (change, expected)) in cases.into_iter().enumerate() {
            let (mut view, mut progress) = releasable();
            change(&mut view, &mut progress);
            assert_eq!(name(&next_step(&view, &progress)), expected, "{number}: {view:?}");
        }
    }

    #[test]
    fn what_the_cache_has_is_newer_than_what_was_read() {
        let (mut view, mut progress) = releasable();
        progress.read = Read::Found(source(&[], None));
        assert_eq!(name(&next_step(&view, &progress)), "release");
        view.cached = None;
        assert_eq!(name(&next_step(&view, &progress)), "done");
    }
}

//! The next step for one data source. Pure.
//!
//! ```text
//!   found ─> protected and unused ─> claims listed ─> of our driver ─> locked ─> Release
//! ```
//!
//! A claim that begins to use the source holds the same lock while it protects it. So no claim begins to use a source between the
//! last look and the release.

use crate::roles::kit::Next;

/// What is known about the source itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The cache lacks it, and the API was not asked: the watch may be behind, or not allowed.
    Unseen,
    /// The API does not have it, or does not show it to this daemon.
    Absent,
    /// It does not have our finalizer.
    Unprotected,
    /// It has our finalizer.
    Protected,
}

/// The input of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct View {
    /// What is known about the source.
    pub presence: Presence,
    /// Whether a claim needs it.
    pub is_used: bool,
    /// Whether claims were listed since the term began: one that the watch has not shown yet may need the source.
    pub relisted: bool,
    /// Whether we may remove its finalizer. `None`: the object that the source is bound to must be read first.
    pub is_ours: Option<bool>,
    /// Whether this attempt has locked it.
    pub locked: bool,
    /// Whether this attempt has removed the finalizer.
    pub released: bool,
}

/// The next step for a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Read the source.
    Find,
    /// List claims once.
    Relist,
    /// Read the volume or the content that the source is bound to: it names the driver.
    FindDriver,
    /// Lock the source.
    Lock,
    /// Remove our finalizer.
    Release,
}

/// How an attempt ends well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// There is nothing to remove, or a claim needs the source.
    Left,
    /// Our finalizer is removed.
    Released,
}

/// The next step for the source of `view`.
pub fn next_step(view: &View) -> Next<Step, End> {
    if view.released {
        return Next::Done(End::Released);
    }
    let is_settled = matches!(view.presence, Presence::Absent | Presence::Unprotected);
    if is_settled || view.is_used || view.is_ours == Some(false) {
        return Next::Done(End::Left);
    }
    Next::Do(match view {
        View { presence: Presence::Unseen, .. } => Step::Find,
        View { relisted: false, .. } => Step::Relist,
        View { is_ours: None, .. } => Step::FindDriver,
        View { locked: false, .. } => Step::Lock,
        _ => Step::Release,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn releasable() -> View {
        View {
            presence: Presence::Protected,
            is_used: false,
            relisted: true,
            is_ours: Some(true),
            locked: true,
            released: false,
        }
    }

    #[test]
    fn a_finalizer_is_removed_once_all_is_known_and_the_source_is_locked() {
        type Change = fn(&mut View);
        let cases: [(Change, Next<Step, End>); 12] = [
            (|_| {}, Next::Do(Step::Release)),
            (|view| view.locked = false, Next::Do(Step::Lock)),
            (|view| (view.locked, view.is_ours) = (false, None), Next::Do(Step::FindDriver)),
            (|view| (view.relisted, view.is_ours) = (false, None), Next::Do(Step::Relist)),
            (|view| (view.presence, view.relisted) = (Presence::Unseen, false), Next::Do(Step::Find)),
            (|view| view.presence = Presence::Absent, Next::Done(End::Left)),
            (|view| view.presence = Presence::Unprotected, Next::Done(End::Left)),
            (|view| view.is_ours = Some(false), Next::Done(End::Left)),
            (|view| view.is_used = true, Next::Done(End::Left)),
            (|view| (view.is_used, view.relisted) = (true, false), Next::Done(End::Left)),
            (|view| (view.is_used, view.presence) = (true, Presence::Unseen), Next::Done(End::Left)),
            (|view| (view.released, view.presence) = (true, Presence::Unprotected), Next::Done(End::Released)),
        ];
        for (number, (change, expected)) in cases.into_iter().enumerate() {
            let mut view = releasable();
            change(&mut view);
            assert_eq!(next_step(&view), expected, "{number}: {view:?}");
        }
    }
}

//! Which step of an attempt comes next: what [`decide`] wants for the claim, and what that needs first. Pure.

use crate::roles::kit::drive::Next;
use crate::roles::provisioner::sources::source::ContentSource;

use super::answer::Ended;
use super::decide::{self, Ignored, Step};
use super::observe::{Owner, Seen};
use super::progress::Progress;

/// The next step of an attempt.
pub fn next_step(seen: &Seen, progress: &Progress) -> Next<Step> {
    if let Some(end) = progress.end {
        // Our driver has given its final answer for another node's claim: check again which node has the claim.
        let comes_back = end == Ended::Ignored(Ignored::Elsewhere) && progress.is_changed;
        return if comes_back { Next::Do(Step::ComeBack) } else { Next::Done };
    }
    Next::Do(if progress.failed.is_some() {
        Step::NoteFailure
    } else if progress.failure.is_some() {
        if progress.is_doubt_unrecorded && seen.rules.durable { Step::RecordDoubt } else { Step::Fail }
    } else {
        first(decide::next_step(&seen.view(progress)), seen, progress)
    })
}

/// What comes before a step.
fn first(step: Step, seen: &Seen, progress: &Progress) -> Step {
    match step {
        Step::Create if progress.turn.is_none() => snapshot(progress).map_or(Step::Create, Step::TakeTurn),
        Step::DeleteCreated(volume_id) if !progress.has_listed => Step::ListVolumes(volume_id),
        Step::DeleteCreated(volume_id) => match &seen.owner {
            Owner::Nobody => Step::DeleteCreated(volume_id),
            Owner::Other(other) => Step::LeaveTo(other.clone()),
            Owner::Unread(name) => Step::ReadBound(name.clone(), volume_id),
        },
        // A volume that a claim waits for is most likely new: the cache is enough, so that no list delays the claim.
        Step::CheckHandle if seen.is_unwanted() && !seen.listed => Step::Relist,
        Step::CheckHandle => match (&seen.owner, progress.volume_id()) {
            (Owner::Unread(name), Some(volume_id)) => Step::ReadBound(name.clone(), volume_id.to_owned()),
            (Owner::Other(other), _) if seen.is_unwanted() || seen.volume_name.as_ref() == Some(other) => {
                Step::LeaveTo(other.clone())
            }
            (Owner::Other(other), _) => Step::Yield(other.clone()),
            _ => Step::CheckHandle,
        },
        Step::SaveVolume if progress.taken.is_some() => Step::ReadTaken,
        // Admission may have refused because the claim has changed.
        Step::Reschedule if progress.refused.as_ref().is_some_and(|(version, _)| *version == seen.version()) => {
            Step::ReadAgain
        }
        step => step,
    }
}

/// The snapshot that is restored.
fn snapshot(progress: &Progress) -> Option<String> {
    match &progress.known.request()?.content_source {
        Some(ContentSource::Snapshot(id)) => Some(id.clone()),
        _ => None,
    }
}

/// The volume that is locked while a step is done. Many drivers use the name as the id, so before a deletion both are locked, from the
/// list on.
pub fn lock<'a>(seen: &'a Seen, step: &'a Step) -> Option<(&'a str, &'a str)> {
    let name = seen.volume_name.as_deref()?;
    match step {
        Step::Begin | Step::TakeTurn(_) | Step::Create => Some((name, name)),
        Step::ListVolumes(id) | Step::ReadBound(_, id) | Step::DeleteCreated(id) => Some((name, id)),
        _ => None,
    }
}

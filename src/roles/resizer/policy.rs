//! Decides what to do next for one change of a claim. Pure, total, and tested without a server.
//!
//! ```text
//! size:   expand::policy ──┬─> a step
//! class:  modify::policy ──┘   a write meets the other change's, where the driver needs both calls at once: pairing
//! ```
//!
//! The mark, the call and what is recorded of it are done under one lock of the volume.

use crate::roles::kit::drive::Next;

use super::error::Wait;
use super::job::Job;
use super::progress::Progress;
use super::step::Step;
use super::view::View;
use super::{expand, modify, pairing};

/// What to do next for the change of `view`.
pub fn next_step(view: &View, progress: &Progress) -> Next<Step> {
    let step = match (view.job, &progress.fault) {
        (_, Some(fault)) => Err(fault.clone()),
        _ if progress.gone => Ok(Step::Settled),
        (Job::Expand, None) => expand::policy::step(view, progress),
        (Job::Modify, None) => modify::policy::step(view, progress),
    };
    match step.unwrap_or_else(Step::Refuse) {
        // The watch wakes the key.
        Step::Settled | Step::Wait(Wait::Volume | Wait::Driver) => Next::Done,
        Step::Write(write) => Next::Do(pairing::meet(view, progress, write)),
        step => Next::Do(step),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::roles::resizer::fixtures::{claim, progress, view, volume};

    #[test]
    fn nothing_is_done_for_a_claim_that_is_gone() {
        for job in Job::ALL {
            let size = json!({ "requests": { "storage": "2Gi" } });
            let wanted = json!({ "spec": { "volumeAttributesClassName": "gold", "resources": size } });
            let view = view(job, claim(wanted), Some(volume(json!({}))));
            assert_ne!(next_step(&view, &progress(job)), Next::Done, "{job:?}: there is work");
            assert_eq!(next_step(&view, &Progress { gone: true, ..progress(job) }), Next::Done, "{job:?}");
        }
    }
}

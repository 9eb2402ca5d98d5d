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
        (Job::Expand, None) => expand::policy::next_step(view, progress),
        (Job::Modify, None) => modify::policy::next_step(view, progress),
        (_, Some(fault)) => Step::Refuse(fault.clone()),
    };
    match step {
        // The watch wakes the key.
        Step::Settled | Step::Wait(Wait::Volume | Wait::Driver) => Next::Done,
        Step::Write(write) => Next::Do(pairing::meet(view, progress, write)),
        step => Next::Do(step),
    }
}

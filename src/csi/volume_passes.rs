//! One `ListVolumes` pass at a time, for all roles of this process that want one, whichever Leases they are under
//! (node-and-health spec C3, I2).
//!
//! ```text
//! join ──> next(at) ──┬── at has come, no pass runs ──> Turn: this role makes the pass under its own term ──> end ──┐
//!           ^         └── another role's pass has ended ──> Pass <──────────────────────────────────────────────────┘
//!           └── the role works with the pass, and says when it wants the next one
//! ```
//!
//! - A role joins when its term begins, and leaves when it is dropped. The role that wants a pass first makes it, so passes come at the
//!   shortest interval that is asked. A role that does not wait, because it is at work, wants nothing.
//! - Each role that had joined when a pass began gets its result, also a failure. A pass that was running before says nothing to a new
//!   leader: the driver may have answered before the last leader did.
//! - A [`Turn`] that is dropped without a result, because its term is over, ends the pass. The next role whose time has come begins anew.
//! - A result is kept until each role has taken it, and no longer: ten thousand volumes are a few megabytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::listed_volume::ListedVolume;
use super::listing::{Listing, PassError};
use crate::process::watch;

/// The passes of this process. Clones share them; they outlive a driver's restart.
#[derive(Debug, Clone, Default)]
pub struct VolumePasses(Arc<watch::Sender<State>>);

/// A pass over `ListVolumes` that has ended.
#[derive(Debug)]
pub struct Pass {
    /// When the first page was requested.
    pub started: Instant,
    /// When the last page was received, or the pass failed.
    pub finished: Instant,
    /// What was listed.
    pub result: Result<Listing<ListedVolume>, PassError>,
}

/// How a pass asks for its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// How many volumes one page may hold. 0: the driver decides.
    pub size: i32,
    /// Deadline of one page.
    pub timeout: Duration,
    /// Whether the settings of another role count instead, if it has joined and does not yield itself.
    pub yields: bool,
}

/// What a role that waits for a pass gets.
#[derive(Debug)]
pub enum NextPass {
    /// A pass that another role has made.
    Made(Arc<Pass>),
    /// It is this role's turn to make one.
    Make(Turn),
}

/// A role that gets all passes from now on. Leaves when it is dropped.
#[derive(Debug)]
pub struct PassConsumer {
    passes: VolumePasses,
    id: u64,
}

/// The right to make the pass. No other role makes one until this is ended, or dropped without a result.
#[derive(Debug)]
pub struct Turn {
    passes: VolumePasses,
    id: u64,
    pages: Pages,
    is_ended: bool,
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    is_running: bool,
    consumers: BTreeMap<u64, Consumer>,
}

#[derive(Debug)]
struct Consumer {
    pages: Pages,
    /// It had joined when the running pass began.
    gets_running: bool,
    /// The newest pass that it has not taken.
    result: Option<Arc<Pass>>,
}

/// What to do for a role that waits.
#[derive(Debug)]
enum Decision {
    Take(Arc<Pass>),
    Begin(Pages),
    Wait,
}

impl State {
    fn join(&mut self, pages: Pages) -> u64 {
        self.last_id += 1;
        self.consumers.insert(self.last_id, Consumer { pages, gets_running: false, result: None });
        self.last_id
    }

    /// What to do for this role. `is_due`: the time has come when it wants a pass.
    fn decide(&mut self, id: u64, is_due: bool) -> Decision {
        if let Some(pass) = self.consumers.get_mut(&id).and_then(|own| own.result.take()) {
            return Decision::Take(pass);
        }
        if self.is_running || !is_due {
            return Decision::Wait;
        }
        self.is_running = true;
        self.consumers.values_mut().for_each(|consumer| consumer.gets_running = true);
        let mut all = self.consumers.values().map(|consumer| consumer.pages);
        let first = all.clone().next();
        // The role that asks has joined, so there is one.
        all.find(|pages| !pages.yields).or(first).map_or(Decision::Wait, Decision::Begin)
    }

    /// The running pass has ended, with or without a result. Its maker has it already.
    fn end(&mut self, maker: u64, result: Option<&Arc<Pass>>) {
        self.is_running = false;
        for (id, consumer) in &mut self.consumers {
            if std::mem::take(&mut consumer.gets_running) && *id != maker {
                consumer.result = result.cloned().or_else(|| consumer.result.take());
            }
        }
    }
}

impl VolumePasses {
    /// Declares that a role wants passes from now on.
    pub fn join(&self, pages: Pages) -> PassConsumer {
        let mut id = 0;
        self.0.send_modify(|state| id = state.join(pages));
        PassConsumer { passes: self.clone(), id }
    }
}

impl PassConsumer {
    /// Waits for the next pass, until `at` for one of another role. Can be dropped at any time.
    pub async fn next(&mut self, at: Instant) -> NextPass {
        let mut changes = self.passes.0.subscribe();
        let mut is_due = false;
        loop {
            match self.decide(is_due) {
                Decision::Take(pass) => return NextPass::Made(pass),
                Decision::Begin(pages) => {
                    return NextPass::Make(Turn { passes: self.passes.clone(), id: self.id, pages, is_ended: false });
                }
                Decision::Wait => {}
            }
            tokio::select! {
                biased;
                // Never closed: `self` has a sender.
                _ = changes.changed() => {}
                () = sleep_until(at), if !is_due => is_due = true,
            }
        }
    }

    fn decide(&self, is_due: bool) -> Decision {
        let mut decision = Decision::Wait;
        self.passes.0.send_if_modified(|state| {
            decision = state.decide(self.id, is_due);
            false
        });
        decision
    }
}

impl Drop for PassConsumer {
    fn drop(&mut self) {
        self.passes.0.send_modify(|state| drop(state.consumers.remove(&self.id)));
    }
}

impl Turn {
    /// How to ask for the pages.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Gives all roles the result.
    pub fn end(mut self, pass: Pass) -> Arc<Pass> {
        let pass = Arc::new(pass);
        self.is_ended = true;
        self.passes.0.send_modify(|state| state.end(self.id, Some(&pass)));
        pass
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_ended {
            self.passes.0.send_modify(|state| state.end(self.id, None));
        }
    }
}

#[cfg(test)]
#[path = "volume_passes_tests.rs"]
mod tests;

//! How the registration stands, for the status page, the probes and the metrics.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::NAME;
use super::decide::{Dialogue, State};
use crate::diagnostics::{Age, Fact, Registered};
use crate::roles::LocalContext;

/// The state of the registration. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown(Arc<Mutex<Standing>>);

/// What is shown.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    /// The state, in words; empty: not known yet.
    pub(super) state: String,
    pub(super) is_ready: bool,
    /// The socket that is announced.
    pub(super) path: Option<PathBuf>,
    /// Where the kubelet finds the driver.
    pub(super) endpoint: Option<String>,
    /// Whether the file is ours, and so answers a self-check.
    pub(super) is_ours: bool,
    pub(super) asked: Option<Instant>,
    pub(super) verdict: Option<Instant>,
    pub(super) refusals: u64,
    pub(super) announcements: u64,
    /// Why the socket did not answer its last self-check.
    pub(super) deaf: Option<String>,
    /// Whether the node's `CSINode` has the driver, or why that is not known; `None`: nobody looks.
    pub(super) csi_node: Option<String>,
    /// The health port, or why there is none; `None`: the configuration has none.
    pub(super) health: Option<String>,
}

impl Shown {
    /// What is shown now.
    pub(super) fn standing(&self) -> Standing {
        self.0.lock().clone()
    }

    /// Shows something else.
    pub(super) fn change(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.0.lock());
    }

    /// Shows a state. Says whether it is another one.
    pub(super) fn state(&self, state: &State, text: String, dialogue: &Dialogue) -> bool {
        let mut shown = self.0.lock();
        shown.is_ready = state.is_ready(dialogue.was_registered);
        shown.asked = dialogue.asked.or(shown.asked);
        shown.verdict = dialogue.verdict.as_ref().map(|(at, _)| *at);
        let is_news = shown.state != text;
        shown.state = text;
        is_news
    }

    /// The socket that is announced.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.standing().path
    }

    /// Puts it on the board: facts, `/readyz` and `/livez`.
    pub(super) fn register(&self, cx: &LocalContext) -> [Registered; 3] {
        let clock = cx.clock;
        let facts = self.clone();
        let facts = cx.board.facts(NAME, move || {
            let standing = facts.standing();
            let age = |at: Instant| format!("{} ago", Age(clock.now().saturating_duration_since(at)));
            let mut facts = vec![Fact::new("registration", standing.state)];
            facts.extend(standing.path.map(|path| Fact::new("socket", path.display().to_string())));
            facts.extend(standing.endpoint.map(|endpoint| Fact::new("driver on the host", endpoint)));
            facts.extend(standing.asked.map(|at| Fact::new("kubelet asked", age(at))));
            facts.extend(standing.verdict.map(|at| Fact::new("kubelet's last word", age(at))));
            facts.extend(standing.csi_node.map(|csi_node| Fact::new("CSINode", csi_node)));
            facts.extend(standing.health.map(|health| Fact::new("health port", health)));
            facts.push(Fact::new("announcements", standing.announcements.to_string()));
            facts.push(Fact::new("refusals", standing.refusals.to_string()));
            facts
        });
        let ready = self.clone();
        let ready = cx.board.readiness(NAME, move || {
            let standing = ready.standing();
            if standing.is_ready { Ok(()) } else { Err(standing.state) }
        });
        let alive = self.clone();
        let alive = cx.board.alive(NAME, move || alive.standing().deaf.map_or(Ok(()), Err));
        [facts, ready, alive]
    }
}

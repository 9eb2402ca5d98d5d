//! An attacher of the play's own: it attaches and detaches what it finds, now and then after an error.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::facts::site_of;
use super::objects::{ATTACHMENTS, Cluster, OTHER, is_attached, is_exclusive};
use crate::world::{DRIVER, finalizers, is_deleting, text};

/// The longest pause between two steps.
const PACE: Duration = Duration::from_millis(400);
const FINALIZER: &str = "example.com/attacher";

/// The attacher of some drivers.
#[derive(Debug)]
pub(super) struct Attacher {
    drivers: &'static [&'static str],
    /// Whether it refuses to attach to a second node what is attached to one: some drivers do, and where nothing else keeps
    /// it from that all must.
    refuses: bool,
    /// Whether anything fails.
    pub(super) fails: bool,
    /// When it does something next.
    pub(super) next: Instant,
}

impl Attacher {
    /// The attacher of all drivers, or of those that the daemons do not attach for.
    pub(super) fn new(of_all: bool, refuses: bool) -> Self {
        let drivers = if of_all { &[DRIVER, OTHER][..] } else { &[OTHER] };
        Self { drivers, refuses, fails: true, next: Instant::now() }
    }

    /// Does one thing for one attachment.
    pub(super) fn tick(&mut self, cluster: &Cluster, rng: &mut StdRng) {
        self.next += Duration::from_millis(5) + PACE.mul_f64(rng.random_range(0.0..1.0));
        let is_open = |it: &&Arc<Value>| {
            self.drivers.contains(&text(it, "/spec/attacher")) && (is_deleting(it) || !is_attached(it))
        };
        let all = cluster.all(ATTACHMENTS);
        let open: Vec<_> = all.iter().filter(is_open).collect();
        if open.is_empty() {
            return;
        }
        let held = open[rng.random_range(0..open.len())];
        let name = text(held, "/metadata/name");
        let error = json!({ "time": cluster.0.timestamp(), "message": "scripted" });
        let site = site_of(held);
        let is_elsewhere = |it: &Arc<Value>| {
            let other = site_of(it).filter(|_| is_attached(it));
            site.as_ref()
                .zip(other)
                .is_some_and(|(site, other)| site.1 == other.1 && site.0 != other.0 && is_exclusive(&site.1))
        };
        let is_refused = self.refuses && !is_deleting(held) && all.iter().any(is_elsewhere);
        let does_fail = (self.fails && rng.random_bool(0.2)) || is_refused;
        match (is_deleting(held), does_fail) {
            (true, true) => drop(cluster.status(ATTACHMENTS, name, &json!({ "detachError": error }))),
            (true, false) => drop(cluster.patch(ATTACHMENTS, name, json!({ "metadata": { "finalizers": null } }))),
            (false, _) if !finalizers(held).contains(&FINALIZER) => {
                cluster.patch(ATTACHMENTS, name, json!({ "metadata": { "finalizers": [FINALIZER] } }));
            }
            (false, true) => {
                cluster.status(ATTACHMENTS, name, &json!({ "attached": false, "attachError": error }));
            }
            (false, false) => {
                cluster.status(ATTACHMENTS, name, &json!({ "attached": true, "attachError": null }));
            }
        }
    }
}

//! Tells pods on a node why it is not known which volume they want: a claim that is not bound, or a volume that does not exist (attach-detach
//! spec 3, row 7, and I12). Most claims are bound a moment after their pod is scheduled, so only what lasts is told, and once.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::context::Context;

/// What lasts for this long is told: as long as an attacher may be silent.
const LASTING: Duration = Duration::from_secs(120);

/// Since when each pod waits for what, by its uid and the reason; `None`: it was told.
#[derive(Debug, Default)]
pub(super) struct Unresolved(BTreeMap<(Box<str>, String), Option<Instant>>);

impl Unresolved {
    /// Tells what has lasted.
    pub(super) fn tell(&mut self, cx: &Context) {
        let now = cx.scope.clock.now();
        let mut held = BTreeMap::new();
        for wishes in cx.memory.pods.collect(|wishes| wishes.open().next().map(|_| wishes.clone())) {
            let Some(pod) = &wishes.pod else { continue };
            let node = pod.node.as_deref().and_then(|node| cx.stores.nodes.named(node));
            if !node.is_some_and(|node| cx.manages(&node)) {
                continue;
            }
            // What never passes was told at once.
            for why in wishes.open().filter(|why| why.is_passing()) {
                let key = (pod.metadata.uid.clone(), why.to_string());
                let since = self.0.get(&key).copied().unwrap_or(Some(now));
                let is_due = since.is_some_and(|since| now.saturating_duration_since(since) >= LASTING);
                if is_due {
                    cx.warn(pod, &format!("AttachVolume.Attach waits: {why}"));
                }
                held.insert(key, since.filter(|_| !is_due));
            }
        }
        self.0 = held;
    }
}

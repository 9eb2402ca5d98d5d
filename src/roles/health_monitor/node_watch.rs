//! Reports on claims that a node has failed whose pods use them, with `nodeWatch` (spec C4). What has failed is decided by
//! [`node_failures`](super::node_failures).
//!
//! Nodes and pods are watched only then. Of a pod its node and its claims are kept, those of generic ephemeral volumes among them, and of a
//! pod without claims not even the node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::info;

use crate::cluster::{
    BY_NODE, Cache, Change, EventKind, EventTarget, Fields, NodeState, ObjectName, PersistentVolume,
    PersistentVolumeClaim, Pod, ToldEvent,
};
use crate::process::watch;
use crate::roles::kit::{Controllers, look_at_each, with};
use crate::roles::wiring::Wiring;

use super::context::Context;
use super::names;
use super::node_failures::{NodeFailures, Reported, Seen};
use super::older_events::{self, OlderEvents, PAUSE};

/// What is watched only with `nodeWatch`.
#[derive(Debug, Clone)]
pub struct NodeCaches {
    nodes: Cache<NodeState>,
    pods: Cache<Pod>,
}

/// The nodes of a term.
#[derive(Debug)]
pub struct NodeWatch {
    cx: Arc<Context>,
    caches: NodeCaches,
    down_after: Duration,
    failures: watch::Sender<NodeFailures>,
}

impl NodeCaches {
    /// Declares the caches.
    pub fn wire(wiring: &mut Wiring<'_>) -> Self {
        Self { nodes: wiring.cache_for_feature(), pods: wiring.cache_for_feature_with(Fields::HEALTH) }
    }

    /// Why it is not known which nodes have failed, as text for people. `None`: it is.
    pub fn unknown(&self) -> Option<String> {
        self.nodes.unknown().or_else(|| self.pods.unknown())
    }
}

/// What stands before the node's name in the Event that it has failed.
const FAILED: &str = " are now on a failed node: ";

/// A node's failure that was reported on a claim in an earlier term.
#[derive(Debug, PartialEq)]
struct Earlier {
    node: String,
    uid: String,
    claim: ObjectName,
}

/// The failures that Events have reported, and whose end they have not.
fn earlier(OlderEvents { wrong, ended }: OlderEvents) -> Vec<Earlier> {
    let open = |event: ToldEvent| {
        let node = event.message.rsplit_once(FAILED)?.1;
        let text = recovery(node);
        let is_end = |it: &ToldEvent| it.about.uid == event.about.uid && it.message == text && it.last >= event.last;
        let claim = ObjectName::namespaced(&event.about.namespace, &event.about.name);
        (!ended.iter().any(is_end)).then(|| Earlier { node: node.to_owned(), uid: event.about.uid.clone(), claim })
    };
    wrong.into_iter().filter_map(open).collect()
}

fn recovery(node: &str) -> String {
    format!("Node: {node} recovered")
}

impl NodeWatch {
    /// Begins to watch.
    pub fn begin(cx: &Arc<Context>, caches: &NodeCaches, controllers: &mut Controllers) -> Arc<Self> {
        let (caches, down_after) = (caches.clone(), cx.section.node_down_after);
        let failures = watch::Sender::new(NodeFailures::default());
        let watch = Arc::new(Self { cx: Arc::clone(cx), caches, down_after, failures });
        controllers.on(&watch.caches.nodes, with(&watch, Self::node_changed));
        controllers.on(&watch.caches.pods, with(&watch, Self::pod_changed));
        // A pod may be seen before its claim is bound.
        controllers.on_store(&cx.claims, with(&watch, Self::claim_changed));
        controllers.on_store(&cx.volumes, with(&watch, Self::volume_changed));
        controllers.task("nodes", Arc::clone(&watch).run());
        watch
    }

    fn node_changed(&self, change: &Change<NodeState>) {
        match (&change.new, &change.old) {
            (Some(node), _) => self.observe(&node.metadata.name, seen(node)),
            (None, Some(node)) => self.observe(&node.metadata.name, Seen::Deleted),
            (None, None) => {}
        }
    }

    fn claim_changed(&self, change: &Change<PersistentVolumeClaim>) {
        let phase = |claim: &Option<Arc<PersistentVolumeClaim>>| claim.as_ref()?.status.phase.clone();
        self.bound(phase(&change.old) != phase(&change.new));
    }

    fn volume_changed(&self, change: &Change<PersistentVolume>) {
        let phase = |volume: &Option<Arc<PersistentVolume>>| volume.as_ref()?.phase.clone();
        self.bound(phase(&change.old) != phase(&change.new));
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        change.new.iter().for_each(|pod| self.pod_seen(pod));
    }

    /// A pod may come to a node that has failed, or name one that is gone.
    fn pod_seen(&self, pod: &Pod) {
        let Some(node) = pod.node.as_deref().filter(|_| !pod.has_ended) else { return };
        if self.caches.nodes.is_known() && self.caches.nodes.named(node).is_none() {
            self.observe(node, Seen::NotReady);
        }
        self.failures.send_if_modified(|failures| failures.has(node));
    }

    /// A claim or a volume is in another phase, or not.
    fn bound(&self, is_news: bool) {
        if is_news {
            self.failures.send_if_modified(|failures| !failures.is_empty());
        }
    }

    fn observe(&self, node: &str, seen: Seen) {
        let now = self.cx.scope.clock.now();
        self.failures.send_if_modified(|failures| failures.observe(node, seen, now, self.down_after));
    }

    async fn run(self: Arc<Self>) {
        self.caches.nodes.settled().await;
        self.caches.pods.settled().await;
        // Those that came before the nodes were known.
        look_at_each(self.caches.pods.each(), |pod| self.pod_seen(&pod)).await;
        let mut again = self.read_events().await;
        let mut changes = self.failures.subscribe();
        loop {
            let next = self.report();
            tokio::select! {
                biased;
                // Never closed: `self` has the sender.
                _ = changes.changed() => {}
                () = until(next) => {}
                () = until(again) => again = self.read_events().await,
            }
        }
    }

    /// Goes on with what was reported in earlier terms. Returns when to read it again, if it could not be read.
    async fn read_events(&self) -> Option<Instant> {
        let reasons = [names::NODE_FAILED, names::NODE_RECOVERED];
        let read = older_events::read(&self.cx, "failed nodes", reasons).await;
        let now = self.cx.scope.clock.now();
        let Ok(Some(events)) = read else { return Some(now + PAUSE) };
        self.failures.send_modify(|failures| {
            for Earlier { node, uid, claim } in earlier(events) {
                failures.was_reported(&node, uid, claim, now);
            }
        });
        // Those that are ready again already.
        look_at_each(self.caches.nodes.each(), |node| self.observe(&node.metadata.name, seen(&node))).await;
        None
    }

    /// Reports what is not reported yet. Returns when the next node fails.
    fn report(&self) -> Option<Instant> {
        if !self.caches.nodes.is_known() || !self.caches.pods.is_known() {
            return None;
        }
        let now = self.cx.scope.clock.now();
        // The caches are read before: their subscribers change the failures.
        let (failing, all) = {
            let failures = self.failures.borrow();
            (failures.failed(now), failures.all())
        };
        let users: Vec<_> = failing.into_iter().map(|node| (self.used_on(&node), node)).collect();
        let is_gone = |uid: &String, claim: &ObjectName| self.claim(uid, claim).is_none();
        let (mut recovered, mut failed, mut next) = (Vec::new(), Vec::new(), None);
        self.failures.send_if_modified(|failures| {
            recovered = failures.recovered();
            for (users, node) in users {
                for (claim, pods) in users {
                    if failures.report(&node, &claim.metadata.uid, &ObjectName::of(claim.as_ref())) {
                        failed.push((node.clone(), claim, pods));
                    }
                }
            }
            next = failures.next(now);
            false
        });
        for (node, claims) in all {
            let gone: Vec<_> = claims.iter().filter(|(uid, claim)| is_gone(uid, claim)).collect();
            let is_there = self.is_there(&node);
            self.failures.send_if_modified(|failures| {
                for (uid, _) in &gone {
                    failures.forget_claim(&node, uid);
                }
                if !is_there {
                    failures.forget_node(&node, now);
                }
                false
            });
        }
        for (node, claims) in recovered {
            self.tell_recovery(&node, &claims);
        }
        for (node, claim, pods) in failed {
            self.tell_failure(&node, &claim, &pods);
        }
        next
    }

    fn tell_failure(&self, node: &str, claim: &PersistentVolumeClaim, pods: &[Arc<str>]) {
        let (name, namespace) = (&*claim.metadata.name, claim.metadata.namespace.as_deref().unwrap_or_default());
        info!(node, namespace, claim = name, "the volume of the claim is used on a node that has failed");
        let text =
            format!("Pods: [ {} ] consuming PVC: {name} in namespace: {namespace}{FAILED}{node}", pods.join(" "));
        self.cx.scope.event(&EventTarget::of(claim), EventKind::Warning, names::NODE_FAILED, &text);
    }

    fn tell_recovery(&self, node: &str, claims: &Reported) {
        info!(node, claims = claims.len(), "the node is ready again");
        for claim in claims.iter().filter_map(|(uid, claim)| self.claim(uid, claim)) {
            let on = EventTarget::of(claim.as_ref());
            self.cx.scope.event(&on, EventKind::Normal, names::NODE_RECOVERED, &recovery(node));
        }
    }

    /// The claims of our driver's volumes that pods on a node use, and the names of these pods.
    fn used_on(&self, node: &str) -> Vec<(Arc<PersistentVolumeClaim>, Vec<Arc<str>>)> {
        let mut users: BTreeMap<ObjectName, Vec<Arc<str>>> = BTreeMap::new();
        for pod in self.caches.pods.find(BY_NODE, node) {
            for claim in &pod.claims {
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                let claim = ObjectName::namespaced(namespace, claim);
                users.entry(claim).or_default().push(pod.metadata.name.clone());
            }
        }
        let monitored = |name: &ObjectName| {
            let claim = self.cx.claims.get(name)?;
            let volume = self.cx.volumes.named(claim.spec.volume_name.as_deref()?)?;
            Some(self.cx.monitored(&volume)?.1)
        };
        users.into_iter().filter_map(|(name, pods)| Some((monitored(&name)?, pods))).collect()
    }

    fn claim(&self, uid: &str, name: &ObjectName) -> Option<Arc<PersistentVolumeClaim>> {
        self.cx.claims.get(name).filter(|claim| *claim.metadata.uid == *uid)
    }

    fn is_there(&self, node: &str) -> bool {
        self.caches.nodes.named(node).is_some()
    }

    /// How many nodes have failed by now.
    pub fn failed(&self) -> usize {
        self.failures.borrow().count(self.cx.scope.clock.now())
    }

    /// Why it is not known which nodes have failed, as text for people.
    pub fn unknown(&self) -> Option<String> {
        self.caches.unknown()
    }
}

/// Waits until then, or for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn seen(node: &NodeState) -> Seen {
    let is_ready = node.ready.as_ref().is_some_and(|ready| ready.status == "True");
    if is_ready { Seen::Ready } else { Seen::NotReady }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h25_what_events_have_reported_of_nodes_is_read_by_claim_and_node() {
        let event = |message: &str, last: &str| ToldEvent {
            message: message.to_owned(),
            last: Some(serde_json::from_value(last.into()).unwrap()),
            about: serde_json::from_value(serde_json::json!({ "namespace": "shop", "name": "data", "uid": "u" }))
                .unwrap(),
            ..ToldEvent::default()
        };
        let failed = |node: &str| format!("Pods: [ a ] consuming PVC: data in namespace: shop{FAILED}{node}");
        let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z");
        for (failure, recovery, expected) in [
            (event(&failed("n"), early), None, Some("n")),
            (event(&failed("n"), early), Some(event("Node: n recovered", late)), None),
            // It has failed again since, or another one is back.
            (event(&failed("n"), late), Some(event("Node: n recovered", early)), Some("n")),
            (event(&failed("n"), early), Some(event("Node: m recovered", late)), Some("n")),
            (event("the node has failed", early), None, None),
        ] {
            let events = OlderEvents { wrong: vec![failure], ended: recovery.into_iter().collect() };
            let shown = format!("{events:?}");
            assert_eq!(earlier(events).first().map(|it| it.node.as_str()), expected, "{shown}");
        }
    }
}

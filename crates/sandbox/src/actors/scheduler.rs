//! The scheduler: selects a node for each pod, and before that for its claims that wait for their first consumer.
//!
//! A pod says where it wants to go by its `nodeSelector`, as it would to the real one. Of the nodes that fit, the first
//! by name is taken; if a claim came back from it without a volume, it takes the next node after a back-off from one to
//! ten seconds, like the real scheduler: without the back-off, a claim that no node can provision would be retried in a
//! busy loop. If the driver publishes its capacity, a node without capacity for the pod's claims does not fit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::node_labels::{holds, label};
use super::{
    CAPACITIES, CLAIMS, CLASSES, Cluster, DRIVERS, NODES, PODS, VOLUMES, annotation, claims_of, class_of, has_ended,
    is_deleting, list, place, room, text, uid,
};

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// `podInitialBackoffSeconds` and `podMaxBackoffSeconds` of kube-scheduler, at their defaults.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Remembers what was last tried for a pod, by its uid.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    tried: BTreeMap<String, Tried>,
}

/// The node that a pod's claims were sent to last.
#[derive(Debug)]
struct Tried {
    node: String,
    /// The pod's back-off if the claims come back from there.
    wait: Duration,
    /// When the pod may be looked at again.
    again: Instant,
}

impl Scheduler {
    /// When the next of the pods that rest may be looked at again.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.tried.values().map(|tried| tried.again).filter(|again| *again > now).min()
    }

    /// Looks at each pod that has no node once.
    pub(super) fn pass(&mut self, cluster: &Cluster) {
        let pods = cluster.all(PODS);
        self.tried.retain(|it, _| pods.iter().any(|pod| uid(pod) == it));
        for pod in pods {
            if text(&pod, "/spec/nodeName").is_empty() && !is_deleting(&pod) && !has_ended(&pod) {
                // The missing object will cause the next look.
                let _ = self.place(cluster, &pod);
            }
        }
    }

    /// Takes the next step towards a node; `None` if there is nothing to do now.
    fn place(&mut self, cluster: &Cluster, pod: &Value) -> Option<()> {
        let namespace = place(pod).0;
        let mut claims = Vec::new();
        for name in claims_of(pod) {
            claims.push(cluster.one(CLAIMS, namespace, name).filter(|claim| !is_deleting(claim))?);
        }
        let is_bound = |claim: &Arc<Value>| text(claim, "/status/phase") == "Bound";
        let (bound, unbound): (Vec<_>, Vec<_>) = claims.into_iter().partition(is_bound);
        let mut volumes = Vec::new();
        for claim in &bound {
            volumes.push(cluster.one(VOLUMES, "", text(claim, "/spec/volumeName"))?);
        }
        let mut classes = Vec::new();
        for claim in &unbound {
            let class = cluster.one(CLASSES, "", class_of(claim))?;
            // Its class does not wait for a pod: it is bound without us.
            if text(&class, "/volumeBindingMode") != "WaitForFirstConsumer" {
                return None;
            }
            classes.push(class);
        }
        let selected: Vec<Option<&str>> = unbound.iter().map(|claim| annotation(claim, SELECTED_NODE)).collect();
        let rests = self.tried.get(uid(pod)).is_some_and(|tried| tried.again > Instant::now());
        if !unbound.is_empty() && (rests || selected.iter().all(Option::is_some)) {
            return None;
        }
        let nodes = cluster.all(NODES);
        let capacities = if unbound.is_empty() { Vec::new() } else { cluster.all(CAPACITIES) };
        let is_told = |class: &Value| {
            let driver = cluster.one(DRIVERS, "", text(class, "/provisioner"));
            driver.is_some_and(|driver| driver.pointer("/spec/storageCapacity") == Some(&Value::Bool(true)))
        };
        let has_room = |claim: &Value, class: &Value, node: &Value| {
            !is_told(class) || room::is_told(&capacities, place(class).1, claim, node)
        };
        let fits = |node: &&Arc<Value>| {
            is_wanted(pod, node)
                && volumes.iter().all(|volume| is_reached(volume, node))
                && classes.iter().all(|class| is_allowed(class, node))
                && unbound.iter().zip(&classes).all(|(claim, class)| has_room(claim, class, node))
        };
        let names: Vec<&str> = nodes.iter().filter(fits).map(|node| place(node).1).collect();
        // Claims of one pod go to one node.
        let together = selected.iter().flatten().copied().find(|node| names.contains(node));
        let chosen = match together {
            Some(node) => node,
            None if unbound.is_empty() => {
                self.last(pod).filter(|it| names.contains(it)).or_else(|| names.first().copied())?
            }
            None => {
                let last = self.last(pod).unwrap_or_default();
                names.iter().find(|name| **name > last).or_else(|| names.first()).copied()?
            }
        }
        .to_owned();
        if unbound.is_empty() {
            cluster.change(PODS, pod, json!({"spec": {"nodeName": chosen}}));
            return Some(());
        }
        let (first, most) = BACK_OFF;
        let wait = self.tried.get(uid(pod)).map_or(first, |tried| most.min(2 * tried.wait));
        self.tried.insert(uid(pod).to_owned(), Tried { node: chosen.clone(), wait, again: Instant::now() + wait });
        for (claim, selected) in unbound.iter().zip(selected) {
            if selected.is_none() {
                cluster.change(CLAIMS, claim, json!({"metadata": {"annotations": {SELECTED_NODE: chosen}}}));
            }
        }
        Some(())
    }

    fn last(&self, pod: &Value) -> Option<&str> {
        self.tried.get(uid(pod)).map(|tried| tried.node.as_str())
    }
}

/// Whether a pod may go to a node.
fn is_wanted(pod: &Value, node: &Value) -> bool {
    let selector = pod.pointer("/spec/nodeSelector").and_then(Value::as_object).into_iter().flatten();
    let is_barred = node.pointer("/spec/unschedulable") == Some(&Value::Bool(true))
        || list(node, "/spec/taints").iter().any(|taint| text(taint, "/effect") != "PreferNoSchedule");
    !is_barred && !is_deleting(node) && selector.into_iter().all(|(key, value)| label(node, key) == value.as_str())
}

/// Whether a volume's affinity has the node in it.
fn is_reached(volume: &Value, node: &Value) -> bool {
    let terms = list(volume, "/spec/nodeAffinity/required/nodeSelectorTerms");
    // A term without expressions matches nothing.
    let matches = |term: &Value| {
        let expressions = list(term, "/matchExpressions");
        !expressions.is_empty() && expressions.iter().all(|it| holds(it, node))
    };
    volume.pointer("/spec/nodeAffinity/required").is_none() || terms.iter().any(matches)
}

/// Whether a class allows volumes for the node.
fn is_allowed(class: &Value, node: &Value) -> bool {
    let terms = list(class, "/allowedTopologies");
    let holds = |expression: &Value| {
        label(node, text(expression, "/key"))
            .is_some_and(|it| list(expression, "/values").iter().any(|value| *value == it))
    };
    terms.is_empty() || terms.iter().any(|term| list(term, "/matchLabelExpressions").iter().all(holds))
}

//! Which nodes have capacity for a claim, by the `CSIStorageCapacity` objects, as kube-scheduler decides it. Pure.

use std::sync::Arc;

use serde_json::Value;

use super::node_labels::{holds, label};
use super::{list, text};
use base::quantity;

/// Whether some object says that the claim fits where the node is.
///
/// An object with a maximum volume size counts by that, whatever its free capacity. An object without a topology
/// matches no node.
pub(super) fn is_told(objects: &[Arc<Value>], class: &str, claim: &Value, node: &Value) -> bool {
    let wanted = bytes(text(claim, "/spec/resources/requests/storage")).unwrap_or(0);
    objects.iter().filter(|it| text(it, "/storageClassName") == class && is_here(it, node)).any(|it| {
        let told = |key: &str| bytes(text(it, key));
        told("/maximumVolumeSize").or_else(|| told("/capacity")).is_some_and(|most| most >= wanted)
    })
}

fn is_here(object: &Value, node: &Value) -> bool {
    let Some(topology) = object.get("nodeTopology").filter(|it| it.is_object()) else { return false };
    let labels = topology.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut expressions = list(topology, "/matchExpressions").iter();
    labels.into_iter().all(|(key, value)| label(node, key) == value.as_str()) && expressions.all(|it| holds(it, node))
}

fn bytes(text: &str) -> Option<i64> {
    quantity::bytes(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fits(object: Value, zone: &str, size: &str) -> bool {
        let claim = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let node = json!({"metadata": {"labels": {"zone": zone}}});
        is_told(&[Arc::new(object)], "gold", &claim, &node)
    }

    #[test]
    fn room_counts_for_its_class_and_place() {
        let here = |class: &str| json!({"storageClassName": class, "capacity": "2Gi", "nodeTopology": {"matchLabels": {"zone": "a"}}});
        assert!(fits(here("gold"), "a", "2Gi"));
        assert!(!fits(here("gold"), "a", "2049Mi"));
        assert!(!fits(here("gold"), "b", "1Gi"));
        assert!(!fits(here("silver"), "a", "1Gi"));
    }

    #[test]
    fn the_largest_volume_is_what_counts_where_it_is_told() {
        let told = |capacity: &str, largest: &str| json!({"storageClassName": "gold", "capacity": capacity, "maximumVolumeSize": largest, "nodeTopology": {}});
        assert!(fits(told("0", "2Gi"), "a", "2Gi"));
        assert!(!fits(told("9Gi", "1Gi"), "a", "2Gi"));
    }

    #[test]
    fn an_object_without_topology_or_sizes_tells_of_no_room() {
        assert!(!fits(json!({"storageClassName": "gold", "capacity": "9Gi"}), "a", "1Gi"));
        assert!(!fits(json!({"storageClassName": "gold", "nodeTopology": {}}), "a", "1Gi"));
    }
}

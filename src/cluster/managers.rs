//! What `kube-controller-manager` manages of an object, told by its managed fields. Of those nothing else is held. Pure.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// Who runs the attach/detach controller of Kubernetes, as the API server knows it.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// The fields that tell whether the attach/detach controller of `kube-controller-manager` is active (attach-detach spec 1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Managers(u8);

impl Managers {
    /// It manages `spec`. Of a kind whose `spec` never changes, it has made the object.
    pub const SPEC: Self = Self(1);
    /// It manages `status.volumesAttached` of a node.
    pub const VOLUMES_ATTACHED: Self = Self(2);

    /// Whether all of `other` is among these.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is among these and among `other`.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// What one manager manages.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireEntry<'a> {
    #[serde(borrow)]
    manager: Option<Text<'a>>,
    fields_v1: Option<WireFields>,
}

/// A text that stays where it was read, if nothing in it is escaped.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct WireFields {
    #[serde(rename = "f:spec")]
    spec: Option<IgnoredAny>,
    #[serde(rename = "f:status")]
    status: Option<WireStatus>,
}

#[derive(Deserialize)]
struct WireStatus {
    #[serde(rename = "f:volumesAttached")]
    volumes_attached: Option<IgnoredAny>,
}

impl<'de> Deserialize<'de> for Managers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let entries = Option::<Vec<WireEntry<'de>>>::deserialize(from)?.unwrap_or_default();
        let is_theirs = |entry: &WireEntry<'_>| entry.manager.as_ref().is_some_and(|name| name.0 == CONTROLLER_MANAGER);
        let theirs = entries.into_iter().filter(is_theirs);
        let bits = theirs.filter_map(|entry| entry.fields_v1).fold(0, |bits, fields| {
            let spec = if fields.spec.is_some() { Self::SPEC.0 } else { 0 };
            let attached = fields.status.and_then(|status| status.volumes_attached);
            bits | spec | if attached.is_some() { Self::VOLUMES_ATTACHED.0 } else { 0 }
        });
        Ok(Self(bits))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(fields: &Value) -> Managers {
        // Through text, as from a server: texts are borrowed from it.
        let managers: Managers = serde_json::from_str(&fields.to_string()).unwrap();
        assert_eq!(serde_json::from_value::<Managers>(fields.clone()).unwrap(), managers);
        managers
    }

    fn entry(manager: &str, fields: &Value) -> Value {
        json!({ "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields })
    }

    #[test]
    fn only_the_fields_of_kube_controller_manager_count() {
        let spec = json!({ "f:spec": { "f:attacher": {}, "f:nodeName": {} } });
        let attached = json!({ "f:status": { "f:volumesAttached": {} } });
        assert_eq!(read(&json!([entry(CONTROLLER_MANAGER, &spec)])), Managers::SPEC);
        let both = read(&json!([
            entry("kubelet", &json!({})),
            entry(CONTROLLER_MANAGER, &spec),
            entry(CONTROLLER_MANAGER, &attached)
        ]));
        assert!(both.contains(Managers::SPEC) && both.contains(Managers::VOLUMES_ATTACHED));
        assert_eq!(both.intersection(Managers::SPEC), Managers::SPEC);
        for other in [
            json!(null),
            json!([]),
            json!([{}]),
            json!([{ "manager": CONTROLLER_MANAGER, "fieldsV1": null }]),
            json!([entry("csi-control-plane", &spec), entry("kubectl", &attached)]),
            json!([entry(CONTROLLER_MANAGER, &json!({ "f:status": { "f:conditions": {} }, "f:metadata": {} }))]),
        ] {
            assert_eq!(read(&other), Managers::default(), "{other}");
        }
    }
}

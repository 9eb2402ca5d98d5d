//! Pods: the claims that they use, and the nodes that they run on. Nothing else of them is kept. Pure.

use serde::Deserialize;
use smol_str::{SmolStr, format_smolstr};

use super::{BY_NODE, BY_POD_CLAIM, Cached, Fields, IndexName, or_default, unless_empty};
use crate::cluster::meta::Meta;

/// The phases of pods.
const PHASES: &[&str] = &["Pending", "Running", "Succeeded", "Failed", "Unknown", ""];

/// A pod and the claims that it uses.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "WirePod")]
pub struct Pod {
    /// Name, namespace, uid and version.
    pub metadata: Meta,
    /// The names of the claims in its namespace, those of generic ephemeral volumes among them.
    pub claims: Box<[SmolStr]>,
    /// The name of its node, once it has one; from a cache only with [`Fields::HEALTH`], and of a pod that uses claims.
    pub node: Option<SmolStr>,
    /// Whether it has come to its end: `Succeeded` or `Failed`.
    pub has_ended: bool,
    /// Its phase, if the API has one that is not known here.
    pub unknown_phase: Option<SmolStr>,
}

/// A pod as it is sent.
#[derive(Deserialize)]
struct WirePod {
    metadata: Meta,
    #[serde(default, deserialize_with = "or_default")]
    spec: WireSpec,
    #[serde(default, deserialize_with = "or_default")]
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    #[serde(default, deserialize_with = "unless_empty")]
    node_name: Option<SmolStr>,
    #[serde(default, deserialize_with = "or_default")]
    volumes: Vec<WireVolume>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireVolume {
    #[serde(default, deserialize_with = "or_default")]
    name: SmolStr,
    persistent_volume_claim: Option<WireClaim>,
    ephemeral: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireClaim {
    #[serde(default, deserialize_with = "or_default")]
    claim_name: SmolStr,
}

#[derive(Default, Deserialize)]
struct WireStatus {
    phase: Option<SmolStr>,
}

impl From<WirePod> for Pod {
    fn from(wire: WirePod) -> Self {
        let pod = wire.metadata.name.clone();
        let claim = |volume: WireVolume| match (volume.persistent_volume_claim, volume.ephemeral) {
            (Some(claim), _) => Some(claim.claim_name),
            // Kubernetes makes the claim of such a volume under this name.
            (None, Some(_)) => Some(format_smolstr!("{pod}-{}", volume.name)),
            (None, None) => None,
        };
        Self {
            claims: wire.spec.volumes.into_iter().filter_map(claim).collect(),
            node: wire.spec.node_name,
            has_ended: matches!(wire.status.phase.as_deref(), Some("Succeeded" | "Failed")),
            unknown_phase: wire.status.phase.filter(|phase| !PHASES.contains(&phase.as_str())),
            metadata: wire.metadata,
        }
    }
}

impl Cached for Pod {
    const KIND: &'static str = "Pod";

    fn trim(&mut self, _driver: &str, fields: Fields) {
        self.node = self.node.take().filter(|_| fields.contains(Fields::HEALTH) && !self.claims.is_empty());
        let Meta { name, namespace, uid, resource_version, .. } = std::mem::take(&mut self.metadata);
        self.metadata = Meta { name, namespace, uid, resource_version, ..Meta::default() };
    }

    fn index(&self, add: &mut dyn FnMut(IndexName, &str)) {
        if self.has_ended {
            return;
        }
        for claim in &self.claims {
            add(BY_POD_CLAIM, claim);
        }
        if let Some(node) = &self.node {
            add(BY_NODE, node);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_uses_the_claims_that_it_names_and_those_of_its_ephemeral_volumes() {
        let pod = |phase: &str| -> Pod {
            let mut pod: Pod = serde_json::from_value(json!({
                "metadata": { "name": "web", "namespace": "shop", "uid": "u", "labels": { "a": "b" }, "annotations": { "c": "d" } },
                "spec": { "containers": [], "volumes": [
                    { "name": "data", "persistentVolumeClaim": { "claimName": "web-data" } },
                    { "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } },
                    { "name": "tmp", "emptyDir": {} },
                ] },
                "status": { "phase": phase },
            }))
            .unwrap();
            pod.trim("demo", Fields::NONE);
            pod
        };
        let running = pod("Running");
        assert_eq!(*running.claims, ["web-data", "web-scratch"]);
        assert_eq!((&running.metadata.labels, &running.metadata.annotations), (&None, &None));
        let found = |pod: &Pod| {
            let mut found = Vec::new();
            pod.index(&mut |_, claim| found.push(claim.to_owned()));
            found
        };
        assert_eq!(found(&running), ["web-data", "web-scratch"]);
        assert_eq!(found(&pod("Pending")).len(), 2);
        for ended in ["Succeeded", "Failed"] {
            assert_eq!(found(&pod(ended)), Vec::<String>::new(), "{ended}");
        }
        for open in ["Unknown", "succeeded", "New", ""] {
            assert_eq!(found(&pod(open)).len(), 2, "{open:?}: it may still run");
            let unknown = Some(open).filter(|phase| ["succeeded", "New"].contains(phase));
            assert_eq!(pod(open).unknown_phase.as_deref(), unknown, "{open:?}");
        }
        assert_eq!(running.node, None, "no role has asked for it");
        let bare: Pod = serde_json::from_value(json!({ "metadata": { "name": "bare" }, "spec": null })).unwrap();
        assert_eq!((bare.claims.len(), bare.has_ended), (0, false));
    }

    #[test]
    fn a_pod_that_uses_claims_is_found_by_its_node_once_it_has_one() {
        let claims = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
        for (node, volumes, phase, expected) in [
            (json!("n1"), &claims, "Running", Some("n1")),
            (json!(""), &claims, "Pending", None),
            (json!(null), &claims, "Pending", None),
            (json!("n1"), &claims, "Succeeded", None),
            (json!("n1"), &json!([]), "Running", None),
        ] {
            let mut pod: Pod = serde_json::from_value(json!({
                "metadata": { "name": "web" }, "spec": { "nodeName": node, "volumes": volumes }, "status": { "phase": phase },
            }))
            .unwrap();
            pod.trim("demo", Fields::HEALTH);
            let mut found = None;
            pod.index(&mut |index, value| {
                if index == BY_NODE {
                    found = Some(value.to_owned());
                }
            });
            assert_eq!(found.as_deref(), expected, "{pod:?}");
        }
    }
}

//! Pods: the claims that they use, and the nodes that they run on; and what an attach/detach controller reads, if one is hosted. Pure.

use serde::Deserialize;
use serde::de::IgnoredAny;
use smol_str::{SmolStr, format_smolstr};

use super::in_tree::{AwsDisk, AzureDisk, AzureFile, GceDisk, InTreeSource, VolumeById, VsphereVolume};
use super::{BY_NODE, BY_POD_CLAIM, Cached, Fields, IndexName, received, unless_empty};
use crate::cluster::meta::Meta;

/// The phases of pods.
const PHASES: &[&str] = &["Pending", "Running", "Succeeded", "Failed", "Unknown", ""];

/// A pod and the claims that it uses.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(from = "WirePod")]
pub struct Pod {
    /// Name, namespace, uid and version; with [`Fields::ATTACH`] also when it was made, and when its deletion was requested.
    pub metadata: Meta,
    /// The names of the claims in its namespace, those of generic ephemeral volumes among them.
    pub claims: Box<[SmolStr]>,
    /// The name of its node, once it has one; from a cache only with [`Fields::HEALTH`] or [`Fields::ATTACH`], and of a pod that
    /// uses volumes.
    pub node: Option<SmolStr>,
    /// Whether it has come to its end: `Succeeded` or `Failed`.
    pub has_ended: bool,
    /// Its phase, if the API has one that is not known here.
    pub unknown_phase: Option<SmolStr>,
    /// What an attach/detach controller reads besides; with [`Fields::ATTACH`] alone, and `None` if it is the default.
    pub attach: Option<Box<PodAttach>>,
}

/// What an attach/detach controller reads of a pod besides its claims (attach-detach spec 2, 3).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodAttach {
    /// Whether a container of a pod that is being deleted counts as running: its status says so, or has no state at all.
    pub has_running: bool,
    /// The claims of generic ephemeral volumes, which the pod must control.
    pub ephemeral: Box<[SmolStr]>,
    /// In-tree volumes without a claim that CSI drivers have taken over, by their names in the pod.
    pub in_tree: Box<[(SmolStr, InTreeSource)]>,
}

received! {
    /// A pod as it is sent.
    struct WirePod {
        metadata: Meta,
        spec: WireSpec = default,
        status: WireStatus = default,
    }

    #[derive(Default)]
    struct WireSpec {
        #[serde(default, deserialize_with = "unless_empty")]
        node_name: Option<SmolStr>,
        volumes: Vec<WireVolume> = default,
    }

    struct WireVolume {
        name: SmolStr = default,
        persistent_volume_claim: Option<WireClaim>,
        ephemeral: Option<IgnoredAny>,
        gce_persistent_disk: Option<GceDisk>,
        aws_elastic_block_store: Option<AwsDisk>,
        azure_disk: Option<AzureDisk>,
        azure_file: Option<AzureFile>,
        cinder: Option<VolumeById>,
        vsphere_volume: Option<VsphereVolume>,
        portworx_volume: Option<VolumeById>,
    }
}

impl WireVolume {
    fn in_tree(self) -> Option<InTreeSource> {
        self.gce_persistent_disk
            .map(InTreeSource::GcePersistentDisk)
            .or_else(|| self.aws_elastic_block_store.map(InTreeSource::AwsElasticBlockStore))
            .or_else(|| self.azure_disk.map(InTreeSource::AzureDisk))
            .or_else(|| self.azure_file.map(InTreeSource::AzureFile))
            .or_else(|| self.cinder.map(InTreeSource::Cinder))
            .or_else(|| self.vsphere_volume.map(InTreeSource::VsphereVolume))
            .or_else(|| self.portworx_volume.map(InTreeSource::PortworxVolume))
    }
}

received! {
    struct WireClaim {
        claim_name: SmolStr = default,
    }

    #[derive(Default)]
    struct WireStatus {
        phase: Option<SmolStr>,
        init_container_statuses: Vec<WireContainer> = default,
        container_statuses: Vec<WireContainer> = default,
        ephemeral_container_statuses: Vec<WireContainer> = default,
    }

    struct WireContainer {
        state: WireState = default,
    }

    #[derive(Default)]
    struct WireState {
        waiting: Option<IgnoredAny>,
        running: Option<IgnoredAny>,
        terminated: Option<IgnoredAny>,
    }
}

impl WireStatus {
    fn has_running(&self) -> bool {
        let kinds = [&self.init_container_statuses, &self.container_statuses, &self.ephemeral_container_statuses];
        kinds.into_iter().flatten().any(|WireContainer { state }| {
            state.running.is_some() || (state.waiting.is_none() && state.terminated.is_none())
        })
    }
}

impl From<WirePod> for Pod {
    fn from(wire: WirePod) -> Self {
        let pod = wire.metadata.name.clone();
        let has_running = wire.status.has_running();
        let (mut claims, mut ephemeral, mut in_tree) = (Vec::new(), Vec::new(), Vec::new());
        for mut volume in wire.spec.volumes {
            if let Some(claim) = volume.persistent_volume_claim.take() {
                claims.push(claim.claim_name);
            } else if volume.ephemeral.is_some() {
                // Kubernetes makes the claim of such a volume under this name.
                let claim = format_smolstr!("{pod}-{}", volume.name);
                ephemeral.push(claim.clone());
                claims.push(claim);
            } else {
                let name = volume.name.clone();
                in_tree.extend(volume.in_tree().map(|source| (name, source)));
            }
        }
        let attach = PodAttach { has_running, ephemeral: ephemeral.into(), in_tree: in_tree.into() };
        Self {
            claims: claims.into(),
            node: wire.spec.node_name,
            has_ended: matches!(wire.status.phase.as_deref(), Some("Succeeded" | "Failed")),
            unknown_phase: wire.status.phase.filter(|phase| !PHASES.contains(&phase.as_str())),
            attach: (attach != PodAttach::default()).then(|| Box::new(attach)),
            metadata: wire.metadata,
        }
    }
}

impl Pod {
    /// Its in-tree volumes without a claim, by their names in the pod; from a cache only with [`Fields::ATTACH`].
    pub fn in_tree(&self) -> &[(SmolStr, InTreeSource)] {
        self.attach.as_ref().map_or(&[], |attach| &attach.in_tree)
    }

    /// Whether the claim is that of a generic ephemeral volume; from a cache only with [`Fields::ATTACH`].
    pub fn is_ephemeral(&self, claim: &str) -> bool {
        self.attach.as_ref().is_some_and(|attach| attach.ephemeral.iter().any(|held| held == claim))
    }

    /// Whether some container counts as running; from a cache only with [`Fields::ATTACH`], and of a pod that is being deleted.
    pub fn has_running(&self) -> bool {
        self.attach.as_ref().is_some_and(|attach| attach.has_running)
    }
}

impl Cached for Pod {
    const KIND: &'static str = "Pod";

    fn trim(&mut self, _driver: &str, fields: Fields) {
        let is_attached = fields.contains(Fields::ATTACH);
        let uses_volumes = !self.claims.is_empty() || (is_attached && !self.in_tree().is_empty());
        let is_placed = fields.contains(Fields::HEALTH) || is_attached;
        self.node = self.node.take().filter(|_| is_placed && uses_volumes);
        // Whether a container runs matters to a pod that is being deleted, and nothing else of one without volumes.
        let is_read = is_attached && uses_volumes;
        let attach = self.attach.take().filter(|_| is_read).map(|held| {
            let has_running = held.has_running && self.metadata.deletion_timestamp.is_some();
            Box::new(PodAttach { has_running, ..*held })
        });
        self.attach = attach.filter(|held| **held != PodAttach::default());
        let Meta { name, namespace, uid, resource_version, creation_timestamp, deletion_timestamp, .. } =
            std::mem::take(&mut self.metadata);
        self.metadata = Meta { name, namespace, uid, resource_version, ..Meta::default() };
        if is_read {
            (self.metadata.creation_timestamp, self.metadata.deletion_timestamp) =
                (creation_timestamp, deletion_timestamp);
        }
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

    #[test]
    fn a_pod_that_uses_volumes_tells_an_attach_detach_controller_when_it_stops_using_them() {
        let pod = |status: serde_json::Value, fields| -> Pod {
            let mut pod: Pod = serde_json::from_value(json!({
                "metadata": { "name": "web", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
                    "deletionTimestamp": "2026-01-02T00:00:00Z" },
                "spec": { "nodeName": "n1", "volumes": [
                    { "name": "scratch", "ephemeral": {} }, { "name": "inline", "csi": { "driver": "demo" } },
                    { "name": "old", "awsElasticBlockStore": { "volumeID": "vol-1" } }] },
                "status": status,
            }))
            .unwrap();
            pod.trim("demo", fields);
            pod
        };
        let stopped = json!({ "containerStatuses": [{ "state": { "terminated": {} } }],
            "initContainerStatuses": [{ "state": { "waiting": {} } }], "ephemeralContainerStatuses": null });
        for (status, expected) in [
            (json!(null), false),
            (stopped, false),
            (json!({ "containerStatuses": [{ "state": { "terminated": {} } }, { "state": { "running": {} } }] }), true),
            // attach-detach D23: what says nothing counts as running.
            (json!({ "ephemeralContainerStatuses": [{ "state": {} }] }), true),
            (json!({ "initContainerStatuses": [{}] }), true),
        ] {
            assert_eq!(pod(status.clone(), Fields::ATTACH).has_running(), expected, "{status}");
        }
        let full = pod(json!({}), Fields::ATTACH);
        assert!(full.is_ephemeral("web-scratch") && !full.is_ephemeral("web-old"));
        assert_eq!(full.in_tree().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["old"]);
        assert!(full.metadata.creation_timestamp.is_some() && full.metadata.deletion_timestamp.is_some());
        let slim = pod(json!({}), Fields::HEALTH);
        assert_eq!((slim.attach, slim.metadata.creation_timestamp, slim.node.as_deref()), (None, None, Some("n1")));
    }
}

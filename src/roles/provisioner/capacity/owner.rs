//! Who our objects go with: our pod, its controller, or that one's controller.
//!
//! The owner is looked up, not configured: `ownerLevel` counts the steps from the pod upwards. What is missing is said,
//! and looked for again: the Go sidecar ends the process.

use std::marker::PhantomData;

use k8s_openapi::api::{apps, core};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde::Deserialize;
use thiserror::Error;

use crate::cluster::{Api, ApiError, Meta, Object, ObjectName};

/// An object of which only its metadata is read: a pod, or what makes pods.
#[derive(Deserialize)]
#[serde(bound = "")]
struct Controlled<K> {
    metadata: Meta,
    #[serde(skip)]
    of: PhantomData<K>,
}

impl<K: Resource<DynamicType = ()> + 'static> Object for Controlled<K> {
    type Kind = K;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

/// What Kubernetes makes pods of that run for good, and what may be controlled in its turn: a `ReplicaSet` by a Deployment, any
/// of them by an operator's object. The rights to read them are [`super::rules`]'.
pub(super) const WORKLOADS: [&str; 3] = ["replicasets", "statefulsets", "daemonsets"];

/// Why no owner is known.
#[derive(Debug, Error)]
pub(super) enum OwnerError {
    /// Nobody told us.
    #[error(
        "roles.provisioner.capacity.ownerLevel is {level}, so the pod's name and namespace must be known: set POD_NAME and POD_NAMESPACE from the downward API, or ownerLevel: -1"
    )]
    NoPod {
        /// The configured level.
        level: i8,
    },
    /// The API does not say.
    #[error("cannot look up the owner of the capacity objects")]
    Get(#[from] ApiError),
    /// The chain is shorter than the level.
    #[error("{kind} {name} has no controller: roles.provisioner.capacity.ownerLevel is too high")]
    NoController {
        /// The kind of what has none.
        kind: String,
        /// Its name.
        name: ObjectName,
    },
    /// A namesake.
    #[error("{kind} {name} is not the one that controls our pod: its uid is {found:?}, not {expected:?}")]
    Replaced {
        /// The kind.
        kind: String,
        /// Its name.
        name: ObjectName,
        /// The uid that the pod tells.
        expected: String,
        /// The uid that it has.
        found: String,
    },
    /// Not one of the [`WORKLOADS`]: there is no right to read it.
    #[error("our pod is controlled by {kind} {name}, whose own controller cannot be looked up: use ownerLevel: 1")]
    UnknownKind {
        /// The kind.
        kind: String,
        /// Its name.
        name: ObjectName,
    },
}

/// The owner at `level`; none at -1.
pub(super) async fn find(
    api: &Api,
    namespace: Option<&str>,
    pod: Option<&str>,
    level: i8,
) -> Result<Option<OwnerReference>, OwnerError> {
    if level < 0 {
        return Ok(None);
    }
    let (Some(namespace), Some(pod)) = (namespace, pod) else { return Err(OwnerError::NoPod { level }) };
    let name = ObjectName::namespaced(namespace, pod);
    let pod: Controlled<core::v1::Pod> = api.get(&name).await?;
    if level == 0 {
        return Ok(Some(owner("v1", "Pod", &pod.metadata)));
    }
    let parent = controller(&pod.metadata).ok_or(OwnerError::NoController { kind: "Pod".into(), name })?;
    if level == 1 {
        return Ok(Some(parent));
    }
    let name = ObjectName::namespaced(namespace, &parent.name);
    let found = match (parent.api_version.as_str(), parent.kind.as_str()) {
        ("apps/v1", "ReplicaSet") => api.get::<Controlled<apps::v1::ReplicaSet>>(&name).await?.metadata,
        ("apps/v1", "StatefulSet") => api.get::<Controlled<apps::v1::StatefulSet>>(&name).await?.metadata,
        ("apps/v1", "DaemonSet") => api.get::<Controlled<apps::v1::DaemonSet>>(&name).await?.metadata,
        _ => return Err(OwnerError::UnknownKind { kind: parent.kind, name }),
    };
    let uid = found.uid.as_deref().unwrap_or_default();
    if uid != parent.uid {
        let uid = uid.to_owned();
        return Err(OwnerError::Replaced { kind: parent.kind, name, expected: parent.uid, found: uid });
    }
    controller(&found).map(Some).ok_or(OwnerError::NoController { kind: parent.kind, name })
}

fn controller(meta: &Meta) -> Option<OwnerReference> {
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    // Whether our objects hold up their owner's deletion is not for the pod's entry to say.
    Some(OwnerReference { block_owner_deletion: None, ..owner.clone() })
}

fn owner(api_version: &str, kind: &str, meta: &Meta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: meta.name.as_deref().unwrap_or_default().to_owned(),
        uid: meta.uid.as_deref().unwrap_or_default().to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

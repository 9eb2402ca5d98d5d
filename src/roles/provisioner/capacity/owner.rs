//! The owner of the capacity objects: our pod, its controller, or that controller's controller. The garbage collector deletes the
//! objects with their owner.
//!
//! `ownerLevel` counts the steps from the pod upwards. If the owner cannot be found, the status page shows the reason, and the loop
//! tries again. The Go sidecar exits instead.

use std::marker::PhantomData;

use k8s_openapi::api::{apps, core};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use serde::Deserialize;
use thiserror::Error;

use crate::cluster::{Api, ApiError, Meta, Object, ObjectName};

/// A pod or a workload, by its metadata only.
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

/// The kinds that control pods of daemons, and may have a controller themselves: a Deployment controls a `ReplicaSet`, and an
/// operator's object may control any of them. [`super::rules`] asks for the rights to read them.
pub(super) const WORKLOADS: [&str; 3] = ["replicasets", "statefulsets", "daemonsets"];

/// Why the owner is not known.
#[derive(Debug, Error)]
pub(super) enum OwnerError {
    /// The environment does not say which pod this is.
    #[error(
        "roles.provisioner.capacity.ownerLevel is {level}, so the pod's name and namespace must be known: set POD_NAME and POD_NAMESPACE from the downward API, or ownerLevel: -1"
    )]
    NoPod {
        /// The configured level.
        level: i8,
    },
    /// A request failed.
    #[error("cannot look up the owner of the capacity objects")]
    Get(#[from] ApiError),
    /// There are fewer controllers than the level asks for.
    #[error("{kind} {name} has no controller: roles.provisioner.capacity.ownerLevel is too high")]
    NoController {
        /// The kind of the object without a controller.
        kind: String,
        /// Its name.
        name: ObjectName,
    },
    /// The object has the controller's name and another uid.
    #[error("{kind} {name} is not the one that controls our pod: its uid is {found:?}, not {expected:?}")]
    Replaced {
        /// The kind.
        kind: String,
        /// Its name.
        name: ObjectName,
        /// The uid in the pod's owner reference.
        expected: String,
        /// The object's uid.
        found: String,
    },
    /// The controller is not one of the [`WORKLOADS`]. The daemon may not read it.
    #[error("our pod is controlled by {kind} {name}, whose own controller cannot be looked up: use ownerLevel: 1")]
    UnknownKind {
        /// The kind.
        kind: String,
        /// Its name.
        name: ObjectName,
    },
}

/// Finds the owner at `level`. There is none at -1.
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
    if *found.uid != *parent.uid {
        let found = found.uid.to_string();
        return Err(OwnerError::Replaced { kind: parent.kind, name, expected: parent.uid, found });
    }
    controller(&found).map(Some).ok_or(OwnerError::NoController { kind: parent.kind, name })
}

fn controller(meta: &Meta) -> Option<OwnerReference> {
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    // The pod's reference may block the deletion of its owner. The capacity objects never do.
    Some(OwnerReference { block_owner_deletion: None, ..owner.clone() })
}

fn owner(api_version: &str, kind: &str, meta: &Meta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: meta.name.to_string(),
        uid: meta.uid.to_string(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

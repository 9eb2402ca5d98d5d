//! Validates objects: the rules of metadata and of the kinds that are used here, with all errors of an object at once.
//!
//! ```text
//!   types.rs     wrong JSON types: 400, as a decoder says it        (nothing else is looked at then)
//!   metadata.rs  names, namespaces, finalizers, what never changes  \
//!   storage.rs   VolumeAttachment, CSINode, CSIDriver, ...           > one list of causes: 422
//!   volumes.rs   PersistentVolume                                   |
//!   claims.rs    PersistentVolumeClaim                              |
//!   selectors.rs affinities, allowed topologies, label selectors    /
//!   difference.rs   the difference that a refused change of an immutable field would make, as text
//!   core.rs      Secret, ConfigMap, Event, Lease, Pod, Node
//!   structural.rs, cel.rs   kinds that were installed, by their definition
//! ```
//!
//! The rules and words are those of `pkg/apis/*/validation` of Kubernetes 1.37, oddities included. Rules about fields that no
//! controller of storage reads are left out; [`super::strict`] drops the fields that a kind does not have.

mod cel;
mod claims;
mod core;
mod difference;
mod metadata;
mod names;
mod selectors;
mod storage;
pub(crate) mod structural;
mod types;
mod volumes;

use super::access::{at, text};
use super::definitions;
use super::rejection::{Cause, Rejection};
use super::resources::Resource;
use serde_json::Value;

pub(super) use types::json_type;

pub(super) use names::qualified;
pub use names::{is_dns_label, is_dns_subdomain};

/// Whether an object can be decoded as its kind at all: the first thing that a typed server finds.
pub fn decodes(resource: &Resource, object: &Value) -> Result<(), Rejection> {
    types::check(resource, object)
}

/// Checks a new object: its name is settled (generated if need be), its namespace is filled in.
pub fn on_create(resource: &Resource, new: &Value) -> Result<(), Rejection> {
    types::check(resource, new)?;
    let mut causes = Vec::new();
    metadata::check(resource, new, &mut causes);
    object(resource, new, &mut causes);
    if let Some(schema) = definitions::schema(resource) {
        structural::object(schema, None, new, &mut causes);
    }
    if resource.plural == "events" {
        core::event_placement(new, &mut causes);
    }
    declared(resource, None, new, &mut causes);
    settle(resource, new, &causes)
}

/// Checks what an object would become by a write to itself, or (`status_write`) to its status alone.
///
/// The store has already put back what this kind of write can't touch: the status of a write to the object, everything but
/// the status (and metadata) of a write to the status. It has also filled in what an update may leave out of the
/// metadata.
pub fn on_update(resource: &Resource, old: &Value, new: &Value, status_write: bool) -> Result<(), Rejection> {
    types::check(resource, new)?;
    let mut causes = Vec::new();
    metadata::check(resource, new, &mut causes);
    metadata::unchanged(old, new, &mut causes);
    if let Some(schema) = definitions::schema(resource) {
        if status_write {
            structural::status(schema, old, new, &mut causes);
        } else {
            structural::object(schema, Some(old), new, &mut causes);
        }
    }
    match (resource.plural, status_write) {
        ("volumeattachments", true) => storage::attachment_status(new, &mut causes),
        ("persistentvolumeclaims", true) => claims::status(new, &mut causes),
        (_, true) => {}
        (_, false) => {
            object(resource, new, &mut causes);
            changes(resource, old, new, &mut causes);
            declared(resource, Some(old), new, &mut causes);
        }
    }
    settle(resource, new, &causes)
}

fn settle(resource: &Resource, new: &Value, causes: &[Cause]) -> Result<(), Rejection> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Rejection::invalid(resource, text(new, &["metadata", "name"]), causes))
}

/// The rules of the kind that hold for each of its objects, new or old.
fn object(resource: &Resource, new: &Value, causes: &mut Vec<Cause>) {
    match resource.plural {
        "volumeattachments" => {
            storage::attachment(new, causes);
            storage::attachment_status(new, causes);
        }
        "csinodes" => storage::csi_node(new, causes),
        "csidrivers" => storage::csi_driver(new, causes),
        "storageclasses" => storage::storage_class(new, causes),
        "volumeattributesclasses" => storage::attributes_class(new, causes),
        "csistoragecapacities" => storage::capacity(new, causes),
        "persistentvolumes" => volumes::volume(new, causes),
        "persistentvolumeclaims" => claims::claim(new, causes),
        "secrets" => core::secret(new, causes),
        "configmaps" => core::config_map(new, causes),
        "leases" => core::lease(new, causes),
        "pods" => core::pod(new, causes),
        _ => {}
    }
}

/// The members that must not change from the stored object to the next.
fn changes(resource: &Resource, old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    match resource.plural {
        "csinodes" => storage::csi_node_changes(old, new, causes),
        "csidrivers" => {
            for key in ["attachRequired", "volumeLifecycleModes"] {
                immutable(&format!("spec.{key}"), at(old, &["spec", key]), at(new, &["spec", key]), causes);
            }
        }
        "volumeattributesclasses" => {
            if old.get("driverName") != new.get("driverName") {
                causes.push(Cause::forbidden("driverName", "updates to driverName are forbidden."));
            }
            if old.get("parameters") != new.get("parameters") {
                causes.push(Cause::forbidden("parameters", "updates to parameters are forbidden."));
            }
        }
        "csistoragecapacities" => {
            immutable("nodeTopology", old.get("nodeTopology"), new.get("nodeTopology"), causes);
            immutable("storageClassName", old.get("storageClassName"), new.get("storageClassName"), causes);
        }
        "persistentvolumes" => volumes::volume_changes(old, new, causes),
        "persistentvolumeclaims" => claims::changes(old, new, causes),
        "pods" => core::pod_changes(old, new, causes),
        "secrets" => core::secret_changes(old, new, causes),
        "configmaps" => core::config_map_changes(old, new, causes),
        _ => {}
    }
}

/// The rules that the server generates from the markers on a kind's type. It judges them after all others.
fn declared(resource: &Resource, old: Option<&Value>, new: &Value, causes: &mut Vec<Cause>) {
    match resource.plural {
        "volumeattachments" => storage::attachment_declared(old, new, causes),
        "storageclasses" => storage::storage_class_declared(old, new, causes),
        _ => {}
    }
}

/// `field is immutable`, unless both are equal; a missing member equals an explicit null.
fn immutable(field: &str, old: Option<&Value>, new: Option<&Value>, causes: &mut Vec<Cause>) {
    let (old, new) = (old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null));
    if old != new {
        causes.push(Cause::invalid(field, new, "field is immutable"));
    }
}

#[cfg(test)]
mod tests;

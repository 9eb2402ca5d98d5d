//! A table per plugin and direction, the regression rows, and properties. Each table's row is one of migration spec 4 to 9. The cluster
//! suite compares with the Go library.

mod backwards;
mod classes;
mod handles;
mod pods;
mod properties;
mod topology;
mod volumes;

use serde_json::{Value, json};

use super::{CsiVolume, TranslationError, volume_to_csi};
use crate::cluster::{Cached, Fields, InTree, PersistentVolume};

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
const BETA_REGION: &str = "failure-domain.beta.kubernetes.io/region";
const EBS_ZONE: &str = "topology.ebs.csi.aws.com/zone";
const GCE_ZONE: &str = "topology.gke.io/zone";

/// The volume as the cache of the plugin's successor holds it.
fn cached(kind: InTree, object: &Value) -> PersistentVolume {
    let mut volume: PersistentVolume = serde_json::from_value(object.clone()).unwrap();
    volume.trim(kind.successor(), Fields::MIGRATION | Fields::RESIZE);
    volume
}

/// A volume named `pv` with this source.
fn object(kind: InTree, source: &Value) -> Value {
    json!({ "metadata": { "name": "pv" }, "spec": { kind.field(): source, "accessModes": ["ReadWriteOnce"] } })
}

fn translated(kind: InTree, object: &Value) -> Result<CsiVolume, TranslationError> {
    volume_to_csi(&cached(kind, object))
}

/// The specification that a volume with this source gets.
fn spec_of(kind: InTree, source: &Value) -> Value {
    translated(kind, &object(kind, source)).unwrap().to_spec()
}

fn error_of(kind: InTree, source: &Value) -> String {
    translated(kind, &object(kind, source)).unwrap_err().to_string()
}

/// A requirement that a label has one of these values.
fn within(key: &str, values: &[&str]) -> Value {
    json!({ "key": key, "operator": "In", "values": values })
}

/// `spec.nodeAffinity` of these terms.
fn affinity(terms: &[&[Value]]) -> Value {
    let terms: Vec<Value> = terms.iter().map(|term| json!({ "matchExpressions": term })).collect();
    json!({ "required": { "nodeSelectorTerms": terms } })
}

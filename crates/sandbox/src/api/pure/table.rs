//! Server-side printing: the `Table` that `kubectl get` asks for, with the columns of the real server.
//!
//! Rows always have all columns; those of priority 1 are shown by `-o wide`. Ages are texts, told from a `now` that the caller
//! brings.

mod cells;
mod duration;

use super::access::{at, text};
use super::definitions;
use super::resources::Resource;
use jiff::Timestamp;
use serde_json::{Value, json};

pub use duration::human;

/// The part of each object that its row carries: the `includeObject` parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata: the default.
    #[default]
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Reads the parameter; unknown words are the default.
    pub fn parse(text: &str) -> Self {
        match text {
            "None" => Self::None,
            "Object" => Self::Object,
            _ => Self::Metadata,
        }
    }
}

/// Whether an `Accept` header asks for a table before it asks for plain JSON.
pub fn is_accepted(accept: &str) -> bool {
    for range in accept.split(',').map(str::trim) {
        let parameters: Vec<&str> = range.split(';').map(str::trim).collect();
        let has = |parameter: &str| parameters.contains(&parameter);
        if has("application/json") && has("as=Table") && has("g=meta.k8s.io") && has("v=v1") {
            return true;
        }
        if range == "application/json" {
            return false;
        }
    }
    false
}

/// One column: name, type, priority.
type Column = (&'static str, &'static str, u8);

const fn shown(name: &'static str) -> Column {
    (name, "string", 0)
}

const fn wide(name: &'static str) -> Column {
    (name, "string", 1)
}

fn columns(resource: &Resource) -> Vec<Column> {
    let defined = definitions::columns(resource).iter().map(|(name, kind, _)| (*name, *kind, 0));
    if resource.optional {
        return std::iter::once(shown("Name")).chain(defined).collect();
    }
    let names: &[Column] = match resource.plural {
        "persistentvolumes" => &[
            shown("Capacity"),
            shown("Access Modes"),
            shown("Reclaim Policy"),
            shown("Status"),
            shown("Claim"),
            shown("StorageClass"),
            shown("VolumeAttributesClass"),
            shown("Reason"),
            shown("Age"),
            wide("VolumeMode"),
        ],
        "persistentvolumeclaims" => &[
            shown("Status"),
            shown("Volume"),
            shown("Capacity"),
            shown("Access Modes"),
            shown("StorageClass"),
            shown("VolumeAttributesClass"),
            shown("Age"),
            wide("VolumeMode"),
        ],
        "pods" => &[
            shown("Ready"),
            shown("Status"),
            shown("Restarts"),
            shown("Age"),
            wide("IP"),
            wide("Node"),
            wide("Nominated Node"),
            wide("Readiness Gates"),
        ],
        "nodes" => &[
            shown("Status"),
            shown("Roles"),
            shown("Age"),
            shown("Version"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ],
        "events" => {
            // The only kind whose first column is not the name.
            return vec![
                shown("Last Seen"),
                shown("Type"),
                shown("Reason"),
                shown("Object"),
                wide("Subobject"),
                wide("Source"),
                shown("Message"),
                wide("First Seen"),
                wide("Count"),
                wide("Name"),
            ];
        }
        "resourcequotas" => &[shown("Request"), shown("Limit"), shown("Age")],
        "secrets" => &[shown("Type"), shown("Data"), shown("Age")],
        "configmaps" => &[shown("Data"), shown("Age")],
        "serviceaccounts" => &[shown("Age")],
        "namespaces" => &[shown("Status"), shown("Age")],
        "leases" => &[shown("Holder"), shown("Age")],
        "volumeattachments" => {
            &[shown("Attacher"), shown("PV"), shown("Node"), ("Attached", "boolean", 0), shown("Age")]
        }
        "csinodes" => &[("Drivers", "integer", 0), shown("Age")],
        "csidrivers" => &[
            ("AttachRequired", "boolean", 0),
            ("PodInfoOnMount", "boolean", 0),
            ("StorageCapacity", "boolean", 0),
            shown("TokenRequests"),
            ("RequiresRepublish", "boolean", 0),
            shown("Modes"),
            shown("Age"),
        ],
        "storageclasses" => &[
            shown("Provisioner"),
            shown("ReclaimPolicy"),
            shown("VolumeBindingMode"),
            shown("AllowVolumeExpansion"),
            shown("Age"),
        ],
        "csistoragecapacities" => &[shown("StorageClassName"), shown("Capacity")],
        "volumeattributesclasses" => &[shown("DriverName"), shown("Age")],
        _ => &[("Created At", "date", 0)],
    };
    [&[shown("Name")], names].concat()
}

/// The table of these objects. `list_metadata` is the list's (resourceVersion, continue) or, in a watch event, the object's
/// resourceVersion alone; `headers` is off from a watch's second event on.
pub fn render<'a>(
    resource: &Resource,
    objects: impl IntoIterator<Item = &'a Value>,
    list_metadata: &Value,
    now: Timestamp,
    include: Include,
    headers: bool,
) -> Value {
    let rows: Vec<Value> = objects
        .into_iter()
        .map(
            |object| json!({ "cells": cells::of(resource, object, now), "object": carried(resource, object, include) }),
        )
        .collect();
    let definitions: Vec<Value> = if headers {
        columns(resource)
            .into_iter()
            .map(|(name, kind, priority)| {
                // The attacher has the name's documentation and format by mistake.
                let format = if matches!(name, "Name" | "Attacher") { "name" } else { "" };
                json!({ "name": name, "type": kind, "format": format, "description": "", "priority": priority })
            })
            .collect()
    } else {
        Vec::new()
    };
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}

fn carried(resource: &Resource, object: &Value, include: Include) -> Value {
    match include {
        Include::None => Value::Null,
        Include::Metadata => partial(object),
        Include::Object => {
            let mut object = object.clone();
            super::access::set(&mut object, "kind", resource.kind.into());
            super::access::set(&mut object, "apiVersion", resource.api_version().into());
            object
        }
    }
}

/// The object's metadata alone, as `PartialObjectMetadata`.
pub fn partial(object: &Value) -> Value {
    let metadata = at(object, &["metadata"]).cloned().unwrap_or_else(|| json!({}));
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata })
}

/// The age of an object, or the time since the moment at `path`.
fn age(object: &Value, path: &[&str], now: Timestamp) -> String {
    match text(object, path).parse::<Timestamp>() {
        Ok(then) => human(now.as_second() - then.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests;

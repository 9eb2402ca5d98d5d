//! A class of an in-tree plugin as the CSI driver understands it (migration spec 8). Pure.

use std::collections::BTreeMap;

use crate::cluster::{InTree, StorageClass, TopologySelectorTerm};

use super::error::TranslationError;
use super::topology::{place, places, zone_key};

const FS_TYPE: &str = "csi.storage.k8s.io/fstype";

type Parameters = BTreeMap<String, String>;

/// A class whose provisioner is an in-tree plugin, with the driver's parameters and places. Its provisioner stays, but for Portworx.
pub fn class_to_csi(class: &StorageClass) -> Result<StorageClass, TranslationError> {
    let Some(kind) = InTree::of_plugin(&class.provisioner) else {
        return Err(TranslationError::NoClassPlugin(class.provisioner.clone()));
    };
    let mut new = class.clone();
    match kind {
        InTree::GcePersistentDisk | InTree::AwsElasticBlockStore | InTree::AzureDisk => {
            let (parameters, zones) = without_zones(&class.parameters)?;
            new.parameters = if kind == InTree::AzureDisk { parameters } else { with_fs_type(parameters) };
            if kind == InTree::AwsElasticBlockStore && has(&new.parameters, "iopspergb") {
                new.parameters.insert("allowautoiopspergbincrease".to_owned(), "true".to_owned());
            }
            new.allowed_topologies = zoned(kind, &class.allowed_topologies, zones)?;
        }
        InTree::Cinder => {
            new.parameters = with_fs_type(class.parameters.clone());
            new.allowed_topologies = zoned(kind, &class.allowed_topologies, None)?;
        }
        InTree::VsphereVolume => {
            new.parameters = vsphere(&class.parameters);
            new.allowed_topologies = zoned(kind, &class.allowed_topologies, None)?;
        }
        InTree::AzureFile => {}
        InTree::PortworxVolume => {
            new.parameters = portworx(&class.parameters);
            kind.successor().clone_into(&mut new.provisioner);
        }
    }
    Ok(new)
}

/// A parameter's name as Go lower-cases it: character by character.
fn lower(key: &str) -> String {
    let one = |c: char| if c == 'İ' { 'i' } else { c.to_lowercase().next().unwrap_or(c) };
    key.chars().map(one).collect()
}

fn has(parameters: &Parameters, lowered: &str) -> bool {
    parameters.keys().any(|key| lower(key) == lowered)
}

fn with_fs_type(parameters: Parameters) -> Parameters {
    let rename = |key: String| if lower(&key) == "fstype" { FS_TYPE.to_owned() } else { key };
    parameters.into_iter().map(|(key, value)| (rename(key), value)).collect()
}

/// The parameters without those that name zones, and the zones that they name (migration spec 8.1).
fn without_zones(parameters: &Parameters) -> Result<(Parameters, Option<Vec<String>>), TranslationError> {
    let mut zones = None;
    let mut others = Parameters::new();
    for (key, value) in parameters {
        let named = match lower(key).as_str() {
            "zone" => vec![value.clone()],
            "zones" => {
                let listed = value.split(',').map(str::trim).filter(|zone| !zone.is_empty());
                listed.map(str::to_owned).collect()
            }
            _ => {
                others.insert(key.clone(), value.clone());
                continue;
            }
        };
        if named.is_empty() {
            return Err(TranslationError::NoZones);
        }
        if zones.replace(named).is_some() {
            return Err(TranslationError::ZoneTwice);
        }
    }
    Ok((others, zones))
}

/// Where volumes may be, in the driver's label.
fn zoned(
    kind: InTree,
    allowed: &[TopologySelectorTerm],
    zones: Option<Vec<String>>,
) -> Result<Vec<TopologySelectorTerm>, TranslationError> {
    let Some(key) = zone_key(kind) else { return Ok(allowed.to_vec()) };
    let mut terms = match zones {
        Some(_) if !allowed.is_empty() => return Err(TranslationError::TopologyTwice),
        Some(zones) => place(key, zones),
        None => places(allowed, key),
    };
    if kind == InTree::AzureDisk {
        // The zone of a region without zones: the fault domain's number for Kubernetes, nothing for the driver.
        let values = terms.iter_mut().flat_map(|term| term.match_label_expressions.iter_mut());
        for value in
            values.filter(|expression| expression.key == key).flat_map(|expression| expression.values.iter_mut())
        {
            if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
                value.clear();
            }
        }
    }
    Ok(terms)
}

/// The driver knows other names, and no other parameters at all. `csimigration` makes it say where the disk is.
fn vsphere(parameters: &Parameters) -> Parameters {
    let known = |(key, value): (&String, &String)| {
        let name = match lower(key).as_str() {
            "fstype" => FS_TYPE.to_owned(),
            "storagepolicyname" => "storagepolicyname".to_owned(),
            name @ ("datastore"
            | "diskformat"
            | "hostfailurestotolerate"
            | "forceprovisioning"
            | "cachereservation"
            | "diskstripes"
            | "objectspacereservation"
            | "iopslimit") => format!("{name}-migrationparam"),
            _ => return None,
        };
        Some((name, value.clone()))
    };
    let mut parameters: Parameters = parameters.iter().filter_map(known).collect();
    parameters.insert("csimigration".to_owned(), "true".to_owned());
    parameters
}

/// One Secret for six kinds of calls.
fn portworx(parameters: &Parameters) -> Parameters {
    const CALLS: [&str; 6] =
        ["provisioner", "controller-publish", "node-publish", "node-stage", "controller-expand", "node-expand"];
    let mut new = Parameters::new();
    for (key, value) in parameters {
        let part = match lower(key).as_str() {
            "openstorage.io/auth-secret-name" => "name",
            "openstorage.io/auth-secret-namespace" => "namespace",
            _ => {
                new.insert(key.clone(), value.clone());
                continue;
            }
        };
        new.extend(CALLS.map(|call| (format!("csi.storage.k8s.io/{call}-secret-{part}"), value.clone())));
    }
    new
}

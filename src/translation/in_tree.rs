//! A volume that the driver has made for an in-tree class, as the in-tree volume that is stored (migration spec 7). Pure.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use std::collections::BTreeMap;

use crate::cluster::names::ANNOTATION_AZURE_FILE_GROUP;
use crate::cluster::{InTree, NodeRequirement, SecretRef, SmolStr};

use super::csi_volume::selector_term;
use super::error::TranslationError;
use super::handles::{azure_disk_name, azure_file_parts, gce_disk};
use super::topology::{self, Labels, Terms};

/// What of `spec.csi` an in-tree volume is made of.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Csi {
    driver: String,
    #[serde(default)]
    volume_handle: String,
    #[serde(default)]
    fs_type: String,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    volume_attributes: Option<BTreeMap<String, String>>,
    node_stage_secret_ref: Option<SecretRef>,
}

impl Csi {
    fn attribute(&self, key: &str) -> Option<&str> {
        self.volume_attributes.as_ref()?.get(key).map(String::as_str)
    }

    /// The attribute whose key is this one in any case.
    fn attribute_in_any_case(&self, key: &str) -> Option<&str> {
        let all = self.volume_attributes.iter().flatten();
        all.filter(|(held, _)| held.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str()).next_back()
    }

    fn partition(&self) -> Result<i32, TranslationError> {
        let Some(partition) = self.attribute("partition").filter(|partition| !partition.is_empty()) else {
            return Ok(0);
        };
        let failed = |cause| TranslationError::Partition { partition: partition.to_owned(), cause };
        partition.parse().map_err(failed)
    }
}

/// The object of a PersistentVolume with `spec.csi` of a driver that has taken a plugin over, with the plugin's source instead, and
/// Kubernetes' labels in its affinity and on itself.
pub fn volume_to_in_tree(volume: &Value) -> Result<Value, TranslationError> {
    let malformed = |what: &dyn ToString| TranslationError::Malformed(what.to_string());
    let csi = volume.pointer("/spec/csi").filter(|csi| !csi.is_null()).ok_or(TranslationError::NotCsi)?;
    let csi = Csi::deserialize(csi).map_err(|error| malformed(&error))?;
    let kind = InTree::of_driver(&csi.driver).ok_or_else(|| TranslationError::NoDriver(csi.driver.clone()))?;
    let (source, group) = source(kind, &csi)?;

    let mut volume = volume.clone();
    let mut labels = match volume.pointer("/metadata/labels") {
        Some(labels) => Option::<Labels>::deserialize(labels).map_err(|error| malformed(&error))?.unwrap_or_default(),
        None => Labels::new(),
    };
    let written = volume.pointer_mut("/spec/nodeAffinity/required/nodeSelectorTerms").and_then(Value::as_array_mut);
    if let Some(written) = written {
        let expressions = |term: &Value| Option::<Vec<NodeRequirement>>::deserialize(&term["matchExpressions"]);
        let terms: Result<Vec<_>, _> = written.iter().map(expressions).collect();
        let terms = terms.map_err(|error| malformed(&error))?;
        let mut terms: Terms = terms.into_iter().map(Option::unwrap_or_default).collect();
        topology::to_in_tree(kind, &mut terms, &mut labels);
        for (term, expressions) in written.iter_mut().zip(&terms) {
            if let (Some(term), Value::Object(new)) = (term.as_object_mut(), selector_term(expressions)) {
                term.extend(new);
            }
        }
    }
    let metadata = || malformed(&"metadata is no object");
    if !labels.is_empty() {
        within(&mut volume, "metadata").ok_or_else(metadata)?.insert("labels".to_owned(), json!(labels));
    }
    if let Some(group) = group {
        let annotations = volume.get_mut("metadata").and_then(|metadata| within(metadata, "annotations"));
        annotations.ok_or_else(metadata)?.insert(ANNOTATION_AZURE_FILE_GROUP.to_owned(), Value::String(group));
    }
    if let Some(spec) = within(&mut volume, "spec") {
        spec.remove("csi");
        spec.insert(kind.field().to_owned(), Value::Object(source));
    }
    Ok(volume)
}

/// A member of an object that is an object itself. A missing one is made.
fn within<'a>(value: &'a mut Value, member: &str) -> Option<&'a mut Map<String, Value>> {
    value.as_object_mut()?.entry(member).or_insert_with(|| json!({})).as_object_mut()
}

type Source = Map<String, Value>;

/// The plugin's source, and the resource group that the volume gets as an annotation.
fn source(kind: InTree, csi: &Csi) -> Result<(Source, Option<String>), TranslationError> {
    let handle = csi.volume_handle.as_str();
    let with_id = |field: &str, id: &str| {
        let mut source = Source::from_iter([(field.to_owned(), json!(id))]);
        if !csi.fs_type.is_empty() {
            source.insert("fsType".to_owned(), json!(csi.fs_type));
        }
        if csi.read_only {
            source.insert("readOnly".to_owned(), json!(true));
        }
        source
    };
    let with_partition = |mut source: Source| {
        let partition = csi.partition()?;
        if partition != 0 {
            source.insert("partition".to_owned(), json!(partition));
        }
        Ok(source)
    };
    Ok(match kind {
        InTree::GcePersistentDisk => (with_partition(with_id("pdName", gce_disk(handle)?))?, None),
        InTree::AwsElasticBlockStore => (with_partition(with_id("volumeID", handle))?, None),
        InTree::Cinder | InTree::PortworxVolume => (with_id("volumeID", handle), None),
        InTree::AzureDisk => (azure_disk(csi)?, None),
        InTree::AzureFile => azure_file(csi)?,
        InTree::VsphereVolume => {
            // The driver answers with it because the class said csimigration.
            let path = csi.attribute("initialvolumefilepath").ok_or(TranslationError::NoVolumePath)?;
            let mut source = with_id("volumePath", path);
            // A volume of this plugin cannot say that it may only be read.
            source.remove("readOnly");
            (source, None)
        }
    })
}

fn azure_disk(csi: &Csi) -> Result<Source, TranslationError> {
    let attribute = |key: &str| csi.attribute_in_any_case(key).filter(|value| !value.is_empty());
    let mut source = Source::from_iter([
        ("diskName".to_owned(), json!(azure_disk_name(&csi.volume_handle)?)),
        ("diskURI".to_owned(), json!(csi.volume_handle)),
        ("kind".to_owned(), json!("Managed")),
        ("fsType".to_owned(), json!(attribute("fstype").unwrap_or(&csi.fs_type))),
        ("readOnly".to_owned(), json!(csi.read_only)),
    ]);
    source.extend(attribute("cachingmode").map(|mode| ("cachingMode".to_owned(), json!(mode))));
    Ok(source)
}

fn azure_file(csi: &Csi) -> Result<(Source, Option<String>), TranslationError> {
    let handle = csi.volume_handle.as_str();
    let attribute = |key: &str| csi.attribute_in_any_case(key);
    let staged = csi.node_stage_secret_ref.as_ref().filter(|secret| !secret.name.is_empty());
    let (secret, namespace) = match staged {
        Some(secret) => (Some(secret.name.as_str()), Some(secret.namespace.as_str())),
        None => (attribute("secretname"), attribute("secretnamespace")),
    };
    let share = attribute("sharename").filter(|share| !share.is_empty());
    let secret = secret.filter(|secret| !secret.is_empty());
    let parts = azure_file_parts(handle);
    let needed = || parts.ok_or_else(|| TranslationError::AzureShareHandle(handle.to_owned()));
    let share = share.map_or_else(|| needed().map(|(_, _, share)| share), Ok)?;
    let account = |parts: (&str, &str, &str)| SmolStr::from(format!("azure-storage-account-{}-secret", parts.1));
    let secret = secret.map_or_else(|| needed().map(account), |secret| Ok(SmolStr::new(secret)))?;
    let mut source = Source::from_iter([
        ("secretName".to_owned(), json!(secret)),
        ("shareName".to_owned(), json!(share)),
        ("secretNamespace".to_owned(), json!(namespace.unwrap_or("default"))),
    ]);
    if csi.read_only {
        source.insert("readOnly".to_owned(), json!(true));
    }
    let group = parts.map(|(group, ..)| group.to_owned()).filter(|group| !group.is_empty());
    Ok((source, group))
}

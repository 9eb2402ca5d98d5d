//! The real server's admission plugins for storage: `DefaultStorageClass`, `StorageObjectInUseProtection` and
//! `PersistentVolumeClaimResize`; and `TaintNodesByCondition`. `ResourceQuota` is in `quota`.

use serde_json::{Value, json};

use super::{State, meta};
use crate::api::pure::rejection::Rejection;
use crate::api::pure::resources::{RESOURCES, Resource};

/// Marks the class of claims that name none.
const IS_DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// Names a claim's class as it was done before there was a field for it.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

impl State {
    /// Changes a new object as admission does.
    pub(super) fn admit(&self, resource: &Resource, object: &mut Value) {
        let finalizer = match (resource.group, resource.plural) {
            ("", "persistentvolumeclaims") => {
                self.fill_class(object);
                "kubernetes.io/pvc-protection"
            }
            ("", "persistentvolumes") => "kubernetes.io/pv-protection",
            ("storage.k8s.io", "volumeattributesclasses") => "kubernetes.io/vac-protection",
            ("", "nodes") => return taint(object),
            _ => return,
        };
        if self.protects {
            let mut finalizers =
                object.pointer("/metadata/finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
            if !finalizers.iter().any(|it| *it == finalizer) {
                finalizers.push(finalizer.into());
            }
            meta::set(object, "finalizers", Some(finalizers.into()));
        }
    }

    /// A claim that names no class gets the default one: of several the newest.
    fn fill_class(&self, claim: &mut Value) {
        let names_one = claim.pointer("/spec/storageClassName").is_some_and(|class| !class.is_null())
            || annotation(claim, BETA_CLASS).is_some();
        if names_one {
            return;
        }
        let is_default = |class: &Value| IS_DEFAULT.iter().any(|key| annotation(class, key) == Some("true"));
        let created = |class: &Value| meta::text(class, "creationTimestamp").to_owned();
        let newest = self.every("storage.k8s.io", "storageclasses").into_iter().filter(|it| is_default(it)).min_by_key(
            // Times that are texts of one form sort as texts; of two of one second the first by name counts.
            |class| (std::cmp::Reverse(created(class)), meta::text(class, "name").to_owned()),
        );
        let name = newest.map(|class| json!(meta::text(class, "name")));
        if let (Some(name), Some(spec)) = (name, claim.get_mut("spec").and_then(Value::as_object_mut)) {
            spec.insert("storageClassName".to_owned(), name);
        }
    }

    /// Refuses to let a claim grow whose class doesn't allow it.
    pub(super) fn admit_change(&self, resource: &Resource, old: &Value, new: &Value) -> Result<(), Rejection> {
        const SIZE: &str = "/spec/resources/requests/storage";
        if resource.plural != "persistentvolumeclaims" || old.pointer(SIZE) == new.pointer(SIZE) {
            return Ok(());
        }
        let class = annotation(old, BETA_CLASS)
            .or_else(|| old.pointer("/spec/storageClassName").and_then(Value::as_str))
            .unwrap_or_default();
        let allows = self
            .every("storage.k8s.io", "storageclasses")
            .into_iter()
            .filter(|it| meta::text(it, "name") == class)
            .any(|it| it.get("allowVolumeExpansion") == Some(&Value::Bool(true)));
        if allows {
            return Ok(());
        }
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                   support resize";
        Err(Rejection::forbidden_because(resource, meta::text(new, "name"), why))
    }

    pub(super) fn every(&self, group: &str, plural: &str) -> Vec<&Value> {
        let resource = RESOURCES.iter().find(|it| it.group == group && it.plural == plural);
        let objects = resource.and_then(|resource| self.objects.get(&super::kind(resource)));
        objects.into_iter().flat_map(|objects| objects.values().map(AsRef::as_ref)).collect()
    }
}

/// A node is not ready before its kubelet says so.
fn taint(node: &mut Value) {
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let taints = spec.entry("taints").or_insert_with(|| json!([]));
    if let Some(taints) = taints.as_array_mut()
        && !taints.contains(&not_ready)
    {
        taints.push(not_ready);
    }
}

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

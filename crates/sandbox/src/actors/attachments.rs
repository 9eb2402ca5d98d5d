//! The attach/detach controller: creates attachments for the volumes of scheduled pods, and deletes them after the last
//! such pod.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    ATTACHMENTS, CLAIMS, Cluster, DRIVERS, PODS, VOLUMES, claims_of, has_ended, is_deleting, list, place, text,
};

/// The volume of an attachment.
const SOURCE: &str = "/spec/source/persistentVolumeName";

/// Remembers the attachments that it created, and leaves those of others alone.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    ours: BTreeSet<String>,
}

/// The name that the controller gives to an attachment.
fn name_of(handle: &str, driver: &str, node: &str) -> String {
    let digest = Sha256::digest(format!("{handle}{driver}{node}"));
    digest.iter().fold("csi-".to_owned(), |mut name, byte| {
        // Writing to a text cannot fail.
        let _ = write!(name, "{byte:02x}");
        name
    })
}

impl Attachments {
    /// Creates the missing attachments, and deletes those that no pod needs any more.
    pub(super) fn pass(&mut self, cluster: &Cluster) {
        let wanted: BTreeMap<String, Value> =
            cluster.all(PODS).iter().filter(|pod| !has_ended(pod)).flat_map(|pod| wanted_by(cluster, pod)).collect();
        let attachments = cluster.all(ATTACHMENTS);
        let mut attached: BTreeSet<String> = attachments.iter().map(|it| text(it, SOURCE).to_owned()).collect();
        for (name, object) in &wanted {
            let volume = text(object, SOURCE);
            let must_wait = attached.contains(volume) && is_for_one_node(cluster, volume);
            if cluster.one(ATTACHMENTS, "", name).is_none() && !must_wait && cluster.create(object.clone()) {
                self.ours.insert(name.clone());
                attached.insert(volume.to_owned());
            }
        }
        self.ours.retain(|name| {
            let Some(attachment) = cluster.one(ATTACHMENTS, "", name) else { return false };
            if !wanted.contains_key(name) && !is_deleting(&attachment) {
                cluster.delete(ATTACHMENTS, &attachment);
            }
            true
        });
    }
}

/// Whether a volume may be attached to one node alone, and to the next one when its attachment to the last is gone: the
/// controller holds back whatever has access modes, and none that is for many.
fn is_for_one_node(cluster: &Cluster, volume: &str) -> bool {
    let Some(volume) = cluster.one(VOLUMES, "", volume) else { return false };
    let modes = list(&volume, "/spec/accessModes");
    !modes.is_empty() && !modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

/// The attachments that a pod needs, by name.
pub(super) fn wanted_by(cluster: &Cluster, pod: &Value) -> Vec<(String, Value)> {
    let node = text(pod, "/spec/nodeName");
    let volumes = claims_of(pod).filter_map(|name| {
        let claim = cluster.one(CLAIMS, place(pod).0, name).filter(|claim| text(claim, "/status/phase") == "Bound")?;
        cluster.one(VOLUMES, "", text(&claim, "/spec/volumeName"))
    });
    let attachments = volumes.filter_map(|volume| {
        let driver = text(&volume, "/spec/csi/driver");
        let needs = |driver: &Value| driver.pointer("/spec/attachRequired") != Some(&Value::Bool(false));
        if node.is_empty() || driver.is_empty() || !cluster.one(DRIVERS, "", driver).is_none_or(|it| needs(&it)) {
            return None;
        }
        let name = name_of(text(&volume, "/spec/csi/volumeHandle"), driver, node);
        let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": place(&volume).1}}});
        Some((name, object))
    });
    attachments.collect()
}

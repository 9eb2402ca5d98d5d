//! The common parts of the resizer's scenarios, beside [`crate::supply`]: a daemon with the role, claims that may grow,
//! and looks at them.

use std::collections::BTreeMap;
use std::sync::Arc;

use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::ground::Daemon;
use crate::objects::merge;
use crate::world::World;

pub(crate) const GIB: i64 = 1 << 30;

/// The configuration of a daemon with the resizer alone and short times; `section` is merged into the role's.
pub(crate) fn resizer(section: Value) -> Value {
    let mut resizer = json!({"retry": {"initial": "50ms", "max": "400ms", "infeasible": "1s"}, "resync": "0s"});
    merge(&mut resizer, section);
    json!({"roles": {"attacher": null, "reconciler": null, "resizer": resizer}})
}

/// Something goes wrong with each expansion.
pub(crate) fn expanding(action: Action) -> Fault {
    Fault::on(Method::ControllerExpandVolume, action)
}

/// Something goes wrong with each modification.
pub(crate) fn modifying(action: Action) -> Fault {
    Fault::on(Method::ControllerModifyVolume, action)
}

/// The value at this place of an object; null if there is none.
pub(crate) fn at(object: &impl serde::Serialize, pointer: &str) -> Value {
    json!(object).pointer(pointer).cloned().unwrap_or_default()
}

/// The types of a claim's conditions, without the one that Kubernetes 1.37 writes on every claim: whether a pod uses it.
pub(crate) fn conditions(claim: &PersistentVolumeClaim) -> Vec<String> {
    let conditions = claim.status.as_ref().and_then(|it| it.conditions.as_ref()).into_iter().flatten();
    conditions.map(|it| it.type_.clone()).filter(|it| it != "Unused").collect()
}

pub(crate) const STATE: &str = "/status/allocatedResourceStatuses/storage";
pub(crate) const ALLOCATED: &str = "/status/allocatedResources/storage";
pub(crate) const CAPACITY: &str = "/status/capacity/storage";
pub(crate) const NOT_REQUIRED: &str = "/metadata/annotations/volume.kubernetes.io~1node-expansion-not-required";
pub(crate) const MODIFY: &str = "/status/modifyVolumeStatus";
pub(crate) const CURRENT: &str = "/status/currentVolumeAttributesClassName";

impl World {
    /// A daemon with the resizer alone, its section changed like this.
    pub(crate) async fn resizer(&self, section: Value) -> Daemon {
        self.daemon(resizer(section)).await
    }

    /// A world with controllers, and a daemon in it with the resizer alone, its section changed like this.
    pub(crate) async fn with_resizer(section: Value) -> (Self, Daemon) {
        Self::supplied_with_daemon("daemon", resizer(section)).await
    }

    /// A claim of 1 GiB that is bound to a volume of its own, and may grow. `spec` is merged into the volume's. Returns the names of
    /// both.
    pub(crate) async fn sizable(&self, short: &str, spec: Value) -> (String, String) {
        let class = self.class(&format!("{short}-class"), json!({"allowVolumeExpansion": true})).await;
        let mode = spec.get("volumeMode").cloned().unwrap_or_else(|| json!("Filesystem"));
        let mut of_class = json!({"storageClassName": class});
        merge(&mut of_class, spec);
        let volume = self.volume_with(&format!("{short}-pv"), of_class).await;
        let claim = self.claim(short, &class, json!({"spec": {"volumeName": volume, "volumeMode": mode}})).await;
        self.bound(&claim).await;
        (claim, volume)
    }

    /// The same on a raw device, so that no node has to act.
    pub(crate) async fn sizable_device(&self, short: &str) -> (String, String) {
        self.sizable(short, json!({"volumeMode": "Block"})).await
    }

    /// The user asks for this size.
    pub(crate) async fn ask_for(&self, claim: &str, size: &str) {
        self.patch_claim(claim, json!({"spec": {"resources": {"requests": {"storage": size}}}})).await;
    }

    /// The user asks for this attributes class.
    pub(crate) async fn ask_for_class(&self, claim: &str, class: &str) {
        self.patch_claim(claim, json!({"spec": {"volumeAttributesClassName": class}})).await;
    }

    /// A class of attributes of the driver. Returns its name.
    pub(crate) async fn attributes(&self, short: &str, iops: &str) -> String {
        let name = self.name(short);
        self.create::<VolumeAttributesClass>(json!({"metadata": {"name": name}, "driverName": self.driver_name(),
            "parameters": {"iops": iops}}))
            .await;
        name
    }

    /// Takes a class of attributes away by force, although claims may name it.
    pub(crate) async fn force_class_away(&self, class: &str) {
        self.all::<VolumeAttributesClass>().delete(class, &DeleteParams::default()).await.unwrap();
        self.drop_finalizer::<VolumeAttributesClass>(class, 0).await;
    }

    /// The requested sizes, in gibibytes or parts of them, in the order of the calls.
    pub(crate) fn sizes_asked(&self) -> Vec<f64> {
        self.expansions().iter().map(|call| gibibytes(call)).collect()
    }

    /// The expansions that the driver was asked for.
    pub(crate) fn expansions(&self) -> Vec<Arc<Call>> {
        self.driver().calls_of(Method::ControllerExpandVolume)
    }

    /// The attributes that the driver was asked for, in the order of the calls.
    pub(crate) fn modifications(&self) -> Vec<BTreeMap<String, String>> {
        let calls = self.driver().calls_of(Method::ControllerModifyVolume);
        calls.into_iter().map(|call| call.modify.clone().unwrap().mutable_parameters.into_iter().collect()).collect()
    }

    /// Waits until the driver was asked to expand this often.
    pub(crate) async fn expanded_times(&self, times: usize) {
        let what = format!("{times} expansions");
        self.driver_until(&what, |driver| driver.calls_of(Method::ControllerExpandVolume).len() >= times).await;
    }

    /// Waits until the driver was asked to modify this often.
    pub(crate) async fn modified_times(&self, times: usize) {
        let what = format!("{times} modifications");
        self.driver_until(&what, |driver| driver.calls_of(Method::ControllerModifyVolume).len() >= times).await;
    }

    /// Waits until the claim has this size and nothing of an expansion is left on it.
    pub(crate) async fn sized(&self, claim: &str, size: &str) -> PersistentVolumeClaim {
        let is_done = |it: &PersistentVolumeClaim| {
            at(it, CAPACITY) == size && at(it, STATE).is_null() && conditions(it).iter().all(|it| !is_of_resize(it))
        };
        self.claim_until(claim, &format!("of {size}"), is_done).await
    }

    /// Waits until the claim's expansion is in this state.
    pub(crate) async fn in_state(&self, claim: &str, state: &str) -> PersistentVolumeClaim {
        self.claim_until(claim, state, |it| at(it, STATE) == state).await
    }

    /// Waits until the volume has this class and nothing of a modification is left on the claim.
    pub(crate) async fn classed(&self, claim: &str, class: &str) -> PersistentVolumeClaim {
        let is_done = |it: &PersistentVolumeClaim| {
            let left = conditions(it).iter().any(|it| it.starts_with("Modify"));
            at(it, CURRENT) == class && at(it, MODIFY).is_null() && !left
        };
        self.claim_until(claim, &format!("of class {class}"), is_done).await
    }

    /// Waits until the claim's modification is in this state.
    pub(crate) async fn modify_state(&self, claim: &str, state: &str) -> PersistentVolumeClaim {
        self.claim_until(claim, state, |it| at(it, "/status/modifyVolumeStatus/status") == state).await
    }

    /// Writes to the claim's status, as another controller does.
    pub(crate) async fn write_status(&self, claim: &str, status: Value) {
        let claims = self.namespaced::<PersistentVolumeClaim>();
        let patch = Patch::Strategic(json!({ "status": status }));
        claims.patch_status(claim, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Does what a kubelet does for an expansion.
    pub(crate) async fn kubelet_expands(&self, claim: &str, volume: &str) {
        let volume = self.all::<PersistentVolume>().get(volume).await.unwrap();
        let gone = ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];
        let gone: Vec<Value> = gone.iter().map(|it| json!({"$patch": "delete", "type": it})).collect();
        let size = at(&volume, "/spec/capacity/storage");
        let done =
            json!({"capacity": {"storage": size}, "allocatedResourceStatuses": {"storage": null}, "conditions": gone});
        self.write_status(claim, done).await;
    }

    /// The size of a volume's object.
    pub(crate) async fn recorded_size(&self, volume: &str) -> Value {
        at(&self.all::<PersistentVolume>().get(volume).await.unwrap(), "/spec/capacity/storage")
    }

    /// The reasons of the Events on a claim, each as often as it was written.
    pub(crate) async fn reasons(&self, claim: &str) -> Vec<String> {
        let uid = self.claim_now(claim).await.uid().unwrap();
        let events = self.events_on(&uid).await;
        let by_us = format!("external-resizer {}", self.driver_name());
        let ours = events
            .iter()
            .filter(|it| it.source.as_ref().and_then(|source| source.component.as_deref()) == Some(by_us.as_str()));
        let mut reasons: Vec<String> = ours
            .flat_map(|it| {
                let times = usize::try_from(it.count.unwrap_or(1)).unwrap();
                std::iter::repeat_n(it.reason.clone().unwrap_or_default(), times)
            })
            .collect();
        reasons.sort();
        reasons
    }

    /// Asserts that no two calls of ours met for one volume.
    pub(crate) fn assert_no_overlap(&self) {
        assert_eq!(self.driver().violations(), []);
    }
}

fn is_of_resize(condition: &str) -> bool {
    ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"].contains(&condition)
}

#[expect(clippy::cast_precision_loss, reason = "the sizes of tests are small")]
fn gibibytes(call: &Call) -> f64 {
    let bytes = call.expand.as_ref().unwrap().capacity_range.as_ref().unwrap().required_bytes;
    bytes as f64 / GIB as f64
}

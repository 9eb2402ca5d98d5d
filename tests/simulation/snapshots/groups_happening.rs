//! What happens to groups: users make, keep and delete them, others wipe what they do not know, the driver and the API fail.

use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources::{self, Resource};
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use rand::RngExt as _;
use serde_json::{Value, json};
use tonic::Code;

use super::checks::INTENT;
use super::groups::{CONTENTS, GROUPS, MARK};
use super::play::{CLASSES, Play, SECRET};
use crate::world::{DAEMONS, DRIVER, secret_name, text};

const API: &str = "groupsnapshot.storage.k8s.io";
/// How many names of groups there are.
const NAMES: usize = 3;
/// The labels that a group may ask for. Some volumes have both.
const LABELS: [&str; 2] = ["left", "right"];

fn kind(plural: &str) -> &'static Resource {
    resources::find(API, "v1", plural).unwrap()
}

/// The labels of a claim: the first two are of one group, the last two of the other.
pub(super) fn labels_of(claim: usize) -> Value {
    let mut labels = json!({});
    for (at, label) in LABELS.iter().enumerate() {
        if claim == at || claim == at + 1 {
            labels[*label] = "yes".into();
        }
    }
    labels
}

pub(super) fn group_class(name: &str, is_secretive: bool) -> Value {
    let policy = if name == CLASSES[0] { "Delete" } else { "Retain" };
    let mut class = json!({ "apiVersion": format!("{API}/v1"), "kind": "VolumeGroupSnapshotClass",
        "metadata": { "name": name }, "driver": DRIVER, "deletionPolicy": policy, "parameters": { "tier": "1" } });
    if is_secretive {
        for key in ["group-snapshotter-secret", "group-snapshotter-get-secret"] {
            class["parameters"][format!("csi.storage.k8s.io/{key}-name")] = secret_name(SECRET).into();
            class["parameters"][format!("csi.storage.k8s.io/{key}-namespace")] = "kube-system".into();
        }
    }
    class
}

impl Play {
    /// Something may happen to a group.
    pub(super) fn happen_to_groups(&mut self) {
        match self.group_rng.random_range(0..24) {
            0..5 => self.make_group(),
            5..8 => {
                let name = format!("g-{}", self.group_rng.random_range(0..NAMES));
                let _ = self.testbed.api.delete_object(kind(GROUPS), "default", &name);
            }
            8..11 => {
                let fault = self.group_fault();
                self.testbed.driver.inject(fault);
            }
            11..13 => {
                let fault = self.group_api_fault();
                self.testbed.api.faults().add(fault);
            }
            13 => {
                let kept = json!({ "spec": { "deletionPolicy": "Retain" } });
                self.patch_a_group_content(kept);
            }
            14 if self.setting.is_rough => {
                let wiped = json!({ MARK: null, INTENT: null, "example.com/seen": "yes" });
                self.patch_a_group_content(json!({ "metadata": { "annotations": wiped } }));
            }
            15 if self.setting.is_rough => {
                let theirs = json!({ "annotations": { "example.com/a": "b" }, "labels": { "example.com/l": "m" } });
                self.patch_a_group_content(json!({ "metadata": theirs }));
            }
            _ => {}
        }
    }

    fn make_group(&mut self) {
        let name = format!("g-{}", self.group_rng.random_range(0..NAMES));
        let class = CLASSES[usize::from(self.group_rng.random_bool(0.25))];
        let label = LABELS[self.group_rng.random_range(0..LABELS.len())];
        let mut labels = json!({});
        labels[label] = "yes".into();
        // One of that name may be there.
        let _ =
            self.testbed.api.create_value(json!({ "apiVersion": format!("{API}/v1"), "kind": "VolumeGroupSnapshot",
            "metadata": { "name": name }, "spec": { "volumeGroupSnapshotClassName": class,
                "source": { "selector": { "matchLabels": labels } } } }));
    }

    fn patch_a_group_content(&mut self, body: Value) {
        let all: Vec<Arc<Value>> = self.testbed.api.objects(kind(CONTENTS), "").unwrap();
        if !all.is_empty() {
            let content = &all[self.group_rng.random_range(0..all.len())];
            let name = text(content, "/metadata/name").to_owned();
            let _ = self.testbed.api.patch_object(kind(CONTENTS), "", &name, PatchBody::Merge(body), false);
        }
    }

    fn group_seconds(&mut self, from: f64, to: f64) -> Duration {
        Duration::from_secs_f64(self.group_rng.random_range(from..to))
    }

    fn group_fault(&mut self) -> Fault {
        let calls = [
            Method::CreateVolumeGroupSnapshot,
            Method::CreateVolumeGroupSnapshot,
            Method::DeleteVolumeGroupSnapshot,
            Method::GetVolumeGroupSnapshot,
        ];
        let method = calls[self.group_rng.random_range(0..calls.len())];
        let message = "scripted".to_owned();
        // Drivers that do it all the same answer with one of these.
        let open = [Code::Unavailable, Code::DeadlineExceeded, Code::Aborted, Code::Cancelled, Code::ResourceExhausted];
        let action = match self.group_rng.random_range(0..10) {
            0..3 => Action::Fail { code: Code::from_i32(self.group_rng.random_range(1..=16)), message },
            3 => Action::DoneButFail { code: open[self.group_rng.random_range(0..open.len())], message },
            4 => Action::DoneButHang,
            5 => Action::Hang,
            6 => Action::Late(self.group_seconds(0.1, 9.0)),
            7 => Action::Delay(self.group_seconds(0.1, 4.0)),
            8 => Action::Lie(Lie::NotReady),
            _ => Action::DoneButCrash { down: self.group_seconds(0.0, 3.0) },
        };
        Fault::on(method, action).times(self.group_rng.random_range(1..=4))
    }

    fn group_api_fault(&mut self) -> ApiFault {
        let action = match self.group_rng.random_range(0..6) {
            0 => ApiAction::Refuse(Rejection::internal("scripted")),
            1 => ApiAction::RefuseAfter(Rejection::internal("scripted")),
            2 => ApiAction::CutBefore,
            3 => ApiAction::CutAfter,
            4 => ApiAction::Refuse(Rejection::unprocessable_patch()),
            _ => ApiAction::DelayAfter(self.group_seconds(0.1, 4.0)),
        };
        let daemon = self.group_rng.random_range(0..self.daemons.len());
        let verb = ["patch", "patch", "get"][self.group_rng.random_range(0..3)];
        let on = Matching::any().user(DAEMONS[daemon]).verb(verb).resource(CONTENTS);
        ApiFault::on(on, action).times(self.group_rng.random_range(1..=3))
    }
}

//! What happens to groups: users make, keep and delete them, others wipe what they do not know, the driver and the API fail.

use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::proto::CreateVolumeGroupSnapshotRequest;
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources::{self, Resource};
use csi_control_plane::sandbox::driver::{Action, Fault, Lie, Method};
use rand::RngExt as _;
use serde_json::{Value, json};
use tonic::Code;

use super::checks::INTENT;
use super::contents::OF_GROUPS;
use super::groups::{CONTENTS, FINALIZER, GROUPS, MARK};
use super::play::{CLASSES, Play, SECRET, VOLUMES, handle};
use crate::world::{DAEMONS, DRIVER, secret_name, text};

const API: &str = "groupsnapshot.storage.k8s.io";
/// How many names of groups there are.
const NAMES: usize = 3;
/// The labels that a group may ask for. Some volumes have both.
const LABELS: [&str; 2] = ["left", "right"];

pub(super) fn kind(plural: &str) -> &'static Resource {
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
                let _ = self.stage.testbed.api.delete_object(kind(GROUPS), "default", &name);
            }
            8..11 => {
                let fault = self.group_fault();
                self.stage.testbed.driver.inject(fault);
            }
            11..13 => {
                let fault = self.group_api_fault();
                self.stage.testbed.api.faults().add(fault);
            }
            13 => {
                let kept = json!({ "spec": { "deletionPolicy": "Retain" } });
                self.patch_a_group_content(kept);
            }
            14 if self.setting.is_rough => {
                let wiped = json!({ MARK: null, INTENT: null, "example.com/seen": "yes" });
                self.patch_a_group_content(json!({ "metadata": { "annotations": wiped } }));
            }
            16 => {
                // The answer does not say of which volume a snapshot is.
                let odd = Action::Lie(Lie::MemberOf("stranger".to_owned()));
                let method = [Method::CreateVolumeGroupSnapshot, Method::GetVolumeGroupSnapshot];
                let method = method[usize::from(self.member_rng.random_bool(0.3))];
                self.stage.testbed.driver.inject(Fault::on(method, odd).times(self.member_rng.random_range(1..=2)));
            }
            15 if self.setting.is_rough => {
                let theirs = json!({ "annotations": { "example.com/a": "b" }, "labels": { "example.com/l": "m" } });
                self.patch_a_group_content(json!({ "metadata": theirs }));
            }
            _ => {}
        }
    }

    /// Something may happen to a group that was there before.
    pub(super) fn happen_to_given_groups(&mut self) {
        match self.later_rng.random_range(0..16) {
            0..3 => self.give_group(),
            3 => {
                let all = self.stage.testbed.api.objects(kind(GROUPS), "default").unwrap();
                let given = |it: &&Arc<Value>| !text(it, "/spec/source/volumeGroupSnapshotContentName").is_empty();
                if let Some(name) = self.any_name(all.iter().filter(given)) {
                    let _ = self.stage.testbed.api.delete_object(kind(GROUPS), "default", &name);
                }
            }
            4 => {
                if let Some(name) = self.any_given() {
                    let _ = self.stage.testbed.api.delete_object(kind(CONTENTS), "", &name);
                }
            }
            5 => {
                let policy = ["Delete", "Retain"][self.later_rng.random_range(0..2)];
                let body = PatchBody::Merge(json!({ "spec": { "deletionPolicy": policy } }));
                if let Some(name) = self.any_given() {
                    let _ = self.stage.testbed.api.patch_object(kind(CONTENTS), "", &name, body, false);
                }
            }
            6 => {
                let code = Code::from_i32(self.later_rng.random_range(1..=16));
                let action = Action::Fail { code, message: "scripted".to_owned() };
                let fault = Fault::on(Method::GetVolumeGroupSnapshot, action);
                self.stage.testbed.driver.inject(fault.times(self.later_rng.random_range(1..=4)));
            }
            _ => {}
        }
    }

    fn any_name<'a>(&mut self, all: impl Iterator<Item = &'a Arc<Value>>) -> Option<String> {
        let all: Vec<&Arc<Value>> = all.collect();
        let at = (!all.is_empty()).then(|| self.later_rng.random_range(0..all.len()))?;
        Some(text(all[at], "/metadata/name").to_owned())
    }

    /// A content of a group that was there before.
    fn any_given(&mut self) -> Option<String> {
        let all = self.stage.testbed.api.objects(kind(CONTENTS), "").unwrap();
        self.any_name(all.iter().filter(|it| OF_GROUPS.is_given(it)))
    }

    /// A user imports a group that exists, or that the driver has never had, perhaps to delete it at once.
    fn give_group(&mut self) {
        self.made += 1;
        let name = format!("given-group-{}", self.made);
        let (id, members) = if self.later_rng.random_bool(0.2) {
            (format!("no-{name}"), vec![format!("no-member-of-{name}")])
        } else {
            let first = self.later_rng.random_range(0..VOLUMES - 1);
            let request = CreateVolumeGroupSnapshotRequest {
                name: format!("theirs-{name}"),
                source_volume_ids: vec![handle(first), handle(first + 1)],
                secrets: self.setting.secrets(),
                ..CreateVolumeGroupSnapshotRequest::default()
            };
            let (profile, now) = (self.stage.testbed.driver.profile(), self.stage.testbed.clock.wall());
            let made = self.stage.testbed.driver.change_state(|state| state.create_group(&profile, &request, now));
            let group = made.unwrap().group_snapshot.unwrap();
            (group.group_snapshot_id, group.snapshots.into_iter().map(|it| it.snapshot_id).collect::<Vec<_>>())
        };
        self.import_group(&name, &id, &members);
        if self.member_rng.random_bool(0.5) && !id.starts_with("no-") {
            self.give_members(&name, &members);
        }
        if self.later_rng.random_bool(0.3) {
            let _ = self.stage.testbed.api.delete_object(kind(CONTENTS), "", &name);
        }
    }

    /// A content of a group that was there before it, perhaps with a `VolumeGroupSnapshot`.
    pub(super) fn import_group(&mut self, name: &str, id: &str, members: &[String]) {
        let policy = ["Delete", "Retain"][usize::from(self.later_rng.random_bool(0.4))];
        let mut content = json!({ "apiVersion": format!("{API}/v1"), "kind": "VolumeGroupSnapshotContent",
            "metadata": { "name": name },
            "spec": { "driver": DRIVER, "deletionPolicy": policy, "volumeGroupSnapshotClassName": CLASSES[0],
                "source": { "groupSnapshotHandles": {
                    "volumeGroupSnapshotHandle": id, "volumeSnapshotHandles": members } },
                "volumeGroupSnapshotRef": { "namespace": "default", "name": format!("group-{name}") } } });
        if self.later_rng.random_bool(0.6) {
            content["metadata"]["finalizers"] = json!([FINALIZER]);
        }
        if self.setting.is_secretive {
            content["metadata"]["annotations"] = json!({
                "groupsnapshot.storage.kubernetes.io/deletion-secret-name": secret_name(SECRET),
                "groupsnapshot.storage.kubernetes.io/deletion-secret-namespace": "kube-system" });
        }
        self.stage.testbed.api.create_value(content).unwrap();
        if self.later_rng.random_bool(0.5) {
            let group = json!({ "apiVersion": format!("{API}/v1"), "kind": "VolumeGroupSnapshot",
                "metadata": { "name": format!("group-{name}") },
                "spec": { "source": { "volumeGroupSnapshotContentName": name } } });
            self.stage.testbed.api.create_value(group).unwrap();
        }
    }

    /// Contents of the snapshots of a group that was there before, with `VolumeSnapshots` that the group owns, or does not.
    fn give_members(&mut self, group: &str, ids: &[String]) {
        self.checks().grouped.extend(ids.iter().cloned());
        let owner = self.stage.testbed.api.object(kind(GROUPS), "default", &format!("group-{group}"));
        for (at, id) in ids.iter().enumerate() {
            let name = format!("{group}-member-{at}");
            let policy = ["Delete", "Retain"][usize::from(self.member_rng.random_bool(0.15))];
            let is_protected = self.member_rng.random_bool(0.5);
            let content = self.given(&name, id, policy, is_protected);
            self.stage.testbed.api.create_value(content).unwrap();
            let mut snapshot = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": { "name": format!("snap-{name}") },
                "spec": { "source": { "volumeSnapshotContentName": name } } });
            // The snapshot-controller knows the members of a group by the version of its own, and others are collected after it.
            let version = ["v1", "v1beta2"][usize::from(self.member_rng.random_bool(0.5))];
            if let Some(owner) = owner.as_ref().filter(|_| self.member_rng.random_bool(0.7)) {
                snapshot["metadata"]["ownerReferences"] = json!([{ "apiVersion": format!("{API}/{version}"),
                    "kind": "VolumeGroupSnapshot", "name": text(owner, "/metadata/name"), "uid": text(owner, "/metadata/uid") }]);
            }
            self.stage.testbed.api.create_value(snapshot).unwrap();
        }
    }

    fn make_group(&mut self) {
        let name = format!("g-{}", self.group_rng.random_range(0..NAMES));
        let class = CLASSES[usize::from(self.group_rng.random_bool(0.25))];
        let label = LABELS[self.group_rng.random_range(0..LABELS.len())];
        let mut labels = json!({});
        labels[label] = "yes".into();
        // One of that name may be there.
        let _ = self.stage.testbed.api.create_value(
            json!({ "apiVersion": format!("{API}/v1"), "kind": "VolumeGroupSnapshot",
            "metadata": { "name": name }, "spec": { "volumeGroupSnapshotClassName": class,
                "source": { "selector": { "matchLabels": labels } } } }),
        );
    }

    fn patch_a_group_content(&mut self, body: Value) {
        let all: Vec<Arc<Value>> = self.stage.testbed.api.objects(kind(CONTENTS), "").unwrap();
        if !all.is_empty() {
            let content = &all[self.group_rng.random_range(0..all.len())];
            let name = text(content, "/metadata/name").to_owned();
            let _ = self.stage.testbed.api.patch_object(kind(CONTENTS), "", &name, PatchBody::Merge(body), false);
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
        let daemon = self.group_rng.random_range(0..self.stage.daemons.len());
        let verb = ["patch", "patch", "get"][self.group_rng.random_range(0..3)];
        let on = Matching::any().user(DAEMONS[daemon]).verb(verb).resource(CONTENTS);
        ApiFault::on(on, action).times(self.group_rng.random_range(1..=3))
    }
}

//! People remove contents by force at any moment, and put snapshots and groups into other contents.

use std::sync::Arc;

use csi_control_plane::sandbox::api::PatchBody;
use rand::RngExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::checks::{self, annotation, is_member};
use super::contents::{Fields, OF_GROUPS, OF_SNAPSHOTS};
use super::groups;
use super::happening::Own;
use super::play::Play;
use super::{groups_happening, play};
use crate::stage::Undo;
use crate::world::{DRIVER, is_deleting, text};

/// The names of contents that keep a snapshot of a group begin so.
pub(super) const KEPT: &str = "kept-";
/// The names of contents of what other contents name as well begin so.
const AGAIN: &str = "again-";

/// A kind of contents: its own plural, and that of the owners.
#[derive(Debug, Clone, Copy)]
struct Kind {
    contents: &'static str,
    owners: &'static str,
    owner: &'static str,
    mark: &'static str,
}

const SINGLE: Kind = Kind {
    contents: checks::CONTENTS,
    owners: checks::SNAPSHOTS,
    owner: "/spec/volumeSnapshotRef/name",
    mark: checks::MARK,
};
const GROUP: Kind = Kind {
    contents: groups::CONTENTS,
    owners: groups::GROUPS,
    owner: "/spec/volumeGroupSnapshotRef/name",
    mark: groups::MARK,
};

fn resource(plural: &str) -> &'static csi_control_plane::sandbox::api::pure::resources::Resource {
    if plural.contains("group") { groups_happening::kind(plural) } else { play::kind(plural) }
}

impl Play {
    /// Something may happen to what is in the way of somebody, or is dear to somebody.
    pub(super) fn happen_by_force(&mut self) {
        match self.later_rng.random_range(0..20) {
            0..3 => self.force_one(false),
            3..6 => self.force_one(true),
            6..8 => self.import_again(),
            8 if self.setting.takes_groups => self.import_group_again(),
            9 if self.setting.takes_groups => self.keep_a_member(),
            10..12 => {
                let all = self.contents_of(SINGLE).into_iter().chain(self.contents_of(GROUP));
                let name = |(_, it): &(Kind, Arc<Value>)| text(it, "/metadata/name").to_owned();
                let all: Vec<_> =
                    all.filter(|it| [AGAIN, KEPT].iter().any(|stem| name(it).starts_with(stem))).collect();
                if let Some(at) = self.any_of(all.len()) {
                    let _ = self.stage.testbed.api.delete_object(resource(all[at].0.contents), "", &name(&all[at]));
                }
            }
            _ => {}
        }
    }

    fn any_of(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.later_rng.random_range(0..count))
    }

    fn contents_of(&self, kind: Kind) -> Vec<(Kind, Arc<Value>)> {
        let all = self.stage.testbed.api.objects(resource(kind.contents), "").unwrap_or_default();
        let ours = |it: &Arc<Value>| text(it, "/spec/driver") == DRIVER && !is_member(it);
        all.into_iter().filter(ours).map(|it| (kind, it)).collect()
    }

    /// Somebody removes a content by force: at once, or when it, or what it is for, has not gone by itself; or keeps its snapshot first.
    fn force_one(&mut self, is_unanswered: bool) {
        let all = self.contents_of(SINGLE).into_iter().chain(self.contents_of(GROUP));
        let is_wanted = |(kind, it): &(Kind, Arc<Value>)| !is_unanswered || annotation(it, kind.mark).is_some();
        let all: Vec<_> = all.filter(is_wanted).collect();
        let Some(at) = self.any_of(all.len()) else { return };
        let (kind, content) = &all[at];
        let (contents, name) = (kind.contents, text(content, "/metadata/name").to_owned());
        let wait = match self.later_rng.random_range(0..5) {
            0 => {
                let _ = self.stage.testbed.api.delete_object(resource(contents), "", &name);
                8.0
            }
            1 => {
                let owner = text(content, kind.owner);
                let _ = self.stage.testbed.api.delete_object(resource(kind.owners), "default", owner);
                5.0
            }
            2 => {
                let kept = PatchBody::Merge(json!({ "spec": { "deletionPolicy": "Retain" } }));
                let _ = self.stage.testbed.api.patch_object(resource(contents), "", &name, kept, false);
                3.0
            }
            _ => return self.remove_by_force(contents, &name),
        };
        let wait = std::time::Duration::from_secs_f64(self.later_rng.random_range(0.0..wait));
        self.stage.agenda.push((Instant::now() + wait, Undo::Own(Own::Force(contents, name))));
    }

    /// Takes all finalizers off a content, and deletes it.
    pub(super) fn remove_by_force(&self, plural: &'static str, name: &str) {
        let bare = PatchBody::Merge(json!({ "metadata": { "finalizers": null } }));
        // It may be gone.
        let _ = self.stage.testbed.api.patch_object(resource(plural), "", name, bare, false);
        let _ = self.stage.testbed.api.delete_object(resource(plural), "", name);
    }

    /// Whether nobody has asked for the deletion of what the driver has as `id` by the name `name`.
    fn is_safe(&self, kind: Kind, fields: Fields, id: &str, name: &str) -> bool {
        let owner = |it: &Value| text(it, &kind.owner.replace("/name", "/uid")).to_owned();
        let is_of = |it: &Value| fields.handle(it) == id || (!owner(it).is_empty() && name.ends_with(&owner(it)));
        !self.contents_of(kind).iter().any(|(_, it)| is_deleting(it) && is_of(it))
    }

    /// A user puts a snapshot that the driver has into a content, perhaps into a second one.
    fn import_again(&mut self) {
        let state = self.stage.testbed.driver.state();
        let alone = state.snapshots().iter().filter(|(_, it)| it.group.is_empty());
        let ids: Vec<&String> =
            alone.filter(|(id, it)| self.is_safe(SINGLE, OF_SNAPSHOTS, id, &it.name)).map(|(id, _)| id).collect();
        let Some(at) = self.any_of(ids.len()) else { return };
        self.made += 1;
        let name = format!("{AGAIN}{}", self.made);
        let policy = ["Delete", "Retain"][usize::from(self.later_rng.random_bool(0.5))];
        let is_protected = self.later_rng.random_bool(0.5);
        let content = self.given(&name, ids[at], policy, is_protected);
        self.stage.testbed.api.create_value(content).unwrap();
        if self.later_rng.random_bool(0.4) {
            let snapshot = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "metadata": { "name": format!("snap-{name}") },
                "spec": { "source": { "volumeSnapshotContentName": name } } });
            self.stage.testbed.api.create_value(snapshot).unwrap();
        }
    }

    fn import_group_again(&mut self) {
        let state = self.stage.testbed.driver.state();
        let all = state.groups().iter();
        let ids: Vec<&String> =
            all.filter(|(id, it)| self.is_safe(GROUP, OF_GROUPS, id, &it.name)).map(|(id, _)| id).collect();
        let Some(at) = self.any_of(ids.len()) else { return };
        self.made += 1;
        let name = format!("{AGAIN}{}", self.made);
        let members: Vec<String> = state.members(ids[at]).into_iter().collect();
        self.import_group(&name, ids[at], &members);
    }

    /// A user keeps a snapshot of a group in a content of its own.
    fn keep_a_member(&mut self) {
        let state = self.stage.testbed.driver.state();
        let safe = |group: &String| {
            state.groups().get(group).is_some_and(|it| self.is_safe(GROUP, OF_GROUPS, group, &it.name))
        };
        let ids: Vec<&String> = state.snapshots().iter().filter(|(_, it)| safe(&it.group)).map(|(id, _)| id).collect();
        let Some(at) = self.any_of(ids.len()) else { return };
        self.made += 1;
        let content = self.given(&format!("{KEPT}{}", self.made), ids[at], "Retain", true);
        self.stage.testbed.api.create_value(content).unwrap();
    }
}

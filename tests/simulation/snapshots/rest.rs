//! The checks of the end, when nothing goes wrong any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::driver::{Call, Method};
use serde_json::Value;

use super::checks::{CONTENTS, Checks, INTENT, MARK, OWNER, annotation, handle, is_member, is_protected, is_ready};
use super::contents::{Content, OF_SNAPSHOTS};
use super::force;
use super::invariants::Rule;
use crate::world::{DAEMONS, DRIVER, is_deleting, text};

impl Checks {
    fn alive(&self) -> impl Iterator<Item = &Value> {
        let ours = |it: &&Value| text(it, "/spec/driver") == DRIVER;
        self.contents.values().filter(|it| !it.is_gone).map(|it| &it.object).filter(ours)
    }

    /// Another snapshot is in the way: one that the driver denied once, or whose request or content others have taken away.
    fn is_barred(&self, content: &Value) -> bool {
        let (owner, says) = (text(content, OWNER), text(content, "/status/error/message"));
        let is_left = self.is_excused(owner) || self.is_forced(owner);
        is_left && ["AlreadyExists", "one of them is nobody's"].iter().any(|it| says.contains(it))
    }

    /// Unfinished work (I12), and remains on contents (I11).
    pub(super) fn unrest(&self) -> Vec<(Rule, String)> {
        let mut faults = Vec::new();
        for content in self.alive().filter(|it| !self.is_barred(it) && !self.is_stuck(it)) {
            let name = text(content, "/metadata/name");
            let is_unwanted = OF_SNAPSHOTS.is_unwanted(content);
            let waits = is_deleting(content) && !is_unwanted;
            // Without the finalizer no snapshot is taken any more.
            let is_left_alone = waits && !is_protected(content) && handle(content).is_empty();
            if is_deleting(content) && is_unwanted && is_protected(content) {
                faults.push((Rule::I12, format!("{name} is still there: {content}")));
            } else if !is_deleting(content) && !is_ready(content) && !is_left_alone && !self.is_missing(content) {
                faults.push((Rule::I12, format!("{name} is not ready: {content}")));
            }
            if annotation(content, MARK).is_some() || annotation(content, INTENT).is_some() {
                faults.push((Rule::I11, format!("{name} says that a call is unanswered: {content}")));
            }
        }
        for (name, snapshot) in &self.snapshots {
            let (uid, given) =
                (text(snapshot, "/metadata/uid"), text(snapshot, "/spec/source/volumeSnapshotContentName"));
            let is_its =
                |it: &&Value| text(it, OWNER) == uid || (!given.is_empty() && text(it, "/metadata/name") == given);
            match self.alive().find(is_its) {
                Some(content) if self.is_barred(content) || is_deleting(content) || self.is_missing(content) => {}
                // Removed by a user, by force.
                None if !given.is_empty() => {}
                _ if is_deleting(snapshot) => faults.push((Rule::I12, format!("{name} is still there: {snapshot}"))),
                _ if !is_ready(snapshot) => faults.push((Rule::I12, format!("{name} is not ready: {snapshot}"))),
                _ => {}
            }
        }
        for name in self.owed.unfinished(OF_SNAPSHOTS, &self.contents, self.reign.terms) {
            faults.push((Rule::I14, format!("nobody asks for {name} any more, and its content was removed by force")));
        }
        faults
    }

    /// Snapshots that the driver has for no content (I14), twice (I13), or no more (I6).
    pub(super) fn leaks(&self) -> Vec<(Rule, String)> {
        let mut faults = Vec::new();
        let named: BTreeSet<&str> = self.alive().map(handle).collect();
        let owners: BTreeSet<&str> =
            self.contents.values().map(|it| text(&it.object, OWNER)).filter(|it| !it.is_empty()).collect();
        for owner in owners.into_iter().filter(|it| !self.is_excused(it) && !self.is_forced(it)) {
            let cut = self.cut_for(owner);
            if cut.len() > 1 {
                faults.push((Rule::I13, format!("the driver has {cut:?} for {owner}")));
            }
        }
        // A snapshot of a group goes with that.
        let is_safe = |id: &String| self.retained.contains(id) || self.grouped.contains(id);
        let is_left = |(id, _): &(&String, &String)| !named.contains(id.as_str()) && !is_safe(id);
        for (id, name) in self.held.iter().filter(is_left) {
            let is_its = |it: &&Content| OF_SNAPSHOTS.is_named_for(it, name) || OF_SNAPSHOTS.had(it, id);
            let contents: Vec<&Content> =
                self.contents.values().filter(|it| !is_member(&it.object)).filter(is_its).collect();
            let is_excused = |it: &&Content| {
                self.is_excused(text(&it.object, OWNER))
                    || force::excuse(OF_SNAPSHOTS, it, (id, name), &self.owed, self.reign.terms).is_some()
            };
            if !contents.is_empty() && !contents.iter().any(is_excused) {
                faults.push((Rule::I14, format!("the driver has {id}, {name}, and no content has it any more")));
            }
        }
        for content in self.alive() {
            let id = handle(content);
            if !id.is_empty()
                && !is_deleting(content)
                && !self.held.contains_key(id)
                && !self.is_excused(text(content, OWNER))
                && !self.is_late(content)
            {
                faults.push((Rule::I6, format!("{id} is gone, and its content lives: {content}")));
            }
        }
        faults
    }

    /// Whether the deletion of the snapshot that a content names had been asked for before the content was made, or the snapshot may
    /// have gone with its group.
    fn is_late(&self, content: &Value) -> bool {
        let is_of_group = OF_SNAPSHOTS.is_given(content) && self.grouped.contains(handle(content));
        let content = self.contents.get(text(content, "/metadata/uid"));
        content.is_some_and(|it| it.is_late || (is_of_group && it.may_go()))
    }

    /// Whether the driver refuses to delete a snapshot by itself, because it is of a group, and nothing has told the daemon so: the group
    /// had no content any more, or none yet, when the snapshot was looked up.
    fn is_stuck(&self, content: &Value) -> bool {
        let id = handle(content);
        is_deleting(content) && self.grouped.contains(id) && self.held.contains_key(id) && self.is_unaware(id)
    }

    /// Whether a content came too late, and says that its snapshot is gone.
    fn is_missing(&self, content: &Value) -> bool {
        let says_so = !text(content, "/status/error/message").is_empty();
        says_so && self.is_late(content) && !self.held.contains_key(handle(content))
    }

    /// Whether a content waits for the deletion of its `VolumeSnapshot`, and the driver has its snapshot no more: it is looked for
    /// again and again, as that of every content that is not ready.
    fn is_missed(&self, content: &Value) -> bool {
        let is_waiting = is_deleting(content) || self.is_missing(content);
        is_waiting && !is_ready(content) && !self.held.contains_key(handle(content))
    }

    /// The requests to the API and the driver while there was no work.
    pub(super) fn disturbed(&mut self, requests: &[Entry], calls: &[Arc<Call>]) {
        if self.contents.values().any(|it| !it.is_gone && (self.is_barred(&it.object) || self.is_stuck(&it.object))) {
            return;
        }
        for entry in requests.iter().filter(|it| DAEMONS.contains(&it.user.as_str())) {
            let writes = !matches!(entry.verb, "get" | "list" | "watch");
            // How often an Event has happened is written up to five minutes later.
            let is_recount = entry.resource == "events" && entry.verb == "patch";
            let is_read =
                entry.verb == "get" && entry.resource == CONTENTS && !self.owed.is_content_barred(&entry.name);
            if (writes && entry.resource != "leases" && !is_recount) || is_read {
                self.violate(Rule::Quiet, format_args!("{} {} {}", entry.verb, entry.resource, entry.name));
            }
        }
        let works = [Method::CreateSnapshot, Method::DeleteSnapshot, Method::ListSnapshots, Method::GetSnapshot];
        let missed: BTreeSet<String> =
            self.alive().filter(|it| self.is_missed(it)).map(|it| handle(it).to_owned()).collect();
        let is_looked_for = |call: &Call| {
            let listed = call.list.as_ref().map(|list| &list.snapshot_id);
            [call.snapshot.as_ref(), listed].into_iter().flatten().any(|id| missed.contains(id))
        };
        let is_barred = |call: &Call| call.snapshot.as_ref().is_some_and(|name| self.owed.is_barred(name));
        let needless = |call: &&Arc<Call>| works.contains(&call.method) && !is_looked_for(call) && !is_barred(call);
        let needless: Vec<&Arc<Call>> = calls.iter().filter(needless).collect();
        for call in needless {
            self.violate(Rule::Quiet, format_args!("{} of {:?}", call.method, call.snapshot));
        }
    }
}

//! The checks of the end, when nothing goes wrong any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::driver::{Call, Method};
use serde_json::Value;

use super::checks::{CONTENTS, Checks, GIVEN, INTENT, LOST, MARK, OWNER, annotation, handle, is_protected, is_ready};
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
        for content in self.alive().filter(|it| !self.is_barred(it)) {
            let name = text(content, "/metadata/name");
            let is_unbound = text(content, OWNER).is_empty() && !text(content, GIVEN).is_empty();
            let is_unwanted = annotation(content, LOST).is_some() || is_unbound;
            let waits = is_deleting(content) && !is_unwanted;
            // Without the finalizer no snapshot is taken any more.
            let is_left_alone = waits && !is_protected(content) && handle(content).is_empty();
            if is_deleting(content) && is_unwanted && is_protected(content) {
                faults.push((Rule::I12, format!("{name} is still there: {content}")));
            } else if !is_deleting(content) && !is_ready(content) && !is_left_alone {
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
                Some(content) if self.is_barred(content) || is_deleting(content) => {}
                // Removed by a user, by force.
                None if !given.is_empty() => {}
                _ if is_deleting(snapshot) => faults.push((Rule::I12, format!("{name} is still there: {snapshot}"))),
                _ if !is_ready(snapshot) => faults.push((Rule::I12, format!("{name} is not ready: {snapshot}"))),
                _ => {}
            }
        }
        faults
    }

    /// Snapshots that the driver has for no content (I14), twice (I13), or no more (I6).
    pub(super) fn leaks(&self) -> Vec<(Rule, String)> {
        let mut faults = Vec::new();
        let named: BTreeSet<&str> = self.alive().map(handle).collect();
        let owners: BTreeSet<&str> =
            self.contents.values().map(|it| text(&it.object, OWNER)).filter(|it| !it.is_empty()).collect();
        for owner in owners.into_iter().filter(|it| !self.is_excused(it)) {
            let cut = self.cut_for(owner);
            if cut.len() > 1 && !self.is_forced(owner) {
                faults.push((Rule::I13, format!("the driver has {cut:?} for {owner}")));
            }
            for id in cut.iter().filter(|it| !named.contains(it.as_str()) && !self.retained.contains(*it)) {
                if !self.is_left_by_force(owner, id) {
                    faults.push((Rule::I14, format!("the driver has {id} for {owner}, and no content has it")));
                }
            }
        }
        for content in self.alive() {
            let id = handle(content);
            if !id.is_empty()
                && !is_deleting(content)
                && !self.held.contains_key(id)
                && !self.is_excused(text(content, OWNER))
            {
                faults.push((Rule::I6, format!("{id} is gone, and its content lives: {content}")));
            }
        }
        faults
    }

    /// Whether a content with this snapshot was removed by force, when its handle was stored or the daemon that remembered the
    /// call has ended since; or its policy kept it.
    pub(super) fn is_left_by_force(&self, owner: &str, id: &str) -> bool {
        let is_its = |it: &&super::checks::Content| text(&it.object, OWNER) == owner;
        self.contents.values().filter(is_its).any(|it| {
            let is_kept = text(&it.object, super::checks::POLICY) == "Retain";
            it.forced_in.is_some_and(|term| it.handle == id || term != self.terms || is_kept)
        })
    }

    /// Whether a content waits for the deletion of its `VolumeSnapshot`, and the driver has its snapshot no more: it is looked for
    /// again and again, as that of every content that is not ready.
    fn is_missed(&self, content: &Value) -> bool {
        is_deleting(content) && !is_ready(content) && !self.held.contains_key(handle(content))
    }

    /// The requests to the API and the driver while there was no work.
    pub(super) fn disturbed(&mut self, requests: &[Entry], calls: &[Arc<Call>]) {
        if self.contents.values().any(|it| !it.is_gone && self.is_barred(&it.object)) {
            return;
        }
        for entry in requests.iter().filter(|it| DAEMONS.contains(&it.user.as_str())) {
            let writes = !matches!(entry.verb, "get" | "list" | "watch");
            // How often an Event has happened is written up to five minutes later.
            let is_recount = entry.resource == "events" && entry.verb == "patch";
            if (writes && entry.resource != "leases" && !is_recount)
                || (entry.verb == "get" && entry.resource == CONTENTS)
            {
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
        for call in calls.iter().filter(|it| works.contains(&it.method) && !is_looked_for(it)) {
            self.violate(Rule::Quiet, format_args!("{} of {:?}", call.method, call.snapshot));
        }
    }
}

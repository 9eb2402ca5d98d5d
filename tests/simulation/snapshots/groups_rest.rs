//! The checks of groups at the end, when nothing goes wrong any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use csi_control_plane::sandbox::driver::Call;
use serde_json::Value;

use super::checks::{Checks, INTENT, annotation, is_ready};
use super::contents::{Content, OF_GROUPS};
use super::force;
use super::groups::{CALLS, Groups, MARK, OWNER, is_protected};
use super::invariants::Rule;
use crate::world::{is_deleting, text};

impl Groups {
    /// Another group is in the way: one that the driver denied once, or whose content others have taken away.
    fn is_barred(&self, content: &Value) -> bool {
        let owner = text(content, OWNER);
        let is_left = self.is_excused(owner) || self.is_forced(owner);
        is_left && text(content, "/status/error/message").contains("AlreadyExists")
    }

    /// Whether the driver has never had the group that a content names, or its deletion had been asked for before the content was made.
    fn is_astray(&self, content: &Value) -> bool {
        let is_late = self.contents.get(text(content, "/metadata/uid")).is_some_and(|it| it.is_late);
        OF_GROUPS.is_given(content) && (is_late || !self.has_had(OF_GROUPS.handle(content)))
    }

    /// Whether a content names a group that is not there for such a reason, and says so.
    fn is_missing(&self, content: &Value) -> bool {
        let says_so = !text(content, "/status/error/message").is_empty();
        says_so && self.is_astray(content) && !self.held.contains_key(OF_GROUPS.handle(content))
    }

    /// Whether a content is being deleted, and somebody needs a snapshot of its group.
    fn is_needed(&self, content: &Value, of_singles: &Checks) -> bool {
        is_deleting(content) && self.keeper(OF_GROUPS.handle(content), of_singles).is_some()
    }

    /// Unfinished work (I12), and remains on contents (I11).
    pub(super) fn unrest(&self, of_singles: &Checks) -> Vec<(Rule, String)> {
        let mut faults = Vec::new();
        for content in self.alive().filter(|it| !self.is_barred(it)) {
            let name = text(content, "/metadata/name");
            if self.is_needed(content, of_singles) {
                // Its deletion waits.
            } else if is_deleting(content) && OF_GROUPS.is_unwanted(content) && is_protected(content) {
                faults.push((Rule::I12, format!("{name} is still there: {content}")));
            } else if !is_deleting(content) && !is_ready(content) && !self.is_missing(content) {
                faults.push((Rule::I12, format!("{name} is not ready: {content}")));
            }
            if annotation(content, MARK).is_some() || annotation(content, INTENT).is_some() {
                faults.push((Rule::I11, format!("{name} says that a call is unanswered: {content}")));
            }
        }
        for (name, group) in &self.wanted {
            let given = text(group, "/spec/source/volumeGroupSnapshotContentName");
            let content = self.alive().find(|it| text(it, OWNER) == text(group, "/metadata/uid"));
            match content {
                Some(content)
                    if self.is_barred(content) || self.is_missing(content) || self.is_needed(content, of_singles) => {}
                // Somebody deletes it by hand, and it waits for the group.
                Some(content) if is_deleting(content) && !is_deleting(group) => {}
                // Removed by a user, perhaps before the group was bound to it.
                None if !given.is_empty() && !is_deleting(group) => {}
                // It waits for its snapshots, which are judged by themselves: without the content, nobody can delete the driver's group.
                None if is_deleting(group) && of_singles.has_owned(text(group, "/metadata/uid")) => {}
                _ if is_deleting(group) || !is_ready(group) => {
                    faults.push((Rule::I12, format!("{name} is not ready, or still there: {group}")));
                }
                _ => {}
            }
        }
        for name in self.owed.unfinished(OF_GROUPS, &self.contents, self.terms) {
            faults.push((Rule::I14, format!("nobody asks for {name} any more, and its content was removed by force")));
        }
        faults
    }

    /// Groups that the driver has for no content (I14), twice (I13), or no more (I6).
    pub(super) fn leaks(&self, of_singles: &Checks) -> Vec<(Rule, String)> {
        let mut faults = Vec::new();
        let named: BTreeSet<&str> = self.alive().map(|it| OF_GROUPS.handle(it)).collect();
        for owner in self.demands.keys().filter(|it| !self.is_excused(it) && !self.is_forced(it)) {
            let cut = self.cut_for(owner);
            if cut.len() > 1 {
                faults.push((Rule::I13, format!("the driver has {cut:?} for {owner}")));
            }
        }
        let is_left = |(id, _): &(&String, &String)| !named.contains(id.as_str()) && !self.retained.contains(*id);
        for (id, name) in self.held.iter().filter(is_left) {
            let is_its = |it: &&Content| OF_GROUPS.is_named_for(it, name) || OF_GROUPS.had(it, id);
            let contents: Vec<&Content> = self.contents.values().filter(is_its).collect();
            let is_excused = |it: &&Content| {
                self.is_excused(text(&it.object, OWNER))
                    || force::excuse(OF_GROUPS, it, (id, name), &self.owed, self.terms).is_some()
                    || (it.forced_in.is_some() && self.keeper(id, of_singles).is_some())
            };
            if !contents.is_empty() && !contents.iter().any(is_excused) {
                faults.push((Rule::I14, format!("the driver has {id}, {name}, and no content has it any more")));
            }
        }
        for content in self.alive().filter(|it| !is_deleting(it) && !self.is_excused(text(it, OWNER))) {
            let id = OF_GROUPS.handle(content);
            if !id.is_empty() && !self.held.contains_key(id) && !self.is_astray(content) {
                faults.push((Rule::I6, format!("{id} is gone, and its content lives: {content}")));
            }
        }
        faults
    }

    /// The calls while there was no work.
    pub(super) fn disturbed(&mut self, calls: &[Arc<Call>]) {
        if self.alive().any(|it| self.is_barred(it)) {
            return;
        }
        let missed: BTreeSet<String> =
            self.alive().filter(|it| self.is_missing(it)).map(|it| OF_GROUPS.handle(it).to_owned()).collect();
        let is_waited_for = |id: &String| missed.contains(id) || self.owed.is_barred(id);
        let is_needless =
            |call: &&Arc<Call>| CALLS.contains(&call.method) && !call.snapshot.as_ref().is_some_and(is_waited_for);
        let needless: Vec<&Arc<Call>> = calls.iter().filter(is_needless).collect();
        for call in needless {
            self.violate(Rule::Quiet, format_args!("{} of {:?}", call.method, call.snapshot));
        }
    }
}

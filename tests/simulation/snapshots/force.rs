//! What must become of a content that somebody removes by force (snapshotter spec 14, L9): the daemon whose call was unanswered asks
//! until the answer is final, and then has the snapshot deleted if the policy was `Delete` and nobody else needs it.
//!
//! A snapshot that is left over at the driver is excused in these cases, and in no other:
//!
//! | left over | why no daemon is at fault |
//! |---|---|
//! | its handle was on the content | no answer was owed any more, and the content that would have asked for a deletion is gone |
//! | the term has ended since | only the process remembered the call: nothing in the cluster or at the driver says whose the snapshot is |
//! | the content said `Retain` | its user has kept it |
//! | a later content of the same owner asks by the same name for something else | it is told `AlreadyExists`, says so, and goes on asking |
//! | of a group: another content needs one of its snapshots | the driver deletes a group as a whole |
//!
//! The first one includes the moment between the status and the removal of the mark. A driver that denies what it has is excused
//! elsewhere, and so is a request that was wiped before the daemon that remembered it ended.

use std::collections::BTreeMap;

use tonic::Code;

use super::checks::POLICY;
use super::contents::{Content, Contents, Fields};
use crate::world::text;

/// Why nobody is at fault for what the driver still has as `id` by the name `name`, though nobody names it any more.
pub(super) fn excuse(
    fields: Fields,
    content: &Content,
    (id, name): (&str, &str),
    owed: &Owed,
    terms: u64,
) -> Option<&'static str> {
    let term = content.forced_in?;
    if fields.had(content, id) {
        return Some("its handle was on the content");
    }
    if !content.asked.contains(name) {
        return None;
    }
    if term != terms {
        return Some("the daemon that owed the answer has ended");
    }
    if owed.is_barred(name) {
        return Some("it is in the way of a later content, which says so");
    }
    (text(&content.object, POLICY) == "Retain").then_some("its user has kept it")
}

/// The requests without a final answer, by their names, with the last code.
#[derive(Debug, Default)]
pub(super) struct Owed(BTreeMap<String, Option<Code>>);

impl Owed {
    pub(super) fn asked(&mut self, name: &str) {
        self.0.entry(name.to_owned()).or_default();
    }

    /// The driver has answered: with a snapshot, or with this code.
    pub(super) fn ended(&mut self, name: &str, code: Option<Code>) {
        match code.filter(|code| !super::calls::is_final(*code)) {
            Some(code) => drop(self.0.get_mut(name).map(|last| *last = Some(code))),
            None => drop(self.0.remove(name)),
        }
    }

    /// The requests of contents that were removed by force in this term, and that the daemon must still ask for.
    pub(super) fn unfinished(&self, fields: Fields, contents: &Contents, terms: u64) -> Vec<&str> {
        let is_its = |name: &str| {
            let mut of_owner = contents.values().filter(|it| fields.is_named_for(it, name)).peekable();
            let is_alive = of_owner.clone().any(|it| !it.is_gone);
            !is_alive && of_owner.any(|it| it.asked.contains(name) && it.is_begun && it.forced_in == Some(terms))
        };
        self.0.iter().filter(|(name, last)| !is_barred(**last) && is_its(name)).map(|(name, _)| &**name).collect()
    }

    /// Whether the driver has another snapshot of this name: it is asked for again and again.
    pub(super) fn is_barred(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|last| is_barred(*last))
    }

    /// The same for the content that the snapshot-controller makes, by its name.
    pub(super) fn is_content_barred(&self, content: &str) -> bool {
        let owner = content.split_once('-').map_or("", |(_, owner)| owner);
        !owner.is_empty() && self.0.iter().any(|(name, last)| is_barred(*last) && name.ends_with(owner))
    }
}

fn is_barred(last: Option<Code>) -> bool {
    last == Some(Code::AlreadyExists)
}

//! Objects over time: what each was, or may have been, at an instant. Pure.

use std::collections::BTreeMap;

use super::audit::{Kind, Object, Write};
use super::time::Time;

/// One object, from its first write to its last.
#[derive(Debug)]
pub(super) struct History<'a> {
    pub(super) kind: Kind,
    pub(super) name: &'a str,
    /// In the order of their effect. What took it away is the last.
    pub(super) writes: Vec<&'a Write>,
    /// Those that may have had an effect, with the object that would have come of it.
    uncertain: Vec<Write>,
}

impl<'a> History<'a> {
    /// What it may have been at an instant. Empty: it was not there.
    pub(super) fn at(&self, at: Time) -> impl Iterator<Item = &Write> {
        self.since(at, |write| write.from)
    }

    /// What somebody can have known of it at an instant who has it from the answers to its writes.
    pub(super) fn known_at(&self, at: Time) -> impl Iterator<Item = &Write> {
        self.since(at, |write| write.known)
    }

    /// The writes that may have been the last one with an effect, where none is one before its `begin`.
    fn since(&self, at: Time, begin: impl Fn(&Write) -> Time) -> impl Iterator<Item = &Write> {
        let settled = self.writes.iter().rposition(|write| write.to < at).unwrap_or_default();
        // What a later write was answered with has the effect of an uncertain one, if it had any.
        let is_open = move |it: &&Write| {
            it.from <= at && !self.writes.iter().any(|write| write.from >= it.to && write.from <= at)
        };
        let uncertain = self.uncertain.iter().filter(is_open);
        self.writes[settled..].iter().filter(move |write| begin(write) <= at).copied().chain(uncertain)
    }

    /// Whether it was surely like this at an instant.
    pub(super) fn was_surely(&self, at: Time, like: impl Fn(&Object) -> bool) -> bool {
        let settled = self.writes.iter().any(|write| write.to < at);
        settled && self.at(at).all(|write| write.object.as_ref().is_some_and(&like))
    }

    /// Whether it may have been like this at an instant.
    pub(super) fn may_have_been(&self, at: Time, like: impl Fn(&Object) -> bool) -> bool {
        self.at(at).any(|write| write.object.as_ref().is_some_and(&like))
    }

    /// Whether it was like this at any time.
    pub(super) fn was_ever(&self, like: impl Fn(&Object) -> bool) -> bool {
        self.writes.iter().filter_map(|write| write.object.as_ref()).any(like)
    }

    /// What it is at the end of the record. `None`: it is gone.
    pub(super) fn last(&self) -> Option<&'a Object> {
        self.writes.last()?.object.as_ref()
    }

    /// The writes that took this finalizer away, each with what was before.
    pub(super) fn removals(&self, finalizer: &str) -> impl Iterator<Item = (&'a Object, &'a Write)> {
        let has = move |object: &Object| object.finalizers.iter().any(|it| it == finalizer);
        let steps = self.writes.windows(2).filter_map(|pair| Some((pair[0].object.as_ref()?, pair[1])));
        steps.filter(move |(before, write)| has(before) && !write.object.as_ref().is_some_and(has))
    }
}

/// An uncertain write with the object that would have come of it: the one that was there, with what it set, or on its way out.
fn come_of(uncertain: &Write, writes: &[&Write]) -> Option<Write> {
    let there = writes.iter().rev().find(|write| write.from <= uncertain.to)?.object.as_ref()?;
    let mut object = there.clone();
    if let Some(set) = &uncertain.object {
        object.finalizers.extend(set.finalizers.iter().cloned());
        object.node = set.node.clone().or(object.node);
        object.handle = set.handle.clone().or(object.handle);
    }
    object.is_deleting |= uncertain.verb.starts_with("delete");
    let is_gone = object.is_deleting && object.finalizers.is_empty();
    Some(Write { object: (!is_gone).then_some(object), ..uncertain.clone() })
}

/// All objects that these writes tell of.
pub(super) fn histories<'a>(writes: &[&'a Write]) -> Vec<History<'a>> {
    let mut current: BTreeMap<(Kind, &str), &str> = BTreeMap::new();
    let mut all: BTreeMap<(Kind, &str, &str), Vec<&'a Write>> = BTreeMap::new();
    for &write in writes {
        let name = (write.kind, write.name.as_str());
        // Some answers to a deletion have no uid.
        let uid = if write.uid.is_empty() { current.get(&name).copied().unwrap_or_default() } else { &write.uid };
        current.insert(name, uid);
        all.entry((write.kind, &write.name, uid)).or_default().push(write);
    }
    let history = |((kind, name, _), writes): ((Kind, &'a str, &'a str), Vec<&'a Write>)| {
        let (mut writes, uncertain): (Vec<_>, Vec<_>) = writes.into_iter().partition(|write| write.is_certain);
        writes.sort_by_key(|write| (write.object.is_none(), write.version, write.from));
        // What changes nothing is answered with the version that was there.
        writes.dedup_by(|later, first| later.object.is_some() && first.version == later.version);
        let uncertain = uncertain.into_iter().filter_map(|write| come_of(write, &writes)).collect();
        History { kind, name, writes, uncertain }
    };
    all.into_iter().map(history).collect()
}

//! Selects the work items of a report: the most urgent ones, or those that match a search. Pure.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::report::{DONE_SHOWN, DoneReport, ObjectReport, QueueReport, StatusReport, WorkCounts, WorkReport};
use super::shown::cut;
use super::table::Cell;

/// The state of a work item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkState {
    /// A worker has it.
    Running,
    /// It failed, and waits for its next attempt.
    BackingOff,
    /// It waits for a time, without a failure.
    Delayed,
    /// It waits for a worker.
    Waiting,
}

impl WorkState {
    /// The text for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::BackingOff => "backing off",
            Self::Delayed => "delayed",
            Self::Waiting => "waiting",
        }
    }
}

impl WorkReport {
    pub(super) fn failing(&self) -> bool {
        self.last_error.is_some() || self.attempts > 0
    }

    /// How far it is.
    pub fn state(&self) -> WorkState {
        match (self.running, self.next_try, self.failing()) {
            (true, _, _) => WorkState::Running,
            (false, Some(_), true) => WorkState::BackingOff,
            (false, Some(_), false) => WorkState::Delayed,
            (false, None, _) => WorkState::Waiting,
        }
    }

    /// Whether it is in this queue.
    pub(super) fn is_of(&self, queue: &QueueReport) -> bool {
        self.queue == queue.name
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let known = [self.role.as_str(), &self.key, &self.lane, self.state().word()];
        known.into_iter().chain(self.subject.as_deref()).chain(self.last_error.as_deref())
    }
}

/// A search: words that must all be present, in any order and case. What is called as a found object is, in the cluster or by the
/// driver, belongs to the object and is found with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Find {
    words: Vec<String>,
    names: BTreeSet<String>,
}

impl Find {
    /// The longest search text; the rest is ignored.
    const LONGEST: usize = 200;

    /// `None` for an empty search.
    pub(super) fn of(text: &str) -> Option<Self> {
        let words: Vec<String> =
            text.chars().take(Self::LONGEST).collect::<String>().split_whitespace().map(str::to_lowercase).collect();
        (!words.is_empty()).then(|| Self { words, names: BTreeSet::new() })
    }

    /// The objects that the search has found.
    pub(super) fn with(self, objects: &[ObjectReport]) -> Self {
        let names = objects.iter().flat_map(|object| [Some(&object.name), object.handle.as_ref()]);
        Self { names: names.flatten().cloned().collect(), ..self }
    }

    pub(super) fn is_in<'a>(&self, texts: impl Iterator<Item = &'a str>) -> bool {
        let texts: Vec<&str> = texts.collect();
        let all = texts.join(" ").to_lowercase();
        self.words.iter().all(|word| all.contains(word)) || texts.iter().any(|text| self.names.contains(*text))
    }

    /// Keeps the matching rows of a table.
    pub(super) fn rows(&self, rows: &mut Vec<Vec<Cell>>) {
        rows.retain(|row| self.is_in(row.iter().filter_map(Cell::text)));
    }
}

impl fmt::Display for Find {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(" "))
    }
}

impl WorkCounts {
    /// Counts the items by their state.
    fn of(work: &[WorkReport]) -> Self {
        let mut counts = Self::default();
        for item in work {
            let count = match item.state() {
                WorkState::Running => &mut counts.running,
                WorkState::BackingOff => &mut counts.backing_off,
                WorkState::Delayed => &mut counts.delayed,
                WorkState::Waiting => &mut counts.waiting,
            };
            *count += 1;
        }
        counts
    }
}

impl DoneReport {
    fn texts(&self) -> impl Iterator<Item = &str> {
        [self.role.as_str(), &self.key, &self.what].into_iter().chain(self.subject.as_deref())
    }
}

impl StatusReport {
    /// Keeps the first of what the search has found, those that fail before others.
    pub(super) fn take_objects(&mut self, mut objects: Vec<ObjectReport>) {
        self.objects_total = objects.len();
        objects.sort_by_key(|object| object.last_error.is_none());
        objects.truncate(DONE_SHOWN);
        for error in objects.iter_mut().filter_map(|object| object.last_error.as_mut()) {
            cut(error);
        }
        self.objects = objects;
    }

    /// Keeps the last matching ones of each role, newest first.
    pub(super) fn take_done(&mut self, mut done: Vec<DoneReport>, find: Option<&Find>) {
        if let Some(find) = find {
            done.retain(|item| find.is_in(item.texts()));
        }
        done.sort_by(|a, b| b.at.cmp(&a.at).then_with(|| (&a.role, &a.key).cmp(&(&b.role, &b.key))));
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        done.retain(|item| {
            let count = seen.entry(item.role.clone()).or_default();
            *count += 1;
            *count <= DONE_SHOWN
        });
        self.done = done;
    }

    /// Counts all work, and keeps the `limit` most urgent matching items, failing first, then oldest. If there are
    /// more, the items are taken from the queues in turn, so that a thousand attachments don't hide a claim.
    pub(super) fn take_work(&mut self, mut work: Vec<WorkReport>, find: Option<&Find>, limit: usize) {
        self.work_total = work.len();
        self.work_failing = work.iter().filter(|item| item.failing()).count();
        self.work_states = WorkCounts::of(&work);
        self.find = find.map(Find::to_string);
        if let Some(find) = find {
            work.retain(|item| find.is_in(item.texts()));
        }
        for queue in &mut self.queues {
            queue.found = work.iter().filter(|item| item.is_of(queue)).count();
        }
        work.sort_by(|a, b| {
            let rank = |item: &WorkReport| (Reverse(item.failing()), Reverse(item.age));
            rank(a).cmp(&rank(b)).then_with(|| (&a.role, &a.key).cmp(&(&b.role, &b.key)))
        });
        if work.len() > limit {
            let mut seen: BTreeMap<String, usize> = BTreeMap::new();
            let mut turns: Vec<(usize, usize)> = Vec::with_capacity(work.len());
            for (place, item) in work.iter().enumerate() {
                let turn = seen.entry(item.queue.clone()).or_default();
                turns.push((*turn, place));
                *turn += 1;
            }
            turns.sort_unstable();
            let kept: BTreeSet<usize> = turns.into_iter().take(limit).map(|(_, place)| place).collect();
            let mut place = 0..;
            work.retain(|_| place.next().is_some_and(|place| kept.contains(&place)));
        }
        for error in work.iter_mut().filter_map(|item| item.last_error.as_mut()) {
            cut(error);
        }
        self.work = work;
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;

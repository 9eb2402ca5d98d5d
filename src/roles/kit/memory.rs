//! What a role remembers of its objects during a term: one value for each, by uid, because names come back.
//!
//! All of it can be lost at any moment. It changes only by pure functions, it is dropped with its object, and what is counted over all
//! objects is counted here. What they are found by is indexed here.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use parking_lot::Mutex;

use crate::roles::role::RoleContext;
use crate::telemetry::names::Metric;
use crate::telemetry::show_count;

/// What objects are found by, besides their uids: a relation, and the name of what they have it to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(pub &'static str, pub String);

/// One object's value. The default means that nothing is remembered.
pub trait Remembered: Default + PartialEq + Send + 'static {
    /// The group in which the object counts, if it counts: `attach` of the attachments that fail.
    fn group(&self) -> Option<&'static str> {
        None
    }

    /// A second group in which it counts besides: `unanswered` of the snapshots.
    fn second_group(&self) -> Option<&'static str> {
        None
    }

    /// What the object is found by.
    fn marks(&self) -> Vec<Mark> {
        Vec::new()
    }
}

impl Remembered for () {}

/// The values of a term.
pub struct Memory<M> {
    inner: Mutex<Inner<M>>,
    lost: Box<dyn Fn(Mark) + Send + Sync>,
}

struct Inner<M> {
    /// Hashed: some uids are names that begin alike, and each attempt looks several up.
    by_uid: HashMap<String, M>,
    /// Each mark with the uid of an object that has it. One flat set: most marks are one object's, and a set for each would take most of
    /// the memory.
    by_mark: BTreeSet<(Mark, String)>,
    counts: BTreeMap<&'static str, usize>,
    show: Box<dyn Fn(&'static str, usize) + Send>,
}

impl<M: Remembered> Default for Memory<M> {
    fn default() -> Self {
        Self::counting(&[], |_, _| {})
    }
}

impl<M: Remembered> Memory<M> {
    /// A gauge of the driver shows the number of objects of each group, under `label`.
    pub fn shown(role: &RoleContext, metric: &'static Metric, label: &'static str, groups: &[&'static str]) -> Self {
        let (meter, driver) = (role.meter.clone(), role.driver.name.clone());
        Self::counting(groups, move |group, count| {
            show_count(&meter.gauge(metric, &[("driver_name", &driver), (label, group)]), count);
        })
    }

    /// `show` gets the number of objects of each group: now, after each change, and when the term ends, none.
    pub fn counting(groups: &[&'static str], show: impl Fn(&'static str, usize) + Send + 'static) -> Self {
        let counts: BTreeMap<_, _> = groups.iter().map(|group| (*group, 0)).collect();
        for (group, count) in &counts {
            show(group, *count);
        }
        let inner = Inner { by_uid: HashMap::new(), by_mark: BTreeSet::new(), counts, show: Box::new(show) };
        Self { inner: Mutex::new(inner), lost: Box::new(|_| {}) }
    }

    /// `lost` gets each mark that no object has any more.
    pub fn marking(lost: impl Fn(Mark) + Send + Sync + 'static) -> Self {
        Self { lost: Box::new(lost), ..Self::default() }
    }

    /// What is remembered of an object.
    pub fn read<T>(&self, uid: &str, read: impl FnOnce(&M) -> T) -> T {
        match self.inner.lock().by_uid.get(uid) {
            Some(value) => read(value),
            None => read(&M::default()),
        }
    }

    /// Changes what is remembered of an object. `change` runs under the lock: it may not wait.
    pub fn change<T>(&self, uid: &str, change: impl FnOnce(&mut M) -> T) -> T {
        let mut inner = self.inner.lock();
        let (key, mut value) = inner.by_uid.remove_entry(uid).unwrap_or_else(|| (uid.to_owned(), M::default()));
        let (before, marks) = ((value.group(), value.second_group()), value.marks());
        let result = change(&mut value);
        inner.moved(before.0, value.group());
        inner.moved(before.1, value.second_group());
        let lost = inner.marked(uid, marks, value.marks());
        if value != M::default() {
            inner.by_uid.insert(key, value);
        }
        drop(inner);
        lost.into_iter().for_each(&self.lost);
        result
    }

    /// Whether an object has this mark.
    pub fn has(&self, mark: &Mark) -> bool {
        self.inner.lock().with_mark(mark).next().is_some()
    }

    /// The uids of the objects that have this mark.
    pub fn marked(&self, mark: &Mark) -> Vec<String> {
        self.inner.lock().with_mark(mark).cloned().collect()
    }

    /// What `read` finds in the memory of each object, by their uids.
    pub fn collect<T>(&self, mut read: impl FnMut(&M) -> Option<T>) -> Vec<T> {
        let inner = self.inner.lock();
        let mut found: Vec<(&String, T)> =
            inner.by_uid.iter().filter_map(|(uid, value)| Some((uid, read(value)?))).collect();
        found.sort_unstable_by_key(|(uid, _)| *uid);
        found.into_iter().map(|(_, found)| found).collect()
    }

    /// Changes the memory of every object that has one.
    pub fn change_all(&self, mut change: impl FnMut(&str, &mut M)) {
        let mut uids: Vec<String> = self.inner.lock().by_uid.keys().cloned().collect();
        uids.sort_unstable();
        for uid in uids {
            self.change(&uid, |value| change(&uid, value));
        }
    }

    /// The object is gone.
    pub fn forget(&self, uid: &str) {
        self.change(uid, |value| *value = M::default());
    }

    /// The term has ended: the next leader counts.
    pub fn end(&self) {
        self.change_all(|_, value| *value = M::default());
    }

    /// Of how many objects something is remembered.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.inner.lock().by_uid.len()
    }
}

impl<M> Inner<M> {
    /// Returns the marks that no object has any more.
    fn marked(&mut self, uid: &str, before: Vec<Mark>, now: Vec<Mark>) -> Vec<Mark> {
        if before == now {
            return Vec::new();
        }
        let gone: Vec<Mark> = before.into_iter().filter(|mark| !now.contains(mark)).collect();
        self.by_mark.extend(now.into_iter().map(|mark| (mark, uid.to_owned())));
        let is_lost =
            |mark: &Mark| self.by_mark.remove(&(mark.clone(), uid.to_owned())) && self.with_mark(mark).next().is_none();
        gone.into_iter().filter(is_lost).collect()
    }

    /// The uids of the objects that have this mark.
    fn with_mark<'a>(&'a self, mark: &'a Mark) -> impl Iterator<Item = &'a String> {
        let from = (mark.clone(), String::new());
        self.by_mark.range(from..).take_while(move |(held, _)| held == mark).map(|(_, uid)| uid)
    }

    fn moved(&mut self, from: Option<&'static str>, to: Option<&'static str>) {
        if from == to {
            return;
        }
        if let Some(group) = from {
            self.count(group, |count| count - 1);
        }
        if let Some(group) = to {
            self.count(group, |count| count + 1);
        }
    }

    fn count(&mut self, group: &'static str, change: impl FnOnce(usize) -> usize) {
        let count = self.counts.entry(group).or_default();
        *count = change(*count);
        (self.show)(group, *count);
    }
}

impl<M> fmt::Debug for Memory<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Debug, Clone, Default, PartialEq)]
    struct Ill(Option<&'static str>, u32);

    /// What each object uses.
    #[derive(Debug, Default, PartialEq)]
    struct Uses(Vec<&'static str>);

    impl Remembered for Uses {
        fn marks(&self) -> Vec<Mark> {
            self.0.iter().map(|it| uses(it)).collect()
        }
    }

    fn uses(what: &str) -> Mark {
        Mark("uses", what.to_owned())
    }

    #[test]
    fn a_mark_is_lost_with_the_last_object_that_has_it() {
        let lost = Arc::new(Mutex::new(Vec::new()));
        let memory = {
            let lost = Arc::clone(&lost);
            Memory::<Uses>::marking(move |Mark(_, what)| lost.lock().push(what))
        };
        let taken = || std::mem::take(&mut *lost.lock());
        memory.change("a", |it| it.0 = vec!["one", "two"]);
        memory.change("b", |it| it.0 = vec!["two"]);
        assert_eq!(
            (memory.marked(&uses("two")), memory.marked(&uses("one"))),
            (vec!["a".into(), "b".into()], vec!["a".into()])
        );
        memory.change("a", |it| it.0 = vec!["two"]);
        assert_eq!(
            (taken(), memory.has(&uses("one")), memory.has(&uses("two"))),
            (vec!["one".to_owned()], false, true)
        );
        memory.forget("b");
        assert_eq!(taken(), Vec::<String>::new());
        memory.forget("a");
        assert_eq!((taken(), memory.has(&uses("two")), memory.len()), (vec!["two".to_owned()], false, 0));
    }

    impl Remembered for Ill {
        fn group(&self) -> Option<&'static str> {
            self.0
        }
    }

    #[test]
    fn each_object_counts_once_in_the_group_that_it_is_in_and_not_at_all_when_it_is_gone() {
        let shown = Arc::new(Mutex::new(BTreeMap::new()));
        let memory = {
            let shown = Arc::clone(&shown);
            Memory::<Ill>::counting(&["attach", "detach"], move |group, count| {
                shown.lock().insert(group, count);
            })
        };
        let count = |group| shown.lock()[group];
        let counts = || (count("attach"), count("detach"));
        assert_eq!(counts(), (0, 0), "zero is a figure, too");
        memory.change("a", |it| it.0 = Some("attach"));
        memory.change("a", |it| it.0 = Some("attach"));
        memory.change("b", |it| it.0 = Some("attach"));
        assert_eq!(counts(), (2, 0));
        memory.change("a", |it| it.0 = Some("detach"));
        assert_eq!(counts(), (1, 1));
        memory.forget("a");
        memory.forget("a");
        assert_eq!((counts(), memory.len()), ((1, 0), 1));
        memory.end();
        assert_eq!((counts(), memory.len()), ((0, 0), 0));
    }

    #[test]
    fn what_is_as_at_first_is_not_kept_and_a_namesake_inherits_nothing() {
        let memory = Memory::<Ill>::default();
        assert_eq!(memory.read("u1", |it| it.1), 0);
        memory.change("u1", |it| it.1 = 7);
        assert_eq!((memory.read("u1", |it| it.1), memory.read("u2", |it| it.1)), (7, 0));
        memory.change_all(|_, it| it.1 = 0);
        assert_eq!(memory.len(), 0);
    }
}

//! Orphans: what the driver lists and nothing in the cluster knows. Pure.
//!
//! The driver is listed *before* the cluster is read, so what is unknown then was made before what could know it was read. A single
//! sighting says nothing all the same, because a cache may be late: an orphan is unknown in two listings an [`HOUR`] apart and in all
//! between them. One that is known again, or that a complete listing lacks, begins anew. A listing that failed says nothing.
//!
//! A doubt counts as known: nothing here may lead a person to delete data that is in use.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::IdKind;
use crate::process::folded;

/// How long something must be unknown before it is shown: longer than any object takes from the driver's answer to all caches.
pub const HOUR: Duration = Duration::from_secs(3600);

/// A volume or a snapshot, as the driver lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The driver's id.
    pub handle: String,
    /// Its name, if the driver tells one.
    pub name: Option<String>,
    /// Its size, if the driver knows it.
    pub bytes: Option<u64>,
    /// When a snapshot was taken. CSI does not tell it of a volume.
    pub created: Option<Timestamp>,
    /// The driver's id of the volume that a snapshot was taken of.
    pub source: Option<String>,
    /// The driver's id of the group that a snapshot was taken in.
    pub group: Option<String>,
}

impl Item {
    /// One of which only the id is known.
    pub fn of(handle: String) -> Self {
        Self { handle, name: None, bytes: None, created: None, source: None, group: None }
    }
}

/// What of a listing nothing knows, as far as was looked: ids that may be of one thing count as one (`IdKind`).
#[derive(Debug)]
pub struct Unknown<'a> {
    kind: IdKind,
    driver: &'a str,
    items: BTreeMap<String, Vec<Item>>,
}

impl<'a> Unknown<'a> {
    /// All of a listing, without the volumes of pods.
    pub fn all(kind: IdKind, driver: &'a str, listed: impl IntoIterator<Item = Item>) -> Self {
        let mut items: BTreeMap<String, Vec<Item>> = BTreeMap::new();
        for item in listed.into_iter().filter(|item| kind != IdKind::Volume || !is_of_pod(&item.handle)) {
            items.entry(kind.key(driver, &item.handle)).or_default().push(item);
        }
        Self { kind, driver, items }
    }

    /// Whether everything is known.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// What has this handle is known.
    pub fn know(&mut self, handle: &str) {
        let (kind, driver) = (self.kind, self.driver);
        let key = kind.key(driver, handle);
        if let Some(alike) = self.items.get_mut(&key) {
            alike.retain(|item| !kind.may_be_same(driver, &item.handle, handle));
            if alike.is_empty() {
                self.items.remove(&key);
            }
        }
    }

    /// What was made under one of these names is known: its id or its name has it. Returns the names of which there was anything.
    pub fn know_named<'n>(&mut self, names: &[&'n str]) -> BTreeSet<&'n str> {
        let names: Vec<(String, &str)> = names.iter().map(|name| (name.to_ascii_lowercase(), *name)).collect();
        let mut found = BTreeSet::new();
        if names.is_empty() {
            return found;
        }
        self.know_all(|item| {
            let texts = [Some(&item.handle), item.name.as_ref()].map(|text| text.map(|text| text.to_ascii_lowercase()));
            let has = |name: &str| !name.is_empty() && texts.iter().flatten().any(|text| text.contains(name));
            let own: Vec<&str> = names.iter().filter(|(name, _)| has(name)).map(|(_, name)| *name).collect();
            found.extend(&own);
            !own.is_empty()
        });
        found
    }

    /// The snapshots of this volume are known.
    pub fn know_of_volume(&mut self, volume: &str) {
        let driver = self.driver;
        self.know_all(|item| {
            item.source.as_ref().is_some_and(|source| IdKind::Volume.may_be_same(driver, source, volume))
        });
    }

    /// The snapshots of this group are known.
    pub fn know_of_group(&mut self, group: &str) {
        let driver = self.driver;
        self.know_all(|item| item.group.as_ref().is_some_and(|own| IdKind::Snapshot.may_be_same(driver, own, group)));
    }

    fn know_all(&mut self, mut is_known: impl FnMut(&Item) -> bool) {
        self.items.retain(|_, alike| {
            alike.retain(|item| !is_known(item));
            !alike.is_empty()
        });
    }

    /// What is still unknown.
    pub fn into_items(self) -> impl Iterator<Item = Item> {
        self.items.into_values().flatten()
    }
}

/// Whether a kubelet has made up this id for an inline volume of a pod: `csi-` and 64 hexadecimal digits. It goes with its pod, and no
/// object has its id.
fn is_of_pod(handle: &str) -> bool {
    handle
        .strip_prefix("csi-")
        .is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Something unknown, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// What the driver last said of it.
    pub item: Item,
    /// When the first listing began that had it.
    pub first: Instant,
    /// When the last one began.
    pub last: Instant,
}

impl Candidate {
    /// Whether it was unknown for an hour.
    pub fn is_orphan(&self) -> bool {
        self.last.saturating_duration_since(self.first) >= HOUR
    }
}

/// What is unknown of one kind, in a term.
#[derive(Debug, Default)]
pub struct Orphans {
    candidates: BTreeMap<String, Candidate>,
    /// How much the last listing had. `None`: there was none.
    pub listed: Option<usize>,
    /// How many unknown things may yet be those of a request whose outcome is open, and do not count.
    pub undecided: usize,
    /// Why nothing is called an orphan: what could know of it cannot be read, or the driver does not list.
    pub unclear: Option<String>,
    /// Why the last listing failed.
    pub failed: Option<String>,
}

impl Orphans {
    /// Takes in a complete listing of `listed` things that began at `at`, and what of it is unknown. `admits`: whether something that was
    /// not unknown before may be counted. It is not while it may be the outcome of an open request.
    pub fn compare(&mut self, at: Instant, listed: usize, unknown: Unknown<'_>, admits: bool) {
        let mut before = std::mem::take(&mut self.candidates);
        self.undecided = 0;
        for item in unknown.into_items() {
            let key = folded(&item.handle);
            let first = before.remove(&key).map(|candidate| candidate.first).or_else(|| admits.then_some(at));
            match first {
                Some(first) => drop(self.candidates.insert(key, Candidate { item, first, last: at })),
                None => self.undecided += 1,
            }
        }
        (self.listed, self.unclear, self.failed) = (Some(listed), None, None);
    }

    /// Nothing is called an orphan for this reason, until the next listing that is compared.
    pub fn cannot_tell(&mut self, why: String) {
        self.unclear = Some(why);
    }

    /// A listing failed: all stays as it is.
    pub fn failed(&mut self, why: String) {
        self.failed = Some(why);
    }

    /// The orphans, by handle.
    pub fn shown(&self) -> impl Iterator<Item = &Candidate> {
        self.candidates.values().filter(|candidate| self.unclear.is_none() && candidate.is_orphan())
    }

    /// How many are unknown for less than an hour.
    pub fn waiting(&self) -> usize {
        self.candidates.values().filter(|candidate| !candidate.is_orphan()).count()
    }
}

#[cfg(test)]
#[path = "orphans_tests.rs"]
mod tests;

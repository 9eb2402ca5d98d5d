//! Orphans: what the driver lists and nothing in the cluster knows. Pure.
//!
//! The driver is listed *before* the cluster is read, so what is unknown then was made before what could know it was read. A single
//! sighting says nothing all the same, because a cache may be late: an orphan is unknown in two listings an [`HOUR`] apart and in all
//! between them. One that is known again, or that a complete listing lacks, begins anew. A listing that failed says nothing.
//!
//! A doubt counts as known: nothing here may lead a person to delete data that is in use. So a volume does not count while a request is
//! open that may have made it, because a driver that tells no names does not say which one has. What was listed before the request's claim was seen is
//! not its volume:
//!
//! | the claim was first seen | the volume was first listed | its request is open | the volume |
//! |---|---|---|---|
//! | any time | any time | no | counts |
//! | before | after | yes | is doubtful |
//! | in the same pass | in the same pass | yes | is doubtful: the request may have begun while the driver was listed |
//! | after | before | yes | counts |
//! | before, in progress without a request | after | again | is doubtful: an earlier request may have made it |
//!
//! A doubtful volume is not shown. One that has counted before goes on from there when the doubt has ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
    /// A volume: only its id is known.
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
    /// The claims in progress and those of requests, by uid: whether its request is open, and may have made any of the items.
    claims: BTreeMap<String, bool>,
}

impl<'a> Unknown<'a> {
    /// Of an empty listing.
    pub fn of(kind: IdKind, driver: &'a str) -> Self {
        Self { kind, driver, items: BTreeMap::new(), claims: BTreeMap::new() }
    }

    /// The listing has this. The volumes of pods do not count.
    pub fn add(&mut self, item: Item) {
        if self.kind != IdKind::Volume || !is_of_pod(&item.handle) {
            self.items.entry(self.kind.key(self.driver, &item.handle)).or_default().push(item);
        }
    }

    /// All of a listing.
    pub fn all(kind: IdKind, driver: &'a str, listed: impl IntoIterator<Item = Item>) -> Self {
        let mut unknown = Self::of(kind, driver);
        listed.into_iter().for_each(|item| unknown.add(item));
        unknown
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
        // Each part of a text that is as long as a name is looked up: names have few lengths, and there may be thousands of both.
        let mut by_length: BTreeMap<usize, HashMap<Vec<u8>, &str>> = BTreeMap::new();
        for name in names.iter().filter(|name| !name.is_empty()) {
            by_length.entry(name.len()).or_default().insert(name.to_ascii_lowercase().into_bytes(), name);
        }
        let mut found = BTreeSet::new();
        self.know_all(|item| {
            let texts = [Some(&item.handle), item.name.as_ref()].map(|text| text.map(|text| text.to_ascii_lowercase()));
            let parts_of = |text: &String| {
                let parts = by_length.iter().flat_map(|(length, names)| {
                    text.as_bytes().windows(*length).filter_map(|part| names.get(part).copied())
                });
                parts.collect::<Vec<&str>>()
            };
            let own: Vec<&str> = texts.iter().flatten().flat_map(parts_of).collect();
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

    /// There is a claim for which a volume is made. `is_open`: its request is, and what is left may be its volume.
    pub fn claim(&mut self, uid: &str, is_open: bool) {
        *self.claims.entry(uid.to_owned()).or_default() |= is_open;
    }

    /// What is still unknown.
    #[cfg(test)]
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
    pub seen: Instant,
    /// When the listing began from which on it counts: the first one after which no open request may have made it.
    pub counts: Option<Instant>,
    /// Whether an open request may have made it.
    pub is_doubtful: bool,
    /// When the last one began.
    pub last: Instant,
}

impl Candidate {
    /// Whether it has counted for an hour.
    pub fn is_orphan(&self) -> bool {
        let is_old = self.counts.is_some_and(|since| self.last.saturating_duration_since(since) >= HOUR);
        is_old && !self.is_doubtful
    }
}

/// What is unknown of one kind, in a term.
#[derive(Debug, Default)]
pub struct Orphans {
    candidates: BTreeMap<String, Candidate>,
    /// The claims for which volumes are made, by uid, and when the first listing began after which each was seen.
    claims: BTreeMap<String, Instant>,
    /// How much the last listing had. `None`: there was none.
    pub listed: Option<usize>,
    /// Why nothing is called an orphan: what could know of it cannot be read, or the driver does not list.
    pub unclear: Option<String>,
    /// Why the last listing failed.
    pub failed: Option<String>,
}

impl Orphans {
    /// Takes in a complete listing of `listed` things that began at `at`, and what of it is unknown.
    pub fn compare(&mut self, at: Instant, listed: usize, unknown: Unknown<'_>) {
        let Unknown { items, claims, .. } = unknown;
        self.claims.retain(|uid, _| claims.contains_key(uid));
        let mut oldest = None;
        for (uid, is_open) in claims {
            let since = *self.claims.entry(uid).or_insert(at);
            if is_open {
                oldest = Some(oldest.map_or(since, |oldest: Instant| oldest.min(since)));
            }
        }
        let mut before = std::mem::take(&mut self.candidates);
        for item in items.into_values().flatten() {
            let key = folded(&item.handle);
            let (seen, counts) = before.remove(&key).map_or((at, None), |it| (it.seen, it.counts));
            let is_doubtful = oldest.is_some_and(|oldest| oldest <= seen);
            let counts = if is_doubtful { counts } else { counts.or(Some(at)) };
            self.candidates.insert(key, Candidate { item, seen, counts, is_doubtful, last: at });
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

    /// How many count for less than an hour.
    pub fn waiting(&self) -> usize {
        self.candidates.values().filter(|candidate| !candidate.is_doubtful && !candidate.is_orphan()).count()
    }

    /// How many may be those of an open request.
    pub fn undecided(&self) -> usize {
        self.candidates.values().filter(|candidate| candidate.is_doubtful).count()
    }
}

#[cfg(test)]
#[path = "orphans_tests.rs"]
mod tests;

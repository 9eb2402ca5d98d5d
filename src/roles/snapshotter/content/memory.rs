//! What a term remembers of contents, by uid: names come back, uids do not. What is unanswered stands on the content too, as long as
//! nobody wipes it. The rest can be lost: then a call is repeated, or an Event.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::Moment;
use crate::queue::Backoff;
use crate::roles::kit::{ByUid, Told, UidSet};

use super::found::Found;
use super::kind::Content;
use super::request::Asked;

/// By how much of itself chance shortens a pause between two looks.
const MOST_SHORTENED: f64 = 0.2;

/// What the queue holds: a content. A namesake is another key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContentKey {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Box<str>,
}

impl ContentKey {
    /// The key of a content.
    pub fn of(content: &impl Content) -> Self {
        Self { name: Arc::clone(&content.meta().name), uid: content.meta().uid.clone() }
    }
}

impl fmt::Display for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A request for a snapshot without a final answer.
#[derive(Debug, Clone)]
pub struct Unanswered<K> {
    /// What was asked.
    pub asked: Asked,
    /// The content as it was last seen: it may be removed by force meanwhile.
    pub content: Arc<K>,
    /// When the content was made for which it was asked first.
    pub since: Option<Moment>,
    /// The snapshot, where the driver has answered and the content does not say so yet.
    pub found: Option<Found>,
    /// Rung when mark, request or finalizer were taken off the content.
    pub wiped: Arc<Notify>,
    /// Only a list has shown that the content is gone: what somebody wrote on it last is not known.
    pub is_end_unseen: bool,
}

/// The looks at a snapshot that is not ready.
#[derive(Debug, Clone, Copy)]
struct Poll {
    count: u32,
    looked: Instant,
    due: Instant,
    since: Instant,
}

/// What the attempts of a term share.
#[derive(Debug)]
pub struct Memory<K> {
    unanswered: Mutex<ByContent<K>>,
    polls: ByUid<Poll>,
    /// Contents with a final answer whose mark could not be taken off yet.
    pub refused: UidSet,
    /// Contents whose snapshot the driver has deleted.
    pub deleted: UidSet,
    /// Contents of which an answer has said that their snapshot is of a group.
    pub grouped: UidSet,
    /// Those among them whose snapshot the driver does not delete by itself.
    pub undeletable: UidSet,
    /// Contents that the API itself has shown during the term. A standby's cache is warm, but it may be late.
    pub confirmed: UidSet,
    /// Contents that an earlier term has left without an answer.
    pub resumed: UidSet,
    /// Contents for which the driver was asked without an answer, and then refused, or was done without an id: a snapshot may be left
    /// over.
    pub doubtful: UidSet,
    /// Contents whose last look has no answer. The look is the call that takes the snapshot, and the driver may still work on it.
    pub late: UidSet,
    /// Which warnings users have read.
    pub told: Told<String>,
}

impl<K> Default for Memory<K> {
    fn default() -> Self {
        Self {
            unanswered: Mutex::default(),
            polls: ByUid::default(),
            refused: UidSet::default(),
            deleted: UidSet::default(),
            grouped: UidSet::default(),
            undeletable: UidSet::default(),
            confirmed: UidSet::default(),
            resumed: UidSet::default(),
            doubtful: UidSet::default(),
            late: UidSet::default(),
            told: Told::default(),
        }
    }
}

/// What is unanswered, by the uid of the content.
type ByContent<K> = BTreeMap<String, Unanswered<K>>;

fn note<K: Content>(held: &mut ByContent<K>, content: &Arc<K>, asked: &Asked) -> Arc<Notify> {
    let entry = held.entry(content.meta().uid.to_string()).or_insert_with(|| Unanswered {
        asked: asked.clone(),
        content: Arc::clone(content),
        since: content.meta().creation_timestamp,
        found: None,
        wiped: Arc::default(),
        is_end_unseen: false,
    });
    entry.asked = asked.clone();
    entry.content = Arc::clone(content);
    Arc::clone(&entry.wiped)
}

fn asker<'a, K: Content>(held: &'a ByContent<K>, content: &K, name: &str) -> Option<&'a Arc<K>> {
    let owner = &content.owner().uid;
    let is_asker = |it: &&Unanswered<K>| it.content.owner().uid != *owner && it.asked.request.name == name;
    held.values().find(is_asker).map(|it| &it.content)
}

impl<K: Content> Memory<K> {
    /// The driver is asked, and has not answered.
    pub fn ask(&self, content: &Arc<K>, asked: &Asked) -> Arc<Notify> {
        note(&mut self.lock(), content, asked)
    }

    /// As `ask`, unless the driver was asked by the same name for a content of another owner: that one is returned.
    pub fn ask_alone(&self, content: &Arc<K>, asked: &Asked) -> Result<Arc<Notify>, Arc<K>> {
        let mut held = self.lock();
        let is_first = !held.contains_key(&*content.meta().uid);
        match asker(&held, content, &asked.request.name).filter(|_| is_first) {
            Some(other) => Err(Arc::clone(other)),
            None => Ok(note(&mut held, content, asked)),
        }
    }

    /// A content of another owner than `content` for which the driver was asked by this name, without a final answer.
    pub fn asker(&self, content: &K, name: &str) -> Option<Arc<K>> {
        asker(&self.lock(), content, name).cloned()
    }

    /// The driver was asked for another content, which is gone, and `content` is to get the answer. It may have asked by itself. The
    /// request on it names its own uid: with that of the other one it would pass for a copy.
    pub fn inherit(&self, content: &Arc<K>, from: &Unanswered<K>) {
        let uid = &*content.meta().uid;
        if !self.is_unanswered(uid) {
            self.ask(content, &from.asked.clone().for_content(uid));
        }
        if let Some(entry) = self.lock().get_mut(&*content.meta().uid) {
            entry.since = [entry.since, from.since].into_iter().flatten().min();
        }
    }

    /// The driver has answered with a snapshot, which the content does not name yet.
    pub fn answered(&self, uid: &str, found: &Found) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.found = Some(found.clone());
        }
        self.doubtful.forget(uid);
    }

    /// All of the answer is recorded, or there is nothing to be recorded.
    pub fn settle(&self, uid: &str) {
        self.lock().remove(uid);
    }

    /// What is unanswered for a content.
    pub fn unanswered(&self, uid: &str) -> Option<Unanswered<K>> {
        self.lock().get(uid).cloned()
    }

    /// Whether something is.
    pub fn is_unanswered(&self, uid: &str) -> bool {
        self.lock().contains_key(uid)
    }

    /// How many contents have no final answer.
    pub fn count_unanswered(&self) -> usize {
        self.lock().len()
    }

    /// The content looks like this now, as far as the watch has shown. Rings if something was wiped.
    pub fn see(&self, content: &Arc<K>, is_wiped: bool) {
        if let Some(entry) = self.lock().get_mut(&*content.meta().uid) {
            entry.content = Arc::clone(content);
            if is_wiped {
                entry.wiped.notify_one();
            }
        }
    }

    /// A list has shown that the content is gone, and no watch has shown what became of it before.
    pub fn end_unseen(&self, uid: &str) {
        if let Some(entry) = self.lock().get_mut(uid) {
            entry.is_end_unseen = true;
        }
    }

    /// The snapshot is not ready. Says how long to wait before the next look.
    pub fn not_ready(&self, uid: &str, now: Instant, pace: &Backoff, jitter: f64) -> Duration {
        let held = self.polls.get(uid);
        let count = held.map_or(0, |poll| poll.count).saturating_add(1);
        // Shortened by chance and not lengthened, so that nobody hears of it later than the longest pause after it.
        let pause = pace.delay(count, None, 0.0).mul_f64(1.0 - MOST_SHORTENED * jitter);
        let since = held.map_or(now, |poll| poll.since);
        self.polls.set(uid, Poll { count, looked: now, due: now + pause, since });
        pause
    }

    /// A look had to give way to who changes the volume. The first one of a term is waited for from now on.
    pub fn gave_way(&self, uid: &str, now: Instant) {
        if self.polls.get(uid).is_none() {
            self.polls.set(uid, Poll { count: 0, looked: now, due: now, since: now });
        }
    }

    /// Whether the last look was longer ago than the longest pause.
    pub fn is_overdue(&self, uid: &str, now: Instant, longest: Duration) -> bool {
        self.polls.get(uid).is_some_and(|poll| now.saturating_duration_since(poll.looked) >= longest)
    }

    /// What is left of the pause before the next look.
    pub fn pause_left(&self, uid: &str, now: Instant) -> Option<Duration> {
        let left = self.polls.get(uid)?.due.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// The snapshot is ready, or is to be deleted. Says since when it was known to be cut.
    pub fn no_longer_unready(&self, uid: &str) -> Option<Instant> {
        let poll = self.polls.get(uid)?;
        self.polls.forget(uid);
        Some(poll.since)
    }

    /// The content is gone: nothing of it is remembered, so that a namesake inherits nothing.
    pub fn forget(&self, uid: &str) {
        self.settle(uid);
        self.polls.forget(uid);
        let sets = [
            &self.refused,
            &self.deleted,
            &self.grouped,
            &self.undeletable,
            &self.confirmed,
            &self.resumed,
            &self.doubtful,
            &self.late,
        ];
        for set in sets {
            set.forget(uid);
        }
        self.told.forget(&uid.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, ByContent<K>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::super::fixtures::{asked, content};
    use super::super::intent::is_copied;
    use super::*;
    use crate::cluster::VolumeSnapshotContent;
    use crate::process::Clock;
    use crate::roles::snapshotter::names::ANNOTATION_SNAPSHOTTING;

    #[test]
    fn s39_a_wipe_rings_while_a_call_is_unanswered() {
        let (memory, content) = (Memory::default(), Arc::new(content(json!({}))));
        memory.see(&content, true);
        assert_eq!(memory.count_unanswered(), 0, "nothing is asked");
        let wiped = memory.ask(&content, &asked());
        memory.see(&content, false);
        assert!(wiped.notified().now_or_never().is_none());
        memory.see(&content, true);
        assert!(wiped.notified().now_or_never().is_some());
        memory.settle("content-uid");
        assert!(!memory.is_unanswered("content-uid"));
    }

    #[test]
    fn l9_who_takes_a_call_over_gets_the_time_of_the_first_who_asked() {
        let made = |uid: &str, second: u8| {
            let time = format!("2026-01-01T00:00:0{second}Z");
            Arc::new(content(json!({ "metadata": { "uid": uid, "creationTimestamp": time } })))
        };
        let (first, second, third) = (made("a", 1), made("b", 2), made("c", 3));
        let memory = Memory::default();
        memory.ask(&first, &asked());
        // The third has asked by itself.
        memory.ask(&third, &asked());
        for heir in [&second, &third] {
            memory.inherit(heir, &memory.unanswered("a").unwrap());
            let since = memory.unanswered(&heir.metadata.uid).unwrap().since;
            assert_eq!(since, first.metadata.creation_timestamp);
        }
        let inherited = memory.unanswered("b").unwrap().asked;
        let marked =
            json!({ "metadata": { "uid": "b", "annotations": { ANNOTATION_SNAPSHOTTING: inherited.intent } } });
        assert!(!is_copied(&content(marked)), "the request is the heir's own");
        assert_eq!((inherited.request, inherited.is_as_recorded), (asked().request, true));
    }

    #[test]
    fn the_driver_is_asked_by_a_name_for_the_contents_of_one_owner_at_a_time() {
        let made = |uid: &str, owner: &str| {
            let change = json!({ "metadata": { "uid": uid }, "spec": { "volumeSnapshotRef": { "uid": owner } } });
            Arc::new(content(change))
        };
        let (first, again, other) = (made("a", "one"), made("b", "one"), made("c", "two"));
        let memory = Memory::default();
        let is_asked = |content| memory.ask_alone(content, &asked()).is_ok();
        assert!(is_asked(&first) && is_asked(&again), "another content of the same owner");
        assert_eq!(memory.ask_alone(&other, &asked()).unwrap_err().metadata.uid, first.metadata.uid);
        assert!(memory.asker(&other, &asked().request.name).is_some() && memory.asker(&other, "another").is_none());
        memory.ask(&other, &asked());
        assert!(is_asked(&other), "an earlier leader has asked for it as well");
        for uid in ["a", "b", "c"] {
            memory.settle(uid);
        }
        assert!(is_asked(&other) && !is_asked(&first));
    }

    #[test]
    fn s8_the_pauses_between_two_looks_grow_up_to_their_limit_and_end_with_readiness() {
        let (memory, now) = (Memory::<VolumeSnapshotContent>::default(), Clock::system().now());
        let pace = Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(3) };
        let pauses: Vec<_> = (0..4).map(|_| memory.not_ready("u", now, &pace, 0.0)).collect();
        assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]) && pauses[3] <= pace.max, "{pauses:?}");
        assert_eq!(memory.pause_left("u", now), Some(pauses[3]));
        let later = |seconds| memory.is_overdue("u", now + Duration::from_secs(seconds), pace.max);
        assert!(!later(2) && later(3) && !memory.is_overdue("w", now + pace.max, pace.max));
        memory.gave_way("w", now);
        assert!(memory.is_overdue("w", now + pace.max, pace.max) && memory.pause_left("w", now).is_none());
        memory.gave_way("u", now + pace.max);
        assert!(later(3), "an earlier look counts");
        let by_chance = memory.not_ready("v", now, &pace, 0.99);
        assert!(by_chance <= pace.initial && by_chance >= pace.initial.mul_f64(0.8), "{by_chance:?}");
        assert_eq!(memory.pause_left("u", now + pauses[3]), None);
        assert_eq!(memory.no_longer_unready("u"), Some(now));
        assert_eq!(memory.pause_left("u", now), None);
    }
}

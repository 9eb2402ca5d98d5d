//! A role, a ledger, the API, a network that loses answers, people and a second writer: what they do, and what must hold
//! at each step.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::journal::ledger::size;

/// After this time the API no longer does a request whose answer was lost.
const DEADLINE: Duration = Duration::from_secs(60);
/// The bytes of a patch besides its entries.
const ENVELOPE: usize = 100;

#[derive(Debug, Clone, Copy)]
pub(super) enum Act {
    /// The role records this content of a key.
    Record(u8, u8),
    /// The role no longer needs a key.
    Remove(u8),
    /// The next request goes out.
    Request,
    /// The API does a request now, before its answer is on its way.
    Perform(usize),
    /// The answer to a request arrives, in this way.
    Answer(usize, Fate),
    /// The API does a write whose answer was lost.
    Land(usize),
    /// A person deletes an object, removes a key of it, or changes one.
    Delete(usize),
    DropKey(usize, usize),
    EditKey(usize, usize),
    /// A person makes an object unreadable, and repairs it.
    Break(usize),
    Repair,
    /// The second writer adds an entry, which has a key of its own.
    Other(usize),
    /// The role no longer needs an entry of the second writer that it was given.
    RemoveOther,
    Pass(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    /// The API refuses; a read fails.
    Refused,
    /// The answer is lost, and the request with it unless it was done already.
    Lost,
    /// The answer is lost, and the request may still be done.
    Late,
}

/// A request whose answer is awaited.
enum Request {
    Read(usize, Option<Found>),
    Write(Arc<Commit>, Option<Outcome>),
}

/// The play. The role's view is kept apart from the ledger's.
pub(super) struct Play {
    rig: Rig,
    requests: Vec<Request>,
    late: Vec<(Duration, Arc<Commit>)>,
    /// What each waiter wants durable.
    wanted: BTreeMap<u32, (String, String)>,
    /// What the role was told to be durable or was given, and has not removed.
    live: BTreeSet<String>,
    /// The entries of the second writer so far, and those that the role was given.
    others: u32,
    given: BTreeSet<String>,
    /// Every key and text that the API has ever held.
    stored: BTreeSet<(String, String)>,
    /// Keys that were taken off an object by others than us.
    touched: BTreeSet<String>,
    /// Segments that must be read before they are written.
    in_doubt: BTreeSet<usize>,
    recorded_bytes: usize,
    written_bytes: usize,
}

impl Play {
    pub(super) fn new() -> Self {
        Self {
            rig: Rig::new(),
            requests: Vec::new(),
            late: Vec::new(),
            wanted: BTreeMap::new(),
            live: BTreeSet::new(),
            others: 0,
            given: BTreeSet::new(),
            stored: BTreeSet::new(),
            touched: BTreeSet::new(),
            in_doubt: BTreeSet::new(),
            recorded_bytes: 0,
            written_bytes: 0,
        }
    }

    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Record(name, content) => self.record(&format!("k{name}"), content),
            Act::Remove(name) => self.remove(&format!("k{name}")),
            Act::Request => self.request(),
            Act::Perform(which) => self.perform(which),
            Act::Answer(which, fate) => self.answer(which, fate),
            Act::Land(which) => self.land(which),
            Act::Delete(n) => {
                let keys = self.rig.server.all().into_iter().filter(|(at, ..)| *at == n);
                self.touched.extend(keys.map(|(_, key, _)| key.to_owned()).collect::<Vec<_>>());
                self.rig.server.delete(n);
            }
            Act::DropKey(n, which) => self.tamper(n, which, None),
            Act::EditKey(n, which) => self.tamper(n, which, Some("0:edited")),
            Act::Break(n) => drop(self.rig.server.broken.insert(n)),
            Act::Repair => self.rig.server.broken.clear(),
            Act::Other(n) => {
                self.others += 1;
                self.rig.server.put(n, &format!("other{}", self.others), &format!("3:{}", "o".repeat(300)));
            }
            Act::RemoveOther => {
                if let Some(name) = self.live.iter().find(|name| name.starts_with("other")).cloned() {
                    self.remove(&name);
                }
            }
            Act::Pass(ms) => self.rig.now += Duration::from_millis(ms),
        }
        self.hear();
    }

    fn record(&mut self, name: &str, content: u8) {
        let time = self.rig.ledger.time_of(name, at(0));
        let text = format!("{}:{content}-{}", time.as_millisecond(), "x".repeat(300));
        let before = self.rig.ledger.entries().find(|(key, ..)| ***key == *name).map(|(_, _, text)| text.to_string());
        match self.rig.record_at(time, name, &text) {
            Ok(waiter) => {
                drop(self.wanted.insert(waiter, (name.to_owned(), text.clone())));
                self.recorded_bytes += if before.as_ref() == Some(&text) { 0 } else { size(name, &text) };
            }
            Err(Recorded::Durable) => self.is_durable(name, &text),
            Err(_) => {}
        }
    }

    fn remove(&mut self, name: &str) {
        self.rig.remove(name);
        self.live.remove(name);
    }

    /// The role learns what has become of its recordings.
    fn hear(&mut self) {
        for (waiter, outcome) in self.rig.ledger.take_settled() {
            let (name, text) = self.wanted.remove(&waiter).expect("settled twice");
            if outcome.is_ok() {
                self.is_durable(&name, &text);
            }
        }
        self.rig.ledger.check();
    }

    /// Journal J1.
    fn is_durable(&mut self, name: &str, text: &str) {
        assert!(self.stored.contains(&(name.to_owned(), text.to_owned())), "{name} was never stored");
        self.live.insert(name.to_owned());
    }

    fn request(&mut self) {
        match self.rig.next() {
            Next::Read(n) => {
                self.assert_free(n);
                self.requests.push(Request::Read(n, None));
            }
            Next::Write(commit) => {
                self.assert_free(commit.segment);
                assert!(!self.in_doubt.contains(&commit.segment), "written before it was read back");
                assert!(!commit.set.is_empty() || !commit.remove.is_empty(), "a write of nothing");
                self.requests.push(Request::Write(commit, None));
            }
            Next::WaitUntil(at) => assert!(at > self.rig.now, "a busy loop"),
            Next::Idle => {}
        }
    }

    /// Journal J4.
    fn assert_free(&self, n: usize) {
        let is_busy = self.requests.iter().any(|request| match request {
            Request::Read(at, _) => *at == n,
            Request::Write(commit, _) => commit.segment == n,
        });
        assert!(!is_busy, "two requests for one segment");
    }

    fn perform(&mut self, which: usize) {
        let Some(count) = (!self.requests.is_empty()).then_some(self.requests.len()) else { return };
        let at = which % count;
        let commit = match &mut self.requests[at] {
            Request::Read(n, found @ None) => {
                *found = Some(self.rig.server.read(*n));
                return;
            }
            Request::Write(commit, None) => Arc::clone(commit),
            Request::Read(_, Some(_)) | Request::Write(_, Some(_)) => return,
        };
        let outcome = self.write(&commit);
        if let Request::Write(_, done) = &mut self.requests[at] {
            *done = Some(outcome);
        }
    }

    /// The API does a write. Journal J2: no entry that is needed leaves, and none that the role has not seen.
    fn write(&mut self, commit: &Commit) -> Outcome {
        let before = self.rig.server.clone();
        let outcome = self.rig.server.write(commit);
        if !matches!(outcome, Outcome::Stored(_)) {
            return outcome;
        }
        self.written_bytes += ENVELOPE + commit.set.iter().map(|(key, text)| size(key, text)).sum::<usize>();
        self.written_bytes += commit.remove.iter().map(|key| key.len() + ",:null".len()).sum::<usize>();
        for (key, text) in &commit.set {
            self.stored.insert((key.to_string(), text.to_string()));
        }
        for key in &commit.remove {
            let is_elsewhere = before.copies(key).iter().any(|(n, _)| *n != commit.segment);
            let is_needed = self.live.contains(&**key) && !is_elsewhere && !self.touched.contains(&**key);
            assert!(!is_needed, "{key} is needed, and was removed");
            let is_seen = !key.starts_with("other") || self.given.contains(&**key);
            assert!(is_seen, "{key} is another writer's");
        }
        outcome
    }

    fn answer(&mut self, which: usize, fate: Fate) {
        if self.requests.is_empty() {
            return;
        }
        let at = which % self.requests.len();
        if fate == Fate::Arrives {
            self.perform(at);
        }
        match self.requests.remove(at) {
            Request::Read(n, found) => {
                let found = found.filter(|_| fate == Fate::Arrives);
                self.found(n, found.unwrap_or_else(|| Found::Failed(error(ApiErrorKind::Timeout))));
            }
            Request::Write(commit, done) => {
                let refused = || Outcome::Refused(error(ApiErrorKind::Forbidden));
                let outcome = match (fate, done) {
                    (Fate::Arrives, Some(outcome)) => outcome,
                    (Fate::Refused, None) => refused(),
                    // What was done cannot be refused any more: the answer is lost.
                    (_, done) => {
                        if done.is_none() && fate == Fate::Late {
                            self.late.push((self.rig.now + DEADLINE, Arc::clone(&commit)));
                        }
                        Outcome::Lost(error(ApiErrorKind::Timeout))
                    }
                };
                if matches!(outcome, Outcome::Lost(_) | Outcome::Conflict(_)) {
                    self.in_doubt.insert(commit.segment);
                }
                self.rig.outcome(&commit, outcome);
            }
        }
    }

    fn found(&mut self, n: usize, found: Found) {
        let is_known = matches!(found, Found::Absent | Found::Segment(_));
        let compared = self.rig.found(n, found);
        if is_known {
            self.in_doubt.remove(&n);
        }
        self.recorded_bytes += compared.rewritten * 320;
        for stored in compared.adopted {
            assert!(!self.live.contains(&*stored.key), "{} is ours already", stored.key);
            self.stored.insert((stored.key.to_string(), stored.text.to_string()));
            self.live.insert(stored.key.to_string());
            self.given.insert(stored.key.to_string());
        }
    }

    fn land(&mut self, which: usize) {
        if self.late.is_empty() {
            return;
        }
        let (deadline, commit) = self.late.remove(which % self.late.len());
        if self.rig.now <= deadline {
            self.write(&commit);
        }
    }

    fn tamper(&mut self, n: usize, which: usize, edit: Option<&str>) {
        let Some(object) = self.rig.server.objects.get(&n) else { return };
        let Some(key) = object.data.keys().nth(which).cloned() else { return };
        self.touched.insert(key.to_string());
        self.rig.server.edit(n, |data| match edit {
            Some(edit) => drop(data.insert(key, text(edit))),
            None => drop(data.remove(&key)),
        });
    }

    /// The faults stop. Everything that was recorded becomes durable or fails, and the objects hold what is needed.
    pub(super) fn end(mut self) {
        self.rig.server.broken.clear();
        while !self.late.is_empty() {
            self.land(0);
        }
        for _ in 0..400 {
            self.rig.now += S;
            for _ in 0..100 {
                self.request();
                if self.requests.is_empty() {
                    break;
                }
                self.answer(0, Fate::Arrives);
                self.hear();
            }
        }
        assert!(self.wanted.is_empty(), "{:?} wait for ever", self.wanted);
        let entries: Vec<(String, String)> =
            self.rig.ledger.entries().map(|(key, _, text)| (key.to_string(), text.to_string())).collect();
        for (key, text) in &entries {
            let copies = self.rig.server.copies(key);
            assert!(copies.len() == 1 && copies[0].1 == text, "{key}: {copies:?}");
            assert!(self.live.contains(key), "{key} is not needed by the role");
        }
        for key in &self.live {
            assert!(entries.iter().any(|(known, _)| known == key), "{key} is forgotten");
        }
        for (_, key, _) in self.rig.server.all() {
            // The second writer's entries may be where we never look.
            let is_left = self.rig.ledger.left().any(|left| *left.stored.key == *key) && self.touched.contains(key);
            assert!(self.live.contains(key) || key.starts_with("other") || is_left, "{key} is left behind");
        }
        let (written, recorded) = (self.written_bytes, self.recorded_bytes);
        assert!(written <= 3 * recorded + 3 * ENVELOPE, "journal J6: {written} bytes for {recorded}");
    }
}

//! The journal of requests without a final answer: its stored objects, and the checks J1, J2, J4, J8 and J9. The acts
//! of people are in `meddling`. The check of J3 is at the end of a run, in `inventory`.
//!
//! If people remove an entry, the daemon must write it again while its term lasts. If the term ends before, the volume
//! is not known any more, which is no fault of the daemons.

use std::collections::{BTreeMap, BTreeSet};

use csi_control_plane::sandbox::api::Committed;
use csi_control_plane::sandbox::api::audit::{Audit, Entry, UNANSWERED};
use serde_json::Value;

use crate::invariants::Invariant;
use crate::model::Model;
use crate::storage::{PROVISIONER_LEASE, RECLAIM, uid_of};
use crate::world::{DAEMONS, finalizers, text};

/// A key whose value is no entry.
pub(crate) const SPOILT: &str = "spoilt";

/// The known state of the journal.
pub(crate) struct Journal {
    /// The entries in each object, by its name.
    pub(crate) segments: BTreeMap<String, BTreeMap<String, Line>>,
    /// The daemons' writes: the uid of the object, and the claim's.
    written: BTreeSet<(String, String)>,
    /// What backup tools have saved: each object as it was after a daemon had recorded something.
    pub(crate) saved: Vec<Value>,
    /// The claims whose old entries people have put back.
    restored: BTreeSet<String>,
    /// The claims whose entries people have taken away, each with the term in which they did.
    exposed: BTreeMap<String, u64>,
    /// The claims whose entries people have taken away after they may have been told that the volumes may be left over.
    given_up: BTreeSet<String>,
    /// The oldest version from which the API can tell all changes.
    oldest: u64,
    /// How many terms there were.
    pub(crate) terms: u64,
    /// The requests that were made.
    audit: Audit,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    text: String,
    pub(crate) origin: Origin,
    /// The term in which it was written.
    term: u64,
}

/// Where an entry comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Daemon,
    /// People have put it back into the object that it was written for.
    Restored,
    /// It was not written for this object.
    Copy,
}

impl Journal {
    /// An empty one of an API with this log.
    pub(crate) fn of(audit: Audit) -> Self {
        Self {
            segments: BTreeMap::new(),
            written: BTreeSet::new(),
            saved: Vec::new(),
            restored: BTreeSet::new(),
            exposed: BTreeMap::new(),
            given_up: BTreeSet::new(),
            oldest: 0,
            terms: 0,
            audit,
        }
    }

    /// Whether an object has an entry of this claim from there.
    fn has(&self, uid: &str, of: &[Origin]) -> bool {
        self.segments.values().any(|lines| lines.get(uid).is_some_and(|line| of.contains(&line.origin)))
    }

    /// Whether an object has an entry of this claim that was written for it.
    fn holds(&self, uid: &str) -> bool {
        self.has(uid, &[Origin::Daemon, Origin::Restored])
    }

    /// Whether people have put an old entry of this claim back.
    pub(crate) fn is_restored(&self, uid: &str) -> bool {
        self.restored.contains(uid)
    }

    /// Whether people have taken the claim's entry away, and the daemon has not written it again.
    fn is_exposed(&self, uid: &str) -> bool {
        self.exposed.contains_key(uid)
    }

    /// Whether people are at fault if the claim's volume is lost.
    pub(crate) fn is_excused(&self, uid: &str) -> bool {
        let is_lost = self.exposed.get(uid).is_some_and(|term| *term != self.terms);
        is_lost || self.given_up.contains(uid) || self.is_restored(uid)
    }

    /// The entries of an object as it is stored now, after these.
    fn read(
        &mut self,
        old: &BTreeMap<String, Line>,
        object: Option<&Value>,
        by_daemon: bool,
    ) -> BTreeMap<String, Line> {
        let Some(object) = object else { return BTreeMap::new() };
        let in_object = text(object, "/metadata/uid");
        let mut has_recorded = false;
        let data = object.get("data").and_then(Value::as_object).into_iter().flatten();
        let mut lines = BTreeMap::new();
        for (key, value) in data.filter(|(key, _)| *key != SPOILT) {
            let text = value.as_str().unwrap_or_default();
            if let Some(line) = old.get(key).filter(|line| line.text == text) {
                lines.insert(key.clone(), line.clone());
                continue;
            }
            let of = (in_object.to_owned(), key.clone());
            let origin = if by_daemon {
                has_recorded = true;
                self.written.insert(of);
                Origin::Daemon
            } else {
                self.restored.insert(key.clone());
                if self.written.contains(&of) { Origin::Restored } else { Origin::Copy }
            };
            lines.insert(key.clone(), Line { text: text.to_owned(), origin, term: self.terms });
        }
        if has_recorded {
            self.saved.push(object.clone());
        }
        lines
    }

    /// Whether the entry of this claim, which is gone, may stay, because there is no proof left for it.
    pub(crate) fn is_unprovable(&self, uid: &str) -> bool {
        self.segments.values().filter_map(|lines| lines.get(uid)).any(|line| self.is_forgotten(line))
    }

    /// Whether the API has forgotten, for one cause or another, what came of the request of an entry, so that its volume is kept and
    /// reported (J10).
    fn is_forgotten(&self, line: &Line) -> bool {
        since(&line.text) < self.oldest
    }

    /// The claims that have an entry.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &String> {
        self.segments.values().flat_map(BTreeMap::keys)
    }
}

/// The latest version in an entry from before its request was recorded.
fn since(text: &str) -> u64 {
    let entry: Value = serde_json::from_str(text).unwrap_or_default();
    let versions = ["/since", "/request/persistentVolume/claim/resourceVersion"];
    versions.into_iter().filter_map(|pointer| entry.pointer(pointer)?.as_str()?.parse().ok()).max().unwrap_or_default()
}

/// Something was committed.
pub(crate) fn on_commit(model: &mut Model, change: &Committed<'_>, name: &str) {
    model.journal.oldest = change.store.oldest();
    if change.resource.plural != "configmaps" {
        return;
    }
    let by_daemon = DAEMONS.contains(&change.actor);
    let journal = &mut model.journal;
    let old = journal.segments.get(name).cloned().unwrap_or_default();
    let new = journal.read(&old, change.new, by_daemon);
    let terms = journal.terms;
    // A later term may record the claim, too, but knows nothing of what was asked before.
    let is_back = |uid: &String| new.get(uid).is_some_and(|line| line.origin != Origin::Copy);
    journal.exposed.retain(|uid, term| !is_back(uid) || *term != terms);
    match change.new {
        Some(_) => drop(journal.segments.insert(name.to_owned(), new.clone())),
        None => drop(journal.segments.remove(name)),
    }
    let is_copy = |line: &Line| line.origin == Origin::Copy;
    // Over a copy of its own entry a daemon may write that.
    for (uid, _) in old.iter().filter(|(uid, line)| by_daemon && is_copy(line) && !new.contains_key(*uid)) {
        let what = format_args!("{} removes the copy of the entry of {uid} in {name}", change.actor);
        model.trace.violate(Invariant::J9, what);
    }
    let gone = old.iter().filter(|(uid, line)| !is_copy(line) && !new.contains_key(*uid));
    let gone: Vec<&String> = gone.map(|(uid, _)| uid).filter(|uid| !model.journal.holds(uid)).collect();
    for uid in gone {
        if by_daemon {
            removed(model, change.actor, uid);
        } else {
            taken_away(model, uid, &old[uid]);
        }
    }
}

/// People have taken an entry away.
fn taken_away(model: &mut Model, uid: &str, line: &Line) {
    let term = model.journal.terms;
    let is_gone = !model.supply.claims.values().any(|it| text(it, "/metadata/uid") == uid);
    // What a term has asked for and not stored it knows without the journal.
    let may_be_told = line.term != term || is_sent(&model.journal.audit, uid);
    if is_gone && may_be_told && model.journal.is_forgotten(line) {
        model.journal.given_up.insert(uid.to_owned());
    }
    model.journal.exposed.insert(uid.to_owned(), term);
}

/// Whether a daemon has sent the PersistentVolume of a claim.
fn is_sent(audit: &Audit, uid: &str) -> bool {
    let of_claim = |it: &Entry| {
        let name = it.body.as_ref().map_or("", |body| text(body, "/metadata/name"));
        it.verb == "create" && it.resource == "persistentvolumes" && uid_of(name) == uid
    };
    !audit.matching(of_claim).is_empty()
}

/// J2: a daemon removes an entry only when no volume can be lost by that.
fn removed(model: &mut Model, actor: &str, uid: &str) {
    let lost = model.supply.alive.iter().find(|(handle, it)| {
        let denied = model.supply.asked.get(&it.name).is_some_and(|asked| asked.denied);
        uid_of(&it.name) == uid && model.object_of(handle).is_none() && !denied && !model.supply.kept.contains(*handle)
    });
    if let Some((handle, it)) = lost
        && !model.is_confused()
        && !model.journal.is_excused(uid)
    {
        let volume = &it.name;
        model.trace.violate(
            Invariant::J2,
            format_args!("{actor} removes the entry of {uid}, and nothing tells of its volume {handle} ({volume})"),
        );
    }
    if let Some(asked) = model.supply.asked.values_mut().find(|asked| uid_of(&asked.request.name) == uid) {
        asked.owed = false;
    }
}

/// J8: our finalizer leaves a volume's object, and the object goes, only once the entry is gone that a daemon has written.
pub(crate) fn let_go(model: &Model, change: &Committed<'_>, name: &str) {
    let is_held = |object: &Value| finalizers(object).contains(&RECLAIM);
    let Some(old) = change.old.filter(|old| is_held(old) && !change.new.is_some_and(is_held)) else { return };
    for uid in BTreeSet::from([uid_of(name), text(old, "/spec/claimRef/uid")]) {
        if model.journal.has(uid, &[Origin::Daemon]) && !model.is_confused() {
            let what = format_args!("{} lets go of {name}, and the journal has an entry of {uid}", change.actor);
            model.trace.violate(Invariant::J8, what);
        }
    }
}

/// J1: the driver is asked for what the journal holds; J9: and not for the sake of a copy. J4: until then, the journal was written in
/// order.
pub(crate) fn asked(model: &Model, id: u64, volume: &str) {
    let uid = uid_of(volume);
    let journal = &model.journal;
    if !journal.holds(uid) && !journal.is_exposed(uid) && !model.is_confused() {
        let invariant = if journal.has(uid, &[Origin::Copy]) { Invariant::J9 } else { Invariant::J1 };
        model.trace.violate(invariant, format_args!("#{id} asks for {volume}, and the journal has no entry of it"));
    }
    in_order(model);
}

/// J4: one write to a segment at a time, and none upon an answer that is not known.
pub(crate) fn in_order(model: &Model) {
    let of_journal = |it: &Entry| it.resource == "configmaps" && DAEMONS.contains(&it.user.as_str());
    let mut of: BTreeMap<(String, String), Vec<Exchange>> = BTreeMap::new();
    for entry in model.journal.audit.matching(of_journal) {
        let key = (entry.user.clone(), segment_of(&entry));
        of.entry(key).or_default().push(Exchange::of(&entry));
    }
    for ((actor, segment), mut exchanges) in of {
        exchanges.sort_by_key(|it| it.came);
        if let Some(what) = disorder(&exchanges) {
            model.trace.violate(Invariant::J4, format_args!("{actor} writes {segment}: {what}"));
        }
    }
}

fn segment_of(entry: &Entry) -> String {
    let of_body = || entry.body.as_ref().map(|body| text(body, "/metadata/name").to_owned()).unwrap_or_default();
    if entry.name.is_empty() { of_body() } else { entry.name.clone() }
}

/// A request for one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Exchange {
    is_write: bool,
    /// When it came, and when it was answered, in one order.
    came: u64,
    answered: u64,
    code: u16,
}

impl Exchange {
    fn of(entry: &Entry) -> Self {
        let (came, answered) = (entry.order.start, entry.order.end);
        Self { is_write: entry.verb != "get", came, answered, code: entry.code }
    }

    /// Whether the answer says what was done.
    fn is_known(self) -> bool {
        (200..300).contains(&self.code) || (self.code / 100 == 4 && !matches!(self.code, 404 | 409))
    }

    /// Whether a client knows by this what is stored.
    fn shows(self) -> bool {
        !self.is_write && matches!(self.code, 200 | 404)
    }
}

/// What is wrong with the requests of one daemon for one segment, in the order in which they came.
fn disorder(exchanges: &[Exchange]) -> Option<String> {
    let writes: Vec<Exchange> = exchanges.iter().copied().filter(|it| it.is_write).collect();
    writes.windows(2).find_map(|pair| {
        let [before, next] = pair else { return None };
        if before.code != UNANSWERED && before.answered > next.came {
            return Some(format!("{next:?} comes before {before:?} is answered"));
        }
        let is_read = exchanges.iter().any(|it| it.shows() && it.came > before.came && it.answered < next.came);
        (!before.is_known() && !is_read)
            .then(|| format!("{next:?} is built on {before:?}, and nothing was read between"))
    })
}

/// Whether an object is the provisioner's Lease.
pub(crate) fn is_lease(name: &str) -> bool {
    name == PROVISIONER_LEASE
}

#[test]
fn requests_that_are_out_of_order_are_noticed() {
    let exchange = |is_write: bool, came: u64, answered: u64, code: u16| Exchange { is_write, came, answered, code };
    let (write, read) = (
        |came: u64, answered: u64, code: u16| exchange(true, came, answered, code),
        |came: u64, answered: u64, code: u16| exchange(false, came, answered, code),
    );
    let sound: &[&[Exchange]] = &[
        &[read(1, 2, 404), write(3, 4, 201), write(5, 6, 200), write(7, 8, 403), write(9, 10, 200)],
        &[write(1, 2, 409), read(3, 4, 200), write(5, 6, 200)],
        &[write(1, 4, UNANSWERED), read(5, 6, 200), write(7, 8, 200)],
        // The client has given up long before the server knows.
        &[write(1, 9, UNANSWERED), read(2, 3, 404), write(4, 5, 201)],
    ];
    for history in sound {
        assert_eq!(disorder(history), None);
    }
    let broken: &[(&str, &[Exchange])] = &[
        ("two at once", &[write(1, 4, 200), write(2, 3, 200)]),
        ("after a conflict", &[write(1, 2, 409), write(3, 4, 200)]),
        ("after a failure", &[read(1, 2, 200), write(3, 4, 500), write(5, 6, 200)]),
        ("after no answer", &[write(1, 2, UNANSWERED), write(3, 4, 200)]),
        ("before the read is answered", &[write(1, 2, UNANSWERED), read(3, 6, 200), write(4, 5, 200)]),
        ("on a read that failed", &[write(1, 2, 500), read(3, 4, 500), write(5, 6, 200)]),
    ];
    for (what, history) in broken {
        assert!(disorder(history).is_some(), "{what}");
    }
}

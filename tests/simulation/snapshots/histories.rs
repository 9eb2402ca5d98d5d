//! Histories of daemons that are broken on purpose: the checks must find each of them out. A check that cannot fail proves nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::proto::CreateSnapshotRequest;
use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::driver::{Call, Method, Outcome, Refusal};
use serde_json::{Value, json};
use tonic::Code;

use super::checks::{CONTENTS, Checks, FINALIZER, INTENT, LEASE, LOST, MARK};
use super::invariants::Rule;
use crate::stage::{Commit, edit, lease, running, sent};
use crate::world::{DAEMONS, DRIVER, MARKER};

const CONTENT: &str = "content";
const OWNER: &str = "the-uid";
pub(super) const NAME: &str = "snapshot-the-uid";
pub(super) const ID: &str = "snapshot-1";

/// A content that the snapshot-controller has made, and what becomes of it. The first daemon leads.
pub(super) struct Story {
    pub(super) checks: Checks,
    pub(super) content: Option<Value>,
    /// The driver's volumes.
    pub(super) held: BTreeMap<String, String>,
    pub(super) calls: Vec<Arc<Call>>,
    pub(super) now: u64,
    /// Who does what follows.
    pub(super) actor: &'static str,
}

impl Story {
    pub(super) fn new() -> Self {
        let content = json!({ "metadata": { "name": CONTENT, "uid": "content-uid", "finalizers": [FINALIZER] },
            "spec": { "driver": DRIVER, "deletionPolicy": "Delete", "source": { "volumeHandle": "v" },
                "volumeSnapshotRef": { "namespace": "default", "name": "s", "uid": OWNER } } });
        let checks = Checks { looks_up: true, polls: 0, ..Checks::default() };
        let story =
            Self { checks, content: None, held: BTreeMap::new(), calls: Vec::new(), now: 0, actor: "controller" };
        let mut story = story.leads(DAEMONS[0]).becomes(Some(content));
        story.actor = DAEMONS[0];
        story
    }

    pub(super) fn by(mut self, actor: &'static str) -> Self {
        self.actor = actor;
        self
    }

    pub(super) fn after(mut self, seconds: u64) -> Self {
        self.now += seconds;
        self
    }

    pub(super) fn at(&self) -> Duration {
        Duration::from_secs(self.now)
    }

    pub(super) fn leads(mut self, daemon: &str) -> Self {
        let lease = lease(daemon);
        let commit = Commit { at: self.at(), actor: "x", plural: "leases", name: LEASE, old: None, new: Some(&lease) };
        self.checks.committed(&commit);
        self
    }

    pub(super) fn becomes(mut self, new: Option<Value>) -> Self {
        let (at, actor) = (self.at(), self.actor);
        let old = std::mem::replace(&mut self.content, new);
        let (old, new) = (old.as_ref(), self.content.as_ref());
        self.checks.committed(&Commit { at, actor, plural: CONTENTS, name: CONTENT, old, new });
        self
    }

    /// Members of the content become these, by their pointers; null takes one away.
    pub(super) fn writes(self, changes: &[(&str, Value)]) -> Self {
        let mut new = self.content.clone().unwrap();
        edit(&mut new, changes);
        self.becomes(Some(new))
    }

    pub(super) fn marks(self, value: &Value) -> Self {
        let of = |key: &str| format!("/metadata/annotations/{}", key.replace('/', "~"));
        self.writes(&[(&of(MARK), value.clone()), (&of(INTENT), value.clone())])
    }

    pub(super) fn marked(self) -> Self {
        self.marks(&json!("yes"))
    }

    pub(super) fn unmarked(self) -> Self {
        self.marks(&Value::Null)
    }

    /// As the snapshot-controller does.
    pub(super) fn deleted(self) -> Self {
        let actor = self.actor;
        let lost = format!("/metadata/annotations/{}", LOST.replace('/', "~"));
        let time = json!("2026-01-01T00:00:00Z");
        self.by("controller").writes(&[(&lost, json!("yes")), ("/metadata/deletionTimestamp", time)]).by(actor)
    }

    pub(super) fn stores(self, id: &str) -> Self {
        self.writes(&[("/status/snapshotHandle", json!(id)), ("/status/readyToUse", json!(true))])
    }

    pub(super) fn sends(mut self, method: Method, about: &str, parameter: &str) -> Self {
        let mut call = call(self.calls.len() as u64 + 1, self.at(), method, about);
        if method == Method::CreateSnapshot {
            let parameters = [("tier".to_owned(), parameter.to_owned())].into();
            let (name, source_volume_id) = (about.to_owned(), "v".to_owned());
            call.cut = Some(Box::new(CreateSnapshotRequest {
                name,
                source_volume_id,
                parameters,
                ..CreateSnapshotRequest::default()
            }));
        }
        self.checks.called(&call, self.actor, 0);
        self.calls.push(Arc::new(call));
        self
    }

    pub(super) fn asks(self) -> Self {
        self.sends(Method::CreateSnapshot, NAME, "1")
    }

    pub(super) fn holds(mut self, id: &str) -> Self {
        self.held.insert(id.to_owned(), NAME.to_owned());
        self.checks.holds(self.held.clone().into_iter());
        self
    }

    pub(super) fn ends(mut self, outcome: Outcome) -> Self {
        let mut call = Call::clone(self.calls.last().unwrap());
        (call.ended, call.outcome) = (Some(self.at()), outcome);
        self.checks.called(&call, self.actor, 1);
        self
    }

    pub(super) fn refused(self, code: Code) -> Self {
        self.ends(Outcome::Refused(Refusal::new(code, "no")))
    }

    /// A ready snapshot.
    pub(super) fn cut(self) -> Self {
        self.marked().asks().holds(ID).ends(Outcome::Ok).stores(ID).unmarked()
    }

    pub(super) fn deletes(mut self, id: &str) -> Self {
        self = self.sends(Method::DeleteSnapshot, id, "");
        self.held.remove(id);
        self.checks.holds(self.held.clone().into_iter());
        self.ends(Outcome::Ok)
    }

    pub(super) fn released(self) -> Self {
        self.becomes(None)
    }

    /// There is no work any more, and these were requested.
    pub(super) fn rests(mut self, requests: &[Entry]) -> Self {
        self.checks.disturbed(requests, &[]);
        let faults = [self.checks.unrest(), self.checks.leaks()].concat();
        self.checks.broken.extend(faults);
        self
    }

    /// What was found out, each once.
    pub(super) fn broken(self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self.checks.broken.into_iter().map(|(rule, _)| rule).collect();
        rules.dedup();
        rules
    }
}

/// A call that runs.
pub(crate) fn call(id: u64, started: Duration, method: Method, about: &str) -> Call {
    Call { snapshot: Some(about.to_owned()), ..running(id, started, method) }
}

fn request(verb: &'static str) -> Entry {
    sent(verb, CONTENTS, CONTENT, 200)
}

#[test]
fn a_sound_life_breaks_nothing() {
    let stories = [
        ("taken and deleted", Story::new().cut().deleted().deletes(ID).released()),
        ("taken", Story::new().cut()),
        (
            "asked again, deleted meanwhile",
            Story::new()
                .marked()
                .asks()
                .refused(Code::Unavailable)
                .deleted()
                .after(1)
                .asks()
                .holds(ID)
                .ends(Outcome::Ok)
                .stores(ID)
                .unmarked()
                .deletes(ID)
                .released(),
        ),
        ("refused, and released", Story::new().marked().asks().refused(Code::Internal).unmarked().deleted().released()),
        (
            "kept",
            Story::new()
                .by("admin")
                .writes(&[("/spec/deletionPolicy", json!("Retain"))])
                .by(DAEMONS[0])
                .cut()
                .deleted()
                .after(60)
                .released(),
        ),
        (
            "another class after a refusal",
            Story::new()
                .marked()
                .asks()
                .refused(Code::Internal)
                .unmarked()
                .after(1)
                .marked()
                .sends(Method::CreateSnapshot, NAME, "2")
                .holds(ID)
                .ends(Outcome::Ok)
                .stores(ID)
                .unmarked(),
        ),
    ];
    for (what, story) in stories {
        assert_eq!(story.rests(&[]).broken(), [], "{what}");
    }
}

/// Daemons that break an invariant, what each does, and the invariant.
fn broken_daemons() -> Vec<(Rule, &'static str, Story)> {
    use Rule::{I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13, I14, Quiet};
    let told = json!(format!("the password {MARKER} is wrong"));
    let foreign = ("/metadata/labels/theirs", json!("x"));
    let manual = ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    vec![
        (I1, "asks without a mark", Story::new().asks()),
        (I1, "asks without its finalizer", Story::new().writes(&[("/metadata/finalizers", json!([]))]).marked().asks()),
        (
            I2,
            "releases what is unanswered",
            Story::new().marked().asks().refused(Code::Unavailable).deleted().released(),
        ),
        (I2, "releases what is there", Story::new().cut().deleted().released()),
        (I3, "asks while a call runs", Story::new().marked().asks().asks()),
        (
            I4,
            "asks for something else",
            Story::new().marked().asks().refused(Code::Unavailable).after(1).sends(Method::CreateSnapshot, NAME, "2"),
        ),
        (
            I4,
            "asks by another name",
            Story::new().marked().asks().refused(Code::Unavailable).after(1).sends(
                Method::CreateSnapshot,
                "snap-the-uid",
                "1",
            ),
        ),
        (I4, "stores another handle", Story::new().cut().writes(&[("/status/snapshotHandle", json!("snapshot-2"))])),
        (I5, "says ready too soon", Story::new().marked().asks().stores(ID)),
        (I6, "deletes what lives", Story::new().cut().deletes(ID)),
        (
            I6,
            "deletes what its snapshot wants",
            Story::new().cut().by("admin").writes(&[manual]).by(DAEMONS[0]).deletes(ID),
        ),
        (
            I6,
            "deletes what is kept",
            Story::new()
                .by("admin")
                .writes(&[("/spec/deletionPolicy", json!("Retain"))])
                .by(DAEMONS[0])
                .cut()
                .deleted()
                .after(60)
                .deletes(ID),
        ),
        (I6, "deletes what is nobody's", Story::new().deletes("snapshot-9")),
        (I7, "writes a label", Story::new().writes(&[foreign])),
        (
            I7,
            "wipes what the controller says",
            Story::new().cut().deleted().writes(&[("/metadata/annotations", json!({}))]),
        ),
        (I8, "asks without the Lease", Story::new().marked().by(DAEMONS[1]).asks()),
        (I8, "writes without the Lease", Story::new().by(DAEMONS[1]).marked()),
        (I9, "tries again at once", {
            let marked = Story::new().after(60).by("admin").marked().by(DAEMONS[0]).after(60);
            marked.asks().refused(Code::Unavailable).after(1).asks().refused(Code::Unavailable).asks()
        }),
        (I10, "tells a secret", Story::new().writes(&[("/status/error/message", told)])),
        (I11, "leaves a mark", Story::new().cut().marked().rests(&[])),
        (I12, "forgets it", Story::new().rests(&[])),
        (I12, "never deletes it", Story::new().cut().deleted().rests(&[])),
        (I13, "has two", Story::new().cut().holds("snapshot-2").rests(&[])),
        (I14, "leaks", Story::new().cut().deleted().released().rests(&[])),
        (Quiet, "reads for ever", Story::new().cut().rests(&[request("get")])),
        (Quiet, "writes for ever", Story::new().cut().rests(&[request("patch")])),
    ]
}

#[test]
fn each_broken_daemon_is_found_out() {
    let stories = broken_daemons();
    let unproven: Vec<_> = Rule::ALL.iter().filter(|(rule, _)| stories.iter().all(|(it, ..)| it != rule)).collect();
    assert!(unproven.is_empty(), "nothing shows that these can fail: {unproven:?}");
    expect_found_out(&stories.iter().map(|(rule, ..)| *rule).collect::<Vec<_>>());
}

fn expect_found_out(rules: &[Rule]) {
    let mut count = 0;
    for (rule, what, story) in broken_daemons().into_iter().filter(|(rule, ..)| rules.contains(rule)) {
        let found = story.broken();
        assert!(found.contains(&rule), "a daemon that {what}: {rule:?} is not among {found:?}");
        count += 1;
    }
    assert!(count > 0, "{rules:?}");
}

#[test]
fn i1_a_daemon_that_asks_without_mark_or_finalizer_is_found_out() {
    expect_found_out(&[Rule::I1]);
}

#[test]
fn i2_a_daemon_that_releases_what_is_unanswered_or_there_is_found_out() {
    expect_found_out(&[Rule::I2]);
}

#[test]
fn i3_a_daemon_that_asks_while_a_call_runs_is_found_out() {
    expect_found_out(&[Rule::I3]);
}

#[test]
fn i4_a_daemon_that_asks_for_something_else_or_stores_another_handle_is_found_out() {
    expect_found_out(&[Rule::I4]);
}

#[test]
fn i5_a_daemon_that_says_ready_too_soon_is_found_out() {
    expect_found_out(&[Rule::I5]);
}

#[test]
fn i6_a_daemon_that_deletes_what_somebody_needs_or_keeps_is_found_out() {
    expect_found_out(&[Rule::I6]);
}

#[test]
fn i7_a_daemon_that_writes_what_is_others_is_found_out() {
    expect_found_out(&[Rule::I7]);
}

#[test]
fn i8_a_daemon_that_works_without_the_lease_is_found_out() {
    expect_found_out(&[Rule::I8]);
}

#[test]
fn i9_a_daemon_that_tries_again_at_once_is_found_out() {
    expect_found_out(&[Rule::I9]);
}

#[test]
fn i10_a_daemon_that_tells_a_secret_is_found_out() {
    expect_found_out(&[Rule::I10]);
}

#[test]
fn i11_a_daemon_that_leaves_a_mark_is_found_out() {
    expect_found_out(&[Rule::I11]);
}

#[test]
fn i12_a_daemon_that_forgets_a_content_is_found_out() {
    expect_found_out(&[Rule::I12]);
}

#[test]
fn i13_a_daemon_that_has_two_snapshots_of_one_content_is_found_out() {
    expect_found_out(&[Rule::I13]);
}

#[test]
fn i14_a_daemon_that_leaks_is_found_out() {
    expect_found_out(&[Rule::I14]);
}

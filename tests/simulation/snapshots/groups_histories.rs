//! Histories of daemons that are broken on purpose, and work groups: the checks of groups must find each of them out.

use std::time::Duration;

use csi_control_plane::proto::CreateVolumeGroupSnapshotRequest;
use csi_control_plane::sandbox::driver::{Call, Method, Outcome, Profile, Refusal, State};
use jiff::Timestamp;
use serde_json::{Value, json};
use tonic::Code;

use super::checks::{Checks, INTENT, LEASE};
use super::groups::{CONTENTS, FINALIZER, Groups, LOST, MARK};
use super::histories::call;
use super::invariants::Rule;
use crate::stage::{Commit, lease};
use crate::world::{DAEMONS, DRIVER, MARKER};

const CONTENT: &str = "content";
const OWNER: &str = "the-uid";
const NAME: &str = "group-the-uid";

/// A content that the snapshot-controller has made, and what becomes of it. The first daemon leads.
pub(super) struct Story {
    pub(super) of_singles: Checks,
    pub(super) checks: Groups,
    pub(super) content: Option<Value>,
    pub(super) state: State,
    pub(super) last: Option<Call>,
    pub(super) now: u64,
}

impl Story {
    pub(super) fn new() -> Self {
        Self::of(&json!({ "volumeHandles": ["v", "w"] }), OWNER)
    }

    /// A content with this source, of a group with this uid.
    pub(super) fn of(source: &Value, owner: &str) -> Self {
        let mut of_singles = Checks::default();
        let (at, lease) = (Duration::ZERO, lease(DAEMONS[0]));
        of_singles.committed(&Commit { at, actor: "x", plural: "leases", name: LEASE, old: None, new: Some(&lease) });
        let content = json!({ "metadata": { "name": CONTENT, "uid": "content-uid", "finalizers": [FINALIZER] },
            "spec": { "driver": DRIVER, "deletionPolicy": "Delete", "source": source,
                "volumeGroupSnapshotRef": { "namespace": "default", "name": "g", "uid": owner } } });
        let mut state = State::default();
        for volume in ["v", "w"] {
            state.seed(volume);
        }
        let story = Self { of_singles, checks: Groups::default(), content: None, state, last: None, now: 0 };
        story.becomes("controller", Some(content))
    }

    pub(super) fn becomes(mut self, actor: &'static str, new: Option<Value>) -> Self {
        self.now += 10;
        let old = std::mem::replace(&mut self.content, new);
        let (at, old, new) = (Duration::from_secs(self.now), old.as_ref(), self.content.as_ref());
        let commit = Commit { at, actor, plural: CONTENTS, name: CONTENT, old, new };
        self.checks.committed(&commit, &self.of_singles);
        self
    }

    /// This is merged into the content; null takes a member away.
    pub(super) fn merges(self, actor: &'static str, patch: &Value) -> Self {
        let mut new = self.content.clone().unwrap();
        merge(&mut new, patch);
        self.becomes(actor, Some(new))
    }

    pub(super) fn writes(self, patch: &Value) -> Self {
        self.merges(DAEMONS[0], patch)
    }

    pub(super) fn marks(self, value: &Value) -> Self {
        self.writes(&json!({ "metadata": { "annotations": { MARK: value, INTENT: value } } }))
    }

    pub(super) fn deleted(self) -> Self {
        let metadata = json!({ "annotations": { LOST: "yes" }, "deletionTimestamp": "2026-01-01T00:00:00Z" });
        self.merges("controller", &json!({ "metadata": metadata }))
    }

    pub(super) fn sends(mut self, method: Method, about: &str, cut: Option<CreateVolumeGroupSnapshotRequest>) -> Self {
        self.now += 10;
        let mut sent = call(1, Duration::from_secs(self.now), method, about);
        sent.cut_group = cut.map(Box::new);
        self.checks.called(&sent, DAEMONS[0], &self.state, &self.of_singles);
        self.last = Some(sent);
        self
    }

    pub(super) fn asks_with(self, tier: &str) -> Self {
        let source_volume_ids = vec!["v".to_owned(), "w".to_owned()];
        let parameters = [("tier".to_owned(), tier.to_owned())].into();
        let request = CreateVolumeGroupSnapshotRequest {
            name: NAME.to_owned(),
            source_volume_ids,
            parameters,
            ..CreateVolumeGroupSnapshotRequest::default()
        };
        self.sends(Method::CreateVolumeGroupSnapshot, NAME, Some(request))
    }

    pub(super) fn asks(self) -> Self {
        self.asks_with("1")
    }

    /// The driver does what it was asked for last.
    pub(super) fn done(mut self) -> Self {
        let request = self.last.as_ref().unwrap().cut_group.clone().unwrap();
        self.state.create_group(&Profile::default(), &request, Timestamp::UNIX_EPOCH).unwrap();
        self
    }

    pub(super) fn ends(mut self, outcome: Outcome) -> Self {
        let mut ended = self.last.take().unwrap();
        (ended.ended, ended.outcome) = (Some(Duration::from_secs(self.now)), outcome);
        self.checks.called(&ended, DAEMONS[0], &self.state, &self.of_singles);
        self
    }

    pub(super) fn refused(self, code: Code) -> Self {
        self.ends(Outcome::Refused(Refusal::new(code, "no")))
    }

    pub(super) fn id(&self) -> String {
        self.state.groups().keys().next().cloned().unwrap_or_default()
    }

    pub(super) fn stores(self) -> Self {
        let id = self.id();
        self.writes(&json!({ "status": { "volumeGroupSnapshotHandle": id, "readyToUse": true } }))
    }

    /// A ready group.
    pub(super) fn cut(self) -> Self {
        self.marks(&json!("yes")).asks().done().ends(Outcome::Ok).stores().marks(&Value::Null)
    }

    pub(super) fn deletes(mut self) -> Self {
        let id = self.id();
        self = self.sends(Method::DeleteVolumeGroupSnapshot, &id, None);
        self.state = State::default();
        self.ends(Outcome::Ok)
    }

    pub(super) fn released(self) -> Self {
        self.becomes(DAEMONS[0], None)
    }

    /// There is no work any more.
    pub(super) fn rests(self) -> Vec<Rule> {
        let end = [self.checks.unrest(&self.of_singles), self.checks.leaks(&self.of_singles)].concat();
        self.checks.broken().into_iter().chain(end).map(|(rule, _)| rule).collect()
    }
}

/// As a merge patch does.
fn merge(object: &mut Value, patch: &Value) {
    let Some(members) = patch.as_object() else { return *object = patch.clone() };
    for (name, member) in members {
        if member.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name], member);
        }
    }
}

#[test]
fn a_sound_life_of_a_group_breaks_nothing() {
    let kept = json!({ "spec": { "deletionPolicy": "Retain" } });
    let open = Story::new().marks(&json!("yes")).asks().done().refused(Code::Unavailable).deleted();
    let refused = Story::new().marks(&json!("yes")).asks().refused(Code::Internal).marks(&Value::Null);
    for (what, story) in [
        ("taken", Story::new().cut()),
        ("taken and deleted", Story::new().cut().deleted().deletes().released()),
        (
            "asked again, deleted meanwhile",
            open.asks().ends(Outcome::Ok).stores().marks(&Value::Null).deletes().released(),
        ),
        ("refused, and released", refused.deleted().released()),
        ("kept", Story::new().merges("admin", &kept).cut().deleted().released()),
    ] {
        assert_eq!(story.rests(), [], "{what}");
    }
}

#[test]
fn each_daemon_that_is_broken_with_groups_is_found_out() {
    let marked = || Story::new().marks(&json!("yes"));
    let told = json!({ "status": { "error": { "message": format!("the password {MARKER} is wrong") } } });
    let member = Story::new().cut();
    let id = member.state.snapshots().keys().next().cloned().unwrap();
    let broken = vec![
        (Rule::I1, "asks without a mark", Story::new().asks()),
        (Rule::I2, "releases what is unanswered", marked().asks().refused(Code::Unavailable).deleted().released()),
        (Rule::I2, "releases what is there", Story::new().cut().deleted().released()),
        (Rule::I4, "asks for something else", marked().asks().refused(Code::Unavailable).asks_with("2")),
        (Rule::I4, "stores another handle", {
            Story::new().cut().writes(&json!({ "status": { "volumeGroupSnapshotHandle": "another" } }))
        }),
        (Rule::I5, "says ready too soon", marked().asks().done().stores()),
        (Rule::I6, "deletes what lives", Story::new().cut().deletes()),
        (Rule::I6, "deletes a member alone", member.sends(Method::DeleteSnapshot, &id, None)),
        (Rule::I7, "writes a label", Story::new().writes(&json!({ "metadata": { "labels": { "theirs": "x" } } }))),
        (Rule::I8, "writes without the Lease", {
            Story::new().merges(DAEMONS[1], &json!({ "metadata": { "annotations": { MARK: "yes" } } }))
        }),
        (Rule::I10, "tells a secret", Story::new().writes(&told)),
        (Rule::I11, "leaves a mark", Story::new().cut().marks(&json!("yes"))),
        (Rule::I12, "forgets it", Story::new()),
        (Rule::I12, "never deletes it", Story::new().cut().deleted()),
        (Rule::I14, "leaks", Story::new().cut().deleted().released()),
    ];
    for (rule, what, story) in broken {
        let found = story.rests();
        assert!(found.contains(&rule), "a daemon that {what}: {rule:?} is not among {found:?}");
    }
}

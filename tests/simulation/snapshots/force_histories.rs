//! Histories of daemons that do wrong to contents which were removed by force, whose snapshot is in another content as well, or whose
//! group was there before: the checks must find each of them out, and nothing in the histories of sound ones.

use csi_control_plane::proto::CreateVolumeGroupSnapshotRequest;
use csi_control_plane::sandbox::driver::{Method, Outcome, Profile};
use jiff::Timestamp;
use serde_json::{Value, json};
use tonic::Code;

use super::checks::{self};
use super::groups;
use super::groups_histories::Story as OfGroup;
use super::histories::{ID, NAME, Story};
use super::invariants::Rule;
use crate::stage::Commit;
use crate::world::{DAEMONS, DRIVER};

/// A content that a user makes of what the driver has.
fn imported(name: &str, reference: &str, source: &Value, policy: &str) -> Value {
    json!({ "metadata": { "name": name, "uid": format!("uid of {name}") }, "status": { "readyToUse": true },
        "spec": { "driver": DRIVER, "deletionPolicy": policy, "source": source, reference: { "name": "s" } } })
}

impl Story {
    fn forced(self) -> Self {
        self.by("admin").becomes(None).by(DAEMONS[0]).after(1)
    }

    fn retained(self) -> Self {
        self.by("admin").writes(&[("/spec/deletionPolicy", json!("Retain"))]).by(DAEMONS[0]).after(60)
    }

    /// The driver has the snapshot, and the caller does not know.
    fn unanswered(self) -> Self {
        self.marked().asks().holds(ID).refused(Code::Unavailable).after(1)
    }

    /// Another content has the snapshot, too.
    fn stored_elsewhere(mut self) -> Self {
        let content = imported("another", "volumeSnapshotRef", &json!({ "snapshotHandle": ID }), "Retain");
        let (at, plural, name) = (self.at(), checks::CONTENTS, "another");
        self.checks.committed(&Commit { at, actor: "admin", plural, name, old: None, new: Some(&content) });
        self.after(1)
    }

    fn answered(self) -> Self {
        self.asks().ends(Outcome::Ok).after(1)
    }
}

#[test]
fn a_sound_end_of_a_content_that_is_removed_by_force_breaks_nothing() {
    for (what, story) in vec![
        ("worked to its end", Story::new().unanswered().forced().answered().deletes(ID)),
        (
            "refused in the end",
            Story::new().marked().asks().refused(Code::Unavailable).forced().asks().refused(Code::Internal),
        ),
        ("kept by its policy", Story::new().unanswered().retained().forced().answered()),
        ("nobody remembers the call", Story::new().unanswered().forced().leads(DAEMONS[1])),
        ("its handle was recorded", Story::new().cut().forced()),
        ("it is in the way of another request", Story::new().unanswered().forced().asks().refused(Code::AlreadyExists)),
        ("removed while it was deleted", Story::new().cut().deleted().after(1).forced().deletes(ID)),
        ("left to another content", Story::new().unanswered().stored_elsewhere().forced().answered()),
        ("released beside another content", Story::new().cut().after(1).stored_elsewhere().deleted().released()),
    ] {
        assert_eq!(story.rests(&[]).broken(), [], "{what}");
    }
}

#[test]
fn a_daemon_that_does_wrong_after_a_removal_by_force_is_found_out() {
    let deleted_in_between = Story::new().unanswered().forced().answered().deletes(ID);
    for (rule, what, story) in vec![
        (Rule::I14, "forgets an unanswered cut", Story::new().unanswered().forced()),
        (Rule::I14, "does not ask to the end", Story::new().marked().asks().refused(Code::Unavailable).forced()),
        (Rule::I14, "leaves what it has found", Story::new().unanswered().forced().answered()),
        (Rule::I14, "leaves a second one", deleted_in_between.asks().holds("snapshot-2").ends(Outcome::Ok)),
        (Rule::I6, "deletes what another content stores", {
            Story::new().unanswered().stored_elsewhere().forced().answered().deletes(ID)
        }),
        (
            Rule::I6,
            "deletes what its user has kept",
            Story::new().unanswered().retained().forced().answered().deletes(ID),
        ),
        (Rule::I6, "deletes what it owes no answer for", Story::new().cut().after(60).forced().deletes(ID)),
        (Rule::I6, "deletes it long after that", Story::new().cut().deleted().forced().after(60).deletes(ID)),
        (Rule::I6, "deletes what another content stores, without force", {
            Story::new().cut().after(1).stored_elsewhere().deleted().deletes(ID)
        }),
        (
            Rule::I2,
            "releases what is kept while a call is unanswered",
            Story::new().unanswered().retained().deleted().released(),
        ),
        (Rule::I1, "asks for what it has never marked", Story::new().forced().sends(Method::CreateSnapshot, NAME, "1")),
    ] {
        let found = story.rests(&[]).broken();
        assert!(found.contains(&rule), "a daemon that {what}: {rule:?} is not among {found:?}");
    }
}

impl OfGroup {
    /// A group that was there before, or was not, and its content, which nobody else wants.
    fn given(policy: &str, exists: bool) -> Self {
        let handles = json!({ "volumeGroupSnapshotHandle": GIVEN, "volumeSnapshotHandles": [] });
        let mut story = Self::of(&json!({ "groupSnapshotHandles": handles }), "");
        if exists {
            let (name, source_volume_ids) = ("theirs".to_owned(), vec!["v".to_owned(), "w".to_owned()]);
            let request = CreateVolumeGroupSnapshotRequest {
                name,
                source_volume_ids,
                ..CreateVolumeGroupSnapshotRequest::default()
            };
            story.state.create_group(&Profile::default(), &request, Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(story.id(), GIVEN);
        }
        story.merges("admin", &json!({ "spec": { "deletionPolicy": policy } })).after(60)
    }

    fn looks(self) -> Self {
        self.sends(Method::GetVolumeGroupSnapshot, GIVEN, None)
    }

    /// It was looked up, and is ready.
    fn found(self) -> Self {
        self.looks().ends(Outcome::Ok).stores()
    }

    fn missed(self) -> Self {
        self.looks().refused(Code::NotFound)
    }

    fn says_so(self) -> Self {
        self.writes(&json!({ "status": { "readyToUse": false, "error": { "message": "it is not there" } } }))
    }

    fn deletes_given(self) -> Self {
        self.sends(Method::DeleteVolumeGroupSnapshot, GIVEN, None).gone().ends(Outcome::Ok)
    }

    fn gone(mut self) -> Self {
        self.state = csi_control_plane::sandbox::driver::State::default();
        self
    }

    fn after(mut self, seconds: u64) -> Self {
        self.now += seconds;
        self
    }

    fn forced(self) -> Self {
        self.becomes("admin", None)
    }

    fn unanswered(self) -> Self {
        self.marks(&json!("yes")).asks().done().refused(Code::Unavailable)
    }

    fn retained(self) -> Self {
        self.merges("admin", &json!({ "spec": { "deletionPolicy": "Retain" } })).after(60)
    }

    fn stored_elsewhere(mut self) -> Self {
        let handles = json!({ "volumeGroupSnapshotHandle": self.id(), "volumeSnapshotHandles": [] });
        let source = json!({ "groupSnapshotHandles": handles });
        let content = imported("another", "volumeGroupSnapshotRef", &source, "Retain");
        let at = std::time::Duration::from_secs(self.now);
        let (plural, name) = (groups::CONTENTS, "another");
        let commit = Commit { at, actor: "admin", plural, name, old: None, new: Some(&content) };
        self.checks.committed(&commit, &self.of_singles);
        self
    }

    /// Somebody has a snapshot of the group in a content of its own.
    fn member_stored(mut self) -> Self {
        let member = self.state.snapshots().keys().next().cloned().unwrap();
        let content = imported("member", "volumeSnapshotRef", &json!({ "snapshotHandle": member }), "Retain");
        let at = std::time::Duration::from_secs(self.now);
        let (plural, name) = (checks::CONTENTS, "member");
        self.of_singles.committed(&Commit { at, actor: "admin", plural, name, old: None, new: Some(&content) });
        self.after(60)
    }
}

/// The first id that the driver gives to a group.
const GIVEN: &str = "group-000001";

#[test]
fn a_sound_life_of_a_group_that_was_there_before_breaks_nothing() {
    let given = OfGroup::given;
    for (what, story) in vec![
        ("looked up", given("Delete", true).found()),
        ("looked up and deleted", given("Delete", true).found().deleted().deletes().released()),
        ("looked up and kept", given("Retain", true).found().deleted().released()),
        ("deleted before its first look-up", given("Delete", true).deleted().deletes().released()),
        ("kept before its first look-up", given("Retain", true).deleted().released()),
        ("never there", given("Delete", false).missed().says_so()),
        ("never there, and deleted", given("Delete", false).missed().deleted().deletes_given().released()),
        ("needed by another content", given("Delete", true).found().stored_elsewhere().deleted().released()),
        ("one of its snapshots is needed", given("Delete", true).found().member_stored().deleted()),
        ("removed by force", given("Delete", true).found().forced()),
    ] {
        assert_eq!(story.rests(), [], "{what}");
    }
}

#[test]
fn a_daemon_that_does_wrong_to_a_group_that_was_there_before_is_found_out() {
    let given = OfGroup::given;
    for (rule, what, story) in vec![
        (Rule::I6, "deletes a group that is kept", given("Retain", true).found().deleted().deletes()),
        (Rule::I6, "deletes a group that it cannot look up", given("Delete", true).missed().deletes()),
        (Rule::I6, "deletes a group that lives", given("Delete", true).found().deletes()),
        (Rule::I6, "deletes a group that another content stores", {
            given("Delete", true).found().stored_elsewhere().deleted().deletes()
        }),
        (Rule::I6, "deletes a group of which somebody needs a snapshot", {
            given("Delete", true).found().member_stored().deleted().deletes()
        }),
        (
            Rule::I6,
            "deletes a group whose content is gone by force",
            given("Delete", true).found().forced().after(60).deletes(),
        ),
        (Rule::I2, "leaves a group", given("Delete", true).found().deleted().released()),
        (Rule::I2, "leaves a group that it has not looked up", given("Delete", true).deleted().released()),
        (Rule::I2, "takes a failure for a deletion", given("Delete", true).missed().deleted().missed().released()),
        (Rule::I5, "says ready without a look", given("Delete", true).stores()),
        (
            Rule::I7,
            "writes a label",
            given("Delete", true).writes(&json!({ "metadata": { "labels": { "theirs": "x" } } })),
        ),
        (Rule::I12, "does not look it up", given("Delete", true)),
        (Rule::I12, "does not say that it is not there", given("Delete", false).missed()),
        (Rule::I12, "does not release it", given("Retain", true).found().deleted()),
    ] {
        let found = story.rests();
        assert!(found.contains(&rule), "a daemon that {what}: {rule:?} is not among {found:?}");
    }
}

#[test]
fn a_daemon_that_does_wrong_to_a_group_after_a_removal_by_force_is_found_out() {
    let open = || OfGroup::new().unanswered();
    let answered = |story: OfGroup| story.asks().ends(Outcome::Ok);
    assert_eq!(answered(open().forced()).deletes().rests(), [], "worked to its end");
    assert_eq!(answered(open().retained().forced()).rests(), [], "kept by its policy");
    assert_eq!(answered(open().stored_elsewhere().forced()).rests(), [], "left to another content");
    assert_eq!(OfGroup::new().cut().forced().rests(), [], "its handle was recorded");
    for (rule, what, story) in [
        (Rule::I14, "forgets an unanswered cut", open().forced()),
        (Rule::I14, "leaves what it has found", answered(open().forced())),
        (Rule::I6, "deletes what another content stores", answered(open().stored_elsewhere().forced()).deletes()),
        (Rule::I6, "deletes what its user has kept", answered(open().retained().forced()).deletes()),
        (Rule::I6, "deletes what it owes no answer for", OfGroup::new().cut().forced().deletes()),
        (Rule::I2, "releases what is kept while a call is unanswered", open().retained().deleted().released()),
        (Rule::I1, "asks for what it has never marked", OfGroup::new().forced().asks()),
    ] {
        let found = story.rests();
        assert!(found.contains(&rule), "a daemon that {what}: {rule:?} is not among {found:?}");
    }
}

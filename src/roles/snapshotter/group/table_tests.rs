//! The tables of snapshotter spec 4, as groups have them.

use serde_json::{Value, json};
use tonic::Code;

use super::fixtures::{
    BDEL, DRIVER, FIN, GROUP_UID, INTENT, MARK, asked, class, content, cut, given, marked, member, rules,
};
use crate::cluster::{ObjectReference, SecretRef, VolumeGroupSnapshotContent};
use crate::csi::{RpcError, SnapshotLocks};
use crate::process::Clock;
use crate::roles::kit::Secret;
use crate::roles::kit::fixtures::merged;
use crate::roles::snapshotter::content::policy::decide::phase;
use crate::roles::snapshotter::content::policy::{
    Doomed, Failure, Left, OwnerNeed, Phase, Progress, Step, predicates::is_turned, tables,
};
use crate::roles::snapshotter::content::record::needed::{User, WithPolicyDelete};
use crate::roles::snapshotter::content::record::{
    ClassView, Content as _, ContentError, Found, InvalidSnapshot, NameRule, Needed, Odd, Operation, RequestRules,
    Wait, request::plan,
};
use crate::roles::snapshotter::content::told::texts::told;
use crate::roles::snapshotter::names::ANNOTATION_UNLISTED_MEMBERS;
use crate::roles::snapshotter::secrets::SecretFault;

type Case = tables::CaseOf<VolumeGroupSnapshotContent>;

impl Case {
    /// A content that the API has shown, with its class, at its turn, after a list of contents.
    fn of(content: VolumeGroupSnapshotContent) -> Self {
        let progress = Progress { volume_turn: Some(volumes()), is_listed: true, ..Progress::default() };
        Self::shown(content, class(json!({})), rules(), progress)
    }
}

fn volumes() -> Vec<String> {
    vec!["vol-1".into(), "vol-2".into()]
}

fn found(is_ready: bool) -> Found {
    let members = vec![member("vol-1", "snap-1", is_ready), member("vol-2", "snap-2", is_ready)];
    Found { handle: "group-1".into(), creation_time: 1_000_000_000, is_ready, members, ..Found::default() }
}

fn dt_bdel(patch: Value) -> Value {
    let gone = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": { BDEL: "yes" } } });
    merged(gone, patch)
}

fn create() -> Step {
    Step::Create(Box::new(asked()))
}

#[test]
fn s22_the_name_is_made_of_the_groups_uid_and_the_objects_names_go_along_if_asked_for() {
    assert_eq!(asked().request.name, format!("groupsnapshot-{GROUP_UID}"));
    assert_eq!(asked().request.sources, ["vol-2", "vol-1"], "as the spec names them");
    let names = NameRule { prefix: "g".into(), uuid_length: Some(8) };
    let rules = RequestRules { driver: DRIVER.into(), names, extra_metadata: true };
    let keys = ["group-snapshotter-secret-name", "group-snapshotter-get-secret-namespace"];
    let ours = keys.map(|key| (format!("csi.storage.k8s.io/{key}"), json!("x")));
    let class = class(json!({ "parameters": serde_json::Map::from_iter(ours) }));
    let asked = plan(&content(json!({})), ClassView::Ours(&class), &rules).unwrap();
    assert_eq!(asked.request.name, "g-123e4567");
    let told: Vec<&str> = asked.request.parameters.keys().map(String::as_str).collect();
    assert_eq!(
        told,
        [
            "csi.storage.k8s.io/volumegroupsnapshot/name",
            "csi.storage.k8s.io/volumegroupsnapshot/namespace",
            "csi.storage.k8s.io/volumegroupsnapshotcontent/name",
            "tier",
        ]
    );
}

#[test]
fn i1_a_group_is_taken_at_the_turns_of_all_its_volumes_after_finalizer_mark_and_intent() {
    let bare = json!({ "metadata": { "finalizers": null, "annotations": null } });
    let waiting = Case::of(content(bare.clone())).with(|case| case.progress.volume_turn = None);
    assert_eq!(waiting.next(), Step::TakeTurn(volumes()), "in their order");
    assert_eq!(Case::of(content(bare)).next(), Step::Begin(Box::new(asked())));
    assert_eq!(Case::of(marked(json!({}))).with(|case| case.known.is_confirmed = false).next(), Step::Confirm);
    assert_eq!(Case::of(marked(json!({}))).next(), create());
    let deleted = Case::of(marked(dt_bdel(json!({})))).with(|case| case.class = None);
    assert_eq!(deleted.next(), create(), "until the answer is final, and without its class");
}

#[test]
fn without_the_capability_nothing_is_asked() {
    let unable = |content| Case::of(content).with(|case| case.rules.takes = false).next();
    for content in [content(json!({})), cut(json!({})), cut(dt_bdel(json!({})))] {
        let Step::Fail(_, reason) = unable(content) else { panic!("asked") };
        assert_eq!(
            reason.to_string(),
            "driver demo.csi.example.com does not have the capability CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"
        );
    }
    let retained = json!({ "spec": { "deletionPolicy": "Retain" } });
    assert_eq!(unable(cut(dt_bdel(retained))), Step::Release, "no call is needed");
}

#[test]
fn s24_a_group_that_is_not_ready_is_asked_for_by_its_id_and_needs_its_request_no_more() {
    let answered = Case::of(marked(json!({}))).with(|case| case.progress.found = Some(found(false)));
    assert_eq!(answered.next(), Step::Save(found(false)));
    let stored = json!({ "metadata": { "annotations": { MARK: "yes", INTENT: asked().intent } } });
    let recorded = Case::of(cut(stored)).with(|case| case.progress.found = Some(found(false)));
    assert_eq!(recorded.next(), Step::Unmark { keep_intent: false });
    let over = Case::of(cut(json!({}))).with(|case| case.progress.found = Some(found(false)));
    assert_eq!(over.next(), Step::Wait(Wait::NotReady));
    let look = Case::of(cut(json!({}))).with(|case| case.progress.volume_turn = None);
    assert_eq!(look.next(), Step::LookUp("group-1".into()), "no turn is taken");
    assert_eq!(Case::of(given(json!({}))).next(), Step::LookUp("old".into()));
    let ready = Case::of(cut(json!({ "status": { "readyToUse": true } })));
    assert_eq!(ready.next(), Step::Settled);
    let steps = [content(json!({})), marked(json!({})), cut(json!({ "metadata": { "annotations": { MARK: "yes" } } }))];
    assert!(steps.windows(2).all(|pair| !is_turned(&pair[0], &pair[1])), "our own writes wake nothing");
}

#[test]
fn s17_a_look_has_the_secret_of_its_class_and_a_change_that_of_the_annotations() {
    let keys = json!({ "parameters": {
        "csi.storage.k8s.io/group-snapshotter-get-secret-name": "get-${volumegroupsnapshotcontent.name}",
        "csi.storage.k8s.io/group-snapshotter-get-secret-namespace": "kube-system" } });
    let looking = Case::of(cut(json!({}))).with(|case| case.class = Some(class(keys.clone())));
    let Step::ReadSecret(need) = looking.next() else { panic!("no secret") };
    assert_eq!((need.place.name.as_str(), need.is_for_listing), ("get-content-1", true));
    let (name, namespace) = VolumeGroupSnapshotContent::NAMES.secret;
    let place = json!({ "metadata": { "annotations": { name: "s", namespace: "n" } } });
    for content in [content(place.clone()), cut(dt_bdel(place))] {
        let case = Case::of(content).with(|case| case.class = Some(class(keys.clone())));
        let Step::ReadSecret(need) = case.next() else { panic!("no secret") };
        assert_eq!((need.place.name.as_str(), need.is_for_listing), ("s", false));
        let read = SecretRef { name: "s".into(), namespace: "n".into() };
        let case = case.with(|case| case.progress.secret = Some((read, Secret::default())));
        assert!(matches!(case.next(), Step::Begin(_) | Step::TakeSnapshotTurns(_)));
    }
    let half = Case::of(cut(dt_bdel(json!({ "metadata": { "annotations": { name: "s" } } }))));
    assert!(matches!(half.next(), Step::Fail(Operation::Delete, InvalidSnapshot::Secret { of: "group snapshot", .. })));
}

#[test]
fn s23_s26_a_deletion_has_the_turns_of_the_group_and_of_all_members_and_names_them_once() {
    let turns = |content| match Case::of(content).with(|case| case.class = None).next() {
        Step::TakeSnapshotTurns(turns) => turns,
        step => panic!("{step:?}"),
    };
    assert_eq!(turns(cut(dt_bdel(json!({})))), ["group-1", "snap-1", "snap-2"]);
    let unlisted = Case::of(cut(dt_bdel(json!({})))).with(|case| case.progress.is_listed = false);
    assert_eq!(unlisted.next(), Step::Relist, "a content of a member may be there by now");
    assert_eq!(turns(given(dt_bdel(json!({})))), ["old", "old-1", "old-2"]);
    let empty = json!({ "status": { "volumeSnapshotInfoList": [] } });
    assert_eq!(turns(cut(dt_bdel(empty.clone()))), ["group-1"], "the driver is asked all the same");
    let locks = SnapshotLocks::new(Clock::system());
    let at_turn = |content: VolumeGroupSnapshotContent| {
        let ids = turns(content.clone());
        Case::of(content).with(|case| {
            let turn = |id: &String| futures::FutureExt::now_or_never(locks.exclusive(id));
            case.progress.snapshot_turns = ids.iter().filter_map(turn).collect();
        })
    };
    assert_eq!(at_turn(cut(dt_bdel(json!({})))).next(), Step::Confirm, "the policy may have been edited");
    let confirmed = |content| at_turn(content).with(|case| case.progress.is_confirmed = true).next();
    let doomed = |members: &[&str]| {
        Step::Delete(Doomed { handle: "group-1".into(), members: members.iter().map(|&id| id.into()).collect() })
    };
    assert_eq!(confirmed(cut(dt_bdel(json!({})))), doomed(&["snap-1", "snap-2"]));
    assert_eq!(confirmed(cut(dt_bdel(empty))), doomed(&[]));
    let deleted = |content| Case::of(content).with(|case| case.known.is_deleted = true).next();
    assert_eq!(deleted(cut(dt_bdel(json!({})))), Step::Release);
    assert_eq!(deleted(cut(dt_bdel(json!({ "metadata": { "finalizers": [FIN, "other"] } })))), Step::Clear);
    let never_begun = Case::of(content(dt_bdel(json!({}))));
    assert_eq!(never_begun.next(), Step::Release);
    let doubtful = never_begun.with(|case| case.known.is_doubtful = true);
    assert_eq!(doubtful.next(), Step::NameLeftovers, "L12: there is no list of groups, and people must look");
}

#[test]
fn only_our_groups_are_worked() {
    let of = |content: &VolumeGroupSnapshotContent| phase(content, ClassView::Unnamed, &rules(), false);
    assert_eq!(of(&content(json!({}))), Phase::Create);
    assert_eq!(of(&given(json!({}))), Phase::LookUp);
    assert_eq!(of(&content(json!({ "spec": { "driver": "other" } }))), Phase::Ignored);
    assert_eq!(of(&content(json!({ "spec": { "source": { "volumeHandles": [] } } }))), Phase::Ignored);
    let foreign = Case::of(content(json!({}))).with(|case| case.class = Some(class(json!({ "driver": "other" }))));
    assert_eq!(foreign.next(), Step::Wait(Wait::ForeignClass("other".into())));
}

#[test]
fn l9_a_group_whose_content_was_removed_by_force_is_deleted_with_its_members() {
    let gone = |patch: Value| {
        Case::of(marked(patch)).with(|case| {
            (case.exists, case.progress.is_gone) = (false, true);
            case.known.unanswered = Some(asked());
        })
    };
    assert_eq!(gone(json!({})).next(), create());
    let made = |text: &str| serde_json::from_value(json!(text)).unwrap();
    let answered = |patch| {
        gone(patch).with(|case| {
            case.progress.found = Some(Found { is_dated: true, ..found(false) });
            case.known.asked_since = made("1970-01-01T00:00:00Z");
        })
    };
    let unlisted = answered(json!({})).with(|case| case.progress.is_listed = false);
    assert_eq!(unlisted.next(), Step::Relist, "another content may name it by now");
    assert_eq!(
        answered(json!({})).next(),
        Step::TakeSnapshotTurns(vec!["group-1".into(), "snap-1".into(), "snap-2".into()])
    );
    let retained = answered(json!({ "spec": { "deletionPolicy": "Retain" } }));
    assert_eq!(retained.next(), Step::Abandon(Left::Retained));
    let older = answered(json!({})).with(|case| case.known.asked_since = made("2026-01-01T00:00:00Z"));
    assert_eq!(older.next(), Step::Abandon(Left::MaybeKept), "somebody may have kept it");
}

#[test]
fn s25_texts_are_the_sidecars() {
    let driver = |method: &'static str| -> ContentError {
        RpcError { method, code: Code::FailedPrecondition, message: "no \"room\"".into() }.into()
    };
    let create = driver("/csi.v1.GroupController/CreateVolumeGroupSnapshot");
    let (reason, text) = told(&content(json!({})), Operation::Create, &create).unwrap();
    assert_eq!(reason, "GroupSnapshotCreationFailed");
    assert_eq!(
        text,
        "Failed to create group snapshot: failed to take group snapshot of the volumes [vol-2 vol-1]: \"rpc error: code = \
         FailedPrecondition desc = no \\\"room\\\"\""
    );
    let look = driver("/csi.v1.GroupController/GetVolumeGroupSnapshot");
    let (reason, text) = told(&cut(json!({})), Operation::Ready, &look).unwrap();
    assert_eq!(reason, "GroupSnapshotContentCheckandUpdateFailed");
    assert!(
        text.starts_with(
            "Failed to check and update group snapshot content: failed to list group snapshot for group snapshot content \
             content-1: \"rpc error"
        ),
        "{text}"
    );
    let delete = driver("/csi.v1.GroupController/DeleteVolumeGroupSnapshot");
    let (reason, text) = told(&cut(json!({})), Operation::Delete, &delete).unwrap();
    assert_eq!(reason, "GroupSnapshotDeleteError");
    assert!(text.starts_with("Failed to delete group snapshot: rpc error"), "{text}");
    let failure = Failure { operation: Operation::Create, error: create, is_final: true, is_recorded: false };
    let refused = Case::of(marked(json!({}))).with(|case| case.progress.failure = Some(failure));
    assert_eq!(refused.next(), Step::Unmark { keep_intent: false });
}

/// All that section 8 of the spec has of groups, and what it says of snapshots in the words of groups.
#[test]
fn s25_the_texts_about_the_objects_of_a_group_are_the_sidecars_byte_for_byte() {
    let name = || "content-1".to_owned();
    let classes = "volumegroupsnapshotclass.groupsnapshot.storage.k8s.io";
    let half = || InvalidSnapshot::Secret { of: "group snapshot", content: name(), fault: SecretFault::Half };
    let create = "Failed to create group snapshot: ";
    let input = format!(
        "{create}failed to get input parameters to create group snapshot for group snapshot content content-1: "
    );
    let check = "Failed to check and update group snapshot content: ";
    let of = |content: &VolumeGroupSnapshotContent, operation, reason: InvalidSnapshot| {
        told(content, operation, &reason.into()).unwrap()
    };
    for (reason, expected) in [
        (
            InvalidSnapshot::NoClass { of: "group snapshot", content: name() },
            format!("{input}\"failed to take group snapshot content-1 without a group snapshot class\""),
        ),
        (InvalidSnapshot::ClassMissing(classes, "fast".into()), format!("{input}\"{classes} \\\"fast\\\" not found\"")),
        (
            half(),
            format!(
                "{input}\"cannot retrieve secrets for group snapshot content \\\"content-1\\\", err: secret name or namespace not \
                 specified\""
            ),
        ),
        (
            InvalidSnapshot::UnknownParameter("csi.storage.k8s.io/x".into()),
            format!(
                "{create}failed to remove CSI Parameters of prefixed keys: found unknown parameter key \"csi.storage.k8s.io/x\" with \
                 reserved namespace csi.storage.k8s.io/"
            ),
        ),
        (
            InvalidSnapshot::Unbound { of: "group snapshot", content: name() },
            format!(
                "{create}failed to take group snapshot of the volumes [vol-2 vol-1]: \"cannot create group snapshot. Group snapshot \
                 content content-1 not bound to a group snapshot\""
            ),
        ),
    ] {
        assert_eq!(
            of(&content(json!({})), Operation::Create, reason),
            ("GroupSnapshotCreationFailed".into(), expected)
        );
    }
    for (reason, expected) in [
        (
            InvalidSnapshot::ListClassMissing(classes, "fast".into()),
            format!("failed to get group snapshot class fast for group snapshot content content-1: {classes} \"fast\" not found"),
        ),
        (
            InvalidSnapshot::ListSecret(SecretFault::Half),
            "failed to get secret reference for group snapshot content content-1: secret name or namespace not specified".into(),
        ),
        (
            InvalidSnapshot::OddAnswer("group_snapshot"),
            "failed to list group snapshot for group snapshot content content-1: \"the driver's answer has no group_snapshot\"".into(),
        ),
    ] {
        let expected = ("GroupSnapshotContentCheckandUpdateFailed".to_owned(), format!("{check}{expected}"));
        for content in [given(json!({})), cut(json!({}))] {
            assert_eq!(of(&content, Operation::Ready, reason.clone()), expected);
        }
    }
    let (reason, text) = of(&cut(json!({})), Operation::Delete, half());
    assert_eq!(reason, "GroupSnapshotDeleteError");
    assert!(text.starts_with("Failed to get snapshot credentials: "), "{text}");
}

#[test]
fn a_group_is_not_deleted_while_somebody_needs_one_of_its_snapshots() {
    let needed = Needed {
        snapshot: "snap-2".into(),
        content: "theirs".into(),
        policy: Some("Retain".into()),
        is_deleting: false,
        user: User::None,
        with_policy_delete: WithPolicyDelete::Stays,
    };
    let going = || Case::of(cut(dt_bdel(json!({}))));
    let refused = going().with(|case| case.known.needed_member = Some(needed.clone()));
    assert_eq!(refused.next(), Step::Fail(Operation::Delete, InvalidSnapshot::MemberNeeded(needed.clone())));
    let retained = Case::of(cut(dt_bdel(json!({ "spec": { "deletionPolicy": "Retain" } }))));
    assert_eq!(retained.with(|case| case.known.needed_member = Some(needed.clone())).next(), Step::Release);
    assert!(matches!(gone().next(), Step::TakeSnapshotTurns(_)));
    let needed = gone().with(|case| case.known.needed_member = Some(needed));
    assert_eq!(needed.next(), Step::Abandon(Left::MemberNeeded), "its content was removed by force");
}

#[test]
fn an_answer_with_odd_members_is_stored_by_its_id_and_then_told() {
    let odd = || Odd { why: "is odd".into(), members: vec!["s".into()] };
    let found = || Found { odd: Some(odd()), members: Vec::new(), ..found(false) };
    let step = |content| Case::of(content).with(|case| case.progress.found = Some(found())).next();
    assert_eq!(step(marked(json!({}))), Step::ListMembers(vec!["s".into()]), "before the status has its id");
    let listed = json!({ "metadata": { "annotations": { ANNOTATION_UNLISTED_MEMBERS: "[\"s\"]" } } });
    assert_eq!(step(marked(listed.clone())), Step::Save(found()));
    let stored = merged(listed, json!({ "status": { "volumeSnapshotInfoList": null } }));
    let begun = json!({ "metadata": { "annotations": { MARK: "yes", INTENT: asked().intent } } });
    assert_eq!(step(cut(merged(stored.clone(), begun))), Step::Unmark { keep_intent: false });
    let told = Step::Fail(Operation::Ready, InvalidSnapshot::OddMembers("is odd".into()));
    assert_eq!(step(cut(stored.clone())), told);
    let turns = vec!["group-1".into(), "s".into()];
    assert_eq!(step(cut(dt_bdel(stored))), Step::TakeSnapshotTurns(turns), "its members are needed no more");
}

#[test]
fn whose_the_volume_snapshot_of_a_content_is_gets_read_before_the_group_is_deleted() {
    let need = OwnerNeed { content: "uid".into(), snapshot: ObjectReference::default() };
    let unread = |case: Case| case.with(|case| case.known.unread_owner = Some(need.clone())).next();
    for case in [Case::of(cut(dt_bdel(json!({})))), gone()] {
        assert_eq!(unread(case), Step::ReadOwner(need.clone()));
    }
    let retained = Case::of(cut(dt_bdel(json!({ "spec": { "deletionPolicy": "Retain" } }))));
    assert_eq!(unread(retained), Step::Release, "nothing is deleted");
}

#[test]
fn a_group_is_not_deleted_while_the_cluster_shows_no_contents_of_snapshots() {
    let unseen = |case: Case| case.with(|case| case.known.are_members_unseen = true).next();
    let refused = Step::Fail(Operation::Delete, InvalidSnapshot::MembersUnseen);
    assert_eq!(unseen(Case::of(cut(dt_bdel(json!({}))))), refused);
    let retained = json!({ "spec": { "deletionPolicy": "Retain" } });
    assert_eq!(unseen(Case::of(cut(dt_bdel(retained)))), Step::Release, "no call is needed");
    assert_eq!(unseen(gone()), refused, "its content was removed by force");
}

/// A content that was removed by force, whose group was taken meanwhile.
fn gone() -> Case {
    Case::of(marked(json!({}))).with(|case| {
        case.known.unanswered = Some(asked());
        (case.exists, case.progress.is_gone) = (false, true);
        case.progress.found = Some(Found { is_dated: true, ..found(true) });
        case.known.asked_since = serde_json::from_value(json!("1970-01-01T00:00:00Z")).unwrap();
    })
}

//! What a new leader finds out before it calls the driver, and what the status says about a failure.

use tonic::Code;

use super::*;
use crate::cluster::patch::{Guard, MESSAGE_LIMIT};
use crate::cluster::{ApiError, ApiErrorKind, ObjectName};
use crate::csi::{Client, RpcError};
use crate::roles::attacher::error::{AttachError, RECORD_ATTACHED};
use crate::roles::attacher::failure::{Failure, FailureRecord};
use crate::roles::attacher::progress::{Listed, Memory};
use crate::roles::kit::End;

fn other() -> Unpublish {
    Unpublish { volume_id: "vol-2".into(), node_id: "id-1".into() }
}

#[test]
fn a_call_waits_for_what_a_late_watch_may_not_have_shown() {
    let nothing = Shown { list: false, attachment: false, volume: false };
    let is_call = |step: &Step| matches!(step, Step::Publish(_) | Step::Unpublish(_));
    // A publish needs both objects as the API has them; it does not depend on other attachments.
    let mut attach = World::prepared();
    attach.shown = nothing;
    assert_eq!(attach.step(), Step::Confirm);
    attach.shown.attachment = true;
    assert_eq!(attach.step(), Step::ConfirmVolume);
    attach.shown.volume = true;
    assert!(is_call(&attach.step()));
    // An unpublish needs the attachment, and all others.
    let mut detach = World::detaching();
    detach.shown = nothing;
    assert_eq!(detach.step(), Step::List);
    detach.shown.list = true;
    assert_eq!(detach.step(), Step::Confirm);
    detach.shown.attachment = true;
    assert!(is_call(&detach.step()));
    // Another attachment that has the volume there may be gone.
    let mut shared = World::detaching();
    shared.others = vec![other(), Unpublish { volume_id: "vol-1".into(), node_id: "id-1".into() }];
    assert_eq!(shared.step(), Step::SkipUnpublish(Skip::Shared));
    shared.shown.list = false;
    assert_eq!(shared.step(), Step::List);
    // Nothing is found out for what is settled, and a write that prepares is its own proof.
    let mut settled = World::detaching();
    (settled.shown, settled.others) = (nothing, vec![other()]);
    settled.set("/metadata/finalizers", json!(["example.com/keep"]));
    assert_eq!(settled.steps(), []);
    let mut unprepared = World::new();
    unprepared.shown = nothing;
    assert_eq!(unprepared.steps(), [Step::ProtectVolume, Step::SaveIntent(intent())]);
}

fn refused(code: Code) -> AttachError {
    AttachError::Driver(RpcError { method: Client::PUBLISH, code, message: "no".into() })
}

/// What is recorded of this failure.
fn record(world: &mut World, error: &AttachError) -> Option<FailureRecord> {
    world.done.failure = Some(Failure::of(error));
    match &world.steps()[..] {
        [] => None,
        [Step::RecordFailure(record)] => Some((**record).clone()),
        steps => panic!("a failed attempt does nothing but record: {steps:?}"),
    }
}

#[test]
fn the_status_says_why_an_attempt_has_failed_unless_it_says_so_already() {
    let (error, number) = (refused(Code::NotFound), Some(5));
    let mut world = World::prepared();
    let first = record(&mut world, &error).unwrap();
    assert_eq!(
        (&*first.message, first.code, first.admits_detached, first.guard),
        (&*error.message(), number, false, Guard::Uid)
    );
    // A new time alone is not worth a request; another text or code is.
    let says = |message: &str, code: Option<i32>| {
        json!({ "attached": false, "attachError":
        { "message": message, "errorCode": code, "time": "2026-01-01T00:00:00Z" } })
    };
    for (status, expected) in
        [(says(&error.message(), number), false), (says(&error.message(), None), true), (says("another", number), true)]
    {
        world.set("/status", status);
        assert_eq!(record(&mut world, &error).is_some(), expected);
    }
    world.rules.telling.error_codes = false;
    assert_eq!(record(&mut world, &error).unwrap().code, None);
    // What is written or was given up is done with.
    world.done.failure = Some(Failure { is_recorded: true, ..Failure::of(&error) });
    assert_eq!(world.steps(), []);
    // Only an attach error has a code in the API.
    let mut detach = World::detaching();
    assert_eq!(record(&mut detach, &error).unwrap().code, None);
    // A very long text is cut.
    let long =
        AttachError::Driver(RpcError { method: Client::PUBLISH, code: Code::Internal, message: "x".repeat(5000) });
    assert!(record(&mut World::prepared(), &long).unwrap().message.len() <= MESSAGE_LIMIT);
}

#[test]
fn an_attachment_that_the_api_has_not_confirmed_is_written_to_only_as_it_was_seen() {
    let mut world = World::prepared();
    world.shown.attachment = false;
    assert_eq!(record(&mut world, &refused(Code::NotFound)).unwrap().guard, Guard::Version);
}

#[test]
fn the_status_admits_that_a_lost_volume_is_detached_only_if_it_will_not_be_published() {
    let missing = AttachError::Reason(InvalidAttachment::NodeMissing("node-1".into()));
    let cases = [
        (true, true, refused(Code::NotFound), true, "the driver lists it as gone, and has refused for good"),
        (true, true, missing, true, "there is no node"),
        (false, true, refused(Code::NotFound), false, "the driver's listings say nothing against it"),
        (true, false, refused(Code::NotFound), false, "the status does not say that it is attached"),
        (true, true, refused(Code::Unavailable), false, "it may be published"),
    ];
    for (lost, attached, error, expected, what) in cases {
        let mut world = World::prepared();
        world.is_lost = lost;
        world.set("/status", json!({ "attached": attached }));
        assert_eq!(record(&mut world, &error).unwrap().admits_detached, expected, "{what}");
        // It must, even if the status has the error already.
        let text = error.message();
        world.set("/status/attachError", json!({ "message": text, "errorCode": Failure::of(&error).code }));
        assert_eq!(record(&mut world, &error).is_some(), expected, "{what}");
    }
}

#[test]
fn a_published_volume_that_will_soon_be_recorded_is_no_error_of_the_attachment() {
    let api = |kind| AttachError::from(RECORD_ATTACHED.failed(ApiError::for_test(kind, ObjectName::cluster("csi-1"))));
    assert_eq!(record(&mut World::prepared(), &api(ApiErrorKind::ServerError)), None);
    let refused = record(&mut World::prepared(), &api(ApiErrorKind::Forbidden));
    assert!(refused.is_some(), "a permanent refusal by the API is one");
}

#[test]
fn what_the_driver_showed_is_worth_nothing_after_a_publish_that_it_did_not_refuse_for_good() {
    for (code, expected) in [
        (Code::Internal, Listed::Lost),
        (Code::NotFound, Listed::Lost),
        (Code::Unavailable, Listed::Fine),
        (Code::DeadlineExceeded, Listed::Fine),
        (Code::Aborted, Listed::Fine),
        (Code::ResourceExhausted, Listed::Fine),
        (Code::Cancelled, Listed::Fine),
    ] {
        let error = refused(code);
        let publishes = |before: Listed| {
            let mut memory = Memory { listed: before, ..Memory::default() };
            memory.publishes();
            memory.ended(Direction::Attach, &End::Failed(&error));
            memory.listed
        };
        assert_eq!(publishes(Listed::Lost), expected, "{code:?}");
        assert_eq!(publishes(Listed::Fine), Listed::Fine, "{code:?}: a refusal alone says nothing of where it is");
    }
    let mut memory = Memory { listed: Listed::Lost, ..Memory::default() };
    memory.ended(Direction::Attach, &End::Failed(&AttachError::Reason(InvalidAttachment::NodeMissing("n".into()))));
    assert_eq!(memory.listed, Listed::Lost, "the driver was not asked");
    assert_eq!(memory.failing, Some(Direction::Attach));
    memory.ended(Direction::Attach, &End::Settled);
    assert_eq!(memory.failing, None);
}

//! Tables of what is remembered of a change.

use serde_json::json;
use tonic::Code;

use super::error::{ChangeError, InvalidChange, Wait};
use super::fixtures::progress;
use super::job::Job;
use super::progress::{Answer, Expanded, LastCall, Memory, Progress, Refused};
use super::step::{Expand, Step, Write};
use super::waiting::Reason;
use crate::cluster::ObjectName;
use crate::csi::RpcError;
use crate::proto::VolumeCapability;
use crate::roles::kit::{End, Remembered as _};

fn refused(code: Code) -> Answer {
    let error = RpcError { method: "/x/Y", code, message: "no".to_owned() };
    let refused = Refused { asked: "2147483648".to_owned(), error, is_infeasible: false, is_recorded: false };
    let in_use = (code == Code::FailedPrecondition).then(|| ObjectName::namespaced("default", "data"));
    Answer::Refused { refused, at: "2026-01-01T00:10:00Z".parse().unwrap(), in_use }
}

fn call() -> Step {
    let capability = VolumeCapability::default();
    Step::Expand(Box::new(Expand { volume_id: "handle-1".to_owned(), size: 2 << 30, capability }))
}

#[test]
fn a_call_is_open_from_its_beginning_until_its_end_is_certain() {
    let at = "2026-01-01T00:10:00Z".parse().unwrap();
    let expanded = Expanded { asked: 2 << 30, size: 2 << 30, needs_node: false };
    for (answer, expected, in_use) in [
        (refused(Code::Internal), LastCall::Refused(at), false),
        (refused(Code::FailedPrecondition), LastCall::Refused(at), true),
        (refused(Code::DeadlineExceeded), LastCall::Open, false),
        (Answer::Faulty(InvalidChange::NoHandle, at), LastCall::Refused(at), false),
        (Answer::Expanded(expanded), LastCall::Earlier, false),
    ] {
        let (mut memory, mut progress) = (Memory::default(), progress(Job::Expand));
        memory.in_use = Some(ObjectName::namespaced("default", "data"));
        memory.intends(&call());
        assert_eq!(memory.last_call, LastCall::Open, "{answer:?}");
        let what = format!("{answer:?}");
        memory.apply(&mut progress, answer);
        assert_eq!((memory.last_call, memory.in_use.is_some()), (expected, in_use), "{what}");
    }
}

#[test]
fn an_answer_is_remembered_until_all_of_it_is_recorded() {
    let (mut memory, mut done) = (Memory::default(), progress(Job::Expand));
    let expanded = Expanded { asked: 2 << 30, size: 3 << 30, needs_node: false };
    memory.apply(&mut done, Answer::Expanded(expanded));
    memory.apply(&mut done, Answer::Wrote(Write::Size { size: 3 << 30, before: None }));
    assert_eq!((memory.expanded, done.expanded, done.did_something), (Some(expanded), Some(expanded), false));
    memory.apply(&mut done, Answer::Wrote(Write::Expanded(3 << 30)));
    assert_eq!((memory.expanded, done.expanded, done.did_something), (None, None, true));
    memory.apply(&mut done, Answer::Modified("gold".to_owned()));
    memory.apply(&mut done, Answer::Dropped);
    assert_eq!((memory.modified, done.has_answer()), (None, false));
}

#[test]
fn a_class_is_missing_since_it_was_found_out_first() {
    let (mut memory, mut done) = (Memory::default(), progress(Job::Modify));
    let first = done.began;
    let later = first + std::time::Duration::from_secs(9);
    let since = |memory: &Memory| memory.missing.clone().map(|(class, since)| (class, since == first));
    memory.apply(&mut done, Answer::NoClass(Some(("gold".to_owned(), first))));
    memory.apply(&mut done, Answer::NoClass(Some(("gold".to_owned(), later))));
    memory.apply(&mut done, Answer::NoClass(None));
    assert_eq!(since(&memory), Some(("gold".to_owned(), true)));
    memory.apply(&mut done, Answer::NoClass(Some(("silver".to_owned(), later))));
    assert_eq!(since(&memory), Some(("silver".to_owned(), false)));
}

/// Why an attempt has ended, and the reason under which the claim counts.
#[test]
fn a_claim_that_waits_for_something_else_begins_to_wait_anew() {
    let waits =
        |wait: Wait| -> ChangeError { InvalidChange::Waits { wait, says: "so it is".to_owned(), warns: false }.into() };
    let driver = |code| ChangeError::Driver(RpcError { method: "/x/Y", code, message: "no".to_owned() });
    let mut memory = Memory::default();
    let mut since = None;
    for (error, expected, is_anew) in [
        (driver(Code::Internal), Some(Reason::Backoff), true),
        (driver(Code::Aborted), Some(Reason::Backoff), false),
        (waits(Wait::NodeRetry(std::time::Duration::ZERO)), Some(Reason::Backoff), false),
        (waits(Wait::Node), Some(Reason::Node), true),
        (waits(Wait::PodList), Some(Reason::InUse), true),
        (waits(Wait::Pods), Some(Reason::InUse), false),
        (waits(Wait::Classes), Some(Reason::ClassMissing), true),
        (waits(Wait::Infeasible(std::time::Duration::ZERO)), Some(Reason::Infeasible), true),
        (InvalidChange::NoExpansion("demo".to_owned()).into(), None, true),
    ] {
        let mut done = progress(Job::Expand);
        memory.ended(&mut done, &End::Failed(&error));
        let waiting = memory.waiting.clone();
        assert_eq!(waiting.as_ref().map(|it| it.reason), expected, "{error:?}");
        assert_eq!(memory.group(), expected.map(Reason::label));
        let now = waiting.map(|it| it.since);
        assert_eq!(now != since, is_anew, "{error:?}");
        since = now;
    }
    assert_eq!(json!(Reason::LABELS), json!(["infeasible", "inUse", "node", "classMissing", "backoff"]));
}

/// The clock does not begin anew at each try, and the driver's words stay.
#[test]
fn an_infeasible_change_waits_since_it_was_refused_first_and_counts_its_tries() {
    let driver = |code, words: &str| {
        let error = RpcError { method: "/x/Y", code, message: words.to_owned() };
        let refused = Refused {
            asked: "2Gi".to_owned(),
            error: error.clone(),
            is_infeasible: code != Code::Internal,
            is_recorded: true,
        };
        (ChangeError::Driver(error), Some(refused))
    };
    let pause = InvalidChange::Waits {
        wait: Wait::Infeasible(std::time::Duration::ZERO),
        says: "volume not found".to_owned(),
        warns: false,
    };
    for job in Job::ALL {
        let (mut memory, mut began) = (Memory::default(), None);
        for ((error, refused), reason, failed, words) in [
            (driver(Code::NotFound, "volume not found"), Reason::Infeasible, 1, "volume not found"),
            ((pause.clone().into(), None), Reason::Infeasible, 1, "volume not found"),
            (driver(Code::Internal, "the array is on fire"), Reason::Backoff, 2, "the array is on fire"),
            (driver(Code::OutOfRange, "too large"), Reason::Infeasible, 3, "too large"),
        ] {
            let mut done = Progress { refused, ..progress(job) };
            memory.ended(&mut done, &End::Failed(&error));
            let waiting = memory.waiting.clone().unwrap();
            assert_eq!((waiting.reason, waiting.failed), (reason, failed), "{job:?}: {error:?}");
            assert!(waiting.says.contains(words), "{job:?}: {}", waiting.says);
            assert_eq!(waiting.since, *began.get_or_insert(waiting.since), "{job:?}: {error:?}");
        }
    }
}

#[test]
fn a_warning_is_news_once_until_the_change_succeeds() {
    let mut memory = Memory::default();
    let error = |message: &str| {
        ChangeError::Driver(RpcError { method: "/x/Y", code: Code::Internal, message: message.to_owned() })
    };
    let news = |memory: &mut Memory, message: &str| {
        let mut done = progress(Job::Expand);
        memory.ended(&mut done, &End::Failed(&error(message)));
        done.is_news
    };
    assert!(news(&mut memory, "request 0a1b2c3d-0001 failed"));
    assert!(!news(&mut memory, "request 0a1b2c3d-0002 failed"), "an ID is no news");
    assert!(news(&mut memory, "no room"));
    memory.apply(&mut progress(Job::Expand), Answer::Wrote(Write::Expanded(1)));
    assert!(news(&mut memory, "no room"));
    memory.ended(&mut progress(Job::Expand), &End::Settled);
    assert_eq!(memory, Memory::default());
}

//! What is remembered of one content.

use futures::FutureExt as _;
use serde_json::json;

use super::*;
use crate::cluster::VolumeSnapshotContent;
use crate::process::Clock;
use crate::roles::snapshotter::content::policy::{Failed, Failure};
use crate::roles::snapshotter::content::record::fixtures::{asked, content, cut};
use crate::roles::snapshotter::content::record::{Operation, intent::is_copied};
use crate::roles::snapshotter::names::ANNOTATION_SNAPSHOTTING;

type Contents = Memory<VolumeSnapshotContent>;

#[test]
fn s39_a_wipe_rings_while_a_call_is_unanswered() {
    let (mut memory, content) = (Contents::default(), Arc::new(content(json!({}))));
    memory.see(&content, true);
    assert_eq!(memory, Contents::default(), "nothing is asked");
    memory.intends(&content, &Step::Create(Box::new(asked())));
    let wiped = Arc::clone(&memory.unanswered.as_ref().unwrap().wiped);
    memory.see(&content, false);
    assert!(wiped.notified().now_or_never().is_none());
    memory.see(&content, true);
    assert!(wiped.notified().now_or_never().is_some());
    memory.intends(&content, &Step::Unmark { keep_intent: false });
    assert_eq!(memory, Contents::default());
}

#[test]
fn l9_who_takes_a_call_over_gets_the_time_of_the_first_who_asked() {
    let made = |uid: &str, second: u8| {
        let time = format!("2026-01-01T00:00:0{second}Z");
        Arc::new(content(json!({ "metadata": { "uid": uid, "creationTimestamp": time } })))
    };
    let (first, second, third) = (made("a", 1), made("b", 2), made("c", 3));
    let memories = [Contents::default(), Contents::default(), Contents::default()];
    let [mut of_first, mut of_second, mut of_third] = memories;
    of_first.ask(&first, &asked());
    // The third has asked by itself.
    of_third.ask(&third, &asked());
    for (heir, memory) in [(&second, &mut of_second), (&third, &mut of_third)] {
        memory.inherit(heir, of_first.unanswered.as_ref().unwrap());
        assert_eq!(memory.unanswered.as_ref().unwrap().since, first.metadata.creation_timestamp);
    }
    let inherited = of_second.unanswered.unwrap().asked;
    let marked = json!({ "metadata": { "uid": "b", "annotations": { ANNOTATION_SNAPSHOTTING: inherited.intent } } });
    assert!(!is_copied(&content(marked)), "the request is the heir's own");
    assert_eq!((inherited.request, inherited.is_as_recorded), (asked().request, true));
}

fn failed(at: Instant, is_final: bool) -> Failed {
    let reason = InvalidSnapshot::Waits(Wait::NotReady, String::new());
    let failure = Failure { operation: Operation::Ready, error: reason.into(), is_final, is_recorded: true };
    Failed { failure, at, warning: None }
}

#[test]
fn s8_the_pauses_between_two_looks_grow_up_to_their_limit_and_end_with_readiness() {
    let now = Clock::system().now();
    let (mut memory, mut progress) = (Contents::default(), Progress::default());
    let pace = Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(3) };
    let mut look = |memory: &mut Contents| {
        let pause = pause(memory.known(now, pace.max).looks, &pace, 0.0);
        memory.apply(&mut progress, Answer::NotReady(Box::new(failed(now, false)), pause));
        pause
    };
    let pauses: Vec<_> = (0..4).map(|_| look(&mut memory)).collect();
    assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]) && pauses[3] <= pace.max, "{pauses:?}");
    assert_eq!(memory.known(now, pace.max).pause_left, Some(pauses[3]));
    let is_overdue = |memory: &Contents, seconds| memory.known(now + Duration::from_secs(seconds), pace.max).is_overdue;
    assert!(!is_overdue(&memory, 2) && is_overdue(&memory, 3) && !is_overdue(&Contents::default(), 3));
    let gave_way = |at| Answer::GaveWay(at, Duration::ZERO);
    let (mut other, mut of_other) = (Contents::default(), Progress::default());
    other.apply(&mut of_other, gave_way(now));
    assert!(is_overdue(&other, 3) && other.known(now, pace.max).pause_left.is_none());
    memory.apply(&mut of_other, gave_way(now + pace.max));
    assert!(is_overdue(&memory, 3), "an earlier look counts");
    let by_chance = pause(0, &pace, 0.99);
    assert!(by_chance <= pace.initial && by_chance >= pace.initial.mul_f64(0.8), "{by_chance:?}");
    assert_eq!(memory.known(now + pauses[3], pace.max).pause_left, None);
    let mut ready = Progress::default();
    memory.apply(&mut ready, Answer::Saved { is_cut: false, is_ready: true });
    assert_eq!((ready.unready_since, memory.known(now, pace.max).pause_left), (Some(now), None));
}

#[test]
fn a_final_answer_keeps_its_content_from_being_asked_for_and_ends_the_call_of_one_that_is_gone() {
    let refuse = |exists, is_final| {
        let mut memory = Contents::default();
        memory.intends(&Arc::new(content(json!({}))), &Step::Create(Box::new(asked())));
        let failed = failed(Clock::system().now(), is_final);
        let refusal = NotTaken { is_answer: true, leaves_doubt: is_final, exists, warning: None };
        memory.apply(&mut Progress::default(), Answer::Refused(Box::new(failed), refusal));
        let known = memory.known(Clock::system().now(), Duration::ZERO);
        (known.unanswered.is_some(), known.is_refused, known.is_doubtful)
    };
    assert_eq!(refuse(true, true), (true, true, true));
    assert_eq!(refuse(false, true), (false, false, true));
    assert_eq!(refuse(true, false), (true, false, false));
}

#[test]
fn i2_a_look_is_late_until_it_has_an_answer() {
    let mut memory = Contents::default();
    memory.intends(&Arc::new(cut(json!({}))), &Step::Create(Box::new(asked())));
    let is_late = |memory: &Contents| memory.known(Clock::system().now(), Duration::ZERO).is_late;
    assert!(is_late(&memory) && memory.unanswered.is_none());
    memory.apply(&mut Progress::default(), Answer::SourceGone);
    assert!(!is_late(&memory));
}

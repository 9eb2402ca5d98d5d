//! Writes and reads that fail: refused, lost, in conflict, out of reach.

use super::*;

#[test]
fn every_failure_has_one_outcome() {
    use ApiErrorKind as K;
    for (kind, patch, creation) in [
        (K::Conflict, "conflict", "conflict"),
        (K::PreconditionFailed, "conflict", "conflict"),
        (K::NotFound, "conflict", "refused"),
        (K::Gone, "lost", "lost"),
        (K::Invalid, "refused", "refused"),
        (K::Forbidden, "refused", "refused"),
        (K::Unauthorized, "refused", "refused"),
        (K::TooManyRequests, "refused", "refused"),
        (K::ServerError, "lost", "lost"),
        (K::Timeout, "lost", "lost"),
        (K::Connection, "lost", "lost"),
        (K::Unexpected, "lost", "lost"),
    ] {
        for (creates, expected) in [(false, patch), (true, creation)] {
            assert_eq!(Outcome::of(error(kind), creates).label(), Some(expected), "{kind:?}");
        }
    }
    assert_eq!(Outcome::of(error(K::NotPermitted), true).label(), None);
}

#[test]
fn a_refused_write_fails_its_batch_and_leaves_nothing_behind() {
    let mut rig = Rig::new();
    let waiter = rig.record("a", "1").unwrap();
    let commit = rig.commit();
    rig.outcome(&commit, Outcome::Refused(error(ApiErrorKind::Forbidden)));
    assert_eq!((rig.settled(), rig.ledger.len()), (vec![(waiter, "forbidden".to_owned())], 0));
    assert!(rig.ledger.status().fault.unwrap().starts_with("the entry cannot be written"));
    let again = rig.record("a", "1").unwrap();
    let commit = rig.commit();
    assert_eq!(commit.segment, 1, "another segment may be better off");
    rig.store(&commit);
    assert_eq!((rig.settled(), rig.ledger.status().fault), (vec![(again, "ok".to_owned())], None));
}

#[test]
fn one_entry_that_the_server_refuses_does_not_hold_up_the_others_for_ever() {
    let mut rig = Rig::new();
    let mut waiting: Vec<String> = (0..16).map(|n| if n == 5 { "bad".to_owned() } else { format!("k{n}") }).collect();
    let mut attempts = 0;
    while waiting.iter().any(|name| name != "bad") {
        attempts += 1;
        assert!(attempts < 100, "{waiting:?}");
        let waiters: Vec<u32> = waiting.iter().map(|name| rig.record(name, "1").unwrap()).collect();
        for _ in 0..40 {
            rig.now += S;
            while let Next::Write(commit) = rig.next() {
                if commit.set.iter().any(|(key, _)| &**key == "bad") {
                    rig.outcome(&commit, Outcome::Refused(error(ApiErrorKind::Invalid)));
                } else {
                    rig.store(&commit);
                }
            }
        }
        let ended = rig.settled();
        assert_eq!(ended.len(), waiters.len());
        let is_ok = |waiter| ended.iter().any(|(it, outcome)| *it == waiter && outcome == "ok");
        let failed = waiters.into_iter().zip(waiting).filter(|(waiter, _)| !is_ok(*waiter));
        waiting = failed.map(|(_, name)| name).collect();
    }
    assert!(attempts < 20, "{attempts}");
}

#[test]
fn a_lost_answer_fails_its_batch_and_the_segment_is_read_before_it_is_written_again() {
    let mut rig = Rig::new();
    let waiter = rig.record("a", "1").unwrap();
    let commit = rig.commit();
    rig.server.perform(&commit).unwrap();
    rig.outcome(&commit, Outcome::Lost(error(ApiErrorKind::Timeout)));
    assert_eq!((rig.settled(), rig.ledger.len()), (vec![(waiter, "timeout".to_owned())], 0));
    let retry = rig.record("a", "2").unwrap();
    assert_eq!(rig.read(), 0);
    let next = rig.commit();
    assert_eq!(next.segment, 1, "which holds up no other segment");
    let compared = rig.show(0);
    assert!(compared.adopted.is_empty(), "it was ours");
    rig.store(&next);
    assert_eq!(rig.settled(), [(retry, "ok".to_owned())]);
    rig.pass(3 * S);
    assert_eq!(rig.server.all(), [(1, "a", "2")], "what had landed is removed");
}

#[test]
fn a_write_that_lands_after_it_was_read_back_is_noticed_and_is_not_adopted() {
    for late in [true, false] {
        let mut rig = Rig::new();
        rig.keep("b", "1");
        rig.record("a", "1").unwrap();
        rig.now += S;
        let lost = rig.commit();
        assert_eq!(lost.segment, 1, "it has fewer bytes");
        rig.outcome(&lost, Outcome::Lost(error(ApiErrorKind::Connection)));
        assert_eq!(rig.read(), 1);
        assert!(rig.show(1).adopted.is_empty());
        if late {
            rig.server.perform(&lost).unwrap();
        }
        let mut adopted = 0;
        for _ in 0..200 {
            rig.now += S;
            match rig.next() {
                Next::Read(n) => adopted += rig.show(n).adopted.len(),
                Next::Write(commit) => rig.store(&commit),
                Next::WaitUntil(_) | Next::Idle => {}
            }
        }
        assert_eq!((adopted, rig.server.all()), (0, vec![(0, "b", "1")]), "{late}");
    }
}

#[test]
fn a_late_write_and_the_next_one_exclude_each_other() {
    let mut rig = Rig::new();
    rig.keep("b", "1");
    rig.record("b", "2").unwrap();
    let lost = rig.commit();
    rig.outcome(&lost, Outcome::Lost(error(ApiErrorKind::Timeout)));
    assert_eq!(rig.read(), 0);
    rig.show(0);
    let waiter = rig.record("b", "3").unwrap();
    rig.now += S;
    let next = rig.commit();
    assert_eq!(next.basis, lost.basis);
    rig.server.perform(&lost).unwrap();
    rig.store(&next);
    assert_eq!(rig.read(), 0, "a conflict is a doubt");
    rig.show(0);
    rig.now += S;
    rig.settle();
    rig.ledger.check();
    let settled = rig.settled();
    assert_eq!(settled.last(), Some(&(waiter, "ok".to_owned())), "{settled:?}");
    assert_eq!(rig.server.all(), [(0, "b", "3")]);
}

#[test]
fn after_a_conflict_the_entries_go_on_waiting_and_another_segment_takes_them() {
    let mut rig = Rig::new();
    rig.server.put(0, "other", "1:x");
    let waiter = rig.record("a", "1").unwrap();
    let commit = rig.commit();
    rig.store(&commit);
    assert_eq!(rig.settled(), []);
    assert_eq!(rig.read(), 0);
    let next = rig.commit();
    assert_eq!((next.segment, set(&next)), (1, vec![("a", "1")]));
    rig.store(&next);
    assert_eq!(rig.settled(), [(waiter, "ok".to_owned())]);
    assert_eq!(rig.show(0).adopted.len(), 1);
}

#[test]
fn when_another_content_cannot_be_written_the_confirmed_one_counts() {
    for (outcome, landed, expected) in [
        (Outcome::Refused(error(ApiErrorKind::Invalid)), false, "1"),
        (Outcome::Lost(error(ApiErrorKind::ServerError)), false, "1"),
        (Outcome::Lost(error(ApiErrorKind::ServerError)), true, "2"),
    ] {
        let mut rig = Rig::keeping("a", "1");
        rig.record("a", "2").unwrap();
        let commit = rig.commit();
        if landed {
            rig.server.perform(&commit).unwrap();
        }
        rig.outcome(&commit, outcome);
        assert_eq!((rig.settled().len(), rig.ledger.len()), (1, 1), "the volume may exist already");
        let mut rewritten = 0;
        while let Next::Read(n) = rig.next() {
            rewritten += rig.show(n).rewritten;
        }
        rig.pass(100 * S);
        assert_eq!((rig.server.all(), rewritten), (vec![(0, "a", expected)], 0));
        assert!(matches!(rig.record("a", expected), Err(Recorded::Durable)));
    }
}

#[test]
fn nothing_waits_for_an_api_that_cannot_be_reached() {
    let mut rig = Rig::new();
    let mut failed = 0;
    for n in 0..40 {
        match rig.record(&format!("k{n}"), "1") {
            Ok(_) => {}
            Err(Recorded::Failed(failure)) => {
                failed += 1;
                assert_eq!(failure.label(), "connection");
                continue;
            }
            Err(recorded) => panic!("{recorded:?}"),
        }
        for _ in 0..100 {
            match rig.next() {
                Next::Read(n) => drop(rig.found(n, Found::Failed(error(ApiErrorKind::Connection)))),
                Next::Write(commit) => rig.outcome(&commit, Outcome::Lost(error(ApiErrorKind::Connection))),
                Next::WaitUntil(_) | Next::Idle => break,
            }
        }
        assert_eq!(rig.settled().len(), 1, "no record waits for a back-off");
    }
    assert_eq!(failed, 40 - 16, "once each segment is in doubt nothing is tried before its read");
    rig.pass(31 * S);
    let waiter = rig.record("a", "1").unwrap();
    rig.settle();
    assert_eq!(rig.settled(), [(waiter, "ok".to_owned())]);
}

#[test]
fn what_nothing_waits_for_is_tried_again_after_one_second_and_at_last_each_half_minute() {
    let mut rig = Rig::keeping("a", "1");
    rig.remove("a");
    rig.now += 3 * S;
    for expected in [1, 2, 4, 8, 16, 30, 30, 30] {
        let commit = rig.commit();
        assert!(commit.set.is_empty());
        rig.outcome(&commit, Outcome::Refused(error(ApiErrorKind::TooManyRequests)));
        assert_eq!(rig.idle_for(), Some(expected * S));
        rig.now += expected * S;
    }
    rig.settle();
    assert!(rig.server.all().is_empty());
    rig.keep("a", "1");
    rig.now += 30 * S;
    for expected in [1, 2, 4, 8, 16, 30, 30] {
        let n = rig.read();
        rig.found(n, Found::Failed(error(ApiErrorKind::ServerError)));
        assert_eq!(rig.idle_for(), Some(expected * S));
        rig.now += expected * S;
    }
}

#[test]
fn after_the_term_nothing_is_written_and_nothing_waits() {
    let mut rig = Rig::keeping("a", "1");
    let writing = rig.record("b", "1").unwrap();
    rig.now += S;
    let commit = rig.commit();
    let pending = rig.record("c", "1").unwrap();
    rig.outcome(&commit, Outcome::NotSent);
    let over = "term_over".to_owned();
    assert_eq!(rig.settled(), [(writing, over.clone()), (pending, over)]);
    assert!(matches!(rig.record("d", "1"), Err(Recorded::Failed(JournalError::TermOver(_)))));
    assert_eq!(rig.idle_until(), None);
}

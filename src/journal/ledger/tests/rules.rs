//! The rules while nothing fails: when commits begin, where they go, and what they carry.

use super::*;
use crate::journal::format::MARK;
use crate::journal::ledger::{LARGEST, LIMIT};

#[test]
fn a_lone_entry_is_written_at_once_and_to_the_first_segment() {
    let mut rig = Rig::new();
    for name in ["a", "b", "c"] {
        let waiter = rig.record(name, "1").unwrap();
        let commit = rig.commit();
        assert_eq!((commit.segment, set(&commit)), (0, vec![(name, "1")]));
        assert_eq!(rig.settled(), [], "nothing is durable before the API says so");
        rig.store(&commit);
        assert_eq!(rig.settled(), [(waiter, "ok".to_owned())]);
        rig.remove(name);
        rig.now += 2 * S;
    }
    assert_eq!(rig.idle_until(), Some(7 * S), "the last copy leaves when nothing has happened for a while");
}

#[test]
fn entries_that_come_during_a_commit_share_the_next_one() {
    let mut rig = Rig::new();
    rig.record("a", "1").unwrap();
    let first = rig.commit();
    for name in ["b", "c", "d"] {
        rig.record(name, "1").unwrap();
    }
    assert_eq!(rig.idle_until(), Some(S), "unless the first takes long");
    rig.store(&first);
    let second = rig.commit();
    assert_eq!(set(&second), [("b", "1"), ("c", "1"), ("d", "1")]);
    assert_eq!(second.segment, 1, "the objects fill evenly");
}

#[test]
fn a_new_object_is_created_without_entries_and_they_follow_at_once() {
    let mut rig = Rig::over(Server::default());
    let waiter = rig.record("a", "1").unwrap();
    let creation = rig.commit();
    assert_eq!((creation.segment, &creation.basis), (0, &None));
    rig.record("b", "1").unwrap();
    assert_eq!(rig.idle_until(), Some(S), "one commit at a time, also before there is an object");
    rig.store(&creation);
    assert!(rig.server.all().is_empty() && rig.settled().is_empty());
    let commit = rig.commit();
    assert_eq!((commit.segment, set(&commit)), (0, vec![("b", "1"), ("a", "1")]));
    rig.store(&commit);
    assert!(rig.settled().contains(&(waiter, "ok".to_owned())));
    // An object that is there is used before another one is created.
    rig.record("c", "1").unwrap();
    rig.pass(S);
    assert_eq!(rig.server.objects.len(), 1);
}

#[test]
fn a_creation_that_is_refused_fails_the_entries_that_it_was_for() {
    let mut rig = Rig::over(Server::default());
    let waiter = rig.record("a", "1").unwrap();
    let creation = rig.commit();
    rig.outcome(&creation, Outcome::Refused(error(ApiErrorKind::Forbidden)));
    assert_eq!(rig.settled(), [(waiter, "forbidden".to_owned())]);
    assert_eq!(rig.ledger.len(), 0);
}

#[test]
fn while_more_is_in_progress_than_pending_commits_keep_their_pace() {
    let mut rig = Rig::new();
    for name in ["a", "b", "c"] {
        rig.record(name, "1").unwrap();
    }
    let commit = rig.commit();
    rig.now += 5 * MS;
    rig.store(&commit);
    rig.record("d", "1").unwrap();
    assert_eq!(rig.idle_until(), Some(40 * MS));
    rig.record("e", "1").unwrap();
    rig.record("f", "1").unwrap();
    assert_eq!(set(&rig.commit()).len(), 3, "as many as are in progress do not wait");
}

#[test]
fn the_pace_follows_the_time_that_entries_are_needed() {
    for (needed, expected) in [(100 * MS, 40 * MS), (S, 125 * MS), (60 * S, 500 * MS)] {
        let mut rig = Rig::new();
        for round in 0..60 {
            rig.keep("a", &format!("{round}"));
            rig.now += needed;
            rig.remove("a");
        }
        for name in ["a", "b", "c"] {
            rig.record(name, "x").unwrap();
        }
        let commit = rig.commit();
        rig.store(&commit);
        rig.record("d", "x").unwrap();
        let pace = rig.idle_for().unwrap();
        assert!(pace.abs_diff(expected) < 2 * MS, "{needed:?}: {pace:?}");
    }
}

#[test]
fn a_slow_commit_holds_up_the_next_one_for_a_second_only() {
    let mut rig = Rig::new();
    rig.record("a", "1").unwrap();
    let slow = rig.commit();
    rig.record("b", "1").unwrap();
    assert_eq!(rig.idle_until(), Some(S));
    rig.now = S;
    let next = rig.commit();
    assert_eq!((slow.segment, next.segment), (0, 1), "at most one write per segment");
    rig.store(&next);
    rig.store(&slow);
    assert_eq!(rig.settled().len(), 2);
}

#[test]
fn the_same_content_is_durable_already_and_another_replaces_it_where_it_is() {
    let mut rig = Rig::keeping("a", "1");
    assert!(matches!(rig.record("a", "1"), Err(Recorded::Durable)));
    assert_eq!(rig.idle_for(), Some(30 * S), "no write, only a look in half a minute");
    let waiter = rig.record("a", "2").unwrap();
    let commit = rig.commit();
    assert_eq!((commit.segment, set(&commit), names(&commit.remove)), (0, vec![("a", "2")], vec![]));
    rig.store(&commit);
    assert_eq!(rig.settled(), [(waiter, "ok".to_owned())]);
    assert_eq!(rig.server.all(), [(0, "a", "2")]);
}

#[test]
fn two_that_record_the_same_share_one_write_and_a_replaced_one_is_withdrawn() {
    let mut rig = Rig::new();
    let first = rig.record("a", "1").unwrap();
    let second = rig.record("a", "1").unwrap();
    rig.settle();
    assert_eq!(rig.settled(), [(first, "ok".to_owned()), (second, "ok".to_owned())]);
    let replaced = rig.record("a", "2").unwrap();
    let writing = rig.commit();
    let latest = rig.record("a", "3").unwrap();
    assert_eq!(rig.settled(), [(replaced, "journal_entry_withdrawn".to_owned())]);
    rig.store(&writing);
    rig.now += S;
    rig.settle();
    assert_eq!(rig.settled(), [(latest, "ok".to_owned())]);
    assert_eq!(rig.server.all(), [(0, "a", "3")]);
}

#[test]
fn a_removed_entry_leaves_with_the_next_write_to_its_object() {
    let mut rig = Rig::keeping("a", "1");
    rig.remove("a");
    rig.record("b", "1").unwrap();
    let commit = rig.commit();
    assert_eq!((set(&commit), names(&commit.remove)), (vec![("b", "1")], vec!["a"]));
    assert!(commit.basis.is_some(), "a patch that builds on the known version");
}

#[test]
fn dead_entries_leave_by_themselves_when_the_journal_is_quiet() {
    let mut rig = Rig::keeping("a", "1");
    rig.now += 10 * S;
    rig.remove("a");
    assert_eq!(rig.idle_until(), Some(rig.now + 3 * S));
    rig.now += 2 * S;
    rig.record("b", "1").unwrap();
    rig.remove("b");
    assert_eq!(rig.idle_until(), Some(rig.now + 3 * S), "what was never written is not awaited");
    rig.now += 3 * S;
    let commit = rig.commit();
    assert_eq!((set(&commit), names(&commit.remove)), (vec![], vec!["a"]));
    rig.store(&commit);
    assert_eq!(rig.server.all(), []);
    assert_eq!(rig.idle_until(), None, "an empty journal waits for nothing");
}

#[test]
fn a_journal_that_is_never_quiet_is_tidied_nevertheless() {
    let mut rig = Rig::new();
    for name in ["a", "b"] {
        rig.keep(name, "1");
    }
    rig.remove("a");
    let died = rig.now;
    while !rig.server.copies("a").is_empty() {
        assert!(rig.now <= died + 31 * S, "never tidied");
        rig.record("c", "1").unwrap();
        rig.remove("c");
        rig.pass(S);
    }
    assert!(rig.now >= died + 29 * S);
    assert_eq!(rig.server.all(), [(1, "b", "1")]);
}

#[test]
fn what_is_recorded_again_before_its_removal_stays_until_it_is_durable() {
    let mut rig = Rig::keeping("a", "1");
    rig.remove("a");
    rig.record("a", "2").unwrap();
    let commit = rig.commit();
    assert_eq!((commit.segment, set(&commit), names(&commit.remove)), (0, vec![("a", "2")], vec![]));
    rig.store(&commit);
    rig.pass(10 * S);
    assert_eq!(rig.server.all(), [(0, "a", "2")]);
}

#[test]
fn what_is_removed_or_recorded_again_during_its_write_is_not_taken_for_durable() {
    let mut rig = Rig::new();
    let first = rig.record("a", "1").unwrap();
    let commit = rig.commit();
    rig.remove("a");
    let second = rig.record("a", "2").unwrap();
    rig.store(&commit);
    assert_eq!(rig.settled(), [(first, "journal_entry_withdrawn".to_owned())]);
    rig.pass(S);
    assert_eq!(rig.settled(), [(second, "ok".to_owned())]);
    rig.pass(10 * S);
    let copies = rig.server.copies("a");
    assert!(copies.len() == 1 && copies[0].1 == "2", "{copies:?}");
}

#[test]
fn an_object_takes_half_a_mebibyte_and_then_another_is_used() {
    let mut rig = Rig::new();
    let large = "x".repeat(LARGEST - MARK - 10);
    for name in ["a", "b", "c"] {
        rig.record(name, &large).unwrap();
    }
    let first = rig.commit();
    assert_eq!(first.set.len(), 2);
    rig.store(&first);
    rig.now += S;
    let second = rig.commit();
    assert_eq!((first.segment, second.segment), (0, 1));
    assert!(rig.server.objects.values().all(|it| it.data.values().map(|text| text.len()).sum::<usize>() <= LIMIT));
}

#[test]
fn without_room_an_entry_is_refused_and_removals_make_room() {
    let mut rig = Rig::new();
    let large = "x".repeat(LARGEST - MARK - 100);
    for n in 0..32 {
        rig.record(&format!("k{n}"), &large).unwrap();
        rig.pass(S);
    }
    assert_eq!(rig.settled().len(), 32);
    let JournalError::Full { entries } = rig.refusal("more", &large) else { panic!("another error") };
    assert_eq!(entries, 32, "the refused entry is none of them");
    let refused = rig.record("more", &large).unwrap();
    let small = rig.record("small", "1").unwrap();
    rig.pass(S);
    let is_full = rig.ledger.status().is_full;
    assert_eq!(rig.settled(), [(refused, "journal_full".to_owned()), (small, "ok".to_owned())]);
    assert!(!is_full, "there was room for a small one");
    rig.record("more", &large).unwrap();
    rig.pass(S);
    assert!(rig.ledger.status().is_full && rig.settled().len() == 1);
    rig.remove("k7");
    assert!(!rig.ledger.status().is_full);
    let taken = rig.record("more", &large).unwrap();
    rig.pass(S);
    assert_eq!(rig.settled(), [(taken, "ok".to_owned())]);
    assert!(rig.server.copies("k7").is_empty(), "the same write made the room");
}

#[test]
fn an_entry_that_no_object_should_hold_is_refused_at_once() {
    let mut rig = Rig::new();
    let refused = rig.record("a", &"x".repeat(LARGEST));
    assert!(matches!(refused, Err(Recorded::Failed(JournalError::TooLarge { .. }))), "{refused:?}");
    assert!(rig.record("a", &"x".repeat(LARGEST - MARK - 1)).is_ok());
}

#[test]
fn a_new_leader_has_the_entries_of_its_predecessor_and_of_two_copies_the_later() {
    let mut before = Server::default();
    before.put(0, "a", "5:early");
    before.put(0, "b", "1:only");
    before.put(9, "a", "6:late");
    let mut rig = Rig::over(before);
    let entries: Vec<_> = rig.ledger.entries().map(|(key, _, text)| (key.to_string(), text.to_string())).collect();
    assert_eq!(entries, [("a".to_owned(), "6:late".to_owned()), ("b".to_owned(), "1:only".to_owned())]);
    assert!(matches!(rig.record("b", "1:only"), Err(Recorded::Durable)));
    rig.pass(3 * S);
    assert_eq!(rig.server.all(), [(0, "b", "1:only"), (9, "a", "6:late")]);
}

#[test]
fn a_write_that_only_removes_entries_holds_no_new_entry_up() {
    let mut rig = Rig::keeping("a", "1");
    rig.remove("a");
    rig.now += 10 * S;
    let tidying = rig.commit();
    assert!(tidying.set.is_empty() && tidying.segment == 0, "{tidying:?}");
    let waiter = rig.record("b", "1").unwrap();
    let commit = rig.commit();
    assert_eq!(commit.segment, 1, "the other segment is busy");
    rig.store(&commit);
    assert_eq!(rig.settled(), [(waiter, "ok".to_owned())]);
}

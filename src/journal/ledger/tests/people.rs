//! What people and other writers do to the objects while a journal is open.

use super::*;

#[test]
fn an_object_that_a_person_deletes_is_written_again_from_memory() {
    let mut rig = Rig::keeping("a", "1");
    rig.record("b", "1").unwrap();
    rig.pass(S);
    let deleted = rig.now;
    rig.server.delete(0);
    let due = rig.idle_until().unwrap();
    assert!(due <= deleted + 30 * S);
    rig.now = due;
    assert_eq!(rig.read(), 0);
    assert_eq!(rig.show(0).rewritten, 1);
    rig.settled();
    let commit = rig.commit();
    assert_eq!((commit.segment, commit.basis.as_ref(), set(&commit)), (0, None, vec![("a", "1")]));
    assert!(rig.record("a", "1").is_ok(), "it is not durable meanwhile, so this waits");
    rig.store(&commit);
    assert!(rig.settled().is_empty(), "the object is created, and has no entry before its uid is known");
    let commit = rig.commit();
    assert!(commit.basis.is_some() && commit.since[&key("a")] == "1", "what came of it may be as old as the entry");
    rig.store(&commit);
    assert_eq!(rig.settled().last().map(|(_, outcome)| outcome.as_str()), Some("ok"));
    assert_eq!(rig.server.all(), [(0, "a", "1"), (1, "b", "1")]);
}

#[test]
fn a_deletion_is_also_noticed_by_a_write() {
    let mut rig = Rig::keeping("a", "1");
    rig.server.delete(0);
    let waiter = rig.record("a", "2").unwrap();
    let commit = rig.commit();
    rig.store(&commit);
    assert_eq!(rig.read(), 0, "a patch that finds no object is a doubt");
    rig.show(0);
    rig.now += S;
    rig.settle();
    assert_eq!(rig.settled(), [(waiter, "ok".to_owned())]);
    assert_eq!(rig.server.all(), [(0, "a", "2")]);
}

#[test]
fn an_entry_that_a_person_edits_or_removes_is_written_again() {
    for edit in [Some("{}"), None] {
        let mut rig = Rig::keeping("a", "1");
        rig.server.edit(0, |data| match edit {
            Some(edit) => drop(data.insert(key("a"), text(edit))),
            None => drop(data.remove("a")),
        });
        rig.now += 30 * S;
        let n = rig.read();
        assert_eq!(rig.show(n).rewritten, 1);
        rig.settle();
        assert_eq!(rig.server.all(), [(0, "a", "1")]);
    }
}

#[test]
fn a_rewriting_that_is_refused_is_tried_again_and_the_entry_is_kept() {
    let mut rig = Rig::keeping("a", "1");
    rig.server.delete(0);
    rig.now += 30 * S;
    rig.read();
    rig.show(0);
    for kind in [ApiErrorKind::Forbidden, ApiErrorKind::Timeout, ApiErrorKind::Forbidden] {
        let commit = rig.commit();
        rig.outcome(&commit, Outcome::of(error(kind), true));
        assert_eq!(rig.ledger.len(), 1);
        while let Next::Read(n) = rig.next() {
            rig.show(n);
        }
        rig.now = rig.idle_until().unwrap();
    }
    rig.settle();
    assert_eq!(rig.server.all(), [(0, "a", "1")]);
}

#[test]
fn entries_of_another_writer_are_adopted_and_are_not_removed_unseen() {
    let mut rig = Rig::keeping("a", "1");
    rig.server.put(0, "other", "7:x");
    rig.remove("a");
    rig.now += 3 * S;
    let commit = rig.commit();
    rig.store(&commit);
    assert_eq!(rig.read(), 0);
    let compared = rig.show(0);
    let adopted: Vec<_> = compared.adopted.iter().map(|stored| (&*stored.key, &*stored.text, stored.at)).collect();
    assert_eq!(adopted, [("other", "7:x", at(7))]);
    rig.pass(100 * S);
    assert_eq!(rig.server.all(), [(0, "other", "7:x")]);
    rig.remove("other");
    rig.pass(100 * S);
    assert_eq!(rig.server.all(), []);
}

#[test]
fn another_writer_s_entry_with_the_key_of_a_pending_one_is_replaced_or_counts() {
    for succeeds in [true, false] {
        let mut rig = Rig::new();
        rig.server.put(0, "a", "7:theirs");
        let waiter = rig.record("a", "ours").unwrap();
        let commit = rig.commit();
        rig.store(&commit);
        assert_eq!(rig.read(), 0);
        assert_eq!(rig.show(0).adopted.len(), 1);
        rig.now += S;
        let commit = rig.commit();
        assert_eq!((commit.segment, set(&commit)), (0, vec![("a", "ours")]));
        if succeeds {
            rig.store(&commit);
        } else {
            rig.outcome(&commit, Outcome::Refused(error(ApiErrorKind::Invalid)));
        }
        let expected = if succeeds { ("ok", "ours") } else { ("invalid", "7:theirs") };
        assert_eq!(rig.settled(), [(waiter, expected.0.to_owned())]);
        rig.pass(100 * S);
        assert_eq!((rig.server.all(), rig.ledger.len()), (vec![(0, "a", expected.1)], 1));
    }
}

#[test]
fn while_a_segment_is_unreadable_nothing_is_recorded_and_nothing_is_changed() {
    let mut rig = Rig::keeping("a", "1");
    rig.keep("b", "1");
    rig.server.broken.insert(0);
    rig.now += 30 * S;
    rig.record("c", "1").unwrap();
    assert_eq!(rig.read(), 0);
    assert!(rig.show(0).has_broken);
    let unreadable = "journal_unreadable";
    assert_eq!(rig.settled().last().map(|(_, outcome)| outcome.clone()), Some(unreadable.to_owned()));
    for name in ["a", "d"] {
        let failure = rig.record(name, "1").unwrap_err();
        assert!(matches!(&failure, Recorded::Failed(error) if error.label() == unreadable), "{name}: {failure:?}");
    }
    assert!(rig.ledger.status().fault.unwrap().contains("demo-csi-journal-0"));
    rig.remove("b");
    for _ in 0..5 {
        while let Next::Read(n) = rig.next() {
            assert!(!rig.show(n).has_broken, "it is reported once");
        }
        let wait = rig.idle_for().unwrap();
        assert!(wait <= 5 * S, "{wait:?}");
        rig.now += wait;
    }
    rig.server.broken.clear();
    assert_eq!(rig.read(), 0);
    assert!(rig.show(0).is_repaired);
    assert!(rig.record("c", "1").is_ok());
    rig.pass(10 * S);
    assert_eq!(rig.server.copies("a").len() + rig.server.copies("c").len(), 2);
    assert!(rig.server.copies("b").is_empty(), "what was removed meanwhile leaves");
}

#[test]
fn for_some_minutes_after_another_writer_was_found_every_segment_is_looked_at() {
    let mut rig = Rig::new();
    let has = |rig: &Rig, name: &str| rig.ledger.entries().any(|(key, ..)| **key == *name);
    rig.keep("a", "1");
    rig.server.put(0, "other", "7:x");
    rig.pass(30 * S);
    assert!(has(&rig, "other"));
    rig.server.put(3, "elsewhere", "8:x");
    rig.pass(60 * S);
    assert!(has(&rig, "elsewhere"), "it is on a segment that held nothing of ours");
    rig.pass(330 * S);
    rig.server.put(5, "late", "9:x");
    rig.pass(100 * S);
    assert!(!has(&rig, "late"), "the segments without entries are not read for ever");
}

#[test]
fn a_write_of_the_last_leader_that_lands_in_the_first_minutes_of_a_term_is_noticed() {
    for (late, is_noticed) in [(1, true), (89, true), (125, false)] {
        let mut rig = Rig::young(Server::default());
        for second in 0..200 {
            if second == late {
                rig.server.put(2, "late", "7:x");
            }
            rig.pass(S);
        }
        assert_eq!(rig.ledger.len() == 1, is_noticed, "after {late} s");
        assert_eq!(rig.idle_until().is_some(), is_noticed, "a journal without entries is not read for ever");
    }
}

#[test]
fn segments_without_entries_are_not_looked_at() {
    let mut rig = Rig::keeping("a", "1");
    for _ in 0..10 {
        rig.now += 30 * S;
        assert_eq!(rig.read(), 0);
        rig.show(0);
        assert_eq!(rig.idle_until(), Some(rig.now + 30 * S));
    }
}

#[test]
fn an_entry_that_goes_back_to_its_content_during_another_write_is_written_again() {
    let mut rig = Rig::keeping("a", "1");
    rig.keep("b", "1");
    rig.now += S;
    rig.record("a", "2").unwrap();
    let commit = rig.commit();
    rig.record("a", "1").unwrap();
    // Another segment turns out to be unreadable, which fails the second recording.
    rig.server.broken.insert(1);
    rig.now += 30 * S;
    assert_eq!(rig.read(), 1);
    rig.show(1);
    assert_eq!(rig.settled().len(), 2);
    rig.store(&commit);
    assert_eq!(rig.server.copies("a"), [(0, "2")]);
    rig.server.broken.clear();
    rig.pass(5 * S);
    assert_eq!(rig.server.copies("a"), [(0, "1")]);
    assert!(matches!(rig.record("a", "1"), Err(Recorded::Durable)));
}

#[test]
fn a_creation_that_lands_after_a_person_deleted_the_object_is_noticed() {
    let mut rig = Rig::over(Server::default());
    rig.record("a", "1").unwrap();
    let lost = rig.commit();
    rig.outcome(&lost, Outcome::Lost(error(ApiErrorKind::Timeout)));
    rig.server.put(0, "other", "7:x");
    assert_eq!(rig.read(), 0);
    assert_eq!(rig.show(0).adopted.len(), 1);
    rig.remove("other");
    rig.server.delete(0);
    rig.pass(31 * S);
    rig.server.perform(&lost).unwrap();
    rig.pass(31 * S);
    rig.pass(10 * S);
    assert_eq!((rig.server.all(), rig.ledger.len()), (vec![], 0));
    rig.pass(400 * S);
    assert_eq!(rig.idle_until(), None, "no write can land any more");
}

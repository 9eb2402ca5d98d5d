//! Which Events are written, and when.

use proptest::prelude::*;

use super::*;

fn target(uid: &str) -> EventTarget {
    EventTarget {
        api_version: "v1".into(),
        kind: "PersistentVolumeClaim".into(),
        namespace: Some("shop".into()),
        name: "data".into(),
        uid: uid.into(),
    }
}

fn note(book: &mut EventBook<()>, uid: &str, text: &str, now: u64) -> Noted {
    note_at(book, EventPriority::Usual, uid, text, now)
}

fn note_at(book: &mut EventBook<()>, priority: EventPriority, uid: &str, text: &str, now: u64) -> Noted {
    note_for(book, (priority, RECOUNT), uid, text, now)
}

fn note_for(
    book: &mut EventBook<()>,
    (priority, recount): (EventPriority, Duration),
    uid: &str,
    text: &str,
    now: u64,
) -> Noted {
    let key = Key { component: "c".into(), uid: uid.into(), reason: "FailedAttach".into(), note: text.into() };
    let wall = Timestamp::from_second(i64::try_from(now).unwrap()).unwrap();
    book.note(key, &target(uid), (EventKind::Warning, priority, recount), (), Duration::from_secs(now), wall)
}

fn next(book: &mut EventBook<()>, now: u64) -> Next {
    book.next(Duration::from_secs(now))
}

fn write(book: &mut EventBook<()>, now: u64) -> Arc<Key> {
    let Next::Write(key) = next(book, now) else { panic!("nothing is due at {now}") };
    let seen = book.get(&key).unwrap().seen;
    book.wrote(&key, ObjectName::namespaced("shop", "e"), seen, Duration::from_secs(now));
    key
}

#[test]
fn a_repeated_error_is_one_event_whose_count_is_written_every_five_minutes() {
    let mut book = EventBook::new();
    assert_eq!(note(&mut book, "u", "disk is gone", 0), Noted::Owed);
    write(&mut book, 0);
    for second in 1..100 {
        assert_eq!(note(&mut book, "u", "disk is gone", second), Noted::Counted);
    }
    assert_eq!(next(&mut book, 100), Next::WaitUntil(Duration::from_secs(300)));
    let key = write(&mut book, 300);
    assert_eq!(book.get(&key).unwrap().written.as_ref().unwrap().1, 100);
    assert_eq!(next(&mut book, 301), Next::Nothing);
}

#[test]
fn who_asks_for_all_attempts_sees_them_within_ten_seconds() {
    let mut book = EventBook::new();
    let attempt = |book: &mut EventBook<()>, at| note_for(book, (EventPriority::Usual, RECOUNT_SOON), "u", "full", at);
    attempt(&mut book, 0);
    write(&mut book, 0);
    for second in 1..=8 {
        assert_eq!(attempt(&mut book, second), Noted::Counted);
    }
    assert_eq!(next(&mut book, 8), Next::WaitUntil(Duration::from_secs(10)));
    let key = write(&mut book, 10);
    assert_eq!(book.get(&key).unwrap().written.as_ref().unwrap().1, 9);
    // An Event of before the role was told to write all.
    note(&mut book, "v", "full", 20);
    write(&mut book, 20);
    note_for(&mut book, (EventPriority::Usual, RECOUNT_SOON), "v", "full", 30);
    assert_eq!(next(&mut book, 30), Next::WaitUntil(Duration::from_secs(40)));
}

#[test]
fn events_are_written_in_the_order_in_which_they_happened() {
    let mut book = EventBook::new();
    note(&mut book, "u2", "first", 0);
    note(&mut book, "u1", "second", 0);
    assert_eq!(write(&mut book, 1).note, "first");
    assert_eq!(write(&mut book, 1).note, "second");
}

#[test]
fn an_event_of_low_priority_comes_last_and_not_at_all_in_a_crowd() {
    let mut book = EventBook::new();
    assert_eq!(note_at(&mut book, EventPriority::Low, "u1", "all is well", 0), Noted::Owed);
    note(&mut book, "u2", "trouble", 0);
    let written = [write(&mut book, 1), write(&mut book, 1)].map(|key| key.note.clone());
    assert_eq!(written, ["trouble", "all is well"]);
    for i in 0..FEW {
        assert_eq!(note_at(&mut book, EventPriority::Low, &format!("v{i}"), "all is well", 2), Noted::Owed);
    }
    assert_eq!(note_at(&mut book, EventPriority::Low, "one more", "all is well", 2), Noted::Dropped);
    assert_eq!(note(&mut book, "one more", "trouble", 2), Noted::Owed);
    assert_eq!(write(&mut book, 3).note, "trouble");
}

#[test]
fn an_object_with_ever_new_errors_stays_within_its_budget() {
    let mut book = EventBook::new();
    let written = (0..100).filter(|i| note(&mut book, "u", &format!("request {i}"), 0) == Noted::Owed).count();
    assert_eq!(written, BURST as usize);
    assert_eq!(note(&mut book, "other", "request", 0), Noted::Owed);
    assert_eq!(note(&mut book, "u", "later", 299), Noted::Dropped);
    assert_eq!(note(&mut book, "u", "later", 300), Noted::Owed);
}

#[test]
fn memory_is_bounded_and_what_is_owed_is_kept() {
    let mut book = EventBook::new();
    for i in 0..CAPACITY {
        assert_eq!(note(&mut book, &format!("u{i}"), "x", 0), Noted::Owed);
    }
    assert_eq!(note(&mut book, "one-more", "x", 0), Noted::Dropped);
    write(&mut book, 1);
    assert_eq!(note(&mut book, "one-more", "x", 1), Noted::Owed);
    assert_eq!((book.entries.len(), book.budgets.len() <= CAPACITY), (CAPACITY, true));
}

#[test]
fn a_failed_write_is_tried_again_later_and_given_up_in_the_end() {
    let mut book = EventBook::new();
    note(&mut book, "u", "x", 0);
    let Next::Write(key) = next(&mut book, 0) else { panic!("not due") };
    assert!(book.failed(&key, Some(Duration::from_secs(7)), Duration::ZERO));
    assert_eq!(next(&mut book, 1), Next::WaitUntil(Duration::from_secs(7)));
    for _ in 0..3 {
        assert!(book.failed(&key, None, Duration::ZERO));
    }
    assert!(!book.failed(&key, None, Duration::ZERO));
    assert_eq!(next(&mut book, 1000), Next::Nothing);
}

#[test]
fn a_server_that_wants_to_be_left_alone_for_ever_is_asked_again_after_a_while() {
    let mut book = EventBook::new();
    note(&mut book, "u", "x", 0);
    let Next::Write(key) = next(&mut book, 0) else { panic!("not due") };
    assert!(book.failed(&key, Some(Duration::MAX), Duration::from_secs(1)));
    assert_eq!(next(&mut book, 1), Next::WaitUntil(Duration::from_secs(301)));
}

#[test]
fn what_happens_again_after_the_server_forgot_is_news() {
    let mut book = EventBook::new();
    note(&mut book, "u", "x", 0);
    write(&mut book, 0);
    assert_eq!(note(&mut book, "u", "x", 3600), Noted::Owed);
    assert_eq!(write(&mut book, 3600).note, "x");
}

/// What happens to a book, the Event that is next among it.
#[derive(Debug, Clone)]
enum Step {
    /// One of a few Events happens.
    Note(EventPriority, Duration, u8),
    Write,
    Fail(Option<u64>),
    Vanish(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let priority = prop_oneof![Just(EventPriority::Standing), Just(EventPriority::Usual), Just(EventPriority::Low)];
    let recount = prop_oneof![Just(RECOUNT), Just(RECOUNT_SOON)];
    prop_oneof![
        6 => (priority, recount, 0_u8..8).prop_map(|(priority, recount, what)| Step::Note(priority, recount, what)),
        4 => Just(Step::Write),
        2 => prop::option::of(0_u64..100).prop_map(Step::Fail),
        1 => (0_u8..8).prop_map(Step::Vanish),
        3 => prop_oneof![1_u64..20, 200_u64..400, Just(3600)].prop_map(Step::Wait),
    ]
}

/// The next Event by a walk over all.
fn walked(book: &EventBook<()>, now: Duration) -> Next {
    let owed = || book.entries.iter().filter(|(_, entry)| entry.is_owed());
    let due = owed().filter(|(_, entry)| entry.due <= now).min_by_key(|(_, entry)| (entry.priority, entry.order));
    match (due, owed().map(|(_, entry)| entry.due).min()) {
        (Some((key, _)), _) => Next::Write(Arc::clone(key)),
        (None, Some(due)) => Next::WaitUntil(due),
        (None, None) => Next::Nothing,
    }
}

proptest! {
    #[test]
    fn the_orders_find_what_a_walk_over_all_finds(steps in prop::collection::vec(step(), 0..80)) {
        let (mut book, mut now) = (EventBook::new(), 0);
        for step in steps {
            let at = Duration::from_secs(now);
            match (step, book.next(at)) {
                (Step::Note(priority, recount, what), _) => {
                    note_for(&mut book, (priority, recount), &format!("u{}", what % 3), &format!("{what}"), now);
                }
                (Step::Write, Next::Write(_)) => drop(write(&mut book, now)),
                (Step::Fail(retry_after), Next::Write(key)) => {
                    book.failed(&key, retry_after.map(Duration::from_secs), at);
                }
                (Step::Vanish(what), _) => {
                    let key = book.entries.keys().find(|key| key.note == format!("{what}")).cloned();
                    if let Some(key) = key {
                        book.vanished(&key);
                    }
                }
                (Step::Wait(seconds), _) => now += seconds,
                (Step::Write | Step::Fail(_), _) => {}
            }
            let at = Duration::from_secs(now);
            prop_assert_eq!(book.next(at), walked(&book, at));
            prop_assert_eq!(book.ready.len() + book.waiting.len() + book.settled.len(), book.entries.len());
            let settled = book.settled.iter().map(|((seen, _), key)| (*seen, key));
            for (seen, key) in settled {
                prop_assert!(!book.entries[key].is_owed() && book.entries[key].last_seen == seen);
            }
        }
    }
}

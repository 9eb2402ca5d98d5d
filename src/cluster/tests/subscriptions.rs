//! A cache tells its subscribers each change: in order, until the subscription ends, and also when another subscriber panics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use proptest::prelude::*;

use super::caches::{MOMENT, State, log, send, started, synced, taken};
use super::{attachment, pass, va};
use crate::cluster::cache::Cache;
use crate::cluster::change::{Change, Origin};
use crate::cluster::fanout::News;
use crate::cluster::objects::{BY_VOLUME, VolumeAttachment};
use crate::process::Clock;
use crate::telemetry::Meter;

#[tokio::test(start_paused = true)]
async fn a_dropped_subscription_hears_nothing_more_and_a_subscriber_may_read_the_cache() {
    let (state, _server, held) = synced(State::of_one()).await;
    let (subscription, heard) = log(&held.cache);
    let (reader, sizes) = (held.cache.clone(), Arc::new(Mutex::new(Vec::new())));
    let told = Arc::clone(&sizes);
    let _reading = held.cache.subscribe(move |change| {
        if change.origin != Origin::Replay {
            told.lock().unwrap().push((reader.len(), reader.find(BY_VOLUME, "pv-b").len()));
        }
    });
    drop(subscription);
    send(&state, "ADDED", &va("b", "u2", 6));
    pass(MOMENT).await;
    assert_eq!(taken(&heard), ["+a@3 Replay"]);
    assert_eq!(*sizes.lock().unwrap(), [(2, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_is_told_nothing_more_and_the_others_and_the_watch_miss_nothing() {
    let (state, _server, mut held) = synced(State::of_one()).await;
    let (first, before) = log(&held.cache);
    let told = Arc::new(Mutex::new(0));
    let count = Arc::clone(&told);
    let breaks = held.cache.subscribe(move |change| {
        *count.lock().unwrap() += 1;
        assert!(change.origin == Origin::Replay, "no more of this");
    });
    let (last, after) = log(&held.cache);
    send(&state, "ADDED", &va("b", "u2", 6));
    pass(MOMENT).await;
    let message = breaks.panicked().now_or_never();
    assert_eq!(message.as_deref(), Some("the subscriber to VolumeAttachment panicked: no more of this"));
    held.cache.apply_own_write(attachment("a", "u1", 7));
    send(&state, "ADDED", &va("c", "u3", 8));
    pass(MOMENT).await;
    let heard = ["+a@3 Replay", "+b@6 Watch", "~a@7 OwnWrite", "+c@8 Watch"];
    assert_eq!((taken(&before), taken(&after)), (heard.map(str::to_owned).to_vec(), heard.map(str::to_owned).to_vec()));
    assert_eq!(*told.lock().unwrap(), 2, "what it has half done is not built upon");
    assert!(first.panicked().now_or_never().is_none() && last.panicked().now_or_never().is_none());
    assert!(held.tasks.1.next().now_or_never().is_none(), "the watch goes on");
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_at_an_own_write_or_at_the_replay_harms_neither_the_writer_nor_the_others() {
    let (_, _server, held) = synced(State::of_one()).await;
    let at_once = held.cache.subscribe(|_| panic!("at once"));
    let at_write = held.cache.subscribe(|change| assert!(change.origin != Origin::OwnWrite, "at the write"));
    let (_subscription, heard) = log(&held.cache);
    held.cache.apply_own_write(attachment("a", "u1", 7));
    assert_eq!(taken(&heard), ["+a@3 Replay", "~a@7 OwnWrite"]);
    for (subscription, said) in [(at_once, "at once"), (at_write, "at the write")] {
        let message = subscription.panicked().now_or_never();
        assert_eq!(message, Some(format!("the subscriber to VolumeAttachment panicked: {said}")));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_subscriber_held_goes_with_its_subscription_and_not_with_the_next_news() {
    let (state, _server, held) = started(State { version: 5, ..State::default() }).await;
    // Such as the queue of a term that is over, whose gauges would go on telling of it.
    let queue = Arc::new(());
    let (left, mine) = (Arc::downgrade(&queue), queue);
    let subscription = held.cache.subscribe(move |_| drop(Arc::clone(&mine)));
    let (other, heard) = log(&held.cache);
    assert!(left.upgrade().is_some());
    drop(subscription);
    assert!(left.upgrade().is_none());
    held.cache.synced().await;
    pass(MOMENT).await;
    send(&state, "ADDED", &va("a", "u1", 6));
    pass(MOMENT).await;
    assert_eq!(taken(&heard), ["+a@6 Watch"], "the others go on");
    drop(other);
}

const COUNT: usize = 600;

/// The driver's own is held as it is, and another's as bytes.
fn of(is_own: bool, number: usize, version: u64) -> VolumeAttachment {
    let mut object = attachment(&format!("a{number}"), &format!("u{number}"), version);
    object.spec.attacher = if is_own { "demo" } else { "another" }.into();
    object
}

fn object(number: usize, version: u64) -> VolumeAttachment {
    of(number.is_multiple_of(2), number, version)
}

/// A cache of many objects, half of which are held as bytes.
fn full() -> Cache<VolumeAttachment> {
    let cache = Cache::new();
    cache.set_up("demo", &Meter::new(), Clock::system());
    (0..COUNT).for_each(|number| cache.feed(News::Applied(object(number, 1))));
    cache
}

#[tokio::test]
async fn a_list_that_lacks_thousands_of_objects_leaves_others_their_turn_and_tells_each_once() {
    let cache = full();
    let (_subscription, heard) = log(&cache);
    taken(&heard);
    cache.feed(News::RestartList);
    cache.feed(News::Listed(object(0, 1)));
    let mut sweep = Box::pin(cache.sweep());
    assert!(sweep.as_mut().now_or_never().is_none(), "others have their turn");
    let first = taken(&heard).len();
    assert!(first > 0 && first < COUNT / 2, "{first} at once");
    // What comes in between is no part of the list's absences.
    cache.feed(News::Applied(object(COUNT, 2)));
    assert_eq!(taken(&heard), [format!("+a{COUNT}@2 Watch")]);
    sweep.await;
    let told = taken(&heard);
    assert_eq!(told.len(), COUNT - 1 - first);
    assert!(told.iter().all(|line| line.starts_with('-') && line.ends_with("Relist")), "{told:?}");
    cache.feed(News::ListDone);
    assert_eq!((taken(&heard), cache.len()), (vec![], 2));
}

#[tokio::test]
async fn a_subscriber_that_is_told_later_hears_nothing_before_and_leaves_others_their_turn_then() {
    let cache = full();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (all, changes) = (Arc::clone(&told), Arc::clone(&told));
    let tell = |change: &Change<VolumeAttachment>| format!("{:?}", change.origin);
    let subscription = cache.subscribe_later(move |change| all.lock().unwrap().push(tell(change)));
    cache.feed(News::Applied(object(COUNT, 2)));
    cache.feed(News::Deleted(object(0, 3)));
    assert_eq!(*told.lock().unwrap(), Vec::<String>::new());
    let mut replay = Box::pin(subscription.replay());
    assert!(replay.as_mut().now_or_never().is_none(), "others have their turn");
    assert!((1..=COUNT / 2).contains(&told.lock().unwrap().len()));
    replay.await;
    assert_eq!(*told.lock().unwrap(), vec!["Replay".to_owned(); COUNT]);
    subscription.replay().await;
    drop(subscription);
    told.lock().unwrap().clear();
    let _changes = cache.subscribe_to_changes(move |change| changes.lock().unwrap().push(tell(change)));
    cache.feed(News::Deleted(object(2, 4)));
    assert_eq!(*told.lock().unwrap(), ["Watch"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_subscriber_that_is_told_in_portions_believes_at_each_end_what_the_cache_has(
        // Whether the driver's own object is written, another's, or none is left; and how many portions are told before.
        steps in prop::collection::vec((0..COUNT + 50, 0_u8..3, prop::bool::weighted(0.1)), 0..60),
    ) {
        let (cache, believed) = (full(), Arc::new(Mutex::new(BTreeMap::new())));
        let held = Arc::clone(&believed);
        let subscription = cache.subscribe_later(move |change: &Change<VolumeAttachment>| {
            let state = |object: &VolumeAttachment| object.metadata.resource_version.clone();
            let any = change.old.as_ref().or(change.new.as_ref()).unwrap();
            let mut held = held.lock().unwrap();
            assert_eq!(held.remove(&any.metadata.name), change.old.as_deref().map(state), "what is told follows on");
            held.extend(change.new.as_deref().map(|new| (new.metadata.name.clone(), state(new))));
        });
        let mut replay = Box::pin(subscription.replay());
        let mut is_over = false;
        for (version, (number, act, is_told)) in (2..).zip(steps) {
            if is_told && !is_over {
                is_over = replay.as_mut().now_or_never().is_some();
            }
            cache.feed(match act {
                0 | 1 => News::Applied(of(act == 0, number, version)),
                _ => News::Deleted(object(number, version)),
            });
        }
        while !is_over {
            is_over = replay.as_mut().now_or_never().is_some();
        }
        cache.feed(News::Applied(object(COUNT + 50, 1)));
        prop_assert_eq!(subscription.panicked().now_or_never(), None);
        let truth: BTreeMap<_, _> =
            cache.each().map(|it| (it.metadata.name.clone(), it.metadata.resource_version.clone())).collect();
        prop_assert_eq!(&*believed.lock().unwrap(), &truth);
    }
}

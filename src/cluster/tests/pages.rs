//! Lists of several pages, and the watch beside them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::caches::{Held, MOMENT, State, log, send, start, synced, taken};
use super::{Answer, Seen, Server, attachment, list, pass, status, va};
use crate::cluster::names::ObjectName;

/// A server with a list in version 5, of which it sends the second page when it is told to.
#[derive(Default)]
struct Paged {
    second: Option<mpsc::UnboundedSender<Value>>,
    watch: Option<mpsc::UnboundedSender<Value>>,
    watch_fault: Option<fn() -> Answer>,
}

type Shared = Arc<Mutex<Paged>>;

fn serve(state: &Shared) -> Server {
    let state = Arc::clone(state);
    Server::new(move |seen: &Seen| {
        let mut state = state.lock().unwrap();
        let (sender, receiver) = mpsc::unbounded_channel();
        if seen.is_watch() {
            if let Some(fault) = state.watch_fault {
                return fault();
            }
            state.watch = Some(sender);
        } else if seen.query.contains("continue=next") {
            state.second = Some(sender);
        } else {
            let mut first = list(5, &[va("a", "u1", 3)]);
            first["metadata"]["continue"] = json!("next");
            return Answer::Json(200, first);
        }
        Answer::Watch(receiver)
    })
}

/// A server in this state, and a cache that waits for the second page.
async fn listing(state: Paged) -> (Shared, Server, Held) {
    let state = Shared::new(Mutex::new(state));
    let server = serve(&state);
    let held = start(&server).await;
    pass(MOMENT).await;
    (state, server, held)
}

fn show(state: &Shared, kind: &str, object: &Value) {
    let state = state.lock().unwrap();
    state.watch.as_ref().unwrap().send(json!({ "type": kind, "object": object })).unwrap();
}

/// Sends the second page, with these objects.
fn complete(state: &Shared, items: &[Value]) {
    let second = state.lock().unwrap().second.take().unwrap();
    second.send(list(5, items)).unwrap();
}

/// The version that each watch was to go on from.
fn watched_from(server: &Server) -> Vec<String> {
    let seen = server.seen();
    let versions = seen.iter().filter(|seen| seen.is_watch()).filter_map(|seen| {
        seen.query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion=").map(str::to_owned))
    });
    versions.collect()
}

#[tokio::test(start_paused = true)]
async fn what_changes_while_a_list_is_read_is_seen_before_its_end_and_not_undone_by_it() {
    let (state, server, held) = listing(Paged::default()).await;
    let (_subscription, heard) = log(&held.cache);
    assert_eq!((taken(&heard), watched_from(&server)), (vec!["+a@3 Replay".to_owned()], vec!["5".to_owned()]));
    show(&state, "ADDED", &va("d", "u4", 6));
    show(&state, "MODIFIED", &va("a", "u1", 7));
    show(&state, "MODIFIED", &va("c", "u3", 8));
    show(&state, "DELETED", &va("b", "u2", 9));
    pass(MOMENT).await;
    assert_eq!(taken(&heard), ["+d@6 Watch", "~a@7 Watch", "+c@8 Watch"]);
    assert!(!held.cache.is_synced() && !held.cache.has_heard(6), "an older object may be on the second page");
    complete(&state, &[va("b", "u2", 2), va("c", "u3", 4), va("e", "u5", 1)]);
    pass(MOMENT).await;
    assert_eq!(taken(&heard), ["+e@1 Relist"]);
    assert!(held.cache.is_synced() && held.cache.has_heard(9) && held.cache.len() == 4);
    assert_eq!(held.cache.get(&ObjectName::cluster("b")), None);
    show(&state, "DELETED", &va("e", "u5", 10));
    pass(Duration::from_secs(2)).await;
    assert_eq!(
        (taken(&heard), watched_from(&server).len()),
        (vec!["-e Watch".to_owned()], 1),
        "the same watch goes on"
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_watch_shows_beside_a_list_needs_the_end_of_that_list_alone_to_be_caught_up_with() {
    let (state, server, held) = listing(Paged::default()).await;
    show(&state, "MODIFIED", &va("a", "u1", 7));
    pass(MOMENT).await;
    let shown = held.cache.get(&ObjectName::cluster("a")).unwrap();
    assert!(held.cache.is_ahead(&shown));
    let mut caught_up = Box::pin(held.cache.caught_up(&shown));
    assert!(caught_up.as_mut().now_or_never().is_none());
    complete(&state, &[]);
    caught_up.await;
    pass(Duration::from_secs(2)).await;
    assert_eq!(server.seen().iter().filter(|seen| !seen.is_watch()).count(), 2, "a page each");
    // Without a list that runs, another one is requested.
    held.cache.apply_own_write(attachment("a", "u1", 9));
    let written = held.cache.get(&ObjectName::cluster("a")).unwrap();
    assert!(held.cache.caught_up(&written).now_or_never().is_none());
    pass(Duration::from_secs(2)).await;
    assert_eq!(held.cache.status().lists, 1);
    assert_eq!(server.seen().iter().filter(|seen| !seen.is_watch()).count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_during_a_list_goes_on_behind_it_and_loses_nothing() {
    let refused = || Answer::Json(500, status(500, "InternalError", "not now"));
    let (state, server, held) = listing(Paged { watch_fault: Some(refused), ..Paged::default() }).await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(watched_from(&server), ["5"], "it is not asked for again and again");
    state.lock().unwrap().watch_fault = None;
    complete(&state, &[]);
    pass(Duration::from_secs(2)).await;
    assert_eq!((watched_from(&server), held.cache.status().errors), (vec!["5".to_owned(); 2], 0));

    let (state, server, held) = listing(Paged::default()).await;
    show(&state, "ADDED", &va("d", "u4", 6));
    show(&state, "ERROR", &status(500, "InternalError", "not now"));
    pass(Duration::from_secs(2)).await;
    complete(&state, &[]);
    pass(Duration::from_secs(2)).await;
    assert_eq!((watched_from(&server), held.cache.len()), (vec!["5".to_owned(), "6".to_owned()], 2));
    show(&state, "ADDED", &va("f", "u6", 7));
    pass(MOMENT).await;
    assert_eq!((held.cache.len(), held.cache.status().errors), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_the_server_ends_during_a_list_is_begun_again_at_once() {
    let (state, server, held) = listing(Paged::default()).await;
    show(&state, "ADDED", &va("d", "u4", 6));
    pass(MOMENT).await;
    state.lock().unwrap().watch = None;
    pass(Duration::from_secs(2)).await;
    assert_eq!(watched_from(&server), ["5", "6"]);
    show(&state, "ADDED", &va("f", "u6", 7));
    pass(MOMENT).await;
    assert_eq!((held.cache.len(), held.cache.is_synced()), (3, false));
    complete(&state, &[]);
    pass(MOMENT).await;
    assert_eq!((held.cache.len(), held.cache.is_synced()), (3, true));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_stops_half_way_is_given_up_also_if_the_watch_beside_it_goes_on() {
    let (state, server, held) = listing(Paged::default()).await;
    for version in 6..14 {
        pass(Duration::from_secs(10)).await;
        show(&state, "MODIFIED", &va("d", "u4", version));
    }
    assert_eq!(held.cache.status().errors, 0);
    pass(Duration::from_secs(12)).await;
    assert_eq!(held.cache.status().errors, 1);
    let lists = server.seen().iter().filter(|seen| !seen.is_watch() && !seen.query.contains("continue")).count();
    assert_eq!(lists, 2);
    complete(&state, &[va("d", "u4", 4)]);
    pass(MOMENT).await;
    assert!(held.cache.is_synced() && held.cache.len() == 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_has_worked_and_expires_is_followed_by_a_list_at_once() {
    let (state, _server, held) = synced(State::of_one()).await;
    let expired = status(410, "Expired", "too old resource version");
    pass(Duration::from_secs(10)).await;
    for (expected, span) in [(2, MOMENT), (2, Duration::from_millis(600)), (3, Duration::from_secs(1))] {
        if expected == 2 {
            send(&state, "ERROR", &expired);
        }
        pass(span).await;
        assert_eq!(held.cache.status().lists, expected, "another one that expires too is waited for");
    }
}

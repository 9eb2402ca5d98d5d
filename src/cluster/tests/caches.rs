//! Caches over a server that fails in every way that a watch can.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Answer, Seen, Server, attachment, list, pass, status, va};
use crate::cluster::caches::Caches;
use crate::cluster::names::ObjectName;
use crate::cluster::objects::{BY_NODE, BY_VOLUME, CsiNode, VolumeAttachment};
use crate::cluster::scope::Viewpoint;
use crate::cluster::{Cache, Subscription};
use crate::cluster::{ClientOptions, Clients, ClusterAccess};
use crate::process::{Clock, Rng, TaskEnds, Tasks};
use crate::telemetry::Meter;

/// A cluster of attachments whose lists and watches a test scripts.
#[derive(Default)]
pub(super) struct State {
    pub(super) version: u64,
    pub(super) items: Vec<Value>,
    pub(super) watch: Option<mpsc::UnboundedSender<Value>>,
    pub(super) list_fault: Option<Fault>,
    pub(super) watch_fault: Option<Fault>,
}

impl State {
    /// With one attachment.
    pub(super) fn of_one() -> Self {
        Self { version: 5, items: vec![va("a", "u1", 3)], ..Self::default() }
    }
}

type Fault = fn() -> Answer;

pub(super) type Shared = Arc<Mutex<State>>;

pub(super) fn serve(state: &Shared) -> Server {
    let state = Arc::clone(state);
    Server::new(move |seen: &Seen| {
        let mut state = state.lock().unwrap();
        if seen.is_watch() {
            if let Some(fault) = state.watch_fault {
                return fault();
            }
            let (sender, receiver) = mpsc::unbounded_channel();
            state.watch = Some(sender);
            Answer::Watch(receiver)
        } else {
            state.list_fault.map_or_else(|| Answer::Json(200, list(state.version, &state.items)), |fault| fault())
        }
    })
}

pub(super) struct Held {
    pub(super) cache: Cache<VolumeAttachment>,
    pub(super) caches: Caches,
    pub(super) meter: Meter,
    pub(super) tasks: (Tasks, TaskEnds),
}

pub(super) async fn start(server: &Server) -> Held {
    start_with(&server.clients().await)
}

/// A server in this state, and a cache that has begun to follow it.
pub(super) async fn started(state: State) -> (Shared, Server, Held) {
    let state = Shared::new(Mutex::new(state));
    let server = serve(&state);
    let held = start(&server).await;
    (state, server, held)
}

/// The same, when the cache has the list and its watch runs.
pub(super) async fn synced(state: State) -> (Shared, Server, Held) {
    let (state, server, held) = started(state).await;
    held.cache.synced().await;
    pass(MOMENT).await;
    (state, server, held)
}

fn start_with(clients: &Clients) -> Held {
    let caches = Caches::new();
    let cache = caches.want::<VolumeAttachment>();
    let (tasks, ends) = Tasks::new("cluster");
    let meter = Meter::new();
    caches.start(clients, &Viewpoint::of("demo"), &tasks, &meter, Clock::system(), Rng::seeded(1));
    Held { cache, caches, meter, tasks: (tasks, ends) }
}

pub(super) type Log = Arc<Mutex<Vec<String>>>;

/// Records every change as `+name@version`, `~name@version` or `-name`, with its origin.
pub(super) fn log(cache: &Cache<VolumeAttachment>) -> (Subscription, Log) {
    let log = Log::default();
    let told = Arc::clone(&log);
    let subscription = cache.subscribe(move |change| {
        let version = |object: &VolumeAttachment| object.metadata.resource_version.clone().unwrap_or_default();
        let line = match (change.old.as_deref(), change.new.as_deref()) {
            (None, Some(new)) => format!("+{}@{} {:?}", ObjectName::of(new), version(new), change.origin),
            (Some(_), Some(new)) => format!("~{}@{} {:?}", ObjectName::of(new), version(new), change.origin),
            (Some(old), None) => format!("-{} {:?}", ObjectName::of(old), change.origin),
            (None, None) => "nothing".to_owned(),
        };
        told.lock().unwrap().push(line);
    });
    (subscription, log)
}

pub(super) fn taken(log: &Log) -> Vec<String> {
    std::mem::take(&mut log.lock().unwrap())
}

pub(super) fn send(state: &Shared, kind: &str, object: &Value) {
    let state = state.lock().unwrap();
    state.watch.as_ref().unwrap().send(json!({ "type": kind, "object": object })).unwrap();
}

pub(super) const MOMENT: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn a_cache_lists_then_follows_the_watch_and_finds_by_index() {
    let (state, server, held) = started(State::of_one()).await;
    let (_subscription, heard) = log(&held.cache);
    held.cache.synced().await;
    pass(MOMENT).await;
    send(&state, "ADDED", &va("b", "u2", 6));
    send(&state, "MODIFIED", &va("a", "u1", 7));
    send(&state, "DELETED", &va("b", "u2", 8));
    pass(MOMENT).await;
    assert_eq!(taken(&heard), ["+a@3 Relist", "+b@6 Watch", "~a@7 Watch", "-b Watch"]);
    assert_eq!(held.cache.find(BY_VOLUME, "pv-a").len(), 1);
    assert_eq!(held.cache.find(BY_NODE, "node-1").len(), 1);
    assert!(held.cache.get(&ObjectName::cluster("a")).unwrap().metadata.labels.is_none(), "trimmed on arrival");
    let text = held.meter.render();
    assert!(text.contains("csi_control_plane_cache_objects{kind=\"VolumeAttachment\"} 1"), "{text}");
    let seen = server.seen();
    assert!(!seen[0].query.contains("resourceVersion=0"), "a consistent read: {}", seen[0].query);
    assert!(seen[1].query.contains("resourceVersion=5"), "{}", seen[1].query);
}

#[tokio::test(start_paused = true)]
async fn r24_r26_deletes_during_a_broken_watch_are_heard_after_the_list_that_follows() {
    let (state, _server, held) =
        synced(State { version: 5, items: vec![va("a", "u1", 3), va("b", "u2", 4)], ..State::default() }).await;
    let (_subscription, heard) = log(&held.cache);
    assert_eq!(taken(&heard), ["+a@3 Replay", "+b@4 Replay"]);
    state.lock().unwrap().items = vec![va("b", "u3", 9)];
    state.lock().unwrap().version = 10;
    send(&state, "ERROR", &status(410, "Expired", "too old resource version"));
    pass(Duration::from_secs(3)).await;
    assert_eq!(taken(&heard), ["-b Relist", "+b@9 Relist", "-a Relist"]);
    assert_eq!(held.cache.status().lists, 2);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_refused_with_a_plain_410_is_listed_again() {
    let state = Shared::new(Mutex::new(State { version: 5, ..State::default() }));
    state.lock().unwrap().watch_fault = Some(|| Answer::Json(410, status(410, "Expired", "too old resource version")));
    let server = serve(&state);
    let held = start(&server).await;
    held.cache.synced().await;
    pass(Duration::from_secs(10)).await;
    assert!(held.cache.status().lists >= 2);
    assert!(held.cache.status().lists <= 6, "not without a pause: {}", held.cache.status().lists);
    state.lock().unwrap().watch_fault = None;
    state.lock().unwrap().items = vec![va("a", "u1", 6)];
    pass(Duration::from_secs(60)).await;
    assert_eq!((held.cache.len(), held.cache.status().last_error), (1, None));
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_list_is_shown_and_tried_again() {
    let forbidden = || Answer::Json(403, status(403, "Forbidden", "volumeattachments is forbidden: cannot list"));
    let (state, _server, held) = started(State { version: 5, list_fault: Some(forbidden), ..State::default() }).await;
    pass(Duration::from_secs(300)).await;
    let shown = held.cache.status();
    assert_eq!(shown.last_error.as_deref(), Some("cannot list: volumeattachments is forbidden: cannot list (403)"));
    assert!(!shown.synced);
    assert!((25..45).contains(&shown.errors), "every ten seconds at last, as it is needed: {}", shown.errors);
    assert!(held.meter.render().contains("cache_watch_errors_total{kind=\"VolumeAttachment\"}"));
    state.lock().unwrap().list_fault = None;
    pass(Duration::from_secs(60)).await;
    assert!(held.cache.is_synced());
    assert_eq!(held.cache.status().last_error, None);
}

/// How often a request of this kind for attachments had this outcome.
fn counted(held: &Held, verb: &str, outcome: &str) -> u32 {
    let labels = format!("{{verb=\"{verb}\",resource=\"volumeattachments\",outcome=\"{outcome}\"}} ");
    let series = format!("csi_control_plane_api_requests_total{labels}");
    let text = held.meter.render();
    text.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_right_to_list_or_watch_that_is_taken_away_is_counted_as_forbidden() {
    let (state, _server, held) = synced(State::of_one()).await;
    let forbidden = || Answer::Json(403, status(403, "Forbidden", "volumeattachments is forbidden"));
    for (verb, other) in [("list", "watch"), ("watch", "list")] {
        let before = counted(&held, other, "forbidden");
        let fault: Option<Fault> = Some(forbidden);
        match verb {
            "list" => state.lock().unwrap().list_fault = fault,
            _ => state.lock().unwrap().watch_fault = fault,
        }
        send(&state, "ERROR", &status(410, "Expired", "too old resource version"));
        pass(Duration::from_secs(30)).await;
        let first = counted(&held, verb, "forbidden");
        assert!(first > 0, "{}", held.meter.render());
        pass(Duration::from_secs(60)).await;
        assert!(counted(&held, verb, "forbidden") > first, "each time");
        assert_eq!(counted(&held, other, "forbidden"), before);
        assert!(held.cache.is_synced() && held.cache.len() == 1, "nothing else tells that what is held grows old");
        (state.lock().unwrap().list_fault, state.lock().unwrap().watch_fault) = (None, None);
        pass(Duration::from_secs(60)).await;
        assert_eq!(held.cache.status().last_error, None);
    }
    assert_eq!(counted(&held, "watch", "gone"), 2, "the version that had expired, each time");
    assert!(!held.meter.render().contains("outcome=\"ok\""), "a watch that works has no end to be counted at");
}

/// A list that stops half way.
fn half() -> Answer {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::mem::forget(sender);
    Answer::Watch(receiver)
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_counted_by_what_came_of_it() {
    let cases: [(Fault, &str); 5] = [
        (|| Answer::Json(401, status(401, "Unauthorized", "no")), "unauthorized"),
        (|| Answer::Json(500, status(500, "InternalError", "no")), "server_error"),
        (|| Answer::Text(429, "too many", vec![]), "too_many_requests"),
        (|| Answer::Silence, "timeout"),
        (half, "timeout"),
    ];
    for (fault, outcome) in cases {
        let (_, _server, held) = started(State { version: 5, list_fault: Some(fault), ..State::default() }).await;
        pass(Duration::from_secs(95)).await;
        assert!(counted(&held, "list", outcome) > 0, "{outcome}: {}", held.meter.render());
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_gets_no_answer_is_tried_again() {
    let (state, _server, held) =
        started(State { version: 5, list_fault: Some(|| Answer::Silence), ..State::default() }).await;
    pass(Duration::from_secs(62)).await;
    state.lock().unwrap().list_fault = None;
    pass(Duration::from_secs(65)).await;
    assert!(held.cache.is_synced());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_stops_half_way_is_given_up() {
    let (state, _server, held) = started(State { version: 5, list_fault: Some(half), ..State::default() }).await;
    pass(Duration::from_secs(89)).await;
    assert_eq!(held.cache.status().last_error, None);
    state.lock().unwrap().list_fault = None;
    pass(Duration::from_secs(5)).await;
    assert_eq!((held.cache.is_synced(), held.cache.status().errors), (true, 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_every_watch_at_once_is_not_asked_in_a_loop() {
    let closed = || Answer::Watch(mpsc::unbounded_channel().1);
    let (_, server, held) = started(State { version: 5, watch_fault: Some(closed), ..State::default() }).await;
    held.cache.synced().await;
    pass(Duration::from_secs(30)).await;
    let watches = server.seen().iter().filter(|seen| seen.is_watch()).count();
    assert!((20..=31).contains(&watches), "{watches}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_went_silent_without_a_word_is_replaced() {
    let (state, server, held) = started(State { version: 5, ..State::default() }).await;
    held.cache.synced().await;
    pass(Duration::from_secs(10)).await;
    // The change happens, but the first watch never tells.
    state.lock().unwrap().items = vec![va("a", "u1", 6)];
    pass(Duration::from_secs(70)).await;
    assert_eq!(server.seen().iter().filter(|seen| seen.is_watch()).count(), 2, "asked again after the idle limit");
    pass(Duration::from_secs(550)).await;
    assert_eq!(held.cache.len(), 1, "and in the end listed again");
}

#[tokio::test(start_paused = true)]
async fn r48_r49_our_own_write_is_in_the_cache_before_the_watch_brings_it() {
    let (state, _server, held) = synced(State::of_one()).await;
    let (_subscription, heard) = log(&held.cache);
    held.cache.apply_own_write(attachment("a", "u1", 8));
    held.cache.apply_own_write(attachment("b", "u9", 9));
    send(&state, "MODIFIED", &va("a", "u1", 7));
    send(&state, "MODIFIED", &va("a", "u1", 8));
    pass(MOMENT).await;
    assert_eq!(taken(&heard), ["+a@3 Replay", "~a@8 OwnWrite"]);
    assert!(held.cache.get(&ObjectName::cluster("a")).unwrap().metadata.labels.is_none(), "trimmed like any other");
}

/// With a longer `kubernetes.requestTimeout` a page may rightly begin later than the usual limit.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_slow_to_begin_is_waited_for_as_long_as_the_clients_wait() {
    let state = Shared::new(Mutex::new(State { version: 5, list_fault: Some(|| Answer::Silence), ..State::default() }));
    let server = serve(&state);
    let access = ClusterAccess::Endpoint { dial: server.dial.clone(), token: None };
    let options = ClientOptions { response_timeout: Duration::from_secs(200), ..ClientOptions::default() };
    let held = start_with(&Clients::connect(&access, &options).await.unwrap());
    pass(Duration::from_secs(199)).await;
    assert_eq!((server.seen().len(), held.cache.status().errors), (1, 0));
    pass(Duration::from_secs(2)).await;
    assert_eq!(held.cache.status().errors, 1, "the client has given up, and says so");
    assert!(held.cache.status().last_error.unwrap().contains("cannot list"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_once_whoever_asks_and_also_if_asked_late() {
    let (_, server, held) = started(State { version: 5, ..State::default() }).await;
    let again = held.caches.want::<VolumeAttachment>();
    let late = held.caches.want::<CsiNode>();
    again.synced().await;
    late.synced().await;
    pass(MOMENT).await;
    let lists: Vec<String> =
        server.seen().iter().filter(|seen| !seen.is_watch()).map(|seen| seen.path.clone()).collect();
    assert_eq!(lists, ["/apis/storage.k8s.io/v1/volumeattachments", "/apis/storage.k8s.io/v1/csinodes"]);
    let rules: Vec<String> = held
        .caches
        .rules(&Viewpoint::of("demo"))
        .into_iter()
        .map(|rule| format!("{}/{}", rule.api_group, rule.resource))
        .collect();
    assert_eq!(rules, ["storage.k8s.io/volumeattachments", "storage.k8s.io/csinodes"]);
    assert!(held.caches.status().iter().all(|status| status.synced));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_nobody_claims_any_more_is_neither_watched_nor_held_until_somebody_does() {
    let (_, server, held) = started(State::of_one()).await;
    held.cache.synced().await;
    let lists = || server.seen().iter().filter(|seen| !seen.is_watch() && seen.path.ends_with("csinodes")).count();

    let (nodes, first) = held.caches.watch::<CsiNode>();
    let (_, second) = held.caches.watch::<CsiNode>();
    nodes.synced().await;
    drop(first);
    pass(MOMENT).await;
    assert!(nodes.is_synced() && nodes.len() == 1, "one claims it still");
    drop(second);
    pass(MOMENT).await;
    assert!(!nodes.is_synced() && nodes.is_empty());
    assert_eq!(held.caches.status().len(), 1, "and it is not shown");
    assert_eq!(held.caches.rules(&Viewpoint::of("demo")).len(), 1);
    pass(Duration::from_secs(3600)).await;
    assert_eq!(lists(), 1, "nothing is asked for nobody");

    let (again, handle) = held.caches.watch::<CsiNode>();
    assert!(!again.is_synced(), "what it knew is an hour old");
    again.synced().await;
    assert_eq!((lists(), again.len(), nodes.len()), (2, 1, 1));
    // Who wants it within the same moment finds it as it was left.
    drop(handle);
    let (_, _last) = held.caches.watch::<CsiNode>();
    again.synced().await;
    assert_eq!(again.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_runs_with_one_seed_ask_at_the_same_times() {
    async fn times() -> Vec<u128> {
        let start_at = Instant::now();
        let times: Arc<Mutex<Vec<u128>>> = Arc::default();
        let log = Arc::clone(&times);
        let server = Server::new(move |_| {
            log.lock().unwrap().push(start_at.elapsed().as_millis());
            Answer::Json(500, status(500, "InternalError", "no"))
        });
        let _held = start(&server).await;
        pass(Duration::from_secs(100)).await;
        times.lock().unwrap().clone()
    }
    let (first, second) = (times().await, times().await);
    assert!(first.len() > 5);
    assert_eq!(first, second);
}

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use futures::StreamExt as _;
use http::{Request, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Cut, Surroundings, handle};
use crate::api::audit::UNANSWERED;
use crate::api::auth::{Grant, Identity, PolicyRule};
use crate::api::faults::{Action, Fault, Matching, WatchEnd};
use crate::api::pure::rejection::Rejection;
use crate::api::{Api, ApiOptions};
use base::process::{Clock, Rng, Tasks};

const VOLUMES: &str = "/api/v1/persistentvolumes";
const MERGE: &str = "application/merge-patch+json";

/// An API without a transport.
struct Bench {
    api: Api,
    surroundings: Surroundings,
}

/// Reads a watch line by line.
struct Events {
    stream: BodyDataStream,
    rest: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        let epoch = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut options = ApiOptions::new(Clock::simulated(epoch), Rng::seeded(1));
        let rule = PolicyRule {
            api_groups: vec![String::new()],
            resources: vec!["persistentvolumes".into()],
            resource_names: vec![],
            verbs: vec!["get".into()],
        };
        options.tokens.insert("root".into(), Identity::admin("root"));
        options.tokens.insert("weak".into(), Identity::limited("x", vec![Grant { namespace: None, rule }]));
        let surroundings = Surroundings { tasks: Tasks::new("test").0, stopping: CancellationToken::new() };
        Self { api: Api::new(options), surroundings }
    }

    async fn raw(
        &self,
        method: &str,
        uri: &str,
        head: &[(&str, &str)],
        body: String,
    ) -> Result<http::Response<Body>, Cut> {
        let mut request = Request::builder().method(method).uri(uri);
        if !head.iter().any(|(name, _)| *name == "authorization") {
            request = request.header(header::AUTHORIZATION, "Bearer root");
        }
        for (name, value) in head {
            request = request.header(*name, *value);
        }
        handle(self.api.clone(), request.body(Body::from(body)).unwrap(), self.surroundings.clone()).await
    }

    async fn send(&self, method: &str, uri: &str, head: &[(&str, &str)], body: Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.raw(method, uri, head, body).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap())
    }

    async fn get(&self, uri: &str) -> (u16, Value) {
        self.send("GET", uri, &[], Value::Null).await
    }

    async fn create(&self, name: &str, tier: &str) {
        let body = json!({"metadata": {"name": name, "labels": {"tier": tier}}, "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "csi": {"driver": "demo.csi", "volumeHandle": name}}});
        let (code, answer) = self.send("POST", VOLUMES, &[], body).await;
        assert_eq!(code, 201, "{answer}");
    }

    async fn label(&self, name: &str, tier: &str) -> u16 {
        let body = json!({"metadata": {"labels": {"tier": tier}}});
        self.send("PATCH", &format!("{VOLUMES}/{name}"), &[("content-type", MERGE)], body).await.0
    }

    async fn watch(&self, query: &str) -> Events {
        let response = self.raw("GET", &format!("{VOLUMES}?watch=true&{query}"), &[], String::new()).await.unwrap();
        assert_eq!(response.status(), 200);
        Events { stream: response.into_body().into_data_stream(), rest: Vec::new() }
    }
}

impl Events {
    /// The next event; `None` at a clean end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            self.rest.extend(self.stream.next().await?.unwrap());
        }
    }

    async fn told(&mut self) -> (String, String) {
        let event = self.next().await.unwrap();
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        (event["type"].as_str().unwrap().to_owned(), name.to_owned())
    }

    async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(1), self.next()).await.is_err()
    }
}

fn told(what: &str, name: &str) -> (String, String) {
    (what.to_owned(), name.to_owned())
}

#[tokio::test(start_paused = true)]
async fn strangers_are_turned_away_and_the_weak_are_told_what_they_lack() {
    let bench = Bench::new();
    let as_weak = [("authorization", "Bearer weak")];
    let (code, status) = bench.send("GET", VOLUMES, &[("authorization", "Bearer no")], Value::Null).await;
    assert_eq!((code, &status["message"]), (401, &json!("Unauthorized")));
    let (code, status) = bench.send("GET", VOLUMES, &[("authorization", "")], Value::Null).await;
    assert_eq!(code, 403);
    assert!(status["message"].as_str().unwrap().contains("User \"system:anonymous\" cannot list"), "{status}");
    let unknown = "/apis/snapshot.storage.k8s.io/v1/volumesnapshots";
    for (who, code) in [("weak", 403), ("root", 404)] {
        let token = format!("Bearer {who}");
        let answer = bench.raw("GET", unknown, &[("authorization", &token)], String::new()).await.unwrap();
        assert_eq!(answer.status(), code, "{who}");
    }
    let (code, status) = bench.send("PATCH", &format!("{VOLUMES}/pv-1"), &as_weak, json!({})).await;
    assert_eq!(code, 403);
    assert_eq!(
        status["message"],
        "persistentvolumes \"pv-1\" is forbidden: User \"x\" cannot patch resource \"persistentvolumes\" in API group \"\" at \
         the cluster scope"
    );
    assert_eq!(bench.send("GET", &format!("{VOLUMES}/pv-1"), &as_weak, Value::Null).await.0, 404);
    let path = format!("/as/weak{VOLUMES}/pv-1");
    let response = bench.raw("GET", &path, &[("authorization", "")], String::new()).await.unwrap();
    assert_eq!(response.status(), 404, "the path may carry the token");
}

#[tokio::test(start_paused = true)]
async fn objects_are_sent_in_the_form_that_is_asked_for() {
    let bench = Bench::new();
    bench.create("pv-1", "gold").await;
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let (_, body) = bench.send("GET", VOLUMES, &table, Value::Null).await;
    assert_eq!((&body["kind"], &body["rows"][0]["cells"][0]), (&json!("Table"), &json!("pv-1")));
    let partial = [("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")];
    let (_, body) = bench.send("GET", VOLUMES, &partial, Value::Null).await;
    assert_eq!((&body["kind"], body["items"][0].get("spec")), (&json!("PartialObjectMetadataList"), None));
    let (_, body) = bench.get(VOLUMES).await;
    assert_eq!((&body["kind"], body["items"][0].get("kind")), (&json!("PersistentVolumeList"), None));
    assert_eq!(body["metadata"]["resourceVersion"], bench.api.version().to_string());
    let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
    assert_eq!(bench.send("GET", VOLUMES, &protobuf, Value::Null).await.0, 406);
}

#[tokio::test(start_paused = true)]
async fn versions_are_read_as_the_client_means_them() {
    let bench = Bench::new();
    bench.create("pv-1", "gold").await;
    let then = bench.api.version();
    bench.create("pv-2", "gold").await;
    let count = |body: &Value| body["items"].as_array().map(Vec::len);
    let exact = format!("{VOLUMES}?resourceVersion={then}&resourceVersionMatch=Exact");
    assert_eq!(count(&bench.get(&exact).await.1), Some(1));
    let newer = format!("{VOLUMES}?resourceVersion={then}&resourceVersionMatch=NotOlderThan");
    assert_eq!(count(&bench.get(&newer).await.1), Some(2));
    assert_eq!(count(&bench.get(&format!("{VOLUMES}?resourceVersion=0&limit=1")).await.1), Some(2));
    let (code, status) = bench.get(&format!("{VOLUMES}?resourceVersion=999")).await;
    assert_eq!((code, &status["reason"]), (504, &json!("Timeout")));
    bench.api.compact();
    let (code, status) = bench.get(&exact).await;
    assert_eq!((code, &status["reason"]), (410, &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_what_enters_changes_and_leaves_its_selection() {
    let bench = Bench::new();
    bench.create("pv-1", "gold").await;
    bench.create("pv-2", "lead").await;
    let mut events = bench.watch("labelSelector=tier%3Dgold").await;
    assert_eq!(events.told().await, told("ADDED", "pv-1"));
    assert!(events.is_silent().await);
    bench.label("pv-2", "gold").await;
    assert_eq!(events.told().await, told("ADDED", "pv-2"));
    let version = bench.api.version();
    bench.label("pv-1", "lead").await;
    let left = events.next().await.unwrap();
    assert_eq!((&left["type"], &left["object"]["metadata"]["labels"]["tier"]), (&json!("DELETED"), &json!("gold")));
    assert_eq!(left["object"]["metadata"]["resourceVersion"], (version + 1).to_string());
    bench.send("DELETE", &format!("{VOLUMES}/pv-2"), &[], Value::Null).await;
    assert_eq!(events.told().await, told("DELETED", "pv-2"));
    let mut again = bench.watch(&format!("resourceVersion={version}")).await;
    assert_eq!(again.told().await, told("MODIFIED", "pv-1"));
    assert_eq!(again.told().await, told("DELETED", "pv-2"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_version_is_told_that_it_is_gone() {
    let bench = Bench::new();
    let mut lagging = bench.watch("resourceVersion=1").await;
    bench.api.compact();
    let event = lagging.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["message"], "too old resource version: 1 (4)");
    assert_eq!(lagging.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_in_time_and_mark_the_end_of_the_initial_objects() {
    let bench = Bench::new();
    bench.create("pv-1", "gold").await;
    let query = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=100";
    let mut events = bench.watch(query).await;
    assert_eq!(events.told().await, told("ADDED", "pv-1"));
    let end = events.next().await.unwrap();
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(end["object"]["metadata"]["resourceVersion"], bench.api.version().to_string());
    let started = tokio::time::Instant::now();
    for seconds in [60, 98] {
        assert_eq!(events.told().await, told("BOOKMARK", ""));
        assert_eq!(started.elapsed().as_secs(), seconds);
    }
    assert_eq!(events.next().await, None);
    assert_eq!(started.elapsed().as_secs(), 100);
}

#[tokio::test(start_paused = true)]
async fn faults_hit_before_and_after_the_work() {
    let bench = Bench::new();
    bench.create("pv-1", "gold").await;
    let faults = bench.api.faults();
    let patches = || Matching::any().verb("patch").user("root");
    faults.add(Fault::on(patches(), Action::Refuse(Rejection::too_many_requests(7))).nth(2));
    assert_eq!(bench.label("pv-1", "a").await, 200);
    let head = [("content-type", MERGE)];
    let path = format!("{VOLUMES}/pv-1");
    let response = bench.raw("PATCH", &path, &head, "{}".into()).await.unwrap();
    assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"7".parse().unwrap()));
    faults.clear();
    faults.add(Fault::on(patches(), Action::CutAfter));
    let body = json!({"metadata": {"labels": {"tier": "b"}}}).to_string();
    assert!(bench.raw("PATCH", &path, &head, body).await.is_err());
    let (_, object) = bench.get(&path).await;
    assert_eq!(object["metadata"]["labels"]["tier"], "b", "it was done, though no one was told");
    let codes: Vec<u16> = bench.api.audit().matching(|it| it.verb == "patch").iter().map(|it| it.code).collect();
    assert_eq!(codes, [200, 429, UNANSWERED]);
    assert_eq!(bench.api.audit().count("patch", "persistentvolumes"), 3);
}

#[tokio::test(start_paused = true)]
async fn late_work_is_done_though_its_client_has_left() {
    let bench = Bench::new();
    bench.create("pv-1", "gold").await;
    let slow = Matching::any().verb("patch");
    bench.api.faults().add(Fault::on(slow, Action::DelayBefore(Duration::from_secs(30))));
    let given_up = tokio::time::timeout(Duration::from_secs(5), bench.label("pv-1", "late")).await;
    assert!(given_up.is_err());
    tokio::time::sleep(Duration::from_secs(26)).await;
    let (_, object) = bench.get(&format!("{VOLUMES}/pv-1")).await;
    assert_eq!(object["metadata"]["labels"]["tier"], "late");
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_done_when_it_is_let_go_though_its_client_has_left() {
    let bench = Bench::new();
    bench.create("pv-1", "gold").await;
    let held = bench.api.faults().add(Fault::on(Matching::any().verb("patch"), Action::Hold));
    let given_up = tokio::time::timeout(Duration::from_secs(3600), bench.label("pv-1", "held")).await;
    assert!(given_up.is_err());
    let path = format!("{VOLUMES}/pv-1");
    assert_ne!(bench.get(&path).await.1["metadata"]["labels"]["tier"], "held");
    assert_eq!(bench.api.faults().hits(held), 1);
    bench.api.faults().remove(held);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.get(&path).await.1["metadata"]["labels"]["tier"], "held");
}

#[tokio::test]
async fn a_smeared_patch_writes_more_than_was_asked_in_the_same_name() {
    let bench = Bench::new();
    bench.create("pv-1", "gold").await;
    let writers = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&writers);
    bench.api.on_commit(move |change| seen.lock().unwrap().push(change.actor.to_owned()));
    let more = json!({"metadata": {"annotations": {"more": "yes"}}});
    bench.api.faults().add(Fault::on(Matching::any().verb("patch").user("root"), Action::Smear(more)).nth(1));
    assert_eq!(bench.label("pv-1", "asked").await, 200);
    let (_, object) = bench.get(&format!("{VOLUMES}/pv-1")).await;
    assert_eq!(object["metadata"]["labels"]["tier"], "asked");
    assert_eq!(object["metadata"]["annotations"]["more"], "yes");
    assert_eq!(*writers.lock().unwrap(), ["root", "root"]);
}

#[tokio::test]
async fn objects_are_shown_otherwise_to_one_client_and_stay_as_they_are() {
    let bench = Bench::new();
    bench.create("pv-1", "gold").await;
    let on = Matching::any().resource("persistentvolumes").user("root");
    let with = json!({"metadata": {"labels": {"tier": "lead"}}});
    let fault = bench.api.faults().add(Fault::on(on, Action::Show(with)));
    let path = format!("{VOLUMES}/pv-1");
    assert_eq!(bench.get(&path).await.1["metadata"]["labels"]["tier"], "lead");
    assert_eq!(bench.get(VOLUMES).await.1["items"][0]["metadata"]["labels"]["tier"], "lead");
    let event = bench.watch("").await.next().await.unwrap();
    assert_eq!(event["object"]["metadata"]["labels"]["tier"], "lead");
    bench.api.faults().remove(fault);
    assert_eq!(bench.get(&path).await.1["metadata"]["labels"]["tier"], "gold");
}

#[tokio::test(start_paused = true)]
async fn watches_are_held_delayed_and_dropped() {
    let bench = Bench::new();
    let mut events = bench.watch("").await;
    let hold = bench.api.faults().hold_watches(Matching::any().resource("persistentvolumes"));
    bench.create("pv-1", "gold").await;
    assert!(events.is_silent().await);
    bench.api.faults().remove(hold);
    assert_eq!(events.told().await, told("ADDED", "pv-1"));
    let delay = bench.api.faults().delay_watches(Matching::any(), Duration::from_secs(9));
    let started = tokio::time::Instant::now();
    bench.create("pv-2", "gold").await;
    assert_eq!(events.told().await, told("ADDED", "pv-2"));
    assert_eq!(started.elapsed().as_secs(), 9);
    bench.api.faults().remove(delay);
    bench.api.faults().drop_watches(Matching::any(), WatchEnd::Clean);
    assert_eq!(events.next().await, None);
    let mut fresh = bench.watch("resourceVersion=1").await;
    bench.api.faults().drop_watches(Matching::any(), WatchEnd::Cut);
    assert!(fresh.stream.next().await.unwrap().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_delete_answers_as_its_kind_does() {
    let bench = Bench::new();
    bench.create("pv-1", "gold").await;
    let (_, answer) =
        bench.send("DELETE", &format!("{VOLUMES}/pv-1"), &[], json!({"propagationPolicy": "Background"})).await;
    assert_eq!(answer["kind"], "PersistentVolume");
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["a", "b"] {
        let body = json!({"metadata": {"name": name}, "stringData": {"key": "hidden"}});
        assert_eq!(bench.send("POST", secrets, &[], body).await.0, 201);
    }
    let (_, answer) = bench.send("DELETE", &format!("{secrets}/a"), &[], Value::Null).await;
    assert_eq!((&answer["kind"], &answer["status"]), (&json!("Status"), &json!("Success")));
    let (_, answer) = bench.send("DELETE", secrets, &[], Value::Null).await;
    assert_eq!(answer["items"].as_array().map(Vec::len), Some(1));
    let leaked = bench.api.audit().matching(|it| it.resource == "secrets" && it.body.is_some());
    assert_eq!(leaked, []);
}

#[tokio::test(start_paused = true)]
async fn clients_find_out_what_there_is() {
    let bench = Bench::new();
    let table = [
        ("/version", "/major", json!("1")),
        ("/api", "/versions", json!(["v1"])),
        ("/apis/storage.k8s.io/v1", "/kind", json!("APIResourceList")),
        ("/openapi/v3", "/paths/api~1v1/serverRelativeURL", json!("/openapi/v3/api/v1?hash=v1.37.0")),
        ("/apis/none.k8s.io/v1", "/code", json!(404)),
        ("/nowhere", "/reason", json!("NotFound")),
    ];
    for (path, pointer, wanted) in table {
        let (_, body) = bench.get(path).await;
        assert_eq!(body.pointer(pointer), Some(&wanted), "{path}: {body}");
    }
    let aggregated =
        [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")];
    let (_, body) = bench.send("GET", "/apis", &aggregated, Value::Null).await;
    assert_eq!(body["kind"], "APIGroupDiscoveryList");
}

#[tokio::test(start_paused = true)]
async fn bodies_that_cannot_be_read_are_refused() {
    let bench = Bench::new();
    let table = [
        ("POST", VOLUMES, "text/plain", 415),
        ("POST", VOLUMES, "application/json", 400),
        ("POST", VOLUMES, "application/vnd.kubernetes.protobuf", 400),
        ("PATCH", "/api/v1/namespaces/default", "application/json", 415),
        ("PATCH", "/api/v1/namespaces/default", "application/apply-patch+yaml", 422),
    ];
    for (method, path, media_type, code) in table {
        let response = bench.raw(method, path, &[("content-type", media_type)], "{".into()).await.unwrap();
        assert_eq!(response.status(), code, "{method} {path} {media_type}");
    }
    let huge = "x".repeat(super::LARGEST_BODY + 1);
    let response = bench.raw("POST", VOLUMES, &[], huge).await.unwrap();
    assert_eq!(response.status(), 413);
}

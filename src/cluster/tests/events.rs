//! Events as the server gets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, Seen, Server, pass, status};
use crate::cluster::api::{Api, ApiOptions};
use crate::cluster::event_book::{EventKind, EventTarget};
use crate::cluster::events::{EventRecorder, EventSource};
use crate::process::{Clock, Permit, Rng, TaskEnds, Tasks};
use crate::telemetry::Meter;
use crate::testing::Warnings;

struct Running {
    recorder: EventRecorder,
    meter: Meter,
    _tasks: (Tasks, TaskEnds),
}

async fn start(server: &Server) -> Running {
    let meter = Meter::new();
    let api = Api::new(server.clients().await.work, &ApiOptions::default(), meter.clone());
    let source = EventSource { component: "csi-control-plane/demo".into(), instance: "host_1".into() };
    let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
    let recorder = EventRecorder::new(api, source, meter.clone(), clock, Rng::seeded(1));
    let (tasks, ends) = Tasks::new("cluster");
    tasks.spawn("events", recorder.clone().run());
    Running { recorder, meter, _tasks: (tasks, ends) }
}

fn cluster_scoped(name: &str) -> EventTarget {
    EventTarget {
        api_version: "storage.k8s.io/v1".into(),
        kind: "VolumeAttachment".into(),
        namespace: None,
        name: name.into(),
        uid: format!("uid-{name}"),
    }
}

fn allowed() -> Permit {
    Arc::new(|| true)
}

fn created(seen: &Seen) -> Answer {
    Answer::Json(if seen.method == "POST" { 201 } else { 200 }, json!({ "metadata": { "name": "e" } }))
}

fn said(server: &Server) -> Vec<(String, Value)> {
    server.seen().into_iter().map(|seen| (seen.method, seen.body)).collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_about_a_cluster_scoped_object_is_written_to_the_default_namespace() {
    let server = Server::new(created);
    let running = start(&server).await;
    running.recorder.record(&cluster_scoped("csi-1"), EventKind::Warning, "FailedAttach", "disk is gone", allowed());
    pass(Duration::from_secs(1)).await;
    let seen = server.seen();
    assert_eq!(seen[0].path, "/api/v1/namespaces/default/events");
    let event: k8s_openapi::api::core::v1::Event = serde_json::from_value(seen[0].body.clone()).unwrap();
    assert!(event.metadata.name.as_deref().unwrap().starts_with("csi-1."));
    assert_eq!(event.involved_object.namespace, None);
    assert_eq!((event.count, event.type_.as_deref()), (Some(1), Some("Warning")));
    assert_eq!((event.reason.as_deref(), event.message.as_deref()), (Some("FailedAttach"), Some("disk is gone")));
    assert_eq!(seen[0].body["firstTimestamp"], "2026-01-01T00:00:00Z");
    assert!(running.meter.render().contains("events_total{reason=\"FailedAttach\",result=\"written\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_error_is_one_event_that_is_counted_up() {
    let server = Server::new(created);
    let running = start(&server).await;
    let target = EventTarget { namespace: Some("shop".into()), ..cluster_scoped("data") };
    for _ in 0..60 {
        running.recorder.record(&target, EventKind::Warning, "FailedAttach", "disk is gone", allowed());
        pass(Duration::from_secs(5)).await;
    }
    pass(Duration::from_secs(10)).await;
    let said = said(&server);
    assert_eq!(said.iter().map(|(method, _)| method.as_str()).collect::<Vec<_>>(), ["POST", "PATCH"]);
    assert_eq!(said[1].1["count"], 60);
    assert_eq!(server.seen()[0].body["involvedObject"]["namespace"], "shop");
}

#[tokio::test(start_paused = true)]
async fn how_things_are_is_one_event_whichever_process_tells_it() {
    let taken = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let server = Server::new(move |seen| {
        let name = seen.body["metadata"]["name"].to_string();
        if seen.method == "POST" && !taken.lock().unwrap().insert(name) {
            return Answer::Json(409, status(409, "AlreadyExists", "there is one"));
        }
        created(seen)
    });
    let target = cluster_scoped("demo");
    for _ in 0..2 {
        let running = start(&server).await;
        running.recorder.record_standing(&target, EventKind::Warning, "Misfit", "no capacity", allowed());
        pass(Duration::from_secs(1)).await;
    }
    let other = EventTarget { uid: "anew".into(), ..target };
    let running = start(&server).await;
    running.recorder.record_standing(&other, EventKind::Warning, "Misfit", "no capacity", allowed());
    pass(Duration::from_secs(1)).await;
    let names: Vec<Value> = said(&server).iter().map(|(_, body)| body["metadata"]["name"].clone()).collect();
    assert_eq!((&names[0], &names[2]), (&names[1], &Value::Null), "the second process asks for the same name");
    assert_ne!(names[3], names[0], "an object that was made anew has an Event of its own");
    let again = &server.seen()[2];
    let path = format!("/api/v1/namespaces/default/events/{}", names[0].as_str().unwrap());
    assert_eq!((&*again.method, &again.path), ("PATCH", &path));
    assert_eq!(again.body, json!({ "lastTimestamp": "2026-01-01T00:00:00Z" }), "its count is the first one's");
    assert_eq!(names.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn two_components_say_the_same_in_their_own_names_within_one_budget() {
    let server = Server::new(created);
    let running = start(&server).await;
    let (target, other) = (cluster_scoped("csi-1"), running.recorder.of_component("external-resizer demo"));
    for recorder in [&running.recorder, &other, &other] {
        recorder.record(&target, EventKind::Warning, "FailedAttach", "disk is gone", allowed());
    }
    pass(Duration::from_secs(1)).await;
    let told: Vec<(Value, Value, Value)> = said(&server)
        .into_iter()
        .map(|(_, event)| {
            (event["source"]["component"].clone(), event["reportingComponent"].clone(), event["count"].clone())
        })
        .collect();
    let of = |component: &str, count: u32| (json!(component), json!(component), json!(count));
    assert_eq!(told, [of("csi-control-plane/demo", 1), of("external-resizer demo", 2)]);
    // The two Events above are of the same object: thirteen more are all that it may have at once.
    for i in 0..20 {
        other.record(&target, EventKind::Warning, "FailedAttach", &format!("request {i}"), allowed());
    }
    pass(Duration::from_secs(10)).await;
    assert_eq!(server.seen().len(), 15);
}

#[tokio::test(start_paused = true)]
async fn i8_nothing_is_written_once_the_permit_is_gone() {
    let server = Server::new(created);
    let running = start(&server).await;
    let leading = Arc::new(AtomicBool::new(true));
    let permit: Permit = {
        let leading = Arc::clone(&leading);
        Arc::new(move || leading.load(Ordering::Acquire))
    };
    for i in 0..10 {
        let target = cluster_scoped(&format!("csi-{i}"));
        running.recorder.record(&target, EventKind::Normal, "Attached", "attached", Arc::clone(&permit));
    }
    pass(Duration::from_millis(250)).await;
    leading.store(false, Ordering::Release);
    pass(Duration::from_secs(60)).await;
    assert_eq!(server.seen().len(), 3);
    assert!(running.meter.render().contains("events_total{reason=\"Attached\",result=\"dropped\"} 7"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_busy_gets_the_event_when_it_asked_for_it() {
    let first = AtomicBool::new(true);
    let server = Server::new(move |seen| {
        if first.swap(false, Ordering::AcqRel) {
            Answer::Text(429, "busy", vec![("retry-after", "20")])
        } else {
            created(seen)
        }
    });
    let running = start(&server).await;
    running.recorder.record(&cluster_scoped("csi-1"), EventKind::Normal, "Attached", "attached", allowed());
    pass(Duration::from_secs(19)).await;
    assert_eq!(server.seen().len(), 1);
    pass(Duration::from_secs(2)).await;
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_server_forgot_is_made_anew_and_a_forbidden_one_is_given_up() {
    let server = Server::new(|seen| match (seen.method.as_str(), seen.path.contains("namespaces/closed")) {
        ("PATCH", _) => Answer::Json(404, status(404, "NotFound", "gone")),
        (_, true) => Answer::Json(403, status(403, "Forbidden", "terminating")),
        _ => created(seen),
    });
    let running = start(&server).await;
    let target = cluster_scoped("csi-1");
    running.recorder.record(&target, EventKind::Warning, "FailedAttach", "x", allowed());
    pass(Duration::from_secs(1)).await;
    running.recorder.record(&target, EventKind::Warning, "FailedAttach", "x", allowed());
    let closed = EventTarget { namespace: Some("closed".into()), ..cluster_scoped("data") };
    running.recorder.record(&closed, EventKind::Warning, "FailedDetach", "x", allowed());
    pass(Duration::from_secs(400)).await;
    let methods: Vec<String> = said(&server).into_iter().map(|(method, _)| method).collect();
    assert_eq!(methods, ["POST", "POST", "PATCH", "POST"]);
    assert!(running.meter.render().contains("events_total{reason=\"FailedDetach\",result=\"failed\"} 1"));
}

/// kube-apiserver's answers to an Event for a namespace that is being deleted, and for one that is gone.
#[tokio::test(start_paused = true)]
async fn an_event_for_a_namespace_that_is_being_deleted_is_no_warning_and_one_that_may_not_be_written_is() {
    let cause = json!([{ "reason": "NamespaceTerminating", "message": "namespace shop is being terminated",
        "field": "metadata.namespace" }]);
    let terminating = json!({ "kind": "Status", "code": 403, "reason": "Forbidden",
        "message": "events \"e\" is forbidden: unable to create new content in namespace shop because it is being terminated",
        "details": { "name": "e", "kind": "events", "causes": cause } });
    let gone = json!({ "kind": "Status", "code": 404, "reason": "NotFound", "message": "namespaces \"shop\" not found",
        "details": { "name": "shop", "kind": "namespaces" } });
    let forbidden = status(403, "Forbidden", "events is forbidden: User \"u\" cannot create resource \"events\"");
    for (code, body, warned) in [(403, terminating, 0), (404, gone, 0), (403, forbidden, 1)] {
        let warnings = Warnings::begin();
        let answer = body.clone();
        let server = Server::new(move |_| Answer::Json(code, answer.clone()));
        let running = start(&server).await;
        let target = EventTarget { namespace: Some("shop".into()), ..cluster_scoped("claim") };
        running.recorder.record(&target, EventKind::Warning, "ProvisioningFailed", "no", allowed());
        pass(Duration::from_secs(60)).await;
        assert_eq!((server.seen().len(), warnings.count()), (1, warned), "{body}");
    }
}

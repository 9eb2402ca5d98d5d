//! The work path: what is sent, how answers are classified, what is bounded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Answer, Server, pass, status, va};
use crate::cluster::api::{Api, ApiOptions};
use crate::cluster::error::ApiErrorKind;
use crate::cluster::names::ObjectName;
use crate::cluster::objects::{CsiStorageCapacity, PersistentVolume, ReferenceGrant, VolumeAttachment};
use crate::cluster::patch::{Guard, Patch, add_finalizer, status_changes};
use crate::process::{Clock, Permitted as _, error_chain};
use crate::telemetry::Meter;

async fn api(server: &Server) -> (Api, Meter) {
    let meter = Meter::new();
    (Api::new(server.clients().await.work, &ApiOptions::default(), meter.clone()), meter)
}

#[tokio::test(start_paused = true)]
async fn r6_r7_metadata_and_status_are_separate_patches_with_their_own_content_type() {
    let server = Server::new(|_| Answer::Json(200, va("a", "u1", 8)));
    let (api, meter) = api(&server).await;
    let name = ObjectName::cluster("a");
    let object: VolumeAttachment = api.get(&name).await.unwrap();
    let fin =
        add_finalizer(&object.metadata, "external-attacher/demo", &BTreeMap::from([("k".to_owned(), "v".to_owned())]))
            .unwrap();
    let patched: VolumeAttachment = api.patch(&name, &fin).await.unwrap();
    assert_eq!(patched.metadata.resource_version.as_deref(), Some("8"));
    let attached = status_changes(&object.metadata, Guard::Uid, &json!({ "attached": true }));
    api.patch_status::<VolumeAttachment>(&name, &attached).await.unwrap();

    let seen = server.seen();
    let said: Vec<_> = seen.iter().map(|s| (s.method.as_str(), s.path.as_str(), s.content_type.as_str())).collect();
    assert_eq!(
        said,
        [
            ("GET", "/apis/storage.k8s.io/v1/volumeattachments/a", ""),
            ("PATCH", "/apis/storage.k8s.io/v1/volumeattachments/a", "application/json-patch+json"),
            ("PATCH", "/apis/storage.k8s.io/v1/volumeattachments/a/status", "application/merge-patch+json"),
        ]
    );
    assert_eq!(seen[1].body[0], json!({ "op": "test", "path": "/metadata/uid", "value": "u1" }));
    assert_eq!(seen[2].body, json!({ "metadata": { "uid": "u1" }, "status": { "attached": true } }));
    assert!(seen.iter().all(|s| s.authorization == "Bearer secret-token"));
    let text = meter.render();
    let line =
        "csi_control_plane_api_requests_total{verb=\"patch\",resource=\"volumeattachments/status\",outcome=\"ok\"} 1";
    assert!(text.contains(line), "{text}");
}

#[tokio::test(start_paused = true)]
async fn refusals_keep_their_class_their_words_and_their_retry_after() {
    let server = Server::new(|seen| match seen.path.rsplit('/').next().unwrap() {
        "test" => {
            Answer::Json(422, status(422, "Invalid", "the server rejected our request due to an error in our request"))
        }
        "patient" => Answer::Text(503, "away until tomorrow", vec![("retry-after", "86400")]),
        "senseless" => Answer::Text(503, "away for ever", vec![("retry-after", "18446744073709551615")]),
        "busy" => Answer::Text(429, "Too many requests, please try again later.", vec![("retry-after", "7")]),
        "slow" => Answer::Json(
            503,
            json!({ "message": "later", "reason": "ServiceUnavailable", "details": { "retryAfterSeconds": 3 } }),
        ),
        "no" => Answer::Json(403, status(403, "Forbidden", "User \"x\" cannot patch")),
        _ => Answer::Json(404, status(404, "NotFound", "not found")),
    });
    let (api, meter) = api(&server).await;
    let json_patch = Patch::Json(vec![json!({ "op": "test", "path": "/metadata/uid", "value": "u" })]);
    for (name, kind, retry_after) in [
        ("test", ApiErrorKind::PreconditionFailed, None),
        ("busy", ApiErrorKind::TooManyRequests, Some(Duration::from_secs(7))),
        ("slow", ApiErrorKind::ServerError, Some(Duration::from_secs(3))),
        ("patient", ApiErrorKind::ServerError, Some(Duration::from_secs(300))),
        ("senseless", ApiErrorKind::ServerError, Some(Duration::from_secs(300))),
        ("no", ApiErrorKind::Forbidden, None),
        ("gone", ApiErrorKind::NotFound, None),
    ] {
        let error = api.patch::<PersistentVolume>(&ObjectName::cluster(name), &json_patch).await.unwrap_err();
        assert_eq!((error.kind(), error.retry_after()), (kind, retry_after), "{name}");
        match name {
            "busy" => assert_eq!(
                error_chain(&error),
                "cannot patch persistentvolumes \"busy\": Too many requests, please try again later. (429 Too Many Requests)"
            ),
            "no" => assert!(error.to_string().contains("\"patch\" on \"persistentvolumes\""), "{error}"),
            _ => {}
        }
    }
    assert_eq!(server.seen().len(), 7, "nothing retries by itself");
    assert!(meter.render().contains("resource=\"persistentvolumes\",outcome=\"precondition_failed\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_gets_no_answer_ends_and_frees_its_slot() {
    let server = Server::new(|_| Answer::Silence);
    let options = ApiOptions { max_in_flight: 1, ..ApiOptions::default() };
    let api = Api::new(server.clients().await.work, &options, Meter::new());
    let start = tokio::time::Instant::now();
    let error = api.get::<VolumeAttachment>(&ObjectName::cluster("a")).await.unwrap_err();
    assert_eq!((error.kind(), start.elapsed().as_secs()), (ApiErrorKind::Timeout, 30));
    assert_eq!(error_chain(&error), "cannot get volumeattachments \"a\": no answer within 30s");
    api.get::<VolumeAttachment>(&ObjectName::cluster("b")).await.unwrap_err();
    assert_eq!((server.seen().len(), start.elapsed().as_secs()), (2, 60));
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_in_flight_than_allowed() {
    let server = Arc::new(Server::new(|_| Answer::Silence));
    let options = ApiOptions { max_in_flight: 3, timeout: Duration::from_secs(5) };
    let api = Api::new(server.clients().await.work, &options, Meter::new());
    let (tasks, _ends) = crate::process::Tasks::new("test");
    for i in 0..10 {
        let api = api.clone();
        tasks.spawn(i, async move {
            let _ = api.get::<VolumeAttachment>(&ObjectName::cluster(format!("a{i}"))).await;
        });
    }
    pass(Duration::from_secs(1)).await;
    assert_eq!(server.seen().len(), 3);
    pass(Duration::from_secs(5)).await;
    assert_eq!(server.seen().len(), 6);
}

/// attacher R52: a process that was frozen past its lease wakes with all that had waited for a slot.
#[tokio::test(start_paused = true)]
async fn r52_a_request_that_waited_past_the_end_of_its_term_is_not_sent() {
    let server = Server::new(|_| Answer::Silence);
    let options = ApiOptions { max_in_flight: 1, timeout: Duration::from_secs(5) };
    let clock = Clock::system();
    let ends = clock.now() + Duration::from_secs(3);
    let api = Api::new(server.clients().await.work, &options, Meter::new());
    let api = api.permitted(Arc::new(move || clock.now() < ends));
    let (first, second) = (ObjectName::cluster("a"), ObjectName::cluster("b"));
    let (in_time, late) =
        futures::future::join(api.get::<VolumeAttachment>(&first), api.get::<VolumeAttachment>(&second)).await;
    assert_eq!(in_time.unwrap_err().kind(), ApiErrorKind::Timeout);
    let late = late.unwrap_err();
    assert_eq!((late.kind(), late.is_transient()), (ApiErrorKind::NotPermitted, false));
    assert_eq!(error_chain(&late), "cannot get volumeattachments \"b\": the leadership term ended before it was sent");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn r25_a_secret_is_read_fresh_and_never_shown() {
    let server = Server::new(|seen| match seen.path.as_str() {
        "/api/v1/namespaces/ns/secrets/full" => {
            Answer::Json(200, json!({ "metadata": {}, "data": { "user": "aHVudGVyMg==" } }))
        }
        "/api/v1/namespaces/ns/secrets/bytes" => {
            Answer::Json(200, json!({ "metadata": {}, "data": { "a": "aHVudGVyMg==", "b": "/w==" } }))
        }
        "/api/v1/namespaces/ns/secrets/empty" => Answer::Json(200, json!({ "metadata": {} })),
        _ => Answer::Json(404, status(404, "NotFound", "secrets \"x\" not found")),
    });
    let (api, _) = api(&server).await;
    let secret = api.get_secret("ns", "full").await.unwrap();
    assert!(!format!("{secret:?}").contains("hunter2") && format!("{secret:?}").contains("user"));
    assert_eq!(secret.into_texts::<BTreeMap<_, _>>().unwrap()["user"], "hunter2");
    assert!(api.get_secret("ns", "empty").await.unwrap().into_texts::<BTreeMap<_, _>>().unwrap().is_empty());
    let error = api.get_secret("ns", "bytes").await.unwrap().into_texts::<BTreeMap<_, _>>().unwrap_err();
    assert_eq!(
        error_chain(&error),
        "secret ns/bytes: the value of key b is not UTF-8 text, which a CSI secret must be"
    );
    let error = api.get_secret("ns", "x").await.unwrap_err();
    assert_eq!(error_chain(&error), "cannot get secrets \"ns/x\": secrets \"x\" not found (404 NotFound)");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_no_object_is_an_error_of_its_own() {
    let server = Server::new(|_| Answer::Text(200, "<html>hello</html>", vec![]));
    let (api, _) = api(&server).await;
    let error = api.get::<VolumeAttachment>(&ObjectName::cluster("a")).await.unwrap_err();
    assert_eq!(error.kind(), ApiErrorKind::Unexpected);
    assert!(!error_chain(&error).contains("html"), "{}", error_chain(&error));
}

#[tokio::test(start_paused = true)]
async fn an_object_is_made_as_its_body_says_and_its_name_may_be_left_to_the_server() {
    let server = Server::new(|_| {
        Answer::Json(201, json!({ "metadata": { "name": "csisc-x", "uid": "u" }, "storageClassName": "c" }))
    });
    let (api, _) = api(&server).await;
    let body = json!({ "metadata": { "generateName": "csisc-" }, "storageClassName": "c" });
    let made: CsiStorageCapacity = api.create(&ObjectName::namespaced("kube", ""), &body).await.unwrap();
    assert_eq!(&*made.metadata.name, "csisc-x");
    let seen = &server.seen()[0];
    assert_eq!(
        (seen.method.as_str(), seen.path.as_str()),
        ("POST", "/apis/storage.k8s.io/v1/namespaces/kube/csistoragecapacities")
    );
    assert_eq!(
        (seen.query.as_str(), seen.content_type.as_str(), &seen.body),
        ("fieldManager=csi-control-plane", "application/json", &body)
    );
}

#[tokio::test(start_paused = true)]
async fn a_delete_tells_gone_from_held_by_the_finalizers_and_names_the_uid() {
    let server = Server::new(|seen| match seen.path.rsplit('/').next().unwrap() {
        "held" => Answer::Json(
            200,
            json!({ "kind": "PersistentVolume", "metadata": { "name": "held", "finalizers": ["f"], "deletionTimestamp": "2026-01-01T00:00:00Z" } }),
        ),
        "last" => Answer::Json(200, json!({ "kind": "PersistentVolume", "metadata": { "name": "last" }, "spec": {} })),
        "other" => Answer::Json(409, status(409, "Conflict", "the UID in the precondition does not match")),
        _ => Answer::Json(200, json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" })),
    });
    let (api, _) = api(&server).await;
    let delete = async |name: &str| api.delete::<PersistentVolume>(&ObjectName::cluster(name), "u1").await;
    assert_eq!(delete("gone").await.unwrap(), None);
    assert_eq!(delete("last").await.unwrap(), None, "an object without finalizers was the last that there was of it");
    let held = delete("held").await.unwrap().unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    assert_eq!(delete("other").await.unwrap_err().kind(), ApiErrorKind::Conflict);
    let seen = &server.seen()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("DELETE", "/api/v1/persistentvolumes/gone"));
    assert_eq!(seen.body["preconditions"], json!({ "uid": "u1" }));
}

#[tokio::test(start_paused = true)]
async fn a_list_is_one_consistent_answer_of_one_namespace_and_some_labels() {
    let grant = json!({ "metadata": { "name": "g", "namespace": "shop" }, "spec": { "from": null, "to": null } });
    let server = Server::new(move |seen| {
        Answer::Json(200, json!({ "items": if seen.query.is_empty() { json!(null) } else { json!([grant]) } }))
    });
    let (api, _) = api(&server).await;
    let grants: Vec<ReferenceGrant> = api.list(Some("shop"), Some("a=b,c")).await.unwrap();
    assert_eq!(grants.len(), 1);
    let seen = &server.seen()[0];
    assert_eq!(seen.path, "/apis/gateway.networking.k8s.io/v1beta1/namespaces/shop/referencegrants");
    assert!(
        seen.query.contains("labelSelector=a%3Db%2Cc") && !seen.query.contains("resourceVersion"),
        "{}",
        seen.query
    );
}

#[tokio::test(start_paused = true)]
async fn a_name_that_nothing_can_have_is_not_found_without_asking() {
    let server = Server::new(|_| Answer::Json(200, va("a", "u1", 8)));
    let (api, meter) = api(&server).await;
    let bad = ["", ".", "..", "a/b", "../a", "a?watch=true", "a#b", "a%2fb", "a b", "a\n", "\u{7f}", "ä", "a\\b"];
    for name in bad {
        let cluster = api.get::<VolumeAttachment>(&ObjectName::cluster(name)).await.unwrap_err();
        assert_eq!(cluster.kind(), ApiErrorKind::NotFound, "{name:?}");
        let patch = Patch::Json(Vec::new());
        let patched = api.patch::<PersistentVolume>(&ObjectName::cluster(name), &patch).await.unwrap_err();
        assert_eq!(patched.kind(), ApiErrorKind::NotFound, "{name:?}");
        let listed = api.list::<ReferenceGrant>(Some(name), None).await.unwrap_err();
        assert_eq!(listed.kind(), ApiErrorKind::NotFound, "{name:?}");
        for (namespace, name) in [(name, "good"), ("good", name)] {
            assert_eq!(api.get_secret(namespace, name).await.unwrap_err().kind(), ApiErrorKind::NotFound);
        }
    }
    let error = api.get_secret("shop", "a/b").await.unwrap_err();
    assert_eq!(
        error_chain(&error),
        "cannot get secrets \"shop/a/b\": nothing can have that name: in a path it would be read as something else"
    );
    assert_eq!(server.seen().len(), 0, "nobody was asked");
    assert!(meter.render().contains("resource=\"secrets\",outcome=\"not_found\""));
    // Strange, and yet a name.
    for name in ["system:node:a", "a.b-c", "A_b", "a@b"] {
        api.get::<VolumeAttachment>(&ObjectName::cluster(name)).await.unwrap();
    }
    assert_eq!(server.seen().last().unwrap().path, "/apis/storage.k8s.io/v1/volumeattachments/a@b");
}

#[tokio::test(start_paused = true)]
async fn the_version_that_a_kind_is_at_is_asked_for_consistently_and_without_its_objects() {
    for (version, expected) in [(json!("12"), Some(12)), (json!("x"), None), (json!(""), None), (json!(null), None)] {
        let server = Server::new(move |_| {
            let metadata = json!({ "resourceVersion": version, "continue": "more", "remainingItemCount": 7 });
            Answer::Json(200, json!({ "metadata": metadata, "items": [{ "metadata": { "resourceVersion": "3" } }] }))
        });
        let (api, _) = api(&server).await;
        assert_eq!(api.latest_version::<PersistentVolume>().await.unwrap(), expected);
        let seen = &server.seen()[0];
        assert_eq!((seen.path.as_str(), seen.query.contains("limit=1")), ("/api/v1/persistentvolumes", true));
        assert!(!seen.query.contains("resourceVersion"), "{}", seen.query);
    }
}

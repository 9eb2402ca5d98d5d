//! Requests for compacted versions get an error that says so.

use serde_json::json;

use super::dialogue::{Case, Server};
use super::objects::{CONFIG_MAPS, config_map};

pub(crate) async fn a_page_of_a_compacted_version_has_expired(server: &Server) {
    let mut case = Case::begin(server).await;
    for name in ["a", "b", "c"] {
        case.post(CONFIG_MAPS, config_map(name)).await;
    }
    let first = case.get(&format!("{CONFIG_MAPS}?limit=1")).await;
    case.post(CONFIG_MAPS, config_map("d")).await;
    server.forget().await;
    let next = first.text("/metadata/continue").to_owned();
    let expired = case.get(&format!("{CONFIG_MAPS}?limit=1&continue={next}")).await;
    assert_eq!((expired.code, expired.text("/reason")), (410, "Expired"), "{expired:?}");
    // The refusal brings a token with which to go on, if not with the same version.
    let next = expired.text("/metadata/continue").to_owned();
    assert_eq!(super::fetch(&case, &format!("{CONFIG_MAPS}?limit=1&continue={next}")).await.names(), ["b"]);
    let exactly = format!("{CONFIG_MAPS}?resourceVersion={}&resourceVersionMatch=Exact", first.version());
    assert_eq!(case.get(&exactly).await.code, 410);
    case.end("a_page_of_a_compacted_version_has_expired");
}

pub(crate) async fn a_watch_from_a_compacted_version_is_gone(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CONFIG_MAPS, config_map("a")).await;
    let watch = format!("{CONFIG_MAPS}?watch=true&resourceVersion=1");
    server.forget().await;
    let events = case.watch(&watch, 1).await;
    let last = events.last().expect("a refusal or an error");
    let status = if last["type"] == "ERROR" { &last["object"] } else { last };
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")), "{events:?}");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("too old resource version: 1 ("), "{message}");
}

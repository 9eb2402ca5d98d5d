//! Watches: their first events, their changes, and when the server refuses them.

use serde_json::{Value, json};

use super::dialogue::{Case, PatchType, Server};
use super::objects::{ATTACHMENTS, CONFIG_MAPS, attachment, config_map, labelled, with};

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["type"].as_str()).collect()
}

pub(crate) async fn a_watch_tells_every_change_after_its_version(server: &Server) {
    let mut case = Case::begin(server).await;
    let first = case.post(CONFIG_MAPS, config_map("a")).await.version();
    case.patch(PatchType::Merge, &format!("{CONFIG_MAPS}/a"), json!({"data": {"key": "2"}})).await;
    case.post(CONFIG_MAPS, config_map("b")).await;
    case.delete(&format!("{CONFIG_MAPS}/a")).await;
    let events = case.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={first}"), 3).await;
    assert_eq!(kinds(&events), ["MODIFIED", "ADDED", "DELETED"]);
    case.end("a_watch_tells_every_change_after_its_version");
}

pub(crate) async fn a_watch_without_a_version_begins_with_what_is_there(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CONFIG_MAPS, config_map("a")).await;
    case.post(CONFIG_MAPS, config_map("b")).await;
    assert_eq!(kinds(&case.watch(&format!("{CONFIG_MAPS}?watch=true"), 2).await), ["ADDED", "ADDED"]);
    case.end("a_watch_without_a_version_begins_with_what_is_there");
}

pub(crate) async fn a_watch_by_selector_tells_of_what_comes_and_goes(server: &Server) {
    let mut case = Case::begin(server).await;
    let first = case.post(CONFIG_MAPS, labelled("a", json!({"c": "red"}))).await.version();
    let paint = |colour: &str| json!({"metadata": {"labels": {"c": colour}}});
    let path = format!("{CONFIG_MAPS}/a");
    case.patch(PatchType::Merge, &path, paint("blue")).await;
    case.patch(PatchType::Merge, &path, json!({"data": {"key": "unseen"}})).await;
    case.patch(PatchType::Merge, &path, paint("red")).await;
    case.delete(&path).await;
    let watch = format!("{CONFIG_MAPS}?watch=true&labelSelector=c%3Dred&resourceVersion={first}");
    let events = case.watch(&watch, 3).await;
    assert_eq!(kinds(&events), ["DELETED", "ADDED", "DELETED"]);
    case.end("a_watch_by_selector_tells_of_what_comes_and_goes");
}

pub(crate) async fn initial_events_end_with_a_bookmark(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CONFIG_MAPS, config_map("a")).await;
    let path = format!(
        "{CONFIG_MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let events = case.watch(&path, 2).await;
    assert_eq!(kinds(&events), ["ADDED", "BOOKMARK"]);
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    case.watch(&format!("{CONFIG_MAPS}?watch=true&sendInitialEvents=true"), 1).await;
    case.end("initial_events_end_with_a_bookmark");
}

pub(crate) async fn bookmarks_of_a_running_watch_tell_how_far_the_store_has_come(server: &Server) {
    let mut case = Case::begin(server).await;
    let first = case.post(CONFIG_MAPS, config_map("a")).await.version();
    let last: u64 = case.post(CONFIG_MAPS, config_map("b")).await.version().parse().expect("a number");
    // One comes two seconds before the end, if not before.
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={first}");
    let asking = format!("{path}&timeoutSeconds=5&allowWatchBookmarks=true");
    let mut events = case.watch(&asking, 2).await;
    // A server that has much to do may end the watch before it comes to that.
    for _ in 0..10 {
        if events.len() == 2 {
            break;
        }
        case.untell();
        events = case.watch(&asking, 2).await;
    }
    assert_eq!(kinds(&events), ["ADDED", "BOOKMARK"]);
    let metadata = events[1]["object"]["metadata"].as_object().expect("an object's");
    let version = metadata["resourceVersion"].as_str().and_then(|version| version.parse::<u64>().ok());
    assert!(version.is_some_and(|version| version >= last), "{version:?} {last}");
    assert!(metadata.get("annotations").is_none(), "it is not the end of the initial events");
    // None for a client that has not requested them.
    let events = case.watch(&format!("{path}&timeoutSeconds=4"), 2).await;
    assert_eq!(kinds(&events), ["ADDED"]);
    case.end("bookmarks_of_a_running_watch_tell_how_far_the_store_has_come");
}

pub(crate) async fn a_finalized_object_is_modified_then_deleted(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = format!("{ATTACHMENTS}/CASE-a");
    let held = with(attachment("CASE-a"), "/metadata", "finalizers", json!(["example.com/one"]));
    let first = case.post(ATTACHMENTS, held).await.version();
    case.delete(&path).await;
    let last = case.patch(PatchType::Merge, &path, json!({"metadata": {"finalizers": null}})).await;
    let watch = format!("{ATTACHMENTS}?watch=true&fieldSelector=metadata.name%3DCASE-a&resourceVersion={first}");
    let events = case.watch(&watch, 2).await;
    assert_eq!(kinds(&events), ["MODIFIED", "DELETED"]);
    assert!(last.code == 200);
    case.end("a_finalized_object_is_modified_then_deleted");
}

pub(crate) async fn a_watch_ends_when_its_time_is_up(server: &Server) {
    let mut case = Case::begin(server).await;
    let first = case.post(CONFIG_MAPS, config_map("a")).await.version();
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1&resourceVersion={first}");
    assert_eq!(kinds(&case.watch(&path, 1).await), Vec::<&str>::new());
    case.end("a_watch_ends_when_its_time_is_up");
}

pub(crate) async fn a_watch_of_nonsense_is_refused(server: &Server) {
    let mut case = Case::begin(server).await;
    case.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=nonsense"), 1).await;
    case.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=5&resourceVersionMatch=NotOlderThan"), 1).await;
    case.watch(&format!("{CONFIG_MAPS}?watch=true&fieldSelector=data.key%3Dvalue"), 1).await;
    case.end("a_watch_of_nonsense_is_refused");
}

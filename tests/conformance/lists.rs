//! Pages, selectors, and the resourceVersion of a list.

use serde_json::json;

use super::dialogue::{Case, Server};
use super::objects::{ATTACHMENTS, CONFIG_MAPS, attachment, config_map, labelled};

pub(crate) async fn pages_are_of_one_version(server: &Server) {
    let mut case = Case::begin(server).await;
    for name in ["a", "b", "c", "d", "e"] {
        case.post(CONFIG_MAPS, config_map(name)).await;
    }
    let first = case.get(&format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!((first.names(), &first.body["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(3)));
    case.delete(&format!("{CONFIG_MAPS}/c")).await;
    let next = first.text("/metadata/continue").to_owned();
    let second = case.get(&format!("{CONFIG_MAPS}?limit=2&continue={next}")).await;
    assert_eq!(second.names(), ["c", "d"]);
    assert_eq!(second.version(), first.version());
    let next = second.text("/metadata/continue").to_owned();
    let third = case.get(&format!("{CONFIG_MAPS}?limit=2&continue={next}")).await;
    assert_eq!((third.names(), third.text("/metadata/continue")), (vec!["e"], ""));
    case.end("pages_are_of_one_version");
}

pub(crate) async fn a_continue_token_must_be_the_servers(server: &Server) {
    let mut case = Case::begin(server).await;
    assert_eq!(case.get(&format!("{CONFIG_MAPS}?limit=2&continue=nonsense")).await.code, 400);
    case.get(&format!("{CONFIG_MAPS}?limit=-1")).await;
    case.get(&format!("{CONFIG_MAPS}?limit=many")).await;
    case.end("a_continue_token_must_be_the_servers");
}

pub(crate) async fn labels_select(server: &Server) {
    let mut case = Case::begin(server).await;
    for (name, labels) in [("a", json!({"c": "red", "n": "1"})), ("b", json!({"c": "blue"})), ("d", json!({"n": "3"}))]
    {
        case.post(CONFIG_MAPS, labelled(name, labels)).await;
    }
    for (selector, expected) in [
        ("c%3Dred", vec!["a"]),
        ("c%3D%3Dblue", vec!["b"]),
        ("c%21%3Dred", vec!["b", "d"]),
        ("c%20in%20%28red%2Cblue%29", vec!["a", "b"]),
        ("c%20notin%20%28red%29", vec!["b", "d"]),
        ("c", vec!["a", "b"]),
        ("%21c", vec!["d"]),
        ("n%3E1", vec!["d"]),
        ("c%3Dred%2Cn%3D1", vec!["a"]),
    ] {
        let listed = case.get(&format!("{CONFIG_MAPS}?labelSelector={selector}")).await;
        let names: Vec<&str> = listed.names().into_iter().filter(|name| *name != "kube-root-ca.crt").collect();
        assert_eq!(names, expected, "{selector}");
    }
    case.get(&format!("{CONFIG_MAPS}?labelSelector=c%3D%3D%3Dred")).await;
    case.get(&format!("{CONFIG_MAPS}?labelSelector=-c")).await;
    case.end("labels_select");
}

pub(crate) async fn fields_select(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CONFIG_MAPS, config_map("a")).await;
    case.post(CONFIG_MAPS, config_map("b")).await;
    assert_eq!(case.get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Da")).await.names(), ["a"]);
    assert_eq!(case.get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%21%3Da")).await.names(), ["b"]);
    assert_eq!(case.get(&format!("{CONFIG_MAPS}?fieldSelector=data.key%3Dvalue")).await.code, 400);
    let everywhere = "/api/v1/configmaps?fieldSelector=metadata.namespace%3DCASE%2Cmetadata.name%3Db";
    assert_eq!(case.get(everywhere).await.names(), ["b"]);
    case.post(ATTACHMENTS, attachment("CASE-a")).await;
    assert_eq!(case.get(&format!("{ATTACHMENTS}?fieldSelector=spec.nodeName%3Dnode-1")).await.code, 400);
    assert_eq!(case.get(&format!("{ATTACHMENTS}?fieldSelector=metadata.name%3DCASE-a")).await.names().len(), 1);
    case.end("fields_select");
}

pub(crate) async fn a_list_is_as_new_as_asked(server: &Server) {
    let mut case = Case::begin(server).await;
    let first = case.post(CONFIG_MAPS, config_map("a")).await.version();
    case.post(CONFIG_MAPS, config_map("b")).await;
    let exactly = format!("{CONFIG_MAPS}?resourceVersion={first}&resourceVersionMatch=Exact");
    let then = case.get(&exactly).await;
    assert_eq!((then.names(), then.version()), (vec!["a"], first.clone()));
    let not_older = format!("{CONFIG_MAPS}?resourceVersion={first}&resourceVersionMatch=NotOlderThan&limit=500");
    assert_eq!(case.get(&not_older).await.code, 200);
    case.get(&format!("{CONFIG_MAPS}?resourceVersionMatch=Exact")).await;
    case.get(&format!("{CONFIG_MAPS}?resourceVersion=0&resourceVersionMatch=Exact")).await;
    case.get(&format!("{CONFIG_MAPS}?resourceVersion={first}&resourceVersionMatch=About")).await;
    case.get(&format!("{CONFIG_MAPS}?resourceVersion=nonsense")).await;
    case.end("a_list_is_as_new_as_asked");
}

pub(crate) async fn a_version_of_the_future_is_waited_for_and_refused(server: &Server) {
    let mut case = Case::begin(server).await;
    let future = case.get(&format!("{CONFIG_MAPS}?resourceVersion=999999999")).await;
    assert_eq!(future.code, 504);
    assert!(future.text("/message").starts_with("Timeout: Too large resource version: 999999999, current: "));
    assert_eq!(future.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(future.body["details"]["retryAfterSeconds"], 1);
}

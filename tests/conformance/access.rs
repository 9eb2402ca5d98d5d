//! Access: self-reviews of a client, accounts with few rights, a wrong token, and anonymous requests.

use serde_json::{Value, json};

use super::dialogue::{Case, PatchType, Server};

const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
const ATTACHMENT: &str = "/apis/storage.k8s.io/v1/volumeattachments/CASE-va";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/CASE/leases";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// May I patch attachments?
fn question() -> Value {
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
        "resourceAttributes": {"group": "storage.k8s.io", "resource": "volumeattachments", "verb": "patch"}}})
}

/// Creates an attachment that is not in the transcript.
async fn attachment(case: &Case) {
    let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "CASE-va"},
        "spec": {"attacher": "CASE.csi.example.com", "nodeName": "CASE-node", "source": {"persistentVolumeName": "CASE-pv"}}});
    let made = super::untold(case, ATTACHMENTS, object).await;
    assert_eq!(made.code, 201, "{made:?}");
}

/// A `ClusterRole` of one rule about attachments.
fn about_attachments(name: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [
        {"apiGroups": ["storage.k8s.io"], "resources": [resource], "verbs": verbs}]})
}

/// A change of the object, and one of its status.
fn changes() -> [Value; 2] {
    [json!({"metadata": {"labels": {"seen": "yes"}}}), json!({"status": {"attached": true}})]
}

pub(crate) async fn an_administrator_may_do_everything(server: &Server) {
    let mut case = Case::begin(server).await;
    let answer = super::untold(&case, REVIEWS, question()).await;
    assert_eq!((answer.code, &answer.body["status"]["allowed"]), (201, &json!(true)));
    case.get("/api/v1/namespaces/CASE-nowhere").await;
    case.end("an_administrator_may_do_everything");
}

pub(crate) async fn an_account_may_do_what_it_was_given_and_nothing_else(server: &Server) {
    let mut case = Case::begin(server).await;
    attachment(&case).await;
    let one_lease = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "CASE-one-lease", "namespace": "CASE"}, "rules": [{"apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"], "resourceNames": ["mine"], "verbs": ["get", "update"]}]});
    case.as_account("reader", &[about_attachments("CASE-reader", "volumeattachments", &["get", "list"]), one_lease])
        .await;
    let told = super::untold(&case, REVIEWS, question()).await;
    assert_eq!((told.code, &told.body["status"]["allowed"]), (201, &json!(false)));
    for (path, code) in [
        (ATTACHMENT, 200),
        (ATTACHMENTS, 200),
        // Discovery is everyone's whom the server knows.
        ("/apis/storage.k8s.io/v1", 200),
        ("/version", 200),
    ] {
        assert_eq!(super::fetch(&case, path).await.code, code, "{path}");
    }
    let [change, status] = changes();
    let mut refused = vec![
        case.get(&format!("{ATTACHMENTS}?watch=1")).await,
        case.get(&format!("{ATTACHMENT}/status")).await,
        case.patch(PatchType::Merge, ATTACHMENT, change).await,
        case.patch(PatchType::Merge, &format!("{ATTACHMENT}/status"), status).await,
        case.delete(ATTACHMENT).await,
        case.delete(ATTACHMENTS).await,
        case.post(ATTACHMENTS, json!({})).await,
        case.get("/api/v1/persistentvolumes").await,
        case.get("/api/v1/namespaces/CASE/secrets/any").await,
        case.get("/api/v1/namespaces/CASE").await,
        case.get("/api/v1/namespaces").await,
        // Of Leases, one alone: to read it, whether or not it is there, and not to list it.
        case.get(&format!("{LEASES}/another")).await,
        case.get(LEASES).await,
        case.get(&format!("{LEASES}?fieldSelector=metadata.name%3Dmine")).await,
    ];
    assert_eq!(case.get(&format!("{LEASES}/mine")).await.code, 404);
    // A missing object looks the same.
    refused.push(case.get("/api/v1/gadgets").await);
    refused.push(case.get("/apis/gadgets.example.com/v1/namespaces/CASE/gadgets/one").await);
    refused.push(case.get("/metrics").await);
    assert!(refused.iter().all(|answer| answer.code == 403), "{refused:#?}");
    case.as_administrator();
    let spared = super::fetch(&case, ATTACHMENT).await;
    assert_eq!((spared.code, &spared.body["metadata"]["labels"]), (200, &Value::Null), "nothing came of it");
    case.end("an_account_may_do_what_it_was_given_and_nothing_else");
}

pub(crate) async fn an_account_may_write_either_the_object_or_its_status(server: &Server) {
    let mut case = Case::begin(server).await;
    attachment(&case).await;
    for (name, resource, codes) in
        [("writer", "volumeattachments", [200, 403]), ("teller", "volumeattachments/status", [403, 200])]
    {
        case.as_account(name, &[about_attachments(&format!("CASE-{name}"), resource, &["patch"])]).await;
        let [change, status] = changes();
        let object = case.patch(PatchType::Merge, ATTACHMENT, change).await;
        let status = case.patch(PatchType::Merge, &format!("{ATTACHMENT}/status"), status).await;
        assert_eq!([object.code, status.code], codes, "{name}");
    }
    case.end("an_account_may_write_either_the_object_or_its_status");
}

pub(crate) async fn whoever_brings_no_token_is_nobody_and_may_do_nothing(server: &Server) {
    let mut case = Case::begin(server).await;
    attachment(&case).await;
    case.as_nobody();
    let refused = everything(&mut case).await;
    assert!(refused.iter().all(|code| *code == 403), "{refused:?}");
    for path in ["/version", "/livez", "/readyz"] {
        assert_eq!(super::fetch(&case, path).await.code, 200, "{path}");
    }
    case.end("whoever_brings_no_token_is_nobody_and_may_do_nothing");
}

pub(crate) async fn whoever_brings_a_wrong_token_is_turned_away_at_the_door(server: &Server) {
    let mut case = Case::begin(server).await;
    attachment(&case).await;
    case.as_bearer_of("a-guess");
    let mut refused = everything(&mut case).await;
    refused.push(case.get("/version").await.code);
    assert!(refused.iter().all(|code| *code == 401), "{refused:?}");
    case.end("whoever_brings_a_wrong_token_is_turned_away_at_the_door");
}

/// Tries everything that the caller may not. Returns the answers' codes.
async fn everything(case: &mut Case) -> Vec<u16> {
    let mut answers = Vec::new();
    for path in [
        ATTACHMENT,
        ATTACHMENTS,
        &format!("{ATTACHMENTS}?watch=1"),
        &format!("{LEASES}/any"),
        "/api/v1/namespaces/CASE",
        "/api/v1/gadgets",
        "/apis",
        "/api/v1",
    ] {
        answers.push(case.get(path).await);
    }
    let [change, status] = changes();
    answers.push(case.patch(PatchType::Merge, ATTACHMENT, change).await);
    answers.push(case.patch(PatchType::Merge, &format!("{ATTACHMENT}/status"), status).await);
    answers.push(case.put(ATTACHMENTS, json!({})).await);
    answers.push(case.post(REVIEWS, question()).await);
    answers.push(case.delete(ATTACHMENT).await);
    answers.iter().map(|answer| answer.code).collect()
}

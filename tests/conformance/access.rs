//! Who may do what: the questions that a client asks about itself, and being nobody.

use serde_json::json;

use super::dialogue::{Case, Server};

pub(crate) async fn an_administrator_may_do_everything(server: &Server) {
    let mut case = Case::begin(server).await;
    let question = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {
        "resourceAttributes": {"group": "storage.k8s.io", "resource": "volumeattachments", "verb": "patch"}}});
    let answer = super::ask(&case, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", question).await;
    assert_eq!((answer.code, &answer.body["status"]["allowed"]), (201, &json!(true)));
    case.get("/api/v1/namespaces/CASE-nowhere").await;
    case.end("an_administrator_may_do_everything");
}

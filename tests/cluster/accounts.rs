//! Service accounts with rights and tokens.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What the rights of daemons are about.
const RESOURCES: [(&str, &str); 19] = [
    ("", "events"),
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "secrets"),
    ("apps", "replicasets"),
    ("coordination.k8s.io", "leases"),
    ("gateway.networking.k8s.io", "referencegrants"),
    ("snapshot.storage.k8s.io", "volumesnapshotcontents"),
    ("snapshot.storage.k8s.io", "volumesnapshots"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattachments/status"),
    ("storage.k8s.io", "volumeattributesclasses"),
    ("", "persistentvolumeclaims/status"),
    ("", "persistentvolumes/status"),
];
/// What they allow.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

/// Makes a service account with the rights of these manifests (`ClusterRole`, `Role`), and a token for it.
pub(crate) async fn token(client: &kube::Client, namespace: &str, name: &str, manifests: &str) -> String {
    self::namespace(client, namespace).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    apply(&accounts, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})).await;
    grant(client, namespace, name, manifests).await;
    issue(client, namespace, name).await
}

/// A token for a service account.
pub(crate) async fn issue(client: &kube::Client, namespace: &str, name: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let request: TokenRequest =
        serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": 3600}})).unwrap();
    let issued = accounts.create_token_request(name, &PostParams::default(), &request).await.unwrap();
    issued.status.unwrap().token.unwrap()
}

/// Makes sure that there is a namespace of this name.
pub(crate) async fn namespace(client: &kube::Client, name: &str) {
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    apply::<Namespace>(&Api::all(client.clone()), space).await;
}

/// Gives an account the rights of these manifests, and no others.
pub(crate) async fn grant(client: &kube::Client, namespace: &str, name: &str, manifests: &str) {
    for document in serde_yaml::Deserializer::from_str(manifests) {
        let mut role = Value::deserialize(document).unwrap();
        // Daemons of one driver with the same roles have rights of the same name: each account has its own.
        let role_name = format!("{}:{name}", role["metadata"]["name"].as_str().unwrap());
        role["metadata"]["name"] = role_name.as_str().into();
        let kind = role["kind"].as_str().unwrap().to_owned();
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
            "metadata": {"name": role_name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role_name},
            "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": name}],
        });
        if kind == "ClusterRole" {
            apply::<ClusterRole>(&Api::all(client.clone()), role).await;
            apply::<ClusterRoleBinding>(&Api::all(client.clone()), binding).await;
        } else {
            let in_namespace = role["metadata"]["namespace"].as_str().unwrap().to_owned();
            apply::<Role>(&Api::namespaced(client.clone(), &in_namespace), role).await;
            apply::<RoleBinding>(&Api::namespaced(client.clone(), &in_namespace), binding).await;
        }
    }
}

/// Waits until the API server's authorizer, which hears of rights by a watch, allows an account what these roles say and nothing
/// else of what daemons are ever allowed.
pub(crate) async fn until_enforced(client: &kube::Client, namespace: &str, account: &str, granted: &[Value]) {
    let rules = || granted.iter().flat_map(|role| role["rules"].as_array().unwrap());
    for rule in rules() {
        let known = |(group, resource): &(&str, &str)| {
            rule["apiGroups"] == json!([group]) && rule["resources"] == json!([resource])
        };
        assert!(RESOURCES.iter().any(known), "nobody waits for {rule}");
    }
    for (group, resource) in RESOURCES {
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let rules = &rules;
        let verbs = VERBS.map(|verb| async move {
            let has = |rule: &Value| {
                rule["apiGroups"] == json!([group])
                    && rule["resources"] == json!([resource])
                    && rule["verbs"].as_array().unwrap().iter().any(|it| it == verb)
            };
            let wanted = rules().any(has);
            let review = json!({"spec": {
                "user": format!("system:serviceaccount:{namespace}:{account}"),
                "resourceAttributes": {"verb": verb, "group": group, "resource": plural, "subresource": subresource,
                    "namespace": namespace}}});
            let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
            let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
            let enforced = async {
                while reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed != wanted {
                }
            };
            let bound = Duration::from_secs(30);
            tokio::time::timeout(bound, enforced).await.expect("an authorizer that has heard of it");
        });
        futures::future::join_all(verbs).await;
    }
}

async fn apply<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    api.patch(&name, &PatchParams::apply("cluster-tests").force(), &Patch::Apply(&object)).await.unwrap();
}

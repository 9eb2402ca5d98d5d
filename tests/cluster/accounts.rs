//! Service accounts with rights and tokens.

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

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
        let role = Value::deserialize(document).unwrap();
        let role_name = role["metadata"]["name"].as_str().unwrap().to_owned();
        let kind = role["kind"].as_str().unwrap().to_owned();
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": {"name": role_name},
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

async fn apply<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    api.patch(&name, &PatchParams::apply("cluster-tests").force(), &Patch::Apply(&object)).await.unwrap();
}

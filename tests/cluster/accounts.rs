//! Service accounts with rights and tokens.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What the rights of daemons are about.
const RESOURCES: [(&str, &str); 28] = [
    ("", "configmaps"),
    ("", "events"),
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumeclaims/status"),
    ("", "persistentvolumes"),
    ("", "persistentvolumes/status"),
    ("", "pods"),
    ("", "secrets"),
    ("apps", "daemonsets"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("coordination.k8s.io", "leases"),
    ("gateway.networking.k8s.io", "referencegrants"),
    ("groupsnapshot.storage.k8s.io", "volumegroupsnapshotclasses"),
    ("groupsnapshot.storage.k8s.io", "volumegroupsnapshotcontents"),
    ("groupsnapshot.storage.k8s.io", "volumegroupsnapshotcontents/status"),
    ("snapshot.storage.k8s.io", "volumesnapshotclasses"),
    ("snapshot.storage.k8s.io", "volumesnapshotcontents"),
    ("snapshot.storage.k8s.io", "volumesnapshotcontents/status"),
    ("snapshot.storage.k8s.io", "volumesnapshots"),
    ("storage.k8s.io", "csidrivers"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "csistoragecapacities"),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "volumeattachments"),
    ("storage.k8s.io", "volumeattachments/status"),
    ("storage.k8s.io", "volumeattributesclasses"),
];
/// Their rights.
const VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
/// How long the authorizer may take to hear of rights.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks at something that cannot be awaited.
const LOOK: Duration = Duration::from_millis(20);

/// Makes a service account with the rights of these manifests (`ClusterRole`, `Role`), and a token for it.
pub(crate) async fn token(client: &kube::Client, namespace: &str, name: &str, manifests: &str) -> String {
    self::namespace(client, namespace).await;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    apply(&accounts, json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})).await;
    grant(client, namespace, name, manifests).await;
    issue(client, namespace, name).await
}

/// A token for a service account, whose rights the server knows by now.
pub(crate) async fn issue(client: &kube::Client, namespace: &str, name: &str) -> String {
    until_known(client, namespace, name).await;
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
    let documents = serde_yaml::Deserializer::from_str(manifests);
    let roles: Vec<Value> = documents.map(|document| Value::deserialize(document).unwrap()).collect();
    for mut role in roles {
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

/// A rule that an account has, and the namespace where it has it; none: everywhere.
type Granted = (Option<String>, PolicyRule);

/// The rules that an account has been given by name.
async fn granted(client: &kube::Client, namespace: &str, account: &str) -> Vec<Granted> {
    let is_it = |subjects: Option<&[Subject]>| {
        let mut subjects = subjects.unwrap_or_default().iter();
        subjects
            .any(|it| it.kind == "ServiceAccount" && it.namespace.as_deref() == Some(namespace) && it.name == account)
    };
    let mut all = Vec::new();
    let everywhere: Api<ClusterRoleBinding> = Api::all(client.clone());
    let everywhere = everywhere.list(&ListParams::default()).await.unwrap().items;
    for binding in everywhere.iter().filter(|it| is_it(it.subjects.as_deref())) {
        let role = Api::<ClusterRole>::all(client.clone()).get(&binding.role_ref.name).await.unwrap();
        all.extend(role.rules.into_iter().flatten().map(|rule| (None, rule)));
    }
    let in_places: Api<RoleBinding> = Api::all(client.clone());
    let in_places = in_places.list(&ListParams::default()).await.unwrap().items;
    for binding in in_places.iter().filter(|it| is_it(it.subjects.as_deref())) {
        let place = binding.metadata.namespace.clone().unwrap();
        let name = &binding.role_ref.name;
        let rules = if binding.role_ref.kind == "Role" {
            Api::<Role>::namespaced(client.clone(), &place).get(name).await.unwrap().rules
        } else {
            Api::<ClusterRole>::all(client.clone()).get(name).await.unwrap().rules
        };
        all.extend(rules.into_iter().flatten().map(|rule| (Some(place.clone()), rule)));
    }
    all
}

/// Waits until the API server's authorizer, which hears of rights by a watch, allows an account what it has been given.
async fn until_known(client: &kube::Client, namespace: &str, account: &str) {
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let mut reviews = Vec::new();
    for (place, rule) in granted(client, namespace, account).await {
        let names = rule.resource_names.filter(|names| !names.is_empty());
        let names: Vec<Option<String>> =
            names.map_or_else(|| vec![None], |names| names.into_iter().map(Some).collect());
        let (groups, resources) = (rule.api_groups.unwrap_or_default(), rule.resources.unwrap_or_default());
        for group in &groups {
            for resource in &resources {
                for verb in &rule.verbs {
                    for name in &names {
                        reviews.push(json!({"verb": verb, "group": group, "resource": resource, "namespace": place,
                            "name": name}));
                    }
                }
            }
        }
    }
    let known = reviews.into_iter().map(|right| until_allowed(client, &user, right, true));
    futures::future::join_all(known).await;
}

/// Waits until the authorizer allows a user this, or no more; `right` is as in a review, but for the subresource.
async fn until_allowed(client: &kube::Client, user: &str, mut right: Value, wanted: bool) {
    let resource = right["resource"].as_str().unwrap().to_owned();
    let (plural, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
    (right["resource"], right["subresource"]) = (plural.into(), subresource.into());
    let review = json!({"spec": {"user": user, "resourceAttributes": right}});
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let enforced = async {
        while reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed != wanted {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, enforced).await.unwrap_or_else(|_| panic!("nobody hears of {right} for {user}"));
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
    // What is about some objects by name is there, and not for the others of their kind.
    until_known(client, namespace, account).await;
    let user = format!("system:serviceaccount:{namespace}:{account}");
    for (group, resource) in RESOURCES {
        let (rules, user) = (&rules, &user);
        let verbs = VERBS.map(|verb| async move {
            let has = |rule: &Value| {
                rule["resourceNames"].is_null()
                    && rule["apiGroups"] == json!([group])
                    && rule["resources"] == json!([resource])
                    && rule["verbs"].as_array().unwrap().iter().any(|it| it == verb)
            };
            let right = json!({"verb": verb, "group": group, "resource": resource, "namespace": namespace});
            until_allowed(client, user, right, rules().any(has)).await;
        });
        futures::future::join_all(verbs).await;
    }
    // A role is heard of as a whole: what it does not say of the first of its objects, it says of none.
    for rule in rules().filter(|rule| !rule["resourceNames"].is_null()) {
        let (group, resource, name) = (&rule["apiGroups"][0], &rule["resources"][0], &rule["resourceNames"][0]);
        for verb in VERBS {
            let is_it = |it: &&Value| it["apiGroups"] == json!([group]) && it["resources"] == json!([resource]);
            let has = |it: &Value| {
                let names = it["resourceNames"].as_array();
                names.is_none_or(|names| names.contains(name))
                    && it["verbs"].as_array().unwrap().iter().any(|it| it == verb)
            };
            let right =
                json!({"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name});
            until_allowed(client, &user, right, rules().filter(is_it).any(has)).await;
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

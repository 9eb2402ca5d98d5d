//! Binds the plan's rights to the workload's service account. Pure.

use serde_yaml::Value;

use super::document::{self, string};
use crate::app::Plan;
use crate::process::yaml;

/// A binding for each role of the plan's manifests, named after the role and the account: the workloads of a driver may share a
/// role, such as one for each operating system of its nodes, and each has an account of its own.
pub(super) fn bindings(manifests: &str, pod: &Value, namespace: Option<&str>) -> String {
    let account = ["serviceAccountName", "serviceAccount"].iter().find_map(|key| string(pod, key)).unwrap_or("default");
    let namespace = namespace.unwrap_or(Plan::UNKNOWN_NAMESPACE);
    let name = format!("{namespace}:{account}");
    let [account, namespace] = [account, namespace].map(yaml::text);
    bound(manifests, &name, &format!("kind: ServiceAccount\n    name: {account}\n    namespace: {namespace}"))
}

/// The same for a user of another cluster.
pub(super) fn bindings_of_user(manifests: &str, user: &str) -> String {
    let subject = format!("apiGroup: rbac.authorization.k8s.io\n    kind: User\n    name: {}", yaml::text(user));
    bound(manifests, "kubeconfig", &subject)
}

fn bound(manifests: &str, to: &str, subject: &str) -> String {
    let mut texts = Vec::new();
    for document in document::read(manifests).unwrap_or_default() {
        let Some(kind @ ("ClusterRole" | "Role")) = string(&document.value, "kind") else { continue };
        let Some(metadata) = document.value.get("metadata") else { continue };
        let name = string(metadata, "name").unwrap_or_default();
        let place = string(metadata, "namespace");
        let place = place.map(|place| format!("  namespace: {}\n", yaml::text(place))).unwrap_or_default();
        let binding = format!("{name}:{to}");
        let [binding, name] = [&binding, name].map(yaml::text);
        texts.push(format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\nmetadata:\n  name: {binding}\n{place}roleRef:\n  \
             apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name}\nsubjects:\n  - {subject}\n"
        ));
    }
    texts.join("---\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_is_bound_to_the_workloads_account() {
        let manifests =
            "kind: ClusterRole\nmetadata:\n  name: r\n---\nkind: Role\nmetadata:\n  name: r\n  namespace: leases\n";
        let pod: Value = serde_yaml::from_str("{serviceAccount: old-name}").unwrap();
        let text = bindings(manifests, &pod, Some("storage"));
        let (cluster, namespaced) = text.split_once("---\n").unwrap();
        let cluster: Value = serde_yaml::from_str(cluster).unwrap();
        let namespaced: Value = serde_yaml::from_str(namespaced).unwrap();
        assert_eq!(cluster["roleRef"]["kind"], "ClusterRole");
        assert_eq!(cluster["roleRef"]["name"], "r");
        assert_eq!(cluster["metadata"]["name"], "r:storage:old-name");
        assert_eq!(namespaced["kind"], "RoleBinding");
        assert_eq!(namespaced["metadata"]["namespace"], "leases");
        for binding in [&cluster, &namespaced] {
            assert_eq!(binding["subjects"][0]["name"], "old-name");
            assert_eq!(binding["subjects"][0]["namespace"], "storage");
        }
    }

    /// By the reader that is compared with kubectl's.
    #[test]
    fn names_that_look_like_numbers_or_switches_are_read_as_texts() {
        for odd in ["1234", "0400", "0x10", "1_000", "1e3", "on", "No", "y", "true", "null", "~", "1:30"] {
            let quoted = yaml::quoted(odd);
            let manifests = format!("kind: Role\nmetadata:\n  name: {quoted}\n  namespace: {quoted}\n");
            let pod: Value = serde_yaml::from_str(&format!("serviceAccountName: {quoted}")).unwrap();
            let read = |text: &str| serde_json::to_value(yaml::read(text).unwrap()).unwrap();
            let binding = read(&bindings(&manifests, &pod, Some(odd)));
            let subject = &binding["subjects"][0];
            for text in [
                &binding["metadata"]["namespace"],
                &binding["roleRef"]["name"],
                &subject["name"],
                &subject["namespace"],
            ] {
                assert_eq!(text, odd, "{binding}");
            }
            assert_eq!(binding["metadata"]["name"], format!("{odd}:{odd}:{odd}"));
            assert_eq!(read(&bindings_of_user(&manifests, odd))["subjects"][0]["name"], odd);
        }
    }
}

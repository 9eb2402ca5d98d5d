//! The rights that the daemon needs, collected from the code that needs them and rendered as RBAC manifests. Pure.
//! Caches and roles declare their rules; `check` prints them. Each rule has its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Serialize;

use super::names;
use crate::process::{wrap, yaml};

/// Where a right is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// In the whole cluster.
    Cluster,
    /// In the daemon's own namespace.
    Namespace,
    /// Where the Leases are: the daemon's own namespace, unless `leaderElection.namespace` names another.
    #[serde(rename = "namespace")]
    Election,
}

/// The namespaces that a daemon needs rights in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    /// Where its pod runs.
    pub own: String,
    /// Where the Leases are.
    pub election: String,
}

/// One right and its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Where.
    pub scope: Scope,
    /// The API group; empty for the core group.
    pub api_group: String,
    /// The resource's plural, with its subresource if one is meant: `volumeattachments/status`.
    pub resource: String,
    /// The names of its objects; empty: all objects.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub resource_names: BTreeSet<String>,
    /// The verbs.
    pub verbs: BTreeSet<String>,
    /// Which code needs it, in a few words.
    pub reason: String,
}

/// A table of rights in the whole cluster, a row a right: the API group, the resource, the verbs, and what they are for.
macro_rules! rules {
    ($($group:expr, $resource:literal, [$($verb:literal),+], $reason:expr;)+) => {
        vec![$($crate::cluster::rbac::Rule::cluster($group, $resource, &[$($verb),+], $reason)),+]
    };
}
pub(crate) use rules;

impl Rule {
    /// A right in the whole cluster.
    pub fn cluster(api_group: &str, resource: &str, verbs: &[&str], reason: impl Into<String>) -> Self {
        Self {
            scope: Scope::Cluster,
            api_group: api_group.to_owned(),
            resource: resource.to_owned(),
            resource_names: BTreeSet::new(),
            verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
            reason: reason.into(),
        }
    }

    /// A right in the daemon's own namespace.
    pub fn namespaced(api_group: &str, resource: &str, verbs: &[&str], reason: impl Into<String>) -> Self {
        Self { scope: Scope::Namespace, ..Self::cluster(api_group, resource, verbs, reason) }
    }

    /// A right where the Leases are.
    pub fn election(api_group: &str, resource: &str, verbs: &[&str], reason: impl Into<String>) -> Self {
        Self { scope: Scope::Election, ..Self::cluster(api_group, resource, verbs, reason) }
    }

    /// The same for only the objects of these names. RBAC cannot restrict `create` by name, because there is no name
    /// yet, and `list` or `watch` only with a field selector on `metadata.name`:
    /// <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources>.
    #[must_use]
    pub fn named(self, names: impl IntoIterator<Item = String>) -> Self {
        Self { resource_names: names.into_iter().collect(), ..self }
    }
}

/// The name of the `ClusterRole` and the `Role` with the rights of these roles of the daemon, for this driver.
///
/// Two deployments of one driver that share its work, such as an attacher beside the driver's controller and a
/// provisioner on each node, need different rights: with one name, the last applied one would replace the other. A
/// later version with more rights keeps the name, so that no old rights are left behind. Names of drivers and roles
/// contain no colon. `None`: the roles work for all drivers.
pub fn name<'a>(driver: Option<&'a str>, roles: impl IntoIterator<Item = &'a str>) -> String {
    driver.into_iter().chain(roles).fold(names::PROGRAM.to_owned(), |name, part| name + ":" + part)
}

/// Rules without repetition: one per resource and set of names, with all verbs and all reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules(BTreeMap<Resource, Need>);

/// Scope, API group, resource, names.
type Resource = (Scope, String, String, BTreeSet<String>);
/// Verbs, reasons.
type Need = (BTreeSet<String>, BTreeSet<String>);

impl Rules {
    /// Merges `rules` in.
    pub fn extend(&mut self, rules: impl IntoIterator<Item = Rule>) {
        for rule in rules {
            let resource = (rule.scope, rule.api_group, rule.resource, rule.resource_names);
            let (verbs, reasons) = self.0.entry(resource).or_default();
            verbs.extend(rule.verbs);
            reasons.insert(rule.reason);
        }
    }

    /// The merged rules, cluster-wide ones first and those on Leases last, then by group and resource.
    pub fn iter(&self) -> impl Iterator<Item = Rule> + '_ {
        self.0.iter().map(|((scope, api_group, resource, resource_names), (verbs, reasons))| Rule {
            scope: *scope,
            api_group: api_group.clone(),
            resource: resource.clone(),
            resource_names: resource_names.clone(),
            verbs: verbs.clone(),
            reason: reasons.iter().map(String::as_str).collect::<Vec<_>>().join("; "),
        })
    }

    /// Removes the rights on a resource and returns them, so that the caller can grant fewer.
    pub fn take(&mut self, api_group: &str, resource: &str) -> Vec<Rule> {
        let taken = self.iter().filter(|rule| rule.api_group == api_group && rule.resource == resource).collect();
        self.0.retain(|(_, group, name, _), _| group != api_group || name != resource);
        taken
    }

    /// A `ClusterRole`, and a `Role` in each of the namespaces where some right is needed, as YAML documents.
    pub fn manifests(&self, name: &str, namespaces: &Namespaces) -> String {
        let Namespaces { own, election } = namespaces;
        let name = yaml::text(name);
        let within = |namespace: &str| format!("  name: {name}\n  namespace: {}\n", yaml::text(namespace));
        let mut documents = vec![("ClusterRole", format!("  name: {name}\n"), self.of(&[Scope::Cluster]))];
        if own == election {
            documents.push(("Role", within(own), self.of(&[Scope::Namespace, Scope::Election])));
        } else {
            documents.push(("Role", within(own), self.of(&[Scope::Namespace])));
            documents.push(("Role", within(election), self.of(&[Scope::Election])));
        }
        let mut text = String::new();
        for (kind, metadata, rules) in documents.into_iter().filter(|(_, _, rules)| !rules.is_empty()) {
            if !text.is_empty() {
                text.push_str("---\n");
            }
            // Writing into a String cannot fail.
            let _ =
                write!(text, "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n{metadata}rules:\n");
            text.extend(rules.iter().map(written));
        }
        text
    }

    fn of(&self, scopes: &[Scope]) -> Vec<Rule> {
        self.iter().filter(|rule| scopes.contains(&rule.scope)).collect()
    }
}

/// A `Role` of this name in each of these namespaces, with the rule for only the objects of these names.
pub fn by_name(rule: &Rule, name: &str, objects: &BTreeMap<String, BTreeSet<String>>) -> String {
    let name = yaml::text(name);
    let granted = |(namespace, names): (&String, &BTreeSet<String>)| {
        let namespace = yaml::text(namespace);
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: {name}\n  namespace: {namespace}\nrules:\n{}",
            written(&rule.clone().named(names.iter().cloned()))
        )
    };
    objects.iter().map(granted).collect::<Vec<_>>().join("---\n")
}

/// A rule as a role has it, with its reason.
fn written(rule: &Rule) -> String {
    let names = if rule.resource_names.is_empty() {
        String::new()
    } else {
        format!("    resourceNames: [{}]\n", quoted(&rule.resource_names))
    };
    format!(
        "{}  - apiGroups: [{}]\n    resources: [{}]\n{names}    verbs: [{}]\n",
        wrap("  # ", "  # ", &rule.reason),
        yaml::quoted(&rule.api_group),
        yaml::quoted(&rule.resource),
        quoted(&rule.verbs)
    )
}

fn quoted(texts: &BTreeSet<String>) -> String {
    texts.iter().map(|text| yaml::quoted(text)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::rbac::v1::{ClusterRole, Role};

    fn rules() -> Rules {
        let mut rules = Rules::default();
        rules.extend([
            Rule::cluster("storage.k8s.io", "volumeattachments", &["get", "list", "watch"], "cache"),
            Rule::cluster("", "persistentvolumes", &["patch"], "attacher: finalizer"),
            Rule::cluster("storage.k8s.io", "volumeattachments", &["patch", "get"], "attacher: finalizer and node id"),
            Rule::election("coordination.k8s.io", "leases", &["get", "update"], "election"),
        ]);
        rules
    }

    fn within(own: &str, election: &str) -> Namespaces {
        Namespaces { own: own.to_owned(), election: election.to_owned() }
    }

    #[test]
    fn rules_for_one_resource_become_one_with_every_reason() {
        let attachments = rules().iter().find(|rule| rule.resource == "volumeattachments").unwrap();
        assert_eq!(attachments.verbs.iter().map(String::as_str).collect::<Vec<_>>(), ["get", "list", "patch", "watch"]);
        assert_eq!(attachments.reason, "attacher: finalizer and node id; cache");
    }

    #[test]
    fn deployments_of_one_driver_with_other_roles_have_other_names() {
        let names = [
            name(Some("demo.csi.example.com"), ["attacher", "reconciler"]),
            name(Some("demo.csi.example.com"), ["attacher"]),
            name(Some("demo.csi.example.com"), ["provisioner"]),
            name(Some("demo.csi.example.com"), []),
            name(Some("other.csi.example.com"), ["attacher"]),
            name(None, ["attacher"]),
        ];
        assert_eq!(names[0], "csi-control-plane:demo.csi.example.com:attacher:reconciler");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn manifests_are_what_kubernetes_reads() {
        let text = rules().manifests("attacher", &within("storage", "storage"));
        let (cluster, namespaced) = text.split_once("---\n").unwrap();
        let cluster: ClusterRole = serde_yaml::from_str(cluster).unwrap();
        let namespaced: Role = serde_yaml::from_str(namespaced).unwrap();
        assert_eq!(cluster.rules.as_deref().map(<[_]>::len), Some(2));
        assert_eq!(namespaced.metadata.namespace.as_deref(), Some("storage"));
        assert!(
            text.contains("  # attacher: finalizer\n  - apiGroups: [\"\"]\n    resources: [\"persistentvolumes\"]\n"),
            "{text}"
        );
        assert!(!text.contains("\"update\", \"update\""));
    }

    #[test]
    fn leases_elsewhere_have_a_role_of_their_own_and_nothing_else_goes_there() {
        let granted = |own: &str, election: &str| {
            let mut all = rules();
            all.extend([Rule::namespaced("", "pods", &["get"], "owner")]);
            let text = all.manifests("r", &within(own, election));
            let roles = text.split("---\n").skip(1).map(|one| serde_yaml::from_str::<Role>(one).unwrap());
            let told = |role: Role| {
                let resources = role.rules.unwrap().into_iter().flat_map(|rule| rule.resources.unwrap()).collect();
                (role.metadata.namespace.unwrap(), resources)
            };
            roles.map(told).collect::<Vec<(String, Vec<String>)>>()
        };
        let role = |namespace: &str, resources: &[&str]| {
            (namespace.to_owned(), resources.iter().map(|&resource| resource.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(granted("storage", "storage"), [role("storage", &["pods", "leases"])]);
        assert_eq!(granted("storage", "leases"), [role("storage", &["pods"]), role("leases", &["leases"])]);
    }

    #[test]
    fn a_right_can_be_narrowed_to_objects_by_name() {
        let mut rules = rules();
        let taken = rules.take("", "persistentvolumes");
        assert_eq!(taken.len(), 1);
        assert!(!rules.manifests("attacher", &within("storage", "storage")).contains("persistentvolumes"));
        assert_eq!(rules.take("", "persistentvolumes"), []);
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let objects = [("a".to_owned(), names(&["x", "y"])), ("b".to_owned(), names(&["x"]))].into();
        let text = by_name(&taken[0], "r", &objects);
        let granted: Vec<Role> = text.split("---\n").map(|one| serde_yaml::from_str(one).unwrap()).collect();
        assert_eq!(
            granted.iter().map(|role| role.metadata.namespace.as_deref()).collect::<Vec<_>>(),
            [Some("a"), Some("b")]
        );
        let rule = &granted[0].rules.as_ref().unwrap()[0];
        assert_eq!(rule.resource_names.as_deref(), Some(&["x".to_owned(), "y".to_owned()][..]));
        assert_eq!(rule.verbs, ["patch"]);
    }

    #[test]
    fn what_is_about_named_objects_stays_apart_from_what_is_about_all() {
        let lease = |verbs: &[&str], reason| Rule::election("coordination.k8s.io", "leases", verbs, reason);
        let mut rules = Rules::default();
        rules.extend([
            lease(&["create"], "make"),
            lease(&["get", "watch"], "lead").named(["a".to_owned(), "b".to_owned()]),
        ]);
        let granted: Role = serde_yaml::from_str(&rules.manifests("r", &within("storage", "storage"))).unwrap();
        let told: Vec<_> = granted.rules.unwrap().into_iter().map(|rule| (rule.verbs, rule.resource_names)).collect();
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        assert_eq!(told, [(texts(&["create"]), None), (texts(&["get", "watch"]), Some(texts(&["a", "b"])))]);
        let printed = serde_json::to_value(rules.iter().collect::<Vec<_>>()).unwrap();
        assert!(printed[0].get("resourceNames").is_none(), "{printed}");
        assert_eq!(printed[1]["resourceNames"], serde_json::json!(["a", "b"]));
    }

    /// By the reader that is compared with kubectl's.
    #[test]
    fn names_that_look_like_numbers_or_switches_are_read_as_texts() {
        let rule = Rule::namespaced("", "secrets", &["get"], "why");
        for odd in ["1234", "0400", "0x10", "1_000", "1e3", "1.5", "on", "No", "y", "true", "null", "~", ".inf", "1:30"]
        {
            let mut rules = rules();
            rules.extend([rule.clone().named([odd.to_owned()])]);
            let objects = [(odd.to_owned(), [odd.to_owned()].into())].into();
            let text = format!("{}---\n{}", rules.manifests(odd, &within(odd, odd)), by_name(&rule, odd, &objects));
            for document in text.split("---\n") {
                let read = serde_json::to_value(yaml::read(document).unwrap()).unwrap();
                assert_eq!(read["metadata"]["name"], odd, "{document}");
                let place = &read["metadata"]["namespace"];
                assert!(place == odd || read["kind"] == "ClusterRole" && place.is_null(), "{document}");
                let mut named = read["rules"].as_array().unwrap().iter().filter_map(|rule| rule.get("resourceNames"));
                assert!(named.all(|names| *names == serde_json::json!([odd])), "{document}");
            }
        }
    }

    #[test]
    fn nothing_needed_renders_nothing() {
        assert_eq!(Rules::default().manifests("x", &within("y", "z")), "");
    }
}

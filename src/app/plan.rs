//! The plan of a configuration: roles, Leases, watches, rights. It needs no I/O, so `check` prints it offline.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::cluster::rbac::{self, Namespaces, Rule, Rules};
use crate::cluster::{Caches, Viewpoint};
use crate::config::Loaded;
use crate::process::wrap;
use crate::roles::{
    Expectation, Kind, LeasePolicy, LoadError, ROLES, Registration, RulesOf, Wired, Wiring, needs_driver,
};

use super::lease_group::ActiveRole;
use super::local_roles::LoadedLocal;

/// The sections of the enabled roles.
pub(super) type Sections = BTreeMap<&'static str, Value>;

/// What will run, and what it needs.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// The driver in the names below; `None`: no role of the cluster needs one, and no name depends on it.
    pub driver: Option<String>,
    /// Whether a role needs the cluster. If none does, the daemon needs no kubeconfig, no service account and no API server.
    pub cluster: bool,
    /// The enabled roles and the Lease of each.
    pub roles: Vec<PlannedRole>,
    /// The kinds that are watched, once each.
    pub watches: Vec<&'static str>,
    /// The rights that are needed.
    pub rules: Vec<Rule>,
    /// The manifests that grant them.
    #[serde(skip)]
    pub manifests: String,
    /// What they are called, and where the `Role`s are.
    #[serde(skip)]
    name: String,
    #[serde(skip)]
    namespaces: Namespaces,
}

/// A role in the plan.
#[derive(Debug, Clone, Serialize)]
pub struct PlannedRole {
    /// Its name.
    pub name: &'static str,
    /// The Lease that it is served under; `None`: every replica serves it.
    pub lease: Option<String>,
}

/// A placeholder for the driver's name.
pub const UNKNOWN_DRIVER: &str = "driver.example.com";

/// The suffix of a role's name in the names of its RBAC objects, if each node has its own daemon.
const PER_NODE: &str = ".per-node";

/// An enabled role of the cluster, loaded.
pub(super) struct LoadedRole {
    /// Which Lease it is served under.
    pub(super) lease: LeasePolicy,
    pub(super) active: ActiveRole,
    pub(super) rules: Vec<Rule>,
    /// The rights that it needs on objects that are named after the driver.
    pub(super) rules_of_driver: Vec<RulesOf>,
    /// Its name, as the names of its rights have it.
    pub(super) label: String,
}

/// Loads the enabled roles of the cluster, in the order of [`ROLES`].
pub(super) fn load(sections: &Sections, caches: &Caches) -> Result<Vec<LoadedRole>, LoadError> {
    ROLES.iter().filter_map(|role| load_one(role.name, sections, caches).transpose()).collect()
}

/// Loads the enabled roles that work without the cluster, in the order of [`ROLES`].
pub(super) fn load_local(sections: &Sections) -> Result<Vec<LoadedLocal>, LoadError> {
    ROLES.iter().filter_map(|role| load_one_local(role.name, sections).transpose()).collect()
}

/// Loads one role that works without the cluster, if it is one and enabled.
pub(super) fn load_one_local(name: &str, sections: &Sections) -> Result<Option<LoadedLocal>, LoadError> {
    let Some((section, registration)) = enabled(name, sections) else { return Ok(None) };
    let Kind::Local(local) = &registration.kind else { return Ok(None) };
    let role = (local.load)(section).map_err(|source| LoadError { role: registration.name, source })?;
    Ok(Some(LoadedLocal { name: registration.name, section: section.clone(), role: Arc::from(role) }))
}

/// The roles without the cluster whose sections ask for it all the same, and their rights.
fn local_rules(sections: &Sections) -> Vec<(&'static str, Vec<Rule>)> {
    let rules = |role: &'static Registration| match (&role.kind, sections.get(role.name)) {
        (Kind::Local(local), Some(section)) => Some((role.name, (local.rules)(section))),
        _ => None,
    };
    ROLES.iter().filter_map(rules).filter(|(_, rules)| !rules.is_empty()).collect()
}

fn enabled<'a>(name: &str, sections: &'a Sections) -> Option<(&'a Value, &'static Registration)> {
    Some((sections.get(name)?, ROLES.iter().find(|role| role.name == name)?))
}

/// Loads one role of the cluster, if it is one and enabled.
pub(super) fn load_one(name: &str, sections: &Sections, caches: &Caches) -> Result<Option<LoadedRole>, LoadError> {
    let Some((section, registration)) = enabled(name, sections) else { return Ok(None) };
    let Some(cluster) = registration.cluster() else { return Ok(None) };
    let mut wiring = Wiring::new(caches).hosting(sections.keys().copied());
    let role = (cluster.load)(section, &mut wiring).map_err(|source| LoadError { role: registration.name, source })?;
    let Wired { rules, rules_of_driver, watches, depends_on, expectation } = wiring.into_wired();
    let lease = (cluster.lease)(section);
    // A role that usually has a Lease but has none here works for its own node, and needs other rights.
    let usually = (cluster.lease)(&Value::Null);
    let is_per_node = matches!((lease, usually), (LeasePolicy::None, LeasePolicy::Sidecar(_)));
    let label = format!("{}{}", registration.name, if is_per_node { PER_NODE } else { "" });
    // Of all nodes' daemons, none is the one to write an Event on the driver's object.
    let expectation = if is_per_node { expectation.map(Expectation::without_events) } else { expectation };
    let active = ActiveRole { name: registration.name, role, depends_on, expectation, _watches: watches };
    Ok(Some(LoadedRole { lease, active, rules, rules_of_driver, label }))
}

impl Plan {
    /// A placeholder for the daemon's namespace in the manifests.
    pub const UNKNOWN_NAMESPACE: &str = "NAMESPACE";

    /// The plan for `driver` in a pod of `namespace`, if that is known. Only a running driver proves its name.
    pub fn of(loaded: &Loaded, driver: &str, namespace: Option<&str>) -> Result<Self, LoadError> {
        Self::make(loaded, Some(driver), namespace)
    }

    /// The plan for a driver with an unknown name. Its Leases can't be named, so it may write all Leases of its
    /// namespace.
    pub fn of_some_driver(loaded: &Loaded, namespace: Option<&str>) -> Result<Self, LoadError> {
        Self::make(loaded, None, namespace)
    }

    fn make(loaded: &Loaded, known: Option<&str>, namespace: Option<&str>) -> Result<Self, LoadError> {
        let driver = known.unwrap_or(UNKNOWN_DRIVER);
        let election = &loaded.config.leader_election;
        let caches = Caches::new();
        let roles = load(&loaded.roles, &caches)?;
        let is_for_all = !roles.is_empty() && !needs_driver(loaded.roles.keys());
        let own = namespace.unwrap_or(Self::UNKNOWN_NAMESPACE).to_owned();
        // Capacity objects and their owners are in the pod's own namespace, wherever the Leases are.
        let namespaces = Namespaces { election: election.namespace.clone().unwrap_or_else(|| own.clone()), own };
        let mut all = Rules::default();
        all.extend(caches.rules(&Viewpoint { driver, namespace: Some(&namespaces.own), node: None }));
        all.extend(roles.iter().flat_map(|role| role.rules.iter().cloned()));
        all.extend(roles.iter().flat_map(|role| role.rules_of_driver.iter().flat_map(|rules| rules(known))));
        let local = local_rules(&loaded.roles);
        all.extend(local.iter().flat_map(|(_, rules)| rules.iter().cloned()));
        let lease = |name: &str| {
            let role = roles.iter().find(|role| role.active.name == name)?;
            role.lease.name(driver).filter(|_| election.enabled)
        };
        let enabled = ROLES.iter().map(|role| role.name).filter(|name| loaded.roles.contains_key(name));
        let planned: Vec<PlannedRole> = enabled.map(|name| PlannedRole { name, lease: lease(name) }).collect();
        // A section that can't be read is found here, as for the roles of the cluster.
        let _ = load_local(&loaded.roles)?;
        let leases: BTreeSet<String> = planned.iter().filter_map(|role| role.lease.clone()).collect();
        if !leases.is_empty() {
            all.extend(leading((known.is_some() || is_for_all).then_some(leases)));
            all.extend(election.watch_holder_pod.then(watching_the_holders_pod));
        }
        let labels = roles.iter().map(|role| role.label.as_str()).chain(local.iter().map(|(name, _)| *name));
        let named = (!is_for_all).then_some(driver);
        let name = rbac::name(named, labels);
        Ok(Self {
            driver: named.map(str::to_owned),
            cluster: !roles.is_empty() || !local.is_empty(),
            roles: planned,
            watches: caches.status().into_iter().map(|cache| cache.kind).collect(),
            manifests: all.manifests(&name, &namespaces),
            rules: all.iter().collect(),
            name,
            namespaces,
        })
    }

    /// Whether a role needs a Lease.
    pub fn needs_leases(&self) -> bool {
        self.roles.iter().any(|role| role.lease.is_some())
    }

    /// Whether the daemon may read any secret of the cluster.
    pub fn reads_every_secret(&self) -> bool {
        self.rules.iter().any(|rule| rule.resource == "secrets")
    }

    /// The manifests with rights on these secrets, by namespace, and on no others.
    pub fn manifests_naming(&self, secrets: &BTreeMap<String, BTreeSet<String>>) -> String {
        let mut rules = Rules::default();
        rules.extend(self.rules.iter().cloned());
        let taken = rules.take("", "secrets");
        // Its own name: a secret may be where the Leases are.
        let name = format!("{}:secrets", self.name);
        let rest = rules.manifests(&self.name, &self.namespaces);
        let by_name = taken.iter().map(|rule| rbac::by_name(rule, &name, secrets));
        [rest].into_iter().chain(by_name).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("---\n")
    }
}

/// The rights to lead under these Leases; without their names, under any.
fn leading(names: Option<BTreeSet<String>>) -> [Rule; 2] {
    let leases = |verbs: &[&str], reason| Rule::election("coordination.k8s.io", "leases", verbs, reason);
    let held = leases(&["get", "update", "watch"], "lead, and notice at once when another leader stops");
    [leases(&["create"], "create a missing Lease"), held.named(names.unwrap_or_default())]
}

/// The right to see that the container of a leader has ended.
fn watching_the_holders_pod() -> Rule {
    let reason = "take over at once when the kubelet reports that the leader's container has ended";
    Rule::namespaced("", "pods", &["watch"], reason)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.driver.as_deref(), self.cluster) {
            (None, _) => writeln!(f, "driver   none: what works with the cluster works for all drivers")?,
            (Some(UNKNOWN_DRIVER), true) => {
                let text = format!(
                    "not known: give --driver-name NAME. {UNKNOWN_DRIVER} stands for it, and the rights are on all Leases and journals of \
                     the namespace"
                );
                f.write_str(&wrap("driver   ", "         ", &text))?;
            }
            (Some(UNKNOWN_DRIVER), false) => writeln!(f, "driver   not known: the daemon asks the driver")?,
            (Some(driver), _) => writeln!(f, "driver   {driver}")?,
        }
        if self.roles.is_empty() {
            writeln!(f, "roles    none: no block below `roles`, so nothing would be done")?;
        }
        for role in &self.roles {
            writeln!(f, "role     {:<12} lease {}", role.name, role.lease.as_deref().unwrap_or("none"))?;
        }
        if !self.cluster && !self.roles.is_empty() {
            writeln!(f, "cluster  not used: no kubeconfig, no service account, no rights")?;
            return Ok(());
        }
        for kind in &self.watches {
            writeln!(f, "watch    {kind}")?;
        }
        for rule in &self.rules {
            let group = if rule.api_group.is_empty() { String::new() } else { format!(".{}", rule.api_group) };
            let verbs = rule.verbs.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
            writeln!(f, "right    {:<40} {verbs}", format!("{}{group}", rule.resource))?;
            // A long reason beside the columns would need a wider terminal than most are.
            f.write_str(&wrap("           ", "           ", &rule.reason))?;
        }
        write!(f, "\n{}", self.manifests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, File, Sources};
    use crate::process::WIDTH;
    use crate::roles;

    fn loaded(text: &str) -> Loaded {
        let file = File { name: "test.yaml".to_owned(), text: text.to_owned() };
        config::load(&Sources { file: Some(file), ..Sources::default() }, &roles::sections()).unwrap()
    }

    /// The names of the plan's `ClusterRole` and `Role`s.
    fn names_for(roles: &str) -> Vec<String> {
        let manifests = Plan::of(&loaded(&format!("roles: {roles}")), "demo", None).unwrap().manifests;
        manifests.lines().filter_map(|line| Some(line.strip_prefix("  name: ")?.to_owned())).collect()
    }

    #[test]
    fn the_plan_fits_a_terminal_and_keeps_every_word_of_a_reason() {
        for (roles, driver) in [
            ("{attacher: {}, provisioner: {}, resizer: {}, snapshotter: {}}", Some("demo.csi")),
            ("{provisioner: {nodeDeployment: {enabled: true}}}", None),
        ] {
            let plan = Plan::make(&loaded(&format!("roles: {roles}")), driver, None).unwrap();
            let text = plan.to_string();
            // A list of names is one line of a manifest.
            for line in text.lines().filter(|line| !line.contains("resourceNames: [")) {
                assert!(line.chars().count() <= WIDTH, "{line}");
            }
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for rule in &plan.rules {
                assert!(words.contains(&rule.reason), "{}", rule.reason);
            }
        }
    }

    #[test]
    fn a_controller_and_the_daemons_of_its_nodes_do_not_take_each_others_rights() {
        let controller = names_for("{attacher: {}, reconciler: {}}");
        assert_eq!(controller, ["csi-control-plane:demo:attacher:reconciler"; 2]);
        // Without a Lease there is nothing to be granted in the namespace.
        let on_nodes = names_for("{provisioner: {nodeDeployment: {enabled: true}}}");
        assert_eq!(on_nodes, ["csi-control-plane:demo:provisioner.per-node"; 2]);
        assert_eq!(names_for("{provisioner: {}}"), ["csi-control-plane:demo:provisioner"; 2]);
    }

    #[test]
    fn the_daemons_of_nodes_write_no_event_on_the_drivers_object() {
        let writes = |role: &str| {
            let roles = load(&loaded(&format!("roles: {{{role}}}")).roles, &Caches::new()).unwrap();
            roles[0].active.expectation.as_ref().map(Expectation::has_events)
        };
        assert_eq!(writes("attacher: {}"), Some(true));
        assert_eq!(writes("attacher: {events: none}"), Some(false), "the right is missing, too");
        assert_eq!(writes("provisioner: {}"), Some(true));
        assert_eq!(writes("provisioner: {nodeDeployment: {enabled: true}}"), Some(false));
        for role in ["resizer: {}", "snapshotter: {}", "reconciler: {}"] {
            assert_eq!(writes(role), None, "no field of the object is about it: {role}");
        }
    }

    #[test]
    fn the_leases_of_the_driver_are_named_and_without_its_name_none_is() {
        let named = |driver: Option<&str>| {
            let loaded = loaded("roles: {attacher: {}, reconciler: {}, provisioner: {}}");
            let rules = Plan::make(&loaded, driver, None).unwrap().rules.into_iter();
            let rules = rules.filter(|rule| rule.resource == "leases");
            let texts = |texts: BTreeSet<String>| texts.into_iter().collect::<Vec<_>>().join(" ");
            rules.map(|rule| format!("{}: {}", texts(rule.resource_names), texts(rule.verbs))).collect::<Vec<_>>()
        };
        let both = "demo-csi external-attacher-leader-demo-csi: get update watch";
        assert_eq!(named(Some("Demo.csi")), [": create", both]);
        assert_eq!(named(None), [": create get update watch"]);
    }

    #[test]
    fn what_works_for_all_drivers_has_the_same_rights_whatever_driver_is_named() {
        let plan = |driver: Option<&str>| Plan::make(&loaded("roles: {attachDetach: {}}"), driver, None).unwrap();
        assert_eq!(plan(None).manifests, plan(Some("demo.csi")).manifests);
        let text = plan(None).to_string();
        assert!(text.contains("name: csi-control-plane:attachDetach\n"), "{text}");
        assert!(text.contains("resourceNames: [\"attach-detach-controller\"]\n"), "{text}");
        let beside = names_for("{attachDetach: {}, attacher: {}}");
        assert_eq!(beside, ["csi-control-plane:demo:attachDetach:attacher"; 2]);
    }

    #[test]
    fn a_driver_without_a_known_name_is_said_to_be_one_and_its_rights_are_wide_only_where_there_are_any() {
        let first_words = |roles: &str| {
            let plan = Plan::of_some_driver(&loaded(&format!("roles: {roles}")), None).unwrap();
            let text = plan.to_string();
            let end = text.find("\nrole ").unwrap();
            text[..end].split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert!(first_words("{attacher: {}}").ends_with("the rights are on all Leases and journals of the namespace"));
        assert_eq!(first_words("{liveness: {}}"), "driver not known: the daemon asks the driver");
        let for_all = first_words("{attachDetach: {}, liveness: {}}");
        assert_eq!(for_all, "driver none: what works with the cluster works for all drivers");
    }

    #[test]
    fn capacity_is_told_where_the_daemon_runs_wherever_the_leases_are() {
        let roles = |election: &str, own: Option<&str>| {
            let text = format!(
                "leaderElection: {{namespace: {election}}}\nroles: {{provisioner: {{capacity: {{enabled: true}}}}}}"
            );
            let plan = Plan::of(&loaded(&text), "demo", own).unwrap();
            let roles = plan.manifests.split("---\n").skip(1).map(|role| {
                let namespace = role.lines().find_map(|line| line.strip_prefix("  namespace: ")).unwrap().to_owned();
                (namespace, role.contains("\"csistoragecapacities\""), role.contains("\"leases\""))
            });
            roles.collect::<Vec<_>>()
        };
        let role = |namespace: &str, capacity, leases| (namespace.to_owned(), capacity, leases);
        assert_eq!(roles("null", Some("storage")), [role("storage", true, true)]);
        assert_eq!(roles("storage", Some("storage")), [role("storage", true, true)]);
        assert_eq!(roles("leases", Some("storage")), [role("storage", true, false), role("leases", false, true)]);
        assert_eq!(roles("leases", None), [role(Plan::UNKNOWN_NAMESPACE, true, false), role("leases", false, true)]);
        assert_eq!(roles("null", None), [role(Plan::UNKNOWN_NAMESPACE, true, true)]);
    }

    #[test]
    fn secrets_are_granted_by_name_where_they_are_named() {
        let plan = Plan::of(&loaded("roles: {attacher: {}, provisioner: {}}"), "demo", None).unwrap();
        assert!(plan.reads_every_secret() && plan.manifests.contains("\"secrets\""));
        let narrow = plan.manifests_naming(&[("store".to_owned(), ["key".to_owned()].into())].into());
        let roles: Vec<&str> = narrow.split("---\n").collect();
        assert_eq!(roles.len(), 3, "{narrow}");
        assert_eq!(plan.manifests.split("---\n").nth(1), Some(roles[1]), "the rest is the same");
        assert!(!roles[0].contains("secrets") && !roles[1].contains("secrets"), "{narrow}");
        assert!(
            roles[2].contains("name: csi-control-plane:demo:attacher:provisioner:secrets\n  namespace: store\n"),
            "{narrow}"
        );
        assert!(roles[2].contains("resourceNames: [\"key\"]\n    verbs: [\"get\"]"), "{narrow}");
    }

    #[test]
    fn the_name_follows_from_the_roles_and_not_from_what_they_need() {
        let plain = names_for("{attacher: {}, provisioner: {}}");
        assert_eq!(
            plain,
            names_for("{provisioner: {crossNamespaceSources: true, events: none}, attacher: {events: none}}")
        );
    }
}

//! Compares the chart's RBAC with the rights that the daemon declares.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use csi_control_plane::roles::csi_attacher;
use csi_control_plane::roles::provisioner::names;
use serde_json::Value;
use tempfile::TempDir;

use crate::chart::helm::{self, NAMESPACE, Rendered};
use crate::chart::matrix::{self, Case};

/// Scope, API group, resource and names, to verbs and reasons.
type Rights = BTreeMap<(String, String, String, BTreeSet<String>), (BTreeSet<String>, BTreeSet<String>)>;

/// What `check` prints for a configuration.
pub(crate) fn checked(config: &str, driver: &str) -> Value {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_csi-control-plane"));
    command.args(["check", "--output", "json", "--driver-name", driver, "--config"]);
    let output = command.arg(&file).env_clear().output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}\nfor\n{config}");
    serde_json::from_str(&printed).unwrap()
}

/// A list of texts; none, if it is not there.
fn texts(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().map(|it| it.as_str().unwrap().to_owned()).collect()
}

fn needed(plan: &Value) -> Rights {
    let mut rights = Rights::new();
    for rule in plan["plan"]["rules"].as_array().unwrap() {
        let text = |key: &str| rule[key].as_str().unwrap().to_owned();
        let reasons = text("reason").split("; ").map(str::to_owned).collect();
        let right = (text("scope"), text("apiGroup"), text("resource"), texts(&rule["resourceNames"]));
        rights.insert(right, (texts(&rule["verbs"]), reasons));
    }
    rights
}

/// The reasons stand in comments: the lines before a rule, as `# role: reason`.
fn granted(rendered: &Rendered) -> Rights {
    let mut rights = Rights::new();
    for document in rendered.text.split("\n---") {
        let document = Rendered::of(document.to_owned());
        let Some(role) = document.objects.first() else { continue };
        let scope = match role["kind"].as_str().unwrap() {
            "ClusterRole" => "cluster",
            "Role" => "namespace",
            _ => continue,
        };
        let mut comments = comments(&document.text).into_iter();
        for rule in role["rules"].as_array().unwrap() {
            let reasons = comments.next().expect("a reason for each rule");
            assert!(!reasons.is_empty(), "a rule without a reason: {rule}");
            for name in ["apiGroups", "resources"] {
                assert_eq!(rule[name].as_array().unwrap().len(), 1, "{rule}");
            }
            if is_of_named_secrets(rule) {
                continue;
            }
            let text = |key: &str| rule[key][0].as_str().unwrap().to_owned();
            let right = (scope.to_owned(), text("apiGroups"), text("resources"), texts(&rule["resourceNames"]));
            let entry = rights.entry(right).or_default();
            entry.0.extend(texts(&rule["verbs"]));
            entry.1.extend(reasons);
        }
    }
    rights
}

fn is_of_named_secrets(rule: &Value) -> bool {
    texts(&rule["resources"]).contains("secrets") && !rule["resourceNames"].is_null()
}

/// The comments before each rule of a role.
fn comments(document: &str) -> Vec<Vec<String>> {
    let (_, rules) = document.split_once("\nrules:").unwrap();
    let mut all = Vec::new();
    let mut before = Vec::new();
    for line in rules.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("# ") {
            before.push(comment.split_once(": ").unwrap().1.to_owned());
        } else if line.starts_with("- apiGroups") {
            all.push(std::mem::take(&mut before));
        }
    }
    all
}

#[test]
fn the_rendered_rights_are_what_check_prints_for_the_rendered_configuration() {
    for case in matrix::known() {
        let rendered = case.rendered();
        let mut needed =
            needed(&checked(rendered.config(), case.at("/driver/name").as_str().unwrap_or("any.csi.example.com")));
        let granted = granted(&rendered);
        if case.at("/rbac/secrets/clusterWide") != true {
            needed.retain(|(_, _, resource, _), _| resource != "secrets");
        }
        let missing: Vec<_> = needed.iter().filter(|(key, need)| granted.get(*key) != Some(need)).collect();
        let beyond: Vec<_> = granted.iter().filter(|(key, grant)| needed.get(*key) != Some(grant)).collect();
        assert_eq!(
            granted, needed,
            "{}: files/rbac.yaml and the daemon disagree.\nneeded: {missing:#?}\nrendered: {beyond:#?}",
            case.name
        );
    }
}

/// The Roles that name secrets: namespace, names, and who may.
fn secrets(rendered: &Rendered) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for role in rendered.all("Role").filter(|it| is_of_named_secrets(&it["rules"][0])) {
        let rule = &role["rules"][0];
        assert_eq!(texts(&rule["verbs"]), BTreeSet::from(["get".to_owned()]));
        assert_eq!(texts(&rule["resources"]), BTreeSet::from(["secrets".to_owned()]));
        let namespace = role["metadata"]["namespace"].as_str().unwrap().to_owned();
        let before = found.insert(namespace, texts(&rule["resourceNames"]));
        assert!(before.is_none(), "two Roles of one namespace have one name");
    }
    found
}

fn says_secrets(case: &Case) -> BTreeMap<String, BTreeSet<String>> {
    let mut said: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in case.at("/rbac/secrets/named").as_array().into_iter().flatten() {
        said.entry(entry["namespace"].as_str().unwrap().to_owned()).or_default().extend(texts(&entry["names"]));
    }
    said
}

#[test]
fn secrets_are_read_by_name_alone_unless_all_are_asked_for() {
    let mut by_name = 0;
    for case in matrix::all() {
        let rendered = case.rendered();
        assert_eq!(secrets(&rendered), says_secrets(&case), "{}", case.name);
        by_name += says_secrets(&case).len();
        let mut all = rendered.all("ClusterRole").flat_map(|it| it["rules"].as_array().unwrap());
        let wide = all.any(|rule| texts(&rule["resources"]).contains("secrets"));
        assert_eq!(wide, case.at("/rbac/secrets/clusterWide") == true, "{}", case.name);
    }
    assert!(by_name > 1);
}

#[test]
fn every_role_is_bound_to_the_account_of_the_pods_and_to_no_other() {
    for case in matrix::all() {
        let rendered = case.rendered();
        let named = case.at("/serviceAccount/name").as_str();
        let account = named.map_or_else(|| rendered.one("ServiceAccount")["metadata"]["name"].clone(), Into::into);
        if case.at("/mode") != "sidecar" {
            assert_eq!(rendered.pod()["spec"]["serviceAccountName"], account, "{}", case.name);
        }
        for kind in ["ClusterRole", "Role"] {
            let binding_kind = format!("{kind}Binding");
            let place = |it: &Value| (it["metadata"]["namespace"].to_string(), it["metadata"]["name"].to_string());
            let roles: BTreeSet<_> = rendered.all(kind).map(place).collect();
            let bindings: BTreeSet<_> = rendered.all(&binding_kind).map(place).collect();
            assert_eq!(roles, bindings, "{}", case.name);
            assert_eq!(roles.len(), rendered.all(kind).count(), "{}: a name twice", case.name);
            for binding in rendered.all(&binding_kind) {
                assert_eq!(binding["roleRef"]["kind"], kind);
                assert_eq!(binding["roleRef"]["name"], binding["metadata"]["name"]);
                let subjects = binding["subjects"].as_array().unwrap();
                assert_eq!(subjects.len(), 1);
                assert_eq!((&subjects[0]["name"], &subjects[0]["namespace"]), (&account, &NAMESPACE.into()));
            }
        }
    }
}

#[test]
fn a_driver_with_capitals_may_lead_under_the_leases_that_it_will_have() {
    let mut values = matrix::case("provisioner").values;
    values["driver"]["name"] = "Demo-2.CSI.Example.com".into();
    let rendered = helm::with(&values, &[]).unwrap();
    let rules: Vec<&Value> = rendered.all("Role").flat_map(|it| it["rules"].as_array().unwrap()).collect();
    let named =
        rules.iter().find(|rule| texts(&rule["resources"]).contains("leases") && !rule["resourceNames"].is_null());
    let leases = [csi_attacher::lease("Demo-2.CSI.Example.com"), names::lease("Demo-2.CSI.Example.com")];
    assert_eq!(texts(&named.unwrap()["resourceNames"]), BTreeSet::from(leases));
}

#[test]
fn leases_are_granted_where_the_configuration_puts_them_and_only_if_there_are_any() {
    let namespaces = |name: &str| -> Vec<String> {
        let rendered = matrix::case(name).rendered();
        let leases = |it: &&Value| texts(&it["rules"][0]["resources"]).contains("leases");
        rendered.all("Role").filter(leases).map(|it| it["metadata"]["namespace"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(namespaces("attacher"), [NAMESPACE]);
    assert_eq!(namespaces("secrets"), ["leases"]);
    assert_eq!(namespaces("cluster"), ["kube-system"], "whatever the release's namespace");
    assert!(namespaces("alone").is_empty());
    assert!(namespaces("daemonset").is_empty());
}

#[test]
fn releases_of_one_name_in_two_namespaces_do_not_take_each_others_roles() {
    let (values, mut places) = (matrix::case("secrets").path, Vec::new());
    for namespace in ["one", "two"] {
        let rendered = helm::render(&helm::chart(), Some(&values), &["--namespace", namespace]).unwrap();
        let place =
            |it: &Value| (it["kind"].clone(), it["metadata"]["namespace"].clone(), it["metadata"]["name"].clone());
        places.extend(rendered.objects.iter().map(|it| format!("{:?}", place(it))));
    }
    let all = places.len();
    assert!(places.iter().any(|it| it.contains("tenants")), "{places:#?}");
    places.sort();
    places.dedup();
    assert_eq!(places.len(), all, "an object of both: {places:#?}");
}

#[test]
fn the_rendered_configuration_means_what_the_values_say() {
    for case in matrix::known() {
        let rendered = case.rendered();
        let effective = |config: &str| checked(config, "demo.csi.example.com")["configuration"].clone();
        let mut said = case.values["config"].clone();
        if case.at("/mode") == "daemonset" {
            said["leaderElection"]["enabled"] = false.into();
        }
        if case.at("/mode") == "cluster" {
            said["leaderElection"]["namespace"] = "kube-system".into();
        } else if said["csi"]["endpoint"].is_null() {
            said["csi"]["endpoint"] = helm::ENDPOINT.into();
        }
        if case.at("/hostNetwork") == true {
            let text: Value = serde_yaml::from_str(rendered.config()).unwrap();
            said["diagnostics"]["listen"] = text["diagnostics"]["listen"].clone();
        }
        assert_eq!(effective(rendered.config()), effective(&said.to_string()), "{}", case.name);
    }
}

//! What a claim counts against a `ResourceQuota`, and which quotas count it: the rules of `pkg/quota` of Kubernetes 1.37. Pure.
//!
//! Other kinds are not counted, and the limits of other resources are left alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::access::{at, list, text};
use base::quantity::{bytes, format_bytes};

const CLAIMS: &str = "persistentvolumeclaims";
const STORAGE: &str = "requests.storage";
const COUNT: &str = "count/persistentvolumeclaims";
/// Between the name of a class and what is limited of its claims.
const OF_CLASS: &str = ".storageclass.storage.k8s.io/";
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// The scope that a claim can be in.
const SCOPE: &str = "VolumeAttributesClass";

/// Whole numbers by the names of what is limited: bytes, or objects.
pub type Amounts = BTreeMap<String, i64>;

/// Reads a list of quantities: `status.hard` of a quota, say. What is no size is none of ours.
pub fn amounts(object: &Value, path: &[&str]) -> Amounts {
    let members = at(object, path).and_then(Value::as_object).into_iter().flatten();
    members
        .filter(|(name, _)| is_counted(name))
        .filter_map(|(name, quantity)| Some((name.clone(), bytes(&shown_of(quantity)).ok()?)))
        .collect()
}

/// The same as an object's member.
pub fn listed(amounts: &Amounts) -> Map<String, Value> {
    amounts.iter().map(|(name, amount)| (name.clone(), written(name, *amount).into())).collect()
}

/// The form in a refusal: `a=1,b=2Gi`.
pub fn told(amounts: &Amounts) -> String {
    let parts: Vec<String> =
        amounts.iter().map(|(name, amount)| format!("{name}={}", written(name, *amount))).collect();
    parts.join(",")
}

/// What a claim counts: itself, and the larger of its requested and its allocated size; each also for its class.
pub fn usage(claim: &Value) -> Amounts {
    let size = |path: &[&str]| at(claim, path).and_then(|it| bytes(&shown_of(it)).ok());
    let mut usage = Amounts::from([(CLAIMS.to_owned(), 1), (COUNT.to_owned(), 1)]);
    let asked = size(&["spec", "resources", "requests", "storage"]);
    let begun = size(&["status", "allocatedResources", "storage"]);
    if let Some(asked) = asked {
        usage.insert(STORAGE.to_owned(), asked.max(begun.unwrap_or_default()));
    }
    let annotated = text(claim, &["metadata", "annotations", BETA_CLASS]);
    let class = if annotated.is_empty() { text(claim, &["spec", "storageClassName"]) } else { annotated };
    if !class.is_empty() {
        for name in [CLAIMS, STORAGE] {
            if let Some(amount) = usage.get(name).copied() {
                usage.insert(format!("{class}{OF_CLASS}{name}"), amount);
            }
        }
    }
    usage
}

/// Whether the claim is in all scopes of the quota.
pub fn is_in_scope(quota: &Value, claim: &Value) -> bool {
    let scopes = list(quota, &["spec", "scopes"]);
    let classes = classes(claim);
    let in_scope = |scope: &Value| *scope == SCOPE && !classes.is_empty();
    let selectors = list(quota, &["spec", "scopeSelector", "matchExpressions"]);
    scopes.iter().all(in_scope) && selectors.iter().all(|selector| is_selected(selector, &classes))
}

/// The attributes classes that a claim names: what is wished, what it has, and what it is being changed to.
fn classes(claim: &Value) -> BTreeSet<&str> {
    [
        text(claim, &["spec", "volumeAttributesClassName"]),
        text(claim, &["status", "currentVolumeAttributesClassName"]),
        text(claim, &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"]),
    ]
    .into_iter()
    .filter(|name| !name.is_empty())
    .collect()
}

fn is_selected(selector: &Value, classes: &BTreeSet<&str>) -> bool {
    if text(selector, &["scopeName"]) != SCOPE {
        return false;
    }
    let values = list(selector, &["values"]);
    let is_named = |class: &str| values.iter().any(|value| value == class);
    match text(selector, &["operator"]) {
        "Exists" => !classes.is_empty(),
        "DoesNotExist" => classes.is_empty(),
        "In" => classes.iter().any(|class| is_named(class)),
        "NotIn" => classes.is_empty() || classes.iter().any(|class| !is_named(class)),
        _ => false,
    }
}

fn is_counted(name: &str) -> bool {
    let of_class = |of: &str| name.ends_with(&format!("{OF_CLASS}{of}"));
    [CLAIMS, STORAGE, COUNT].contains(&name) || of_class(CLAIMS) || of_class(STORAGE)
}

fn written(name: &str, amount: i64) -> String {
    if name.ends_with(STORAGE) { format_bytes(amount) } else { amount.to_string() }
}

fn shown_of(quantity: &Value) -> String {
    quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(asked: &str, begun: &str, classes: [&str; 3]) -> Value {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({ "spec": { "storageClassName": "fast", "resources": { "requests": { "storage": asked } },
                "volumeAttributesClassName": some(classes[0]) },
            "status": { "allocatedResources": { "storage": some(begun).unwrap_or_else(|| "0".to_owned()) },
                "currentVolumeAttributesClassName": some(classes[1]),
                "modifyVolumeStatus": { "targetVolumeAttributesClassName": some(classes[2]) } } })
    }

    #[test]
    fn a_claim_counts_the_larger_of_what_it_asks_for_and_what_was_begun() {
        for (asked, begun, expected) in [("1Gi", "", "1Gi"), ("1Gi", "4Gi", "4Gi"), ("5Gi", "4Gi", "5Gi")] {
            let usage = usage(&claim(asked, begun, ["", "", ""]));
            let of_class = format!("fast{OF_CLASS}requests.storage={expected}");
            let counted =
                format!("count/{CLAIMS}=1,fast{OF_CLASS}{CLAIMS}=1,{of_class},{CLAIMS}=1,{STORAGE}={expected}");
            assert_eq!(told(&usage), counted);
        }
        let mut annotated = claim("1Gi", "", ["", "", ""]);
        annotated["metadata"]["annotations"][BETA_CLASS] = "slow".into();
        assert!(usage(&annotated).contains_key(&format!("slow{OF_CLASS}requests.storage")));
    }

    #[test]
    fn a_quota_of_attributes_classes_counts_claims_that_name_one_anywhere() {
        let of = |operator: &str| {
            json!({ "spec": { "scopeSelector": { "matchExpressions": [
                { "scopeName": SCOPE, "operator": operator, "values": ["gold"] }] } } })
        };
        let none = ["", "", ""];
        for (operator, classes, expected) in [
            ("In", ["gold", "", ""], true),
            ("In", ["silver", "gold", ""], true),
            ("In", ["silver", "", "gold"], true),
            ("In", ["silver", "", ""], false),
            ("In", none, false),
            ("NotIn", ["gold", "", ""], false),
            ("NotIn", ["gold", "silver", ""], true),
            ("NotIn", none, true),
            ("Exists", none, false),
            ("Exists", ["gold", "", ""], true),
            ("DoesNotExist", none, true),
            ("DoesNotExist", ["gold", "", ""], false),
        ] {
            assert_eq!(is_in_scope(&of(operator), &claim("1Gi", "", classes)), expected, "{operator} {classes:?}");
        }
        let plain = json!({ "spec": {} });
        assert!(is_in_scope(&plain, &claim("1Gi", "", none)));
        let of_pods = json!({ "spec": { "scopes": ["BestEffort"] } });
        assert!(!is_in_scope(&of_pods, &claim("1Gi", "", none)), "no claim is in it");
    }

    #[test]
    fn limits_of_other_kinds_are_left_alone() {
        let quota = json!({ "status": { "hard": { "pods": "3", "requests.storage": "5G", "requests.cpu": "1",
            "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "2" } } });
        let hard = amounts(&quota, &["status", "hard"]);
        assert_eq!(
            hard.keys().collect::<Vec<_>>(),
            ["gold.storageclass.storage.k8s.io/persistentvolumeclaims", "requests.storage"]
        );
        assert_eq!(hard["requests.storage"], 5_000_000_000);
        assert_eq!(listed(&hard)["gold.storageclass.storage.k8s.io/persistentvolumeclaims"], "2");
    }
}

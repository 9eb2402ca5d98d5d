//! The kinds of the Prometheus operator, as far as the chart uses them: every field that we write and no other.
//!
//! Their own definitions are not at hand here. These are written after the operator's API reference
//! (`monitoring.coreos.com/v1`), so that a misspelt or misplaced field is refused, as by the operator's own
//! definitions. If the chart uses a new field, add it here.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::{Value, json};

use crate::chart::cluster::apply;
use crate::chart::helm::NAMESPACE;
use crate::chart::matrix;
use crate::shared;
use crate::world::until_some;

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn list(items: &Value) -> Value {
    json!({"type": "array", "items": items})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn texts() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

/// The operator's own patterns.
fn duration() -> Value {
    json!({"type": "string", "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"})
}

/// The members of a kind's `spec`.
fn spec(kind: &str) -> Value {
    let selector = object(&json!({"matchLabels": texts()}), &[]);
    let endpoint = object(&json!({"port": text(), "path": text(), "interval": duration()}), &[]);
    match kind {
        "PodMonitor" => object(&json!({"selector": selector, "podMetricsEndpoints": list(&endpoint)}), &["selector"]),
        "ServiceMonitor" => {
            object(&json!({"selector": selector, "endpoints": list(&endpoint)}), &["selector", "endpoints"])
        }
        "PrometheusRule" => {
            let rule = json!({"alert": text(), "expr": {"x-kubernetes-int-or-string": true}, "for": duration(),
                "labels": texts(), "annotations": texts()});
            let group = object(
                &json!({"name": {"type": "string", "minLength": 1}, "rules": list(&object(&rule, &["expr"]))}),
                &["name"],
            );
            object(&json!({"groups": list(&group)}), &[])
        }
        other => panic!("the chart makes no {other}"),
    }
}

/// Gives the cluster these kinds.
pub(crate) async fn install(client: &kube::Client) {
    for kind in ["PodMonitor", "ServiceMonitor", "PrometheusRule"] {
        let plural = format!("{}s", kind.to_lowercase());
        let name = format!("{plural}.monitoring.coreos.com");
        let schema = object(&json!({"spec": spec(kind)}), &["spec"]);
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {
                "group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        });
        apply(client, &definition, false).await.unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        until_some(definitions, &name, "served", |it: Option<&CustomResourceDefinition>| {
            let conditions = it.and_then(|it| it.status.as_ref()?.conditions.as_ref());
            conditions.is_some_and(|all| all.iter().any(|it| it.type_ == "Established" && it.status == "True"))
        })
        .await;
    }
}

#[tokio::test]
async fn a_field_of_a_monitor_or_a_rule_that_is_misspelt_is_refused() {
    let client = shared::api().await.client().await;
    crate::accounts::namespace(&client, NAMESPACE).await;
    install(&client).await;
    let rendered = matrix::case("everything").rendered();
    for (kind, at, wrong) in [
        ("PodMonitor", "/spec/podMetricsEndpoints/0", "pathh"),
        ("PodMonitor", "/spec", "endpoints"),
        ("ServiceMonitor", "/spec", "podMetricsEndpoints"),
        ("ServiceMonitor", "/spec/selector", "matchLabel"),
        ("PrometheusRule", "/spec/groups/0/rules/0", "labelz"),
        ("PrometheusRule", "/spec/groups/0", "rulez"),
    ] {
        let object = rendered.one(kind);
        apply(&client, object, true).await.unwrap();
        let mut odd = object.clone();
        odd.pointer_mut(at).unwrap()[wrong] = json!({"a": "b"});
        let told = apply(&client, &odd, true).await.expect_err(wrong);
        assert!(told.contains(wrong), "{told}");
    }
    let mut odd = rendered.one("PodMonitor").clone();
    odd["spec"]["podMetricsEndpoints"][0]["interval"] = "half a minute".into();
    let told = apply(&client, &odd, true).await.unwrap_err();
    assert!(told.contains("interval"), "{told}");
}

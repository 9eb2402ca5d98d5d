//! Fields of claims that depend on feature gates. Pure.
//!
//! A claim's data source is in two fields: `dataSource` for old clients, `dataSourceRef` for all.
//!
//! `EnforceDataSourceBackwardsCompatibility` and `NormalizeDataSources` of Kubernetes 1.37, where the feature gate
//! `CrossNamespaceVolumeDataSource` is off unless a user has switched it on. So is `CSIVolumeHealth`.

use serde_json::Value;

/// Prepares a claim, new or changed. `anywhere`: the feature gate is on.
pub(super) fn settle(old: Option<&Value>, claim: &mut Value, anywhere: bool) {
    let had = |member: &str| old.and_then(|old| old.get("spec")?.get(member)).is_some_and(|it| !it.is_null());
    let (had_either, had_reference) = (had("dataSource") || had("dataSourceRef"), had("dataSourceRef"));
    let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let text = |source: Option<&Value>, member: &str| -> String {
        source.and_then(|it| it.get(member)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if !anywhere && !text(spec.get("dataSourceRef"), "namespace").is_empty() && !had_reference {
        spec.remove("dataSourceRef");
    }
    if !had_either && spec.get("dataSourceRef").is_none() {
        let source = spec.get("dataSource");
        let known = matches!(
            (text(source, "apiGroup").as_str(), text(source, "kind").as_str()),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        );
        if !known {
            spec.remove("dataSource");
        }
    }
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => drop(spec.insert("dataSourceRef".to_owned(), source)),
        (None, Some(mut source)) if text(Some(&source), "namespace").is_empty() => {
            source.as_object_mut().map(|source| source.remove("namespace"));
            spec.insert("dataSource".to_owned(), source);
        }
        _ => {}
    }
    // Go writes a pointer that has no `omitempty` as null.
    for member in ["dataSource", "dataSourceRef"] {
        if let Some(source) = spec.get_mut(member).and_then(Value::as_object_mut) {
            source.entry("apiGroup").or_insert(Value::Null);
        }
    }
}

/// Drops what a claim says of its volume's health, unless the feature gate is on or the claim said something before.
pub(super) fn drop_health(old: &Value, claim: &mut Value, is_on: bool) {
    const HEALTH: &str = "healthStatus";
    let had = old.get("status").and_then(|status| status.get(HEALTH)).is_some_and(|it| !it.is_null());
    if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut).filter(|_| !is_on && !had) {
        status.remove(HEALTH);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settled(old: Option<Value>, spec: impl Into<Value>) -> Value {
        settled_where(old, spec, false)
    }

    fn settled_where(old: Option<Value>, spec: impl Into<Value>, anywhere: bool) -> Value {
        let mut claim = json!({ "spec": spec.into() });
        settle(old.map(|spec| json!({ "spec": spec })).as_ref(), &mut claim, anywhere);
        claim["spec"].take()
    }

    #[test]
    fn each_member_follows_the_other() {
        let clone = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let told = json!({"apiGroup": null, "kind": "PersistentVolumeClaim", "name": "a"});
        let both = json!({"dataSource": told, "dataSourceRef": told});
        assert_eq!(settled(None, json!({ "dataSource": clone })), both);
        assert_eq!(settled(None, json!({ "dataSourceRef": clone })), both);
        assert_eq!(settled(None, json!({})), json!({}));
    }

    #[test]
    fn what_old_clients_could_not_name_is_dropped_unless_it_was_there() {
        let thing = json!({"apiGroup": "example.com", "kind": "Thing", "name": "t"});
        assert_eq!(settled(None, json!({ "dataSource": thing })), json!({}));
        let both = json!({"dataSource": thing, "dataSourceRef": thing});
        assert_eq!(settled(Some(both.clone()), json!({ "dataSource": thing })), both);
    }

    #[test]
    fn a_source_elsewhere_is_dropped_unless_the_gate_is_on_and_then_old_clients_do_not_see_it() {
        let away = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "b"});
        let told = json!({"apiGroup": null, "kind": "PersistentVolumeClaim", "name": "a", "namespace": "b"});
        assert_eq!(settled(None, json!({ "dataSourceRef": away })), json!({}));
        assert_eq!(settled_where(None, json!({ "dataSourceRef": away }), true), json!({ "dataSourceRef": told }));
    }

    #[test]
    fn health_is_dropped_unless_the_gate_is_on_or_the_claim_told_some() {
        let some = json!({ "phase": "Bound", "healthStatus": { "healthConditions": [] } });
        for (old, is_on, is_kept) in [(json!({}), false, false), (json!({}), true, true), (some.clone(), false, true)] {
            let mut claim = json!({ "status": some });
            drop_health(&json!({ "status": old }), &mut claim, is_on);
            assert_eq!(claim["status"].get("healthStatus").is_some(), is_kept, "{old} {is_on}");
            assert_eq!(claim["status"]["phase"], "Bound");
        }
    }
}

//! What the API server's audit log notes, and what it says of an account. Pure.

use serde_json::Value;

/// Every write of a service account is noted, but for Leases.
const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
    {"level": "None", "resources": [{"group": "coordination.k8s.io"}, {"group": "authorization.k8s.io"}]},
    RECORDED
    {"level": "None", "resources": [{"group": "", "resources": ["events"]}, {"group": "events.k8s.io"}]},
    {"level": "Metadata", "verbs": ["create", "update", "patch", "delete"], "userGroups": ["system:serviceaccounts"]},
    {"level": "None"}]}"#;

/// What is noted besides, for the rules of `tests/records`: the objects that anybody writes, and the Events of service accounts.
const RECORDED: &str = r#"
    {"level": "Request", "verbs": ["create", "update", "patch"], "userGroups": ["system:serviceaccounts"],
        "resources": [{"group": "", "resources": ["events"]}, {"group": "events.k8s.io"}]},
    {"level": "RequestResponse", "verbs": ["create", "update", "patch", "delete", "deletecollection"], "resources": [
        {"group": "", "resources": ["configmaps", "persistentvolumes", "persistentvolumes/status", "persistentvolumeclaims",
            "persistentvolumeclaims/status"]},
        {"group": "storage.k8s.io", "resources": ["volumeattachments", "volumeattachments/status"]},
        {"group": "snapshot.storage.k8s.io", "resources": ["volumesnapshotcontents", "volumesnapshotcontents/status"]},
        {"group": "groupsnapshot.storage.k8s.io",
            "resources": ["volumegroupsnapshotcontents", "volumegroupsnapshotcontents/status"]}]},"#;

/// The policy with the records that tests are held to.
pub(super) fn policy_with_records() -> String {
    POLICY.replace("RECORDED", RECORDED)
}

/// The policy without them, for measurements.
pub(super) fn policy() -> String {
    POLICY.replace("RECORDED", "")
}

/// What a user has written, each as `verb resource/subresource name code`: no Events.
pub(super) fn writes(log: &str, user: &str) -> Vec<String> {
    // A line that is just being written has no end yet.
    let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let text = |event: &Value, at: &str| event.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    events
        .filter(|event| event["user"]["username"] == user && event["objectRef"]["resource"] != "events")
        .map(|event| {
            let part = text(&event, "/objectRef/subresource");
            let part = if part.is_empty() { part } else { format!("/{part}") };
            let (resource, name) = (text(&event, "/objectRef/resource"), text(&event, "/objectRef/name"));
            format!("{} {resource}{part} {name} {}", text(&event, "/verb"), event["responseStatus"]["code"])
        })
        .collect()
}

//! Pods of Windows nodes, which stay as they are. Pure.

use serde_yaml::Value;

use super::document::{list, string, strings};

/// Why nothing of a pod is replaced that runs on Windows.
pub(super) const WINDOWS: &str = "its pods run on Windows nodes, and the daemon runs on Linux only";

/// Whether the pods run on Windows nodes.
pub(super) fn is_windows(pod: &Value) -> bool {
    let is = |value: Option<&Value>| value.and_then(Value::as_str) == Some("windows");
    let os_labels = ["kubernetes.io/os", "beta.kubernetes.io/os"];
    let selected = pod.get("nodeSelector").is_some_and(|labels| os_labels.iter().any(|label| is(labels.get(*label))));
    let named = is(pod.get("os").and_then(|os| os.get("name")));
    let affinity = ["nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];
    let terms = affinity.iter().try_fold(pod.get("affinity"), |value, key| Some(value?.get(*key)));
    let terms = terms.flatten().and_then(Value::as_sequence);
    let wants = |term: &Value| {
        list(term, "matchExpressions").any(|one| {
            let is_os = string(one, "key").is_some_and(|key| os_labels.contains(&key));
            is_os && string(one, "operator") == Some("In") && strings(one, "values") == ["windows"]
        })
    };
    let is_process = |context: Option<&Value>| {
        context.and_then(|it| it.get("windowsOptions")?.get("hostProcess")?.as_bool()) == Some(true)
    };
    let runs = is_process(pod.get("securityContext"))
        || list(pod, "containers").any(|container| is_process(container.get("securityContext")));
    selected || named || runs || terms.is_some_and(|terms| !terms.is_empty() && terms.iter().all(wants))
}

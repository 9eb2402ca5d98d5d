//! The cells of a row, a function a kind: `pkg/printers/internalversion` of Kubernetes 1.37.

use super::super::access::{at, list, text};
use super::super::definitions::{self, PrinterColumn};
use super::super::resources::Resource;
use super::{age, human};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The cells of an object, in the order of its kind's columns.
pub(super) fn of(resource: &Resource, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = text(object, &["metadata", "name"]);
    let age = age(object, &["metadata", "creationTimestamp"], now);
    let cells = match resource.plural {
        _ if resource.optional => {
            definitions::columns(resource).iter().map(|column| defined(object, column, now)).collect()
        }
        "persistentvolumes" => volume(object, &age),
        "persistentvolumeclaims" => claim(object, &age),
        "pods" => pod(object, &age, now),
        "nodes" => node(object, &age),
        "events" => return event(object, name, now),
        "resourcequotas" => quota(object, &age),
        "secrets" => json!([text(object, &["type"]), count(object, "data"), age]),
        "configmaps" => json!([count(object, "data") + count(object, "binaryData"), age]),
        "serviceaccounts" => json!([age]),
        "namespaces" => json!([text(object, &["status", "phase"]), age]),
        "leases" => json!([text(object, &["spec", "holderIdentity"]), age]),
        "volumeattachments" => json!([
            text(object, &["spec", "attacher"]),
            text(object, &["spec", "source", "persistentVolumeName"]),
            text(object, &["spec", "nodeName"]),
            flag(object, &["status", "attached"], false),
            age,
        ]),
        "csinodes" => json!([list(object, &["spec", "drivers"]).len(), age]),
        "csidrivers" => driver(object, &age),
        "storageclasses" => return storage_class(object, name, &age),
        "csistoragecapacities" => {
            json!([text(object, &["storageClassName"]), or(text(object, &["capacity"]), "<unset>")])
        }
        "volumeattributesclasses" => json!([text(object, &["driverName"]), age]),
        _ => json!([text(object, &["metadata", "creationTimestamp"])]),
    };
    let mut row = vec![name.into()];
    if let Value::Array(cells) = cells {
        row.extend(cells);
    }
    row
}

/// A cell of a kind that was installed: empty where the object says nothing.
fn defined(object: &Value, (_, kind, path): &PrinterColumn, now: Timestamp) -> Value {
    match at(object, path) {
        Some(_) if *kind == "date" => age(object, path, now).into(),
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

fn or<'a>(value: &'a str, default: &'a str) -> &'a str {
    if value.is_empty() { default } else { value }
}

fn flag(object: &Value, path: &[&str], default: bool) -> bool {
    at(object, path).and_then(Value::as_bool).unwrap_or(default)
}

fn count(object: &Value, member: &str) -> usize {
    at(object, &[member]).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

fn join<'a>(values: impl Iterator<Item = &'a str>) -> String {
    values.collect::<Vec<_>>().join(",")
}

/// Access modes in their short forms and fixed order, each once.
fn access_modes(object: &Value, path: &[&str]) -> String {
    let modes = list(object, path);
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    join(short.iter().filter(|(long, _)| modes.iter().any(|mode| mode == long)).map(|(_, short)| *short))
}

fn class(object: &Value) -> &str {
    let annotation = text(object, &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"]);
    or(annotation, text(object, &["spec", "storageClassName"]))
}

fn phase(object: &Value) -> &str {
    let deleting = at(object, &["metadata", "deletionTimestamp"]).is_some();
    if deleting { "Terminating" } else { text(object, &["status", "phase"]) }
}

/// A quantity; missing is zero.
fn quantity(object: &Value, path: &[&str]) -> String {
    match at(object, path) {
        Some(Value::String(quantity)) => quantity.clone(),
        Some(other) => other.to_string(),
        None => "0".to_owned(),
    }
}

fn volume(object: &Value, age: &str) -> Value {
    let claim = match at(object, &["spec", "claimRef"]) {
        Some(claim) => format!("{}/{}", text(claim, &["namespace"]), text(claim, &["name"])),
        None => String::new(),
    };
    json!([
        quantity(object, &["spec", "capacity", "storage"]),
        access_modes(object, &["spec", "accessModes"]),
        text(object, &["spec", "persistentVolumeReclaimPolicy"]),
        phase(object),
        claim,
        class(object),
        or(text(object, &["spec", "volumeAttributesClassName"]), "<unset>"),
        text(object, &["status", "reason"]),
        age,
        or(text(object, &["spec", "volumeMode"]), "<unset>"),
    ])
}

/// The used part of each limit: of requests, and of limits.
fn quota(object: &Value, age: &str) -> Value {
    let hard = at(object, &["status", "hard"]).and_then(Value::as_object);
    let column = |wanted: fn(&str) -> bool| {
        let of = |(name, _): (&String, &Value)| {
            let amount = |list: &str| quantity(object, &["status", list, name]);
            format!("{name}: {}/{}", amount("used"), amount("hard"))
        };
        let rows: Vec<String> = hard.into_iter().flatten().filter(|(name, _)| wanted(name)).map(of).collect();
        rows.join(", ")
    };
    json!([column(|name| !name.starts_with("limits.")), column(|name| name.starts_with("limits.")), age])
}

fn claim(object: &Value, age: &str) -> Value {
    let volume = text(object, &["spec", "volumeName"]);
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (quantity(object, &["status", "capacity", "storage"]), access_modes(object, &["status", "accessModes"]))
    };
    json!([
        phase(object),
        volume,
        capacity,
        modes,
        class(object),
        or(text(object, &["spec", "volumeAttributesClassName"]), "<unset>"),
        age,
        or(text(object, &["spec", "volumeMode"]), "<unset>"),
    ])
}

fn pod(object: &Value, age: &str, now: Timestamp) -> Value {
    let containers = list(object, &["spec", "containers"]).len();
    let statuses = list(object, &["status", "containerStatuses"]);
    let phase = text(object, &["status", "phase"]);
    let mut reason = or(text(object, &["status", "reason"]), phase).to_owned();
    let (mut ready, mut restarts, mut running) = (0, 0, false);
    let mut last_restart = "";
    let mut failure = String::new();
    for status in statuses.iter().rev() {
        restarts += at(status, &["restartCount"]).and_then(Value::as_i64).unwrap_or(0);
        // RFC 3339 in UTC sorts as text.
        last_restart = last_restart.max(text(status, &["lastState", "terminated", "finishedAt"]));
        let waiting = text(status, &["state", "waiting", "reason"]);
        if !waiting.is_empty() {
            waiting.clone_into(&mut reason);
        } else if let Some(ended) = at(status, &["state", "terminated"]) {
            let code = at(ended, &["exitCode"]).and_then(Value::as_i64).unwrap_or(0);
            let signal = at(ended, &["signal"]).and_then(Value::as_i64).unwrap_or(0);
            reason = match text(ended, &["reason"]) {
                "" if signal != 0 => format!("Signal:{signal}"),
                "" => format!("ExitCode:{code}"),
                word => word.to_owned(),
            };
            if code != 0 {
                failure.clone_from(&reason);
            }
        } else if flag(status, &["ready"], false) && at(status, &["state", "running"]).is_some() {
            running = true;
            ready += 1;
        }
    }
    if reason == "Completed" {
        let is_ready = condition(object, "Ready").is_some_and(|it| text(it, &["status"]) == "True");
        reason = match (running, failure.is_empty()) {
            (true, _) if is_ready => "Running".to_owned(),
            (_, false) => failure,
            (true, true) => "NotReady".to_owned(),
            (false, true) => reason,
        };
    }
    if at(object, &["metadata", "deletionTimestamp"]).is_some() {
        if text(object, &["status", "reason"]) == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut reason);
        }
    }
    let restarts = match last_restart.parse::<Timestamp>() {
        Ok(then) if restarts > 0 => format!("{restarts} ({} ago)", human(now.as_second() - then.as_second())),
        _ => restarts.to_string(),
    };
    let gates = list(object, &["spec", "readinessGates"]);
    let open = gates.iter().filter(|gate| {
        condition(object, text(gate, &["conditionType"])).is_some_and(|it| text(it, &["status"]) == "True")
    });
    let gates = if gates.is_empty() { "<none>".to_owned() } else { format!("{}/{}", open.count(), gates.len()) };
    let ip = list(object, &["status", "podIPs"]).first().map_or("", |it| text(it, &["ip"]));
    json!([
        format!("{ready}/{containers}"),
        reason,
        restarts,
        age,
        or(ip, "<none>"),
        or(text(object, &["spec", "nodeName"]), "<none>"),
        or(text(object, &["status", "nominatedNodeName"]), "<none>"),
        gates,
    ])
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, &["status", "conditions"]).iter().find(|it| text(it, &["type"]) == kind)
}

fn node(object: &Value, age: &str) -> Value {
    let mut status = match condition(object, "Ready").map(|it| text(it, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if flag(object, &["spec", "unschedulable"], false) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = at(object, &["metadata", "labels"]).and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None => value.as_str().filter(|_| key == "kubernetes.io/role"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let info = |key: &str| text(object, &["status", "nodeInfo", key]);
    let address = |kind: &str| {
        let addresses = list(object, &["status", "addresses"]);
        addresses.iter().find(|it| text(it, &["type"]) == kind).map_or("<none>", |it| text(it, &["address"]))
    };
    let mut kernel = or(info("kernelVersion"), "<unknown>").to_owned();
    if !info("architecture").is_empty() {
        kernel = format!("{kernel} ({})", info("architecture"));
    }
    json!([
        status,
        or(&roles.join(","), "<none>"),
        age,
        info("kubeletVersion"),
        address("InternalIP"),
        address("ExternalIP"),
        or(info("osImage"), "<unknown>"),
        kernel,
        or(info("containerRuntimeVersion"), "<unknown>"),
    ])
}

fn event(object: &Value, name: &str, now: Timestamp) -> Vec<Value> {
    let since = |path: &[&str]| age(object, path, now);
    let first =
        if text(object, &["firstTimestamp"]).is_empty() { since(&["eventTime"]) } else { since(&["firstTimestamp"]) };
    let series = at(object, &["series"]);
    let last = match series {
        Some(_) => since(&["series", "lastObservedTime"]),
        None if text(object, &["lastTimestamp"]).is_empty() => first.clone(),
        None => since(&["lastTimestamp"]),
    };
    let count = series.and_then(|it| it.get("count")).or_else(|| object.get("count")).and_then(Value::as_i64);
    let kind = text(object, &["involvedObject", "kind"]).to_lowercase();
    let target = match text(object, &["involvedObject", "name"]) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = or(text(object, &["source", "component"]), text(object, &["reportingComponent"]));
    let source = match or(text(object, &["source", "host"]), text(object, &["reportingInstance"])) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    };
    vec![
        last.into(),
        text(object, &["type"]).into(),
        text(object, &["reason"]).into(),
        target.into(),
        text(object, &["involvedObject", "fieldPath"]).into(),
        source.into(),
        text(object, &["message"]).trim().into(),
        first.into(),
        // An event of the new form that happened once has no count.
        count.filter(|count| *count > 0).unwrap_or(1).into(),
        name.into(),
    ]
}

fn driver(object: &Value, age: &str) -> Value {
    let spec = |key: &'static str, default: bool| flag(object, &["spec", key], default);
    let tokens = match at(object, &["spec", "tokenRequests"]) {
        Some(_) => join(list(object, &["spec", "tokenRequests"]).iter().map(|it| text(it, &["audience"]))),
        None => "<unset>".to_owned(),
    };
    let modes = join(list(object, &["spec", "volumeLifecycleModes"]).iter().filter_map(Value::as_str));
    json!([
        spec("attachRequired", true),
        spec("podInfoOnMount", false),
        spec("storageCapacity", false),
        tokens,
        spec("requiresRepublish", false),
        or(&modes, "<none>"),
        age,
    ])
}

fn storage_class(object: &Value, name: &str, age: &str) -> Vec<Value> {
    let is_default =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| text(object, &["metadata", "annotations", key]) == "true");
    let name = if is_default { format!("{name} (default)") } else { name.to_owned() };
    vec![
        name.into(),
        text(object, &["provisioner"]).into(),
        or(text(object, &["reclaimPolicy"]), "Delete").into(),
        or(text(object, &["volumeBindingMode"]), "Immediate").into(),
        flag(object, &["allowVolumeExpansion"], false).into(),
        age.into(),
    ]
}

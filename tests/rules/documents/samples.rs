//! Values that people copy: what the runbook demands of the driver's container is in them.

use csi_control_plane::roles::liveness::{LivenessSection, names};
use serde_json::Value;

use super::{files, read, root, shown};

/// The default volume of the driver's socket (charts/csi-control-plane/values.yaml).
const SOCKET: &str = "csi-socket";

/// The values of the chart in documents and in deploy/, with the place where each stands.
fn samples() -> Vec<(String, Value)> {
    let mut texts = Vec::new();
    for page in ["README.md", "charts/csi-control-plane/README.md"] {
        let text = read(page);
        texts.extend(
            text.split("```yaml\n")
                .skip(1)
                .map(|block| (page.to_owned(), block.split("\n```").next().unwrap().to_owned())),
        );
    }
    let deployed = files(&["yaml"])
        .into_iter()
        .filter(|path| path.starts_with(root().join("deploy")) && path.ends_with("values.yaml"));
    texts.extend(deployed.map(|path| (shown(&path), std::fs::read_to_string(&path).unwrap())));
    // A block that is a template is no values.
    texts.into_iter().filter_map(|(place, text)| Some((place, serde_yaml::from_str::<Value>(&text).ok()?))).collect()
}

/// What a workload of these values lacks of the probe; `None`: there are no containers of a driver.
fn lacks(workload: &Value) -> Option<Vec<&'static str>> {
    let containers: Vec<&Value> =
        workload["driver"]["containers"].as_array()?.iter().filter(|one| one.is_object()).collect();
    let mounts =
        |one: &&Value| one["volumeMounts"].as_array().is_some_and(|all| all.iter().any(|it| it["name"] == SOCKET));
    let probes: Vec<&Value> = containers
        .into_iter()
        .filter(mounts)
        .map(|one| &one["livenessProbe"])
        .filter(|probe| probe.is_object())
        .collect();
    let probe = probes.first().copied().unwrap_or(&Value::Null);
    let is_asked = probe["httpGet"]["port"] == names::PORT && probe["httpGet"]["path"] == names::PATH;
    // The kubelet's own limit is a second: it would hang up before the role has an answer.
    let is_awaited = probe["timeoutSeconds"]
        .as_u64()
        .is_some_and(|seconds| seconds > LivenessSection::default().probe_timeout.as_secs());
    // The node plugin has the role by default.
    let roles = &workload["config"]["roles"];
    let is_answered = roles.get("liveness").is_some() || workload.get("enabled").is_some() && roles.is_null();
    let all = [
        (is_asked, "a livenessProbe of the driver's container that asks the role's port and path"),
        (is_awaited, "a timeoutSeconds above roles.liveness.probeTimeout"),
        (is_answered, "the role liveness"),
    ];
    Some(all.into_iter().filter(|(is_there, _)| !is_there).map(|(_, what)| what).collect())
}

#[test]
fn each_sample_has_the_probe_that_the_runbook_demands() {
    assert!(read("docs/operations.md").contains("the *driver's* container must have a liveness probe"));
    let (mut count, mut wrong) = (0, Vec::new());
    for (place, values) in samples() {
        for workload in [&values, &values["node"]] {
            if let Some(missing) = lacks(workload).filter(|_| workload["driver"]["containers"][0].is_object()) {
                count += 1;
                wrong.extend(missing.into_iter().map(|what| format!("{place}: no {what}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count >= 5, "{count} samples: README, the chart's README and deploy/ have some");
}

#[test]
fn a_probe_that_is_missing_or_too_short_is_noticed() {
    let sample = |probe: &str, roles: &str| -> Value {
        serde_yaml::from_str(&format!(
            "driver: {{containers: [{{volumeMounts: [{{name: csi-socket}}], livenessProbe: {probe}}}]}}\nconfig: {{roles: {roles}}}"
        ))
        .unwrap()
    };
    let good = "{httpGet: {path: /healthz, port: 9808}, timeoutSeconds: 5}";
    for (probe, roles, missing) in [
        (good, "{liveness: {}}", 0),
        (good, "{attacher: {}}", 1),
        ("{httpGet: {path: /healthz, port: 9808}}", "{liveness: {}}", 1),
        ("{httpGet: {path: /livez, port: 8080}, timeoutSeconds: 5}", "{liveness: {}}", 1),
        ("null", "{attacher: {}}", 3),
    ] {
        let lacks = lacks(&sample(probe, roles)).unwrap();
        assert_eq!(lacks.len(), missing, "{probe} {roles}: {lacks:?}");
    }
    assert_eq!(lacks(&Value::Null), None);
}

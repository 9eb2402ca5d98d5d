//! Other objects of the files that name a container or a port which goes. Only the workload is written, so that the report says what to
//! change in them. Pure.

use std::collections::BTreeMap;

use serde_yaml::Value;

use super::document::{Document, Workload, objects, string};
use super::notes::Notes;
use super::ports::{Closed, Ports};
use super::replaced::Old;

/// Tells of the objects that name what goes.
pub(super) fn tell(
    documents: &[Document],
    old: &[Old<'_>],
    daemon: &str,
    workload: &Workload,
    ports: &Ports,
    notes: &mut Notes,
) {
    let is_near = |object: &&Value| {
        let namespace = object.get("metadata").and_then(|metadata| string(metadata, "namespace"));
        namespace.is_none() || workload.namespace.is_none() || namespace == workload.namespace.as_deref()
    };
    for object in documents.iter().flat_map(objects).filter(is_near) {
        let kind = string(object, "kind").unwrap_or_default();
        let Some(name) = object.get("metadata").and_then(|metadata| string(metadata, "name")) else { continue };
        let Some(spec) = object.get("spec") else { continue };
        for (container, place) in containers(kind, spec, workload) {
            if old.iter().any(|one| one.name == container) {
                notes.must(format!(
                    "{kind} {name} names the container {container} in {place}, which is gone: let it name {daemon}"
                ));
            }
        }
        for (port, place) in named_ports(kind, spec, workload) {
            let Some(closed) = ports.closed.iter().find(|closed| port.is(closed)) else { continue };
            notes.must(format!(
                "{kind} {name} names port {port} of {} in {place}, which is closed: let it name port {}, where the daemon has the metrics \
                 of all",
                closed.container,
                ports.listen.port()
            ));
        }
    }
}

/// A port as an object names it.
enum Port<'a> {
    Number(u64),
    Name(&'a str),
}

impl std::fmt::Display for Port<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl<'a> Port<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text.parse().map_or(Self::Name(text), Self::Number)),
            value => value.as_u64().map(Self::Number),
        }
    }

    fn is(&self, closed: &Closed) -> bool {
        match self {
            Self::Number(number) => u64::from(closed.port) == *number,
            Self::Name(name) => closed.name.as_deref() == Some(name),
        }
    }
}

/// The items of a list below a key.
fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_sequence).into_iter().flatten()
}

/// The containers that an object about this workload names, and where.
fn containers<'a>(kind: &str, spec: &'a Value, workload: &Workload) -> Vec<(&'a str, &'static str)> {
    let is_about = |key: &str| {
        let target = spec.get(key);
        let is = |key: &str, wanted: &str| target.and_then(|target| string(target, key)) == Some(wanted);
        is("kind", &workload.kind) && is("name", &workload.name)
    };
    match kind {
        "VerticalPodAutoscaler" if is_about("targetRef") => {
            let policies = spec.get("resourcePolicy").into_iter().flat_map(|policy| list(policy, "containerPolicies"));
            policies
                .filter_map(|policy| Some((string(policy, "containerName")?, "spec.resourcePolicy.containerPolicies")))
                .collect()
        }
        "HorizontalPodAutoscaler" if is_about("scaleTargetRef") => list(spec, "metrics")
            .filter_map(|metric| Some((string(metric.get("containerResource")?, "container")?, "spec.metrics")))
            .collect(),
        _ => Vec::new(),
    }
}

/// The ports of this workload's pods that an object names, and where.
fn named_ports<'a>(kind: &str, spec: &'a Value, workload: &Workload) -> Vec<(Port<'a>, &'static str)> {
    let selects = |selector: Option<&Value>| {
        let wanted = selector.and_then(Value::as_mapping).filter(|wanted| !wanted.is_empty());
        wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| is_label(&workload.labels, key, value)))
    };
    let selects_below = |key: &str| selects(spec.get(key).and_then(|selector| selector.get("matchLabels")));
    let port = |entry: &'a Value, keys: [&str; 2]| keys.into_iter().find_map(|key| Port::of(entry.get(key)?));
    match kind {
        "Service" if selects(spec.get("selector")) => {
            list(spec, "ports").filter_map(|entry| Some((port(entry, ["targetPort", "port"])?, "spec.ports"))).collect()
        }
        "PodMonitor" if selects_below("selector") => list(spec, "podMetricsEndpoints")
            .filter_map(|entry| Some((port(entry, ["port", "targetPort"])?, "spec.podMetricsEndpoints")))
            .collect(),
        "NetworkPolicy" if selects_below("podSelector") => list(spec, "ingress")
            .flat_map(|rule| list(rule, "ports"))
            .filter_map(|entry| Some((Port::of(entry.get("port")?)?, "spec.ingress")))
            .collect(),
        _ => Vec::new(),
    }
}

fn is_label(labels: &BTreeMap<String, String>, key: &Value, value: &Value) -> bool {
    let found = key.as_str().and_then(|key| labels.get(key));
    found.is_some_and(|found| value.as_str() == Some(found))
}

#[cfg(test)]
mod tests {
    use super::super::notes::Weight;
    use super::super::tests::wanted;
    use super::super::{Outcome, migrate};

    const WORKLOAD: &str = "kind: Deployment\nmetadata: {name: d, namespace: 'n'}\nspec:\n  template:\n    metadata: {labels: {app: d, tier: \
                            x}}\n    spec:\n      containers:\n      - {name: a, image: \"x/csi-attacher:v4.12.0\", args: \
                            [--csi-address=/csi/s, --leader-election, '--http-endpoint=:8090']}\n      - {name: r, image: \
                            \"x/csi-resizer:v2.0.0\", args: [--csi-address=/csi/s, --leader-election, '--http-endpoint=:8091'], ports: \
                            [{name: of-r, containerPort: 8091}]}\n      - {name: driver, image: x/driver}\n";

    #[test]
    fn objects_that_name_what_goes_are_named() {
        let closed = "which is closed: let it name port 8090, where";
        let target = "targetRef: {apiVersion: apps/v1, kind: Deployment, name: d}";
        for (object, told) in [
            (
                format!("kind: VerticalPodAutoscaler\nmetadata: {{name: v, namespace: 'n'}}\nspec: {{{target}, resourcePolicy: {{containerPolicies: [{{containerName: '*'}}, {{containerName: r}}]}}}}"),
                Some("VerticalPodAutoscaler v names the container r in spec.resourcePolicy.containerPolicies, which is gone: let it name csi-control-plane".to_owned()),
            ),
            (
                format!("kind: VerticalPodAutoscaler\nmetadata: {{name: v}}\nspec: {{{}, resourcePolicy: {{containerPolicies: [{{containerName: r}}]}}}}", target.replace("name: d", "name: e")),
                None,
            ),
            (
                "kind: HorizontalPodAutoscaler\nmetadata: {name: h}\nspec: {scaleTargetRef: {kind: Deployment, name: d}, metrics: [{type: ContainerResource, containerResource: {name: cpu, container: a}}]}".to_owned(),
                Some("HorizontalPodAutoscaler h names the container a in spec.metrics, which is gone".to_owned()),
            ),
            (
                "kind: Service\nmetadata: {name: s, namespace: 'n'}\nspec: {selector: {app: d}, ports: [{port: 80, targetPort: of-r}, {port: 8090}]}".to_owned(),
                Some(format!("Service s names port of-r of r in spec.ports, {closed}")),
            ),
            ("kind: Service\nmetadata: {name: s, namespace: m}\nspec: {selector: {app: d}, ports: [{port: 8091}]}".to_owned(), None),
            ("kind: Service\nmetadata: {name: s}\nspec: {selector: {app: other}, ports: [{port: 8091}]}".to_owned(), None),
            (
                "kind: NetworkPolicy\nmetadata: {name: p}\nspec: {podSelector: {matchLabels: {tier: x}}, ingress: [{ports: [{port: 8091}]}]}".to_owned(),
                Some(format!("NetworkPolicy p names port 8091 of r in spec.ingress, {closed}")),
            ),
            (
                "kind: PodMonitor\nmetadata: {name: m}\nspec: {selector: {matchLabels: {app: d}}, podMetricsEndpoints: [{port: of-r}]}".to_owned(),
                Some(format!("PodMonitor m names port of-r of r in spec.podMetricsEndpoints, {closed}")),
            ),
        ] {
            let Outcome { report, files } = migrate(&wanted(&format!("{WORKLOAD}---\n{object}\n")));
            assert!(files.is_some(), "{}", report.faults_text());
            let of_object = |note: &&str| note.contains(" names ") && !note.contains("--image");
            let notes: Vec<_> = report.notes.of(Weight::MustDo).filter(of_object).collect();
            assert_eq!(notes.len(), usize::from(told.is_some()), "{object}: {notes:?}");
            assert!(told.is_none_or(|told| notes[0].starts_with(&told)), "{object}: {notes:?}");
        }
    }
}

//! Other objects of the files that name a container or a port which goes. Only the workload is written, so that the report says what to
//! change in them. Pure.
//!
//! | object | what of it may name a container or a port |
//! |---|---|
//! | VerticalPodAutoscaler, HorizontalPodAutoscaler of the workload | the containers of its policies or metrics |
//! | Service that selects the pods | its ports, and the annotation `prometheus.io/port` |
//! | ServiceMonitor of such a Service | its endpoints: a port of the Service, or of the pods |
//! | PodMonitor, NetworkPolicy that select the pods | its ports |

use serde_yaml::Value;

use super::annotations::SCRAPED;
use super::document::{Document, Workload, list, name_of, objects, string, unique};
use super::notes::Notes;
use super::ports::{Closed, Ports};
use super::replaced::Old;
use super::report::listed;

/// Tells of the objects that name what goes.
pub(super) fn tell(
    documents: &[Document],
    old: &[Old<'_>],
    daemon: &str,
    workload: &Workload,
    ports: &Ports,
    notes: &mut Notes,
) {
    let near: Vec<&Value> = objects(documents).filter(|object| is_near(object, workload)).collect();
    let is_ours = |object: &&Value| {
        let selector = object.get("spec").and_then(|spec| spec.get("selector"));
        string(object, "kind") == Some("Service")
            && selects(selector, |key| workload.labels.get(key).map(String::as_str))
    };
    let services: Vec<&Value> = near.iter().copied().filter(is_ours).collect();
    for object in near {
        let (Some(kind), Some(name)) = (string(object, "kind"), name_of(object)) else { continue };
        for (container, place) in containers(object, workload) {
            if old.iter().any(|one| one.name == container) {
                notes.must(format!(
                    "{kind} {name} names the container {container} in {place}, which is gone: let it name {daemon}"
                ));
            }
        }
        let named = named_ports(object, &services, workload);
        for place in unique(named.iter().map(|one| one.place)) {
            let here = named.iter().filter(|one| one.place == place);
            if let Some(advice) = advice(here, ports) {
                notes.must(format!("{kind} {name} names {advice}"));
            }
        }
    }
}

/// What to say of ports that an object names in one place; `None`: none of them closes.
fn advice<'a>(named: impl Iterator<Item = &'a Named<'a>>, ports: &Ports) -> Option<String> {
    let own = ports.listen.port();
    // Of two ports with one name the daemon's is the one that is left.
    let (stay, rest): (Vec<_>, Vec<_>) = named.partition(|one| one.port.is(own, ports.name()));
    let is_it = |one: &Named<'_>, closed: &&Closed| one.port.is(closed.port, closed.name.as_deref());
    let gone = rest.iter().filter_map(|one| Some((one, ports.closed.iter().find(|it| is_it(one, it))?)));
    let gone: Vec<String> = gone.map(|(one, closed)| format!("{one} of {}", closed.container)).collect();
    let it_has = format!("port {own}, where the daemon has the metrics of all");
    let advice = match (stay.as_slice(), gone.as_slice()) {
        (_, []) => return None,
        ([], _) => format!("let it name {it_has}, or delete it if another object does"),
        (_, [_]) => format!("take it out, since it names {it_has}"),
        _ => format!("take them out, since it names {it_has}"),
    };
    Some(format!("{} in {}, closed from now on: {advice}", listed(&gone, "and"), rest.first()?.place))
}

/// Whether an object is in the workload's namespace, or looks for what it selects there.
fn is_near(object: &Value, workload: &Workload) -> bool {
    let namespace = object.get("metadata").and_then(|metadata| string(metadata, "namespace"));
    let Some((own, namespace)) = workload.namespace.as_deref().zip(namespace) else { return true };
    let selector = object.get("spec").and_then(|spec| spec.get("namespaceSelector"));
    own == namespace
        || selector.is_some_and(|selector| {
            selector.get("any").and_then(Value::as_bool) == Some(true)
                || list(selector, "matchNames").any(|name| name.as_str() == Some(own))
        })
}

/// A port as an object names it.
#[derive(Debug, Clone, Copy)]
enum Port<'a> {
    Number(u64),
    Name(&'a str),
}

impl<'a> Port<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::String(text) => Some(text.parse().map_or(Self::Name(text), Self::Number)),
            value => value.as_u64().map(Self::Number),
        }
    }

    /// Below the first of these keys that is there.
    fn below<const N: usize>(value: &'a Value, keys: [&str; N]) -> Option<Self> {
        keys.into_iter().find_map(|key| Self::of(value.get(key)?))
    }

    /// Whether it is the port of this number, or of this name.
    fn is(self, port: u16, name: Option<&str>) -> bool {
        match self {
            Self::Number(number) => u64::from(port) == number,
            Self::Name(own) => name == Some(own),
        }
    }
}

/// A port of the pods that an object names.
struct Named<'a> {
    port: Port<'a>,
    /// The Service and its port in between.
    through: Option<(&'a str, &'a str)>,
    place: &'static str,
}

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((service, port)) = self.through {
            write!(f, "port {port} of Service {service}, which is ")?;
        }
        match self.port {
            Port::Number(number) => write!(f, "port {number}"),
            Port::Name(name) => write!(f, "port {name}"),
        }
    }
}

/// The containers that an object about this workload names, and where.
fn containers<'a>(object: &'a Value, workload: &Workload) -> Vec<(&'a str, &'static str)> {
    let Some(spec) = object.get("spec") else { return Vec::new() };
    let is_about = |key: &str| {
        let is = |part: &str, wanted: &str| spec.get(key).and_then(|target| string(target, part)) == Some(wanted);
        is("kind", &workload.kind) && is("name", &workload.name)
    };
    match string(object, "kind") {
        Some("VerticalPodAutoscaler") if is_about("targetRef") => {
            let policies = spec.get("resourcePolicy").into_iter().flat_map(|policy| list(policy, "containerPolicies"));
            policies
                .filter_map(|policy| Some((string(policy, "containerName")?, "spec.resourcePolicy.containerPolicies")))
                .collect()
        }
        Some("HorizontalPodAutoscaler") if is_about("scaleTargetRef") => list(spec, "metrics")
            .filter_map(|metric| Some((string(metric.get("containerResource")?, "container")?, "spec.metrics")))
            .collect(),
        _ => Vec::new(),
    }
}

/// The ports of this workload's pods that an object names. `services` are those that select the pods.
fn named_ports<'a>(object: &'a Value, services: &[&'a Value], workload: &Workload) -> Vec<Named<'a>> {
    let Some(spec) = object.get("spec") else { return Vec::new() };
    let is_of_pods = |key: &str| is_selected(spec.get(key), |key| workload.labels.get(key).map(String::as_str));
    let all = |ports: Vec<Port<'a>>, place| {
        ports.into_iter().map(|port| Named { port, through: None, place }).collect::<Vec<_>>()
    };
    match string(object, "kind") {
        Some("Service") if services.contains(&object) => {
            let scraped = object.get("metadata").and_then(|it| Port::of(it.get("annotations")?.get(SCRAPED[0])?));
            let scraped = all(scraped.into_iter().collect(), "its annotation prometheus.io/port");
            let ports = list(spec, "ports").filter_map(|entry| Port::below(entry, ["targetPort", "port"])).collect();
            [all(ports, "spec.ports"), scraped].into_iter().flatten().collect()
        }
        Some("ServiceMonitor") => services
            .iter()
            .copied()
            .filter(|service| is_selected(spec.get("selector"), |key| label(service, key)))
            .flat_map(|service| list(spec, "endpoints").filter_map(move |endpoint| asked(endpoint, service)))
            .collect(),
        Some("PodMonitor") if is_of_pods("selector") => {
            let ports = list(spec, "podMetricsEndpoints");
            let keys = ["port", "portNumber", "targetPort"];
            all(ports.filter_map(|entry| Port::below(entry, keys)).collect(), "spec.podMetricsEndpoints")
        }
        Some("NetworkPolicy") if is_of_pods("podSelector") => {
            let ports = list(spec, "ingress").flat_map(|rule| list(rule, "ports"));
            all(ports.filter_map(|entry| Port::below(entry, ["port"])).collect(), "spec.ingress")
        }
        _ => Vec::new(),
    }
}

/// The port of the pods that an endpoint of a `ServiceMonitor` asks: through a port of the Service, or itself.
fn asked<'a>(endpoint: &'a Value, service: &'a Value) -> Option<Named<'a>> {
    const PLACE: &str = "spec.endpoints";
    let Some(name) = string(endpoint, "port") else {
        return Some(Named { port: Port::below(endpoint, ["targetPort"])?, through: None, place: PLACE });
    };
    let entry = list(service.get("spec")?, "ports").find(|entry| string(entry, "name") == Some(name))?;
    let port = Port::below(entry, ["targetPort", "port"])?;
    Some(Named { port, through: Some((name_of(service)?, name)), place: PLACE })
}

/// A label of an object.
fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    string(object.get("metadata")?.get("labels")?, key)
}

/// Whether labels have all that a Service's selector wants. One that wants nothing selects nothing.
fn selects<'a>(selector: Option<&Value>, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    let wanted = selector.and_then(Value::as_mapping).filter(|wanted| !wanted.is_empty());
    let has = |(key, value): (&Value, &Value)| value.is_string() && key.as_str().and_then(&label) == value.as_str();
    wanted.is_some_and(|wanted| wanted.iter().all(has))
}

/// The same for a selector with `matchLabels`: one that wants nothing selects all.
fn is_selected<'a>(selector: Option<&Value>, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    let is_empty = selector.and_then(Value::as_mapping).is_some_and(serde_yaml::Mapping::is_empty);
    is_empty || selector.is_some_and(|selector| selects(selector.get("matchLabels"), label))
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

    /// What the report says of these objects beside the workload.
    fn told(objects: &str) -> Vec<String> {
        let Outcome { report, files } = migrate(&wanted(&format!("{WORKLOAD}---\n{objects}\n")));
        assert!(files.is_some(), "{}", report.faults_text());
        let notes =
            report.notes.of(Weight::MustDo).filter(|note| note.contains(" names ") && !note.contains("--image"));
        notes.map(str::to_owned).collect()
    }

    const OWN: &str =
        "let it name port 8090, where the daemon has the metrics of all, or delete it if another object does";

    #[test]
    fn objects_that_name_what_goes_are_named() {
        let target = "targetRef: {apiVersion: apps/v1, kind: Deployment, name: d}";
        let closed = format!("closed from now on: {OWN}");
        for (object, expected) in [
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
                Some("HorizontalPodAutoscaler h names the container a in spec.metrics, which is gone: let it name csi-control-plane".to_owned()),
            ),
            (
                "kind: Service\nmetadata: {name: s, namespace: 'n'}\nspec: {selector: {app: d}, ports: [{port: 80, targetPort: of-r}]}".to_owned(),
                Some(format!("Service s names port of-r of r in spec.ports, {closed}")),
            ),
            (
                "kind: Service\nmetadata: {name: s, namespace: 'n'}\nspec: {selector: {app: d}, ports: [{port: 80, targetPort: of-r}, {port: 8090}]}".to_owned(),
                Some("Service s names port of-r of r in spec.ports, closed from now on: take it out, since it names port 8090, where the daemon has the metrics of all".to_owned()),
            ),
            (
                "kind: Service\nmetadata: {name: s, annotations: {prometheus.io/port: '8091'}}\nspec: {selector: {app: d}, ports: [{port: 443}]}".to_owned(),
                Some(format!("Service s names port 8091 of r in its annotation prometheus.io/port, {closed}")),
            ),
            ("kind: Service\nmetadata: {name: s, namespace: m}\nspec: {selector: {app: d}, ports: [{port: 8091}]}".to_owned(), None),
            ("kind: Service\nmetadata: {name: s}\nspec: {selector: {app: other}, ports: [{port: 8091}]}".to_owned(), None),
            (
                "kind: NetworkPolicy\nmetadata: {name: p}\nspec: {podSelector: {matchLabels: {tier: x}}, ingress: [{ports: [{port: 8091}]}]}".to_owned(),
                Some(format!("NetworkPolicy p names port 8091 of r in spec.ingress, {closed}")),
            ),
            (
                "kind: NetworkPolicy\nmetadata: {name: p}\nspec: {podSelector: {}, ingress: [{ports: [{port: 8091}]}]}".to_owned(),
                Some(format!("NetworkPolicy p names port 8091 of r in spec.ingress, {closed}")),
            ),
            (
                "kind: PodMonitor\nmetadata: {name: m, namespace: monitoring}\nspec: {namespaceSelector: {matchNames: ['n']}, selector: {matchLabels: {app: d}}, podMetricsEndpoints: [{portNumber: 8091}]}".to_owned(),
                Some(format!("PodMonitor m names port 8091 of r in spec.podMetricsEndpoints, {closed}")),
            ),
            (
                "kind: PodMonitor\nmetadata: {name: m, namespace: monitoring}\nspec: {selector: {matchLabels: {app: d}}, podMetricsEndpoints: [{port: of-r}]}".to_owned(),
                None,
            ),
        ] {
            assert_eq!(told(&object), Vec::from_iter(expected), "{object}");
        }
    }

    #[test]
    fn a_monitor_is_told_of_the_ports_that_it_reaches_through_a_service() {
        let service = "kind: Service\nmetadata: {name: s, namespace: 'n', labels: {app: metrics}}\nspec: {selector: {app: d}, ports: [{name: \
                       first, port: 90, targetPort: 8090}, {name: second, port: 91, targetPort: of-r}]}\n---\n";
        let of_service = "Service s names port of-r of r in spec.ports, closed from now on: take it out, since it names port 8090, where the \
                          daemon has the metrics of all";
        for (spec, expected) in [
            (
                "selector: {matchLabels: {app: metrics}}, endpoints: [{port: first}, {port: second}]",
                Some(
                    "port second of Service s, which is port of-r of r in spec.endpoints, closed from now on: take it out, since it names port 8090",
                ),
            ),
            (
                "selector: {}, endpoints: [{targetPort: 8091}]",
                Some("port 8091 of r in spec.endpoints, closed from now on: let it name port 8090"),
            ),
            ("selector: {matchLabels: {app: metrics}}, endpoints: [{port: first}, {port: third}]", None),
            ("selector: {matchLabels: {app: d}}, endpoints: [{port: second}]", None),
        ] {
            let told = told(&format!(
                "{service}kind: ServiceMonitor\nmetadata: {{name: m, namespace: 'n'}}\nspec: {{{spec}}}"
            ));
            let (of_monitor, rest): (Vec<_>, Vec<_>) =
                told.iter().partition(|note| note.starts_with("ServiceMonitor m"));
            assert_eq!(rest, [of_service], "{spec}");
            assert_eq!(of_monitor.len(), usize::from(expected.is_some()), "{spec}: {told:?}");
            assert!(expected.is_none_or(|expected| of_monitor[0].contains(expected)), "{spec}: {told:?}");
        }
    }
}

//! Decides whether, where and what to trace, from the configuration and the standard `OTEL_*` variables, without I/O.
//!
//! | question | answer, first that applies |
//! |---|---|
//! | on at all? | no with `OTEL_SDK_DISABLED=true` or `OTEL_TRACES_EXPORTER=none`; else yes if there is an endpoint |
//! | endpoint | configuration, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_ENDPOINT`; `OTEL_TRACES_EXPORTER=otlp` alone means the standard's default |
//! | sampler | `OTEL_TRACES_SAMPLER` (with `_ARG`), configuration's ratio, parent-based |
//! | resource | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, our name, version and instance |
//! | propagators | `OTEL_PROPAGATORS`, `tracecontext,baggage` |
//! | proxy | `HTTPS_PROXY` and `NO_PROXY`, also for an `http://` collector, as gRPC in Go |
//!
//! The SDK supports the sampler and resource variables, but would read them from the process; here they are an input
//! like any other. An invalid value in our configuration is an error. An invalid standard variable, which may have been
//! injected into the pod, is a warning: telemetry must never prevent the attach of a volume.

use std::collections::BTreeMap;

use http::Uri;
use opentelemetry_sdk::trace::Sampler;

use super::propagation::Propagation;
use super::trace_sending::{Sending, sending};
use super::variable::{list, percent_decoded};
use crate::process::{Proxies, Proxy};

/// The process's environment, as an input.
pub type Environment = BTreeMap<String, String>;

/// What to trace and where to send it.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceSettings {
    /// The collector, such as `http://otel-collector:4317`. `None`: the standard variables decide.
    pub endpoint: Option<String>,
    /// The share of traces to keep, 0 to 1, where no caller has decided.
    pub sample_ratio: f64,
    /// This program's version.
    pub version: String,
    /// This process among its replicas.
    pub instance: String,
}

/// Why no traces can be sent.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The endpoint of the configuration.
    #[error("cannot send traces to `{found}`: {reason}")]
    Endpoint {
        /// As written.
        found: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The exporter refused its settings.
    #[error("cannot build the OTLP exporter")]
    Exporter(#[source] opentelemetry_otlp::ExporterBuildError),
    /// There can be no connection through a proxy.
    #[error("cannot set up the connection to the collector through a proxy")]
    Channel(#[source] tonic::transport::Error),
    /// A file of a certificate or a key.
    #[error("cannot read {path}, which a variable of the OTLP exporter names")]
    Certificate {
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Called before there was a runtime.
    #[error("the OTLP exporter needs a running tokio runtime")]
    NoRuntime,
}

/// What to export.
#[derive(Debug, Clone)]
pub(super) struct Export {
    pub(super) endpoint: String,
    pub(super) sampler: Sampler,
    pub(super) resource: BTreeMap<String, String>,
    pub(super) propagation: Propagation,
    pub(super) sending: Sending,
    pub(super) proxy: Option<Proxy>,
}

/// The decision and what was odd about its inputs.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) export: Option<Export>,
    pub(super) warnings: Vec<String>,
}

/// The standard's default where an exporter is asked for by name but no endpoint is.
const DEFAULT_ENDPOINT: &str = "http://localhost:4317";

/// Decides.
pub(super) fn plan(settings: &TraceSettings, environment: &Environment) -> Result<Plan, TraceError> {
    // An empty variable is an unset one, says the standard.
    let var = |name: &str| environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
    let Plan { mut export, mut warnings } = plan_with(settings, var)?;
    if let Some(export) = &mut export {
        export.proxy = proxy(&export.endpoint, &Proxies::read(environment), &mut warnings);
    }
    Ok(Plan { export, warnings })
}

fn proxy(endpoint: &str, proxies: &Proxies, warnings: &mut Vec<String>) -> Option<Proxy> {
    let collector: Uri = endpoint.replacen("http://", "https://", 1).parse().ok()?;
    // Without a port it is the scheme's, whichever variable decides.
    let is_plain = endpoint.starts_with("http://") && collector.port().is_none();
    let collector = if is_plain { format!("https://{}:80", collector.host()?).parse().ok()? } else { collector };
    let mut direct = |why: String| {
        warnings.push(format!("{why}: traces are sent without a proxy"));
        None
    };
    match proxies.of(&collector) {
        Ok(Some(proxy)) if proxy.uri().scheme_str() == Some("https") => {
            direct(format!("the proxy {proxy} speaks TLS, and traces can go only through one that does not"))
        }
        Ok(proxy) => proxy,
        Err(error) => direct(error.to_string()),
    }
}

/// The same, where `var` finds a variable that is set and not empty.
fn plan_with<'a>(settings: &TraceSettings, var: impl Fn(&str) -> Option<&'a str>) -> Result<Plan, TraceError> {
    let mut warnings = Vec::new();
    let off = |warnings| Ok(Plan { export: None, warnings });

    let configured = settings.endpoint.as_deref().map(str::trim).filter(|value| !value.is_empty());
    if let Some(found) = configured {
        check_endpoint(found).map_err(|reason| TraceError::Endpoint { found: shown(found), reason })?;
    }
    if var("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return off(warnings);
    }
    let exporters: Vec<&str> = list(var("OTEL_TRACES_EXPORTER")).collect();
    if exporters.iter().any(|name| name.eq_ignore_ascii_case("none")) {
        return off(warnings);
    }
    if !exporters.is_empty() && !exporters.iter().any(|name| name.eq_ignore_ascii_case("otlp")) {
        warnings.push(format!(
            "OTEL_TRACES_EXPORTER={} is not supported (otlp, none): no traces are sent",
            exporters.join(",")
        ));
        return off(warnings);
    }

    let insecure = var("OTEL_EXPORTER_OTLP_TRACES_INSECURE").or_else(|| var("OTEL_EXPORTER_OTLP_INSECURE"));
    let insecure = insecure.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let standard = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"]
        .into_iter()
        .find_map(|name| var(name).map(|value| (name, with_scheme(value, insecure))));
    let endpoint = match (configured, standard) {
        (Some(endpoint), _) => endpoint.to_owned(),
        (None, Some((name, endpoint))) => match check_endpoint(&endpoint) {
            Ok(()) => endpoint,
            Err(reason) => {
                warnings.push(format!("{name}={}: {reason}: no traces are sent", shown(&endpoint)));
                return off(warnings);
            }
        },
        (None, None) if exporters.is_empty() => return off(warnings),
        (None, None) => DEFAULT_ENDPOINT.to_owned(),
    };

    let protocol = var("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| var("OTEL_EXPORTER_OTLP_PROTOCOL"));
    if let Some(protocol) = protocol.filter(|protocol| *protocol != "grpc") {
        warnings.push(format!("OTEL_EXPORTER_OTLP_PROTOCOL={protocol} is not supported: traces are sent as grpc"));
    }
    let sampler = sampler(var("OTEL_TRACES_SAMPLER"), var("OTEL_TRACES_SAMPLER_ARG"), &mut warnings)
        .unwrap_or_else(|| Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(settings.sample_ratio))));
    let propagation = propagation(var("OTEL_PROPAGATORS"), &mut warnings);
    let resource = resource(settings, var("OTEL_SERVICE_NAME"), var("OTEL_RESOURCE_ATTRIBUTES"), &mut warnings);
    let sending = sending(&var, &mut warnings);
    Ok(Plan { export: Some(Export { endpoint, sampler, resource, propagation, sending, proxy: None }), warnings })
}

/// The standard allows an endpoint without scheme; then a second variable says whether it speaks TLS.
fn with_scheme(endpoint: &str, insecure: bool) -> String {
    match (endpoint.contains("://"), insecure) {
        (true, _) => endpoint.to_owned(),
        (false, true) => format!("http://{endpoint}"),
        (false, false) => format!("https://{endpoint}"),
    }
}

fn check_endpoint(endpoint: &str) -> Result<(), &'static str> {
    let uri: Uri = endpoint.parse().map_err(|_| "not an address; allowed: http://host:port or https://host:port")?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
            Err("credentials do not belong in an address; use OTEL_EXPORTER_OTLP_HEADERS")
        }
        (Some("http" | "https"), Some(_)) => Ok(()),
        _ => Err("allowed: http://host:port or https://host:port"),
    }
}

/// An address for people: what may be a password is not shown.
fn shown(endpoint: &str) -> String {
    match endpoint.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => endpoint.to_owned(),
    }
}

fn sampler(name: Option<&str>, argument: Option<&str>, warnings: &mut Vec<String>) -> Option<Sampler> {
    let name = name?;
    let mut ratio = || match argument.map(str::parse::<f64>) {
        Some(Ok(ratio)) if (0.0..=1.0).contains(&ratio) => Sampler::TraceIdRatioBased(ratio),
        _ => {
            warnings.push(format!(
                "OTEL_TRACES_SAMPLER={name} needs OTEL_TRACES_SAMPLER_ARG from 0 to 1: every trace is kept"
            ));
            Sampler::TraceIdRatioBased(1.0)
        }
    };
    let parent_based = |sampler| Sampler::ParentBased(Box::new(sampler));
    Some(match name {
        "always_on" => Sampler::AlwaysOn,
        "always_off" => Sampler::AlwaysOff,
        "traceidratio" => ratio(),
        "parentbased_always_on" => parent_based(Sampler::AlwaysOn),
        "parentbased_always_off" => parent_based(Sampler::AlwaysOff),
        "parentbased_traceidratio" => parent_based(ratio()),
        _ => {
            warnings.push(format!("OTEL_TRACES_SAMPLER={name} is not supported: the configured sample ratio applies"));
            return None;
        }
    })
}

fn propagation(value: Option<&str>, warnings: &mut Vec<String>) -> Propagation {
    if value.is_none() {
        return Propagation::default();
    }
    let mut found = Propagation::NONE;
    for name in list(value) {
        match name {
            "tracecontext" => found.trace_context = true,
            "baggage" => found.baggage = true,
            "none" => return Propagation::NONE,
            _ => warnings.push(format!("OTEL_PROPAGATORS: {name} is not supported (tracecontext, baggage, none)")),
        }
    }
    found
}

fn resource(
    settings: &TraceSettings,
    service: Option<&str>,
    attributes: Option<&str>,
    warnings: &mut Vec<String>,
) -> BTreeMap<String, String> {
    let mut resource = BTreeMap::from([
        ("service.name".to_owned(), env!("CARGO_PKG_NAME").to_owned()),
        ("service.version".to_owned(), settings.version.clone()),
        ("service.instance.id".to_owned(), settings.instance.clone()),
    ]);
    for entry in list(attributes) {
        match entry.split_once('=') {
            Some((key, value)) => {
                resource.insert(percent_decoded(key.trim()), percent_decoded(value.trim()));
            }
            None => warnings.push(format!("OTEL_RESOURCE_ATTRIBUTES: `{entry}` is not key=value")),
        }
    }
    if let Some(service) = service {
        resource.insert("service.name".to_owned(), service.to_owned());
    }
    resource
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;

    fn settings(endpoint: Option<&str>) -> TraceSettings {
        TraceSettings {
            endpoint: endpoint.map(str::to_owned),
            sample_ratio: 0.25,
            version: "1.2.3".to_owned(),
            instance: "host_1".to_owned(),
        }
    }

    fn decide(endpoint: Option<&str>, environment: &[(&str, &str)]) -> Plan {
        let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        plan(&settings(endpoint), &environment).unwrap()
    }

    type Case<'a> = (Option<&'a str>, &'a [(&'a str, &'a str)], Option<&'a str>);

    /// The variables in the first column of the page's table. `…` there is empty or `TRACES_`.
    fn told() -> BTreeSet<String> {
        const COMMON: &str = "OTEL_EXPORTER_OTLP_";
        let rows = include_str!("../../docs/tracing.md").lines().filter_map(|line| line.strip_prefix("| `OTEL_"));
        let mut told = BTreeSet::new();
        for row in rows {
            let first = format!("`OTEL_{}", row.split(" | ").next().unwrap());
            for name in first.split('`').skip(1).step_by(2).map(|text| text.split('=').next().unwrap()) {
                match name.split_once('…') {
                    Some((_, rest)) => told.extend([format!("{COMMON}{rest}"), format!("{COMMON}TRACES_{rest}")]),
                    None => drop(told.insert(name.to_owned())),
                }
            }
        }
        told
    }

    #[test]
    fn the_page_tells_of_every_variable_that_is_read_and_of_no_other() {
        let read = RefCell::new(BTreeSet::new());
        let nothing = |name: &str| {
            read.borrow_mut().insert(name.to_owned());
            None
        };
        plan_with(&settings(Some("http://a:1")), nothing).unwrap();
        let read = read.into_inner();
        assert!(read.len() > 25, "{read:?}");
        assert_eq!(told(), read, "docs/tracing.md and the variables that are read");
    }

    #[test]
    fn the_endpoint_comes_from_the_configuration_then_the_standard_variables() {
        let configured = Some("http://mine:4317");
        let (traces, all) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
        let cases: &[Case<'_>] = &[
            (None, &[], None),
            (configured, &[], Some("http://mine:4317")),
            (configured, &[(all, "http://theirs:4317")], Some("http://mine:4317")),
            (None, &[(all, "http://a:1"), (traces, "https://b:2")], Some("https://b:2")),
            (None, &[(all, "a:1")], Some("https://a:1")),
            (None, &[(all, "a:1"), ("OTEL_EXPORTER_OTLP_INSECURE", "true")], Some("http://a:1")),
            (None, &[(all, "")], None),
            (None, &[("OTEL_TRACES_EXPORTER", "otlp")], Some(DEFAULT_ENDPOINT)),
            (configured, &[("OTEL_TRACES_EXPORTER", "none")], None),
            (configured, &[("OTEL_SDK_DISABLED", "TRUE")], None),
            (configured, &[("OTEL_SDK_DISABLED", "false")], Some("http://mine:4317")),
        ];
        for (endpoint, environment, expected) in cases {
            let plan = decide(*endpoint, environment);
            assert_eq!(plan.export.map(|export| export.endpoint).as_deref(), *expected, "{endpoint:?} {environment:?}");
            assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
        }
    }

    #[test]
    fn a_bad_variable_is_a_warning_and_a_bad_configuration_an_error() {
        for value in ["ftp://a:1", "http://", "unix:///x", "http://u:secret@a:1", "http://a b"] {
            let plan = decide(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", value)]);
            assert!(plan.export.is_none() && plan.warnings.len() == 1, "{value}: {plan:?}");
            assert!(!plan.warnings[0].contains("secret"), "{:?}", plan.warnings);
            let error = super::plan(&settings(Some(value)), &Environment::new()).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(super::plan(&settings(Some("collector:4317")), &Environment::new()).is_err());
        let plan = decide(Some("http://a:1"), &[("OTEL_TRACES_EXPORTER", "zipkin")]);
        assert!(plan.export.is_none() && plan.warnings.len() == 1);
        let plan = decide(Some("http://a:1"), &[("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]);
        assert!(plan.export.is_some() && plan.warnings.len() == 1);
    }

    #[test]
    fn the_standard_sampler_variable_beats_the_configured_ratio() {
        let cases = [
            (None, None, "ParentBased(TraceIdRatioBased(0.25))", 0),
            (Some("always_on"), None, "AlwaysOn", 0),
            (Some("always_off"), None, "AlwaysOff", 0),
            (Some("traceidratio"), Some("0.5"), "TraceIdRatioBased(0.5)", 0),
            (Some("parentbased_always_off"), None, "ParentBased(AlwaysOff)", 0),
            (Some("parentbased_always_on"), None, "ParentBased(AlwaysOn)", 0),
            (Some("parentbased_traceidratio"), Some("0"), "ParentBased(TraceIdRatioBased(0.0))", 0),
            (Some("traceidratio"), Some("7"), "TraceIdRatioBased(1.0)", 1),
            (Some("xray"), None, "ParentBased(TraceIdRatioBased(0.25))", 1),
        ];
        for (name, argument, expected, warnings) in cases {
            let mut environment = Vec::new();
            environment.extend(name.map(|name| ("OTEL_TRACES_SAMPLER", name)));
            environment.extend(argument.map(|argument| ("OTEL_TRACES_SAMPLER_ARG", argument)));
            let plan = decide(Some("http://a:1"), &environment);
            assert_eq!(format!("{:?}", plan.export.unwrap().sampler), expected);
            assert_eq!(plan.warnings.len(), warnings, "{name:?}");
        }
    }

    #[test]
    fn the_resource_names_the_service_unless_the_environment_does() {
        let resource = decide(Some("http://a:1"), &[]).export.unwrap().resource;
        assert_eq!(resource["service.name"], "csi-control-plane");
        assert_eq!(
            (resource["service.version"].as_str(), resource["service.instance.id"].as_str()),
            ("1.2.3", "host_1")
        );
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=x, k8s.pod.name=a%20b%zz, odd");
        let plan = decide(Some("http://a:1"), &[attributes, ("OTEL_SERVICE_NAME", "mine")]);
        let resource = plan.export.unwrap().resource;
        assert_eq!((resource["service.name"].as_str(), resource["k8s.pod.name"].as_str()), ("mine", "a b%zz"));
        assert_eq!(plan.warnings.len(), 1);
    }

    #[test]
    fn propagators_are_the_standards_default_a_list_or_none() {
        let of = |value| decide(Some("http://a:1"), &[("OTEL_PROPAGATORS", value)]);
        assert_eq!(of("").export.unwrap().propagation, Propagation::default());
        assert_eq!(of("none").export.unwrap().propagation, Propagation::NONE);
        let plan = of("b3,tracecontext,tracecontext");
        assert_eq!(plan.export.unwrap().propagation, Propagation { trace_context: true, baggage: false });
        assert_eq!(plan.warnings.len(), 1);
    }

    #[test]
    fn a_collector_is_reached_through_the_proxy_that_grpc_in_go_would_take() {
        let proxy = ("HTTPS_PROXY", "http://me:secret@p:3128");
        for (collector, variables, expected, warns) in [
            ("http://collector:4317", &[][..], None, false),
            ("http://collector:4317", &[proxy], Some("http://p:3128 (HTTPS_PROXY)"), false),
            ("https://collector", &[proxy], Some("http://p:3128 (HTTPS_PROXY)"), false),
            ("http://collector:4317", &[("HTTP_PROXY", "http://p:3128")], None, false),
            ("http://collector:4317", &[proxy, ("NO_PROXY", "collector:4317")], None, false),
            ("http://collector", &[proxy, ("NO_PROXY", "collector:80")], None, false),
            ("http://localhost:4317", &[proxy], None, false),
            ("http://collector:4317", &[("HTTPS_PROXY", "https://me:secret@p")], None, true),
            ("http://collector:4317", &[("HTTPS_PROXY", "http://me:se#cret@p")], None, true),
        ] {
            let plan = decide(Some(collector), variables);
            let found = plan.export.unwrap().proxy.map(|proxy| proxy.to_string());
            assert_eq!(found.as_deref(), expected, "{collector} {variables:?}");
            assert_eq!(plan.warnings.len(), usize::from(warns), "{:?}", plan.warnings);
            assert!(!plan.warnings.iter().any(|warning| warning.contains("secret")), "{:?}", plan.warnings);
        }
    }
}

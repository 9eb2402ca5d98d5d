//! `telemetry:` in the configuration file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

use crate::process::{Faults, Section};

/// Logs and traces. Metrics have no key: they are always at `/metrics` of `diagnostics.listen`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TelemetrySection {
    /// Level and format of the logs.
    pub logs: LogsSection,
    /// Where traces go.
    pub traces: TracesSection,
}

/// Logs go to the standard error stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LogsSection {
    /// `error`, `warn`, `info`, `debug` or `trace`, alone or per module: `info,csi_control_plane::csi=debug`.
    pub level: String,
    /// `json`: one object per line; `text`: for people.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

/// OTLP traces over gRPC. The standard `OTEL_*` variables are honoured where no key here says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TracesSection {
    /// The collector: `http://host:4317`. null: none, unless `OTEL_EXPORTER_OTLP_ENDPOINT` names one.
    pub endpoint: Option<String>,
    /// The share of traces that are sampled, 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample_ratio: f64,
}

impl Default for LogsSection {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Json }
    }
}

impl Default for TracesSection {
    fn default() -> Self {
        Self { endpoint: None, sample_ratio: 1.0 }
    }
}

impl Section for TelemetrySection {
    fn check(&self, faults: &mut Faults) {
        if !is_filter(&self.logs.level) {
            faults.add(
                "logs.level",
                format_args!("{:?}", self.logs.level),
                "error, warn, info, debug, trace or off, alone or per module: info,csi_control_plane::csi=debug",
            );
        }
        let traces = &self.traces;
        if let Some(endpoint) = &traces.endpoint
            && !is_collector(endpoint)
        {
            // Not shown as written: what stands before an @ may be a password.
            let shown = endpoint.rsplit_once('@').map_or(endpoint.as_str(), |(_, host)| host);
            let allowed =
                "http://host:port or https://host:port, without credentials (OTEL_EXPORTER_OTLP_HEADERS holds those)";
            faults.add("traces.endpoint", format_args!("{shown:?}"), allowed);
        }
        if !(0.0..=1.0).contains(&traces.sample_ratio) {
            faults.add("traces.sampleRatio", traces.sample_ratio, "a number from 0 to 1");
        }
    }
}

/// Stricter than the filter's own parser, for which a mistyped level is a module's name.
fn is_filter(directives: &str) -> bool {
    let is_level = |word: &str| {
        ["off", "error", "warn", "info", "debug", "trace"].iter().any(|level| word.eq_ignore_ascii_case(level))
    };
    directives.split(',').all(|directive| match directive.rsplit_once('=') {
        Some((target, level)) => !target.is_empty() && is_level(level),
        None => is_level(directive),
    }) && EnvFilter::builder().parse(directives).is_ok()
}

fn is_collector(endpoint: &str) -> bool {
    endpoint.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri
                .authority()
                .is_some_and(|authority| !authority.as_str().contains('@') && !authority.host().is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_level_is_not_taken_for_a_module() {
        for (level, good) in [
            ("info", true),
            ("WARN", true),
            ("off", true),
            ("info,csi_control_plane::csi=debug", true),
            ("inof", false),
            ("", false),
            ("info,", false),
            ("csi=loud", false),
            ("5", false),
        ] {
            assert_eq!(is_filter(level), good, "{level}");
        }
    }

    #[test]
    fn a_collector_is_a_plain_http_address() {
        for (endpoint, good) in [
            ("http://collector:4317", true),
            ("https://collector.example:4317/", true),
            ("collector:4317", false),
            ("grpc://collector:4317", false),
            ("http://user:secret@collector:4317", false),
            ("http://", false),
            ("", false),
        ] {
            assert_eq!(is_collector(endpoint), good, "{endpoint}");
        }
    }

    #[test]
    fn a_password_in_an_address_is_not_repeated() {
        let mut section = TelemetrySection::default();
        section.traces.endpoint = Some("http://user:hunter2@collector:4317".to_owned());
        let mut faults = Faults::below("telemetry");
        section.check(&mut faults);
        assert!(!format!("{faults:?}").contains("hunter2"), "{faults:?}");
    }
}

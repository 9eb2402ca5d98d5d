//! Logs and traces put together, once, by `main`.

use std::io::IsTerminal as _;
use std::time::Duration;

use tracing::Subscriber;
use tracing_subscriber::Registry;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use super::Meter;
use super::config::LogFormat;
use super::logs::{self, LogError, LogLevel, LogSettings};
use super::propagation::Propagation;
use super::trace_plan::{self, Environment, Export, TraceError, TraceSettings};
use super::traces;
use crate::process::{Clock, error_chain};

/// What is told and where to.
#[derive(Debug, Clone, PartialEq)]
pub struct TelemetrySettings {
    /// Log lines.
    pub logs: LogSettings,
    /// Spans.
    pub traces: TraceSettings,
}

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The log level.
    #[error("cannot set up the log")]
    Logs(#[source] LogError),
    /// The trace endpoint.
    #[error("cannot set up traces")]
    Traces(#[source] TraceError),
    /// Something else installed a subscriber first.
    #[error("telemetry is already set up")]
    Installed(#[source] tracing::subscriber::SetGlobalDefaultError),
}

/// Logs and traces that run. [`Telemetry::shutdown`] sends the last spans.
#[derive(Debug)]
#[must_use = "without a shutdown the last spans are lost"]
pub struct Telemetry {
    level: LogLevel,
    provider: Option<traces::Provider>,
    state: TelemetryState,
}

/// What the daemon has to know of logs and traces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TelemetryState {
    /// How the trace travels to the driver.
    pub propagation: Propagation,
    /// What was odd about the environment, for the status page.
    pub warnings: Vec<String>,
}

impl Telemetry {
    /// Sets up the process's log on stderr and, where asked for, its traces. Inside a runtime, once, before any work.
    pub fn install(
        settings: &TelemetrySettings,
        environment: &Environment,
        clock: Clock,
        meter: &Meter,
    ) -> Result<Self, TelemetryError> {
        let no_colour = environment.get("NO_COLOR").is_some_and(|value| !value.is_empty());
        let ansi = settings.logs.format == LogFormat::Text && !no_colour && std::io::stderr().is_terminal();
        let (subscriber, telemetry, export) = build(settings, environment, (clock, meter), ansi, std::io::stderr)?;
        tracing::subscriber::set_global_default(subscriber).map_err(TelemetryError::Installed)?;
        if let Some(export) = export {
            tracing::info!(endpoint = export.endpoint, sampler = ?export.sampler, "traces are sent");
        }
        for warning in &telemetry.state.warnings {
            tracing::warn!(warning, "telemetry");
        }
        Ok(telemetry)
    }

    /// Changes the log's level.
    pub fn level(&self) -> &LogLevel {
        &self.level
    }

    /// What the daemon has to know.
    pub fn state(&self) -> &TelemetryState {
        &self.state
    }

    /// Whether spans are exported.
    pub fn traces(&self) -> bool {
        self.provider.is_some()
    }

    /// Sends the last spans, within `limit`.
    pub async fn shutdown(self, limit: Duration) {
        if let Some(provider) = self.provider {
            traces::shutdown(provider, limit).await;
        }
    }
}

type Built<S> = (S, Telemetry, Option<Export>);

/// Everything but the installation, so that a test can own what it looks at.
fn build<W>(
    settings: &TelemetrySettings,
    environment: &Environment,
    (clock, meter): (Clock, &Meter),
    ansi: bool,
    writer: W,
) -> Result<Built<impl Subscriber + Send + Sync + use<W>>, TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let plan = trace_plan::plan(&settings.traces, environment).map_err(TelemetryError::Traces)?;
    let (log, level) = logs::layer(&settings.logs, clock, ansi, writer).map_err(TelemetryError::Logs)?;
    let mut export = plan.export;
    let propagation = export.as_ref().map(|export| export.propagation).unwrap_or_default();
    let state = TelemetryState { propagation, warnings: plan.warnings };
    let mut telemetry = Telemetry { level, provider: None, state };
    match export.as_ref().map(|export| traces::provider(export, meter)) {
        None => {}
        Some(Ok(provider)) => {
            telemetry.provider = Some(provider);
        }
        // A certificate that cannot be read, say, must not keep the daemon down.
        Some(Err(error)) => {
            telemetry.state.warnings.push(format!("no traces are sent: {}", error_chain(&error)));
            export = None;
        }
    }
    // Not a list of layers: a list does not tell its members which subscriber they belong to (tracing-subscriber 0.3.23),
    // and without that a log line cannot find its trace.
    let traces = telemetry.provider.as_ref().map(traces::layer);
    Ok((Registry::default().with(log).with(traces), telemetry, export))
}

#[cfg(test)]
#[path = "setup_tests.rs"]
mod tests;

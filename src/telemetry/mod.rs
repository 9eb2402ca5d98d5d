//! Metrics, logs and traces.
//!
//! ```text
//!   Meter (a value) ──── exposition() ───── /metrics          one daemon's figures, then the process's
//!   tracing events ─┬── reloadable filter ── JSON or text ──── stderr
//!                   └── our own spans only ─ OTLP over gRPC ── collector
//! ```
//!
//! Imports only `process` of this crate. A [`Meter`] is a value, not a global, so two daemons in one process (a
//! hand-over test, the simulation) have separate metrics. Logs and traces are global: `main` calls
//! [`Telemetry::install`] once. The process's environment is an input: `trace_plan` decides whether, where and what is
//! traced, `trace_sending` how it is sent.

mod config;
#[cfg(test)]
pub(crate) mod fixtures;
mod gauges;
mod json;
mod logs;
mod meter;
pub mod names;
mod process;
mod propagation;
mod setup;
mod span_queue;
mod text;
mod trace_context;
mod trace_plan;
mod trace_sending;
mod traces;
mod variable;

pub use config::{LogFormat, LogsSection, TelemetrySection, TracesSection};
pub use gauges::{TermGauge, show_count};
pub use logs::{LogError, LogLevel, LogSettings, parse_level};
pub use meter::Meter;
pub use process::{ProcessFigures, exposition};
pub use propagation::Propagation;
pub use setup::{Telemetry, TelemetryError, TelemetrySettings, TelemetryState};
pub use trace_context::TraceContext;
pub use trace_plan::{Environment, TraceError, TraceSettings};

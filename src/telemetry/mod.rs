//! What the daemon tells about itself: metrics here and now, logs and traces set up once by `main`.
//!
//! Imports nothing of ours but `process`. A [`Meter`] is a value that is passed in, not a global: two daemons in one
//! process (a hand-over test, the simulation) keep their figures apart.

mod config;
mod meter;
pub mod names;

pub use config::{LogFormat, LogsSection, TelemetrySection, TracesSection};
pub use meter::Meter;

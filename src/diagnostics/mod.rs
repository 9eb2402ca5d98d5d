//! What the daemon shows: health, status and metrics over HTTP.

mod config;

pub use config::DiagnosticsSection;

//! Reports contents to people and metrics.
//!
//! ```text
//! report.rs    Events, figures, log lines      texts.rs   the words for failures: pure
//! waiting.rs   what waits: gauges, and a table of the status page
//! ```

pub mod report;
pub mod texts;
pub mod waiting;

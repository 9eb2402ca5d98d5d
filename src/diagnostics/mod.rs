//! What the daemon shows of itself over HTTP: health, metrics, status.
//!
//! ```text
//!   csi, cluster, election, queue, roles        (know nothing of this folder)
//!        │  closures, registered by `app`
//!        ▼
//!      Board ──report()──> StatusReport ──┬── /status.json
//!        │                                └── page ── /
//!        └──readiness / leases ── health ── /livez  /readyz  /healthz/leader-election
//!      Meter ─────────────────────────────────────────── /metrics
//! ```
//!
//! Decisions:
//! - **Pulled, not pushed.** The board holds closures and asks them when someone looks; nothing is kept up to date for
//!   nobody, and a page can't show what is no longer so.
//! - **Nothing here changes anything.** GET and HEAD only; the page's one form looks for something, its one script asks for the
//!   page again: safe to port-forward and to leave open.
//! - **Bounded answers.** However many volumes wait, the report carries the most urgent and the totals; `?find=` looks among all.
//! - It listens before the driver is ready, so that a slow driver looks like a slow driver and not like a dead daemon.
//!
//! Imports only `process` and `telemetry`.

mod backlog;
mod board;
mod config;
mod configuration;
mod health;
mod page;
mod report;
mod server;
mod shown;

pub use backlog::WorkState;
pub use board::{Board, Registered};
pub use config::DiagnosticsSection;
pub use configuration::{ConfigurationReport, FaultReport, RefusedBecause, RefusedReport};
pub use health::{Check, Verdict};
pub use page::render as render_page;
pub use report::{
    CacheReport, ConditionReport, DriverReport, DriverStatus, Fact, Overall, QueueReport, RoleReport, RoleStatus,
    StatusReport, TableReport, TaskFailureReport, WorkReport,
};
pub use server::serve;
pub use shown::Age;

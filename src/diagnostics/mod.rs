//! The daemon's HTTP server: health, metrics, status.
//!
//! ```text
//!   csi, cluster, election, queue, roles        (know nothing of this folder)
//!        │  closures, registered by `app`
//!        ▼
//!      Board ──report()──> StatusReport ──┬── /status.json
//!        │                                └── page ── /
//!        ├──liveness / readiness / leases ── health ── /livez  /readyz  /healthz/leader-election
//!        └──pages of roles ─────────────────────────── their paths
//!      Meter ─────────────────────────────────────────── /metrics
//! ```
//!
//! Decisions:
//! - **Pull, not push.** The board holds closures and calls them for each request; without requests there is no work,
//!   and a page never shows old data.
//! - **Read-only.** Only GET and HEAD; the page's one form searches, and its one script reloads the page: so it is safe
//!   to port-forward it and to leave it open.
//! - **Bounded answers.** The report has the most urgent items and the totals; `?find=` searches all items.
//! - The server starts before the driver is ready, so that a slow driver does not make the daemon look dead.
//!
//! Imports only `process` and `telemetry`.

mod backlog;
mod board;
mod config;
mod configuration;
mod door;
mod health;
mod overall;
mod page;
mod report;
mod server;
mod shown;
mod table;

pub use backlog::WorkState;
pub use board::{Board, Registered};
pub use config::DiagnosticsSection;
pub use configuration::{ConfigurationReport, FaultReport, RefusedBecause, RefusedReport};
pub use door::Door;
pub use health::{Check, Verdict};
pub use page::render as render_page;
pub use report::{
    ApiReport, CacheReport, ConditionReport, DoneReport, DriverReport, DriverStatus, FORMAT_VERSION, Fact,
    ObjectReport, Overall, QueueReport, RoleReport, RoleScope, RoleStatus, StatusReport, TaskFailureReport, WorkCounts,
    WorkReport,
};
pub use server::{serve, serve_routes};
pub use shown::Age;
pub(crate) use table::table;
pub use table::{Cell, Column, ColumnReport, ColumnType, Table, TableReport};

//! Wiring: the order in which services start, the roles of each Lease, and the shutdown.
//!
//! ```text
//! serve:    diagnostics ─> local roles ─> driver (wait) ─> cluster caches ─> Lease groups, one per Lease ─> stop
//!           (only if a role works with the cluster: clients, the shared connection to the driver, and all behind them)
//! Lease group: driver ready ─> elector ∥ (gate ─> term ─> role.serve ─> again) ─> hand back ─> again
//! reload:   file changed ─> judged ─> log, calls, Lease groups follow ─> roles that it touches begin anew, in their terms
//! ```

mod board;
mod driver_object;
mod environment;
mod lease_group;
mod lease_groups;
mod local_roles;
mod orphans;
mod plan;
mod reach;
mod reload;
mod role_states;
mod run;
mod serving;

pub use environment::{Environment, telemetry_settings};
pub use orphans::{OrphansError, OrphansReport, orphans};
pub use plan::{Plan, UNKNOWN_DRIVER};
pub use reach::{ReachError, Reached, reach};
pub use reload::{Configuration, ConfigurationHandle, needs_restart};
pub use run::{AppError, serve};

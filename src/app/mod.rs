//! Wiring: which service is started when, which role is served under which Lease, and how all of it stops.
//!
//! ```text
//! serve:    diagnostics ─> driver (wait) ─> cluster caches ─> campaigns, one per Lease ─> stop
//! campaign: driver ready ─> elector ∥ (gate ─> term ─> role.serve ─> again) ─> hand back ─> again
//! ```

mod board;
mod campaign;
mod environment;
mod plan;
mod role_states;
mod run;

pub use environment::{Environment, telemetry_settings};
pub use plan::Plan;
pub use run::{AppError, serve};

//! The right to write: one Lease per role.

mod config;

pub use config::LeaderElectionSection;

//! The real binary as a process of its own: signals, exit codes, rights, probes, and everything that a user can get wrong.
//!
//! Each test sets a stage of its own (the sandbox's API on loopback, its driver on a unix socket) and waits for what it
//! expects, never for time to pass. Order and speed are read from the test bed, not from the process under test: commits of the
//! store and calls of the driver share one time axis, [`commits`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "all of this is test code, also what is shared by tests"
)]

mod beside;
mod certificates;
mod collector;
mod commits;
mod credentials;
mod diagnostics;
mod drivers;
mod exposition;
mod for_all_drivers;
mod freeze;
mod handover;
mod handover_claims;
mod input;
mod logs;
mod lost;
mod outages;
mod program;
mod rbac;
mod rbac_claims;
mod rbac_snapshots;
mod reload;
mod sandbox;
mod schema;
mod signals;
mod startup;
mod theatre;
mod traces;
mod verbs;

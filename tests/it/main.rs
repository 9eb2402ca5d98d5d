//! The daemon in a whole world: an API over real HTTP, a driver over a real socket.
//!
//! | module | what it plays |
//! |---|---|
//! | [`attach`] | attach and detach as users see them; every kind of volume and access mode |
//! | [`drift`] | what the driver lost or made behind Kubernetes' back |
//! | [`driver`] | a driver that is late, dies, comes back, or comes back as less |
//! | [`errors`] | status, Events, status page and metrics of failures; back-off |
//! | [`failures`] | an API that restarts, forgets, cannot be reached or forbids; drivers, Leases and namesakes; and what must hold after each |
//! | [`leading`] | leases: who may work, and when |
//! | [`nodes`] | node ids, and nodes that come and go |
//! | [`provision`] | claims that become volumes, and volumes that go with them |
//! | [`secrets`] | publish secrets |
//! | [`supplies`] | that the cluster around claims is as [`supply`] takes for granted |
//! | [`volumes`] | the finalizer on volumes |
//! | [`sandbox_only`] | faults of the API, its audit log, rights, traces |
//! | [`rows`] | the regression list, row by row, and where each row is proven |
//!
//! [`world`] is all that a scenario may use, with [`balance`] and [`cable`]; [`ground`] is where it comes from. There are no sleeps: times are configured
//! short, and every wait is for a condition, with a bound.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may")]

mod attach;
mod balance;
mod cable;
mod drift;
mod driver;
mod errors;
mod failures;
mod ground;
mod http;
mod leading;
mod logs;
mod nodes;
mod objects;
mod provision;
mod provision_claims;
mod provision_deletion;
mod rows;
mod sandbox_only;
mod secrets;
mod supplies;
mod supplier;
mod supply;
mod volumes;
mod world;

//! One daemon that does the work of the Go CSI sidecars beside a storage driver on Kubernetes.
//!
//! # The flow
//!
//! ```text
//! config file ──> app (wiring) ──> services: csi · cluster · election · journal · queue · diagnostics · telemetry
//!                                       │
//!      watch event ──> cluster cache (deletes included) ──> role's triggers ──> work queue
//!                                       │
//!      worker takes a ticket ──> view from caches ──> next_step(view)  [pure]  ──> perform(step)  [I/O]
//!                                       │                                             │
//!                                    Settled  <──── the API's or driver's answer feeds the next view
//! ```
//!
//! The same loop for every role. Policy is a pure function of a view; I/O is a thin executor of steps.
//!
//! # The folders
//!
//! | folder | contents | may import of this crate |
//! |---|---|---|
//! | [`build`] | the version and the commit of this build | nothing |
//! | [`telemetry`] | the metrics of one daemon, logs, traces | `process` |
//! | [`csi`] | the one connection to the driver, and the short ones of roles that need no cluster: handshake, RPCs, what each gRPC code means, one operation per volume | `process`, `telemetry`, `proto` |
//! | [`cluster`] | the Kubernetes API: clients, its outages, shared caches, patches with preconditions, events, RBAC | `process`, `telemetry` |
//! | [`translation`] | in-tree volumes as the CSI drivers see them that have taken their plugins over, and back | `cluster` |
//! | [`election`] | Leases, terms, and the right to write as a value | `process`, `telemetry`, `cluster` |
//! | [`journal`] | what a role asks the driver for, durable before it asks: a write-ahead log in ConfigMaps | `process`, `telemetry`, `cluster`, `election` |
//! | [`queue`] | per-key exclusivity, back-off, causes, lanes | `process`, `telemetry` |
//! | [`diagnostics`] | status board, probes, metrics, status page | `process`, `telemetry` |
//! | [`config`] | one file and the environment, all errors at once; composes the folders' sections | `process`, the sections |
//! | [`roles`] | the sidecars' work, one folder each; `ROLES` is the only list, and nothing else names a role | the services, `config` |
//! | [`app`] | start and stop of all services, and the roles of each Lease | everything above |
//! | [`migrate`] | a workload with Go sidecars to one with this daemon: configuration, rights, patched manifest | `process`, `config`, `roles`, `app` |
//! | [`cli`] | arguments to a command | `process`, `config` |
//! | `sandbox` | the demo, and the test bed of the tests: the daemon beside what `crates/sandbox` plays (feature `sandbox`) | `app` and below |
//! | `testing` | what the unit tests of several folders use | `process` |
//!
//! Two crates stand below:
//!
//! | crate | contents |
//! |---|---|
//! | `crates/base` | [`process`]: clock, random numbers, ids as keys, named tasks, byte streams, listeners, proxies, watched values, permits, kubectl's YAML, which failures are worth a warning, the trait of configuration sections; [`proto`]: the CSI messages, generated; quantities, names of gRPC codes and of in-tree plugins |
//! | `crates/sandbox` | a Kubernetes API, the controllers that storage needs, a driver and a network inside the process: of the daemon it knows nothing |
//!
//! `tests/rules/layering.rs` checks the table. It also checks that a file which calls itself pure in its first lines does no
//! I/O and uses no clock, and that files do not import each other in a cycle.
//!
//! # Decisions
//!
//! - **The right to write is a value.** A role writes only through the verbs of [`roles::kit::Io`], whose clients are tied to its
//!   term. A lost Lease ends that term: not the process, not the other roles.
//! - **Handlers return an outcome, the queue acts.** A dropped ticket is a retry; only success clears a cause.
//! - **Wire in two phases.** `load` declares and does no I/O, so `check` works offline; `serve` runs.
//! - **Our own writes go into the cache at once** and wake no key, so the next observation sees them and they end no
//!   back-off.
//! - **The daemon applies configuration changes while it runs**, as a whole or not at all: an affected role restarts
//!   within its term, and the other roles are not affected.
//! - **Tests fake the network, never the types.** Tests run against the sandbox's API over HTTP and its driver over
//!   gRPC; the simulation runs the same daemon on a simulated network and clock.

pub mod app;
pub mod build;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod csi;
pub mod diagnostics;
pub mod election;
pub mod journal;
pub mod migrate;
pub mod queue;
pub mod roles;
#[cfg(feature = "sandbox")]
pub mod sandbox;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod translation;

pub use base::{process, proto};

//! What needs more than a Rust toolchain, in one executable that `cargo test` leaves alone. Each module has a recipe of its name,
//! which brings what it needs, and plays it: `just chart`.
//!
//! | module | what it needs | what it shows |
//! |---|---|---|
//! | [`chart`] | Helm, a control plane, Prometheus | the Helm chart |
//! | [`cluster`] | a control plane, the Go sidecars | what only a real control plane can show |
//! | [`image`] | what `just image` has built | the content of the image |
//! | [`kubectl`] | kubectl | the sandbox as kubectl's server |
//! | [`kubernetes_suite`] | the same as `node`, Kubernetes' External Storage suite | each spec of it that applies |
//! | [`node`] | root, a control plane, kubelets, containerd, runc | pods that mount, on two nodes |
//! | [`page`] | Chromium | the status page |
//! | [`translation`] | csi-translation-lib, kubectl | in-tree volumes, and YAML |
//!
//! The others are parts of `tests/it`, `tests/process` and `tests/cluster` that these share. [`records`] is what holds of each of them that has
//! a control plane.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and so may its helpers; a suite may print, and read its own input"
)]

#[path = "../cluster/accounts.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod accounts;
#[path = "../it/attaching.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod attaching;
#[path = "../it/balance.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod balance;
#[path = "../it/burst.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod burst;
#[path = "../it/cable.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod cable;
#[path = "../chart/mod.rs"]
mod chart;
#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../cluster/control_plane.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod control_plane;
#[path = "../process/exposition.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod exposition;
#[path = "../it/ground/mod.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod ground;
#[path = "../it/grouping.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod grouping;
#[path = "../it/http.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod http;
#[path = "../image/mod.rs"]
mod image;
#[path = "../it/journal.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod journal;
#[path = "../cluster/kinds.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod kinds;
#[path = "../kubectl/mod.rs"]
mod kubectl;
#[path = "../suite/mod.rs"]
mod kubernetes_suite;
#[path = "../it/load.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod load;
#[path = "../it/logs.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod logs;
#[path = "../it/monitoring.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod monitoring;
#[path = "../node/mod.rs"]
mod node;
#[path = "../it/objects.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod objects;
#[path = "../page/mod.rs"]
mod page;
#[path = "../process/program.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod program;
#[path = "../cluster/programs.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod programs;
#[path = "../records/mod.rs"]
mod records;
#[path = "../it/resizing.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod resizing;
#[path = "../it/rights.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod rights;
#[path = "../cluster/shared.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod shared;
#[path = "../cluster/shell.rs"]
mod shell;
#[path = "../it/snapshotting.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod snapshotting;
#[path = "../it/supplier.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod supplier;
#[path = "../it/supply.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod supply;
#[path = "../cluster/tls.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod tls;
#[path = "../translation/mod.rs"]
mod translation;
#[path = "../cluster/wire.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod wire;
#[path = "../it/world.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod world;

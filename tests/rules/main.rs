//! The repository's own rules: what holds of its files, and of what the program says of itself.
//!
//! ```text
//! layering     who may import whom, no circles, no file that runs away, every scenario on a real control plane too
//! citations    each citation of docs/spec exists, and each regression row names its tests
//! reference    config/reference.yaml and docs/configuration.md are the schema's
//! catalogue    docs/metrics.md is the catalogue's, and what is exposed is in it
//! examples     the configurations and flags of the documents
//! comparison   the parts of benches/compare that need no cluster
//! ages         how old the figures of the README are
//! ordering     its linker script
//! size         how many lines of code each folder has
//! status       docs/status.md names the tables of the status page
//! documents    links, commands, the release, the gates
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss,
    reason = "a test fails by panicking, and so may its helpers; counts are far below 2^52"
)]

mod ages;
mod catalogue;
mod citations;
mod comparison;
mod documents;
mod examples;
mod layering;
mod ordering;
mod reference;
mod size;
mod status;

// Files of others, which know each other from the root: of the comparison, and the lists of regression rows.
#[path = "../../benches/compare/arithmetic.rs"]
mod arithmetic;
#[path = "../it/attach_detach_rows.rs"]
mod attach_detach_rows;
#[path = "../../benches/compare/counted.rs"]
mod counted;
#[path = "../it/health_rows.rs"]
mod health_rows;
#[path = "../it/node_rows.rs"]
mod node_rows;
#[path = "../../benches/compare/order.rs"]
mod order;
#[path = "../it/provision_rows.rs"]
mod provision_rows;
#[path = "../../benches/compare/report/mod.rs"]
#[allow(dead_code, reason = "the bench names more contenders, and writes files")]
mod report;
#[path = "../it/resize_rows.rs"]
mod resize_rows;
#[path = "../it/rows.rs"]
mod rows;
#[path = "../../benches/compare/run.rs"]
mod run;
#[path = "../it/snapshot_holes.rs"]
mod snapshot_holes;
#[path = "../it/snapshot_rows.rs"]
mod snapshot_rows;

//! Nodes with a real kubelet and a real container runtime, and pods that mount: `just node`.
//!
//! ```text
//! inside.sh ── a machine of the tests' own: mounts, processes, network, control groups
//!    └── the tests ── control plane (etcd, API server, controllers)
//!           └── machine.sh, twice ── a node: mounts and processes of its own; containerd, kubelet, pods
//!                  storage ── one folder, the same on both: the demo driver's volumes
//! ```
//!
//! - `lab` starts all that, and installs the chart: the controller's pods and a pod on each node, with the rights that it renders.
//!   The driver beside the daemon is the sandbox's, as the verb `demo-driver`: it mounts folders, and files as devices.
//! - `vendor` is a driver with the Go sidecars, and `observer` looks on while `swap` moves it over to the daemon and back.
//! - `images` makes the images: there is no registry.
//! - Pods reach the API server at the address of the service `kubernetes`, through a network of their own. There is no DNS.
//! - Whatever ends the tests, SIGKILL included, ends all that they have started; logs of a failure stay in `target/tmp/node`.

use std::path::PathBuf;

mod attaching;
mod ended;
pub(crate) mod images;
mod installed;
pub(crate) mod lab;
mod lost;
pub(crate) mod machine;
mod mounted;
mod observer;
mod registration;
mod soak;
mod swap;
mod upheaval;
mod vendor;
mod workloads;
mod zones;

/// A variable that `inside.sh` sets.
fn variable(name: &str) -> String {
    told(name).unwrap_or_else(|| panic!("{name} is what tests/node/inside.sh sets: run `just node`"))
}

/// A number that the caller may give in a variable.
fn given(name: &str) -> Option<u64> {
    told(name).map(|told| told.parse().unwrap_or_else(|_| panic!("{name} is a number, not {told:?}")))
}

#[expect(clippy::disallowed_methods, reason = "the suite's own input")]
fn told(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The control group of everything here.
fn group() -> String {
    variable("NODE_GROUP")
}

/// What goes when the tests end.
fn folder() -> PathBuf {
    variable("NODE_FOLDER").into()
}

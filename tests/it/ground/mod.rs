//! Where the scenarios are played, which is chosen when they run: in the sandbox, or with `GROUND=cluster` on a real control
//! plane (`just cluster`).

#[allow(dead_code, reason = "some of its powers are for `tests/cluster`")]
pub(crate) mod cluster;
pub(crate) mod sandbox;

use std::sync::OnceLock;
use std::time::Duration;

use csi_control_plane::election::Container;
use csi_control_plane::process::{Clock, Dial};
use csi_control_plane::sandbox::driver::{Driver, Profile, Server};
use serde_json::Value;

use crate::cable::Cable;

pub(crate) use csi_control_plane::sandbox::testbed::Daemon;

/// Whether the scenarios are played on a real control plane.
pub(crate) fn is_a_cluster() -> bool {
    static CHOSEN: OnceLock<bool> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    let chosen = || std::env::var("GROUND").ok();
    *CHOSEN.get_or_init(|| match chosen().as_deref() {
        None | Some("sandbox") => false,
        Some("cluster") => true,
        Some(other) => panic!("GROUND is sandbox or cluster, not {other}"),
    })
}

/// How long an outage lasts.
pub(crate) fn outage() -> Duration {
    if is_a_cluster() { cluster::OUTAGE } else { sandbox::OUTAGE }
}

/// A cluster, and a driver with its daemons.
pub(crate) enum Ground {
    Sandbox(sandbox::Ground),
    Cluster(cluster::Ground),
}

/// Both grounds are set in these ways, each with a driver of this profile.
macro_rules! set {
    ($($(#[$told:meta])* $way:ident)*) => {
        $($(#[$told])*
        pub(crate) async fn $way(profile: Profile) -> Self {
            if is_a_cluster() {
                Self::Cluster(cluster::Ground::$way(profile).await)
            } else {
                Self::Sandbox(sandbox::Ground::$way(profile).await)
            }
        })*
    };
}

/// The same of either ground.
macro_rules! of_either {
    ($self:ident, $ground:ident => $what:expr) => {
        match $self {
            Self::Sandbox($ground) => $what,
            Self::Cluster($ground) => $what,
        }
    };
}

impl Ground {
    set! {
        /// On a cluster that other scenarios may use, too.
        set
        /// On a cluster of its own.
        alone
        /// The same as [`Ground::set`] where the API server stores the health of claims: Kubernetes does from 1.37 on.
        with_volume_health
        /// The same as [`Ground::set`] with the controllers of a cluster.
        with_controllers
        /// The same on a cluster of its own.
        alone_with_controllers
        /// The same where claims may name sources in other namespaces, with the kinds of snapshots and grants.
        with_sources_anywhere
        /// The same with the kinds of snapshots and a snapshot-controller.
        with_snapshots
    }

    /// All of the sandbox's powers, for what is never played elsewhere.
    pub(crate) fn sandbox(&self) -> &sandbox::Ground {
        match self {
            Self::Sandbox(ground) => ground,
            Self::Cluster(_) => panic!("only a sandbox can play this: leave it out where GROUND is cluster"),
        }
    }

    /// All of a real control plane's powers, for what is never played elsewhere: `tests/cluster`.
    #[allow(dead_code, reason = "the scenarios don't use them")]
    pub(crate) fn real(&self) -> &cluster::Ground {
        match self {
            Self::Cluster(ground) => ground,
            Self::Sandbox(_) => {
                panic!("only a real control plane can play this: set GROUND to cluster, as `just cluster` does")
            }
        }
    }

    /// Gives the cluster the kinds of snapshots and grants.
    pub(crate) async fn install_snapshots(&self) {
        of_either!(self, it => it.install_snapshots().await);
    }

    /// A client that may do everything.
    pub(crate) fn client(&self) -> kube::Client {
        of_either!(self, it => it.client())
    }

    /// The driver's backend, which survives its restarts.
    pub(crate) fn driver(&self) -> &Driver {
        of_either!(self, it => it.driver())
    }

    /// Kills the driver's process, and starts it again after `down`.
    pub(crate) async fn restart_driver(&self, down: Duration) {
        of_either!(self, it => it.restart_driver(down).await);
    }

    /// Starts a daemon on this host name with this configuration, and on a cluster with the rights that `check` prints for it.
    /// Daemons keep their Leases in `kube-system`.
    pub(crate) async fn start(&self, host: &str, yaml: &str) -> Daemon {
        of_either!(self, it => it.start(host, yaml).await)
    }

    /// The same in this container of a pod that is named as the host.
    pub(crate) async fn start_in(&self, host: &str, container: Container, yaml: &str) -> Daemon {
        of_either!(self, it => it.start_in_container(host, container, yaml).await)
    }

    /// Starts a daemon with exactly the rights of these `ClusterRole`s and `Role`s.
    pub(crate) async fn start_with(&self, host: &str, yaml: &str, roles: &[Value]) -> Daemon {
        of_either!(self, it => it.start_with(host, yaml, roles).await)
    }

    /// The clock that daemons and driver use.
    pub(crate) fn clock(&self) -> Clock {
        of_either!(self, it => it.clock())
    }

    /// Serves a node's own driver, for the daemon of this name.
    pub(crate) async fn start_driver(&self, node: &str, daemon: &str, driver: &Driver) -> (Server, Dial) {
        of_either!(self, it => it.start_driver(node, daemon, driver).await)
    }

    /// Starts a daemon that runs on a node, beside the driver that this leads to.
    pub(crate) async fn start_on(&self, host: &str, node: &str, yaml: &str, driver: Dial) -> Daemon {
        of_either!(self, it => it.start_on(host, node, yaml, driver).await)
    }

    /// Starts a daemon whose line to the API is in our hand.
    pub(crate) async fn start_wired(&self, host: &str, yaml: &str) -> (Daemon, Cable) {
        of_either!(self, it => it.start_wired(host, yaml).await)
    }

    /// Restarts the API server, as far as it can be, and calls `meanwhile` when there is none.
    pub(crate) async fn restart_api(&self, meanwhile: impl FnOnce()) {
        of_either!(self, it => it.restart_api(meanwhile).await);
    }

    /// Makes the API forget all versions but the latest.
    pub(crate) async fn forget(&self) {
        of_either!(self, it => it.forget().await);
    }

    /// Gives the daemon on a host exactly the rights of these `ClusterRole`s and `Role`s.
    pub(crate) async fn grant(&self, host: &str, roles: &[Value]) {
        of_either!(self, it => it.grant(host, roles).await);
    }
}

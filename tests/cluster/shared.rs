//! The control planes that tests share, each started by the first that asks for it.

use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::control_plane::{ControlPlane, Extent};

/// Each of these is for tests that neither restart it nor look at all of its objects.
macro_rules! shared {
    ($($(#[$told:meta])* $name:ident: $extent:ident;)*) => {
        $($(#[$told])*
        pub(crate) async fn $name() -> Arc<ControlPlane> {
            static SHARED: OnceCell<Arc<ControlPlane>> = OnceCell::const_new();
            let start = || async { Arc::new(ControlPlane::start(Extent::$extent).await) };
            Arc::clone(SHARED.get_or_init(start).await)
        })*
    };
}

shared! {
    /// The API server alone.
    api: Api;
    /// The same, which puts finalizers on what is in use.
    protecting: Protecting;
    /// The same, which stores the health of claims: from Kubernetes 1.37 on.
    with_volume_health: VolumeHealth;
    /// The same where claims may name sources in other namespaces.
    across_namespaces: AcrossNamespaces;
    /// With the controllers of a cluster.
    with_controllers: Controllers;
    /// The same where claims may name sources in other namespaces.
    with_controllers_across_namespaces: ControllersAcrossNamespaces;
    /// With controllers, the kinds of snapshots, and snapshot-controller.
    with_snapshots: ControllersWithSnapshots;
}

//! The same behaviours and scenarios on a real Kubernetes control plane: `just cluster`.
//!
//! ```text
//! build.sh        builds etcd, kube-apiserver & co. from the Go module proxy, once
//! assets          what it builds where there is an etcd and a kube-apiserver already
//! versions        what runs is what go.mod and the documents name
//! programs, tls,  a control plane of processes on loopback
//! control_plane
//! isolation       that it is reached from nowhere else, not without TLS, and shares nothing with one beside it
//! accounts        who may do what on it
//! wire            a wire to the server that counts, and can be cut
//! conformance     ../conformance on it: the oracle of the sandbox's API
//! kinds           snapshots and grants, which a cluster has only if somebody installs them
//! ground          ../it on it: its scenarios, with daemons that have the rights that `check` prints
//! claim_rights    what needs each of the provisioner's rights
//! rights          those rights, one by one: each role alone has enough, and each of them is missed
//! replicas        the binary as two processes: the leader is told to stop, or killed
//! killed          claims by the hundred, and five leaders that die while they provision them
//! zones           a StatefulSet across three zones, of which one has no room
//! sidecar         the Go sidecars as our daemons' neighbours
//! provisioners    beside csi-provisioner: the same requests, the same volumes, and each other's
//! resizers        beside csi-resizer: each takes over from the other in the middle
//! snapshotters    beside csi-snapshotter and the real snapshot-controller: each takes over from the other
//! room            beside csi-provisioner: the same capacity objects
//! peers           beside csi-attacher, and under csi-sanity
//! migration       `migrate`: its files, on the server and by kubectl, and the daemon that they make
//! pods, moving    `migrate`: its steps, word by word, there and back
//! parity          the metrics of both Go sidecars, scraped, beside ours
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, and so may its helpers"
)]

mod accounts;
mod assets;
mod claim_rights;
#[path = "../conformance/mod.rs"]
mod conformance;
mod connections;
mod control_plane;
mod ground;
mod isolation;
mod killed;
mod kinds;
mod kubectl;
mod migration;
mod moving;
mod parity;
mod peers;
mod pods;
#[allow(dead_code, reason = "some of its powers are for the comparison in `benches/compare`")]
mod programs;
mod provisioners;
mod replicas;
mod resizers;
mod rights;
mod room;
mod sidecar;
mod snapshotters;
mod tls;
mod versions;
#[allow(dead_code, reason = "some of its powers are for the comparison in `benches/compare`")]
mod wire;
mod zones;

#[path = "../it"]
mod scenarios {
    //! The scenarios that `tests/it` plays in the sandbox.
    pub(crate) mod attach;
    pub(crate) mod claims;
    pub(crate) mod deadlines;
    pub(crate) mod drift;
    pub(crate) mod driver;
    pub(crate) mod errors;
    pub(crate) mod failures;
    pub(crate) mod leading;
    pub(crate) mod migrated;
    pub(crate) mod modify;
    pub(crate) mod nodes;
    pub(crate) mod provision_across;
    pub(crate) mod provision_claims;
    pub(crate) mod provision_deletion;
    pub(crate) mod provision_failures;
    pub(crate) mod provision_journal;
    pub(crate) mod provision_journal_faults;
    pub(crate) mod provision_kept;
    pub(crate) mod provision_leaks;
    pub(crate) mod provision_nodes;
    pub(crate) mod provision_nodes_gone;
    pub(crate) mod provision_nodes_room;
    pub(crate) mod provision_nodes_told;
    pub(crate) mod provision_nodes_volumes;
    pub(crate) mod provision_owed;
    pub(crate) mod provision_secrets;
    pub(crate) mod provision_sources;
    pub(crate) mod provision_sources_unseen;
    pub(crate) mod provision_topology;
    pub(crate) mod provision_twins;
    pub(crate) mod reload;
    pub(crate) mod resize;
    pub(crate) mod resize_around;
    pub(crate) mod resize_quota;
    pub(crate) mod secrets;
    pub(crate) mod snapshot_around;
    pub(crate) mod snapshot_cuts;
    pub(crate) mod snapshot_deletions;
    pub(crate) mod snapshot_leaks;
    pub(crate) mod snapshot_readiness;
    pub(crate) mod supplies;
    pub(crate) mod volumes;
}
#[path = "../it/balance.rs"]
mod balance;
#[path = "../it/burst.rs"]
mod burst;
#[path = "../it/cable.rs"]
mod cable;
#[path = "../process/exposition.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests of the process alone")]
mod exposition;
#[path = "../it/http.rs"]
mod http;
#[path = "../it/journal.rs"]
mod journal;
#[path = "../it/logs.rs"]
mod logs;
#[path = "../it/objects.rs"]
mod objects;
#[path = "../process/program.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests of the process alone")]
mod program;
#[path = "../it/resizing.rs"]
mod resizing;
#[path = "../it/snapshotting.rs"]
mod snapshotting;
#[path = "../it/supplier.rs"]
mod supplier;
#[path = "../it/supply.rs"]
#[allow(dead_code, reason = "as the world's")]
mod supply;
#[path = "../it/world.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios that only a sandbox can play")]
mod world;

use std::sync::Arc;

use futures::FutureExt as _;
use tokio::sync::OnceCell;

use conformance::dialogue::Server;
use control_plane::{ControlPlane, Extent};

/// The API server that tests share which neither restart it nor look at all of its objects.
async fn shared() -> Arc<ControlPlane> {
    static SHARED: OnceCell<Arc<ControlPlane>> = OnceCell::const_new();
    Arc::clone(SHARED.get_or_init(|| async { Arc::new(ControlPlane::start(Extent::Api).await) }).await)
}

/// The same with controllers.
async fn shared_with_controllers() -> Arc<ControlPlane> {
    static SHARED: OnceCell<Arc<ControlPlane>> = OnceCell::const_new();
    let start = || async { Arc::new(ControlPlane::start(Extent::Controllers).await) };
    Arc::clone(SHARED.get_or_init(start).await)
}

/// The same where claims may name sources in other namespaces.
async fn shared_across_namespaces() -> Arc<ControlPlane> {
    static SHARED: OnceCell<Arc<ControlPlane>> = OnceCell::const_new();
    let start = || async { Arc::new(ControlPlane::start(Extent::AcrossNamespaces).await) };
    Arc::clone(SHARED.get_or_init(start).await)
}

/// A server for the conformance list.
struct Standing {
    server: Server,
}

impl Standing {
    async fn of(control_plane: Arc<ControlPlane>) -> Self {
        let client = control_plane.client().await;
        let stranger = control_plane.stranger().await;
        let gatekeeper = client.clone();
        let admit = Arc::new(move |namespace: String, name: String, manifests: String| {
            let client = gatekeeper.clone();
            async move { accounts::token(&client, &namespace, &name, &manifests).await }.boxed()
        });
        let installer = client.clone();
        let install = Arc::new(move || {
            let client = installer.clone();
            async move { kinds::install(&client).await }.boxed()
        });
        let forget = Arc::new(move || {
            let control_plane = Arc::clone(&control_plane);
            async move {
                control_plane.compact().await;
                // Its memory of old versions outlives etcd's.
                control_plane.restart_api(|| {}).await;
            }
            .boxed()
        });
        Self { server: Server { client, stranger, admit, forget, install } }
    }
}

/// Shared, for cases that only talk.
async fn talking() -> Standing {
    Standing::of(shared().await).await
}

/// For a case about what the server itself puts on what is in use.
async fn protecting() -> Standing {
    static SHARED: OnceCell<Arc<ControlPlane>> = OnceCell::const_new();
    let start = || async { Arc::new(ControlPlane::start(Extent::Protecting).await) };
    Standing::of(Arc::clone(SHARED.get_or_init(start).await)).await
}

/// For a case that makes its server forget or learn.
async fn forgetting() -> Standing {
    Standing::of(Arc::new(ControlPlane::start(Extent::Api).await)).await
}

conformance::conformance_on!(crate::talking, crate::forgetting, crate::protecting);

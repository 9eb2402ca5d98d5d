//! Tests of the chart with Helm, `check` and a real API server: `just chart`.
//!
//! ```text
//! helm       runs it; a rendering is a list of objects
//! helm3      Helm's last major version makes the same of it
//! matrix     the sets of values in values/, those whose roles this daemon has
//! node       the driver's node plugin beside the controller
//! pods       what a pod looks like: probes, mounts, security, placement
//! names      a namespace 1234 or a name `yes` stays a text
//! options    host network, labels, the image's registry, the users' objects, `helm test`
//! rollout    which changes of the configuration replace the pods
//! rights     the rendered RBAC is what `check` prints for the rendered configuration
//! checked    the configurations that the daemon refuses are refused, in the same words
//! values     what is refused, and that the schema of `config` is the daemon's own
//! promql     reads the expressions of alerts and dashboard
//! watching   every metric and label in them exists; promtool checks the alerts and plays them
//! runbook    each alert is explained in docs/operations.md
//! scraping   a real Prometheus scrapes a living daemon; promtool checks the scrape
//! kept       deploy/ is what the chart renders
//! cluster    a server-side dry run of everything
//! monitors   the kinds of the Prometheus operator, as far as we use them
//! installed  the daemon at work under the rendered account: each role, each mode, nothing forbidden
//! lint       BuildKit's checks of the Dockerfile
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, and so may its helpers"
)]

#[path = "../cluster/accounts.rs"]
#[allow(dead_code, reason = "some of its powers are for the cluster tests")]
mod accounts;
#[path = "../it/cable.rs"]
#[allow(dead_code, reason = "some of its powers are for the cluster tests")]
mod cable;
mod checked;
mod cluster;
#[path = "../cluster/control_plane.rs"]
#[allow(dead_code, reason = "some of its powers are for the cluster tests")]
mod control_plane;
#[path = "../cluster/ground.rs"]
#[allow(dead_code, reason = "some of its powers are for the cluster tests")]
mod ground;
mod helm;
mod helm3;
#[path = "../it/http.rs"]
mod http;
mod installed;
mod kept;
#[path = "../cluster/kinds.rs"]
#[allow(dead_code, reason = "some of its powers are for the cluster tests")]
mod kinds;
mod lint;
mod matrix;
mod monitors;
mod names;
mod node;
#[path = "../it/objects.rs"]
#[allow(dead_code, reason = "some of its objects are for the scenarios")]
mod objects;
mod options;
mod pods;
#[path = "../cluster/programs.rs"]
#[allow(dead_code, reason = "some of its powers are for the cluster tests")]
mod programs;
mod promql;
mod rights;
mod rollout;
mod runbook;
mod scraping;
#[path = "../it/supply.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod supply;
#[path = "../cluster/tls.rs"]
mod tls;
mod values;
mod watching;
#[path = "../it/world.rs"]
#[allow(dead_code, reason = "some of its powers are for the scenarios")]
mod world;

use std::sync::Arc;

use tokio::sync::OnceCell;

use control_plane::{ControlPlane, Extent};

/// The API server that the tests share.
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

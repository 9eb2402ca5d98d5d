//! A role that works without the cluster, served beside a driver on a real unix socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::cluster::{ApiOptions, ClientOptions, ClusterAccess};
use crate::csi::{Csi, CsiOptions};
use crate::diagnostics::{Board, RoleReport, RoleScope, StatusReport};
use crate::process::{Clock, Dial, Rng, Tasks};
use crate::roles::{ClusterOnRequest, Kind, LocalContext, LocalRole, Registration, metrics};
use crate::sandbox::driver::{Driver, Listen, Profile, Server};

/// Longer than anything that is waited for, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// A folder with the driver's socket, and what a local role works with.
pub(crate) struct Beside {
    pub(crate) driver: Driver,
    pub(crate) context: LocalContext,
    folder: TempDir,
}

/// A role that is served. Dropping it kills it.
pub(crate) struct Serving {
    role: Arc<dyn LocalRole>,
    stop: CancellationToken,
    tasks: Tasks,
}

impl Beside {
    /// A driver that does not run yet.
    pub(crate) fn a_driver() -> Self {
        Self::a_driver_with(CsiOptions::default().timeout)
    }

    /// The same with this deadline of a call.
    pub(crate) fn a_driver_with(timeout: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("csi.sock");
        let (clock, rng, meter) = (Clock::system(), Rng::system(), metrics::meter());
        let csi = Csi::new(
            Dial::unix(socket.clone()),
            CsiOptions { timeout, ..CsiOptions::default() },
            meter.clone(),
            clock,
            rng.clone(),
        );
        let context = LocalContext {
            driver: csi.dialer(),
            endpoint: format!("unix://{}", socket.display()),
            // No test but those that set another asks it.
            cluster: ClusterOnRequest {
                access: ClusterAccess::Kubeconfig("/no/such/file".into()),
                clients: ClientOptions::default(),
                api: ApiOptions::default(),
                node: Some("node-1".to_owned()),
            },
            diagnostics: None,
            board: Board::new("0.0.0", clock),
            meter,
            clock,
            rng,
        };
        Self { driver: Driver::new(Profile::with_nodes(["node-1"]), clock), context, folder }
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The driver's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("csi.sock")
    }

    /// Starts the driver.
    pub(crate) async fn start_driver(&self) -> Server {
        Server::start(&self.driver, Listen::unix(self.socket(), 0o600)).await.unwrap()
    }

    /// Serves a role with this section.
    pub(crate) fn serve(&self, registration: &Registration, section: &Value) -> Serving {
        let Kind::Local(local) = &registration.kind else { panic!("{} needs the cluster", registration.name) };
        let role: Arc<dyn LocalRole> = Arc::from((local.load)(section).unwrap());
        let stop = CancellationToken::new();
        let (tasks, _) = Tasks::new("role");
        let (cx, ends, served) = (self.context.clone(), stop.clone(), Arc::clone(&role));
        tasks.spawn("serve", async move { served.serve(&cx, ends).await.unwrap() });
        Serving { role, stop, tasks }
    }

    /// The status report with the role in it.
    pub(crate) fn report(&self, role: &'static str) -> StatusReport {
        let _shown = self.context.board.role(move || RoleReport::serving(role, RoleScope::Local));
        self.context.board.report()
    }

    /// What the role tells of itself on the status page, if it is on the board.
    pub(crate) fn fact(&self, role: &'static str, name: &str) -> Option<String> {
        let facts = self.report(role).roles.into_iter().flat_map(|role| role.facts);
        facts.into_iter().find(|fact| fact.name == name).map(|fact| fact.value)
    }
}

impl Serving {
    /// Asks it to end, and waits until it has.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        until("the role ends", async || self.tasks.running().is_empty()).await;
    }

    /// Changes its section, as a changed configuration does. Says whether it is served on.
    pub(crate) fn take_over(&self, section: &Value) -> bool {
        self.role.take_over(section)
    }

    /// Ends it as SIGKILL does.
    pub(crate) fn kill(self) {
        drop(self);
    }
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let look = async {
        while !holds().await {
            sleep(PAUSE).await;
        }
    };
    assert!(timeout(PATIENCE, look).await.is_ok(), "never: {what}");
}

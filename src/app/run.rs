//! Starts everything in order, waits, and stops it in order: on one screen.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::cluster::{
    Api, ApiOptions, Caches, ClientOptions, Clients, ConnectError, EventRecorder, EventSource, Viewpoint,
};
use crate::config::{Config, Loaded};
use crate::csi::{Csi, CsiOptions, Driver, DriverState};
use crate::diagnostics::{self, Board};
use crate::election::LeaseSettings;
use crate::process::{Chain, Entropy, TaskEnd, TaskEnds, TaskFate, Tasks};
use crate::roles::{Instance, LoadError, ROLES, RoleContext};
use crate::telemetry::{Meter, names};

use super::board::{Leases, Shown};
use super::campaign::{Campaign, Hosted};
use super::environment::Environment;
use super::plan::{self, LoadedRoles};
use super::role_states::RoleStates;

/// The daemon could not start, or could not go on.
#[derive(Debug, Error)]
pub enum AppError {
    /// The API's address or credentials make no sense.
    #[error("cannot set up the connection to the Kubernetes API")]
    Cluster(#[source] ConnectError),
    /// A role's section cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The driver is not the one that we started with.
    #[error("cannot go on with this driver: {0}")]
    Driver(String),
    /// A service's task ended.
    #[error("task {} {}", .0.task, .0.fate)]
    TaskEnded(TaskEnd),
}

/// Runs the daemon until `stop`, then lets what is in flight end and hands the Leases back.
pub async fn serve(loaded: Loaded, environment: Environment, stop: CancellationToken) -> Result<(), AppError> {
    let (tasks, mut ends) = Tasks::new("app");
    let Environment { clock, ref entropy, ref meter, .. } = environment;
    let config = &loaded.config;
    meter.gauge(&names::BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);

    // Diagnostics first: a driver that is slow to start must not look like a daemon that is dead.
    let board = Board::new(env!("CARGO_PKG_VERSION"), clock);
    let diagnostics_stop = CancellationToken::new();
    if let Some(listener) = environment.diagnostics {
        let address: Option<SocketAddr> = listener.local_addr().ok();
        info!(address = address.map(tracing::field::display), "serving diagnostics");
        tasks
            .spawn("diagnostics", diagnostics::serve(listener, board.clone(), meter.clone(), diagnostics_stop.clone()));
    }
    tasks.spawn("upkeep", meter.clone().upkeep());

    let csi = Csi::new(environment.driver, csi_options(config), meter.clone(), clock, entropy.clone());
    let shown = Shown {
        csi: csi.clone(),
        endpoint: environment.endpoint,
        states: RoleStates::default(),
        leases: Leases::default(),
        clock,
    };
    let enabled: Vec<&'static str> =
        ROLES.iter().map(|role| role.name).filter(|name| loaded.roles.contains_key(name)).collect();
    shown.register(&board, &loaded.warnings, &enabled);
    let clients = Clients::connect(&environment.cluster, &client_options(config)).await.map_err(AppError::Cluster)?;

    info!(endpoint = shown.endpoint, "waiting for the driver");
    tasks.spawn("csi", csi.clone().run());
    let driver = tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        ready = ready(&csi) => ready?,
        end = essential_end(&mut ends, &board, meter) => return Err(AppError::TaskEnded(end)),
    };
    info!(driver = driver.name, version = driver.vendor_version(), capabilities = ?driver.capabilities.names(), "driver ready");

    let caches = Caches::new();
    let LoadedRoles { roles, .. } = plan::load(&loaded.roles, &caches)?;
    let mut instance = environment.instance;
    instance.namespace.get_or_insert_with(|| clients.namespace.clone());
    let view =
        Viewpoint { driver: &driver.name, namespace: instance.namespace.as_deref(), node: instance.node.as_deref() };
    caches.start(&clients, &view, &tasks, meter, clock, entropy.clone());
    shown.register_caches(&board, &caches);
    let api = Api::new(clients.work.clone(), &api_options(config), meter.clone());
    let source = EventSource { component: driver.name.clone(), instance: instance.host.clone() };
    let events = EventRecorder::new(api.clone(), source, meter.clone(), clock, entropy.clone());
    tasks.spawn("events", events.clone().run());

    let context = RoleContext {
        driver: driver.clone(),
        csi: csi.clone(),
        api,
        events,
        board: board.clone(),
        meter: meter.clone(),
        clock,
        entropy: entropy.clone(),
        instance,
    };
    let leases = LeaseFactory::new(config, &context.instance, entropy);
    let running = start_campaigns(roles, &driver, &leases, &shown, &context, &clients.election, &stop);
    let result = supervise(running, &csi, &mut ends, &board, meter, &stop).await;
    diagnostics_stop.cancel();
    info!("stopped");
    result
}

/// The campaigns in progress.
struct Running {
    /// Holds the campaigns' tasks.
    _tasks: Tasks,
    ends: TaskEnds,
    count: usize,
}

/// One campaign per Lease, with the roles that are led together.
fn start_campaigns(
    roles: Vec<(plan::Lease, Hosted)>,
    driver: &Driver,
    leases: &LeaseFactory<'_>,
    shown: &Shown,
    context: &RoleContext,
    election: &kube::Client,
    stop: &CancellationToken,
) -> Running {
    let (tasks, ends) = Tasks::new("campaign");
    let mut count = 0;
    for (lease, roles) in by_lease(roles, driver) {
        let settings = lease.clone().and_then(|name| leases.settings(name));
        for hosted in &roles {
            shown.states.lease(hosted.name, settings.as_ref().map(|settings| settings.name.as_str()));
        }
        let campaign = Campaign {
            lease: settings,
            election: election.clone(),
            roles,
            states: shown.states.clone(),
            leases: shown.leases.clone(),
            context: context.clone(),
            stop: stop.clone(),
        };
        tasks.spawn(lease.unwrap_or_else(|| "without-lease".to_owned()), campaign.run());
        count += 1;
    }
    Running { _tasks: tasks, ends, count }
}

/// Waits for the campaigns to end, or for something that the daemon cannot go on from.
async fn supervise(
    mut running: Running,
    csi: &Csi,
    ends: &mut TaskEnds,
    board: &Board,
    meter: &Meter,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let result = loop {
        tokio::select! {
            biased;
            Some(end) = running.ends.next(), if running.count > 0 => {
                running.count -= 1;
                if end.fate != TaskFate::Returned || !stop.is_cancelled() {
                    break Err(AppError::TaskEnded(end));
                }
            }
            () = stop.cancelled(), if running.count == 0 => break Ok(()),
            reason = fatal(csi) => break Err(AppError::Driver(reason)),
            end = essential_end(ends, board, meter) => break Err(AppError::TaskEnded(end)),
        }
    };
    if let Err(error) = &result {
        error!(error = %Chain(error), "stopping");
        // The other campaigns still hand their Leases back.
        stop.cancel();
        while running.count > 0 && running.ends.next().await.is_some() {
            running.count -= 1;
        }
    }
    result
}

/// Waits for the driver to be ready for the first time.
async fn ready(csi: &Csi) -> Result<std::sync::Arc<Driver>, AppError> {
    let mut states = csi.state();
    loop {
        match &*states.borrow_and_update() {
            DriverState::Ready(driver) => return Ok(driver.clone()),
            DriverState::Fatal(reason) => return Err(AppError::Driver(reason.clone())),
            DriverState::Connecting { .. } | DriverState::Lost { .. } => {}
        }
        if states.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Resolves if another driver answers on the socket.
async fn fatal(csi: &Csi) -> String {
    let mut states = csi.state();
    loop {
        if let DriverState::Fatal(reason) = &*states.borrow_and_update() {
            return reason.clone();
        }
        if states.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Resolves when a service's task ends: none of them should while the daemon runs.
async fn essential_end(ends: &mut TaskEnds, board: &Board, meter: &Meter) -> TaskEnd {
    let Some(end) = ends.next().await else { return std::future::pending().await };
    meter.counter(&names::TASK_FAILURES, &[("task", &end.task)]).increment(1);
    board.task_failed(&end);
    end
}

fn by_lease(roles: Vec<(plan::Lease, Hosted)>, driver: &Driver) -> BTreeMap<Option<String>, Vec<Hosted>> {
    let mut grouped: BTreeMap<Option<String>, Vec<Hosted>> = BTreeMap::new();
    for (lease, hosted) in roles {
        grouped.entry(lease.name(&driver.name)).or_default().push(hosted);
    }
    grouped
}

/// Makes each Lease's settings.
struct LeaseFactory<'a> {
    config: &'a Config,
    namespace: String,
    identity: String,
}

impl<'a> LeaseFactory<'a> {
    /// The namespace is the configured one, else the pod's, else the kubeconfig's.
    fn new(config: &'a Config, instance: &Instance, entropy: &Entropy) -> Self {
        let configured = config.leader_election.namespace.clone();
        let namespace = configured.or_else(|| instance.namespace.clone()).unwrap_or_default();
        Self { config, namespace, identity: crate::election::identity(&instance.host, entropy) }
    }

    /// `None` if election is switched off.
    fn settings(&self, name: String) -> Option<LeaseSettings> {
        let section = &self.config.leader_election;
        section.enabled.then(|| LeaseSettings {
            namespace: self.namespace.clone(),
            name,
            identity: self.identity.clone(),
            lease_duration: section.lease_duration,
            renew_deadline: section.renew_deadline,
            retry_period: section.retry_period,
            labels: section.labels.clone(),
        })
    }
}

fn csi_options(config: &Config) -> CsiOptions {
    CsiOptions {
        timeout: config.csi.timeout,
        max_message_bytes: config.csi.max_message_bytes,
        max_log_length: config.csi.max_log_length,
    }
}

fn client_options(config: &Config) -> ClientOptions {
    ClientOptions { response_timeout: config.kubernetes.request_timeout, ..ClientOptions::default() }
}

fn api_options(config: &Config) -> ApiOptions {
    ApiOptions { max_in_flight: config.kubernetes.max_in_flight, timeout: config.kubernetes.request_timeout }
}

//! Starts all services in order, waits, and stops them in order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::build;
use crate::cluster::{
    Api, ApiOptions, Caches, ClientOptions, Clients, ClusterAccess, ConnectError, EventRecorder, EventSource, InTree,
    Viewpoint,
};
use crate::config::{Config, Loaded};
use crate::csi::{Csi, Driver, DriverState};
use crate::diagnostics::{self, Board, Door};
use crate::process::{ErrorChain, Proxies, Rng, TaskEnd, TaskEnds, Tasks};
use crate::roles::{ClusterOnRequest, Instance, LoadError, LocalContext, RoleContext, needs_cluster, needs_driver};
use crate::telemetry::{Meter, Propagation, names};

use super::board::{Leases, StatusEntries, StatusSource};
use super::environment::{DEFAULT_NAMESPACE, Environment};
use super::lease_group::count_task_failure;
use super::lease_groups::{LeaseFactory, LeaseGroups};
use super::local_roles::{LoadedLocal, LocalRoles};
use super::plan::{self, LoadedRole};
use super::reload::{Change, Dependencies, Reloader};
use super::role_states::RoleStates;

/// The daemon could not start, or could not continue.
#[derive(Debug, Error)]
pub enum AppError {
    /// The API's address or credentials are invalid.
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

/// The task that serves diagnostics, and its full name.
const DIAGNOSTICS: &str = "diagnostics";
const DIAGNOSTICS_TASK: &str = "app.diagnostics";
/// Limit for the last answers of the diagnostics: longer than the server's own limit.
const DIAGNOSTICS_END: Duration = Duration::from_secs(4);

/// Runs the daemon until `stop`, then waits for work in flight and releases the Leases.
pub async fn serve(loaded: Loaded, environment: Environment, stop: CancellationToken) -> Result<(), AppError> {
    let roles: Vec<&str> = loaded.roles.keys().copied().collect();
    info!(version = build::VERSION, commit = build::COMMIT, roles = roles.join(", "), "starting");
    for warning in &loaded.warnings {
        warn!(warning, "configuration");
    }
    let (tasks, mut ends) = Tasks::new("app");
    let diagnostics_stop = CancellationToken::new();
    let result = work(loaded, environment, stop, &tasks, &mut ends, &diagnostics_stop).await;
    diagnostics_stop.cancel();
    diagnostics_end(&tasks, &mut ends).await;
    info!("stopped");
    result
}

/// Waits for the last answers, because a scrape may be in progress.
async fn diagnostics_end(tasks: &Tasks, ends: &mut TaskEnds) {
    let is_over = || !tasks.running().iter().any(|task| task == DIAGNOSTICS_TASK);
    let answered = async { while !is_over() && ends.next().await.is_some() {} };
    if timeout(DIAGNOSTICS_END, answered).await.is_err() {
        warn!("the diagnostics did not end in time");
    }
}

async fn work(
    loaded: Loaded,
    environment: Environment,
    stop: CancellationToken,
    tasks: &Tasks,
    ends: &mut TaskEnds,
    diagnostics_stop: &CancellationToken,
) -> Result<(), AppError> {
    let Environment { clock, ref rng, ref meter, .. } = environment;
    let config = &loaded.config;
    meter.gauge(&names::BUILD_INFO, &[("version", build::VERSION), ("commit", build::COMMIT)]).set(1.0);

    // Diagnostics start first, so that a slow driver does not make the daemon look dead.
    let board = Board::new(build::VERSION, clock);
    let diagnostics: Option<SocketAddr> = environment.diagnostics.as_ref().and_then(Door::address);
    if let Some(listener) = environment.diagnostics {
        info!(address = diagnostics.map(tracing::field::display), "serving diagnostics");
        tasks.spawn(DIAGNOSTICS, diagnostics::serve(listener, board.clone(), meter.clone(), diagnostics_stop.clone()));
    }
    tasks.spawn("upkeep", meter.clone().upkeep());

    let propagation = environment.telemetry.propagation;
    let csi = Csi::new(environment.driver, config.csi.options(propagation), meter.clone(), clock, rng.clone());
    csi.know_successors(|name| InTree::of_driver(name).is_some());
    let status = StatusSource {
        csi: csi.clone(),
        endpoint: environment.endpoint.clone(),
        states: RoleStates::default(),
        leases: Leases::default(),
        clock,
    };
    let (api_options, client_options) =
        (ApiOptions::from(&config.kubernetes), client_options(config, environment.proxies));
    let is_clustered = needs_cluster(loaded.roles.keys());
    let beside_driver = LocalContext {
        driver: csi.dialer(),
        endpoint: environment.endpoint,
        cluster: ClusterOnRequest {
            access: environment.cluster.clone(),
            clients: client_options.clone(),
            api: api_options.clone(),
            node: environment.instance.node.clone(),
        },
        diagnostics,
        board: board.clone(),
        meter: meter.clone(),
        clock,
        rng: rng.clone(),
    };
    let mut daemon = Daemon {
        local_roles: LocalRoles::new(beside_driver, status.states.clone(), &stop),
        reloader: Reloader::new(environment.configuration, loaded, clock, meter.clone()),
        csi,
        status,
        board: board.clone(),
        entries: StatusEntries::default(),
        caches: Caches::new(),
        lease_groups: None,
        propagation,
    };
    daemon.status.register(&board, daemon.reloader.standing());
    if !environment.telemetry.warnings.is_empty() {
        board.warnings(environment.telemetry.warnings).forever();
    }
    board.tasks(tasks.view()).forever();
    daemon.status.configured(&board, &mut daemon.entries, daemon.reloader.current());
    let _ = daemon.local_roles.change([], plan::load_local(&daemon.reloader.current().roles)?);
    let result = async {
        if is_clustered {
            let access = ClusterEnvironment {
                access: environment.cluster,
                clients: client_options,
                api: api_options,
                instance: environment.instance,
                rng: rng.clone(),
            };
            if !daemon.join_cluster(access, tasks, ends, meter, &stop).await? {
                return Ok(());
            }
        } else {
            info!("no role needs the cluster: no connection to its API");
        }
        daemon.supervise(ends, meter, &stop).await
    };
    let result = result.await;
    // They outlive the roles of the cluster, whose work in flight may take a while to end; with `stop` they have begun to end.
    daemon.local_roles.end().await;
    result
}

/// What only the roles of the cluster need.
struct ClusterEnvironment {
    access: ClusterAccess,
    clients: ClientOptions,
    api: ApiOptions,
    instance: Instance,
    rng: Rng,
}

/// The parts of the daemon that a new configuration can change.
struct Daemon {
    /// The roles that work without the cluster.
    local_roles: LocalRoles,
    reloader: Reloader,
    csi: Csi,
    status: StatusSource,
    board: Board,
    entries: StatusEntries,
    caches: Caches,
    /// `None`: the driver is not ready yet, or no role works with the cluster.
    lease_groups: Option<LeaseGroups>,
    propagation: Propagation,
}

impl Daemon {
    /// Connects to the cluster and the driver, and starts the Lease groups. `false`: `stop` came first.
    async fn join_cluster(
        &mut self,
        cluster: ClusterEnvironment,
        tasks: &Tasks,
        ends: &mut TaskEnds,
        meter: &Meter,
        stop: &CancellationToken,
    ) -> Result<bool, AppError> {
        let ClusterEnvironment { access, clients, api, mut instance, rng } = cluster;
        let (board, clock) = (self.board.clone(), self.status.clock);
        self.status.register_cluster(&board);
        let clients = Clients::connect(&access, &clients).await.map_err(AppError::Cluster)?;
        tasks.spawn("credentials", clients.credentials.clone().renew());
        StatusSource::register_credentials(&board, &clients.credentials, clock);

        let Some(driver) = self.driver(tasks, ends, meter, stop).await? else { return Ok(false) };

        let roles = plan::load(&self.reloader.current().roles, &self.caches)?;
        instance.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.to_owned());
        let view = Viewpoint {
            driver: &driver.name,
            namespace: instance.namespace.as_deref(),
            node: instance.node.as_deref(),
        };
        self.caches.start(&clients, &view, tasks, meter, clock, rng.clone());
        self.status.register_caches(&board, &self.caches);
        StatusSource::register_operations(&board, &driver.operations);
        clients.outage.measure(meter);
        self.status.register_outage(&board, &clients.outage);
        let api = Api::new(clients.work.clone(), &api, meter.clone()).with_outage(&clients.outage);
        // Each role makes it its own: see `RoleContext::of_role`.
        let source = EventSource { component: driver.name.clone(), instance: instance.host.clone() };
        let events = EventRecorder::new(api.clone(), source, meter.clone(), clock, rng.clone());
        tasks.spawn("events", events.clone().run());

        let meter = meter.clone();
        let csi = self.csi.clone();
        let context = RoleContext { driver, csi, api, events, board, meter, clock, rng: rng.clone(), instance };
        let election = self.reloader.current().config.leader_election.clone();
        let leases = LeaseFactory::new(&election, &context.instance, &rng);
        let mut lease_groups =
            LeaseGroups::new(leases, self.status.clone(), context, clients.election.clone(), stop.clone());
        lease_groups.change([], roles, &election);
        self.lease_groups = Some(lease_groups);
        Ok(true)
    }

    /// Connects to the driver, and waits until it is ready. `None`: `stop` came first.
    async fn driver(
        &mut self,
        tasks: &Tasks,
        ends: &mut TaskEnds,
        meter: &Meter,
        stop: &CancellationToken,
    ) -> Result<Option<Arc<Driver>>, AppError> {
        let (csi, board) = (self.csi.clone(), self.board.clone());
        if !needs_driver(self.reloader.current().roles.keys()) {
            info!("no role needs the driver: no connection to it");
            return Ok(Some(csi.run_without_driver()));
        }
        info!(endpoint = self.status.endpoint, "waiting for the driver");
        tasks.spawn("csi", csi.clone().run());
        let ready = ready(&csi);
        tokio::pin!(ready);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                ready = &mut ready => return ready.map(Some),
                end = essential_end(ends, &board, meter) => return Err(AppError::TaskEnded(end)),
                ended = self.local_roles.ended() => ended.map_err(AppError::TaskEnded)?,
                (loaded, change) = self.reloader.next(Dependencies::new) => self.apply(loaded, change),
            }
        }
    }

    /// Waits for all roles to end, or for a fatal error.
    async fn supervise(
        &mut self,
        ends: &mut TaskEnds,
        meter: &Meter,
        stop: &CancellationToken,
    ) -> Result<(), AppError> {
        let result = loop {
            let idle = self.lease_groups.as_ref().is_none_or(LeaseGroups::is_idle);
            let depends_on = self.lease_groups.as_ref().map(LeaseGroups::depends_on).unwrap_or_default();
            tokio::select! {
                biased;
                ended = ended(&mut self.lease_groups), if !idle => if let Err(end) = ended {
                    break Err(AppError::TaskEnded(end));
                },
                () = stop.cancelled(), if idle => break Ok(()),
                reason = fatal(&self.csi) => break Err(AppError::Driver(reason)),
                end = essential_end(ends, &self.board, meter) => break Err(AppError::TaskEnded(end)),
                ended = self.local_roles.ended() => if let Err(end) = ended {
                    break Err(AppError::TaskEnded(end));
                },
                (loaded, change) = self.reloader.next(|| depends_on.clone()), if !stop.is_cancelled() => {
                    self.apply(loaded, change);
                }
            }
        };
        if result.is_err() {
            // The caller logs the reason once. The other Lease groups still release their Leases.
            info!("stopping after an error: waiting for work in flight, then releasing the leases");
            stop.cancel();
            while self.lease_groups.as_ref().is_some_and(|lease_groups| !lease_groups.is_idle()) {
                let _ = ended(&mut self.lease_groups).await;
            }
        }
        result
    }

    /// Applies a checked configuration. All steps that can fail come first.
    fn apply(&mut self, loaded: Loaded, mut change: Change) {
        let anew = || change.added.iter().chain(&change.restarted);
        let clustered = anew().filter(|_| self.lease_groups.is_some());
        let roles: Result<Vec<LoadedRole>, LoadError> =
            clustered.filter_map(|name| plan::load_one(name, &loaded.roles, &self.caches).transpose()).collect();
        let local: Result<Vec<LoadedLocal>, LoadError> =
            anew().filter_map(|name| plan::load_one_local(name, &loaded.roles).transpose()).collect();
        let (roles, local) = match (roles, local) {
            (Ok(roles), Ok(local)) => (roles, local),
            (Err(error), _) | (_, Err(error)) => return self.reloader.failed(&error),
        };
        if let Some(log) = self.reloader.level().filter(|_| change.log) {
            let level = &loaded.config.telemetry.logs.level;
            // Logged before the change, because the new level may hide it.
            info!(level, "the log's level changes");
            if let Err(error) = log.set(level) {
                error!(error = %ErrorChain(&error), "the log's level stays");
            }
        }
        if change.calls {
            self.csi.set_options(loaded.config.csi.options(self.propagation));
        }
        if let Some(lease_groups) = &mut self.lease_groups {
            lease_groups.change(change.removed.iter().copied(), roles, &loaded.config.leader_election);
        }
        let served_on = self.local_roles.change(change.removed.iter().copied(), local);
        change.restarted.retain(|role| !served_on.contains(role));
        for role in &change.removed {
            self.status.states.forget(role);
        }
        self.status.configured(&self.board, &mut self.entries, &loaded);
        self.reloader.applied(loaded, change);
    }
}

/// Waits for the driver to be ready for the first time.
async fn ready(csi: &Csi) -> Result<Arc<Driver>, AppError> {
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

/// Waits for a Lease group to end. `Err`: it ended unexpectedly.
async fn ended(lease_groups: &mut Option<LeaseGroups>) -> Result<(), TaskEnd> {
    match lease_groups {
        Some(lease_groups) => lease_groups.ended().await,
        None => std::future::pending().await,
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
    count_task_failure(&end, board, meter);
    end
}

pub(super) fn client_options(config: &Config, proxies: Proxies) -> ClientOptions {
    ClientOptions { response_timeout: config.kubernetes.request_timeout, proxies, ..ClientOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn the_last_answers_of_the_diagnostics_are_waited_for_within_bounds() {
        for (needed, waited) in [(0, 0), (3, 3), (3600, 4)] {
            let (tasks, mut ends) = Tasks::new("app");
            tasks.spawn("upkeep", std::future::pending());
            tasks.spawn(DIAGNOSTICS, sleep(Duration::from_secs(needed)));
            let begun = Instant::now();
            diagnostics_end(&tasks, &mut ends).await;
            assert_eq!(begun.elapsed().as_secs(), waited);
        }
        let (tasks, mut ends) = Tasks::new("app");
        tasks.spawn("upkeep", std::future::pending());
        diagnostics_end(&tasks, &mut ends).await;
    }
}

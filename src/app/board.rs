//! Shows the services on the status board: they never import diagnostics themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cluster::{Caches, Credentials, Outage, OutageStatus};
use crate::config::Loaded;
use crate::csi::{CallActivity, Csi, DriverState, VolumeActivity, VolumeLocks};
use crate::diagnostics::{
    Age, ApiReport, Board, CacheReport, DriverReport, DriverStatus, ObjectReport, Registered, RoleReport, RoleScope,
    RoleStatus, Table, table,
};
use crate::election::ElectionView;
use crate::process::Clock;
use crate::roles::needs_cluster;

use super::reload::Standing;
use super::role_states::{Phase, RoleStates};

/// The volumes with running operations.
const VOLUME_CALLS: Table = table! {
    "volumeCalls", "Calls that change a volume":
        text("volume", "volume"), seconds("runningSeconds", "running for"), count("waiting", "waiting")
};

/// The RPCs that are limited.
const LIMITED_CALLS: Table = table! {
    "limitedCalls", "RPCs that the driver gets fewer of at once, because it has refused some":
        text("rpc", "RPC"), count("limit", "at once"), seconds("limitedSeconds", "for"),
        text("lastRefusal", "last refusal"), count("inFlight", "in flight"), count("waiting", "waiting")
};

/// The electors of the Lease groups in progress, by Lease.
#[derive(Debug, Clone, Default)]
pub(super) struct Leases(Arc<Mutex<BTreeMap<String, ElectionView>>>);

impl Leases {
    /// Shows the elector of this Lease group instead of the last one's.
    pub(super) fn show(&self, lease: String, elector: ElectionView) {
        self.0.lock().insert(lease, elector);
    }

    fn find(&self, lease: &str) -> Option<ElectionView> {
        self.0.lock().get(lease).cloned()
    }

    fn health(&self) -> Result<(), String> {
        let electors = self.0.lock().clone();
        let sick: Vec<String> =
            electors.values().filter_map(|elector| elector.health().err().map(|error| error.to_string())).collect();
        if sick.is_empty() { Ok(()) } else { Err(sick.join("; ")) }
    }
}

/// What is on the board of a configuration, until the next.
#[derive(Debug, Default)]
pub(super) struct StatusEntries {
    roles: BTreeMap<&'static str, Registered>,
    warnings: Option<Registered>,
}

/// The services that are shown.
#[derive(Debug, Clone)]
pub(super) struct StatusSource {
    pub(super) csi: Csi,
    pub(super) endpoint: String,
    pub(super) states: RoleStates,
    pub(super) leases: Leases,
    pub(super) clock: Clock,
}

impl StatusSource {
    /// Shows the state of the configuration.
    pub(super) fn register(&self, board: &Board, standing: Standing) {
        let clock = self.clock;
        board.configuration(move || standing.report(clock.now())).forever();
    }

    /// Shows the shared connection to the driver, and the Leases: what the roles of the cluster need.
    pub(super) fn register_cluster(&self, board: &Board) {
        let status = self.clone();
        board.driver(move || status.driver_report()).forever();
        let driver_states = self.csi.state();
        board
            .readiness("driver", move || {
                let state = driver_states.borrow();
                if state.ready().is_some() {
                    return Ok(());
                }
                Err(state.last_error().unwrap_or("not connected yet").to_owned())
            })
            .forever();
        let csi = self.csi.clone();
        let row = |it: CallActivity| {
            vec![
                it.method.into(),
                it.limit.into(),
                it.limit.map(|_| it.limited_for).into(),
                it.last_refusal.into(),
                it.in_flight.into(),
                it.waiting.into(),
            ]
        };
        board.table("driver", &LIMITED_CALLS, move || csi.calls().into_iter().map(row).collect()).forever();
        let leases = self.leases.clone();
        board.lease("leases", move || leases.health()).forever();
    }

    /// Shows whether the Kubernetes API answers.
    pub(super) fn register_outage(&self, board: &Board, outage: &Outage) {
        let (clock, outage) = (self.clock, outage.clone());
        let report = |told: OutageStatus| ApiReport {
            lost: Some(Age(told.lost_for)),
            failures: told.failures,
            last_error: Some(told.error),
        };
        board.api(move || outage.told(clock.now()).map(report).unwrap_or_default()).forever();
    }

    /// Shows credentials that the API refuses or that cannot be renewed. `/livez` fails where a restart may help.
    pub(super) fn register_credentials(board: &Board, credentials: &Credentials, clock: Clock) {
        let (shown, checked) = (credentials.clone(), credentials.clone());
        board.notices(move || shown.told(clock.now()).into_iter().collect()).forever();
        board.alive("credentials", move || checked.health(clock.now())).forever();
    }

    /// Shows the roles and warnings of a new configuration instead of the old one.
    pub(super) fn configured(&self, board: &Board, entries: &mut StatusEntries, loaded: &Loaded) {
        entries.roles.retain(|role, _| loaded.roles.contains_key(role));
        for &role in loaded.roles.keys() {
            entries.roles.entry(role).or_insert_with(|| {
                let status = self.clone();
                board.role(move || status.role_report(role))
            });
        }
        entries.warnings = (!loaded.warnings.is_empty()).then(|| board.warnings(loaded.warnings.clone()));
    }

    /// Shows the caches, and makes `/readyz` wait for those that a role needs for all that it does.
    pub(super) fn register_caches(&self, board: &Board, caches: &Caches) {
        let (clock, status) = (self.clock, caches.clone());
        board
            .caches(move || {
                let report = |status: crate::cluster::CacheStatus| CacheReport {
                    kind: status.kind.to_owned(),
                    objects: status.objects,
                    synced: status.synced,
                    last_event: status.last_event.map(|at| Age(clock.now().saturating_duration_since(at))),
                    relists: status.lists,
                    last_error: status.last_error,
                };
                status.status().into_iter().map(report).collect()
            })
            .forever();
        let searched = caches.clone();
        board
            .objects(move |finds| {
                let report = |sighting: crate::cluster::Sighting| ObjectReport {
                    kind: sighting.kind.to_owned(),
                    name: sighting.name.to_string(),
                    state: sighting.whereabouts,
                    handle: sighting.handle,
                    last_error: sighting.trouble,
                };
                searched.find(finds).into_iter().map(report).collect()
            })
            .forever();
        let unread = caches.clone();
        board
            .notices(move || {
                let unread = unread.status().into_iter().filter(|status| !status.needed);
                unread.filter_map(|status| status.unreadable.map(|why| unread_notice(status.kind, &why))).collect()
            })
            .forever();
        let watched = caches.clone();
        board
            .readiness("caches", move || {
                let missing: Vec<String> = watched
                    .status()
                    .into_iter()
                    .filter(|status| status.needed && !status.synced)
                    .map(|status| match status.last_error {
                        Some(error) => format!("{}: {error}", status.kind),
                        None => format!("{} is not listed yet", status.kind),
                    })
                    .collect();
                if missing.is_empty() { Ok(()) } else { Err(missing.join("; ")) }
            })
            .forever();
    }

    /// Shows the volumes with running operations, one line per volume for all roles.
    pub(super) fn register_operations(board: &Board, operations: &VolumeLocks) {
        let operations = operations.clone();
        board
            .table("driver", &VOLUME_CALLS, move || {
                let row = |activity: VolumeActivity| {
                    vec![activity.volume_id.into(), activity.running_for.into(), activity.waiting.into()]
                };
                operations.snapshot().into_iter().map(row).collect()
            })
            .forever();
    }

    fn driver_report(&self) -> DriverReport {
        let state = self.csi.state().borrow().clone();
        let (status, since, driver) = match &state {
            DriverState::Connecting { since, .. } => (DriverStatus::Connecting, Some(*since), None),
            DriverState::Ready(driver) if driver.is_absent() => (DriverStatus::NotNeeded, None, None),
            DriverState::Ready(driver) => (DriverStatus::Ready, None, Some(driver)),
            DriverState::Lost { driver, since, .. } => (DriverStatus::Lost, Some(*since), Some(driver)),
            DriverState::Fatal(_) => (DriverStatus::Fatal, None, None),
        };
        let since = since.or_else(|| self.csi.ready_since()).unwrap_or_else(|| self.clock.now());
        DriverReport {
            state: status,
            name: driver.map(|driver| driver.name.clone()),
            vendor_version: driver.map(|driver| driver.vendor_version()),
            endpoint: self.endpoint.clone(),
            since: Age(self.clock.now().saturating_duration_since(since)),
            last_error: match &state {
                DriverState::Fatal(reason) => Some(reason.clone()),
                state => state.last_error().map(str::to_owned),
            },
            capabilities: driver.map(|driver| driver.capabilities.names()).unwrap_or_default(),
            generation: driver.map_or(0, |driver| driver.generation),
            connections: self.csi.connections(),
        }
    }

    fn role_report(&self, role: &'static str) -> RoleReport {
        let state = self.states.all().remove(role).unwrap_or_default();
        let elector = state.lease.as_deref().and_then(|lease| self.leases.find(lease));
        let election = elector.map(|view| view.status());
        let serving = state.phase == Phase::Serving;
        // It stays after the role is served again, so it says when it was.
        let ago = |at| Age(self.clock.now().saturating_duration_since(at));
        let failed = state.last_error.map(|(error, at)| format!("{} ago: {error}", ago(at)));
        RoleReport {
            name: role.to_owned(),
            scope: if needs_cluster([&role]) { RoleScope::Cluster } else { RoleScope::Local },
            state: match state.phase {
                Phase::WaitingForDriver => RoleStatus::WaitingForDriver,
                Phase::Standby => RoleStatus::Standby,
                Phase::Serving => RoleStatus::Serving,
                Phase::Restarting => RoleStatus::Restarting,
                Phase::Stopped => RoleStatus::Stopped,
            },
            lease: election.as_ref().map(|election| election.lease.clone()).or(state.lease),
            leader: election.as_ref().and_then(|election| election.leader.clone()),
            term: election.as_ref().and_then(|election| election.term),
            term_age: state.since.filter(|_| serving).map(ago),
            restarts: state.restarts,
            last_error: election.and_then(|election| election.last_error).or(failed),
            // The role itself shows them while it serves.
            failure: None,
            facts: Vec::new(),
        }
    }
}

/// What the status page says of a kind that only features need, and that cannot be read.
fn unread_notice(kind: &str, why: &str) -> String {
    format!("{kind}: {why}. What needs no such objects goes on, and the others wait.")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::time::Duration;

    use super::*;
    use crate::cluster::{ClientOptions, Clients, ClusterAccess};
    use crate::diagnostics::Overall;

    /// An API server that knows nobody.
    fn refusing() -> std::net::SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = BufReader::new(stream.unwrap());
                while stream.by_ref().lines().map_while(Result::ok).any(|line| line.is_empty()) {
                    let answer = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno";
                    stream.get_mut().write_all(answer).unwrap();
                }
            }
        });
        address
    }

    #[tokio::test]
    async fn credentials_that_have_changed_and_are_refused_for_minutes_fail_livez_and_the_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = format!(
            "{{ current-context: c, users: [{{ name: u, user: {{ token: t }} }}], clusters: [{{ name: k, cluster: {{ server: \
             'http://{}' }} }}], contexts: [{{ name: c, context: {{ cluster: k, user: u }} }}] }}",
            refusing()
        );
        std::fs::write(&path, &text).unwrap();
        let access = ClusterAccess::Kubeconfig(path.clone());
        let clients = Clients::connect(&access, &ClientOptions::default()).await.unwrap();
        let (clock, credentials) = (Clock::system(), clients.credentials.clone());
        let board = Board::new("test", clock);
        StatusSource::register_credentials(&board, &credentials, clock);
        assert_eq!((board.livez().answer("").healthy, board.report().warnings.len()), (true, 0));
        assert!(clients.work.apiserver_version().await.is_err());

        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(150)).await;
        std::fs::write(&path, &text[..40]).unwrap();
        credentials.look_if_due().await;
        assert!(board.livez().answer("").healthy);
        assert_ne!(board.report().overall, Overall::Failing);
        tokio::time::advance(Duration::from_secs(30)).await;
        let livez = board.livez().answer("");
        let begin = "[-]credentials failed: The Kubernetes API refuses the credentials for ";
        let reason = format!(" s: GET /version: 401 Unauthorized. {} changed, but", path.display());
        assert!(!livez.healthy && livez.body.starts_with(begin) && livez.body.contains(&reason), "{}", livez.body);
        let report = board.report();
        assert_eq!((report.overall, report.warnings.len()), (Overall::Failing, 1), "{:?}", report.warnings);

        // The old file is there again: a restart would change nothing.
        std::fs::write(&path, &text).unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        credentials.look_if_due().await;
        assert!(board.livez().answer("").healthy);
    }
}

//! The life of the connection: connect to the driver, watch the connection, reconnect.
//!
//! ```text
//!            ┌──────────── redial ≤ 1 s ────────────┐
//!   Connecting ── dial, probe every 1 s, name, capabilities ──> Ready(generation 1)
//!                                                                 │ the connection ends
//!        Ready(the same Arc)  <── nothing has changed ──┐         v
//!        Ready(generation + 1) <── other capabilities ──┼─────── Lost ── dial, probe, name, capabilities
//!        Fatal                 <── another name ────────┘
//! ```
//! A wrong answer is shown and the call is repeated; it is never a reason to exit, because a driver may give wrong
//! answers during its roll-out. Only a changed name is fatal, because all our objects contain the old name.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::process::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use super::capabilities::Capabilities;
use super::channel::{Connection, Route};
use super::client::{Caller, Client, CsiOptions};
use super::driver::{Driver, DriverState, HandshakeError, Identity, identify};
use super::limiter::CallActivity;
use super::link::Dialer;
use super::snapshot_locks::SnapshotLocks;
use super::volume_listings::VolumeListings;
use super::volume_locks::VolumeLocks;
use super::volume_passes::VolumePasses;
use crate::process::{Clock, Dial, Rng, error_chain};
use crate::telemetry::{Meter, names};

/// The Go sidecars' pace of `Probe`.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// The first wait before dialling again; doubles up to [`REDIAL_MAX`].
const REDIAL_MIN: Duration = Duration::from_millis(50);
/// With its jitter of a fifth still below the Go sidecars' limit of one second.
const REDIAL_MAX: Duration = Duration::from_millis(800);
const REDIAL_JITTER: f64 = 0.2;
/// After a connection that lasted this long, we reconnect at once.
const STABLE: Duration = Duration::from_secs(1);
/// How often the same error is logged again.
const REMINDER: Duration = Duration::from_secs(10);

/// The shared connection to the driver. Clones share it.
#[derive(Clone)]
pub struct Csi {
    dial: Dial,
    caller: Arc<Caller>,
    rng: Rng,
    state: Arc<watch::Sender<DriverState>>,
    operations: VolumeLocks,
    snapshots: SnapshotLocks,
    listings: VolumeListings,
    passes: VolumePasses,
    /// The number of connections to a ready driver, and the time of the latest one.
    met: Arc<Mutex<(u64, Option<Instant>)>>,
}

impl Csi {
    /// Connects to nothing yet.
    pub fn new(dial: Dial, options: CsiOptions, meter: Meter, clock: Clock, rng: Rng) -> Self {
        let state = DriverState::Connecting { since: clock.now(), last_error: None };
        Self {
            dial,
            caller: Arc::new(Caller::new(options, meter, clock)),
            rng,
            state: Arc::new(watch::Sender::new(state)),
            operations: VolumeLocks::new(clock),
            snapshots: SnapshotLocks::new(clock),
            listings: VolumeListings::new(),
            passes: VolumePasses::default(),
            met: Arc::default(),
        }
    }

    /// Sets the options of new calls. A running call keeps its options.
    pub fn set_options(&self, options: CsiOptions) {
        self.caller.set_options(options);
    }

    /// Which drivers have taken an in-tree plugin over: the metric of calls to one of them has the label `migrated`.
    pub fn know_successors(&self, is_successor: fn(&str) -> bool) {
        self.caller.know_successors(is_successor);
    }

    /// Makes connections of their users' own to the same driver, whether this one is there or not.
    pub fn dialer(&self) -> Dialer {
        Dialer::new(self.dial.clone(), Arc::clone(&self.caller))
    }

    /// The RPCs that are limited to fewer calls in flight than the configuration allows, and those with calls that wait.
    pub fn calls(&self) -> Vec<CallActivity> {
        self.caller.activity()
    }

    /// The number of connections to a ready driver.
    pub fn connections(&self) -> u64 {
        self.met.lock().0
    }

    /// Since when the driver is ready, if it is, or when it last became so.
    pub fn ready_since(&self) -> Option<Instant> {
        self.met.lock().1
    }

    /// The state of the connection, as it changes.
    pub fn state(&self) -> watch::Receiver<DriverState> {
        self.state.subscribe()
    }

    /// Instead of [`run`](Self::run), if no role needs a driver: one without a name, capabilities and a connection counts as ready, so
    /// that roles are served.
    pub fn run_without_driver(&self) -> Arc<Driver> {
        let client = Client::new(Arc::new(Route::closed()), Arc::clone(&self.caller));
        let driver = Arc::new(self.driver(Identity::default(), 0, client));
        self.state.send_replace(DriverState::Ready(Arc::clone(&driver)));
        driver
    }

    /// Connects to the driver and watches the connection, forever. Run it once.
    pub async fn run(self) {
        let mut pace = Pace::new(self.rng.clone());
        let mut known: Option<Arc<Driver>> = None;
        loop {
            let met = match self.meet(known.as_ref(), &mut pace).await {
                Ok(met) => met,
                Err(renamed) => return self.give_up(&renamed).await,
            };
            let connection = met.connection;
            let driver = self.adopt(known, met.identity, &connection, met.client);
            let ready = self.caller.meter.gauge(&names::DRIVER_READY, &[("driver_name", &driver.name)]);
            ready.set(1.0);
            let since = self.caller.clock.now();
            {
                let mut met = self.met.lock();
                *met = (met.0 + 1, Some(since));
            }
            self.state.send_replace(DriverState::Ready(Arc::clone(&driver)));

            connection.lost().await;

            let now = self.caller.clock.now();
            driver.client.route().down();
            ready.set(0.0);
            warn!(driver = driver.name, "the connection to the driver was lost");
            let last_error = Some("the connection to the driver was lost".to_owned());
            self.state.send_replace(DriverState::Lost { driver: Arc::clone(&driver), since: now, last_error });
            if now.saturating_duration_since(since) >= STABLE {
                pace.reset();
            } else {
                pace.wait().await;
            }
            known = Some(driver);
        }
    }

    /// Connects until a driver is ready and identified. The only error is a renamed driver.
    async fn meet(&self, known: Option<&Arc<Driver>>, pace: &mut Pace) -> Result<Met, HandshakeError> {
        let mut trouble = Trouble::default();
        loop {
            match Connection::open(&self.dial, self.caller.options().timeout).await {
                Err(error) => self.tell(&error.into(), &mut trouble),
                Ok(connection) => {
                    self.caller.meter.counter(&names::DRIVER_CONNECTIONS, &[]).increment(1);
                    let route = Arc::new(Route::open(connection.channel.clone()));
                    let client = Client::new(route, Arc::clone(&self.caller));
                    if let Some(identity) = self.question(&connection, &client, known, &mut trouble).await? {
                        return Ok(Met { connection, client, identity });
                    }
                }
            }
            pace.wait().await;
        }
    }

    /// Repeats the handshake on one connection until it succeeds (`Some`) or the connection is lost (`None`).
    async fn question(
        &self,
        connection: &Connection,
        client: &Client,
        known: Option<&Arc<Driver>>,
        trouble: &mut Trouble,
    ) -> Result<Option<Identity>, HandshakeError> {
        loop {
            let asked = self.caller.clock.now();
            let name = |found: &str| self.note_name(known, found);
            match identify(client, name).await {
                Ok(identity) => return Ok(Some(identity)),
                Err(renamed @ HandshakeError::Renamed { .. }) => return Err(renamed),
                Err(error) => self.tell(&error, trouble),
            }
            tokio::select! {
                biased;
                () = connection.lost() => return Ok(None),
                () = sleep_until(asked + PROBE_INTERVAL) => {}
            }
        }
    }

    /// Sets the driver's name for the metrics. The name may change until the driver was ready once.
    fn note_name(&self, known: Option<&Arc<Driver>>, found: &str) -> Result<(), HandshakeError> {
        match known {
            Some(driver) if driver.name != found => {
                Err(HandshakeError::Renamed { known: driver.name.clone(), found: found.to_owned() })
            }
            _ => {
                self.caller.note_driver_name(found);
                Ok(())
            }
        }
    }

    /// Publishes the identified driver: the known one, or a new generation.
    fn adopt(
        &self,
        known: Option<Arc<Driver>>,
        identity: Identity,
        connection: &Connection,
        client: Client,
    ) -> Arc<Driver> {
        let generation = match known {
            Some(driver) if driver.capabilities == identity.capabilities => {
                info!(driver = driver.name, version = identity.vendor_version, "the driver is back, unchanged");
                driver.set_vendor_version(identity.vendor_version);
                driver.client.route().reopen(connection.channel.clone());
                return driver;
            }
            Some(driver) => {
                let (gained, lost) = compare(&driver.capabilities, &identity.capabilities);
                warn!(driver = driver.name, ?gained, ?lost, "the driver is back with other capabilities");
                driver.client.route().retire();
                driver.generation + 1
            }
            None => {
                let capabilities = identity.capabilities.names();
                info!(driver = identity.name, version = identity.vendor_version, ?capabilities, "the driver is ready");
                1
            }
        };
        Arc::new(self.driver(identity, generation, client))
    }

    fn driver(&self, identity: Identity, generation: u64, client: Client) -> Driver {
        let (operations, snapshots) = (self.operations.clone(), self.snapshots.clone());
        let (listings, passes) = (self.listings.clone(), self.passes.clone());
        Driver::new(identity, generation, client, operations, snapshots, listings, passes)
    }

    async fn give_up(&self, renamed: &HandshakeError) {
        self.state.send_replace(DriverState::Fatal(renamed.to_string()));
        // Runs on, because the end of a task counts as a failure; the state says what happened.
        std::future::pending::<()>().await;
    }

    /// Publishes an error: in the state each time it changes, in the log also as a reminder.
    fn tell(&self, error: &HandshakeError, trouble: &mut Trouble) {
        let text = error_chain(error);
        let now = self.caller.clock.now();
        if trouble.is_news(&text, now) {
            warn!(error = %text, "the driver is not ready; trying again");
        }
        self.state.send_if_modified(|state| match state {
            DriverState::Connecting { last_error, .. } | DriverState::Lost { last_error, .. }
                if last_error.as_ref() != Some(&text) =>
            {
                *last_error = Some(text);
                true
            }
            _ => false,
        });
    }
}

impl std::fmt::Debug for Csi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Csi").field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}

/// An identified driver and its connection.
struct Met {
    connection: Connection,
    client: Client,
    identity: Identity,
}

/// Names that only the second has, and names that only the first has.
fn compare(old: &Capabilities, new: &Capabilities) -> (Vec<String>, Vec<String>) {
    let (old, new) = (old.names(), new.names());
    let minus = |a: &[String], b: &[String]| a.iter().filter(|name| !b.contains(name)).cloned().collect();
    (minus(&new, &old), minus(&old, &new))
}

/// The waits between two dials.
struct Pace {
    next: Duration,
    rng: Rng,
}

impl Pace {
    fn new(rng: Rng) -> Self {
        Self { next: REDIAL_MIN, rng }
    }

    fn reset(&mut self) {
        self.next = REDIAL_MIN;
    }

    async fn wait(&mut self) {
        sleep(self.rng.jittered(self.next, REDIAL_JITTER)).await;
        self.next = (self.next * 2).min(REDIAL_MAX);
    }
}

/// The last logged error, to limit repetition.
#[derive(Default)]
struct Trouble(Option<(String, Instant)>);

impl Trouble {
    fn is_news(&mut self, text: &str, now: Instant) -> bool {
        if let Some((told, at)) = &self.0
            && told == text
            && now.saturating_duration_since(*at) < REMINDER
        {
            return false;
        }
        self.0 = Some((text.to_owned(), now));
        true
    }
}

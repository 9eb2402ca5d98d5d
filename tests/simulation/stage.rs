//! What the smaller plays are played on: a cluster, a driver and daemons on a network, what is drawn, and the faults that end by
//! themselves. Also what the checks of these plays see: calls, requests, commits, and who
//! leads.

use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::sandbox::api::Committed;
use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, FaultId, Matching, WatchEnd};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::driver::{Call, Method, Profile, Violation};
use csi_control_plane::sandbox::network::{Cut, Network};
use csi_control_plane::sandbox::testbed::{API_HOST, DRIVER_HOST, Daemon, TestBed, Transport};
use k8s_openapi::jiff::Timestamp;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::{DAEMONS, text};

/// A term may end this long after a renewal.
const TERM: Duration = Duration::from_millis(3500);

/// A cluster, a driver, and what is drawn. `U`: the faults of one play alone.
pub(crate) struct Stage<U> {
    pub(crate) testbed: TestBed,
    pub(crate) network: Network,
    pub(crate) rng: StdRng,
    pub(crate) daemons: Vec<Option<Daemon>>,
    /// Faults that end by themselves, and when.
    pub(crate) agenda: Vec<(Instant, Undo<U>)>,
}

/// The end of a fault.
#[derive(Debug, Clone)]
pub(crate) enum Undo<U> {
    Heal {
        daemon: usize,
        peer: &'static str,
    },
    Release(FaultId),
    Start,
    /// What only one play has.
    Own(U),
}

impl<U> Stage<U> {
    /// With one daemon or two, which do not run yet.
    pub(crate) async fn set(seed: u64, profile: Profile, clock: Clock, has_standby: bool) -> Self {
        let network = Network::new();
        let ground = Transport::Network(network.clone());
        let testbed = TestBed::set_up(ground, profile, clock, Rng::seeded(seed)).await.unwrap();
        let daemons = (0..if has_standby { 2 } else { 1 }).map(|_| None).collect();
        Self { testbed, network, rng: StdRng::seed_from_u64(seed), daemons, agenda: Vec::new() }
    }

    /// Whether a daemon does not run.
    pub(crate) fn is_away(&self, daemon: usize) -> bool {
        self.daemons[daemon].as_ref().is_none_or(Daemon::has_ended)
    }

    /// Starts the daemons that do not run, each by its name and its configuration.
    pub(crate) async fn start_all(&mut self, of: impl Fn(usize) -> (&'static str, String)) {
        for daemon in 0..self.daemons.len() {
            if self.is_away(daemon) {
                let (name, config) = of(daemon);
                self.daemons[daemon] = Some(self.testbed.start(name, &config).await.unwrap());
            }
        }
    }

    /// Where the driver has panicked.
    pub(crate) fn panics(&self) -> Vec<String> {
        let violations = self.testbed.driver.violations().into_iter();
        violations.filter(|it| matches!(it, Violation::Panic(_))).map(|it| it.to_string()).collect()
    }

    pub(crate) fn seconds(&mut self, from: f64, to: f64) -> Duration {
        Duration::from_secs_f64(self.rng.random_range(from..to))
    }

    pub(crate) fn after(&mut self, from: f64, to: f64, undo: Undo<U>) {
        let wait = self.seconds(from, to);
        self.agenda.push((Instant::now() + wait, undo));
    }

    pub(crate) fn daemon(&mut self) -> usize {
        self.rng.random_range(0..self.daemons.len())
    }

    /// The faults that end now.
    pub(crate) fn due(&mut self) -> Vec<Undo<U>> {
        let now = Instant::now();
        let (due, later): (Vec<_>, _) = std::mem::take(&mut self.agenda).into_iter().partition(|(at, _)| *at <= now);
        self.agenda = later;
        due.into_iter().map(|(_, undo)| undo).collect()
    }

    /// A daemon and what it talks to do not hear each other. Returns what that is.
    pub(crate) fn cut(&mut self, daemon: usize) -> &'static str {
        let (name, peer) = (DAEMONS[daemon], [API_HOST, DRIVER_HOST][self.rng.random_range(0..2)]);
        let cut = if self.rng.random_bool(0.5) { Cut::Hang } else { Cut::Refuse };
        match self.rng.random_range(0..3) {
            0 => self.network.partition(name, peer, cut),
            1 => self.network.partition_one_way(name, peer, cut),
            _ => self.network.partition_one_way(peer, name, cut),
        }
        self.after(0.2, 15.0, Undo::Heal { daemon, peer });
        peer
    }

    /// Bytes that its connections held back are lost, as if the connections had timed out long ago.
    pub(crate) fn heal(&self, daemon: usize, peer: &str) {
        self.network.reset(DAEMONS[daemon], peer);
        self.network.heal(DAEMONS[daemon], peer);
    }

    pub(crate) fn release(&self, fault: FaultId) {
        self.testbed.api.faults().remove(fault);
    }

    /// The watches of one of these kinds are late, or end.
    pub(crate) fn late_watches(&mut self, daemon: usize, kinds: &[&'static str]) {
        let on = Matching::any().user(DAEMONS[daemon]).resource(kinds[self.rng.random_range(0..kinds.len())]);
        let faults = self.testbed.api.faults().clone();
        let fault = match self.rng.random_range(0..3) {
            0 => faults.hold_watches(on),
            1 => faults.delay_watches(on, Duration::from_millis(self.rng.random_range(50..4000))),
            _ => return faults.drop_watches(on, if daemon == 0 { WatchEnd::Clean } else { WatchEnd::Cut }),
        };
        self.after(0.5, 20.0, Undo::Release(fault));
    }

    pub(crate) fn slow_down(&mut self, daemon: usize) {
        let latency = self.seconds(0.0, 0.08);
        self.network.set_latency(DAEMONS[daemon], API_HOST, latency);
    }

    /// A daemon dies.
    pub(crate) fn kill(&mut self) {
        let daemon = self.daemon();
        if let Some(running) = self.daemons[daemon].take() {
            running.kill();
        }
        self.after(0.0, 8.0, Undo::Start);
    }

    /// A daemon is told to end.
    pub(crate) fn terminate(&mut self, daemon: usize) {
        if let Some(running) = &self.daemons[daemon] {
            running.terminate();
        }
        self.after(0.2, 8.0, Undo::Start);
    }

    /// Nothing goes wrong any more, but for the API server, which is restarted by [`Self::restart`].
    pub(crate) fn end_faults(&mut self) {
        self.agenda.clear();
        self.testbed.driver.clear_faults();
        self.testbed.api.faults().clear();
        for daemon in DAEMONS {
            self.network.set_latency(daemon, API_HOST, Duration::ZERO);
            self.network.reset(daemon, API_HOST);
            self.network.reset(daemon, DRIVER_HOST);
        }
        self.network.heal_all();
    }

    pub(crate) async fn restart(&self) {
        self.testbed.server.restart(Duration::from_millis(100)).await;
        self.testbed.server.up().await;
    }

    /// What the API does next to a request. `conflict`: its answer to a write of an older version.
    pub(crate) fn api_action(&mut self, conflict: Rejection) -> ApiAction {
        match self.rng.random_range(0..7) {
            0 => ApiAction::Refuse(Rejection::internal("scripted")),
            1 => ApiAction::RefuseAfter(Rejection::internal("scripted")),
            2 => ApiAction::CutBefore,
            3 => ApiAction::CutAfter,
            4 => ApiAction::Refuse(conflict),
            5 => ApiAction::DelayAfter(self.seconds(0.1, 4.0)),
            _ => ApiAction::Refuse(Rejection::too_many_requests(1)),
        }
    }

    /// The requests and the calls of `lasts`, after `settles`.
    pub(crate) async fn watch(&self, settles: Duration, lasts: Duration) -> (Vec<Entry>, Vec<Arc<Call>>) {
        sleep(settles).await;
        let (calls, audit) = (self.testbed.driver.calls().len(), self.testbed.api.audit());
        audit.clear();
        sleep(lasts).await;
        (audit.entries(), self.testbed.driver.calls().split_off(calls))
    }
}

/// Who makes a call.
pub(crate) fn caller(network: &Network, call: &Call) -> String {
    let number = usize::try_from(call.connection).unwrap_or_default();
    network.accepted_from(DRIVER_HOST, number).unwrap_or_default()
}

/// What a daemon has asked of the API when nothing has changed. Lists, watches and what is about `left_out` do not count.
pub(crate) fn unasked(requests: &[Entry], left_out: &[&str]) -> Vec<String> {
    let of_daemons = requests.iter().filter(|it| DAEMONS.contains(&it.user.as_str()));
    let counts = |it: &&Entry| !matches!(it.verb, "list" | "watch") && !left_out.contains(&it.resource);
    let told = |it: &Entry| format!("{} {} {}, and nothing has changed", it.verb, it.resource, it.name);
    of_daemons.filter(counts).map(told).collect()
}

/// A call that runs, and is about nothing yet.
pub(crate) fn running(id: u64, started: Duration, method: Method) -> Call {
    let deadline = Some(started + Duration::from_secs(5));
    Call { connection: 1, deadline, ..Call::running(id, method, started) }
}

/// The Lease of a daemon that has just become the leader.
pub(crate) fn lease(daemon: &str) -> Value {
    json!({ "spec": { "holderIdentity": format!("{daemon}_1"), "acquireTime": daemon } })
}

/// Members of an object become these, by their pointers; null takes one away. A `~` is a slash in the name of a member.
pub(crate) fn edit(object: &mut Value, changes: &[(&str, Value)]) {
    for (pointer, value) in changes {
        let (parents, member) = pointer.rsplit_once('/').unwrap();
        let mut place = &mut *object;
        for key in parents.split('/').skip(1) {
            place = &mut place[key];
        }
        let member = member.replace('~', "/");
        if value.is_null() {
            place.as_object_mut().unwrap().remove(&member);
        } else {
            place[member] = value.clone();
        }
    }
}

/// A request of the first daemon, and its answer.
pub(crate) fn sent(verb: &'static str, resource: &'static str, name: &str, code: u16) -> Entry {
    Entry {
        time: Timestamp::UNIX_EPOCH,
        order: 0..1,
        user: DAEMONS[0].to_owned(),
        verb,
        resource,
        subresource: String::new(),
        namespace: String::new(),
        name: name.to_owned(),
        code,
        body: None,
    }
}

/// One change of an object.
pub(crate) struct Commit<'a> {
    /// When, since the driver was made.
    pub(crate) at: Duration,
    /// The creator.
    pub(crate) actor: &'a str,
    pub(crate) plural: &'a str,
    pub(crate) name: &'a str,
    pub(crate) old: Option<&'a Value>,
    pub(crate) new: Option<&'a Value>,
}

impl<'a> Commit<'a> {
    pub(crate) fn of(change: &Committed<'a>, at: Duration) -> Self {
        let Committed { actor, resource, old, new, .. } = *change;
        let name = new.or(old).map_or("", |it| text(it, "/metadata/name"));
        Self { at, actor, plural: resource.plural, name, old, new }
    }
}

/// Who leads, by the Lease.
#[derive(Debug, Default)]
pub(crate) struct Reign {
    /// The holder, and since when.
    pub(crate) lease: Option<(String, String)>,
    renewed: Duration,
    /// The number of terms.
    pub(crate) terms: u64,
}

impl Reign {
    /// Whether this daemon may call the driver and write.
    pub(crate) fn is_of(&self, daemon: &str) -> bool {
        let holder = self.lease.as_ref().map_or("", |(holder, _)| holder);
        holder.strip_prefix(daemon).is_some_and(|rest| rest.starts_with('_'))
    }

    /// The Lease was changed. Whether another term has begun by that: also if the leader could not renew in time, or, `is_unheard`,
    /// did not hear that it had, though the Lease never changed hands.
    pub(crate) fn changed(&mut self, commit: &Commit<'_>, is_unheard: bool) -> bool {
        let of = |lease: &Value| {
            (text(lease, "/spec/holderIdentity").to_owned(), text(lease, "/spec/acquireTime").to_owned())
        };
        let now = commit.new.map(of);
        let is_late = commit.at.saturating_sub(std::mem::replace(&mut self.renewed, commit.at)) > TERM;
        let begins = is_late || is_unheard || now != self.lease;
        self.terms += u64::from(begins);
        self.lease = now;
        begins
    }
}

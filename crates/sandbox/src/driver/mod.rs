//! A CSI driver for tests and the demo: strict about the specification, and able to fail on demand.
//!
//! ```text
//!   Server ── connections ──> service ──> Driver::answer ──> faults: what goes wrong?    ──> calls: what happened?
//!     │ restart, crash                          │
//!     └── Listen: unix socket, or any stream    └──> rpc ──> State: every decision (pure), Profile: who the driver is
//! ```
//!
//! - The [`Driver`] is the storage backend and the memory; the [`Server`] is the process in front of it. A restart cuts every
//!   connection and keeps the state, the calls and the faults.
//! - Decisions are in pure files (`state`, `volumes`, `health`, `pools`, `snapshots`, `groups`, `node`, `validate`); a call's path is in `answer`.
//! - With a [`Profile::storage`] the volumes are folders and files, which the node service mounts: `steps` says what has to be done
//!   (pure), `storage` does it. Then several processes are one driver: a controller's, and one on each node.
//! - Everything that goes wrong is data ([`Fault`], [`Chance`]) and happens in the same way for the same calls.
//! - It tells what the caller did: [`Driver::calls`], and [`Driver::violations`] of the rule that a volume has one changing
//!   call at a time. With a [`Profile::record`] the calls are in a file, too.
//!
//! Time is tokio's, chance is the test's: in a paused runtime one seed gives one run.

mod answer;
mod calls;
mod faults;
mod groups;
mod health;
mod lies;
mod message;
mod method;
mod mounts;
mod node;
mod pools;
mod profile;
mod record;
mod refusal;
mod rpc;
mod server;
mod service;
mod snapshots;
mod socket;
mod state;
#[cfg(test)]
mod state_tests;
mod steps;
mod storage;
#[cfg(test)]
mod tests;
mod validate;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use base::process::watch;
use tokio::sync::mpsc;
use tokio::time::Instant;

pub use calls::{Call, Outcome, Violation};
pub use faults::{Action, Chance, Fault, Lie};
pub use method::Method;
pub use profile::{GIB, Node, Pool, Profile, Secrets};
pub use refusal::{Refusal, code_name};
pub use server::{Listen, Server};
pub use state::{Group, Publication, Snapshot, State, Volume};

use base::process::{Clock, Tasks, error_chain};
use calls::Log;
use faults::Script;
use storage::Storage;

/// Called whenever a call arrives, is applied or ends, before anything follows from it. It must not call the driver: that
/// would wait for itself. It is handed the state as it is then.
pub type Hook = Arc<dyn Fn(&Call, &State) + Send + Sync>;

/// The demo driver's state, memory and faults. Clones are handles of the same driver.
#[derive(Clone)]
pub struct Driver(Arc<Shared>);

struct Shared {
    clock: Clock,
    created: Instant,
    /// What no other process of the driver has: when this one was made, in nanoseconds.
    process: String,
    hooks: Mutex<Vec<Hook>>,
    /// Operations that outlive their call, and even the server: the backend goes on by itself.
    backend: Tasks,
    inner: Mutex<Inner>,
    changes: watch::Sender<u64>,
    /// How often held calls were released.
    releases: watch::Sender<u64>,
}

struct Inner {
    profile: Profile,
    state: State,
    log: Log,
    script: Script,
    /// The objects of the operations in progress, each with its call.
    busy: BTreeMap<String, Busy>,
    connections: u64,
    restarts: u64,
    /// The server in front, to die when a fault says so.
    server: Option<mpsc::UnboundedSender<server::Command>>,
}

struct Busy {
    call: u64,
    /// No one works on it any more, but the driver thinks so until it restarts.
    wedged: bool,
}

impl Driver {
    /// A driver without volumes.
    pub fn new(profile: Profile, clock: Clock) -> Self {
        let (backend, _) = Tasks::new("driver.backend");
        let inner = Inner {
            profile,
            state: State::default(),
            log: Log::default(),
            script: Script::default(),
            busy: BTreeMap::new(),
            connections: 0,
            restarts: 0,
            server: None,
        };
        let (created, process) = (clock.now(), clock.wall().as_nanosecond().to_string());
        let (inner, hooks) = (Mutex::new(inner), Mutex::default());
        let (changes, releases) = (watch::Sender::new(0), watch::Sender::new(0));
        Self(Arc::new(Shared { clock, created, process, hooks, backend, inner, changes, releases }))
    }

    /// Registers volumes that were there before.
    pub fn seed<'a>(&self, volumes: impl IntoIterator<Item = &'a str>) {
        self.change(|inner| {
            for id in volumes {
                inner.state.seed(id);
            }
        });
    }

    /// The nodes that a volume is published to: the truth.
    pub fn published(&self, volume: &str) -> BTreeSet<String> {
        self.lock().state.published(volume)
    }

    /// The volume of this name, if one was made and is still there: its ID and what it is.
    pub fn volume_named(&self, name: &str) -> Option<(String, Volume)> {
        let inner = self.lock();
        let found = inner.state.volumes().iter().find(|(_, volume)| volume.name == name);
        found.map(|(id, volume)| (id.clone(), volume.clone()))
    }

    /// Cuts a snapshot of a volume without a call. Returns its ID, or `None` if there is no such volume.
    pub fn cut_snapshot(&self, name: &str, volume: &str) -> Option<String> {
        let now = self.0.clock.wall();
        self.change_state(|state| state.cut(name, volume, now))
    }

    /// The snapshot of this name, if one was cut and is still there: its ID and what it is.
    pub fn snapshot_named(&self, name: &str) -> Option<(String, Snapshot)> {
        let inner = self.lock();
        let found = inner.state.snapshots().iter().find(|(_, snapshot)| snapshot.name == name);
        found.map(|(id, snapshot)| (id.clone(), snapshot.clone()))
    }

    /// Sets whether a snapshot is ready to use, whatever the profile says. Returns whether the snapshot exists.
    pub fn finish_snapshot(&self, id: &str, ready: bool) -> bool {
        self.change_state(|state| state.snapshot_mut(id).map(|it| it.ready = Some(ready)).is_some())
    }

    /// Changes what is wrong with a volume: each with its kind's number in the specification, its reason, and its words for people.
    /// Nothing: the volume is healthy again. Returns whether the volume exists.
    pub fn set_health<'a>(&self, volume: &str, wrong: impl IntoIterator<Item = (i32, &'a str, &'a str)>) -> bool {
        self.change_state(|state| state.set_health(volume, wrong))
    }

    /// A copy of everything that the backend holds.
    pub fn state(&self) -> State {
        self.lock().state.clone()
    }

    /// Changes the state without a call, as an operator at the storage console would.
    pub fn change_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.change(|inner| change(&mut inner.state))
    }

    /// Detaches a volume without a call. Returns whether it was attached.
    pub fn detach_behind(&self, volume: &str, node: &str) -> bool {
        self.change_state(|state| state.detach_behind(volume, node))
    }

    /// Attaches a volume without a call.
    pub fn attach_behind(&self, volume: &str, node: &str) {
        self.change_state(|state| state.attach_behind(volume, node));
    }

    /// The driver's identity and capabilities.
    pub fn profile(&self) -> Profile {
        self.lock().profile.clone()
    }

    fn has_group_service(&self) -> bool {
        self.lock().profile.has_group_service()
    }

    fn has_node_service(&self) -> bool {
        self.lock().profile.node_service
    }

    /// Changes name, capabilities, nodes or limits, from the next call on.
    pub fn change_profile(&self, change: impl FnOnce(&mut Profile)) {
        self.change(|inner| change(&mut inner.profile));
    }

    /// Adds a rule after those that are there.
    pub fn inject(&self, fault: Fault) {
        self.change(|inner| inner.script.add(fault));
    }

    /// Lets faults happen by chance, in place of any earlier chance.
    pub fn inject_chance(&self, chance: Chance) {
        self.change(|inner| inner.script.set_chance(chance));
    }

    /// Lets every call go on that [`Action::Hold`] holds, and those that it would hold now.
    pub fn release(&self) {
        self.0.releases.send_modify(|count| *count += 1);
    }

    /// Ends all faults; wedged volumes are free again. Calls that hang already go on hanging.
    pub fn clear_faults(&self) {
        self.change(|inner| {
            inner.script.clear();
            inner.busy.retain(|_, busy| !busy.wedged);
        });
    }

    /// Calls `hook` at every step of every call from now on.
    pub fn on_call(&self, hook: impl Fn(&Call, &State) + Send + Sync + 'static) {
        self.0.hooks.lock().push(Arc::new(hook));
    }

    /// Every call so far, oldest first.
    pub fn calls(&self) -> Vec<Arc<Call>> {
        self.lock().log.calls().cloned().collect()
    }

    /// Every call of one method so far, oldest first.
    pub fn calls_of(&self, method: Method) -> Vec<Arc<Call>> {
        self.lock().log.calls().filter(|call| call.method == method).cloned().collect()
    }

    /// The calls that were to make the volume of this name, oldest first.
    pub fn creates_of(&self, name: &str) -> Vec<Arc<Call>> {
        self.lock().log.calls().filter(|call| call.name.as_deref() == Some(name)).cloned().collect()
    }

    /// The calls that were to cut the snapshot of this name, oldest first.
    pub fn cuts_of(&self, name: &str) -> Vec<Arc<Call>> {
        let is_of = |call: &&Arc<Call>| call.method == Method::CreateSnapshot && call.snapshot.as_deref() == Some(name);
        self.lock().log.calls().filter(is_of).cloned().collect()
    }

    /// The number of calls by outcome: `OK`, a gRPC code's name, or `Abandoned`.
    pub fn counters(&self) -> BTreeMap<(Method, &'static str), u64> {
        self.lock().log.counters().clone()
    }

    /// The callers' violations of the specification.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().log.violations().to_vec()
    }

    /// The objects of the operations in progress, also of wedged ones and of those without a waiting caller.
    pub fn busy(&self) -> BTreeSet<String> {
        self.lock().busy.keys().cloned().collect()
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> u64 {
        self.lock().connections
    }

    /// The number of restarts of the server.
    pub fn restarts(&self) -> u64 {
        self.lock().restarts
    }

    /// How long the driver exists: the time that [`Call`]s are stamped with.
    pub fn age(&self) -> Duration {
        self.0.clock.now().saturating_duration_since(self.0.created)
    }

    /// A number that changes with every arrival and end of a call and with every change of state.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Waits until `holds`; looks again after every change.
    pub async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let mut changes = self.changes();
        while !holds(self) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Forgets what is not mounted on this node any more: it may have started anew since. For a driver with a storage.
    pub fn recover_mounts(&self) -> Result<(), Refusal> {
        self.change(|inner| {
            let Some(storage) = Storage::of(&inner.profile) else { return Ok(()) };
            let here = inner.profile.here()?.0.clone();
            storage.recover(&here, &mut inner.state)
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock()
    }

    /// Shows a call to the hooks, in the middle of a change.
    fn show(&self, inner: &Inner, call: u64) {
        if let Some(call) = inner.log.call(call) {
            for hook in self.0.hooks.lock().iter() {
                hook(call, &inner.state);
            }
        }
    }

    /// Adds a line to the record of calls, if there is one. It must not be late: what it says follows from it.
    fn note(&self, inner: &Inner, call: u64, line: impl FnOnce(Timestamp) -> Value) {
        let Some(file) = &inner.profile.record else { return };
        let now = self.0.clock.wall();
        if let Err(error) = record::append(file, &self.0.process, call, now, line(now)) {
            tracing::error!(error = error_chain(&error), file = %file.display(), "cannot record a call to the demo driver");
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let result = change(&mut self.lock());
        self.0.changes.send_modify(|version| *version += 1);
        result
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("name", &self.lock().profile.name).finish_non_exhaustive()
    }
}

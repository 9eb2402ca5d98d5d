//! A cluster, a driver and daemons that a seed is played with; and its end.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use csi_control_plane::process::Clock;
use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::driver::{Method, Profile};
use csi_control_plane::sandbox::network::Network;
use csi_control_plane::sandbox::testbed::TestBed;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::checks::Checks;
use super::happening::Own;
use super::invariants::Rule;
use super::mutants::Mutant;
use super::objects::{CLAIMS, HANDLES, ILLNESSES, VOLUMES, claim, claim_name, kind, names, volume, volume_name};
use crate::stage::{Commit, Stage, caller};
use crate::trace::Trace;
use crate::world::{COMMON_CONFIG, DAEMONS, DRIVER};

/// How long it may take until each claim has what the driver says, once nothing goes wrong any more: a question that has failed often
/// is repeated after eight intervals, and before that another leader may have to find its Lease, its watches and the driver.
const STATED: u64 = 45;
/// The same for Events: one that was written before is counted five minutes later.
const STATED_OF_EVENTS: u64 = STATED + 300;
/// So long nothing is written then.
const QUIET: Duration = Duration::from_secs(30);

/// Where a driver says how its volumes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    /// In a list of what is not healthy, and on question (CSI 1.13).
    List,
    /// On question (CSI 1.13).
    Health,
    /// In the list of all volumes, and on question.
    ListingAndCondition,
    /// In the list of all volumes.
    Listing,
    /// On question.
    Condition,
}

impl Speaks {
    pub(super) const ALL: [Self; 5] =
        [Self::List, Self::Health, Self::ListingAndCondition, Self::Listing, Self::Condition];

    /// Whether it has CSI 1.13.
    pub(super) fn has_kinds(self) -> bool {
        matches!(self, Self::List | Self::Health)
    }

    /// The calls that say it.
    pub(super) fn methods(self) -> &'static [Method] {
        match self {
            Self::List => &[Method::ControllerListVolumeHealth, Method::ControllerGetVolumeHealth],
            Self::Health => &[Method::ControllerGetVolumeHealth],
            Self::ListingAndCondition => &[Method::ListVolumes, Method::ControllerGetVolume],
            Self::Listing => &[Method::ListVolumes],
            Self::Condition => &[Method::ControllerGetVolume],
        }
    }

    pub(super) fn profile(self, page_limit: usize) -> Profile {
        let profile = Profile { name: DRIVER.to_owned(), page_limit, ..Profile::default() };
        match self {
            Self::List => profile.with_volume_health(),
            Self::Health => profile.with_volume_health().without(Rpc::ListVolumeHealth),
            Self::ListingAndCondition => profile,
            Self::Listing => profile.without(Rpc::GetVolume),
            Self::Condition => profile.without(Rpc::ListVolumes),
        }
    }
}

/// The settings of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
pub(super) struct Setting {
    /// Networks are cut, watches are late, the driver is replaced by one of another generation.
    pub(super) is_rough: bool,
    /// A second daemon waits.
    pub(super) has_standby: bool,
    pub(super) speaks: Speaks,
    /// `report`.
    pub(super) report: &'static str,
    /// The API server stores the health of claims.
    pub(super) is_kept: bool,
    /// The reconciler is beside it, under its own Lease.
    pub(super) reconciles: bool,
    /// The driver lists on pages of so many volumes. 0: on one.
    pub(super) page_limit: usize,
}

impl Setting {
    /// Every third seed is a plain one.
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x4ea_0000);
        let report = match rng.random_range(0..6) {
            0 => "status",
            1 => "events",
            2 => "both",
            _ => "auto",
        };
        Self {
            is_rough: !seed.is_multiple_of(3),
            has_standby: rng.random_bool(0.7),
            // Each in its turn.
            speaks: Speaks::ALL[usize::try_from(seed).unwrap_or_default() % Speaks::ALL.len()],
            report,
            is_kept: rng.random_bool(0.75),
            reconciles: rng.random_bool(0.4),
            page_limit: if rng.random_bool(0.3) { 2 } else { 0 },
        }
    }

    fn config(self) -> String {
        let reconciler = if self.reconciles { "\x20 reconciler: { interval: 4s, pageTimeout: 3s }\n" } else { "" };
        format!(
            "{COMMON_CONFIG}\x20 healthMonitor: {{ interval: 2s, listInterval: 3s, pageTimeout: 3s, workers: 3, report: {} }}\n\
             {reconciler}",
            self.report
        )
    }
}

/// A cluster, a driver, and what is drawn.
pub(super) struct Play {
    pub(super) stage: Stage<Own>,
    pub(super) setting: Setting,
    pub(super) checks: Arc<Mutex<Checks>>,
    pub(super) mutant: Option<Mutant>,
    trace: Trace,
}

/// The outcome of a seed.
pub(super) struct Report {
    pub(super) broken: Vec<(Rule, String)>,
    /// How often it was written that a volume is not healthy, how often that it is again, and how many Events there were.
    pub(super) counts: [usize; 3],
    pub(super) calls: usize,
}

impl Play {
    async fn set(seed: u64, setting: Setting, mutant: Option<Mutant>, trace: Trace) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let profile = setting.speaks.profile(setting.page_limit);
        let stage: Stage<Own> = Stage::set(seed, profile, clock, setting.has_standby).await;
        let testbed = &stage.testbed;
        testbed.driver.seed(HANDLES);
        if setting.is_kept {
            testbed.api.keep_volume_health();
        }
        let mut checks = Checks::default();
        (checks.report, checks.is_kept) = (setting.report, setting.is_kept);
        (checks.has_kinds, checks.is_paged) = (setting.speaks.has_kinds(), setting.page_limit > 0);
        let checks = Arc::new(Mutex::new(checks));
        listen_to(testbed, &stage.network, &checks, &trace);
        let mut play = Self { stage, setting, checks, mutant, trace };
        for name in names() {
            play.create_claim(&name);
            play.bind(&name);
        }
        play.infect();
        play.start_all().await;
        play
    }

    /// Breaks the daemons: at first, and again when everything else has healed.
    fn infect(&self) {
        if let Some(mutant) = self.mutant {
            mutant.infect(&self.stage.testbed);
        }
    }

    /// A claim that is bound, as it says itself. Returns its uid.
    pub(super) fn create_claim(&self, name: &str) {
        // It is there already, perhaps.
        let _ = self.stage.testbed.api.create_value(claim(name));
        self.change_status(CLAIMS, &claim_name(name), &json!({ "phase": "Bound" }));
    }

    /// The volume of a claim names the claim that is there.
    pub(super) fn bind(&self, name: &str) {
        let uid = self.checks().claim(&claim_name(name)).map(|claim| claim["metadata"]["uid"].clone());
        let Some(uid) = uid.as_ref().and_then(Value::as_str) else { return };
        let volume = volume(name, uid);
        let of_claim = PatchBody::Merge(json!({ "spec": { "claimRef": volume["spec"]["claimRef"] } }));
        if self.stage.testbed.api.create_value(volume).is_err() {
            let name = volume_name(name);
            self.stage.testbed.api.patch_object(kind(VOLUMES), "", &name, of_claim, false).unwrap();
        }
        self.change_status(VOLUMES, &volume_name(name), &json!({ "phase": "Bound" }));
    }

    pub(super) fn change_status(&self, plural: &str, name: &str, status: &Value) {
        let namespace = if plural == CLAIMS { "default" } else { "" };
        let body = PatchBody::Merge(json!({ "status": status }));
        // It may be gone.
        let _ = self.stage.testbed.api.patch_object(kind(plural), namespace, name, body, true);
    }

    /// Changes what is wrong with a volume. `None`: nothing.
    pub(super) fn ail(&self, handle: &str, ill: Option<usize>) {
        let entries = ill.map_or(&[][..], |ill| ILLNESSES[ill].entries);
        assert!(self.stage.testbed.driver.set_health(handle, entries.iter().copied()));
        let mut checks = self.checks();
        match ill {
            Some(ill) => drop(checks.ill.insert(handle.to_owned(), ill)),
            None => drop(checks.ill.remove(handle)),
        }
    }

    pub(super) async fn start_all(&mut self) {
        let (sound, mutant) = (self.setting.config(), self.mutant);
        let of = |daemon: usize| match mutant {
            Some(mutant) => (mutant.host(daemon), mutant.of_config(&sound, daemon)),
            None => (DAEMONS[daemon], sound.clone()),
        };
        self.stage.start_all(of).await;
    }

    pub(super) fn checks(&self) -> MutexGuard<'_, Checks> {
        self.checks.lock().unwrap()
    }

    /// Answers of the driver may be lost from now on for so long.
    pub(super) fn cut_for(&self, lasts: Duration) {
        let now = self.stage.testbed.driver.age();
        self.checks().cut(now, now.saturating_add(lasts).saturating_add(Duration::from_secs(1)));
    }

    /// Plays it to its end.
    async fn run(mut self) -> Report {
        for _ in 0..self.stage.rng.random_range(40..110) {
            sleep(Duration::from_millis(self.stage.rng.random_range(0..3000))).await;
            self.undo_what_is_due().await;
            self.happen().await;
            if self.is_found_out() {
                return self.report(Vec::new());
            }
        }
        self.heal().await;
        let mut broken = self.converge(STATED, false).await;
        if broken.is_empty() {
            broken = self.converge(STATED_OF_EVENTS - STATED, true).await;
        }
        if broken.is_empty() {
            self.stay_quiet().await;
            broken = self.checks().unrest(true);
        }
        self.report(broken)
    }

    /// Whether the checks have found what a mutant breaks.
    fn is_found_out(&self) -> bool {
        self.mutant.is_some_and(|mutant| self.checks().broken.iter().any(|(rule, _)| *rule == mutant.breaks()))
    }

    fn report(&self, mut broken: Vec<(Rule, String)>) -> Report {
        let checks = self.checks();
        broken.extend(checks.broken.clone());
        broken.extend(self.stage.panics().into_iter().map(|panic| (Rule::I2, panic)));
        // Things without end at one moment.
        broken.extend(self.trace.violations().into_iter().map(|(_, line)| (Rule::I4, line)));
        let [ill, well] = checks.written;
        let (counts, calls) = ([ill, well, checks.events], self.stage.testbed.driver.calls().len());
        Report { broken, counts, calls }
    }

    /// Waits until each claim says how its volume is. Returns what is missing after so many seconds.
    async fn converge(&mut self, seconds: u64, of_events: bool) -> Vec<(Rule, String)> {
        for _ in 0..seconds {
            if self.checks().unrest(of_events).is_empty() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
            // A daemon that had to stop may have ended only now.
            self.start_all().await;
        }
        self.checks().unrest(of_events)
    }

    async fn heal(&mut self) {
        self.stage.end_faults();
        self.stage.restart().await;
        self.cut_for(Duration::ZERO);
        for name in names() {
            self.let_go(&name);
            self.create_claim(&name);
            self.bind(&name);
        }
        self.infect();
        self.start_all().await;
    }

    /// Nothing is to be done any more.
    async fn stay_quiet(&mut self) {
        // Events that were repeated are counted each five minutes. A plain seed waits for that, and the others do not.
        let waits = !self.setting.is_rough && self.checks().events > 0;
        let settles = if waits { STATED_OF_EVENTS } else { STATED };
        let (requests, _) = self.stage.watch(Duration::from_secs(settles), QUIET).await;
        for entry in requests.iter().filter(|it| DAEMONS.contains(&it.user.as_str())) {
            let is_count = !waits && (entry.verb, entry.resource) == ("patch", "events");
            if !matches!(entry.verb, "list" | "watch") && entry.resource != "leases" && !is_count {
                let what = format!("{} {} {}, and nothing has changed", entry.verb, entry.resource, entry.name);
                self.checks().violate(Rule::I4, what);
            }
        }
    }
}

/// Passes each commit and each call to the checks.
fn listen_to(testbed: &TestBed, network: &Network, checks: &Arc<Mutex<Checks>>, trace: &Trace) {
    let (by_call, by_commit) = (Arc::clone(checks), Arc::clone(checks));
    let (network, of_calls, of_commits) = (network.clone(), trace.clone(), trace.clone());
    testbed.driver.on_call(move |call, _| {
        let caller = caller(&network, call);
        let (id, method, label) = (call.id, call.method, call.outcome.label());
        of_calls.note(
            &caller,
            format_args!("#{id} {method} {:?} {:?} {:?} {label}", call.volume, call.fault, call.applied),
        );
        by_call.lock().unwrap().called(call, &caller);
    });
    let began = Instant::now() - testbed.driver.age();
    testbed.api.on_commit(move |change| {
        let commit = Commit::of(change, began.elapsed());
        let object = change.new.or(change.old).unwrap_or(&Value::Null);
        let verb = if change.new.is_none() { "removes" } else { "writes" };
        let shown = match commit.plural {
            CLAIMS => Some(json!([&object["metadata"]["uid"], &object["status"]])),
            VOLUMES => Some(json!([&object["spec"]["claimRef"]["uid"], &object["status"]])),
            "events" => Some(json!([&object["involvedObject"]["uid"], &object["reason"], &object["message"]])),
            _ => None,
        };
        if let Some(shown) = shown {
            of_commits.note(commit.actor, format_args!("{verb} {} {} {shown}", commit.plural, commit.name));
        }
        by_commit.lock().unwrap().committed(&commit);
    });
}

/// Plays a seed.
pub(super) async fn play(seed: u64, setting: Setting, mutant: Option<Mutant>, trace: Trace) -> Report {
    Play::set(seed, setting, mutant, trace).await.run().await
}

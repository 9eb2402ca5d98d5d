//! A cluster, a driver and daemons that a seed is played with; and its end.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use csi_control_plane::process::{Clock, watch};
use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::sandbox::actors::SnapshotHabits;
use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::api::pure::resources::{self, Resource};
use csi_control_plane::sandbox::driver::{Profile, Violation};
use csi_control_plane::sandbox::network::Network;
use csi_control_plane::sandbox::testbed::TestBed;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::checks::Checks;
use super::contents::OF_GROUPS;
use super::groups::Groups;
use super::groups_happening::{group_class, labels_of};
use super::happening::Own;
use super::invariants::Rule;
use crate::stage::{Commit, Stage, caller};
use crate::trace::Trace;
use crate::world::{COMMON_CONFIG, DAEMONS, DRIVER, MARKER, World, secret_name, text};

pub(super) const VOLUMES: usize = 3;
pub(super) const CLASSES: [&str; 2] = ["deletes", "retains"];
/// The secret that classes and contents name, where the driver wants one.
pub(super) const SECRET: usize = 0;
/// The section of the role.
const SETTINGS: &str = "\x20 snapshotter: { workers: 3, callTimeout: 5s, retry: { initial: 500ms, max: 20s, infeasible: 15s }, \
    readyCheck: { initial: 250ms, max: 5s }, resync: 60s, snapshotNamePrefix: PREFIX, \
    groupSnapshotNamePrefix: group-PREFIX }\n";
/// How long it may take until everything is at rest, once nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_secs(600);
/// Less than a look at everything, which costs no request either.
const QUIET: Duration = Duration::from_secs(130);

/// The settings of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn by itself")]
pub(super) struct Setting {
    /// Networks are cut, watches are late, others write to the same objects and wipe what they do not know.
    pub(super) is_rough: bool,
    /// A second daemon waits, whose configuration makes other names.
    pub(super) has_standby: bool,
    /// Every call needs a secret.
    pub(super) is_secretive: bool,
    /// The driver looks up one snapshot, and lists them.
    pub(super) gets: bool,
    pub(super) lists: bool,
    /// How often the driver says of a snapshot that it is not ready yet.
    pub(super) polls: u32,
    /// Groups are taken, too.
    pub(super) takes_groups: bool,
    /// Groups that were there before have contents, too.
    pub(super) gives_groups: bool,
    /// Contents are removed by force, and snapshots are put into other contents.
    pub(super) is_forceful: bool,
}

impl Setting {
    /// Every third seed is a plain one.
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5a9_0000);
        let is_rough = !seed.is_multiple_of(3);
        let polls = if rng.random_bool(0.5) { rng.random_range(1..6) } else { 0 };
        Self {
            is_rough,
            has_standby: rng.random_bool(0.7),
            is_secretive: rng.random_bool(0.3),
            gets: rng.random_bool(0.3),
            lists: rng.random_bool(0.7),
            polls,
            takes_groups: seed % 4 >= 2,
            gives_groups: matches!(seed % 8, 3 | 6 | 7),
            is_forceful: seed % 8 >= 4,
        }
    }

    fn profile(self) -> Profile {
        let mut profile = Profile { name: DRIVER.to_owned(), snapshot_ready_polls: self.polls, ..Profile::default() };
        if !self.gets {
            profile = profile.without(Rpc::GetSnapshot);
        }
        if !self.lists {
            profile = profile.without(Rpc::ListSnapshots);
        }
        profile.snapshot_secrets.0 = self.secrets();
        profile.snapshot_list_secrets.0 = self.secrets();
        profile
    }

    /// What every call needs.
    pub(super) fn secrets<T: FromIterator<(String, String)>>(self) -> T {
        self.is_secretive.then(|| ("password".to_owned(), MARKER.to_owned())).into_iter().collect()
    }
}

/// A cluster, a driver, and what is drawn.
pub(super) struct Play {
    pub(super) stage: Stage<Own>,
    pub(super) setting: Setting,
    pub(super) checks: Arc<Mutex<Checks>>,
    pub(super) groups: Arc<Mutex<Groups>>,
    /// What happens to groups, so that the rest is the same with them and without.
    pub(super) group_rng: StdRng,
    /// What else was added later, for the same reason.
    pub(super) later_rng: StdRng,
    pub(super) member_rng: StdRng,
    pub(super) habits: watch::Sender<SnapshotHabits>,
    /// How many objects of a kind were made, and how often classes changed.
    pub(super) made: u32,
    trace: Trace,
}

/// The outcome of a seed.
pub(super) struct Report {
    pub(super) broken: Vec<(Rule, String)>,
    /// How many snapshots and groups were asked for, and of how many nobody can be blamed for what became of them.
    pub(super) asked: usize,
    pub(super) groups: usize,
    pub(super) excused: usize,
    /// How many contents of groups were for what was there before, and how many contents were removed by force during a call.
    pub(super) given: usize,
    pub(super) forced: usize,
    pub(super) calls: usize,
}

pub(super) fn handle(volume: usize) -> String {
    format!("handle-{volume}")
}

pub(super) fn kind(plural: &str) -> &'static Resource {
    resources::find("snapshot.storage.k8s.io", "v1", plural).unwrap()
}

pub(super) fn class(name: &str, tier: u32, is_secretive: bool) -> Value {
    let policy = if name == CLASSES[0] { "Delete" } else { "Retain" };
    let mut class = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": { "name": name }, "driver": DRIVER, "deletionPolicy": policy,
        "parameters": { "tier": tier.to_string() } });
    if is_secretive {
        for key in ["snapshotter-secret", "snapshotter-list-secret"] {
            class["parameters"][format!("csi.storage.k8s.io/{key}-name")] = secret_name(SECRET).into();
            class["parameters"][format!("csi.storage.k8s.io/{key}-namespace")] = "kube-system".into();
        }
    }
    class
}

impl Play {
    async fn set(seed: u64, setting: Setting, trace: Trace) -> Self {
        let clock = Clock::simulated("2026-01-01T00:00:00Z".parse().unwrap());
        let stage = Stage::set(seed, setting.profile(), clock, setting.has_standby).await;
        let testbed = &stage.testbed;
        let handles: Vec<String> = (0..VOLUMES).map(handle).collect();
        testbed.driver.seed(handles.iter().map(String::as_str));
        testbed.install_snapshots();
        if setting.takes_groups {
            testbed.api.install("groupsnapshot.storage.k8s.io/v1");
        }
        let looks_up = setting.gets || setting.lists;
        let checks = Checks { looks_up, polls: setting.polls, ..Checks::default() };
        let (checks, groups) = (Arc::new(Mutex::new(checks)), Arc::new(Mutex::new(Groups::default())));
        listen_to(testbed, &stage.network, (&checks, &groups), &trace);
        let habits = testbed.start_actors_with_snapshots(SnapshotHabits::default());
        let drawn = |salt: u64| StdRng::seed_from_u64(seed ^ salt);
        let (group_rng, later_rng) = (drawn(0x9_0000), drawn(0xf_0000));
        let member_rng = drawn(0x3f_0000);
        let mut play =
            Self { stage, setting, checks, groups, group_rng, later_rng, member_rng, habits, made: 0, trace };
        play.furnish();
        play.start_all().await;
        play
    }

    fn furnish(&self) {
        let create = |object: Value| drop(self.stage.testbed.api.create_value(object).unwrap());
        create(World::secret(SECRET));
        for index in 0..VOLUMES {
            create(json!({ "apiVersion": "v1", "kind": "PersistentVolume",
                "metadata": { "name": format!("pv-{index}") },
                "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "plain", "persistentVolumeReclaimPolicy": "Retain",
                    "csi": { "driver": DRIVER, "volumeHandle": handle(index) } } }));
            create(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": format!("claim-{index}"), "labels": labels_of(index) },
                "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "plain",
                    "volumeName": format!("pv-{index}"), "resources": { "requests": { "storage": "1Gi" } } } }));
        }
        for name in CLASSES {
            create(class(name, 0, self.setting.is_secretive));
            if self.setting.takes_groups {
                create(group_class(name, self.setting.is_secretive));
            }
        }
        // What the daemons must leave alone.
        let mut foreign = self.given("foreign", "theirs", "Delete", true);
        foreign["spec"]["driver"] = "other.csi.example.com".into();
        create(foreign);
    }

    /// A content of a snapshot that was there before it.
    pub(super) fn given(&self, name: &str, handle: &str, policy: &str, is_protected: bool) -> Value {
        let mut content = json!({ "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": { "name": name },
            "spec": { "driver": DRIVER, "deletionPolicy": policy, "source": { "snapshotHandle": handle },
                "volumeSnapshotClassName": CLASSES[0],
                "volumeSnapshotRef": { "namespace": "default", "name": format!("snap-{name}") } } });
        if is_protected {
            content["metadata"]["finalizers"] = json!([super::checks::FINALIZER]);
        }
        if self.setting.is_secretive {
            content["metadata"]["annotations"] = json!({
                "snapshot.storage.kubernetes.io/deletion-secret-name": secret_name(SECRET),
                "snapshot.storage.kubernetes.io/deletion-secret-namespace": "kube-system" });
        }
        content
    }

    pub(super) async fn start_all(&mut self) {
        // A successor whose configuration makes other names (L6).
        let config = |prefix| format!("{COMMON_CONFIG}{}", SETTINGS.replace("PREFIX", prefix));
        self.stage.start_all(|daemon| (DAEMONS[daemon], config(["snapshot", "snap"][daemon]))).await;
    }

    pub(super) fn checks(&self) -> MutexGuard<'_, Checks> {
        self.checks.lock().unwrap()
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap()
    }

    /// The contents that there are.
    pub(super) fn contents(&self) -> Vec<Arc<Value>> {
        let mut all = self.stage.testbed.api.objects(kind("volumesnapshotcontents"), "").unwrap();
        all.retain(|it| text(it, "/spec/driver") == DRIVER);
        all
    }

    pub(super) fn patch_content(&self, name: &str, body: Value) {
        // No write goes to a missing object.
        let _ = self.stage.testbed.api.patch_object(
            kind("volumesnapshotcontents"),
            "",
            name,
            PatchBody::Merge(body),
            false,
        );
    }

    /// Plays it to its end.
    async fn run(mut self) -> Report {
        for _ in 0..self.stage.rng.random_range(40..110) {
            sleep(Duration::from_millis(self.stage.rng.random_range(0..3000))).await;
            self.undo_what_is_due().await;
            self.happen().await;
            if self.setting.takes_groups {
                self.happen_to_groups();
            }
            if self.setting.gives_groups {
                self.happen_to_given_groups();
            }
            if self.setting.is_forceful {
                self.happen_by_force();
            }
        }
        self.heal().await;
        let mut waited = Duration::ZERO;
        while !self.unrest().is_empty() && waited < PATIENCE {
            sleep(Duration::from_secs(1)).await;
            waited += Duration::from_secs(1);
            // A daemon that had to stop may have ended only now.
            self.start_all().await;
        }
        let mut broken = self.unrest();
        if broken.is_empty() {
            self.stay_quiet().await;
            let checks = self.checks();
            broken = [checks.leaks(), self.groups().leaks(&checks)].concat();
        }
        let (checks, of_groups) = (self.checks(), self.groups());
        broken.extend(checks.broken.clone());
        broken.extend(of_groups.broken());
        let own = |it: &Violation| !matches!(it, Violation::Overlap { same_connection: false, .. });
        broken.extend(
            self.stage.testbed.driver.violations().into_iter().filter(own).map(|it| (Rule::I3, it.to_string())),
        );
        broken.extend(self.trace.violations().into_iter().map(|(_, line)| (Rule::I10, line)));
        let [groups, excused] = of_groups.counts();
        let excused = excused + checks.demands.values().filter(|it| it.excuse.is_some()).count();
        let given = of_groups.contents.values().filter(|it| OF_GROUPS.is_given(&it.object)).count();
        let all = checks.contents.values().chain(of_groups.contents.values());
        let forced = all.filter(|it| it.forced_in.is_some() && it.is_begun).count();
        let (asked, calls) = (checks.demands.len(), self.stage.testbed.driver.calls().len());
        Report { broken, asked, groups, excused, given, forced, calls }
    }

    /// What is still to be done.
    fn unrest(&self) -> Vec<(Rule, String)> {
        let checks = self.checks();
        [checks.unrest(), self.groups().unrest(&checks)].concat()
    }

    async fn heal(&mut self) {
        self.stage.end_faults();
        self.stage.restart().await;
        self.habits.send_replace(SnapshotHabits::default());
        for name in CLASSES {
            // Refused where it is there.
            let _ = self.stage.testbed.api.create_value(class(name, self.made, self.setting.is_secretive));
        }
        let _ = self.stage.testbed.api.create_value(World::secret(SECRET));
        for content in self.contents() {
            let kept: Vec<&str> =
                crate::world::finalizers(&content).into_iter().filter(|it| !it.starts_with("example.com/")).collect();
            self.patch_content(text(&content, "/metadata/name"), json!({ "metadata": { "finalizers": kept } }));
        }
        self.start_all().await;
    }

    /// Nothing is to be done any more.
    async fn stay_quiet(&mut self) {
        // The last Events are on their way.
        let (requests, calls) = self.stage.watch(Duration::from_secs(75), QUIET).await;
        self.checks().disturbed(&requests, &calls);
        self.groups().disturbed(&calls);
    }
}

/// Passes each commit and each call to the checks.
fn listen_to(
    testbed: &TestBed,
    network: &Network,
    (checks, groups): (&Arc<Mutex<Checks>>, &Arc<Mutex<Groups>>),
    trace: &Trace,
) {
    let (by_call, by_commit) = (Arc::clone(checks), Arc::clone(checks));
    let (groups_by_call, groups_by_commit) = (Arc::clone(groups), Arc::clone(groups));
    let (network, of_calls, of_commits) = (network.clone(), trace.clone(), trace.clone());
    testbed.driver.on_call(move |call, state| {
        let caller = caller(&network, call);
        let asked = call.snapshot.clone().unwrap_or_default();
        let listed = call.list.as_ref().map(|list| list.snapshot_id.clone());
        let is_it = |id: &str, name: &str| id == asked || name == asked || listed.as_deref() == Some(id);
        let told = state.snapshots().iter().find(|(id, it)| is_it(id, &it.name)).map_or(0, |(_, it)| it.told);
        if !asked.is_empty() || listed.is_some() {
            let (id, method, label) = (call.id, call.method, call.outcome.label());
            of_calls.note(&caller, format_args!("#{id} {method} {asked} {:?} {label}, told {told}", call.applied));
        }
        let mut checks = by_call.lock().unwrap();
        let grouped = state.snapshots().iter().filter(|(_, it)| !it.group.is_empty());
        checks.grouped.extend(grouped.map(|(id, _)| id.clone()));
        checks.holds(state.snapshots().iter().map(|(id, it)| (id.clone(), it.name.clone())));
        checks.called(call, &caller, told);
        groups_by_call.lock().unwrap().called(call, &caller, state, &checks);
    });
    let began = Instant::now() - testbed.driver.age();
    testbed.api.on_commit(move |change| {
        let object = change.new.or(change.old);
        let commit = Commit::of(change, began.elapsed());
        if change.resource.plural.starts_with("volume") && change.resource.plural.contains("snapshot") {
            let (plural, object) = (commit.plural, object.unwrap_or(&Value::Null));
            let verb = if change.new.is_none() { "removes" } else { "writes" };
            let (metadata, status) = (&object["metadata"], &object["status"]);
            let shown = [&metadata["finalizers"], &metadata["annotations"], &metadata["deletionTimestamp"], status];
            of_commits.note(commit.actor, format_args!("{verb} {plural} {} {shown:?}", commit.name));
        }
        let mut checks = by_commit.lock().unwrap();
        checks.committed(&commit);
        groups_by_commit.lock().unwrap().committed(&commit, &checks);
    });
}

/// Plays a seed.
pub(super) async fn play(seed: u64, setting: Setting, trace: Trace) -> Report {
    Play::set(seed, setting, trace).await.run().await
}

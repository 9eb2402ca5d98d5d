//! All Lease groups of a daemon: one per Lease, with the roles that share it. A change of the configuration changes the
//! wanted groups; the running groups follow, step by step:
//!
//! ```text
//!   wanted: Lease -> settings, active roles        a Lease group continues       its active roles change, its Lease and its term do not
//!   running: Lease -> Lease group         ───>  it is not wanted           it waits for work in flight and releases its Lease
//!                                            its Lease's settings differ  the same, and it starts again when it has ended
//!                                            a new one                  it starts when no other group serves one of its roles
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::election::{self, LeaderElectionSection, LeaseSettings};
use crate::process::{Rng, TaskEnd, TaskEnds, TaskFate, Tasks, watch};
use crate::roles::{Instance, RoleContext};
use crate::telemetry::names;

use super::board::StatusSource;
use super::driver_object::DriverObject;
use super::lease_group::{ActiveRole, ActiveRoles, LeaseGroup, count_task_failure};
use super::plan::LoadedRole;
use super::reload::Dependencies;

/// The name of the Lease group of roles that every replica serves.
const WITHOUT_LEASE: &str = "without-lease";

/// The scope of the Lease groups' tasks.
const SCOPE: &str = "leases";

/// The Lease's name; `None`: every replica serves.
type Key = Option<String>;

/// The Lease groups in progress, and those that are wanted.
pub(super) struct LeaseGroups {
    leases: LeaseFactory,
    status: StatusSource,
    context: RoleContext,
    driver_object: DriverObject,
    election: kube::Client,
    stop: CancellationToken,
    roles: BTreeMap<&'static str, (Key, Arc<ActiveRole>)>,
    running: BTreeMap<Key, Running>,
    /// Every Lease that ever had a group.
    known: BTreeSet<String>,
    tasks: Tasks,
    ends: TaskEnds,
}

/// One Lease group in progress.
struct Running {
    settings: Option<LeaseSettings>,
    roles: watch::Sender<ActiveRoles>,
    stop: CancellationToken,
}

impl LeaseGroups {
    /// None yet.
    pub(super) fn new(
        leases: LeaseFactory,
        status: StatusSource,
        context: RoleContext,
        election: kube::Client,
        stop: CancellationToken,
    ) -> Self {
        let (tasks, ends) = Tasks::new(SCOPE);
        context.board.tasks(tasks.view()).forever();
        let (roles, running, known) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let driver_object = DriverObject::on(&context);
        Self { leases, status, context, driver_object, election, stop, roles, running, known, tasks, ends }
    }

    /// The roles that each role depends on.
    pub(super) fn depends_on(&self) -> Dependencies {
        self.roles.iter().map(|(name, (_, active))| (*name, active.depends_on.clone())).collect()
    }

    /// Removes the roles in `without`, and adds these roles with these Lease settings.
    pub(super) fn change(
        &mut self,
        without: impl IntoIterator<Item = &'static str>,
        with: Vec<LoadedRole>,
        election: &LeaderElectionSection,
    ) {
        self.leases.section = election.clone();
        for name in without {
            self.roles.remove(name);
        }
        for LoadedRole { lease, active, .. } in with {
            self.roles.insert(active.name, (lease.name(&self.context.driver.name), Arc::new(active)));
        }
        self.follow();
    }

    /// Waits for a Lease group to end. `Err`: it ended unexpectedly.
    pub(super) async fn ended(&mut self) -> Result<(), TaskEnd> {
        let Some(end) = self.ends.next().await else { return std::future::pending().await };
        let asked = self.running.keys().find(|key| task(key) == end.task).cloned();
        let asked = asked.and_then(|key| self.running.remove(&key)).is_some_and(|ended| ended.stop.is_cancelled());
        if !asked || end.fate != TaskFate::Returned {
            count_task_failure(&end, &self.context.board, &self.context.meter);
            return Err(end);
        }
        self.follow();
        self.retire();
        Ok(())
    }

    /// Removes the leader metric of a Lease without a group, because 0 would fire an alert.
    fn retire(&self) {
        let held: BTreeSet<&String> =
            self.running.values().filter_map(|running| Some(&running.settings.as_ref()?.name)).collect();
        for name in self.known.iter().filter(|name| !held.contains(name)) {
            self.context.meter.gauge(&names::LEADER_STATUS, &[("name", name)]).set(f64::NAN);
        }
    }

    /// Whether none is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Adapts the running groups to the wanted ones.
    fn follow(&mut self) {
        if self.stop.is_cancelled() {
            return;
        }
        let mut wanted: BTreeMap<Key, ActiveRoles> = BTreeMap::new();
        for (key, active) in self.roles.values() {
            wanted.entry(key.clone()).or_default().push(Arc::clone(active));
        }
        for (key, running) in &self.running {
            let goes_on = wanted.contains_key(key) && running.settings == self.leases.settings(key.as_deref());
            if !goes_on {
                running.stop.cancel();
            }
        }
        for (key, roles) in wanted {
            let settings = self.leases.settings(key.as_deref());
            for active in &roles {
                self.status.states.lease(active.name, settings.as_ref().map(|settings| settings.name.as_str()));
            }
            match self.running.get(&key) {
                Some(running) if !running.stop.is_cancelled() => {
                    running.roles.send_if_modified(|current| {
                        let differs = !current.iter().map(Arc::as_ptr).eq(roles.iter().map(Arc::as_ptr));
                        if differs {
                            current.clone_from(&roles);
                        }
                        differs
                    });
                }
                // Checked again when that group has ended.
                Some(_) => {}
                None if self.is_elsewhere(&roles) => {}
                None => self.begin(key, settings, roles),
            }
        }
    }

    /// Whether a stopping Lease group may still serve one of these roles: two groups must never serve the same role.
    fn is_elsewhere(&self, roles: &ActiveRoles) -> bool {
        let ending = self.running.values().filter(|running| running.stop.is_cancelled());
        ending
            .flat_map(|running| running.roles.borrow().clone())
            .any(|old| roles.iter().any(|new| new.name == old.name))
    }

    fn begin(&mut self, key: Key, settings: Option<LeaseSettings>, roles: ActiveRoles) {
        let (roles, slots) = watch::channel(roles);
        let stop = self.stop.child_token();
        let group = LeaseGroup {
            lease: settings.clone(),
            election: self.election.clone(),
            roles: slots,
            states: self.status.states.clone(),
            leases: self.status.leases.clone(),
            driver_object: self.driver_object.clone(),
            context: self.context.clone(),
            stop: stop.clone(),
        };
        self.known.extend(settings.as_ref().map(|settings| settings.name.clone()));
        self.tasks.spawn(key.as_deref().unwrap_or(WITHOUT_LEASE), group.run());
        self.running.insert(key, Running { settings, roles, stop });
    }
}

/// The name of a Lease group's task.
fn task(key: &Key) -> String {
    format!("{SCOPE}.{}", key.as_deref().unwrap_or(WITHOUT_LEASE))
}

/// Makes each Lease's settings.
pub(super) struct LeaseFactory {
    section: LeaderElectionSection,
    instance: Option<String>,
    /// The namespace of our pod and of its replicas.
    pods: Option<String>,
    identity: String,
}

impl LeaseFactory {
    /// The namespace is the configured one, else the one of [`super::environment::Environment::lease_namespace`].
    pub(super) fn new(section: &LeaderElectionSection, instance: &Instance, rng: &Rng) -> Self {
        let identity = election::identity(&instance.host, instance.pod.as_deref(), instance.container.as_ref(), rng);
        if let Some(container) = &instance.container {
            container.announce(&identity);
        }
        Self {
            section: section.clone(),
            pods: instance.namespace.clone(),
            instance: instance.leases.clone().or_else(|| instance.namespace.clone()),
            identity,
        }
    }

    /// `None` if there is no Lease or election is switched off.
    fn settings(&self, name: Option<&str>) -> Option<LeaseSettings> {
        let section = &self.section;
        let namespace = section.namespace.clone().or_else(|| self.instance.clone()).unwrap_or_default();
        name.filter(|_| section.enabled).map(|name| LeaseSettings {
            namespace,
            name: name.to_owned(),
            identity: self.identity.clone(),
            lease_duration: section.lease_duration,
            renew_deadline: section.renew_deadline,
            retry_period: section.retry_period,
            labels: section.labels.clone(),
            holder_pods: self.pods.clone().filter(|_| section.watch_holder_pod),
        })
    }
}

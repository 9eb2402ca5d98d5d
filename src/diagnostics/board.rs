//! The status board: parts of the daemon register closures, and a report calls them all.
//!
//! Closures are called outside the board's lock, on the task that answers the request; they must not block. Dropping a
//! [`Registered`] removes its closure from the board, so that a role's queue is shown only during its term.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::backlog::Find;
use super::configuration::ConfigurationReport;
use super::health::Check;
use super::overall::judge;
use super::report::{
    ApiReport, CacheReport, ConditionReport, DoneReport, DriverReport, FORMAT_VERSION, Fact, ObjectReport, Overall,
    QueueReport, RoleReport, StatusReport, TaskFailureReport, WorkCounts, WorkReport,
};
use super::shown::Age;
use super::table::{Cell, Table, TableReport};
use crate::process::{Clock, TaskEnd};

/// The most work items in a report, so that a person can read the page and a browser draws it quickly.
const WORK_SHOWN: usize = 200;
/// How many task failures are remembered.
const FAILURES_KEPT: usize = 20;

/// The status board of the daemon's parts. Clones share the board.
#[derive(Clone)]
pub struct Board(Arc<Inner>);

struct Inner {
    version: String,
    clock: Clock,
    started: Timestamp,
    made: Instant,
    /// How long the process had run when the board was made.
    ran: Duration,
    sources: Mutex<Sources>,
    failures: Mutex<Failures>,
}

type Source<T> = Arc<dyn Fn() -> T + Send + Sync>;
type TableSource = Arc<dyn Fn(Option<&Find>) -> TableReport + Send + Sync>;
type ObjectSource = Arc<dyn Fn(&dyn Fn(&[&str]) -> bool) -> Vec<ObjectReport> + Send + Sync>;
type Condition = (String, Source<Result<(), String>>);

#[derive(Default)]
struct Sources {
    next: u64,
    /// In the order of registration, which is the order of the page.
    entries: BTreeMap<u64, Entry>,
}

#[derive(Clone)]
enum Entry {
    Driver(Source<DriverReport>),
    Api(Source<ApiReport>),
    Role(Source<RoleReport>),
    Facts(&'static str, Source<Vec<Fact>>),
    Failure(&'static str, Source<Option<String>>),
    Caches(Source<Vec<CacheReport>>),
    Queue(Source<QueueReport>, Source<Vec<WorkReport>>),
    Done(Source<Vec<DoneReport>>),
    Objects(ObjectSource),
    Tasks(Source<Vec<String>>),
    Configuration(Source<ConfigurationReport>),
    Warnings(Vec<String>),
    Notices(Source<Vec<String>>),
    Readiness(Condition),
    Lease(Condition),
    Alive(Condition),
    Table(TableSource),
    Page(String, Router),
}

#[derive(Default)]
struct Failures {
    total: u64,
    last: VecDeque<TaskFailureReport>,
}

/// Something that is on the board until this is dropped.
#[must_use = "dropping it takes the source off the board; `forever()` leaves it there"]
pub struct Registered {
    board: Weak<Inner>,
    id: u64,
}

impl Registered {
    /// Leaves the source on the board as long as the board lives.
    pub fn forever(mut self) {
        self.board = Weak::new();
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(board) = self.board.upgrade() {
            let removed = lock(&board.sources).entries.remove(&self.id);
            // The closure may hold another `Registered`, so it is dropped after the lock.
            drop(removed);
        }
    }
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registered").field(&self.id).finish()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Board {
    /// An empty board of a process that starts now.
    pub fn new(version: impl Into<String>, clock: Clock) -> Self {
        Self::of_a_process_that_ran(version, clock, Duration::ZERO)
    }

    /// An empty board of a process that has run for this long.
    pub fn of_a_process_that_ran(version: impl Into<String>, clock: Clock, ran: Duration) -> Self {
        Self(Arc::new(Inner {
            version: version.into(),
            clock,
            started: clock.wall().saturating_sub(ran).unwrap_or(Timestamp::MIN),
            made: clock.now(),
            ran,
            sources: Mutex::default(),
            failures: Mutex::default(),
        }))
    }

    fn register(&self, entry: Entry) -> Registered {
        let mut sources = lock(&self.0.sources);
        sources.next += 1;
        let id = sources.next;
        sources.entries.insert(id, entry);
        Registered { board: Arc::downgrade(&self.0), id }
    }

    /// Shows the driver. The last one registered counts.
    pub fn driver(&self, source: impl Fn() -> DriverReport + Send + Sync + 'static) -> Registered {
        self.register(Entry::Driver(Arc::new(source)))
    }

    /// Shows whether the Kubernetes API answers. The last one registered counts.
    pub fn api(&self, source: impl Fn() -> ApiReport + Send + Sync + 'static) -> Registered {
        self.register(Entry::Api(Arc::new(source)))
    }

    /// Shows a role.
    pub fn role(&self, source: impl Fn() -> RoleReport + Send + Sync + 'static) -> Registered {
        self.register(Entry::Role(Arc::new(source)))
    }

    /// Shows more facts about a role, in addition to its state.
    pub fn facts(&self, role: &'static str, source: impl Fn() -> Vec<Fact> + Send + Sync + 'static) -> Registered {
        self.register(Entry::Facts(role, Arc::new(source)))
    }

    /// Shows what a role itself has found to fail, while it does: the whole is `failing` then.
    pub fn failure(
        &self,
        role: &'static str,
        source: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Registered {
        self.register(Entry::Failure(role, Arc::new(source)))
    }

    /// Shows caches.
    pub fn caches(&self, source: impl Fn() -> Vec<CacheReport> + Send + Sync + 'static) -> Registered {
        self.register(Entry::Caches(Arc::new(source)))
    }

    /// Shows a queue and its work items.
    pub fn queue(
        &self,
        queue: impl Fn() -> QueueReport + Send + Sync + 'static,
        work: impl Fn() -> Vec<WorkReport> + Send + Sync + 'static,
    ) -> Registered {
        self.register(Entry::Queue(Arc::new(queue), Arc::new(work)))
    }

    /// Shows what a queue has done last.
    pub fn done(&self, source: impl Fn() -> Vec<DoneReport> + Send + Sync + 'static) -> Registered {
        self.register(Entry::Done(Arc::new(source)))
    }

    /// Lets a search look at objects: `find` returns those whose texts the given function accepts. It is called only for a search.
    pub fn objects(
        &self,
        find: impl Fn(&dyn Fn(&[&str]) -> bool) -> Vec<ObjectReport> + Send + Sync + 'static,
    ) -> Registered {
        self.register(Entry::Objects(Arc::new(find)))
    }

    /// Shows the running tasks of a scope.
    pub fn tasks(&self, source: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Registered {
        self.register(Entry::Tasks(Arc::new(source)))
    }

    /// Shows the configuration. The last one registered counts.
    pub fn configuration(&self, source: impl Fn() -> ConfigurationReport + Send + Sync + 'static) -> Registered {
        self.register(Entry::Configuration(Arc::new(source)))
    }

    /// Shows warnings about the environment for as long as they are true.
    pub fn notices(&self, notices: impl Fn() -> Vec<String> + Send + Sync + 'static) -> Registered {
        self.register(Entry::Notices(Arc::new(notices)))
    }

    /// Shows warnings about the configuration.
    pub fn warnings(&self, warnings: Vec<String>) -> Registered {
        self.register(Entry::Warnings(warnings))
    }

    /// Shows a role's own table: `rows` returns the cells of each row, in the order of the columns.
    pub fn table(
        &self,
        role: &'static str,
        table: &'static Table,
        rows: impl Fn() -> Vec<Vec<Cell>> + Send + Sync + 'static,
    ) -> Registered {
        self.register(Entry::Table(Arc::new(move |find: Option<&Find>| {
            let mut rows = rows();
            if let Some(find) = find {
                find.rows(&mut rows);
            }
            TableReport::new(role, table, rows, WORK_SHOWN)
        })))
    }

    /// `/readyz` succeeds only while this does.
    pub fn readiness(
        &self,
        name: impl Into<String>,
        condition: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Registered {
        self.register(Entry::Readiness((name.into(), Arc::new(condition))))
    }

    /// `/livez` succeeds only while this does. After a failure the kubelet restarts the container: only for what a restart mends, and
    /// nothing else does.
    pub fn alive(
        &self,
        name: impl Into<String>,
        condition: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Registered {
        self.register(Entry::Alive((name.into(), Arc::new(condition))))
    }

    /// Serves a page of a role's own at this path of the diagnostics, if they have no page there themselves.
    pub fn page(&self, path: impl Into<String>, routes: Router) -> Registered {
        self.register(Entry::Page(path.into(), routes))
    }

    /// The page at this path.
    pub(crate) fn find_page(&self, path: &str) -> Option<Router> {
        let sources = lock(&self.0.sources);
        sources.entries.values().find_map(|entry| match entry {
            Entry::Page(known, routes) if known == path => Some(routes.clone()),
            _ => None,
        })
    }

    /// `/healthz/leader-election` succeeds only while this does. As in the Go sidecars, the condition fails only if we
    /// hold the lease and our last renewal is older than its duration plus 20 s; a standby is always healthy.
    pub fn lease(
        &self,
        name: impl Into<String>,
        condition: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Registered {
        self.register(Entry::Lease((name.into(), Arc::new(condition))))
    }

    /// Remembers a task that ended unexpectedly.
    pub fn task_failed(&self, end: &TaskEnd) {
        let failure = TaskFailureReport { at: self.0.clock.wall(), task: end.task.clone(), fate: end.fate.to_string() };
        let mut failures = lock(&self.0.failures);
        failures.total += 1;
        failures.last.push_front(failure);
        failures.last.truncate(FAILURES_KEPT);
    }

    fn entries(&self) -> Vec<Entry> {
        lock(&self.0.sources).entries.values().cloned().collect()
    }

    /// What `/livez` answers.
    pub fn livez(&self) -> Check {
        Check {
            endpoint: "livez",
            conditions: self.conditions(|e| if let Entry::Alive(c) = e { Some(c) } else { None }),
        }
    }

    /// What `/readyz` answers.
    pub fn readyz(&self) -> Check {
        Check {
            endpoint: "readyz",
            conditions: self.conditions(|e| if let Entry::Readiness(c) = e { Some(c) } else { None }),
        }
    }

    /// What `/healthz/leader-election` answers.
    pub fn leases(&self) -> Check {
        Check {
            endpoint: "leader-election",
            conditions: self.conditions(|e| if let Entry::Lease(c) = e { Some(c) } else { None }),
        }
    }

    fn conditions(&self, wanted: fn(&Entry) -> Option<&Condition>) -> Vec<ConditionReport> {
        let entries = self.entries();
        let report = |(name, condition): &Condition| ConditionReport { name: name.clone(), failure: condition().err() };
        entries.iter().filter_map(wanted).map(report).collect()
    }

    /// The search for these words, if there are any, and the objects that it finds.
    fn search(&self, words: &str) -> (Option<Find>, Vec<ObjectReport>) {
        let Some(find) = Find::of(words) else { return (None, Vec::new()) };
        let mut objects = Vec::new();
        for entry in self.entries() {
            if let Entry::Objects(source) = entry {
                objects.extend(source(&|texts| find.is_in(texts.iter().copied())));
            }
        }
        (Some(find.with(&objects)), objects)
    }

    /// Everything, now.
    pub fn report(&self) -> StatusReport {
        self.report_on("")
    }

    /// The same, but with only the work items and table rows that contain all these words.
    pub fn report_on(&self, words: &str) -> StatusReport {
        let (find, all_objects) = self.search(words);
        let board = &*self.0;
        let (task_failures, task_failures_total) = {
            let failures = lock(&board.failures);
            (failures.last.iter().cloned().collect(), failures.total)
        };
        let mut report = StatusReport {
            format_version: FORMAT_VERSION,
            version: board.version.clone(),
            overall: Overall::Starting,
            started: board.started,
            now: board.clock.wall(),
            uptime: Age(board.ran + board.clock.now().saturating_duration_since(board.made)),
            driver: None,
            api: None,
            readiness: self.readyz().conditions,
            roles: Vec::new(),
            caches: Vec::new(),
            queues: Vec::new(),
            find: None,
            objects: Vec::new(),
            objects_total: 0,
            work: Vec::new(),
            work_total: 0,
            work_failing: 0,
            work_states: WorkCounts::default(),
            done: Vec::new(),
            tasks: Vec::new(),
            task_failures,
            task_failures_total,
            configuration: None,
            warnings: Vec::new(),
            tables: Vec::new(),
        };
        let (mut all_work, mut all_facts, mut all_done) = (Vec::new(), Vec::new(), Vec::new());
        let mut all_failures = Vec::new();
        for entry in self.entries() {
            match entry {
                Entry::Driver(source) => report.driver = Some(source()),
                Entry::Api(source) => report.api = Some(source()),
                Entry::Role(source) => report.roles.push(source()),
                Entry::Facts(role, source) => all_facts.push((role, source())),
                Entry::Failure(role, source) => all_failures.push((role, source())),
                Entry::Caches(source) => report.caches.extend(source()),
                Entry::Queue(queue, work) => {
                    report.queues.push(queue());
                    all_work.extend(work());
                }
                Entry::Done(source) => all_done.extend(source()),
                Entry::Tasks(source) => report.tasks.extend(source()),
                Entry::Table(source) => report.tables.push(source(find.as_ref())),
                Entry::Configuration(source) => report.configuration = Some(source()),
                Entry::Warnings(warnings) => report.warnings.extend(warnings),
                Entry::Notices(source) => report.warnings.extend(source()),
                Entry::Objects(_) | Entry::Readiness(_) | Entry::Lease(_) | Entry::Alive(_) | Entry::Page(..) => {}
            }
        }
        for (role, facts) in all_facts {
            if let Some(shown) = report.roles.iter_mut().find(|shown| shown.name == role) {
                shown.facts.extend(facts);
            }
        }
        for (role, failure) in all_failures {
            if let Some(shown) = report.roles.iter_mut().find(|shown| shown.name == role) {
                shown.failure = failure;
            }
        }
        report.take_work(all_work, find.as_ref(), WORK_SHOWN);
        report.take_done(all_done, find.as_ref());
        report.take_objects(all_objects);
        report.tasks.sort();
        // What only a restart mends.
        let is_alive = self.livez().conditions.iter().all(|condition| condition.failure.is_none());
        report.overall = if is_alive { judge(&report) } else { Overall::Failing };
        report
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("sources", &lock(&self.0.sources).entries.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "board_tests.rs"]
mod tests;

//! A role that serves a term on a sandbox, with nothing of the daemon around it: for the tests of what its handlers do.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::cluster::{ApiOptions, CsiNode, ObjectName};
use crate::diagnostics::WorkReport;
use crate::election::Term;
use crate::process::Tasks;
use crate::roles::{Registration, Role, RoleContext, Wired, Wiring};
use crate::sandbox::api::faults::{Action, Fault, Matching};
use crate::sandbox::driver::Profile;
use crate::sandbox::testbed::TestBed;
use crate::sandbox::testbed::harness::RoleHarness;

/// Longer than anything that is waited for.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// A testbed, a role, and what the role works with.
pub(crate) struct Served {
    pub(crate) testbed: TestBed,
    pub(crate) context: RoleContext,
    role: Arc<dyn Role>,
    tasks: Tasks,
    serving: Tasks,
    _wired: Wired,
}

impl Served {
    /// Sets the testbed. The caches are warm when the role is served.
    pub(crate) async fn new(registration: &Registration, section: &Value, profile: Profile) -> Self {
        Self::on_node(registration, section, profile, None).await
    }

    /// The same on this node.
    pub(crate) async fn on_node(
        registration: &Registration,
        section: &Value,
        profile: Profile,
        node: Option<&str>,
    ) -> Self {
        let mut harness = RoleHarness::with(profile).await;
        harness.context.instance.node = node.map(str::to_owned);
        let mut wiring = Wiring::new(&harness.caches);
        let registration = registration.cluster().unwrap();
        let role = (registration.load)(section, &mut wiring).unwrap().into();
        let wired = wiring.into_wired();
        harness.watch();
        let RoleHarness { testbed, context, tasks, .. } = harness;
        let context = context.of_role(registration);
        let (serving, _) = Tasks::new("served");
        Self { testbed, context, role, tasks, serving, _wired: wired }
    }

    /// Begins to serve a term.
    pub(crate) fn serve(&self, term: Term) {
        let (role, cx) = (Arc::clone(&self.role), self.context.clone());
        self.serving.spawn("role", async move {
            role.serve(&cx, term).await.unwrap();
        });
    }

    /// Begins to serve a term that does not end.
    pub(crate) fn lead(&self) {
        self.serve(Term::permanent(&CancellationToken::new(), self.context.clock));
    }

    /// Ends what serves, as SIGKILL does.
    pub(crate) fn kill(&self) {
        self.serving.abort_all();
    }

    /// The same, and waits for the end.
    pub(crate) async fn die(&self) {
        self.kill();
        self.until("it is dead", |world| !world.is_serving()).await;
    }

    /// Writes the role's Events, which are else only noted.
    pub(crate) fn write_events(&self) {
        self.tasks.spawn("events", self.context.events.clone().run());
    }

    /// Whether a term is being served.
    pub(crate) fn is_serving(&self) -> bool {
        !self.serving.running().is_empty()
    }

    /// What is in the role's queues.
    pub(crate) fn work(&self) -> Vec<WorkReport> {
        self.context.board.report().work
    }

    /// Waits for something.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let look = async {
            while !holds(self) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let seen = tokio::time::timeout(PATIENCE, look).await;
        assert!(seen.is_ok(), "never: {what}; {:#?}, {:#?}", self.work(), self.testbed.driver.calls());
    }

    /// Waits until nothing is left to do.
    pub(crate) async fn rest(&self) {
        self.until("nothing is left to do", |world| world.work().is_empty()).await;
    }

    /// Waits for something, and no attempt may fail meanwhile.
    pub(crate) async fn until_quietly(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let failed = RefCell::new(Vec::new());
        let look = |world: &Self| {
            let fails = |item: &WorkReport| item.attempts > 0 || item.last_error.is_some();
            failed.borrow_mut().extend(world.work().into_iter().filter(fails));
            holds(world) || !failed.borrow().is_empty()
        };
        self.until(what, look).await;
        assert!(failed.borrow().is_empty(), "{what}: {failed:#?}");
    }

    /// Fills the work path to the API with requests that nobody answers: what is asked next waits for its turn until these have
    /// timed out.
    pub(crate) async fn jam(&self) {
        let faults = self.testbed.api.faults();
        let held = faults.add(Fault::on(Matching::any().verb("get").resource("csinodes"), Action::Hold));
        let places = ApiOptions::default().max_in_flight;
        for number in 0..places {
            let api = self.context.api.clone();
            let request = async move { drop(api.get::<CsiNode>(&ObjectName::cluster("none")).await) };
            self.tasks.spawn(format_args!("jam.{number}"), request);
        }
        self.until("jammed", |_| faults.hits(held) == u64::try_from(places).unwrap()).await;
    }
}

//! The resources of a role, without the daemon: for the tests of what the whole daemon would hide, such as a step of an
//! attempt, a loop alone, or a term that ends when its elector would not have let it.

use std::time::Duration;

use crate::cluster::{
    Api, ApiOptions, Caches, ClientOptions, Clients, ClusterAccess, EventRecorder, EventSource, InTree, Viewpoint,
};
use crate::csi::{Csi, CsiOptions};
use crate::diagnostics::Board;
use crate::process::{Clock, Rng, Tasks};
use crate::roles::{RoleContext, metrics};
use crate::sandbox::driver::Profile;
use crate::sandbox::network::Network;

use super::{ADMIN_TOKEN, TestBed, Transport, instance};

/// The host and the pod that the role would run in.
const NAME: &str = "me";

/// How long our own driver may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(30);

/// A testbed on a simulated network, and what the app would give a role there.
pub(crate) struct RoleHarness {
    /// The API and the driver.
    pub(crate) testbed: TestBed,
    /// The resources of a role, with a ready driver. Events are only recorded; none is written.
    pub(crate) context: RoleContext,
    /// The role requests its caches here, before [`RoleHarness::watch`].
    pub(crate) caches: Caches,
    /// The connection to the driver, the watches, and the tasks of the test. They run until the harness is dropped.
    pub(crate) tasks: Tasks,
    clients: Clients,
}

impl RoleHarness {
    /// Sets the testbed, and waits until the driver is ready.
    pub(crate) async fn with(profile: Profile) -> Self {
        let (clock, rng, meter) = (Clock::system(), Rng::seeded(1), metrics::meter());
        let transport = Transport::Network(Network::new());
        let testbed = TestBed::set_up(transport, profile, clock, rng.clone()).await.unwrap();
        let csi = Csi::new(testbed.driver_dial(NAME), CsiOptions::default(), meter.clone(), clock, rng.clone());
        csi.know_successors(|name| InTree::of_driver(name).is_some());
        let (tasks, _) = Tasks::new("harness");
        tasks.spawn("csi", csi.clone().run());
        let mut states = csi.state();
        let ready = tokio::time::timeout(PATIENCE, states.wait_for(|state| state.ready().is_some())).await;
        let driver = ready.expect("the driver is not ready").unwrap().ready().unwrap().clone();
        let access = ClusterAccess::Endpoint { dial: testbed.api_dial(NAME), token: Some(ADMIN_TOKEN.into()) };
        let clients = Clients::connect(&access, &ClientOptions::default()).await.unwrap();
        let api = Api::new(clients.work.clone(), &ApiOptions::default(), meter.clone());
        let api = api.with_outage(&clients.outage);
        let source = EventSource { component: NAME.into(), instance: NAME.into() };
        let context = RoleContext {
            events: EventRecorder::new(api.clone(), source, meter.clone(), clock, rng.clone()),
            driver,
            csi,
            api,
            board: Board::new("test", clock),
            meter,
            clock,
            rng,
            instance: instance(NAME),
        };
        Self { testbed, context, caches: Caches::new(), tasks, clients }
    }

    /// Starts the requested caches.
    pub(crate) fn watch(&self) {
        let RoleContext { driver, instance, meter, clock, rng, .. } = &self.context;
        let view = Viewpoint {
            driver: &driver.name,
            namespace: instance.namespace.as_deref(),
            node: instance.node.as_deref(),
        };
        self.caches.start(&self.clients, &view, &self.tasks, meter, *clock, rng.clone());
    }
}

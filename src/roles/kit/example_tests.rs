//! A whole role in one file, made by CONTRIBUTING's guide: it labels each node on which our driver runs.
//!
//! It shows what a role needs beside the kit, and its test proves that this is enough.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::info_span;

use crate::cluster::patch::{Guard, StrategicPatch};
use crate::cluster::rbac::Rule;
use crate::cluster::{Cache, CsiNode, Node, ObjectName};
use crate::config::RoleSection;
use crate::election::Term;
use crate::process::{Faults, Section};
use crate::queue::{Activation, Cause, Outcome, RetrySection, Ticket};
use crate::roles::kit::freshness::{Freshness, read_again};
use crate::roles::kit::served::Served;
use crate::roles::kit::{Attempt, AttemptError, Controllers, Next, NoReason, Op, Reconciler, Stop, TermScope, queues};
use crate::roles::{ClusterRole, Kind, LeasePolicy, Registration, Role, RoleContext, RoleError, Wiring};
use crate::sandbox::driver::Profile;

const NAME: &str = "example";
const LABEL: &str = "example.csi-control-plane.io/driver";
const WRITE: Op = Op("cannot label the node");
const REFRESH: Op = Op("cannot read the node again after a conflict");

/// The line in `ROLES`.
const REGISTRATION: Registration = Registration {
    name: NAME,
    section: RoleSection::of::<ExampleSection>(NAME),
    sidecar: None,
    restart_keys: &[],
    metrics: &[],
    foreign_metrics: &[],
    kind: Kind::Cluster(ClusterRole {
        lease: |_| LeasePolicy::Sidecar(|driver| format!("example-{driver}")),
        event_source: |driver| format!("example {driver}"),
        sandbox: |_| json!({}),
        load,
    }),
};

/// `roles.example:` in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ExampleSection {}

impl Section for ExampleSection {
    fn check(&self, _: &mut Faults) {}
}

/// Declares caches and rights. No I/O.
fn load(section: &Value, wiring: &mut Wiring<'_>) -> Result<Box<dyn Role>, serde_json::Error> {
    let _: ExampleSection = RoleSection::read(section)?;
    wiring.needs(Rule::cluster("", "nodes", &["get", "patch"], "label the nodes on which the driver runs"));
    Ok(Box::new(Example { nodes: wiring.cache(), csi_nodes: wiring.cache() }))
}

struct Example {
    nodes: Cache<Node>,
    csi_nodes: Cache<CsiNode>,
}

impl Role for Example {
    fn serve<'a>(&'a self, role: &'a RoleContext, term: Term) -> BoxFuture<'a, Result<(), RoleError>> {
        async move {
            let synced = async { (self.nodes.synced().await, self.csi_nodes.synced().await) };
            if term.unless_over(synced).await.is_err() {
                return Ok(());
            }
            let span = |node: &String| info_span!(parent: None, "node", role = NAME, %node);
            let queue = queues::make(role, NAME, &[("label", 4)], RetrySection::default().backoff(), span);
            let scope = TermScope::new(NAME, role, &term);
            let labeller =
                Labeller { scope: Arc::new(scope), nodes: self.nodes.clone(), csi_nodes: self.csi_nodes.clone() };
            let mut controllers = Controllers::new(NAME, &role.board, &term);
            controllers.reconcile(&queue, "Nodes to label", |_| None, labeller);
            controllers.on(&self.csi_nodes, move |change| {
                let Some(node) = change.new.as_ref().map(|node| node.metadata.name.to_string()) else { return };
                queue.add(node, Activation { cause: Cause::Changed, lane: 0, epoch: 0 });
            });
            controllers.serve().await
        }
        .boxed()
    }
}

struct Labeller {
    scope: Arc<TermScope>,
    nodes: Cache<Node>,
    csi_nodes: Cache<CsiNode>,
}

/// The policy: pure.
fn wants_label(node: &Node, is_driver_there: bool, driver: &str) -> bool {
    let label = node.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL));
    is_driver_there && label.map(String::as_str) != Some(driver)
}

impl Reconciler for Labeller {
    type Key = String;
    type State = bool;
    type View = (Option<Arc<Node>>, bool);
    type Step = ();
    type Event = bool;
    type End = ();
    type Reason = NoReason;

    fn scope(&self) -> &TermScope {
        &self.scope
    }

    fn begin(&self, _: &Ticket<String>) -> Option<bool> {
        Some(false)
    }

    fn observe(&self, key: &String, _: &bool) -> Self::View {
        let name = ObjectName::cluster(key);
        let entry = self.csi_nodes.get(&name);
        (self.nodes.get(&name), entry.is_some_and(|node| node.node_id(&self.scope.driver_name).is_some()))
    }

    fn next_step(&self, (node, is_driver_there): &Self::View, is_gone: &bool) -> Next<(), ()> {
        let wants = |node: &Arc<Node>| wants_label(node, *is_driver_there, &self.scope.driver_name);
        if !is_gone && node.as_ref().is_some_and(wants) { Next::Do(()) } else { Next::Done(()) }
    }

    fn has_answer(&self, _: &bool) -> bool {
        false
    }

    async fn perform(
        &self,
        (): (),
        (node, _): &Self::View,
        _: &bool,
        _: &mut Attempt<'_, String>,
    ) -> Result<bool, Stop<NoReason>> {
        let Some(node) = node else { return Ok(false) };
        let patch = StrategicPatch::of(&node.metadata, Guard::Version);
        let patch = patch.set(&["metadata", "labels", LABEL], self.scope.driver_name.as_str()).into_patch();
        let Some(patch) = patch else { return Ok(false) };
        let written = self.scope.api.use_now()?.patch::<Node>(&ObjectName::of(node.as_ref()), &patch).await;
        self.nodes.apply_own_write(written.map_err(|error| WRITE.failed(error))?);
        Ok(false)
    }

    fn apply(&self, is_gone: &mut bool, found_gone: bool) {
        *is_gone |= found_gone;
    }

    async fn refresh(
        &self,
        (node, _): &Self::View,
        _: &AttemptError<NoReason>,
    ) -> Result<Option<bool>, Stop<NoReason>> {
        let Some(node) = node else { return Ok(None) };
        let read = read_again(self.scope.api.use_now()?, &self.nodes, node.as_ref()).await;
        Ok(match read.map_err(|error| REFRESH.failed(error))? {
            Freshness::Newer => Some(false),
            Freshness::Same => None,
            Freshness::Gone => Some(true),
        })
    }

    async fn conclude(&self, ticket: &Ticket<String>, _: bool, ended: Result<(), AttemptError<NoReason>>) -> Outcome {
        let Err(error) = ended else { return Outcome::Settled };
        ticket.note(error.message());
        error.outcome()
    }
}

#[tokio::test(start_paused = true)]
async fn a_role_made_by_the_guide_works_its_queue() {
    let world = Served::new(&REGISTRATION, &json!({}), Profile::default()).await;
    let driver = world.context.driver.name.clone();
    let node = |name: &str| json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } });
    for name in ["with", "without"] {
        world.testbed.api.create_value(node(name)).unwrap();
    }
    let registered = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "with" },
        "spec": { "drivers": [{ "name": driver, "nodeID": "id-1", "topologyKeys": null }] } });
    world.testbed.api.create_value(registered).unwrap();
    world.serve(Term::unattended(world.context.clock, std::time::Duration::from_secs(600)));
    let patched = |world: &Served| world.testbed.api.audit().matching(|entry| entry.verb == "patch").len();
    world.until("the node is labelled", |world| patched(world) == 1).await;
    world.until("nothing is left to do", |world| world.work().is_empty()).await;
    let labels = async |name: &str| {
        let node: Node = world.context.api.get(&ObjectName::cluster(name)).await.unwrap();
        node.metadata.labels.and_then(|labels| labels.get(LABEL).cloned())
    };
    assert_eq!((labels("with").await, labels("without").await), (Some(driver), None));
    assert_eq!(patched(&world), 1, "one write");
    world.testbed.tear_down().await;
}

//! One term of the resizer: its queue, what feeds it, and its tasks.

use std::sync::Arc;
use std::time::Duration;

use tonic::Code;
use tracing::{debug, info, info_span};

use crate::cluster::{Cache, Caches, ObjectName, PersistentVolumeClaim};
use crate::csi::{Capabilities, Client};
use crate::diagnostics::Fact;
use crate::election::Term;
use crate::process::ErrorChain;
use crate::proto::node_service_capability::{self, rpc::Type as NodeRpc};
use crate::proto::{NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse};
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::unknown_values::of_served_volumes;
use crate::roles::kit::{Controllers, Memory, Store, TermScope, UnknownValues, queues};
use crate::roles::role::{RoleContext, RoleError, Serve};

use super::config::{PairCalls, ResizerSection};
use super::context::{self, Context, HowVolumesGrow, Stores};
use super::in_use::{InUse, Wake};
use super::job::{Job, WorkKey};
use super::reconcile::Changes;
use super::report;
use super::triggers::Queue;
use super::unknown::of_claim;
use super::view::{Expansion, Rules};
use super::waiting::Reason;
use super::{NAME, metrics, names, predicates};

/// The pause between two calls of `NodeGetCapabilities`.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The role.
#[derive(Debug)]
pub(super) struct Resizer {
    pub(super) section: ResizerSection,
    pub(super) caches: context::Caches,
    /// Where pods are watched, if they have to be.
    pub(super) namespaces: Caches,
}

impl Serve for Resizer {
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        // Classes are not waited for: a cluster may lack them, and volumes grow without them.
        let synced = async { (self.caches.claims.synced().await, self.caches.volumes.synced().await) };
        if term.unless_over(synced).await.is_err() {
            return Ok(());
        }
        let span = |key: &WorkKey| {
            let (claim, operation) = (&key.claim, key.job.label());
            info_span!(parent: None, "claim", role = NAME, persistent_volume_claim = %claim, operation)
        };
        let (name, lanes) = (names::queue(&role.driver.name), [("change", self.section.workers)]);
        let queue = queues::make(role, &name, &lanes, self.section.retry.backoff(), span);
        let scope = TermScope::with_timeout(role, &term, self.section.timeout).with_events(self.section.events);
        let scope = Arc::new(scope);
        let mut controllers = Controllers::new(NAME, &role.board, &scope);
        let unknown = UnknownValues::shown(role.clock, &mut controllers);
        let cx = Arc::new(self.context(role, scope, &queue, &unknown));
        info!(expansion = ?cx.expansion.get(), modifies = cx.rules.modifies, "serving claims");

        let subject = {
            let cx = Arc::clone(&cx);
            move |key: &WorkKey| cx.stores.claims.get(&key.claim)?.spec.volume_name.as_ref().map(ToString::to_string)
        };
        controllers.follow(&cx.stores.claims);
        controllers.follow(&cx.stores.volumes);
        controllers.drive(&queue, "Claims to expand and modify", subject, Changes(Arc::clone(&cx)));
        let queue = Queue(queue);
        queue.follow(&cx, &mut controllers);
        look_for_unknown_values(&cx, &unknown, &mut controllers);
        controllers.resync(self.section.resync, (queue.clone(), Arc::clone(&cx)), |(queue, cx)| async move {
            queue.look_at_all(&cx, &Job::ALL, Cause::Resync).await;
        });
        if cx.expansion.get() == Expansion::Unknown {
            controllers.task("node-service", ask_node_service(Arc::clone(&cx), queue.clone()));
        }
        if let Some(classes) = cx.classes.clone() {
            let (queue, cx) = (queue.clone(), Arc::clone(&cx));
            controllers.task("classes", async move {
                classes.synced().await;
                // Those that wait for classes are not in the queue. A back-off does not end here: mostly the classes were there already.
                queue.look_at_all(&cx, &[Job::Modify], Cause::Resync).await;
                // Does not end, because the end of a task counts as a failure.
                std::future::pending::<()>().await;
            });
        }
        controllers.show_facts(&cx, facts);
        controllers.show_table(&report::WAITING, &cx, report::waiting_rows);
        let served = controllers.serve().await;
        cx.memory.end();
        served
    }
}

impl Resizer {
    fn context(
        &self,
        role: &RoleContext,
        scope: Arc<TermScope>,
        queue: &WorkQueue<WorkKey>,
        unknown: &Arc<UnknownValues>,
    ) -> Context {
        let (section, driver) = (&self.section, &role.driver.name);
        let capabilities = &role.driver.capabilities;
        let modifies = section.modify && capabilities.controller_service() && capabilities.modify_volume();
        let is_known_to_pair = names::PAIRED_DRIVERS.contains(&driver.as_str());
        let pairs = match section.pair_calls {
            PairCalls::Auto => is_known_to_pair,
            PairCalls::Always => true,
            PairCalls::Never => false,
        };
        let rules = Rules {
            driver: driver.clone(),
            section: section.clone(),
            multi_writer: capabilities.single_node_multi_writer(),
            modifies,
            pairs,
        };
        let memory = Arc::new(Memory::shown(role, &metrics::CLAIMS_WAITING, "reason", &Reason::LABELS));
        Context {
            scope,
            rules: Arc::new(rules),
            stores: Stores { claims: Store::of(&self.caches.claims), volumes: Store::of(&self.caches.volumes) },
            classes: self.caches.classes.clone(),
            expansion: HowVolumesGrow::new(expansion(capabilities)),
            in_use: InUse::new(self.namespaces.clone(), Arc::clone(&memory), self.wake(queue), Arc::clone(unknown)),
            memory,
        }
    }

    /// Wakes the expansion of a claim whose volume no pod uses any more.
    fn wake(&self, queue: &WorkQueue<WorkKey>) -> Wake {
        let (queue, claims) = (queue.clone(), self.caches.claims.clone());
        Arc::new(move |name: &ObjectName| {
            let Some(claim) = claims.get(name) else { return };
            let epoch = predicates::epoch(&claim, Job::Expand);
            let key = WorkKey { claim: name.clone(), job: Job::Expand };
            queue.add(key, Activation { cause: Cause::Changed, lane: 0, epoch });
        })
    }
}

/// How the driver expands volumes, as far as the controller's capabilities say it.
fn expansion(capabilities: &Capabilities) -> Expansion {
    match (capabilities.controller_service(), capabilities.expand_volume()) {
        (false, _) => Expansion::None,
        (true, true) => Expansion::Controller,
        (true, false) => Expansion::Unknown,
    }
}

/// Asks the Node service whether nodes expand volumes alone. If the controller's socket has no Node service, they do not.
async fn ask_node_service(cx: Arc<Context>, queue: Queue) {
    let ask = async |driver: Client| driver.node_get_capabilities(NodeGetCapabilitiesRequest {}).await;
    while let Ok(answer) = cx.scope.ask(ask).await {
        let found = match answer {
            Ok(answer) if expands(&answer) => Expansion::Node,
            Ok(_) => Expansion::None,
            Err(error) if error.code == Code::Unimplemented => Expansion::None,
            Err(error) => {
                debug!(error = %ErrorChain(&error), "cannot tell yet whether nodes expand volumes");
                tokio::time::sleep(ASK_AGAIN).await;
                continue;
            }
        };
        info!(expansion = ?found, "the driver's node service was asked");
        cx.expansion.set(found);
        queue.look_at_all(&cx, &[Job::Expand], Cause::Changed).await;
        break;
    }
    // Does not end, because the end of a task counts as a failure.
    std::future::pending::<()>().await;
}

fn expands(answer: &NodeGetCapabilitiesResponse) -> bool {
    answer.capabilities.iter().any(|capability| match capability.r#type {
        Some(node_service_capability::Type::Rpc(rpc)) => rpc.r#type == NodeRpc::ExpandVolume as i32,
        None => false,
    })
}

/// Tells of the values of claims and volumes that are not known. A claim belongs to our driver once its volume is seen.
fn look_for_unknown_values(cx: &Arc<Context>, unknown: &Arc<UnknownValues>, controllers: &mut Controllers) {
    let find = {
        let cx = Arc::clone(cx);
        move |claim: &PersistentVolumeClaim| of_claim(claim, cx.volume_of(claim).as_deref(), &cx.scope.driver_name)
    };
    controllers.on_store(&cx.stores.claims, unknown.of(find.clone()));
    let (cx_of_volumes, values) = (Arc::clone(cx), Arc::clone(unknown));
    controllers.on_store(&cx.stores.volumes, move |change| {
        let Some(bound) = change.new.as_ref().and_then(|volume| volume.spec.claim_ref.as_deref()) else { return };
        let name = ObjectName::namespaced(&bound.namespace, &bound.name);
        if predicates::volume_turns(change)
            && let Some(claim) = cx_of_volumes.stores.claims.get(&name)
        {
            values.see(&*claim, find(&claim));
        }
    });
    controllers.on_store(&cx.stores.volumes, unknown.of(of_served_volumes(cx.scope.driver_name.clone())));
}

/// The role's facts on the status page.
fn facts(cx: &Context) -> Vec<Fact> {
    let expansion = match cx.expansion.get() {
        Expansion::Controller => "by the controller",
        Expansion::Node => "by nodes alone",
        Expansion::None => "not supported by the driver",
        Expansion::Unknown => "not known yet: the driver's node service has not answered",
    };
    let classes = cx.classes.as_ref();
    let modification = if !cx.rules.section.modify {
        "off: roles.resizer.modify".to_owned()
    } else if !cx.rules.modifies {
        "not supported by the driver".to_owned()
    } else if let Some(missing) = classes.and_then(Cache::missing) {
        format!("idle: {missing}")
    } else {
        "on".to_owned()
    };
    let paired = if cx.rules.pairs { "sent together" } else { "one after the other" };
    vec![
        Fact::new("expansion", expansion),
        Fact::new("modification", modification),
        Fact::new("calls of one claim", paired),
    ]
}

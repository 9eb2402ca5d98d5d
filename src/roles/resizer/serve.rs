//! One term of the resizer: its queue, what feeds it, and its tasks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tonic::Code;
use tracing::{debug, info, info_span};

use crate::cluster::{Cache, Caches, ObjectName, PersistentVolume, PersistentVolumeClaim};
use crate::csi::Capabilities;
use crate::diagnostics::Fact;
use crate::election::Term;
use crate::process::ErrorChain;
use crate::proto::node_service_capability::{self, rpc::Type as NodeRpc};
use crate::proto::{NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse};
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::report::FailureLog;
use crate::roles::kit::unknown_values::of_served_volume;
use crate::roles::kit::{ByUid, Controllers, TermScope, Told, UidSet, UnknownValues, queues, reconcile};
use crate::roles::role::{Role, RoleContext, RoleError};

use super::NAME;
use super::config::{PairCalls, ResizerSection};
use super::context::{Context, HowVolumesGrow, Stores};
use super::expand::decide::{Expansion, Rules as ExpandRules};
use super::expand::reconcile::Expansions;
use super::in_use::{InUse, Wake};
use super::memory::{Job, WorkKey};
use super::modify::decide::Rules as ModifyRules;
use super::modify::reconcile::Modifications;
use super::names;
use super::predicates;
use super::triggers::Queue;
use super::turn::Turns;
use super::unknown::of_claim;
use super::waiting::{self, Waiting};

/// The pause between two calls of `NodeGetCapabilities`.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The role.
#[derive(Debug)]
pub(super) struct Resizer {
    pub(super) section: ResizerSection,
    pub(super) stores: Stores,
    /// Where pods are watched, if they have to be.
    pub(super) caches: Caches,
}

impl Role for Resizer {
    fn serve<'a>(&'a self, role: &'a RoleContext, term: Term) -> BoxFuture<'a, Result<(), RoleError>> {
        self.serve_term(role, term).boxed()
    }
}

impl Resizer {
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        // Classes are not waited for: a cluster may lack them, and volumes grow without them.
        let synced = async { (self.stores.claims.synced().await, self.stores.volumes.synced().await) };
        if term.unless_over(synced).await.is_err() {
            return Ok(());
        }
        let span = |key: &WorkKey| {
            let (claim, operation) = (&key.claim, key.job.label());
            info_span!(parent: None, "claim", role = NAME, persistent_volume_claim = %claim, operation)
        };
        let (name, lanes) = (names::queue(&role.driver.name), [("change", self.section.workers)]);
        let queue = queues::make(role, &name, &lanes, self.section.retry.backoff(), span);
        let mut controllers = Controllers::new(NAME, &role.board, &term);
        let unknown = UnknownValues::shown(role.clock, &mut controllers);
        let cx = Arc::new(self.context(role, &term, &queue, &unknown));
        info!(expansion = ?cx.expansion.get(), modifies = cx.modify.modifies, "serving claims");

        let (expansions, modifications) =
            (Arc::new(Expansions(Arc::clone(&cx))), Arc::new(Modifications(Arc::clone(&cx))));
        let subject = {
            let cx = Arc::clone(&cx);
            move |key: &WorkKey| cx.find(&key.claim).map(|now| now.volume_name().to_owned())
        };
        controllers.handle(&queue, "Claims to expand and modify", subject, move |ticket| match ticket.key().job {
            Job::Expand => {
                let expansions = Arc::clone(&expansions);
                async move { reconcile(expansions.as_ref(), ticket).await }.boxed()
            }
            Job::Modify => {
                let modifications = Arc::clone(&modifications);
                async move { reconcile(modifications.as_ref(), ticket).await }.boxed()
            }
        });
        let queue = Queue(queue);
        queue.follow(&cx, &mut controllers);
        look_for_unknown_values(&cx, &unknown, &mut controllers);
        controllers.resync(self.section.resync, {
            let (queue, cx) = (queue.clone(), Arc::clone(&cx));
            move || queue.look_at_all(&cx, &Job::ALL, Cause::Resync)
        });
        if cx.expansion.get() == Expansion::Unknown {
            controllers.task("node-service", ask_node_service(Arc::clone(&cx), queue.clone()));
        }
        if let Some(classes) = cx.stores.classes.clone() {
            let (queue, cx) = (queue.clone(), Arc::clone(&cx));
            controllers.task("classes", async move {
                classes.synced().await;
                // Those that wait for classes are not in the queue. A back-off does not end here: mostly the classes were there already.
                queue.look_at_all(&cx, &[Job::Modify], Cause::Resync);
                // Does not end, because the end of a task counts as a failure.
                std::future::pending::<()>().await;
            });
        }
        show(role, &cx, &mut controllers);
        let served = controllers.serve().await;
        cx.waiting.retire();
        served
    }

    fn context(
        &self,
        role: &RoleContext,
        term: &Term,
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
        Context {
            scope: TermScope::with_timeout(NAME, role, term, section.timeout).with_events(section.events),
            section: section.clone(),
            stores: self.stores.clone(),
            expand: ExpandRules {
                driver: driver.clone(),
                multi_writer: capabilities.single_node_multi_writer(),
                annotates: section.annotate_pre_resize,
                infeasible_pause: section.retry.infeasible,
            },
            modify: ModifyRules {
                driver: driver.clone(),
                modifies,
                tells_names: section.extra_modify_metadata,
                infeasible_pause: section.retry.infeasible,
            },
            expansion: HowVolumesGrow::new(expansion(capabilities)),
            turns: Turns::new(pairs),
            in_use: InUse::new(self.caches.clone(), self.wake(queue), Arc::clone(unknown)),
            expanded: ByUid::default(),
            modified: ByUid::default(),
            calls: Mutex::default(),
            missing: ByUid::default(),
            node_retries: ByUid::default(),
            confirmed: UidSet::default(),
            told: Told::default(),
            waiting: Waiting::new(role.meter.clone(), driver.clone(), role.clock),
            failures: FailureLog::default(),
        }
    }

    /// Wakes the expansion of a claim whose volume no pod uses any more.
    fn wake(&self, queue: &WorkQueue<WorkKey>) -> Wake {
        let (queue, claims) = (queue.clone(), self.stores.claims.clone());
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
    while let Ok(client) = cx.scope.driver.use_now() {
        let found = match client.node_get_capabilities(NodeGetCapabilitiesRequest {}).await {
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
        queue.look_at_all(&cx, &[Job::Expand], Cause::Changed);
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
    let driver = &cx.scope.driver_name;
    let find = {
        let cx = Arc::clone(cx);
        move |claim: &PersistentVolumeClaim| {
            let volume = claim.spec.volume_name.as_deref();
            let volume = volume.and_then(|name| cx.stores.volumes.get(&ObjectName::cluster(name)));
            of_claim(claim, volume.as_deref(), &cx.scope.driver_name)
        }
    };
    controllers.on(&cx.stores.claims, unknown.of(find.clone()));
    let (cx_of_volumes, values) = (Arc::clone(cx), Arc::clone(unknown));
    controllers.on(&cx.stores.volumes, move |change| {
        let Some(bound) = change.new.as_ref().and_then(|volume| volume.spec.claim_ref.as_deref()) else { return };
        let name = ObjectName::namespaced(&bound.namespace, &bound.name);
        if predicates::volume_turns(change)
            && let Some(claim) = cx_of_volumes.stores.claims.get(&name)
        {
            values.see(&*claim, find(&claim));
        }
    });
    let driver = driver.clone();
    let of_volume = move |volume: &PersistentVolume| {
        if volume.served_by() == Some(driver.as_str()) { of_served_volume(volume) } else { Vec::new() }
    };
    controllers.on(&cx.stores.volumes, unknown.of(of_volume));
}

/// The role's part of the status page.
fn show(role: &RoleContext, cx: &Arc<Context>, controllers: &mut Controllers) {
    let facts = {
        let cx = Arc::clone(cx);
        move || {
            let expansion = match cx.expansion.get() {
                Expansion::Controller => "by the controller",
                Expansion::Node => "by nodes alone",
                Expansion::None => "not supported by the driver",
                Expansion::Unknown => "not known yet: the driver's node service has not answered",
            };
            let classes = cx.stores.classes.as_ref();
            let modification = if !cx.section.modify {
                "off: roles.resizer.modify".to_owned()
            } else if !cx.modify.modifies {
                "not supported by the driver".to_owned()
            } else if let Some(missing) = classes.and_then(Cache::missing) {
                format!("idle: {missing}")
            } else {
                "on".to_owned()
            };
            let paired = if cx.turns.pairs() { "sent together" } else { "one after the other" };
            let fact = |name: &str, value: &str| Fact { name: name.to_owned(), value: value.to_owned() };
            vec![fact("expansion", expansion), fact("modification", &modification), fact("calls of one claim", paired)]
        }
    };
    controllers.show(role.board.facts(NAME, facts));
    let rows = {
        let cx = Arc::clone(cx);
        move || cx.waiting.rows()
    };
    controllers.show(role.board.table(NAME, &waiting::TABLE, rows));
}

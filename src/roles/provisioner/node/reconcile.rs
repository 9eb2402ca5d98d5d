//! The admission stage's I/O: the reads and writes before a claim is this node's (spec 2.14).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::cluster::patch::{self, MetaChange};
use crate::cluster::{ApiErrorKind, EventKind, Node, ObjectName};
use crate::proto::GetCapacityRequest;
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::freshness::{Freshness, read_again};
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{Admission, Attempt, AttemptError, Next, NoReason, Op, Reconciler, Stop, TermScope};
use crate::roles::provisioner::claims::attempt::{self, Event as ClaimEvent, Happened};
use crate::roles::provisioner::claims::claim::{Claim, ClaimKey};
use crate::roles::provisioner::claims::decide::ignored;
use crate::roles::provisioner::claims::observe::{Look, Observed as SeenClaim};
use crate::roles::provisioner::claims::perform::patch_claim;
use crate::roles::provisioner::claims::request::{Request, RequestInput, build};
use crate::roles::provisioner::claims::state::Reported;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::names;
use crate::roles::provisioner::topology::Segment;

use super::admission::{Step, View, next_step};
use super::contention::{Holder, Verdict, has_room};
use super::deployment::LocalNode;

/// Selects this node for the claim.
const BECOME_OWNER: Op = Op("cannot select this node for the claim");
/// Reads the Node that is selected for the claim.
const READ_NODE: Op = Op("cannot check whether the claim's node still exists");
/// Removes a deleted node from the claim.
const RELEASE_OWNERSHIP: Op = Op("cannot remove the deleted node from the claim");
/// Reads the claim again.
const REFRESH: Op = Op("cannot read the claim again after a conflict");

/// The stage before the claims of a daemon that works for one node.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct NodeAdmission {
    cx: Arc<Context>,
}

/// What one attempt knows.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct State {
    claim: attempt::State,
    /// Whether the API has the node of this name, which the claim had selected.
    holder: Option<(String, Holder)>,
    has_room: bool,
}

/// The input of one decision.
pub(in crate::roles::provisioner) struct Observed {
    seen: SeenClaim,
    verdict: Verdict,
}

/// The result of a step.
#[derive(Debug)]
pub(in crate::roles::provisioner) enum Event {
    /// The wait has begun.
    WaitBegun,
    /// Whether the node of this name exists.
    Holder(String, Holder),
    /// The driver has room for the claim here, or cannot say.
    HasRoom,
    /// The claim was written or read again; the next observation sees it.
    Renewed,
}

impl NodeAdmission {
    /// For one term.
    pub(in crate::roles::provisioner) fn new(cx: Arc<Context>) -> Self {
        Self { cx }
    }

    fn local(&self) -> Option<&LocalNode> {
        self.cx.deployment.local()
    }

    /// Another daemon owns the claim, or may take it: keep the claim's state only if it still matters.
    fn leave(&self, state: State, claim: &Claim) {
        let (cx, mut known) = (&self.cx, state.claim.known);
        known.claim = claim.clone();
        // After the Event of a failure comes an Event of its end.
        if claim.selected_node.is_none() && known.reported != Reported::default() {
            cx.note_end(known);
        } else {
            cx.forget_state(&claim.key.uid);
        }
        cx.sources_may_be_free(claim);
    }
}

impl Reconciler for NodeAdmission {
    type Key = ClaimKey;
    type State = State;
    type View = Observed;
    type Step = Step;
    type Event = Event;
    type End = Admission;
    type Reason = NoReason;

    fn scope(&self) -> &TermScope {
        &self.cx.scope
    }

    fn begin(&self, ticket: &Ticket<ClaimKey>) -> Option<State> {
        let claim = attempt::State::begin(&self.cx, ticket.key())?;
        Some(State { claim, holder: None, has_room: false })
    }

    fn observe(&self, key: &ClaimKey, state: &State) -> Observed {
        let seen = Look { cx: &self.cx, state: &state.claim }.observe(key);
        let holder = state.holder.as_ref();
        let verdict = self.local().map_or(Verdict::Mine, |local| {
            local.verdict(&seen.claim, seen.class.as_deref(), holder, state.claim.begun)
        });
        Observed { seen, verdict }
    }

    fn next_step(&self, now: &Observed, state: &State) -> Next<Step, Admission> {
        let look = Look { cx: &self.cx, state: &state.claim };
        let known = look.known();
        next_step(&View {
            claim: &now.seen.claim,
            has_to_end: !now.seen.present || !known.is_unasked(),
            ignored: ignored(&look.view(&now.seen)),
            verdict: now.verdict,
            has_room: state.has_room,
        })
    }

    fn has_answer(&self, _: &State) -> bool {
        false
    }

    fn keeps_changes(&self, state: &State) -> bool {
        state.holder.is_some()
    }

    async fn perform(
        &self,
        step: Step,
        now: &Observed,
        _: &State,
        _: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Event, Stop<NoReason>> {
        let (cx, claim) = (&self.cx, &now.seen.claim);
        let Some(local) = self.local() else { return Ok(Event::Renewed) };
        match step {
            Step::BeginWait => {
                local.begin_wait(claim, cx.scope.clock.now());
                Ok(Event::WaitBegun)
            }
            Step::AskForHolder(node) => {
                let found = cx.scope.api.use_now()?.get_opt::<Node>(&ObjectName::cluster(&node)).await;
                let found = found.map_err(|error| READ_NODE.failed(error))?;
                Ok(Event::Holder(node, if found.is_some() { Holder::There } else { Holder::Gone }))
            }
            Step::AskCapacity if self.has_room(local, now).await? => Ok(Event::HasRoom),
            Step::AskCapacity => Err(Stop::Later(local.no_room(&claim.key, cx.scope.clock.now()))),
            Step::BecomeOwner => {
                let written = self.write_owner(local, claim).await;
                if let Err(Stop::Failed(error)) = &written
                    && (error.is_stale() || is_forbidden(error))
                {
                    local.lost(&claim.key);
                }
                self.written(written, now).await
            }
            Step::ReleaseOwnership => {
                let written = self.remove_owner(claim).await;
                if let (Ok(()), Some(node)) = (&written, &claim.selected_node) {
                    info!(node, "the claim's node is gone: removed it from the claim");
                    cx.node_is_gone(node).await;
                }
                self.written(written, now).await
            }
        }
    }

    fn apply(&self, state: &mut State, event: Event) {
        match event {
            Event::WaitBegun => state.holder = None,
            Event::Holder(node, found) => state.holder = Some((node, found)),
            Event::HasRoom => state.has_room = true,
            Event::Renewed => state.claim.apply(ClaimEvent { claim: None, happened: Happened::Renewed }),
        }
    }

    async fn refresh(&self, now: &Observed, _: &AttemptError<NoReason>) -> Result<Option<Event>, Stop<NoReason>> {
        let read = read_again(self.cx.scope.api.use_now()?, &self.cx.stores.claims, now.seen.claim.object.as_ref());
        Ok(match read.await.map_err(|error| REFRESH.failed(error))? {
            Freshness::Newer => Some(Event::Renewed),
            Freshness::Same => None,
            // The watch will remove it from the cache, which ends the key.
            Freshness::Gone => return Err(Stop::Later(crate::roles::kit::freshness::CATCH_UP)),
        })
    }

    async fn conclude(
        &self,
        ticket: &Ticket<ClaimKey>,
        state: State,
        ended: Result<Admission, AttemptError<NoReason>>,
    ) -> Outcome {
        let (cx, now) = (&self.cx, self.observe(ticket.key(), &state));
        let claim = &now.seen.claim;
        match ended {
            // The work on the claim begins now.
            Ok(Admission::Mine) => Outcome::Settled,
            Ok(Admission::NotMine) => {
                debug!("the claim is not this node's");
                self.leave(state, claim);
                cx.dismiss(claim);
                cx.forget(ticket.key());
                Outcome::Settled
            }
            Ok(Admission::RetryAfter(wait)) => {
                self.leave(state, claim);
                Outcome::RetryAfter(wait)
            }
            Err(error) => {
                let attempt = ticket.attempt() + 1;
                let now = cx.scope.clock.now();
                log_failure!(cx.failures, now, &error, { attempt, }, "could not find out which node takes the claim");
                ticket.note(error.message());
                if claim.selected_node.is_none() {
                    let note = format!("failed to provision volume: {}", error.message());
                    cx.tell_claim(claim, EventKind::Warning, "ProvisioningFailed", &note);
                }
                error.outcome()
            }
        }
    }
}

impl NodeAdmission {
    /// Whether this node's driver has room for the claim. If the driver cannot say, or no request can be built, the
    /// answer is yes: exactly one node then takes the claim and reports the error (spec 2.14).
    async fn has_room(&self, local: &LocalNode, now: &Observed) -> Result<bool, Stop<NoReason>> {
        let Some(request) = self.request(local, now) else { return Ok(true) };
        let client = self.cx.scope.driver.use_now()?;
        let places = request.requirement.as_ref().map_or(&[][..], |requirement| &requirement.requisite);
        let places: Vec<Option<&Segment>> =
            if places.is_empty() { vec![None] } else { places.iter().map(Some).collect() };
        let mut answers = Vec::new();
        for place in places {
            let asked = GetCapacityRequest {
                volume_capabilities: request.capabilities(),
                parameters: request.parameters.clone().into_iter().collect(),
                accessible_topology: place.map(Segment::to_proto),
            };
            match self.cx.scope.term.during(client.get_capacity(asked)).await? {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    warn!(error = %error, "cannot read the capacity: trying without it");
                    return Ok(true);
                }
            }
        }
        Ok(has_room(&answers, request.required_bytes))
    }

    /// The request that we would send if the claim were ours. Its source does not matter.
    fn request(&self, local: &LocalNode, now: &Observed) -> Option<Request> {
        let (cx, claim, class) = (&self.cx, &now.seen.claim, now.seen.class.as_deref()?);
        let requirement = if cx.asking.topology {
            local.requirement(Some(local.name()), class, claim.key.name.name()).ok()?
        } else {
            None
        };
        build(&RequestInput {
            claim: &claim.object,
            class,
            rules: &cx.asking,
            source: None,
            requirement,
            attributes_class: None,
        })
        .ok()
    }

    /// The result of a write. Admission may refuse with `Forbidden` an old version of a claim that it would accept now:
    /// read it again.
    async fn written(&self, written: Result<(), Stop<NoReason>>, now: &Observed) -> Result<Event, Stop<NoReason>> {
        match written {
            Ok(()) => Ok(Event::Renewed),
            Err(Stop::Failed(error)) if is_forbidden(&error) => {
                self.refresh(now, &error).await?.ok_or_else(|| error.into())
            }
            Err(ended) => Err(ended),
        }
    }

    /// Writes this node's name on the claim, if no other node is written there.
    async fn write_owner(&self, local: &LocalNode, claim: &Claim) -> Result<(), Stop<NoReason>> {
        let annotations = BTreeMap::from([(names::ANNOTATION_SELECTED_NODE.to_owned(), local.name().to_owned())]);
        let mut require = vec![patch::test("/spec/volumeName", &Value::Null)];
        require.extend(same_node(claim));
        let change = MetaChange { set_annotations: &annotations, require, ..MetaChange::default() };
        patch_claim(&self.cx, claim, &change, BECOME_OWNER).await
    }

    /// Removes a deleted node from the claim, so that another node can take it. Each daemon may try, and one of them
    /// succeeds: a claim that has another node by then stays as it is.
    async fn remove_owner(&self, claim: &Claim) -> Result<(), Stop<NoReason>> {
        let change = MetaChange {
            remove_annotations: &[names::ANNOTATION_SELECTED_NODE, names::ANNOTATION_ALPHA_SELECTED_NODE],
            require: same_node(claim).into_iter().collect(),
            ..MetaChange::default()
        };
        patch_claim(&self.cx, claim, &change, RELEASE_OWNERSHIP).await
    }
}

/// The patch's condition that the claim's selected node, or its absence, is as we have seen it.
fn same_node(claim: &Claim) -> Option<Value> {
    let path = format!("/metadata/annotations/{}", names::ANNOTATION_SELECTED_NODE.replace('/', "~1"));
    let held = claim.object.metadata.annotations.as_ref()?;
    Some(patch::test(&path, &json!(held.get(names::ANNOTATION_SELECTED_NODE))))
}

fn is_forbidden(error: &AttemptError<NoReason>) -> bool {
    error.api().is_some_and(|error| error.kind() == ApiErrorKind::Forbidden)
}

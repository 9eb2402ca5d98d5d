//! The reconciler of the stage before a claim (spec 2.14). The policy is [`policy`](super::policy).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::cluster::patch::{self, MetaChange};
use crate::cluster::{EventTarget, Node, ObjectName, StorageClass};
use crate::proto::GetCapacityRequest;
use crate::roles::kit::drive::{Admit, Next};
use crate::roles::kit::freshness::CATCH_UP;
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{
    self, End, EventsMode, Io, Memory, NoReason, Op, Part, Reconcile, Run, Start, Telling, Written,
};
use crate::roles::provisioner::claim::{Claim, ClaimKey};
use crate::roles::provisioner::claims::context::ClaimsContext;
use crate::roles::provisioner::claims::decide::ignored;
use crate::roles::provisioner::claims::memory::ClaimMemory;
use crate::roles::provisioner::claims::observe::{Look, begin};
use crate::roles::provisioner::claims::progress::Progress as AttemptSoFar;
use crate::roles::provisioner::claims::request::{Request, RequestInput, build};
use crate::roles::provisioner::names;
use crate::roles::provisioner::topology::{Requirement, Segment, TopologyError};

use super::lost_journals::LostJournals;
use super::policy::{Step, View, next_step};
use super::progress::{self, Answer, BECOME_OWNER, Progress, READ_NODE, RELEASE_OWNERSHIP, Refused, is_forbidden};
use crate::roles::provisioner::node::contention::{Holder, Race};
use crate::roles::provisioner::node::deployment::LocalNode;

/// Why a step ended the attempt.
type Stop = kit::Stop<NoReason>;

/// What a step may do.
type Verbs<'a> = Io<'a, ClaimKey>;

/// The stage before the claims of a daemon that works for one node.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct NodeAdmission {
    cx: Arc<ClaimsContext>,
    local: Arc<LocalNode>,
    lost: Arc<LostJournals>,
}

impl Reconcile for NodeAdmission {
    type Key = ClaimKey;
    type View = View;
    type Memory = Race;
    type Progress = Progress;
    type Step = Step;
    type Answer = Answer;
    type Reason = NoReason;

    fn memory(&self) -> &Memory<Race> {
        &self.local.races
    }

    /// The work on a claim that is gone ends only with the driver's final answer.
    fn is_there(&self, key: &ClaimKey, uid: &str) -> bool {
        self.cx.shared.find(key).is_some() || self.cx.memory.read(uid, |it| it.state.is_some())
    }

    fn view(&self, key: &ClaimKey) -> Option<View> {
        let (cx, local) = (&self.cx, &self.local);
        let progress = AttemptSoFar::new(begin(cx, key)?);
        let seen = Look { cx, progress: &progress }.observe(key);
        let ignored = ignored(&seen.view(&progress));
        let class = seen.class.as_deref();
        Some(View {
            own: local.name().to_owned(),
            has_to_end: !seen.present || !progress.known.is_unasked(),
            ignored,
            race: local.races.read(&key.uid, Clone::clone),
            // If the class is missing, the daemon of the claim's node reports it. For a claim without a node, Kubernetes
            // itself does.
            immediate: class.is_some_and(|class| !class.waits_for_consumer()),
            competes: local.competes(),
            in_reach: class.is_some_and(|class| self.is_in_reach(&seen.claim, class)),
            now: local.since(cx.shared.scope.clock.now()),
            has_events: cx.shared.section.events != EventsMode::None,
            claim: seen.claim,
            class: seen.class,
            beginning: progress.beginning,
        })
    }

    fn uid(view: &View) -> &str {
        &view.claim.key.uid
    }

    fn begin(_: &View, _: Start) -> Progress {
        Progress::default()
    }

    fn next_step(view: &View, progress: &Progress) -> Next<Step> {
        next_step(view, progress)
    }

    /// A change may have made old what the API has said of the selected node.
    fn keeps_changes(progress: &Progress) -> bool {
        progress.holder.is_some()
    }

    async fn perform(&self, step: Step, view: &View, progress: &Progress, io: &Verbs<'_>) -> Result<Answer, Stop> {
        let (cx, claim) = (&self.cx, &view.claim);
        match step {
            Step::BeginWait => Ok(Answer::Race(self.local.begun(&view.race, claim, cx.shared.scope.clock.now()))),
            Step::AskForHolder(node) => {
                let found = io.get::<Node, _>(&ObjectName::cluster(&node), READ_NODE).await?;
                Ok(Answer::Holder(node, if found.is_some() { Holder::There } else { Holder::Gone }))
            }
            Step::AskCapacity => self.ask_for_room(view, progress, io).await,
            Step::BecomeOwner => {
                let own = BTreeMap::from([(names::ANNOTATION_SELECTED_NODE.to_owned(), view.own.clone())]);
                match self.write(view, (&taken(claim, &own), BECOME_OWNER), io).await {
                    // Another node was faster.
                    Err(Stop::LookAgain) => Ok(Answer::Lost),
                    written => written,
                }
            }
            Step::ReleaseOwnership => {
                let written = self.write(view, (&freed(claim), RELEASE_OWNERSHIP), io).await?;
                let (Answer::Nothing, Some(node)) = (&written, &claim.selected_node) else { return Ok(written) };
                info!(node, "the claim's node is gone: removed it from the claim");
                Ok(Answer::Freed(node.clone()))
            }
            Step::ClearJournal(node) => {
                io.wait(Box::pin(self.lost.node_is_gone(&node))).await.map(|()| Answer::JournalCleared)
            }
            Step::ReadAgain => match &progress.refused {
                Some(refused) => Err(io
                    .unless_newer(&self.cx.shared.stores.claims, claim.object.as_ref(), refused.error.clone())
                    .await),
                None => Ok(Answer::Nothing),
            },
            Step::Leave(Some(wait)) => {
                self.leave(view);
                Err(Stop::Later(wait))
            }
            Step::Leave(None) => {
                debug!("the claim is not this node's");
                self.leave(view);
                cx.memory.change(&claim.key.uid, ClaimMemory::settled);
                cx.shared.deployment.forget(&claim.key);
                Ok(Answer::Left)
            }
        }
    }

    fn apply(race: &mut Race, progress: &mut Progress, answer: Answer) {
        progress::apply(race, progress, answer);
    }

    fn ended(race: &mut Race, _: &mut Progress, end: &End<'_, NoReason>) {
        progress::ended(race, end);
    }

    fn tell(first: &View, _: &Progress, end: &End<'_, NoReason>, run: &Run<'_>) -> Vec<Telling> {
        let End::Failed(error) = end else { return Vec::new() };
        log_failure!(run, error, {}, "could not find out which node takes the claim");
        // The daemon of another node reports its own claims.
        let is_nobodys = first.claim.selected_node.is_none() || error.is_of(BECOME_OWNER);
        let (on, note) = (EventTarget::of(first.claim.object.as_ref()), error.message());
        let note = format!("failed to provision volume: {note}");
        let event = Telling::warning(on, "ProvisioningFailed", note);
        Some(event).filter(|_| is_nobodys && first.has_events).into_iter().collect()
    }
}

impl Admit for NodeAdmission {
    fn admits(progress: &Progress) -> bool {
        !progress.is_left
    }
}

impl NodeAdmission {
    /// For one term.
    pub(in crate::roles::provisioner) fn of(
        cx: &Arc<ClaimsContext>,
        local: &Arc<LocalNode>,
        lost: &Arc<LostJournals>,
    ) -> Self {
        Self { cx: Arc::clone(cx), local: Arc::clone(local), lost: Arc::clone(lost) }
    }

    /// Whether the class allows our node.
    fn is_in_reach(&self, claim: &Claim, class: &StorageClass) -> bool {
        class.allowed_topologies.is_empty() || self.requirement(claim, class).is_ok()
    }

    fn requirement(&self, claim: &Claim, class: &StorageClass) -> Result<Option<Requirement>, TopologyError> {
        self.cx.shared.deployment.requirement(Some(self.local.name()), class, claim.key.name.name())
    }

    /// Another daemon owns the claim, or may take it: keep the claim's state only if it still matters.
    fn leave(&self, view: &View) {
        let (cx, claim) = (&self.cx, &view.claim);
        cx.journal.remove(&claim.key.uid);
        cx.memory.change(&claim.key.uid, |it| {
            it.is_without_volume |= view.beginning.is_without_volume;
            if claim.selected_node.is_none() {
                it.wait_for_node(Arc::clone(&view.beginning.known));
            } else {
                it.state = None;
            }
        });
        cx.shared.sources_may_be_free(claim);
    }

    /// Asks whether this node's driver has room for the claim. If the driver cannot say, or no request can be built, the
    /// answer is yes: exactly one node then takes the claim and reports the error (spec 2.14).
    async fn ask_for_room(&self, view: &View, progress: &Progress, io: &Verbs<'_>) -> Result<Answer, Stop> {
        let Some(request) = self.request(view) else { return Ok(Answer::HasRoom) };
        let places = request.requirement.as_ref().map_or(&[][..], |requirement| &requirement.requisite);
        let asked = GetCapacityRequest {
            volume_capabilities: request.capabilities(),
            parameters: request.parameters.clone().into_iter().collect(),
            accessible_topology: places.get(progress.room.len()).map(Segment::to_proto),
        };
        let answer = match io.call(async move |driver| driver.get_capacity(asked).await).await {
            Ok(answer) => answer,
            Err(Stop::Failed(error)) => {
                warn!(error = %error, "cannot read the capacity: trying without it");
                return Ok(Answer::HasRoom);
            }
            Err(stop) => return Err(stop),
        };
        Ok(match progress::room(&progress.room, &answer, places.len(), request.required_bytes) {
            None => Answer::Room(answer),
            Some(true) => Answer::HasRoom,
            Some(false) => Answer::Race(self.local.without_room(&view.race, self.cx.shared.scope.clock.now())),
        })
    }

    /// The request that we would send if the claim were ours. Its source does not matter.
    fn request(&self, view: &View) -> Option<Request> {
        let (asking, claim, class) = (&self.cx.asking, &view.claim, view.class.as_deref()?);
        let requirement = if asking.topology { self.requirement(claim, class).ok()? } else { None };
        let claim = &claim.object;
        build(&RequestInput { claim, class, rules: asking, source: None, requirement, attributes_class: None }).ok()
    }

    async fn write(&self, view: &View, (change, op): (&MetaChange<'_>, Op), io: &Verbs<'_>) -> Result<Answer, Stop> {
        let claim = view.claim.object.as_ref();
        let Some(patch) = patch::change_meta(&claim.metadata, change) else { return Ok(Answer::Nothing) };
        match io.write(&self.cx.shared.stores.claims, claim, (Part::Object, &patch), op).await {
            Ok(Written::Kept | Written::Ended) => Ok(Answer::Nothing),
            // The watch will remove it from the cache, which ends the key.
            Ok(Written::NotFound(_)) => Err(Stop::Later(CATCH_UP)),
            Err(Stop::Failed(error)) if is_forbidden(&error) => {
                Ok(Answer::Refused(Refused { version: view.version(), error }, op == BECOME_OWNER))
            }
            Err(stop) => Err(stop),
        }
    }
}

/// Writes this node's name on the claim, if no other node is written there.
fn taken<'a>(claim: &Claim, annotations: &'a BTreeMap<String, String>) -> MetaChange<'a> {
    let mut require = vec![patch::test("/spec/volumeName", &Value::Null)];
    require.extend(same_node(claim));
    MetaChange { set_annotations: annotations, require, ..MetaChange::default() }
}

/// Removes a deleted node from the claim, so that another node can take it. Each daemon may try, and one of them
/// succeeds: a claim that has another node by then stays as it is.
fn freed(claim: &Claim) -> MetaChange<'static> {
    MetaChange {
        remove_annotations: &[names::ANNOTATION_SELECTED_NODE, names::ANNOTATION_ALPHA_SELECTED_NODE],
        require: same_node(claim).into_iter().collect(),
        ..MetaChange::default()
    }
}

/// The patch's condition that the claim's selected node, or its absence, is as we have seen it.
fn same_node(claim: &Claim) -> Option<Value> {
    let path = format!("/metadata/annotations/{}", names::ANNOTATION_SELECTED_NODE.replace('/', "~1"));
    let held = claim.object.metadata.annotations.as_ref()?;
    Some(patch::test(&path, &json!(held.get(names::ANNOTATION_SELECTED_NODE))))
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "cuts_tests.rs"]
mod cuts_tests;

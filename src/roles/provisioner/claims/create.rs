//! Makes the request for a claim's volume, calls the driver, and handles the driver's answer.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use tracing::{Span, debug, warn};

use crate::cluster::{ApiError, ApiErrorKind, ObjectName, PersistentVolume, StorageClass};
use crate::csi::{Client, RpcError};
use crate::roles::kit::{EventsMode, Secret};
use crate::roles::provisioner::class::csi_class;
use crate::roles::provisioner::names;
use crate::telemetry::TraceContext;

use super::answer::Happened;
use super::decide::NameStatus;
use super::error::{AttemptError, CONFIRM, ClaimReason, InvalidClaim, SAVE_VOLUME, Stop};
use super::observe::another_handle;
use super::perform::Act;
use super::phase::{Phase, Plan};
use super::report;
use super::request::{RequestInput, build};
use super::response::{ResponseError, check_response};
use super::transition::Change;
use super::volume::persistent_volume;
use crate::roles::provisioner::finality::{self, Finality};
use crate::roles::provisioner::sources::protection::SourceKey;
use crate::roles::provisioner::sources::status::content;
use crate::roles::provisioner::topology::{Requirement, TopologyError};

/// If the driver takes longer, an Event says that the volume is being created.
const LONG: Duration = Duration::from_secs(1);

impl Act<'_, '_> {
    /// Makes the request, which stays the same, byte by byte, until the driver's final answer.
    pub(super) async fn plan(&self) -> Result<Happened, Stop> {
        // The policy plans only with a class.
        let Some(class) = self.seen.class.as_deref() else { return Ok(Happened::Nothing) };
        let failure = match self.planned(class) {
            Ok(plan) => return Ok(Change::Planned(Box::new(plan)).into()),
            Err(AttemptError::Reason(ClaimReason::Topology(error))) => {
                self.doubt(&error).await?;
                // Also an error that another node may not have.
                error.into()
            }
            Err(error) => error,
        };
        Ok(self.fail_before_asking(failure, self.seen.claim.selected_node.clone()))
    }

    /// Asks the API for a node that the caches lack, before the claim is taken from it: the watches may be late. `Ok`: the API lacks
    /// it, too, or the error is another one.
    async fn doubt(&self, error: &TopologyError) -> Result<(), Stop> {
        let Some((nodes, csi_nodes)) = &self.cx.shared.stores.nodes else { return Ok(()) };
        let reason = ClaimReason::from(error.clone());
        let stop = match error {
            TopologyError::CsiNodeMissing { node } => {
                self.io.lacks(csi_nodes, &ObjectName::cluster(node), reason).await
            }
            TopologyError::NodeMissing { node } => self.io.lacks(nodes, &ObjectName::cluster(node), reason).await,
            _ => return Ok(()),
        };
        if matches!(stop, Stop::Failed(AttemptError::Reason(_))) { Ok(()) } else { Err(stop) }
    }

    fn planned(&self, class: &StorageClass) -> Result<Plan, AttemptError> {
        let (cx, seen, claim) = (self.cx, self.seen, &self.seen.claim.object);
        let from = seen.source.clone()?;
        let source = content(&from, &self.look().wanted(&seen.claim), &self.progress.found)?;
        let (rules, attributes_class) = (&cx.asking, self.progress.attributes_class.as_ref());
        let input = RequestInput { claim, class, rules, source, requirement: None, attributes_class };
        // An error of claim and class alone is reported before an error of the cluster.
        build(&input)?;
        let translated = csi_class(class, &cx.rules.driver);
        let requirement = self.requirement(translated.as_deref().unwrap_or(class))?;
        let request = build(&RequestInput { requirement, ..input })?;
        Ok(Plan {
            request: request.into(),
            source: SourceKey::of_source(&from),
            node: seen.claim.selected_node.clone(),
            no_error_is_final: false,
            unproven: None,
        })
    }

    /// The topology requirement of the volume.
    fn requirement(&self, class: &StorageClass) -> Result<Option<Requirement>, AttemptError> {
        let (cx, claim) = (self.cx, &self.seen.claim);
        if !cx.asking.topology {
            return Ok(None);
        }
        let planned = cx.shared.deployment.requirement(claim.selected_node.as_deref(), class, claim.key.name.name())?;
        // Without a journal there is no limit.
        if !cx.rules.durable {
            return Ok(planned);
        }
        Ok(planned.map(|requirement| {
            let segments = requirement.requisite.len();
            let fitted = requirement.fitted();
            let stored = fitted.requisite.len();
            if stored < segments && cx.topology.tell_cut() {
                warn!(
                    segments,
                    stored,
                    "an entry of the journal has no room for all topology segments: requesting the most preferred"
                );
            }
            fitted
        }))
    }

    /// Notes, while the volume is locked, that the driver may have begun, so that a cancelled run loses nothing.
    pub(super) fn begin(&self) -> Happened {
        let known = &self.progress.known;
        let Some(request) = known.request() else { return Happened::Nothing };
        // From here on no other claim of this volume name begins.
        if known.is_unasked() && self.look().namesake(&known.claim).is_some() {
            return Happened::Nothing;
        }
        let secret = request.secret.as_ref().and_then(|_| self.progress.secrets.clone());
        Change::Asking { secret }.into()
    }

    /// Calls `CreateVolume`.
    pub(super) async fn create(&self) -> Result<Happened, Stop> {
        let known = &self.progress.known;
        let Some(plan) = known.plan() else { return Ok(Happened::Nothing) };
        let request = &plan.request;
        debug!(resumed = known.is_resumed(), "asking the driver for the volume");
        let (asked, in_tree) = (request.to_proto(self.secrets()), request.plan.in_tree);
        let tells_all = self.seen.section.events == EventsMode::All;
        if tells_all {
            self.tell_provisioning().await;
        }
        let create = async move |client: Client| client.for_migrated(in_tree).create_volume(asked).await;
        let mut call = pin!(self.io.call(create));
        let (answer, told) = tokio::select! {
            biased;
            answer = &mut call => (answer, tells_all),
            () = tokio::time::sleep(LONG) => {
                if !tells_all && !known.reported.provisioning {
                    self.tell_provisioning().await;
                }
                (call.await, true)
            }
        };
        let (change, failure) = match answer {
            Ok(response) => match check_response(request, &response) {
                Ok(volume) => (Some(Change::Made { volume, begun: self.progress.beginning.at }), None),
                Err(error) if error.must_delete() => {
                    let volume_id = response.volume.map(|volume| volume.volume_id).unwrap_or_default();
                    (Some(Change::Unusable { volume_id, why: error.into() }), None)
                }
                // The driver has answered that a volume exists, but not which one. From now on no error is a final answer, in this
                // term and in later terms.
                Err(error) => (Some(Change::NoErrorIsFinal), Some(error.into())),
            },
            Err(Stop::Failed(AttemptError::Driver(error))) => self.refused(plan, error),
            Err(stop) => return Err(stop),
        };
        Ok(Happened::Answered { told, change, failure })
    }

    /// The secrets of a call.
    pub(super) fn secrets(&self) -> HashMap<String, String> {
        self.progress.secrets.as_ref().map(Secret::texts).unwrap_or_default()
    }

    async fn tell_provisioning(&self) {
        if let Some(event) = report::provisioning(self.seen) {
            self.io.tell(event).await;
        }
    }

    /// What the driver's refusal means.
    fn refused(&self, plan: &Plan, error: RpcError) -> (Option<Change>, Option<AttemptError>) {
        let is_first_secret = self.progress.known.is_first_secret(self.progress.secrets.as_ref());
        let proves_nothing = plan.no_error_is_final || finality::is_about_secret(error.code) && !is_first_secret;
        let finality = finality::after_create(error.code, self.cx.asking.topology, plan.node.is_some());
        let is_infeasible = finality::is_infeasible(error.code);
        let failure = if is_infeasible { ClaimReason::Infeasible(error).into() } else { AttemptError::from(error) };
        if proves_nothing || !finality.is_final() {
            return (None, Some(failure));
        }
        (Some(Change::Refused { reschedule: finality == Finality::Reschedule, failure }), None)
    }

    /// Asks the API whether the PersistentVolume exists, before the driver is called again with a request of an earlier term.
    pub(super) async fn confirm_volume(&self) -> Result<Happened, Stop> {
        let (look, claim) = (self.look(), &self.seen.claim);
        let name = look.volume_name(claim).map_err(AttemptError::from)?;
        let seen: Option<PersistentVolume> = self.io.get(&ObjectName::cluster(name), CONFIRM).await?;
        let change = match look.whose(claim, seen.as_ref()) {
            NameStatus::Conflict(what) if !look.is_over(claim, self.seen.present) => {
                return Ok(Happened::Failed(None, InvalidClaim::NameTaken(what).into()));
            }
            // The next look sees it.
            NameStatus::Ours => None,
            NameStatus::Conflict(_) | NameStatus::OtherNode | NameStatus::Free => Some(Change::Confirmed),
        };
        Ok(Happened::Confirmed(seen.map(Box::new), change))
    }

    /// Stores the PersistentVolume. From here on, whatever the API answers, only the life cycle of the PersistentVolume deletes the
    /// volume, unless the API has refused the PersistentVolume for good.
    pub(super) async fn save_volume(&self) -> Result<Happened, Stop> {
        let Phase::Created(made) = self.progress.known.phase() else { return Ok(Happened::Nothing) };
        let (cx, plan) = (self.cx, &made.plan.request.plan);
        // On an in-tree volume the attacher's finalizer would be taken off again until Kubernetes writes who serves it.
        let finalizer = cx.marks.attacher_finalizer.as_deref().filter(|_| !plan.in_tree);
        let ours = cx.shared.section.honor_reclaim_policy.then_some(names::FINALIZER_PROVISIONER);
        let finalizers: Vec<&str> = ours.into_iter().chain(finalizer).collect();
        let id = || made.volume.volume_id.clone();
        let mut body = persistent_volume(plan, &made.volume, &cx.marks.identity, &finalizers)
            .map_err(|source| AttemptError::from(ResponseError::NoInTreeForm { id: id(), source }))?;
        // The trace context is part of the object, so that the next attach, perhaps in another process, can continue the trace.
        if let Some(context) = TraceContext::of(&Span::current()) {
            body["metadata"]["annotations"][names::ANNOTATION_TRACEPARENT] = context.to_string().into();
        }
        let name = ObjectName::cluster(&made.plan.request.volume_name);
        let failure = match self.io.create::<PersistentVolume, _>(&name, &body, SAVE_VOLUME).await {
            Ok(stored) => return Ok(Change::Stored { version: stored.metadata.version() }.into()),
            Err(Stop::Failed(failure)) => failure,
            Err(stop) => return Err(stop),
        };
        let kind = failure.api().map(ApiError::kind);
        if kind == Some(ApiErrorKind::Conflict) {
            return Ok(Happened::Taken(failure));
        }
        // Only a refusal says that the object was not stored. After other errors the object may exist.
        let is_answer =
            [ApiErrorKind::Invalid, ApiErrorKind::Forbidden, ApiErrorKind::Unauthorized].map(Some).contains(&kind);
        let is_refused = self.progress.checked == Some(false) && is_answer;
        Ok(Happened::Failed(is_refused.then_some(Change::MayBeStored(false)), failure))
    }

    /// A PersistentVolume of that name exists: ours from an earlier attempt, or another one, which the daemon never changes.
    pub(super) async fn read_taken(&self) -> Result<Happened, Stop> {
        let (Phase::Created(made), Some(refused)) = (self.progress.known.phase(), &self.progress.taken) else {
            return Ok(Happened::Nothing);
        };
        let name = ObjectName::cluster(&made.plan.request.volume_name);
        let found = self.io.get::<PersistentVolume, _>(&name, SAVE_VOLUME).await?;
        let Some(found) = found else { return Err(refused.clone().into()) };
        let place = self.cx.place(&self.seen.claim, Some(&found));
        let is_of_it = self.look().is_outcome(&found, made);
        if place == NameStatus::Ours && is_of_it {
            return Ok(Change::Stored { version: found.metadata.version() }.into());
        }
        if is_of_it {
            // Two claims have the same volume name, and the driver has answered both with the same volume: it belongs to the other.
            return Ok(self.leave_to(found.metadata.name.to_string()));
        }
        let other = match place {
            NameStatus::Conflict(what) => what,
            NameStatus::Ours | NameStatus::OtherNode | NameStatus::Free => another_handle(&found),
        };
        let handle = made.volume.volume_id.clone();
        // The object with this name is not ours, so ours was not stored.
        let failure = ClaimReason::SaveTaken { handle, other }.into();
        Ok(Happened::Failed(Some(Change::MayBeStored(false)), failure))
    }
}

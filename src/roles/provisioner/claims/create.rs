//! Makes the request for a claim's volume, calls the driver, and handles the driver's answer.

use std::time::Duration;

use tracing::{debug, warn};

use crate::cluster::{ApiErrorKind, ObjectName, PersistentVolume, StorageClass};
use crate::csi::{RpcError, SnapshotLock};
use crate::roles::kit::freshness::lacks;
use crate::roles::kit::{Attempt, Secret};
use crate::roles::provisioner::class::csi_class;
use crate::roles::provisioner::names;
use crate::telemetry::TraceContext;

use super::attempt::Happened;
use super::claim::ClaimKey;
use super::decide::NameStatus;
use super::entry::Entry;
use super::error::{AttemptError, CONFIRM, ClaimReason, InvalidClaim, SAVE_VOLUME, Stop};
use super::finality::{self, Finality};
use super::observe::{Look, Observed, another_handle};
use super::pending_on::Dependency;
use super::perform::read;
use super::phase::{Made, Phase, Plan};
use super::request::{Request, RequestInput, build};
use super::response::{ResponseError, check_response};
use super::transition::Change;
use super::volume::persistent_volume;
use crate::roles::provisioner::sources::protection::SourceKey;
use crate::roles::provisioner::sources::source::ContentSource;
use crate::roles::provisioner::sources::status::content;
use crate::roles::provisioner::topology::{Requirement, TopologyError};

/// If the driver takes longer, an Event says that the volume is being created.
const LONG: Duration = Duration::from_secs(1);

impl Look<'_> {
    /// Makes the request, which stays the same, byte by byte, until the driver's final answer.
    pub(in crate::roles::provisioner) async fn plan(&self, now: &Observed) -> Result<Happened, Stop> {
        // `next_step` plans only with a class.
        let Some(class) = now.class.as_deref() else { return Ok(Happened::Nothing) };
        match self.planned(now, class) {
            Ok(plan) => Ok(Change::Planned(Box::new(plan)).into()),
            Err(AttemptError::Reason(ClaimReason::Topology(error))) => {
                self.doubt(&error).await?;
                // Also an error that another node may not have.
                self.fail_before_asking(error.into(), now.claim.selected_node.clone())
            }
            Err(error) => self.fail_before_asking(error, now.claim.selected_node.clone()),
        }
    }

    /// Asks the API for a node that the caches lack, before the claim is taken from it: the watches may be late. `Ok`: the API lacks
    /// it, too, or the error is another one.
    async fn doubt(&self, error: &TopologyError) -> Result<(), Stop> {
        let (cx, Some((nodes, csi_nodes))) = (self.cx, &self.cx.stores.nodes) else { return Ok(()) };
        let api = cx.scope.api.use_now()?;
        let reason = || ClaimReason::from(error.clone());
        let stop = match error {
            TopologyError::CsiNodeMissing { node } => lacks(api, csi_nodes, &ObjectName::cluster(node), reason()).await,
            TopologyError::NodeMissing { node } => lacks(api, nodes, &ObjectName::cluster(node), reason()).await,
            _ => return Ok(()),
        };
        if matches!(stop, Stop::Failed(AttemptError::Reason(_))) { Ok(()) } else { Err(stop) }
    }

    fn planned(&self, now: &Observed, class: &StorageClass) -> Result<Plan, AttemptError> {
        let (cx, claim) = (self.cx, &now.claim.object);
        let from = now.source.clone()?;
        let source = content(&from, &self.wanted(&now.claim), &self.state.found)?;
        let (rules, attributes_class) = (&cx.asking, self.state.attributes_class.as_ref());
        let input = RequestInput { claim, class, rules, source, requirement: None, attributes_class };
        // An error of claim and class alone is reported before an error of the cluster.
        build(&input)?;
        let translated = csi_class(class, &cx.rules.driver);
        let requirement = self.requirement(now, translated.as_deref().unwrap_or(class))?;
        let request = build(&RequestInput { requirement, ..input })?;
        Ok(Plan {
            request: request.into(),
            source: SourceKey::of_source(&from),
            node: now.claim.selected_node.clone(),
            no_error_is_final: false,
            unproven: None,
        })
    }

    /// The topology requirement of the volume.
    fn requirement(&self, now: &Observed, class: &StorageClass) -> Result<Option<Requirement>, AttemptError> {
        let cx = self.cx;
        if !cx.asking.topology {
            return Ok(None);
        }
        let selected = now.claim.selected_node.as_deref();
        let planned = cx.deployment.requirement(selected, class, now.claim.key.name.name());
        if planned.is_err() && selected.is_none() {
            cx.pending_on.add(Dependency::AnyNode, now.claim.key.clone());
        }
        let planned = planned?;
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

    /// Locks the volume, and notes that the driver may have begun, so that a cancelled run loses nothing.
    pub(in crate::roles::provisioner) async fn begin(
        &self,
        attempt: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Happened, Stop> {
        let (cx, Some(request)) = (self.cx, self.known().request()) else { return Ok(Happened::Nothing) };
        if !attempt.lock(&request.volume_name, &cx.scope.volume_locks, &cx.scope.term).await? {
            return Ok(Happened::Nothing);
        }
        // From here on no other claim of this volume name begins.
        if self.known().is_unasked() && self.namesake(&self.known().claim).is_some() {
            return Ok(Happened::Nothing);
        }
        let secret = request.secret.as_ref().and_then(|_| self.state.secrets.clone());
        Ok(Change::Asking { secret }.into())
    }

    /// Calls `CreateVolume`.
    pub(in crate::roles::provisioner) async fn create(
        &self,
        attempt: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Happened, Stop> {
        let (cx, Some(plan)) = (self.cx, self.known().plan()) else { return Ok(Happened::Nothing) };
        let request = &plan.request;
        if !attempt.lock(&request.volume_name, &cx.scope.volume_locks, &cx.scope.term).await? {
            return Ok(Happened::Nothing);
        }
        let _source = self.share_source(request, attempt).await?;
        let client = cx.scope.driver.use_now()?.for_migrated(request.plan.in_tree);
        let asked = request.to_proto(self.state.secrets.as_ref().map(Secret::texts).unwrap_or_default());
        let mut told = self.tell_begins();
        let mut call = std::pin::pin!(cx.scope.term.during(client.create_volume(asked)));
        let answer = tokio::select! {
            biased;
            answer = &mut call => answer?,
            () = tokio::time::sleep(LONG) => {
                told |= self.tell_provisioning();
                call.await?
            }
        };
        attempt.unlock();
        let (change, failure) = match answer {
            Ok(response) => match check_response(request, &response) {
                Ok(volume) => (Some(Change::Made { volume, begun: self.state.begun }), None),
                Err(error) if error.must_delete() => {
                    let volume_id = response.volume.map(|volume| volume.volume_id).unwrap_or_default();
                    (Some(Change::Unusable { volume_id, why: error.into() }), None)
                }
                Err(error) => {
                    self.record_no_error_is_final().await;
                    (Some(Change::NoErrorIsFinal), Some(error.into()))
                }
            },
            Err(error) => self.refused_by_driver(plan, error),
        };
        Ok(Happened::Answered { told, change, failure })
    }

    /// Takes the turn of the snapshot that is restored: many volumes may be made from it at once, but none while it is deleted
    /// (snapshotter spec 13).
    async fn share_source(
        &self,
        request: &Request,
        attempt: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Option<SnapshotLock>, Stop> {
        let Some(ContentSource::Snapshot(snapshot)) = &request.content_source else { return Ok(None) };
        let scope = &self.cx.scope;
        Ok(Some(match scope.snapshot_locks.try_shared(snapshot) {
            Some(turn) => turn,
            None => attempt.park(&scope.term, scope.snapshot_locks.shared(snapshot)).await?,
        }))
    }

    /// The driver has answered that a volume exists, but not which one. From now on no error is a final answer, in this term and in
    /// later terms. If the write fails, the next attempt repeats it before it calls the driver.
    async fn record_no_error_is_final(&self) {
        let mut known = self.known().clone();
        known.apply(Change::NoErrorIsFinal);
        let Some(entry) = Entry::of(&known) else { return };
        if let Err(Stop::Failed(error)) = self.record(&entry).await {
            debug!(error = error.message(), "could not record yet that the volume may exist");
        }
    }

    fn refused_by_driver(&self, plan: &Plan, error: RpcError) -> (Option<Change>, Option<AttemptError>) {
        let is_of_other_secret =
            finality::is_about_secret(error.code) && !self.known().is_first_secret(self.state.secrets.as_ref());
        if plan.no_error_is_final || is_of_other_secret {
            return (None, Some(error.into()));
        }
        let finality = finality::after_create(error.code, self.cx.asking.topology, plan.node.is_some());
        match finality {
            Finality::Finished | Finality::Reschedule => {
                self.tell_resumed(finality.label());
                let reschedule = finality == Finality::Reschedule;
                (Some(Change::Refused { reschedule, failure: error.into() }), None)
            }
            Finality::InBackground | Finality::NoChange => (None, Some(error.into())),
        }
    }

    /// Asks the API whether the PersistentVolume exists, before the driver is called again with a request of an earlier term.
    pub(in crate::roles::provisioner) async fn confirm_volume(&self, now: &Observed) -> Result<Happened, Stop> {
        let name = self.volume_name(&now.claim).map_err(AttemptError::from)?;
        let seen: Option<PersistentVolume> = read(self.cx, &ObjectName::cluster(name), CONFIRM).await?;
        let change = match self.whose(&now.claim, seen.as_ref()) {
            NameStatus::Conflict(what) if !self.is_over(&now.claim, now.present) => {
                self.wait_for_name();
                return Err(AttemptError::from(InvalidClaim::NameTaken(what)).into());
            }
            // The next look sees it.
            NameStatus::Ours => None,
            NameStatus::Conflict(_) | NameStatus::OtherNode | NameStatus::Free => Some(Change::Confirmed),
        };
        Ok(Happened::Confirmed(seen.map(Box::new), change))
    }

    /// Stores the PersistentVolume. From here on, whatever the API answers, only the life cycle of the PersistentVolume deletes the
    /// volume, unless the API has refused the PersistentVolume for good.
    pub(in crate::roles::provisioner) async fn save_volume(
        &self,
        now: &Observed,
        attempt: &Attempt<'_, ClaimKey>,
    ) -> Result<Happened, Stop> {
        let Phase::Created(made) = self.known().phase() else { return Ok(Happened::Nothing) };
        let (cx, plan) = (self.cx, &made.plan);
        // On an in-tree volume the attacher's finalizer would be taken off again until Kubernetes writes who serves it.
        let finalizer = cx.attacher_finalizer.as_deref().filter(|_| !plan.request.plan.in_tree);
        let ours = cx.section.honor_reclaim_policy.then_some(names::FINALIZER_PROVISIONER);
        let finalizers: Vec<&str> = ours.into_iter().chain(finalizer).collect();
        let id = || made.volume.volume_id.clone();
        let mut body = persistent_volume(&plan.request.plan, &made.volume, &cx.identity, &finalizers)
            .map_err(|source| AttemptError::from(ResponseError::NoInTreeForm { id: id(), source }))?;
        // The trace context is part of the object, so that the next attach, perhaps in another process, can continue the trace.
        if let Some(context) = TraceContext::of(attempt.ticket.span()) {
            body["metadata"]["annotations"][names::ANNOTATION_TRACEPARENT] = context.to_string().into();
        }
        let api = cx.scope.api.use_now()?;
        let name = ObjectName::cluster(&plan.request.volume_name);
        match api.create::<PersistentVolume>(&name, &body).await {
            Ok(stored) => Ok(self.saved(&stored)),
            Err(error) if error.kind() == ApiErrorKind::Conflict => {
                let found = read(cx, &name, SAVE_VOLUME).await?;
                self.compare_saved(now, found, made, error)
            }
            Err(error) => {
                // Only a refusal says that the object was not stored. After other errors the object may exist.
                let is_answer = [ApiErrorKind::Invalid, ApiErrorKind::Forbidden, ApiErrorKind::Unauthorized];
                let is_refused = self.state.checked == Some(false) && is_answer.contains(&error.kind());
                let failure = AttemptError::from(SAVE_VOLUME.failed(error));
                if !is_refused {
                    return Err(failure.into());
                }
                Ok(Happened::Failed(Change::MayBeStored(false), failure))
            }
        }
    }

    /// A PersistentVolume of that name exists: ours from an earlier attempt, or another one, which the daemon never changes.
    fn compare_saved(
        &self,
        now: &Observed,
        found: Option<PersistentVolume>,
        made: &Made,
        refused: crate::cluster::ApiError,
    ) -> Result<Happened, Stop> {
        let Some(found) = found else { return Err(SAVE_VOLUME.failed(refused).into()) };
        let place = self.cx.place(&now.claim, Some(&found));
        let volume_id = made.volume.volume_id.as_str();
        let is_of_it = self.is_outcome(&found, made);
        if place == NameStatus::Ours && is_of_it {
            return Ok(self.saved(&found));
        }
        self.wait_for_name();
        if is_of_it {
            // Two claims have the same volume name, and the driver has answered both with the same volume: it belongs to the other.
            return Ok(self.abandon_to(now, volume_id, &found.metadata.name));
        }
        let other = match place {
            NameStatus::Conflict(what) => what,
            NameStatus::Ours | NameStatus::OtherNode | NameStatus::Free => another_handle(&found),
        };
        let handle = made.volume.volume_id.clone();
        // The object with this name is not ours, so ours was not stored.
        Ok(Happened::Failed(Change::MayBeStored(false), ClaimReason::SaveTaken { handle, other }.into()))
    }

    fn saved(&self, stored: &PersistentVolume) -> Happened {
        self.tell_resumed("saved");
        Change::Stored { version: stored.metadata.version() }.into()
    }
}

//! What is asked of the driver for a claim, and what becomes of its answers.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use crate::cluster::{ApiErrorKind, ObjectName, PersistentVolume, PersistentVolumeClaim, StorageClass};
use crate::csi::RpcError;
use crate::roles::kit::{Attempt, Secret};
use crate::roles::provisioner::names;
use crate::telemetry::TraceContext;

use super::attempt::Happened;
use super::claim::{Claim, ClaimKey};
use super::decide::NameStatus;
use super::error::{AttemptError, CONFIRM, ClaimReason, InvalidClaim, SAVE_VOLUME, Stop};
use super::finality::{self, Finality};
use super::intent::{Intent, IntentError, fit};
use super::observe::{Look, Observed, another_handle, made_from};
use super::pending_on::Dependency;
use super::perform::{read, save_intent};
use super::phase::{Made, Phase, Plan};
use super::request::{ProvisionRules, RequestInput, build};
use super::response::check_response;
use super::transition::{Change, transition};
use super::volume::persistent_volume;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::sources::status::content;
use crate::roles::provisioner::topology::Requirement;

/// An attempt that takes longer is worth an Event that says that it is under way.
const LONG: Duration = Duration::from_secs(1);

impl Context {
    /// What [`fit`]s on a claim. That it is not all is said once: it is so for each claim of a class.
    fn fitted(&self, requirement: Requirement, others: usize) -> Requirement {
        let places = requirement.requisite.len();
        let fitted = fit(requirement, others);
        let written = fitted.requisite.len();
        if written < places && self.topology.tell_cut() {
            warn!(
                places,
                written, "the claim's annotation has no room for all topology segments: requesting the most preferred"
            );
        }
        fitted
    }
}

impl Look<'_> {
    /// Works out what to ask, and pins it: while an answer is outstanding the driver is asked the same, byte by byte.
    pub(in crate::roles::provisioner) fn plan(&self, now: &Observed) -> Result<Happened, Stop> {
        // `next_step` plans only with a class.
        let Some(class) = now.class.as_deref() else { return Ok(Happened::Nothing) };
        let intent = self.written_intent(now);
        let node = match &intent {
            Some(intent) => intent.node.clone(),
            None => now.claim.selected_node.clone(),
        };
        match self.planned(now, class, intent, node.clone()) {
            Ok(plan) => Ok(Change::Planned(Box::new(plan)).into()),
            // Also where it turns out that this is what another node may do better.
            Err(error) => self.fail_before_asking(error, node),
        }
    }

    fn planned(
        &self,
        now: &Observed,
        class: &StorageClass,
        intent: Option<Intent>,
        node: Option<String>,
    ) -> Result<Plan, AttemptError> {
        let cx = self.cx;
        let claim = &now.claim.object;
        let found = now.source.clone().and_then(|source| content(&source, &self.wanted(&now.claim), &self.state.found));
        let recorded = self.recorded_source(&now.claim, now.present);
        let untrusted = recorded.is_some() && recorded.as_ref() != found.as_ref().ok().and_then(Option::as_ref);
        let source = if untrusted { recorded } else { found? };
        let digest = intent.as_ref().map(|intent| intent.digest.clone());
        let doubted = intent.as_ref().is_some_and(|intent| intent.doubtful);
        let unfit = intent.as_ref().is_some_and(|intent| intent.unfit);
        let rules = &ProvisionRules { names: self.name_rule(&now.claim), ..cx.asking.clone() };
        let attributes_class = self.state.attributes_class.as_ref();
        let input = RequestInput { claim, class, rules, source, requirement: None, attributes_class };
        // What is wrong with claim and class alone is told before what is wrong with the cluster.
        build(&input)?;
        let (requirement, is_as_written) = self.requirement(now, class, intent)?;
        let request = build(&RequestInput { requirement, ..input })?;
        let is_begun = self.known().is_creating();
        let asked = request.digest();
        let is_other = is_begun && !(is_as_written && digest.as_ref() == Some(&asked));
        let doubtful = is_other || is_begun && doubted;
        if is_other {
            warn!("the request computed from claim and class differs from the request saved on the claim");
        }
        let written = Intent {
            driver: cx.rules.driver.clone(),
            name: Some(request.volume_name.clone()),
            class: request.plan.class.clone(),
            class_uid: class.metadata.uid.to_string(),
            node: node.clone(),
            source: request.content_source.clone(),
            requirement: request.requirement.clone(),
            // What was asked first: a class that comes back is held against it.
            digest: digest.unwrap_or(asked),
            doubtful,
            unfit,
        };
        let made_from = made_from(&now.claim, class);
        let (request, written) = (request.into(), written.encode().into());
        Ok(Plan { request, written, made_from, node, doubtful, unfit, untrusted })
    }

    /// What was written on the claim when it was begun.
    fn written_intent(&self, now: &Observed) -> Option<Intent> {
        if !self.known().is_creating() {
            return None;
        }
        match Intent::parse(now.claim.intent.as_deref()?) {
            Ok(intent) => Some(intent),
            Err(error) => {
                warn!(error = %error, "cannot read the request saved on the claim: computing it again");
                None
            }
        }
    }

    /// From where the volume must be reachable: as it was asked before, if the class allows that; else as the cluster is now.
    /// Says whether it is what was asked before.
    fn requirement(
        &self,
        now: &Observed,
        class: &StorageClass,
        intent: Option<Intent>,
    ) -> Result<(Option<Requirement>, bool), AttemptError> {
        let cx = self.cx;
        if let Some(intent) = intent {
            let verified: Result<_, IntentError> = intent.verify(&cx.rules.driver, class, cx.asking.topology);
            match verified {
                Ok(requirement) => return Ok((requirement, true)),
                Err(error) => {
                    warn!(error = %error, "cannot use the topology saved on the claim: computing it again");
                }
            }
        }
        if !cx.asking.topology {
            return Ok((None, false));
        }
        let selected = now.claim.selected_node.as_deref();
        let planned = cx.deployment.requirement(selected, class, now.claim.key.name.name());
        if planned.is_err() && selected.is_none() {
            cx.pending_on.add(Dependency::AnyNode, now.claim.key.clone());
        }
        let planned = planned?;
        // What is not written down needs no room on the claim.
        if !cx.rules.durable {
            return Ok((planned, false));
        }
        let others = 1024 + cx.rules.driver.len() + now.claim.class.as_ref().map_or(0, String::len);
        Ok((planned.map(|requirement| cx.fitted(requirement, others)), false))
    }

    /// Locks the volume, and has it noted that the driver may have begun, whatever becomes of this run.
    pub(in crate::roles::provisioner) async fn begin(
        &self,
        attempt: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Happened, Stop> {
        let (cx, Some(request)) = (self.cx, self.known().request()) else { return Ok(Happened::Nothing) };
        if !attempt.lock(&request.volume_name, &cx.scope.volume_locks, &cx.scope.term).await? {
            return Ok(Happened::Nothing);
        }
        let secret = request.secret.as_ref().and_then(|_| self.state.secrets.clone());
        Ok(Change::Asking { secret }.into())
    }

    /// Asks the driver for the volume.
    pub(in crate::roles::provisioner) async fn create(
        &self,
        now: &Observed,
        attempt: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Happened, Stop> {
        let (cx, Some(plan)) = (self.cx, self.known().plan()) else { return Ok(Happened::Nothing) };
        let request = &plan.request;
        if !attempt.lock(&request.volume_name, &cx.scope.volume_locks, &cx.scope.term).await? {
            return Ok(Happened::Nothing);
        }
        let client = cx.scope.driver.use_now()?;
        let asked = request.to_proto(self.state.secrets.as_ref().map(Secret::texts).unwrap_or_default());
        let mut told = self.tell_begins();
        let mut call = std::pin::pin!(cx.scope.term.during(client.create_volume(asked)));
        let answer = tokio::select! {
            biased;
            answer = &mut call => answer?,
            () = tokio::time::sleep(LONG) => {
                self.state.way.leave();
                told |= self.tell_provisioning();
                call.await?
            }
        };
        attempt.unlock();
        let (change, failure) = match answer {
            Ok(response) => match check_response(request, &response) {
                Ok(volume) if plan.unfit => {
                    let why = ClaimReason::Unfit(volume.volume_id.clone()).into();
                    (Some(Change::Unusable { volume_id: volume.volume_id, why }), None)
                }
                Ok(volume) if plan.untrusted => {
                    let why = ClaimReason::Sourceless(volume.volume_id.clone()).into();
                    (Some(Change::Unusable { volume_id: volume.volume_id, why }), None)
                }
                Ok(volume) => (Some(Change::Made { volume, begun: self.state.begun }), None),
                Err(error) if error.must_delete() => {
                    let volume_id = response.volume.map(|volume| volume.volume_id).unwrap_or_default();
                    (Some(Change::Unusable { volume_id, why: error.into() }), None)
                }
                Err(error) => {
                    self.save_doubt(now).await;
                    (Some(Change::Doubted), Some(error.into()))
                }
            },
            Err(error) => self.refused_by_driver(plan, error),
        };
        Ok(Happened::Answered { told, change, failure })
    }

    /// The driver has said that a volume exists, and not which it is: no error is its last word on that any more, in this
    /// term and in those after it. What is not written now is written before the driver is asked again.
    async fn save_doubt(&self, now: &Observed) {
        if !self.cx.rules.durable || !now.present {
            return;
        }
        let Phase::Creating { plan: Some(plan), .. } = transition(self.known().phase().clone(), Change::Doubted) else {
            return;
        };
        if let Err(Stop::Failed(error)) = save_intent(self.cx, &now.claim, &plan.written).await {
            debug!(error = error.message(), "could not write down yet that the volume may exist");
        }
    }

    fn refused_by_driver(&self, plan: &Plan, error: RpcError) -> (Option<Change>, Option<AttemptError>) {
        // One that is unfit was seen to exist: by a daemon before this one, or its id would be known and not be asked for.
        if plan.doubtful || plan.unfit {
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

    /// Asks the API itself whether the claim's volume exists, and whether the claim still waits for it, before the driver is
    /// asked again for a claim that another has begun.
    pub(in crate::roles::provisioner) async fn confirm_volume(&self, now: &Observed) -> Result<Happened, Stop> {
        let cx = self.cx;
        let name = self.volume_name(&now.claim).map_err(AttemptError::from)?;
        let seen: Option<PersistentVolume> = read(cx, &ObjectName::cluster(name), CONFIRM).await?;
        let mark = match self.whose(&now.claim, seen.as_ref()) {
            _ if seen.is_none() => Some(self.confirm_mark(now).await?),
            NameStatus::Conflict(_) if self.is_over(&now.claim, now.present) => Some(self.confirm_mark(now).await?),
            NameStatus::Conflict(what) => {
                self.wait_for_name();
                return Err(AttemptError::from(InvalidClaim::NameTaken(what)).into());
            }
            // The next look sees it.
            NameStatus::Ours | NameStatus::OtherNode | NameStatus::Free => None,
        };
        Ok(Happened::Confirmed(seen.map(Box::new), mark))
    }

    /// And whether the claim still carries our mark: an old view shows one that its last leader has brought to an end.
    async fn confirm_mark(&self, now: &Observed) -> Result<Change, Stop> {
        let (cx, key) = (self.cx, &now.claim.key);
        let found: Option<PersistentVolumeClaim> = read(cx, &key.name, CONFIRM).await?;
        let parse =
            |object: &_| Claim::parse(Arc::new(PersistentVolumeClaim::clone(object)), &cx.rules.driver, &cx.rules.mark);
        match found.map(|object| (parse(&object), object)) {
            Some((claim, object)) if claim.key.uid == key.uid => {
                cx.stores.claims.apply_own_write(object);
                Ok(if claim.guarded { Change::Confirmed } else { Change::NothingBegun })
            }
            // The watch will say so: only the watch takes a claim out of the cache.
            _ if now.present => Err(Stop::Behind(ClaimReason::Gone.into())),
            _ => Ok(Change::NothingBegun),
        }
    }

    /// Stores the volume object. From here on, whatever the answer, only the volume's own life cycle deletes the volume,
    /// unless the API has refused the object for good.
    pub(in crate::roles::provisioner) async fn save_volume(
        &self,
        now: &Observed,
        attempt: &Attempt<'_, ClaimKey>,
    ) -> Result<Happened, Stop> {
        let Phase::Created(made) = self.known().phase() else { return Ok(Happened::Nothing) };
        let (cx, plan) = (self.cx, &made.plan);
        let finalizers: Vec<&str> = cx.attacher_finalizer.as_deref().into_iter().collect();
        let mut body = persistent_volume(&plan.request.plan, &made.volume, &cx.identity, &finalizers);
        // With the object, so that the attach that follows, perhaps in another process, can go on with the trace.
        if let Some(context) = TraceContext::of(attempt.ticket.span()) {
            body["metadata"]["annotations"][names::ANNOTATION_TRACEPARENT] = context.to_string().into();
        }
        let api = cx.scope.api.use_now()?;
        let name = ObjectName::cluster(&plan.request.volume_name);
        match api.create::<PersistentVolume>(&name, &body).await {
            Ok(_) => Ok(self.saved()),
            Err(error) if error.kind() == ApiErrorKind::Conflict => {
                let found = read(cx, &name, SAVE_VOLUME).await?;
                self.compare_saved(now, found, made, error)
            }
            Err(error) => {
                // An answer that says no; without one the object may be there.
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

    /// A volume object of that name exists: ours from an earlier try, or a stranger's, which is never touched.
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
        let is_of_it = self.cx.names(&found, volume_id);
        if place == NameStatus::Ours && is_of_it {
            return Ok(self.saved());
        }
        self.wait_for_name();
        if is_of_it {
            // Two claims whose volumes have one name, and the driver has answered both with the same: it is the other's.
            return Ok(self.abandon_to(now, volume_id, &found.metadata.name));
        }
        let other = match place {
            NameStatus::Conflict(what) => what,
            NameStatus::Ours | NameStatus::OtherNode | NameStatus::Free => another_handle(&found),
        };
        let handle = made.volume.volume_id.clone();
        // What has the name is not our object: ours was not stored.
        Ok(Happened::Failed(Change::MayBeStored(false), ClaimReason::SaveTaken { handle, other }.into()))
    }

    fn saved(&self) -> Happened {
        self.tell_resumed("saved");
        Change::Stored.into()
    }
}

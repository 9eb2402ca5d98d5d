//! What is asked of the driver for a claim, and what becomes of its answers.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use crate::cluster::{ApiErrorKind, ObjectName, PersistentVolume, PersistentVolumeClaim, names};
use crate::csi::RpcError;
use crate::roles::kit::secrets::Secret;
use crate::telemetry::TraceContext;

use super::claim::Claim;
use super::decide::NameStatus;
use super::error::{AttemptError, CONFIRM, ClaimReason, SAVE_VOLUME};
use super::finality::{self, Finality};
use super::intent::{Intent, IntentError, fit};
use super::observe::{Observed, another_handle, made_from};
use super::pending_on::Dependency;
use super::perform::{read, save_intent};
use super::reconcile::{Attempt, Stop};
use super::request::{ProvisionRules, RequestInput, build};
use super::state::{Made, Phase, Success};
use super::volume::{check_response, persistent_volume};
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::sources::status::content;
use crate::roles::provisioner::topology::{Requirement, TopologyInput, plan_requirement};

/// An attempt that takes longer is worth an Event that says that it is under way.
const LONG: Duration = Duration::from_secs(1);
/// When to look again for a claim that is gone, and not yet for the watch. Its event comes first, as a rule.
const BEHIND: Duration = Duration::from_secs(1);

impl Context {
    /// What [`fit`]s on a claim. That it is not all is said once: it is so for each claim of a class.
    fn fitted(&self, requirement: Requirement, others: usize) -> Requirement {
        let places = requirement.requisite.len();
        let fitted = fit(requirement, others);
        let written = fitted.requisite.len();
        if written < places {
            self.cut.call_once(|| {
                warn!(places, written, "a claim has no room for all places: the most preferred are asked for");
            });
        }
        fitted
    }
}

impl Attempt<'_> {
    /// Works out what to ask, and pins it: while an answer is outstanding the driver is asked the same, byte by byte.
    pub(in crate::roles::provisioner) fn plan(&mut self, now: &Observed) -> Result<(), AttemptError> {
        let cx = self.cx;
        // `next_step` plans only with a class.
        let Some(class) = &now.class else { return Ok(()) };
        let claim = &now.claim.object;
        let found = now.source.clone().and_then(|source| content(&source, &self.wanted(&now.claim), &self.found));
        let recorded = self.recorded_source(&now.claim, now.present);
        // Each time anew: a plan that fails is made again, and what could not be read then may be there by now.
        self.state.untrusted = recorded.is_some() && recorded.as_ref() != found.as_ref().ok().and_then(Option::as_ref);
        let source = if self.state.untrusted { recorded } else { found? };
        let intent = self.written_intent(now);
        let (node, digest) = match &intent {
            Some(intent) => (intent.node.clone(), Some(intent.digest.clone())),
            None => (now.claim.selected_node.clone(), None),
        };
        // Also where it turns out that this is what another may do better.
        self.state.node.clone_from(&node);
        let doubted = intent.as_ref().is_some_and(|intent| intent.doubtful);
        self.state.unfit = intent.as_ref().is_some_and(|intent| intent.unfit);
        let rules = &ProvisionRules { names: self.name_rule(&now.claim), ..cx.asking.clone() };
        let attributes_class = self.attributes_class.as_ref();
        let input = RequestInput { claim, class, rules, source, requirement: None, attributes_class };
        // What is wrong with claim and class alone is told before what is wrong with the cluster.
        build(&input)?;
        let (requirement, is_as_written) = self.requirement(now, intent)?;
        let request = build(&RequestInput { requirement, ..input })?;
        let is_begun = self.state.phase == Phase::Creating;
        let asked = request.digest();
        let is_other = is_begun && !(is_as_written && digest.as_ref() == Some(&asked));
        self.state.doubtful = is_other || is_begun && doubted;
        if is_other {
            warn!("what is derived from claim and class is not what was written down before the driver was asked");
        }
        let written = Intent {
            driver: cx.rules.driver.clone(),
            name: Some(request.volume_name.clone()),
            class: request.plan.class.clone(),
            class_uid: class.metadata.uid.as_deref().unwrap_or_default().to_owned(),
            node,
            source: request.content_source.clone(),
            requirement: request.requirement.clone(),
            // What was asked first: a class that comes back is held against it.
            digest: digest.unwrap_or(asked),
            doubtful: self.state.doubtful,
            unfit: self.state.unfit,
        };
        self.state.written = Some(written.encode().into());
        self.state.made_from = Some(made_from(&now.claim, class));
        self.state.request = Some(request.into());
        self.note();
        Ok(())
    }

    /// What was written on the claim by whoever began it.
    fn written_intent(&self, now: &Observed) -> Option<Intent> {
        if self.state.phase != Phase::Creating {
            return None;
        }
        match Intent::parse(now.claim.intent.as_deref()?) {
            Ok(intent) => Some(intent),
            Err(error) => {
                warn!(error = %error, "cannot read what is written on the claim: working out anew what to ask");
                None
            }
        }
    }

    /// From where the volume must be reachable: as it was asked before, if the class allows that; else as the cluster is now.
    /// Says whether it is what was asked before.
    fn requirement(&self, now: &Observed, intent: Option<Intent>) -> Result<(Option<Requirement>, bool), AttemptError> {
        let cx = self.cx;
        let Some(class) = &now.class else { return Ok((None, false)) };
        if let Some(intent) = intent {
            let verified: Result<_, IntentError> = intent.verify(&cx.rules.driver, class, cx.asking.topology);
            match verified {
                Ok(requirement) => return Ok((requirement, true)),
                Err(error) => {
                    warn!(error = %error, "cannot go by the topology that is written on the claim: working it out anew");
                }
            }
        }
        if !cx.asking.topology {
            return Ok((None, false));
        }
        // Room for a claim that is nobody's is looked for where the volume would be, were it ours (spec 2.14).
        let selected = now.claim.selected_node.as_deref().or_else(|| cx.scope.node().filter(|_| now.is_nobodys()));
        let planned = cx.scope.with_cluster(cx, |cluster| {
            plan_requirement(&TopologyInput {
                driver: &cx.rules.driver,
                selected_node: selected,
                allowed: &class.allowed_topologies,
                strict: cx.section.strict_topology,
                immediate: cx.section.immediate_topology,
                claim_name: now.claim.key.name.name(),
                cluster,
            })
        });
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

    /// Asks the driver for the volume.
    pub(in crate::roles::provisioner) async fn create(&mut self, now: &Observed) -> Result<(), Stop> {
        let Some(request) = self.state.request.clone() else { return Ok(()) };
        if !self.holds(&request.volume_name).await {
            return Ok(());
        }
        let cx = self.cx;
        let client = cx.driver.use_now()?;
        // Before the call: whatever becomes of this run, the driver may have begun.
        self.state.phase = Phase::Creating;
        (self.state.confirmed, self.state.asked) = (true, true);
        if request.secret.is_some() {
            self.state.kept.clone_from(&self.secrets);
        }
        self.note();
        let asked = request.to_proto(self.secrets.as_ref().map(Secret::texts).unwrap_or_default());
        self.tell_begins();
        let mut call = std::pin::pin!(cx.term.during(client.create_volume(asked)));
        let answer = tokio::select! {
            biased;
            answer = &mut call => answer?,
            () = tokio::time::sleep(LONG) => {
                // Nothing is written for it meanwhile that others would have to give way to.
                self.on_its_way = None;
                self.tell_provisioning();
                call.await?
            }
        };
        self.operation = None;
        match answer {
            Ok(response) => match check_response(&request, &response) {
                Ok(volume) if self.state.unfit => {
                    self.reject(volume.volume_id.clone(), ClaimReason::Unfit(volume.volume_id).into());
                    Ok(())
                }
                Ok(volume) if self.state.untrusted => {
                    self.reject(volume.volume_id.clone(), ClaimReason::Sourceless(volume.volume_id).into());
                    Ok(())
                }
                Ok(volume) => {
                    let (handle, affinity) = (volume.volume_id.clone(), volume.affinity.clone());
                    self.state.success = Some(Success { begun: self.begun, handle, affinity });
                    self.state.phase = Phase::Created(Box::new(Made { volume, may_be_stored: false }));
                    self.note();
                    Ok(())
                }
                Err(error) if error.must_delete() => {
                    let id = response.volume.map(|volume| volume.volume_id).unwrap_or_default();
                    self.reject(id, error.into());
                    Ok(())
                }
                Err(error) => {
                    self.doubt(now).await;
                    Err(AttemptError::from(error).into())
                }
            },
            Err(error) => self.refused_by_driver(error),
        }
    }

    /// The volume can't be used: it is deleted, and that is written down first.
    fn reject(&mut self, volume_id: String, why: AttemptError) {
        self.state.unfit = true;
        self.state.phase = Phase::Discarding(volume_id);
        self.state.failure = Some(why);
        self.rewrite();
    }

    /// The driver has said that a volume exists, and not which it is: no error is its last word on that any more, in this
    /// term and in those after it.
    async fn doubt(&mut self, now: &Observed) {
        self.state.doubtful = true;
        self.rewrite();
        if self.cx.rules.durable && now.present {
            // What is not written now is written before the driver is asked again.
            let text = self.state.written.clone().unwrap_or_default();
            if let Err(Stop::Failed(error)) = save_intent(self.cx, &now.claim, &text).await {
                debug!(error = error.message(), "could not write down yet that the volume may exist");
            }
        }
    }

    /// Puts what was learnt of the volume into what is to stand on the claim.
    pub(in crate::roles::provisioner) fn rewrite(&mut self) {
        if let Some(Ok(intent)) = self.state.written.as_deref().map(Intent::parse) {
            let (doubtful, unfit) = (self.state.doubtful, self.state.unfit);
            self.state.written = Some(Intent { doubtful, unfit, ..intent }.encode().into());
        }
        self.note();
    }

    fn refused_by_driver(&mut self, error: RpcError) -> Result<(), Stop> {
        // One that is unfit was seen to exist: by a daemon before this one, or its id would be known and not be asked for.
        if self.state.doubtful || self.state.unfit {
            return Err(AttemptError::from(error).into());
        }
        let finality = finality::after_create(error.code, self.cx.asking.topology, self.state.node.is_some());
        match finality {
            Finality::Finished | Finality::Reschedule => {
                self.tell_resumed(finality.label());
                self.state.end(finality == Finality::Reschedule);
                self.state.failure = Some(error.into());
                self.note();
                Ok(())
            }
            Finality::InBackground | Finality::NoChange => Err(AttemptError::from(error).into()),
        }
    }

    /// Asks the API itself whether the claim's volume exists, and whether the claim still waits for it, before the driver is
    /// asked again for a claim that somebody else has begun.
    pub(in crate::roles::provisioner) async fn confirm_volume(&mut self, now: &Observed) -> Result<(), Stop> {
        let cx = self.cx;
        let name = self.volume_name(&now.claim).map_err(AttemptError::from)?;
        self.seen = read(cx, &ObjectName::cluster(name), CONFIRM).await?;
        if self.seen.is_none() {
            return self.confirm_mark(now).await;
        }
        match self.whose(&now.claim, self.seen.as_ref()) {
            NameStatus::Conflict(_) if self.is_over(&now.claim, now.present) => self.confirm_mark(now).await,
            NameStatus::Conflict(what) => {
                self.wait_for_name();
                Err(AttemptError::from(super::error::InvalidClaim::NameTaken(what)).into())
            }
            // The next look sees it.
            NameStatus::Ours | NameStatus::OtherNode | NameStatus::Free => Ok(()),
        }
    }

    /// And whether the claim still carries our mark: an old view shows one that its last leader has brought to an end.
    async fn confirm_mark(&mut self, now: &Observed) -> Result<(), Stop> {
        let (cx, key) = (self.cx, &now.claim.key);
        let found: Option<PersistentVolumeClaim> = read(cx, &key.name, CONFIRM).await?;
        let parse =
            |object: &_| Claim::parse(Arc::new(PersistentVolumeClaim::clone(object)), &cx.rules.driver, &cx.rules.mark);
        match found.map(|object| (parse(&object), object)) {
            Some((claim, object)) if claim.key.uid == key.uid => {
                cx.stores.claims.apply_own_write(object);
                self.state.confirmed = claim.guarded;
                if !claim.guarded {
                    self.state.end(false);
                }
            }
            // The watch will say so: nothing is taken out of the cache on hearsay.
            _ if now.present => return Err(Stop::Later(BEHIND)),
            _ => self.state.end(false),
        }
        self.note();
        Ok(())
    }

    /// Stores the volume object. From here on, whatever the answer, only the volume's own life cycle deletes the volume,
    /// unless the API has refused the object for good.
    pub(in crate::roles::provisioner) async fn save_volume(&mut self, now: &Observed) -> Result<(), Stop> {
        let (Some(request), Phase::Created(made)) = (self.state.request.clone(), self.state.phase.clone()) else {
            return Ok(());
        };
        if self.is_left(now, &made).await? {
            return Ok(());
        }
        let cx = self.cx;
        let finalizers: Vec<&str> = cx.attacher_finalizer.as_deref().into_iter().collect();
        let mut body = persistent_volume(&request.plan, &made.volume, &cx.identity, &finalizers);
        // With the object, so that the attach that follows, perhaps in another process, can go on with the trace.
        if let Some(context) = TraceContext::of(self.ticket.span()) {
            body["metadata"]["annotations"][names::ANNOTATION_TRACEPARENT] = context.to_string().into();
        }
        let api = cx.api.use_now()?;
        let name = ObjectName::cluster(&request.volume_name);
        self.note_made(Made { may_be_stored: true, ..(*made).clone() });
        match api.create::<PersistentVolume>(&name, &body).await {
            Ok(_) => {
                self.saved();
                Ok(())
            }
            Err(error) if error.kind() == ApiErrorKind::Conflict => {
                let found = read(cx, &name, SAVE_VOLUME).await?;
                self.compare_saved(now, found, &made, error)
            }
            Err(error) => {
                // An answer that says no; without one the object may be there.
                let is_answer = [ApiErrorKind::Invalid, ApiErrorKind::Forbidden, ApiErrorKind::Unauthorized];
                if !made.may_be_stored && is_answer.contains(&error.kind()) {
                    self.note_made(*made);
                }
                Err(SAVE_VOLUME.failed(error).into())
            }
        }
    }

    /// A volume object of that name exists: ours from an earlier try, or a stranger's, which is never touched.
    fn compare_saved(
        &mut self,
        now: &Observed,
        found: Option<PersistentVolume>,
        made: &Made,
        refused: crate::cluster::ApiError,
    ) -> Result<(), Stop> {
        let Some(found) = found else { return Err(SAVE_VOLUME.failed(refused).into()) };
        let place = self.cx.place(&self.state.claim, Some(&found));
        let volume_id = made.volume.volume_id.as_str();
        let is_of_it = self.cx.names(&found, volume_id);
        if place == NameStatus::Ours && is_of_it {
            self.saved();
            return Ok(());
        }
        if is_of_it {
            // Two claims whose volumes have one name, and the driver has answered both with the same: it is the other's.
            self.wait_for_name();
            self.abandon_to(now, volume_id, found.metadata.name.as_deref().unwrap_or_default());
            return Ok(());
        }
        // Whatever is there, it is not our object: ours was not stored.
        self.note_made(Made { may_be_stored: false, ..made.clone() });
        let other = match place {
            NameStatus::Conflict(what) => what,
            NameStatus::Ours | NameStatus::OtherNode | NameStatus::Free => another_handle(&found),
        };
        self.wait_for_name();
        let handle = made.volume.volume_id.clone();
        Err(AttemptError::from(ClaimReason::SaveTaken { handle, other }).into())
    }

    fn note_made(&mut self, made: Made) {
        self.state.phase = Phase::Created(Box::new(made));
        self.note();
    }

    fn saved(&mut self) {
        self.tell_resumed("saved");
        self.state.phase = Phase::Stored;
        self.note();
    }
}

//! Changes claims and volume objects, one request at a time. No decisions: what to do comes from [`super::decide`].
//!
//! Every write goes through the fence of the term, has a precondition, and passes the server's answer to the cache, so that the
//! next observation sees it.

use std::collections::BTreeMap;

use tracing::warn;

use crate::cluster::patch::{self, MetaChange};
use crate::cluster::{ApiErrorKind, Cache, Cached, History, Object, ObjectName, ReferenceGrant};
use crate::roles::kit::freshness::{Freshness, look_up, read_again};
use crate::roles::kit::secrets as secret;
use crate::roles::kit::{Attempt, Op};
use crate::roles::provisioner::names;

use super::attempt::{Happened, SourceRead};
use super::claim::{Claim, ClaimKey};
use super::decide::{SourceStep, Step};
use super::entry::{Entry, latest};
use super::error::{
    AttemptError, HISTORY, InvalidClaim, PROTECT_SOURCE, READ_ATTRIBUTES_CLASS, READ_CLAIM, READ_CLASS, READ_SECRET,
    READ_SOURCE, RECORD, RESCHEDULE, Stop,
};
use super::finality::Finality;
use super::observe::{Look, Observed};
use super::pending_on::Dependency;
use super::request::RequestError;
use super::request::{RequestInput, build};
use super::transition::Change;
use super::view::Evidence;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::parameters::secrets::SecretReference;
use crate::roles::provisioner::sources::protection::{SourceKey, SourceKind};
use crate::roles::provisioner::sources::source::Source;

/// Removes the selected node from the claim, so that the scheduler selects another one, and passes the answer to the cache.
async fn reschedule(cx: &Context, claim: &Claim) -> Result<(), Stop> {
    let nodes = [names::ANNOTATION_SELECTED_NODE, names::ANNOTATION_ALPHA_SELECTED_NODE];
    let change = MetaChange { remove_annotations: &nodes, ..MetaChange::default() };
    let Some(patch) = patch::change_meta(&claim.object.metadata, &change) else { return Ok(()) };
    let written = cx.scope.api.use_now()?.patch(&claim.key.name, &patch).await;
    cx.stores.claims.apply_own_write(written.map_err(|error| RESCHEDULE.failed(error))?);
    Ok(())
}

/// Reads an object that may not exist.
pub(in crate::roles::provisioner) async fn read<K: Object>(
    cx: &Context,
    name: &ObjectName,
    op: Op,
) -> Result<Option<K>, Stop> {
    let api = cx.scope.api.use_now()?;
    Ok(api.get_opt(name).await.map_err(|error| op.failed(error))?)
}

impl Look<'_> {
    /// Does one step.
    pub(in crate::roles::provisioner) async fn perform(
        &self,
        step: Step,
        now: &Observed,
        attempt: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Happened, Stop> {
        let cx = self.cx;
        match step {
            // The attempt has ended.
            Step::Settled | Step::Ignore(_) => Ok(Happened::Nothing),
            Step::Refuse(reason) => self.refuse(reason),
            Step::Conclude => Ok(Change::Concluded.into()),
            Step::Found => {
                let version = self.state.seen.as_ref().and_then(|seen| seen.metadata.version());
                Ok(Change::Found { version }.into())
            }
            Step::Relist => {
                let lists = async { futures::future::join(cx.deletion.list(), cx.relist_claims()).await };
                attempt.park(&cx.scope.term, lists).await?;
                Ok(Happened::Nothing)
            }
            Step::ReadClaim => {
                let read = read_again(cx.scope.api.use_now()?, &cx.stores.claims, now.claim.object.as_ref()).await;
                let gone = read.map_err(|error| READ_CLAIM.failed(error))? == Freshness::Gone;
                Ok(Happened::ClaimRead { gone })
            }
            Step::Prove => Ok(Change::Proven.into()),
            Step::Drop => Ok(self.drop_stored()),
            Step::LeaveAlone => Ok(self.leave_alone(now)),
            Step::ReadHistory => Ok(Happened::History(self.read_history(attempt).await?)),
            Step::ConfirmVolume => self.confirm_volume(now).await,
            Step::Source(step) => self.source_step(step, now, attempt).await,
            Step::GetClass(name) => {
                let api = cx.scope.api.use_now()?;
                let class = look_up(api, &cx.stores.classes, &ObjectName::cluster(name)).await;
                Ok(Happened::Class(class.map_err(|error| READ_CLASS.failed(error))?.map(Box::new)))
            }
            Step::GetAttributesClass(name) => {
                let class = read(cx, &ObjectName::cluster(&name), READ_ATTRIBUTES_CLASS).await?;
                let missing = || AttemptError::from(RequestError::AttributesClassMissing(name));
                Ok(Happened::AttributesClass(Box::new(class.ok_or_else(missing)?)))
            }
            Step::Plan => self.plan(now).await,
            Step::ReadSecret(reference) => self.read_secret(&reference, now).await,
            Step::Record => {
                if let Some(entry) = Entry::of(self.known()) {
                    self.record(&entry).await?;
                }
                Ok(Happened::Recorded)
            }
            Step::Begin => self.begin(attempt).await,
            Step::Create => self.create(attempt).await,
            Step::DeleteCreated(volume_id) => self.delete_created(now, &volume_id, attempt).await,
            Step::CheckHandle => self.check_handle(now, attempt).await,
            Step::SaveVolume => self.save_volume(now, attempt).await,
            Step::Reschedule => {
                reschedule(cx, &now.claim).await?;
                Ok(Happened::Nothing)
            }
        }
    }

    /// Records the request in the journal, and waits until the API has confirmed it. The worker waits, too, so that the journal
    /// never has more new requests than there are workers.
    pub(in crate::roles::provisioner) async fn record(&self, entry: &Entry) -> Result<(), Stop> {
        let (cx, uid) = (self.cx, &self.known().claim.key.uid);
        let Some(journal) = &cx.journal else { return Ok(()) };
        let (term, recording) = (&cx.scope.term, journal.record(uid, entry));
        let recorded = if self.known().has_answer() {
            term.until_lost(recording).await?
        } else {
            term.unless_over(recording).await?
        };
        Ok(recorded.map_err(|error| RECORD.failed(error))?)
    }

    /// Reads from the API's history whether a PersistentVolume was stored for the request.
    async fn read_history(&self, attempt: &mut Attempt<'_, ClaimKey>) -> Result<Evidence, Stop> {
        let (cx, known) = (self.cx, self.known());
        let (Some(request), Some(since)) = (known.request(), known.since()) else { return Ok(Evidence::Unknown) };
        let recorded = cx.journal.as_ref().and_then(|journal| journal.since(&known.claim.key.uid)).unwrap_or_default();
        let since = latest([since, &recorded]);
        // What this term has sent itself may have landed after an older answer.
        let not_before = known.has_answer().then_some(self.state.begun);
        let reading = cx.histories.since(&cx.scope, &cx.states, since, not_before);
        let history = attempt.park(&cx.scope.term, reading).await??;
        let history = history.map_err(|error| HISTORY.failed(error))?;
        let History::Whole(changed) = history.as_ref() else {
            return Ok(Evidence::Unknown);
        };
        let seen = changed.get(&request.volume_name).into_iter().flat_map(BTreeMap::values);
        // On a node, the PersistentVolume of that name may be another node's, also where it is gone by now.
        let here = seen.filter(|it| cx.deployment.may_be_here(it)).map(|it| cx.deployment.is_here(it));
        Ok(match here.max() {
            None => Evidence::NeverStored,
            Some(true) => Evidence::Stored,
            // Its affinity does not say whose it is.
            Some(false) => Evidence::Unknown,
        })
    }

    /// Leaves a request alone: its entry stays in the journal, and on the status page, until a person deletes it.
    fn leave_alone(&self, now: &Observed) -> Happened {
        if let Some(journal) = &self.cx.journal {
            journal.leave(&self.known().claim.key.uid);
        }
        self.tell_left_over(now);
        Change::LeftAlone.into()
    }

    /// Ends a request whose PersistentVolume was stored.
    fn drop_stored(&self) -> Happened {
        self.tell_resumed("found");
        Change::LeftAlone.into()
    }

    fn refuse(&self, reason: InvalidClaim) -> Result<Happened, Stop> {
        if matches!(reason, InvalidClaim::NameTaken(_)) {
            self.wait_for_name();
        }
        self.fail_before_asking(reason.into(), None)
    }

    /// The driver was not called in this attempt. If no earlier request waits for its answer, a final error ends the claim's request.
    pub(in crate::roles::provisioner) fn fail_before_asking(
        &self,
        failure: AttemptError,
        node: Option<String>,
    ) -> Result<Happened, Stop> {
        let finality = failure.finality();
        if !self.known().is_unasked() || !finality.is_final() {
            return Err(failure.into());
        }
        let reschedule = finality == Finality::Reschedule;
        Ok(Change::Hopeless { reschedule, node, failure }.into())
    }

    /// Wakes the claim once the PersistentVolume that has the name of its volume is gone.
    pub(in crate::roles::provisioner) fn wait_for_name(&self) {
        let claim = &self.known().claim;
        if let Ok(name) = self.volume_name(claim) {
            self.cx.pending_on.add(Dependency::Name(ObjectName::cluster(name)), claim.key.clone());
        }
    }

    /// Reads the secret for the driver. The daemon never logs it, and keeps it only while a request that was sent with it waits for
    /// the driver's final answer: if the secret is deleted meanwhile, for example with its namespace, the same request is sent with
    /// the same secret. `deleteWithoutSecret` allows to delete a volume without a secret that is missing or not text. One that may not
    /// be read may exist: it is waited for.
    async fn read_secret(&self, reference: &SecretReference, now: &Observed) -> Result<Happened, Stop> {
        let cx = self.cx;
        let failure = match secret::read(cx.scope.api.use_now()?, reference).await {
            Ok(secret) => return Ok(Happened::Secret(secret)),
            Err(failure) => failure,
        };
        let (is_withheld, is_missing) = (failure.is_withheld(), failure.is_missing());
        let error = AttemptError::from(READ_SECRET.failed(failure));
        if !is_withheld {
            return Err(error.into());
        }
        if let Some(kept) = self.known().kept() {
            warn!(error = error.message(), "the secret is gone: using the secret of the first request");
            return Ok(Happened::Secret(kept.clone()));
        }
        let is_over = self.is_over(&now.claim, now.present);
        if !is_missing || !cx.section.delete_without_secret || !(self.known().has_answer() || is_over) {
            return Err(error.into());
        }
        warn!(error = error.message(), "deleting without the secret");
        // Without the secret, the driver may refuse a volume that it has created with the secret.
        Ok(Happened::NoSecret { proves_nothing: is_over })
    }

    /// One request about the content source.
    async fn source_step(
        &self,
        step: SourceStep,
        now: &Observed,
        attempt: &mut Attempt<'_, ClaimKey>,
    ) -> Result<Happened, Stop> {
        let cx = self.cx;
        Ok(match step {
            SourceStep::ListGrants(namespace) => {
                let grants = cx.scope.api.use_now()?.list::<ReferenceGrant>(Some(&namespace), None).await;
                SourceRead::Grants(grants.map_err(|error| READ_SOURCE.failed(error))?).into()
            }
            SourceStep::GetSnapshot => {
                let Ok(Source::Snapshot { namespace, name }) = &now.source else { return Ok(Happened::Nothing) };
                let found = read(cx, &ObjectName::namespaced(namespace, name), READ_SOURCE).await?;
                SourceRead::Snapshot(found.map(Box::new)).into()
            }
            SourceStep::GetContent(name) => {
                let found = read(cx, &ObjectName::cluster(name), READ_SOURCE).await?;
                SourceRead::Content(found.map(Box::new)).into()
            }
            SourceStep::GetClaim => {
                let Ok(Source::Claim { namespace, name }) = &now.source else { return Ok(Happened::Nothing) };
                let found = read(cx, &ObjectName::namespaced(namespace, name), READ_SOURCE).await?;
                SourceRead::Claim(found.map(Box::new)).into()
            }
            SourceStep::GetVolume(name) => {
                let found = read(cx, &ObjectName::cluster(name), READ_SOURCE).await?;
                SourceRead::Volume(found.map(Box::new)).into()
            }
            SourceStep::Protect => return self.protect_source(now, attempt).await,
        })
    }

    /// Puts the finalizer on the source that keeps it until its last user is done. An attempt that removes it locks the source,
    /// too, and has counted this claim as a user.
    async fn protect_source(&self, now: &Observed, attempt: &mut Attempt<'_, ClaimKey>) -> Result<Happened, Stop> {
        let (cx, found) = (self.cx, &self.state.found);
        if let Some(class) = &now.class {
            // From here on only the driver may refuse: an invalid claim must not keep the finalizer on a source.
            let attributes_class = self.state.attributes_class.as_ref();
            let claim = &now.claim.object;
            let rules = &cx.asking;
            let input = RequestInput { claim, class, rules, source: None, requirement: None, attributes_class };
            if let Err(error) = build(&input) {
                return self.fail_before_asking(error.into(), None);
            }
        }
        let Some(source) = now.source.as_ref().ok().and_then(SourceKey::of_source) else {
            return Ok(SourceRead::Protected { told: false }.into());
        };
        let _lock = cx.sources.locks.lock(&source, attempt.ticket, &cx.scope.term).await?;
        let claim = &now.claim.key;
        let is_strange = source.name.namespace() != claim.name.namespace();
        // The attempt may have read the source before another one removed the finalizer, which had not counted this claim yet.
        let afresh = is_strange || cx.sources.releases() != self.state.releases;
        if is_strange {
            // From here on this claim counts as a user of the source. It did not count before, so another attempt may have
            // removed the finalizer after this attempt had read the source.
            cx.sources.admitted.note(&claim.uid);
        }
        let mut told = false;
        match source.kind {
            SourceKind::Snapshot => {
                if let Some(Some(seen)) = &found.snapshot {
                    let cache = &cx.stores.snapshots;
                    let done = protect(cx, cache, seen, afresh, names::FINALIZER_SNAPSHOT_SOURCE).await;
                    told = self.even_if_forbidden(done)?;
                }
            }
            SourceKind::Claim => {
                if let Some(Some(seen)) = &found.claim {
                    protect(cx, &cx.stores.claims, seen, afresh, names::FINALIZER_CLONING).await?;
                }
            }
        }
        Ok(SourceRead::Protected { told }.into())
    }

    /// A snapshot that the daemon may not change is restored without its finalizer, and an Event says so (spec 2.5, step 15). If
    /// somebody deletes the snapshot meanwhile, the driver decides. A claim that is to be cloned has no such exception.
    fn even_if_forbidden(&self, protected: Result<(), Stop>) -> Result<bool, Stop> {
        match protected {
            Err(Stop::Failed(failure)) => match failure.api() {
                Some(error) if failure.is_of(PROTECT_SOURCE) && error.kind() == ApiErrorKind::Forbidden => {
                    self.tell_unprotected(error);
                    Ok(true)
                }
                _ => Err(failure.into()),
            },
            other => other.map(|()| false),
        }
    }
}

/// Adds a finalizer to a source. If the source has changed since it was read, it is read again. `afresh`: it is read again in any
/// case, because even a finalizer that was on it before may be gone.
async fn protect<K: Cached>(
    cx: &Context,
    cache: &Cache<K>,
    seen: &K,
    afresh: bool,
    finalizer: &str,
) -> Result<(), Stop> {
    let name = ObjectName::of(seen);
    let _turn = cx.scope.term.until_lost(cache.write_turn(&name)).await?;
    let api = cx.scope.api.use_now()?;
    let mut now =
        if afresh { api.get::<K>(&name).await.map_err(|error| PROTECT_SOURCE.failed(error))? } else { seen.clone() };
    // Another role of this process may have written it meanwhile.
    if let Some(newer) = cache.newer(&now) {
        now = K::clone(&newer);
    }
    for is_last in [false, true] {
        let Some(patch) = patch::add_finalizer(now.meta(), finalizer, &BTreeMap::new()) else { return Ok(()) };
        match api.patch::<K>(&name, &patch).await {
            Ok(written) => {
                cache.apply_own_write(written);
                return Ok(());
            }
            Err(error) if !is_last && error.kind() == ApiErrorKind::PreconditionFailed => {
                now = api.get::<K>(&name).await.map_err(|error| PROTECT_SOURCE.failed(error))?;
            }
            Err(error) => return Err(PROTECT_SOURCE.failed(error).into()),
        }
    }
    Ok(())
}

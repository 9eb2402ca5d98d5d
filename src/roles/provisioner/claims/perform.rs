//! Each step's request or call. No decisions: what to do comes from [`policy`](super::policy). Every write has a precondition.

use std::collections::BTreeMap;

use futures::future::join;
use tracing::{debug, warn};

use crate::cluster::patch::{self, MetaChange};
use crate::cluster::{ApiErrorKind, History, ObjectName, PersistentVolume};
use crate::roles::kit::{self, Confirmed, Part, Written};
use crate::roles::provisioner::names;
use crate::roles::provisioner::parameters::secrets::SecretReference;

use super::answer::{Ended, Happened};
use super::context::ClaimsContext;
use super::decide::{Ignored, NameStatus, Step};
use super::entry::{Entry, latest};
use super::error::{
    AttemptError, CONFIRM, HISTORY, READ_ATTRIBUTES_CLASS, READ_CLAIM, READ_CLASS, READ_SECRET, RECORD, REFRESH,
    RESCHEDULE, Stop,
};
use super::observe::{Look, Seen};
use super::progress::Progress;
use super::report;
use super::request::RequestError;
use super::transition::Change;
use super::view::Evidence;
use crate::roles::provisioner::claim::ClaimKey;
use crate::roles::provisioner::finality::Finality;

/// If the journal has more requests than this, claims that succeed at once get no Event.
const BURST: usize = 36;

/// What a step works with.
pub(super) type Act<'a, 'io> = kit::Act<'a, 'io, ClaimsContext, Seen, Progress, ClaimKey>;

impl<'a> Act<'a, '_> {
    pub(super) fn look(&self) -> Look<'a> {
        Look { cx: self.cx, progress: self.progress }
    }

    fn uid(&self) -> &'a str {
        &self.seen.claim.key.uid
    }

    /// Does one step.
    pub(super) async fn perform(&self, step: Step) -> Result<Happened, Stop> {
        let (cx, io) = (self.cx, self.io);
        match step {
            Step::Settled => Ok(self.settle()),
            Step::Ignore(why) => Ok(self.ignore(why)),
            Step::Fail => Err(self.progress.failure.clone().map_or(Stop::LookAgain, Stop::from)),
            Step::NoteFailure => Ok(self.note_failure()),
            Step::ComeBack => Err(Stop::Later(kit::freshness::CATCH_UP)),
            Step::Refuse(reason) => Ok(self.fail_before_asking(reason.into(), None)),
            Step::Conclude => {
                // Nothing exists, whatever comes next.
                cx.journal.remove(self.uid());
                Ok(Change::Concluded.into())
            }
            Step::Found => {
                let version = self.progress.seen.as_ref().and_then(|seen| seen.metadata.version());
                Ok(Change::Found { version }.into())
            }
            Step::Relist => io
                .wait(join(cx.shared.stores.list_volumes(), cx.shared.stores.claims.list()))
                .await
                .map(|_| Happened::Nothing),
            Step::ReadClaim => self.read_claim().await,
            Step::Prove => Ok(Change::Proven.into()),
            Step::Drop => Ok(Change::LeftAlone.into()),
            Step::LeaveAlone => {
                // Its entry stays in the journal, and on the status page, until a person deletes it.
                if let Some(entries) = &cx.journal.entries {
                    entries.leave(self.uid());
                }
                Ok(Happened::LeftOver)
            }
            Step::ReadHistory => self.read_history().await.map(Happened::History),
            Step::ConfirmVolume => self.confirm_volume().await,
            Step::Source(step) => self.source_step(step).await,
            Step::GetClass(name) => {
                let class = io.look_up(&self.cx.shared.stores.classes, &ObjectName::cluster(name), READ_CLASS).await?;
                Ok(Happened::Class(class.map(Box::new)))
            }
            Step::GetAttributesClass(name) => {
                let found = io.get(&ObjectName::cluster(&name), READ_ATTRIBUTES_CLASS).await?;
                let missing = || AttemptError::from(RequestError::AttributesClassMissing(name));
                Ok(Happened::AttributesClass(Box::new(found.ok_or_else(missing)?)))
            }
            Step::Plan => self.plan().await,
            Step::ReadSecret(reference) => self.read_secret(&reference).await,
            Step::Record => self.record().await.map(|()| Happened::Recorded),
            Step::RecordDoubt => match self.record().await {
                Err(Stop::Failed(error)) => {
                    debug!(error = error.message(), "could not record yet that the volume may exist");
                    Ok(Happened::DoubtRecorded)
                }
                recorded => recorded.map(|()| Happened::DoubtRecorded),
            },
            Step::Begin => Ok(self.begin()),
            Step::TakeTurn(snapshot) => {
                io.wait(cx.shared.scope.snapshot_locks.shared(&snapshot)).await.map(Happened::Turn)
            }
            Step::Create => self.create().await,
            Step::ListVolumes(_) => io.wait(cx.shared.caches.volumes.relisted()).await.map(|()| Happened::Listed),
            Step::ReadBound(name, volume_id) => {
                let found: Option<PersistentVolume> = io.get(&ObjectName::cluster(&name), CONFIRM).await?;
                let is_owner = |found| self.look().is_owner(&self.seen.claim, found, &volume_id);
                Ok(Happened::Bound(name, found.as_ref().is_some_and(is_owner)))
            }
            Step::LeaveTo(other) => Ok(self.leave_to(other)),
            Step::Yield(other) => Ok(self.yield_to(&other)),
            Step::DeleteCreated(volume_id) => self.delete_created(volume_id).await,
            Step::CheckHandle => Ok(Happened::Checked),
            Step::SaveVolume => self.save_volume().await,
            Step::ReadTaken => self.read_taken().await,
            Step::Reschedule => self.reschedule().await,
            Step::ReadAgain => match &self.progress.refused {
                Some((_, error)) => {
                    let claim = self.seen.claim.object.as_ref();
                    Err(io.unless_newer(&self.cx.shared.stores.claims, claim, error.clone()).await)
                }
                None => Ok(Happened::Nothing),
            },
        }
    }

    /// The PersistentVolume exists.
    fn settle(&self) -> Happened {
        let (cx, claim) = (self.cx, &self.seen.claim);
        cx.shared.sources_may_be_free(claim);
        let is_burst = cx.journal.requests() > BURST;
        let is_shown = claim.volume_name.is_some()
            || (self.progress.seen.is_none() && self.look().place(claim) == NameStatus::Ours);
        self.end(Ended::Provisioned { is_shown, is_burst })
    }

    /// There is nothing to do for the claim.
    fn ignore(&self, why: Ignored) -> Happened {
        debug!(?why, "ignored");
        self.cx.shared.sources_may_be_free(&self.progress.known.claim);
        self.end(Ended::Ignored(why))
    }

    fn end(&self, end: Ended) -> Happened {
        self.cx.journal.remove(self.uid());
        self.cx.shared.deployment.forget(&self.seen.claim.key);
        Happened::Ended(end)
    }

    /// The attempt has failed. The journal keeps the entry only while a volume may exist that no PersistentVolume names (J2).
    fn note_failure(&self) -> Happened {
        if !self.progress.known.is_begun() {
            self.cx.journal.remove(self.uid());
        }
        let told = self.progress.failed.as_ref().and_then(|error| {
            let told = report::failure(self.seen, self.progress, error)?;
            if error.is_of_the_driver() {
                self.cx.shared.capacity.invalidate(report::class(self.seen, &self.progress.known));
            }
            Some(told)
        });
        Happened::FailureNoted(told)
    }

    /// The driver was not called in this attempt. If no earlier request waits for its answer, a final error ends the claim's request.
    pub(super) fn fail_before_asking(&self, failure: AttemptError, node: Option<String>) -> Happened {
        let finality = failure.finality();
        if !self.progress.known.is_unasked() || !finality.is_final() {
            return Happened::Failed(None, failure);
        }
        let reschedule = finality == Finality::Reschedule;
        Change::Hopeless { reschedule, node, failure }.into()
    }

    async fn read_claim(&self) -> Result<Happened, Stop> {
        let read = self.io.confirm(&self.cx.shared.stores.claims, self.seen.claim.object.as_ref()).await;
        let gone = read.map_err(|stop| renamed(stop, READ_CLAIM))? != Confirmed::Yes;
        Ok(Happened::ClaimRead { gone })
    }

    /// Records the request in the journal, and waits until the API has confirmed it.
    async fn record(&self) -> Result<(), Stop> {
        let (Some(entries), Some(entry)) = (&self.cx.journal.entries, Entry::of(&self.progress.known)) else {
            return Ok(());
        };
        Ok(self.io.record(entries.record(self.uid(), &entry)).await?.map_err(|error| RECORD.failed(error))?)
    }

    /// Reads from the API's history whether a PersistentVolume was stored for the request.
    async fn read_history(&self) -> Result<Evidence, Stop> {
        let (cx, known) = (self.cx, &self.progress.known);
        let (Some(request), Some(since)) = (known.request(), known.since()) else { return Ok(Evidence::Unknown) };
        let recorded = cx.journal.entries.as_ref().and_then(|journal| journal.since(self.uid()));
        let recorded = recorded.unwrap_or_default();
        let since = latest([since, &recorded]);
        // What this term has sent itself may have landed after an older answer.
        let not_before = known.has_answer().then_some(self.progress.beginning.at);
        let reading = cx.histories.since(&cx.shared.scope, &cx.memory, since, not_before);
        let history = self.io.wait(Box::pin(reading)).await??.map_err(|error| HISTORY.failed(error))?;
        let History::Whole(changed) = history.as_ref() else { return Ok(Evidence::Unknown) };
        let seen = changed.get(&request.volume_name).into_iter().flat_map(BTreeMap::values);
        // On a node, the PersistentVolume of that name may be another node's, also where it is gone by now.
        let here = seen.filter(|it| cx.shared.deployment.may_be_here(it)).map(|it| cx.shared.deployment.is_here(it));
        Ok(match here.max() {
            None => Evidence::NeverStored,
            Some(true) => Evidence::Stored,
            // Its affinity does not say whose it is.
            Some(false) => Evidence::Unknown,
        })
    }

    /// Reads the secret for the driver. The daemon never logs it, and keeps it only while a request that was sent with it waits for
    /// the driver's final answer: if the secret is deleted meanwhile, for example with its namespace, the same request is sent with
    /// the same secret. `deleteWithoutSecret` allows to delete a volume without a secret that is missing or not text. One that may not
    /// be read may exist: it is waited for.
    async fn read_secret(&self, reference: &SecretReference) -> Result<Happened, Stop> {
        let known = &self.progress.known;
        let failure = match self.io.secret(reference).await? {
            Ok(secret) => return Ok(Happened::Secret(secret)),
            Err(failure) => failure,
        };
        let (is_withheld, is_missing) = (failure.is_withheld(), failure.is_missing());
        let error = AttemptError::from(READ_SECRET.failed(failure));
        if !is_withheld {
            return Err(error.into());
        }
        if let Some(kept) = known.kept() {
            warn!(error = error.message(), "the secret is gone: using the secret of the first request");
            return Ok(Happened::Secret(kept.clone()));
        }
        let is_over = self.look().is_over(&self.seen.claim, self.seen.present);
        if !is_missing || !self.cx.shared.section.delete_without_secret || !(known.has_answer() || is_over) {
            return Err(error.into());
        }
        warn!(error = error.message(), "deleting without the secret");
        // Without the secret, the driver may refuse a volume that it has created with the secret.
        Ok(Happened::NoSecret { proves_nothing: is_over })
    }

    /// Removes the selected node from the claim, so that the scheduler selects another one.
    async fn reschedule(&self) -> Result<Happened, Stop> {
        let (claim, nodes) = (self.seen.claim.object.as_ref(), NODES);
        let change = MetaChange { remove_annotations: &nodes, ..MetaChange::default() };
        let Some(patch) = patch::change_meta(&claim.metadata, &change) else { return Ok(Happened::Nothing) };
        match self.io.write(&self.cx.shared.stores.claims, claim, (Part::Object, &patch), RESCHEDULE).await {
            Ok(Written::NotFound(error)) if self.cx.shared.find(&self.seen.claim.key).is_some() => {
                Err(Stop::Behind(error.into()))
            }
            Ok(_) => Ok(Happened::Nothing),
            Err(Stop::Failed(error)) if error.api().is_some_and(|it| it.kind() == ApiErrorKind::Forbidden) => {
                Ok(Happened::Refused(self.seen.version(), error))
            }
            Err(stop) => Err(if failed_at(&stop, kit::io::REFRESH) { renamed(stop, REFRESH) } else { stop }),
        }
    }
}

/// The annotations that say which node was selected.
const NODES: [&str; 2] = [names::ANNOTATION_SELECTED_NODE, names::ANNOTATION_ALPHA_SELECTED_NODE];

fn failed_at(stop: &Stop, op: kit::Op) -> bool {
    matches!(stop, Stop::Failed(error) if error.is_of(op))
}

/// The same failure in the words of this role.
fn renamed(stop: Stop, op: kit::Op) -> Stop {
    match stop {
        Stop::Failed(AttemptError::Op(error)) => Stop::Failed(AttemptError::Op(kit::OpError { op, ..error })),
        stop => stop,
    }
}

//! One attempt at a volume: takes steps until the volume is as it should be, or a step fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use tracing::{debug, info, warn};

use crate::cluster::patch::{self, MetaChange, Patch};
use crate::cluster::{ApiErrorKind, BY_VOLUME, ObjectName, PersistentVolume};
use crate::csi::capabilities::ControllerRpc;
use crate::process::ErrorChain;
use crate::proto::DeleteVolumeRequest;
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::freshness::{Freshness, catch_up, read_again};
use crate::roles::kit::secrets;
use crate::roles::kit::{Attempt, Next, Op, Reconciler, Secret, Stop, TermScope};
use crate::roles::provisioner::class::csi_class;
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::parameters::secrets::{DeletionSecret, SecretError, SecretReference, for_deletion};
use crate::translation::{NotServed, csi_form};

use super::decide::{self, Done, Past, Step, View, keeps};
use super::error::{CONFIRM, DeleteError, DeleteReason, FORGET, PROTECT, REFRESH, RELEASE, REMOVE, secret_failed};
use super::state::{Event, State};

/// Works on the queue of volumes.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct DeletionReconciler {
    cx: Arc<Context>,
}

/// The input of one decision, beside the state.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct Observed {
    /// The volume. If the cache has lost it, as the attempt saw it last.
    volume: Arc<PersistentVolume>,
    /// The driver's id of the volume.
    handle: Result<String, DeleteReason>,
    /// Whether the cache has the volume.
    is_cached: bool,
    /// Another object with the same handle that is not to be deleted itself.
    kept_by: Option<Arc<str>>,
    /// How many attachments name the volume.
    attachments: usize,
    /// Whether this daemon's driver can reach the volume.
    is_here: bool,
    /// Whether volumes and attachments were listed since the term began, and the cache has every object that is older than this version
    /// of the volume.
    relisted: bool,
    /// Where the secret for the deletion is.
    secret: Result<DeletionSecret, SecretError>,
}

/// How an attempt ends well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::roles::provisioner) enum End {
    /// Nothing is left to do.
    Settled,
    /// It waits for so many attachments.
    Detaching(usize),
}

impl Reconciler for DeletionReconciler {
    type Key = String;
    type State = State;
    type View = Observed;
    type Step = Step;
    type Event = Event;
    type End = End;
    type Reason = DeleteReason;

    fn scope(&self) -> &TermScope {
        &self.cx.scope
    }

    /// The volume no longer counts as waiting for its detach; if it still has to wait, the attempt ends with that
    /// again.
    fn begin(&self, ticket: &Ticket<String>) -> Option<State> {
        let cx = &self.cx;
        let first = cx.stores.volumes.get(&ObjectName::cluster(ticket.key()))?;
        let past = Past {
            detached: cx.deletions.detaching.forget(ticket.key()),
            failures: ticket.attempt(),
            queued: ticket.waited(),
            phase_age: first.phase_since.map(|since| cx.scope.clock.wall().duration_since(since.timestamp())),
        };
        let deleted = cx.deletions.deleted.has(uid_of(&first));
        Some(State::new(first, self.cx.scope.clock.now(), past.is_fresh(), deleted))
    }

    fn observe(&self, key: &String, state: &State) -> Observed {
        let cx = &self.cx;
        let cached = cx.stores.volumes.get(&ObjectName::cluster(key));
        // A new object of the same name has an attempt of its own.
        let cached = cached.filter(|volume| volume.metadata.uid == state.first.metadata.uid);
        let is_cached = cached.is_some();
        let volume = cached.unwrap_or_else(|| Arc::clone(&state.first));
        let twins = cx.same_handle(&volume);
        Observed {
            handle: handle_of(&volume, &cx.deletion.driver),
            is_cached,
            kept_by: twins.iter().find(|twin| keeps(twin)).map(|twin| twin.metadata.name.clone()),
            attachments: self.attachments(key, &twins),
            is_here: cx.deployment.is_here(&volume),
            relisted: cx.deletions.relisted.is_done() && !cx.stores.volumes.is_ahead(&volume),
            secret: self.secret_of(&volume),
            volume,
        }
    }

    fn next_step(&self, seen: &Observed, state: &State) -> Next<Step, End> {
        if !seen.is_cached {
            return Next::Done(End::Settled);
        }
        let handle = seen.handle.as_deref().ok();
        let read = state.secret.as_ref().map(|(place, _)| place);
        let step = decide::next_step(&View {
            volume: &seen.volume,
            has_handle: handle.is_some(),
            attachments: seen.attachments,
            kept_by: seen.kept_by.as_deref(),
            is_here: seen.is_here,
            done: Done { relisted: seen.relisted, deleted: state.deleted, gone: state.gone },
            held: state.locked.is_some() && state.locked.as_deref() == handle,
            fresh: state.fresh,
            forgotten: self.cx.is_forgotten(&seen.volume),
            has_secret: read.is_some() && read == seen.secret.as_ref().ok(),
            rules: &self.cx.deletion,
        });
        match step {
            Step::Ignore | Step::Settled => Next::Done(End::Settled),
            Step::WaitForDetach(attachments) => Next::Done(End::Detaching(attachments)),
            step => Next::Do(step),
        }
    }

    fn has_answer(&self, state: &State) -> bool {
        state.deleted
    }

    async fn perform(
        &self,
        step: Step,
        seen: &Observed,
        state: &State,
        attempt: &mut Attempt<'_, String>,
    ) -> Result<Event, Stop<DeleteReason>> {
        let (cx, volume) = (&self.cx, seen.volume.as_ref());
        match step {
            // `next_step` ends the attempt with these.
            Step::Ignore | Step::Settled | Step::WaitForDetach(_) => Ok(Event::Listed),
            Step::NotCsi => Err(seen.handle.clone().err().unwrap_or(DeleteReason::NotCsi).into()),
            Step::Shared(other) => {
                let handle = seen.handle.clone()?;
                let held = cx.stores.volumes.get(&ObjectName::cluster(&other));
                let spelled = held.and_then(|held| cx.handle_of(&held)).filter(|spelled| *spelled != handle);
                Err(DeleteReason::Shared { handle, other, spelled }.into())
            }
            Step::Relist => {
                let api = cx.scope.api.use_now()?;
                let lists = async {
                    cx.relist().await;
                    catch_up(api, &cx.stores.volumes, volume).await
                };
                attempt.park(&cx.scope.term, lists).await?.map_err(|error| CONFIRM.failed(error))?;
                Ok(Event::Listed)
            }
            Step::Forget => {
                let forgotten = attempt.park(&cx.scope.term, cx.forgotten(volume)).await?;
                forgotten.map_err(|error| FORGET.failed(error))?;
                Ok(Event::Forgotten)
            }
            Step::Protect => {
                let patch = patch::add_finalizer(&volume.metadata, cx.deletion.finalizer, &BTreeMap::new());
                self.patch(volume, patch, PROTECT).await?;
                Ok(Event::Protected)
            }
            Step::Hold => {
                let (name, handle) = (attempt.ticket.key().clone(), seen.handle.clone()?);
                let (locks, term) = (&self.cx.scope.volume_locks, &self.cx.scope.term);
                let at_once = attempt.lock_pair(&name, &handle, locks, term).await?;
                Ok(Event::Locked { handle, waited: !at_once })
            }
            Step::Confirm => Ok(Event::Confirmed { gone: self.read_again(volume, CONFIRM).await? == Freshness::Gone }),
            Step::ReadSecret => {
                let begun = cx.scope.clock.now();
                let (place, secret) = self.read_secret(seen).await?;
                let took = cx.scope.clock.now().saturating_duration_since(begun);
                Ok(Event::SecretRead { place, secret, waited: took >= decide::LONG_IN_QUEUE })
            }
            Step::Delete => {
                self.delete(volume, &seen.handle.clone()?, state).await?;
                attempt.unlock();
                Ok(Event::Deleted)
            }
            Step::Remove => self.remove(volume).await,
            Step::Release => {
                let patch = released(volume, cx.deletion.finalizer);
                Ok(Event::Released { gone: self.patch(volume, patch, RELEASE).await? })
            }
        }
    }

    fn apply(&self, state: &mut State, event: Event) {
        state.apply(event);
    }

    async fn refresh(&self, seen: &Observed, error: &DeleteError) -> Result<Option<Event>, Stop<DeleteReason>> {
        // The write found no object, but this read does: write again at the next attempt.
        let is_denied = error.api().is_some_and(|error| error.kind() == ApiErrorKind::NotFound);
        Ok(match self.read_again(&seen.volume, REFRESH).await? {
            Freshness::Gone => Some(Event::Refreshed { gone: true }),
            Freshness::Newer => Some(Event::Refreshed { gone: false }),
            Freshness::Same => is_denied.then_some(Event::Refreshed { gone: false }),
        })
    }

    async fn conclude(&self, ticket: &Ticket<String>, state: State, ended: Result<End, DeleteError>) -> Outcome {
        let cx = &self.cx;
        match ended {
            Ok(End::Settled) => {
                if state.is_complete() {
                    let took = self.cx.scope.clock.now().saturating_duration_since(state.begun);
                    let class = state.first.spec.storage_class_name.as_deref().unwrap_or_default();
                    cx.reporter.deleted(class, took);
                    cx.tell_deleted(&state.first);
                    ticket.did("deleted", None);
                }
                Outcome::Settled
            }
            Ok(End::Detaching(attachments)) => {
                debug!(attachments, "waits until it is detached");
                cx.deletions.detaching.note(ticket.key(), attachments);
                Outcome::Settled
            }
            Err(error) => cx.deletion_failed(ticket, &state.first, &error),
        }
    }
}

impl DeletionReconciler {
    /// For one term.
    pub(in crate::roles::provisioner) fn new(cx: Arc<Context>) -> Self {
        Self { cx }
    }

    /// How many attachments name the driver's volume, through any object with its handle.
    fn attachments(&self, name: &str, twins: &[Arc<PersistentVolume>]) -> usize {
        let of = |name: &str| self.cx.stores.attachments.find(BY_VOLUME, name).len();
        let others = twins.iter().map(|twin| &*twin.metadata.name);
        of(name) + others.map(of).sum::<usize>()
    }

    /// Where the secret for the deletion is.
    fn secret_of(&self, volume: &PersistentVolume) -> Result<DeletionSecret, SecretError> {
        let cx = &self.cx;
        let class = volume.spec.storage_class_name.as_deref();
        let class = class.and_then(|class| cx.stores.classes.get(&ObjectName::cluster(class)));
        // A class of another provisioner, or one without a CSI form, names no secret.
        let class = class.as_deref().and_then(|class| csi_class(class, &cx.rules.driver).ok());
        let (parameters, allowed) =
            (class.as_deref().map(|class| &class.parameters), &cx.section.deletion_secret_namespaces);
        for_deletion(volume, parameters, allowed, &cx.rules.driver)
    }

    async fn read_secret(&self, seen: &Observed) -> Result<(DeletionSecret, Secret), Stop<DeleteReason>> {
        let may_miss = self.cx.section.delete_without_secret;
        let place = seen.secret.clone().map_err(DeleteReason::from)?;
        let secret = match &place {
            DeletionSecret::At(reference) => self.load(reference).await?,
            DeletionSecret::None => Secret::default(),
            DeletionSecret::Unknown(why) if may_miss => {
                debug!(why, "deleting without a secret");
                Secret::default()
            }
            DeletionSecret::Unknown(why) => return Err(DeleteReason::SecretUnknown(why).into()),
        };
        Ok((place, secret))
    }

    /// Reads the secret. `deleteWithoutSecret` covers only a secret that is missing or not text: a volume must not lose its secret to an
    /// API that is slow for a moment, nor to a right that somebody has taken away. A secret that may not be read may exist.
    async fn load(&self, reference: &SecretReference) -> Result<Secret, Stop<DeleteReason>> {
        match secrets::read(self.cx.scope.api.use_now()?, reference).await {
            Err(failure) if self.cx.section.delete_without_secret && failure.is_missing() => {
                warn!(error = %ErrorChain(&failure), "deleting without the secret");
                Ok(Secret::default())
            }
            read => Ok(read.map_err(secret_failed)?),
        }
    }

    async fn delete(&self, volume: &PersistentVolume, handle: &str, state: &State) -> Result<(), Stop<DeleteReason>> {
        let scope = &self.cx.scope;
        let capability = if scope.capabilities.controller_service() {
            (!scope.capabilities.has(ControllerRpc::CreateDeleteVolume)).then_some("CREATE_DELETE_VOLUME")
        } else {
            Some("CONTROLLER_SERVICE")
        };
        if let Some(capability) = capability {
            return Err(DeleteReason::Capability { driver: scope.driver_name.clone(), capability }.into());
        }
        let client = scope.driver.use_now()?.for_migrated(volume.spec.in_tree.is_some());
        let secrets = state.secret.as_ref().map(|(_, secret)| secret.texts()).unwrap_or_default();
        let request = DeleteVolumeRequest { volume_id: handle.to_owned(), secrets };
        scope.term.during(client.delete_volume(request)).await??;
        // At once, so that this term calls the driver only once, however the attempt ends.
        self.cx.deletions.deleted.note(uid_of(volume));
        info!(volume = handle, "deleted the volume");
        Ok(())
    }

    /// Deletes the object, if it still is the object whose volume was deleted.
    async fn remove(&self, volume: &PersistentVolume) -> Result<Event, Stop<DeleteReason>> {
        let api = self.cx.scope.api.use_now()?;
        let left = api.delete::<PersistentVolume>(&ObjectName::of(volume), uid_of(volume)).await;
        let left = left.map_err(|error| REMOVE.failed(error))?;
        let gone = left.is_none();
        if let Some(left) = left {
            self.cx.stores.volumes.apply_own_write(left);
        }
        Ok(Event::Removed { gone })
    }

    /// Writes to the volume. Returns whether this removed the last finalizer of an object that is being deleted.
    async fn patch(&self, volume: &PersistentVolume, patch: Option<Patch>, op: Op) -> Result<bool, Stop<DeleteReason>> {
        let Some(patch) = patch else { return Ok(false) };
        let _turn = self.cx.scope.write_turn(&self.cx.stores.volumes, volume).await?;
        let api = self.cx.scope.api.use_now()?;
        let written = api.patch::<PersistentVolume>(&ObjectName::of(volume), &patch).await;
        let written = written.map_err(|error| op.failed(error))?;
        let is_gone = written.metadata.deletion_timestamp.is_some() && written.metadata.finalizers().is_empty();
        self.cx.stores.volumes.apply_own_write(written);
        Ok(is_gone)
    }

    /// Reads the object and updates the cache with it.
    async fn read_again(&self, volume: &PersistentVolume, op: Op) -> Result<Freshness, Stop<DeleteReason>> {
        let api = self.cx.scope.api.use_now()?;
        let read = read_again(api, &self.cx.stores.volumes, volume).await;
        Ok(read.map_err(|error| op.failed(error))?)
    }
}

/// Removes our finalizer. The patch tests the policy as seen: after a switch to `Delete` that the watch has not shown yet, the driver
/// must delete the volume first.
fn released(volume: &PersistentVolume, finalizer: &str) -> Option<Patch> {
    let policy = json!(volume.spec.reclaim_policy.as_deref());
    let require = vec![patch::test("/spec/persistentVolumeReclaimPolicy", &policy)];
    let change = MetaChange { remove_finalizers: &[finalizer], require, ..MetaChange::default() };
    patch::change_meta(&volume.metadata, &change)
}

fn uid_of(volume: &PersistentVolume) -> &str {
    &volume.metadata.uid
}

/// The driver's id of the volume. The id of an in-tree volume may lack parts that the driver fills in
/// (migration spec 10).
fn handle_of(volume: &PersistentVolume, driver: &str) -> Result<String, DeleteReason> {
    let form = csi_form(volume, driver).map_err(|why| match why {
        NotServed::NotCsi => DeleteReason::NotCsi,
        NotServed::OtherDriver(kind) => DeleteReason::InTree(kind),
        NotServed::Untranslatable(cause) => DeleteReason::Untranslatable(cause),
    })?;
    form.csi.as_ref().map(|csi| csi.volume_handle.clone()).ok_or(DeleteReason::NotCsi)
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "reconcile_tests.rs"]
mod tests;

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "writes_tests.rs"]
mod writes_tests;

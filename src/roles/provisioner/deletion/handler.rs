//! The handler of volumes: works one volume object until it is as it should be, or an attempt fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::{debug, info, warn};

use crate::cluster::patch;
use crate::cluster::{ApiErrorKind, BY_VOLUME, ObjectName, PersistentVolume};
use crate::csi::capabilities::ControllerRpc;
use crate::csi::{Both, VolumeLock};
use crate::process::ErrorChain;
use crate::proto::DeleteVolumeRequest;
use crate::queue::{Outcome, Ticket};
use crate::roles::attempt::{self, Failure as _};
use crate::roles::kit::secrets::{self as secret, Secret};
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::parameters::secrets::{DeletionSecret, SecretError, SecretReference, for_deletion};

use super::decide::{Done, Past, Step, View, keeps, next_step};
use super::error::DeleteError;

/// More steps than any attempt needs.
const MAX_STEPS: u32 = 20;
/// How often one attempt reads the volume again because a write's precondition failed.
const MAX_REFRESHES: u32 = 3;

/// Why an attempt ended without its volume being settled.
type Stop = attempt::Stop<DeleteError>;

#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
struct Attempt<'a> {
    cx: &'a Context,
    ticket: &'a mut Ticket<String>,
    name: ObjectName,
    gone: bool,
    /// The driver has deleted the volume, in this attempt or in one before.
    deleted: bool,
    /// All of it that is ours is done in this attempt. Finalizers of others may keep the object for a while.
    finished: bool,
    /// What the driver is told, and where the volume said that it is when it was read: nothing, where it has no secret.
    secret: Option<(DeletionSecret, Secret)>,
    /// By the volume's name and by its handle, if that is another.
    operations: Option<Both>,
    refreshes: u32,
    /// Whether the driver may be asked to delete on the word of the cache.
    fresh: bool,
}

/// How an attempt ended well.
enum End {
    Settled,
    Detaching(usize),
}

/// Works one ticket of the volume queue.
pub(in crate::roles::provisioner) async fn handle(cx: Arc<Context>, mut ticket: Ticket<String>) -> Outcome {
    let name = ObjectName::cluster(ticket.key());
    let Some(first) = cx.stores.volumes.get(&name) else { return Outcome::Forget };
    let begun = cx.clock.now();
    let past =
        Past { detached: cx.detaching.forget(ticket.key()), failures: ticket.attempt(), queued: ticket.waited() };
    let mut attempt = Attempt {
        cx: &cx,
        ticket: &mut ticket,
        name,
        gone: false,
        deleted: false,
        finished: false,
        secret: None,
        operations: None,
        refreshes: 0,
        fresh: past.is_fresh(),
    };
    let ended = attempt.work(&first).await;
    let finished = attempt.deleted && (attempt.finished || attempt.gone);
    drop(attempt);
    match ended {
        Ok(End::Settled) => {
            if finished {
                let took = cx.clock.now().saturating_duration_since(begun);
                cx.reporter.deleted(first.spec.storage_class_name.as_deref().unwrap_or_default(), took);
                cx.tell_deleted(&first);
            }
            Outcome::Settled
        }
        Ok(End::Detaching(attachments)) => {
            debug!(attachments, "waits until it is detached");
            cx.detaching.note(ticket.key(), attachments);
            Outcome::Settled
        }
        Err(Stop::Failed(error)) => cx.deletion_failed(&ticket, &first, &error),
        Err(stop) => stop.outcome(),
    }
}

impl Attempt<'_> {
    async fn work(&mut self, first: &PersistentVolume) -> Result<End, Stop> {
        let cx = self.cx;
        let uid = first.metadata.uid.as_deref().unwrap_or_default();
        for _ in 0..MAX_STEPS {
            let Some(volume) = cx.stores.volumes.get(&self.name) else { return Ok(End::Settled) };
            if volume.metadata.uid != first.metadata.uid {
                // A namesake has a ticket of its own.
                return Ok(End::Settled);
            }
            let deleted = cx.deleted.has(uid);
            self.deleted |= deleted;
            if cx.term.is_over() && !deleted {
                return Err(Stop::TermOver);
            }
            let relisted = cx.relisted.get().is_some();
            let done = Done { relisted, deleted, gone: self.gone };
            let twins = cx.same_handle(&volume);
            let step = next_step(&View {
                volume: &volume,
                kept_by: twins.iter().find(|twin| keeps(twin)).and_then(|twin| twin.metadata.name.as_deref()),
                attachments: self.attachments(&twins),
                is_here: cx.scope.is_here(&volume),
                done,
                held: self.holds(&volume),
                fresh: self.fresh,
                has_secret: self.has_secret(&volume),
                rules: &cx.deletion,
            });
            match step {
                Step::Ignore | Step::Settled => return Ok(End::Settled),
                Step::WaitForDetach(attachments) => return Ok(End::Detaching(attachments)),
                step => self.perform(step, &volume).await?,
            }
        }
        Err(DeleteError::Endless(MAX_STEPS).into())
    }

    /// How many attachments hold the driver's volume, under whatever object's name.
    fn attachments(&self, twins: &[Arc<PersistentVolume>]) -> usize {
        let of = |name: &str| self.cx.stores.attachments.find(BY_VOLUME, name).len();
        let others = twins.iter().filter_map(|twin| twin.metadata.name.as_deref());
        of(self.name.name()) + others.map(of).sum::<usize>()
    }

    /// Where the secret for the deletion is.
    fn secret_of(&self, volume: &PersistentVolume) -> Result<DeletionSecret, SecretError> {
        let cx = self.cx;
        let class = volume.spec.storage_class_name.as_deref();
        let class = class.and_then(|class| cx.stores.classes.get(&ObjectName::cluster(class)));
        let class = class.as_deref().filter(|class| class.provisioner == cx.rules.driver);
        let (parameters, allowed) = (class.map(|class| &class.parameters), &cx.section.deletion_secret_namespaces);
        for_deletion(volume, parameters, allowed, &cx.rules.driver)
    }

    /// Whether what was read is the secret that the volume names now.
    fn has_secret(&self, volume: &PersistentVolume) -> bool {
        let Some((place, _)) = &self.secret else { return false };
        self.secret_of(volume).is_ok_and(|now| now == *place)
    }

    async fn perform(&mut self, step: Step, volume: &PersistentVolume) -> Result<(), Stop> {
        let cx = self.cx;
        match step {
            // `work` has returned.
            Step::Ignore | Step::Settled | Step::WaitForDetach(_) => Ok(()),
            Step::NotCsi => Err(volume.spec.in_tree.map_or(DeleteError::NotCsi, DeleteError::InTree).into()),
            Step::Shared(other) => {
                let handle = volume.spec.csi.as_ref().map_or_else(String::new, |csi| csi.volume_handle.clone());
                Err(DeleteError::Shared { handle, other }.into())
            }
            Step::Relist => Ok(self.ticket.park(cx.term.unless_over(cx.relist())).await?),
            Step::Protect => {
                let finalizer = cx.deletion.finalizer;
                let patch = patch::add_finalizer(&volume.metadata, finalizer, &BTreeMap::new());
                self.patch(volume, patch, DeleteError::Protect).await
            }
            Step::Hold => self.hold(volume).await,
            Step::Confirm => {
                self.read_again(volume, DeleteError::Confirm).await?;
                self.fresh = true;
                Ok(())
            }
            Step::ReadSecret => self.read_secret(volume).await,
            Step::Delete => self.delete(volume).await,
            Step::Remove => self.remove(volume).await,
            Step::Release => {
                let patch = patch::remove_finalizer(&volume.metadata, cx.deletion.finalizer);
                self.patch(volume, patch, DeleteError::Release).await?;
                self.finished = true;
                Ok(())
            }
        }
    }

    async fn read_secret(&mut self, volume: &PersistentVolume) -> Result<(), Stop> {
        let may_miss = self.cx.section.delete_without_secret;
        let place = self.secret_of(volume).map_err(DeleteError::from)?;
        let secret = match &place {
            DeletionSecret::At(reference) => self.load(reference).await?,
            DeletionSecret::None => Secret::default(),
            DeletionSecret::Unknown(why) if may_miss => {
                debug!(why, "deleting without a secret");
                Secret::default()
            }
            DeletionSecret::Unknown(why) => return Err(DeleteError::SecretUnknown(why).into()),
        };
        self.secret = Some((place, secret));
        Ok(())
    }

    /// Reads the secret. Only what nobody but people can bring may be done without: a volume must not lose its secret to an API
    /// that is slow for a moment.
    async fn load(&self, reference: &SecretReference) -> Result<Secret, Stop> {
        let cx = self.cx;
        match secret::read(cx.api.use_now()?, reference).await {
            Err(failure) if cx.section.delete_without_secret && failure.is_withheld() => {
                warn!(error = %ErrorChain(&failure), "deleting without the secret");
                Ok(Secret::default())
            }
            read => Ok(read.map_err(DeleteError::from)?),
        }
    }

    /// Whether this attempt has the volume for itself.
    fn holds(&self, volume: &PersistentVolume) -> bool {
        let handle = volume.spec.csi.as_ref().map(|csi| csi.volume_handle.as_str());
        let names = |guard: &VolumeLock| Some(guard.volume_id()) == handle;
        self.operations.as_ref().is_some_and(|(one, other)| names(one) || other.as_ref().is_some_and(names))
    }

    /// Takes the volume for this attempt. Where it had to wait, what it knows may be old.
    async fn hold(&mut self, volume: &PersistentVolume) -> Result<(), Stop> {
        let cx = self.cx;
        let Some(csi) = &volume.spec.csi else { return Err(DeleteError::NotCsi.into()) };
        self.operations = None;
        let (name, handle) = (self.name.name(), csi.volume_handle.as_str());
        if let Some(both) = cx.operations.try_lock_pair(name, handle) {
            self.operations = Some(both);
            return Ok(());
        }
        let both = cx.term.unless_over(cx.operations.lock_pair(name, handle));
        self.operations = Some(self.ticket.park(both).await?);
        self.fresh = false;
        Ok(())
    }

    async fn delete(&mut self, volume: &PersistentVolume) -> Result<(), Stop> {
        let cx = self.cx;
        let Some(csi) = &volume.spec.csi else { return Err(DeleteError::NotCsi.into()) };
        let capability = if cx.capabilities.controller_service() {
            (!cx.capabilities.has(ControllerRpc::CreateDeleteVolume)).then_some("CREATE_DELETE_VOLUME")
        } else {
            Some("CONTROLLER_SERVICE")
        };
        if let Some(capability) = capability {
            return Err(DeleteError::Capability { driver: cx.rules.driver.clone(), capability }.into());
        }
        let client = cx.driver.use_now()?;
        let secrets = self.secret.as_ref().map(|(_, secret)| secret.texts()).unwrap_or_default();
        let asked = DeleteVolumeRequest { volume_id: csi.volume_handle.clone(), secrets };
        cx.term.during(client.delete_volume(asked)).await?.map_err(DeleteError::from)?;
        self.operations = None;
        cx.deleted.note(volume.metadata.uid.as_deref().unwrap_or_default());
        info!(volume = csi.volume_handle, "deleted the volume");
        Ok(())
    }

    /// Deletes the object, if it still is the one whose volume was deleted.
    async fn remove(&mut self, volume: &PersistentVolume) -> Result<(), Stop> {
        let cx = self.cx;
        let api = cx.api.use_now()?;
        let uid = volume.metadata.uid.as_deref().unwrap_or_default();
        match api.delete::<PersistentVolume>(&self.name, uid).await {
            Ok(Some(left)) => {
                self.finished = true;
                cx.stores.volumes.apply_own_write(left);
                Ok(())
            }
            Ok(None) => {
                self.gone = true;
                Ok(())
            }
            Err(error) if error.kind() == ApiErrorKind::NotFound => {
                self.gone = true;
                Ok(())
            }
            Err(error) => self.refresh_after(volume, DeleteError::Remove(error)).await,
        }
    }

    async fn patch(
        &mut self,
        volume: &PersistentVolume,
        patch: Option<patch::Patch>,
        failed: fn(crate::cluster::ApiError) -> DeleteError,
    ) -> Result<(), Stop> {
        let Some(patch) = patch else { return Ok(()) };
        let cx = self.cx;
        let api = cx.api.use_now()?;
        match api.patch::<PersistentVolume>(&self.name, &patch).await {
            Ok(written) => {
                let is_deleting = written.metadata.deletion_timestamp.is_some();
                self.gone = is_deleting && written.metadata.finalizers().is_empty();
                cx.stores.volumes.apply_own_write(written);
                Ok(())
            }
            Err(error) if error.kind() == ApiErrorKind::NotFound => {
                self.gone = true;
                Ok(())
            }
            Err(error) => self.refresh_after(volume, failed(error)).await,
        }
    }

    /// A failed precondition says that the view was old: read the object again and go on. Anything else ends the attempt.
    async fn refresh_after(&mut self, volume: &PersistentVolume, error: DeleteError) -> Result<(), Stop> {
        if !error.api().is_some_and(|error| error.kind().is_stale()) || self.refreshes >= MAX_REFRESHES {
            return Err(error.into());
        }
        self.refreshes += 1;
        debug!(error = %ErrorChain(&error), "a precondition failed: reading the persistentvolume again");
        self.read_again(volume, DeleteError::Refresh).await
    }

    /// Has the cache show the object as it is now.
    async fn read_again(
        &mut self,
        volume: &PersistentVolume,
        failed: fn(crate::cluster::ApiError) -> DeleteError,
    ) -> Result<(), Stop> {
        let cx = self.cx;
        let api = cx.api.use_now()?;
        match api.get_opt::<PersistentVolume>(&self.name).await.map_err(failed)? {
            Some(found) if found.metadata.uid == volume.metadata.uid => cx.stores.volumes.apply_own_write(found),
            // Where another object has the name, ours is gone, too.
            _ => self.gone = true,
        }
        Ok(())
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "handler_tests.rs"]
mod tests;

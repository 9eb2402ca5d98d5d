//! The handler of volumes: works one volume object until it is as it should be, or an attempt fails.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use crate::cluster::patch;
use crate::cluster::{ApiErrorKind, BY_VOLUME, ObjectName, PersistentVolume};
use crate::csi::capabilities::ControllerRpc;
use crate::csi::{Both, OperationGuard};
use crate::process::Chain;
use crate::proto::DeleteVolumeRequest;
use crate::queue::{Outcome, Ticket};
use crate::roles::attempt::{self, Failure as _};
use crate::roles::provisioner::desk::Desk;
use crate::roles::provisioner::secrets::{DeletionSecret, SecretReference, for_deletion};

use super::decide::{Done, Step, View, keeps, next_step};
use super::refusal::DeletionError;

/// More steps than any attempt needs.
const MAX_STEPS: u32 = 20;
/// A run that had to wait this long for a worker reads the volume before the driver is asked to delete it. Where many volumes go
/// at once, the watch is as likely to be behind as the workers, and somebody who sees what is coming says `Retain` in that time.
/// Shorter waits are as old as any view of a watch, and must not cost a request each.
const LONG_IN_QUEUE: Duration = Duration::from_secs(1);
/// How often one attempt reads the volume again because a write's precondition failed.
const MAX_REFRESHES: u32 = 3;

/// Why an attempt ended without its volume being settled.
type Stop = attempt::Stop<DeletionError>;

struct Attempt<'a> {
    desk: &'a Desk,
    ticket: &'a mut Ticket<String>,
    name: ObjectName,
    gone: bool,
    /// The driver has deleted the volume, in this attempt or in one before.
    deleted: bool,
    /// All of it that is ours is done in this attempt. Finalizers of others may keep the object for a while.
    finished: bool,
    /// What the driver is told: nothing, where the volume has no secret.
    secrets: Option<HashMap<String, String>>,
    /// By the volume's name and by its handle, if that is another.
    operations: Option<Both>,
    refreshes: u32,
    view: Trust,
}

/// How far the driver may be asked to delete on the word of the cache.
#[derive(PartialEq, Eq)]
enum Trust {
    /// What it shows was just heard, or just read.
    Fresh,
    /// The volume had to wait, for its turn or for a worker, or has failed before: it is read again first.
    Old,
}

/// How an attempt ended well.
enum End {
    Settled,
    Detaching(usize),
}

/// Works one ticket of the volume queue.
pub(in crate::roles::provisioner) async fn handle(desk: Arc<Desk>, mut ticket: Ticket<String>) -> Outcome {
    let name = ObjectName::cluster(ticket.key());
    let Some(first) = desk.known.volumes.get(&name) else { return Outcome::Forget };
    let begun = desk.clock.now();
    let mut attempt = Attempt {
        desk: &desk,
        ticket: &mut ticket,
        name,
        gone: false,
        deleted: false,
        finished: false,
        secrets: None,
        operations: None,
        refreshes: 0,
        view: Trust::Fresh,
    };
    let waited = attempt.ticket.waited() >= LONG_IN_QUEUE;
    if desk.detaching.forget(attempt.ticket.key()) || attempt.ticket.attempt() > 0 || waited {
        attempt.view = Trust::Old;
    }
    let ended = attempt.work(&first).await;
    let finished = attempt.deleted && (attempt.finished || attempt.gone);
    drop(attempt);
    match ended {
        Ok(End::Settled) => {
            if finished {
                let took = desk.clock.now().saturating_duration_since(begun);
                desk.reporter.deleted(first.spec.storage_class_name.as_deref().unwrap_or_default(), took);
                desk.tell_deleted(&first);
            }
            Outcome::Settled
        }
        Ok(End::Detaching(attachments)) => {
            debug!(attachments, "waits until it is detached");
            desk.detaching.note(ticket.key(), attachments);
            Outcome::Settled
        }
        Err(Stop::Failed(error)) => desk.deletion_failed(&ticket, &first, &error),
        Err(stop) => stop.outcome(),
    }
}

impl Attempt<'_> {
    async fn work(&mut self, first: &PersistentVolume) -> Result<End, Stop> {
        let desk = self.desk;
        let uid = first.metadata.uid.as_deref().unwrap_or_default();
        for _ in 0..MAX_STEPS {
            let Some(volume) = desk.known.volumes.get(&self.name) else { return Ok(End::Settled) };
            if volume.metadata.uid != first.metadata.uid {
                // A namesake has a ticket of its own.
                return Ok(End::Settled);
            }
            let deleted = desk.deleted.has(uid);
            self.deleted |= deleted;
            if desk.term.is_over() && !deleted {
                return Err(Stop::TermOver);
            }
            let relisted = desk.relisted.get().is_some();
            let done = Done { relisted, deleted, gone: self.gone };
            let kept_by = self.kept_by(&volume);
            let step = next_step(&View {
                volume: &volume,
                kept_by: kept_by.as_deref(),
                attachments: self.attachments(&volume),
                is_here: desk.locality.is_here(&volume),
                done,
                has_secret: self.secrets.is_some(),
                rules: &desk.deletion,
            });
            match step {
                Step::Ignore | Step::Settled => return Ok(End::Settled),
                Step::WaitForDetach(attachments) => return Ok(End::Detaching(attachments)),
                step => self.perform(step, &volume).await?,
            }
        }
        Err(DeletionError::Endless(MAX_STEPS).into())
    }

    /// How many attachments hold the driver's volume, under whatever object's name.
    fn attachments(&self, volume: &PersistentVolume) -> usize {
        let desk = self.desk;
        let of = |name: &str| desk.known.attachments.find(BY_VOLUME, name).len();
        let handle = volume.spec.csi.as_ref().map(|csi| csi.volume_handle.as_str());
        let twins = handle.map(|handle| desk.volumes_of(handle)).unwrap_or_default();
        let others = twins.iter().filter(|twin| twin.metadata.uid != volume.metadata.uid);
        of(self.name.name()) + others.map(|twin| of(ObjectName::of(twin.as_ref()).name())).sum::<usize>()
    }

    /// Another object of the same volume that is not to be deleted, by name.
    fn kept_by(&self, volume: &PersistentVolume) -> Option<String> {
        let csi = volume.spec.csi.as_ref()?;
        let others = self.desk.volumes_of(&csi.volume_handle);
        let other = others.iter().find(|other| other.metadata.uid != volume.metadata.uid && keeps(other))?;
        Some(ObjectName::of(other.as_ref()).name().to_owned())
    }

    /// Where the secret for the deletion is, if there is one.
    fn secret_of(&self, volume: &PersistentVolume) -> Result<Option<SecretReference>, DeletionError> {
        let desk = self.desk;
        let class = volume.spec.storage_class_name.as_deref();
        let class = class.and_then(|class| desk.known.classes.get(&ObjectName::cluster(class)));
        let class = class.as_deref().filter(|class| class.provisioner == desk.rules.driver);
        let (parameters, allowed) = (class.map(|class| &class.parameters), &desk.section.deletion_secret_namespaces);
        match for_deletion(volume, parameters, allowed, &desk.rules.driver)? {
            DeletionSecret::At(reference) => Ok(Some(reference)),
            DeletionSecret::None => Ok(None),
            DeletionSecret::Unknown(why) if desk.section.delete_without_secret => {
                debug!(why, "deleting without a secret");
                Ok(None)
            }
            DeletionSecret::Unknown(why) => Err(DeletionError::SecretUnknown(why)),
        }
    }

    async fn perform(&mut self, step: Step, volume: &PersistentVolume) -> Result<(), Stop> {
        let desk = self.desk;
        match step {
            // `work` has returned.
            Step::Ignore | Step::Settled | Step::WaitForDetach(_) => Ok(()),
            Step::NotCsi => Err(volume.spec.in_tree.map_or(DeletionError::NotCsi, DeletionError::InTree).into()),
            Step::Shared(other) => {
                let handle = volume.spec.csi.as_ref().map_or_else(String::new, |csi| csi.volume_handle.clone());
                Err(DeletionError::Shared { handle, other }.into())
            }
            Step::Relist => {
                tokio::select! {
                    biased;
                    () = desk.term.over() => Err(Stop::TermOver),
                    () = self.ticket.park(desk.relist()) => Ok(()),
                }
            }
            Step::Protect => {
                let finalizer = desk.deletion.finalizer;
                let patch = patch::add_finalizer(&volume.metadata, finalizer, &BTreeMap::new());
                self.patch(volume, patch, DeletionError::Protect).await
            }
            Step::ReadSecret => self.read_secret(volume).await,
            Step::Delete => self.delete(volume).await,
            Step::Remove => self.remove(volume).await,
            Step::Release => {
                let patch = patch::remove_finalizer(&volume.metadata, desk.deletion.finalizer);
                self.patch(volume, patch, DeletionError::Release).await?;
                self.finished = true;
                Ok(())
            }
        }
    }

    async fn read_secret(&mut self, volume: &PersistentVolume) -> Result<(), Stop> {
        let desk = self.desk;
        let Some(reference) = self.secret_of(volume)? else {
            self.secrets = Some(HashMap::new());
            return Ok(());
        };
        let api = desk.api.use_now()?;
        let data = api.get_secret(&reference.namespace, &reference.name).await.map_err(DeletionError::Secret);
        match data.and_then(|data| Ok(data.into_texts()?)).map_err(Stop::from) {
            Ok(secrets) => self.secrets = Some(secrets),
            Err(Stop::Failed(error)) if desk.section.delete_without_secret => {
                warn!(error = %Chain(&error), "deleting without the secret");
                self.secrets = Some(HashMap::new());
            }
            Err(stop) => return Err(stop),
        }
        Ok(())
    }

    /// Takes the volume for this attempt, by its name and by its handle: a `CreateVolume` knows the one, the attacher the
    /// other. `false`: it had to wait, so what it knows may be old; look again.
    async fn holds(&mut self, handle: &str) -> Result<bool, Stop> {
        let desk = self.desk;
        let names = |guard: &OperationGuard| guard.volume_id() == handle;
        if self.operations.as_ref().is_some_and(|(one, other)| names(one) || other.as_ref().is_some_and(names)) {
            return Ok(true);
        }
        self.operations = None;
        if let Some(both) = desk.operations.try_acquire_both(self.name.name(), handle) {
            self.operations = Some(both);
            return Ok(true);
        }
        let name = self.name.name().to_owned();
        let both = async {
            tokio::select! {
                biased;
                () = desk.term.over() => Err(Stop::TermOver),
                both = desk.operations.acquire_both(&name, handle) => Ok(both),
            }
        };
        self.operations = Some(self.ticket.park(both).await?);
        Ok(false)
    }

    async fn delete(&mut self, volume: &PersistentVolume) -> Result<(), Stop> {
        let desk = self.desk;
        let Some(csi) = &volume.spec.csi else { return Err(DeletionError::NotCsi.into()) };
        let capability = if desk.capabilities.controller_service() {
            (!desk.capabilities.has(ControllerRpc::CreateDeleteVolume)).then_some("CREATE_DELETE_VOLUME")
        } else {
            Some("CONTROLLER_SERVICE")
        };
        if let Some(capability) = capability {
            return Err(DeletionError::Capability { driver: desk.rules.driver.clone(), capability }.into());
        }
        if !self.holds(&csi.volume_handle).await? {
            self.view = Trust::Old;
            return Ok(());
        }
        if self.view == Trust::Old {
            return self.confirm(volume).await;
        }
        let client = desk.driver.use_now()?;
        let secrets = self.secrets.clone().unwrap_or_default();
        let asked = DeleteVolumeRequest { volume_id: csi.volume_handle.clone(), secrets };
        desk.term.during(client.delete_volume(asked)).await?.map_err(DeletionError::from)?;
        self.operations = None;
        desk.deleted.note(volume.metadata.uid.as_deref().unwrap_or_default());
        info!(volume = csi.volume_handle, "deleted the volume");
        Ok(())
    }

    /// Reads the object itself, while nobody else works on the volume: a watch that is behind may have hidden that somebody
    /// keeps it, has it bound, or has made another of its name. The next look decides.
    async fn confirm(&mut self, volume: &PersistentVolume) -> Result<(), Stop> {
        self.read_again(volume, DeletionError::Confirm).await?;
        self.view = Trust::Fresh;
        Ok(())
    }

    /// Deletes the object, if it still is the one whose volume was deleted.
    async fn remove(&mut self, volume: &PersistentVolume) -> Result<(), Stop> {
        let desk = self.desk;
        let api = desk.api.use_now()?;
        let uid = volume.metadata.uid.as_deref().unwrap_or_default();
        match api.delete::<PersistentVolume>(&self.name, uid).await {
            Ok(Some(left)) => {
                self.finished = true;
                desk.known.volumes.absorb(left);
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
            Err(error) => self.refresh_after(volume, DeletionError::Remove(error)).await,
        }
    }

    async fn patch(
        &mut self,
        volume: &PersistentVolume,
        patch: Option<patch::Patch>,
        failed: fn(crate::cluster::ApiError) -> DeletionError,
    ) -> Result<(), Stop> {
        let Some(patch) = patch else { return Ok(()) };
        let desk = self.desk;
        let api = desk.api.use_now()?;
        match api.patch::<PersistentVolume>(&self.name, &patch).await {
            Ok(written) => {
                let is_deleting = written.metadata.deletion_timestamp.is_some();
                self.gone = is_deleting && written.metadata.finalizers().is_empty();
                desk.known.volumes.absorb(written);
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
    async fn refresh_after(&mut self, volume: &PersistentVolume, error: DeletionError) -> Result<(), Stop> {
        if !error.api().is_some_and(|error| error.kind().is_stale()) || self.refreshes >= MAX_REFRESHES {
            return Err(error.into());
        }
        self.refreshes += 1;
        debug!(error = %Chain(&error), "a precondition failed: reading the persistentvolume again");
        self.read_again(volume, DeletionError::Refresh).await
    }

    /// Has the cache show the object as it is now.
    async fn read_again(
        &mut self,
        volume: &PersistentVolume,
        failed: fn(crate::cluster::ApiError) -> DeletionError,
    ) -> Result<(), Stop> {
        let desk = self.desk;
        let api = desk.api.use_now()?;
        match api.get_opt::<PersistentVolume>(&self.name).await.map_err(failed)? {
            Some(found) if found.metadata.uid == volume.metadata.uid => desk.known.volumes.absorb(found),
            // Where another object has the name, ours is gone, too.
            _ => self.gone = true,
        }
        Ok(())
    }
}

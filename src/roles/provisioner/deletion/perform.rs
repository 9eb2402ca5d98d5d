//! Each step's request or call. It makes no decisions: they come from [`policy`](super::policy). Every write has a precondition.

use std::collections::BTreeMap;

use serde_json::json;
use tracing::{debug, info, warn};

use crate::cluster::patch::{self, MetaChange, Patch};
use crate::cluster::{PersistentVolume, SecretRef};
use crate::process::ErrorChain;
use crate::proto::DeleteVolumeRequest;
use crate::roles::kit::{self, Confirmed, Io, Op, Part, Secret};
use crate::roles::provisioner::parameters::secrets::DeletionSecret;

use super::context::DeletionContext;
use super::error::{DeleteReason, FORGET, PROTECT, RELEASE, REMOVE, secret_failed};
use super::policy::{LONG_IN_QUEUE, Step, View};
use super::progress::{Answer, Progress};

/// Why a step ended the attempt.
pub(super) type Stop = kit::Stop<DeleteReason>;

/// What a step may do.
pub(super) type Verbs<'a> = Io<'a, String>;

/// What a step works with.
pub(super) type Act<'a, 'io> = kit::Act<'a, 'io, DeletionContext, View, Progress, String>;

impl Act<'_, '_> {
    /// Does one step.
    pub(super) async fn perform(&self, step: Step) -> Result<Answer, Stop> {
        let (cx, view, io) = (self.cx, self.seen, self.io);
        let (volumes, volume) = (&cx.shared.stores.volumes, view.volume.as_ref());
        match step {
            Step::Protect => {
                let patch = patch::add_finalizer(&volume.metadata, view.rules.finalizer, &BTreeMap::new());
                match self.write(patch, PROTECT).await? {
                    Answer::Finished { .. } => Ok(Answer::Nothing),
                    other => Ok(other),
                }
            }
            Step::Wait(waiting) => {
                debug!(attachments = waiting.attachments, "waits until it is detached");
                Ok(Answer::Waits(waiting))
            }
            Step::List => io.wait(cx.shared.stores.list_volumes()).await.map(|()| Answer::Listed),
            Step::CatchUp => io.catch_up(volumes, volume).await.map(|()| Answer::Listed),
            Step::Confirm => match io.confirm(volumes, volume).await? {
                Confirmed::Yes => Ok(Answer::Confirmed),
                Confirmed::NotFound | Confirmed::Replaced => Ok(Answer::NotFound),
            },
            Step::ReadSecret(place) => self.read_secret(place).await,
            Step::Delete(handle) => self.delete(handle).await,
            Step::Forget => {
                io.wait(cx.journal.forgotten(volume)).await?.map_err(|error| FORGET.failed(error))?;
                Ok(Answer::Nothing)
            }
            // Only if it still is the object whose volume was deleted.
            Step::Remove => io.delete(volumes, volume, REMOVE).await.map(|written| Answer::of(&written)),
            Step::Release => self.write(released(volume, view.rules.finalizer), RELEASE).await,
            Step::Refuse(reason) => Err(reason.into()),
        }
    }

    /// Reads the secret. `deleteWithoutSecret` covers only a secret that is missing or not text: a volume must not lose its secret to an
    /// API that is slow for a moment, nor to a right that an administrator has taken away. A secret that may not be read may exist.
    async fn read_secret(&self, place: SecretRef) -> Result<Answer, Stop> {
        let clock = self.cx.shared.scope.clock;
        let begun = clock.now();
        let secret = match self.io.secret(&place).await? {
            Err(failure) if self.seen.rules.without_secret && failure.is_missing() => {
                warn!(error = %ErrorChain(&failure), "deleting without the secret");
                Secret::default()
            }
            read => read.map_err(secret_failed)?,
        };
        let waited = clock.now().saturating_duration_since(begun) >= LONG_IN_QUEUE;
        Ok(Answer::SecretRead { place, secret, waited })
    }

    async fn delete(&self, handle: String) -> Result<Answer, Stop> {
        let secret = match &self.seen.secret {
            Ok(DeletionSecret::At(_)) => self.progress.secret.as_ref(),
            Ok(DeletionSecret::Unknown(why)) => {
                debug!(why, "deleting without a secret");
                None
            }
            _ => None,
        };
        let secrets = secret.map(|(_, secret)| secret.texts()).unwrap_or_default();
        let request = DeleteVolumeRequest { volume_id: handle.clone(), secrets };
        let is_migrated = self.seen.volume.spec.in_tree.is_some();
        self.io.call(async move |driver| driver.for_migrated(is_migrated).delete_volume(request).await).await?;
        info!(volume = handle, "deleted the volume");
        Ok(Answer::Deleted)
    }

    async fn write(&self, patch: Option<Patch>, op: Op) -> Result<Answer, Stop> {
        let Some(patch) = patch else { return Ok(Answer::Nothing) };
        let (volumes, volume) = (&self.cx.shared.stores.volumes, self.seen.volume.as_ref());
        self.io.write(volumes, volume, (Part::Object, &patch), op).await.map(|written| Answer::of(&written))
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

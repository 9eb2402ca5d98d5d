//! Changes the world, one step at a time. No decisions: what to do comes from [`super::decide`].
//!
//! Every write goes through the fence of the term, carries a precondition, and hands the server's answer to the cache, so
//! that the next look sees it (R48).

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cluster::patch::Guard;
use crate::cluster::{ApiError, ObjectName, patch};
use crate::cluster::{PersistentVolume, VolumeAttachment};
use crate::proto::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest};
use crate::roles::attacher::names;
use crate::roles::attempt::read_again;
use crate::roles::secret::{self, Secret};

use super::csi::{CATCH_UP, Stop};
use super::decide::{Intent, Preparation, Publish, Unpublish};
use super::desk::{Desk, Objects};
use super::refusal::{AttemptError, Refusal};

/// What a preparation brought.
#[derive(Debug)]
pub(super) enum Performed {
    /// A write was made, or turned out not to be needed.
    Written,
    /// The secret.
    Secret(Secret),
}

/// Performs one preparation.
pub(super) async fn prepare(desk: &Desk, now: &Objects, preparation: Preparation) -> Result<Performed, Stop> {
    match preparation {
        Preparation::ProtectVolume => protect_volume(desk, now).await.map(|()| Performed::Written),
        Preparation::SaveIntent(intent) => save_intent(desk, now, &intent).await.map(|()| Performed::Written),
        Preparation::ReadSecret(reference) => {
            let found = secret::read(desk.api.use_now()?, &reference).await;
            Ok(Performed::Secret(found.map_err(AttemptError::from)?))
        }
    }
}

async fn protect_volume(desk: &Desk, now: &Objects) -> Result<(), Stop> {
    let Some(volume) = &now.volume else { return Ok(()) };
    let Some(patch) = patch::add_finalizer(&volume.metadata, &desk.rules.finalizer, &BTreeMap::new()) else {
        return Ok(());
    };
    let api = desk.api.use_now()?;
    let name = ObjectName::of(volume.as_ref());
    let written: PersistentVolume = api.patch(&name, &patch).await.map_err(AttemptError::Protect)?;
    desk.confirmed.note(written.metadata.uid.as_deref().unwrap_or_default());
    desk.known.volumes.absorb(written);
    Ok(())
}

async fn save_intent(desk: &Desk, now: &Objects, intent: &Intent) -> Result<(), Stop> {
    let mut annotations = BTreeMap::from([
        (names::ANNOTATION_NODE_ID.to_owned(), intent.node_id.clone()),
        (names::ANNOTATION_VOLUME_HANDLE.to_owned(), intent.volume_handle.clone()),
    ]);
    if let Some(secret) = &intent.secret {
        let reference = format!("{}/{}", secret.namespace, secret.name);
        annotations.insert(names::ANNOTATION_PUBLISH_SECRET.to_owned(), reference);
    }
    let Some(patch) = patch::add_finalizer(&now.object.metadata, &desk.rules.finalizer, &annotations) else {
        return Ok(());
    };
    let api = desk.api.use_now()?;
    let name = ObjectName::cluster(&now.attachment.name);
    let written: VolumeAttachment = api.patch(&name, &patch).await.map_err(AttemptError::SaveIntent)?;
    desk.confirmed.note(&now.attachment.uid);
    desk.known.attachments.absorb(written);
    Ok(())
}

/// Publishes the volume and returns the publish context.
pub(super) async fn publish(
    desk: &Desk,
    now: &Objects,
    publish: Publish,
    secret: Option<&Secret>,
) -> Result<BTreeMap<String, String>, Stop> {
    let request = ControllerPublishVolumeRequest {
        volume_id: publish.volume_id,
        node_id: publish.node_id,
        volume_capability: Some(publish.capability),
        readonly: publish.readonly,
        secrets: secret.map(Secret::texts).unwrap_or_default(),
        volume_context: publish.volume_context.into_iter().collect(),
    };
    let client = desk.driver.use_now()?;
    // From here on the volume may be there again, whatever the driver has shown before; unless it says that it isn't.
    let was_lost = desk.lost.forget(&now.attachment.uid);
    let answer = desk.term.during(client.controller_publish_volume(request)).await?.map_err(AttemptError::from);
    if was_lost && answer.as_ref().is_err_and(AttemptError::refuses_publish) {
        desk.lost.note(&now.attachment.uid);
    }
    Ok(answer?.publish_context.into_iter().collect())
}

/// Unpublishes the volume.
pub(super) async fn unpublish(desk: &Desk, unpublish: Unpublish, secret: Option<&Secret>) -> Result<(), Stop> {
    let request = ControllerUnpublishVolumeRequest {
        volume_id: unpublish.volume_id,
        node_id: unpublish.node_id,
        secrets: secret.map(Secret::texts).unwrap_or_default(),
    };
    let client = desk.driver.use_now()?;
    desk.term.during(client.controller_unpublish_volume(request)).await?.map_err(AttemptError::from)?;
    Ok(())
}

/// Records that the volume is attached. Clears the attach error in any case: the cache may not have seen it yet (R48).
pub(super) async fn record_attached(
    desk: &Desk,
    now: &Objects,
    context: &BTreeMap<String, String>,
) -> Result<(), Stop> {
    let mut metadata: serde_json::Map<String, Value> =
        context.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect();
    for gone in now.attachment.metadata.keys().filter(|key| !context.contains_key(*key)) {
        metadata.insert(gone.to_owned(), Value::Null);
    }
    let metadata = if context.is_empty() { Value::Null } else { Value::Object(metadata) };
    let status = json!({ "attached": true, "attachmentMetadata": metadata, "attachError": null });
    patch_status(desk, now, Guard::Uid, &status, AttemptError::RecordAttached).await
}

/// Removes our finalizer from the attachment, and nobody else's. `true`: it was the last one, and the object is gone. The
/// server then answers with the object's old version, which the cache rightly takes for no news.
pub(super) async fn release(desk: &Desk, now: &Objects) -> Result<bool, Stop> {
    let Some(patch) = patch::remove_finalizer(&now.object.metadata, &desk.rules.finalizer) else { return Ok(false) };
    let api = desk.api.use_now()?;
    let name = ObjectName::cluster(&now.attachment.name);
    match api.patch::<VolumeAttachment>(&name, &patch).await {
        Ok(written) => {
            let is_deleting = written.metadata.deletion_timestamp.is_some();
            let is_gone = is_deleting && written.metadata.finalizers().is_empty();
            desk.confirmed.forget(&now.attachment.uid);
            desk.known.attachments.absorb(written);
            Ok(is_gone)
        }
        Err(error) => Err(AttemptError::Release(error).into()),
    }
}

/// Records that the volume is detached, on an attachment that somebody else's finalizer keeps.
pub(super) async fn record_detached(desk: &Desk, now: &Objects) -> Result<(), Stop> {
    let status = json!({ "attached": false, "attachmentMetadata": null, "detachError": null });
    patch_status(desk, now, Guard::Uid, &status, AttemptError::Release).await
}

/// Records why an attempt failed. Until the API has confirmed what the cache says of the attachment, only on what was seen: a late
/// watch may not have told yet that the last leader attached it, and the error would stay beside that for good.
pub(super) async fn record_error(desk: &Desk, now: &Objects, status: &Value) -> Result<(), Stop> {
    let guard = if desk.confirmed.has(&now.attachment.uid) { Guard::Uid } else { Guard::Version };
    patch_status(desk, now, guard, status, AttemptError::WriteError).await
}

/// Merges `status` into the attachment's, as far as `guard` allows.
pub(super) async fn patch_status(
    desk: &Desk,
    now: &Objects,
    guard: Guard,
    status: &Value,
    failed: fn(ApiError) -> AttemptError,
) -> Result<(), Stop> {
    let api = desk.api.use_now()?;
    let patch = patch::status_changes(&now.object.metadata, guard, status);
    let name = ObjectName::cluster(&now.attachment.name);
    let written: VolumeAttachment = api.patch_status(&name, &patch).await.map_err(failed)?;
    desk.known.attachments.absorb(written);
    Ok(())
}

/// Reads the attachment and its volume again. `false`: there is nothing newer than what `now` was made from, so another
/// look would see the same.
pub(super) async fn refresh(desk: &Desk, now: &Objects) -> Result<bool, Stop> {
    let api = desk.api.use_now()?;
    let attachment = read_again(api, &desk.known.attachments, now.object.as_ref()).await;
    let is_newer = attachment.map_err(AttemptError::Refresh)?;
    let Some(volume) = &now.volume else { return Ok(is_newer) };
    let volume = read_again(api, &desk.known.volumes, volume.as_ref()).await;
    Ok(volume.map_err(AttemptError::Refresh)? || is_newer)
}

/// Has the API confirm, once a term, that the attachment is what the cache says, before the driver is asked to change
/// anything for it. `true`: it was read just now, so look again.
pub(super) async fn confirm(desk: &Desk, now: &Objects) -> Result<bool, Stop> {
    if desk.confirmed.has(&now.attachment.uid) {
        return Ok(false);
    }
    let api = desk.api.use_now()?;
    let name = ObjectName::cluster(&now.attachment.name);
    let found: VolumeAttachment = api.get(&name).await.map_err(AttemptError::Confirm)?;
    if found.metadata.uid.as_deref() != Some(&now.attachment.uid) {
        // A namesake. The cache takes it in only from its own watch, so another look would see no more than this one did.
        return Err(Stop::Later(CATCH_UP));
    }
    desk.confirmed.note(&now.attachment.uid);
    desk.known.attachments.absorb(found);
    Ok(true)
}

/// The same for the volume, before it is published: a late watch may show one that the last leader released. Ours is then
/// only the cache's memory of it. Not so of a volume that was written during the term: nobody has led since but us.
pub(super) async fn confirm_volume(desk: &Desk, now: &Objects) -> Result<bool, Stop> {
    let Some(volume) = &now.volume else { return Ok(false) };
    let uid = volume.metadata.uid.as_deref().unwrap_or_default();
    if desk.confirmed.has(uid) || desk.outset.is_before(&volume.metadata) {
        return Ok(false);
    }
    let name = ObjectName::of(volume.as_ref());
    let api = desk.api.use_now()?;
    match api.get_opt::<PersistentVolume>(&name).await.map_err(AttemptError::Confirm)? {
        Some(found) if found.metadata.uid.as_deref() == Some(uid) => {
            desk.confirmed.note(uid);
            desk.known.volumes.absorb(found);
            Ok(true)
        }
        // Or another volume has its name, and the cache is still to learn of it.
        _ => Err(AttemptError::from(Refusal::VolumeMissing(name.name().to_owned())).into()),
    }
}

/// Whether the API has the volume that the cache lacks. An API that cannot be asked settles nothing: then it is as the
/// cache says.
pub(super) async fn is_there(desk: &Desk, volume: &str) -> Result<bool, Stop> {
    let api = desk.api.use_now()?;
    Ok(api.get::<PersistentVolume>(&ObjectName::cluster(volume)).await.is_ok())
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "perform_tests.rs"]
mod tests;

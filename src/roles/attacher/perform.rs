//! Changes the world, one step at a time. No decisions: what to do comes from [`super::decide`].
//!
//! Every write goes through the fence of the term, carries a precondition, and hands the server's answer to the cache, so
//! that the next look sees it (R48).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tracing::debug;

use crate::cluster::patch::Guard;
use crate::cluster::{ObjectName, patch};
use crate::cluster::{PersistentVolume, VolumeAttachment};
use crate::proto::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest};
use crate::roles::attacher::names;
use crate::roles::kit::{Op, Secret, secrets};

use super::context::{Context, Objects};
use super::decide::{Done, Intent, Preparation, Publish, Unpublish};
use super::error::{
    AttachError, CONFIRM, InvalidAttachment, LOAD_SECRET, PROTECT, RECORD_ATTACHED, RELEASE, SAVE_INTENT, WRITE_ERROR,
    refuses_publish,
};

/// Why a step ended the attempt.
pub(super) type Stop = crate::roles::kit::Stop<InvalidAttachment>;

/// How often one attempt tries to record that a volume is attached before it gives up: the alternative is to publish again.
const MAX_RECORD_TRIES: u32 = 4;
/// The pause before the second of these tries; it doubles.
const RECORD_PAUSE: Duration = Duration::from_millis(100);
/// A server that asks for a longer pause is left alone until the queue's next try: the worker, and a stop of the daemon,
/// must not wait for it.
const LONGEST_RECORD_PAUSE: Duration = Duration::from_secs(5);

/// Performs one preparation.
pub(super) async fn prepare(cx: &Context, now: &Objects, preparation: Preparation) -> Result<Done, Stop> {
    match preparation {
        Preparation::ProtectVolume => protect_volume(cx, now).await.map(|()| Done::Nothing),
        Preparation::SaveIntent(intent) => save_intent(cx, now, &intent).await.map(|()| Done::Nothing),
        Preparation::ReadSecret(reference) => {
            let found = secrets::read(cx.scope.api.use_now()?, &reference).await;
            Ok(Done::ReadSecret(found.map_err(|error| LOAD_SECRET.failed(error))?))
        }
    }
}

/// Ends the attempt. Kinds are watched apart, so that an attachment can arrive before its volume: that is confirmed before it is
/// reported.
pub(super) async fn refuse(cx: &Context, reason: InvalidAttachment) -> Result<Done, Stop> {
    if let InvalidAttachment::VolumeMissing(volume) = &reason
        && is_there(cx, volume).await?
    {
        return Err(Stop::Behind(reason.into()));
    }
    Err(reason.into())
}

async fn protect_volume(cx: &Context, now: &Objects) -> Result<(), Stop> {
    let Some(volume) = &now.volume else { return Ok(()) };
    let Some(patch) = patch::add_finalizer(&volume.metadata, &cx.rules.finalizer, &BTreeMap::new()) else {
        return Ok(());
    };
    let api = cx.scope.api.use_now()?;
    let name = ObjectName::of(volume.as_ref());
    let written: PersistentVolume = api.patch(&name, &patch).await.map_err(|error| PROTECT.failed(error))?;
    cx.confirmed.note(&written.metadata.uid);
    cx.stores.volumes.apply_own_write(written);
    Ok(())
}

async fn save_intent(cx: &Context, now: &Objects, intent: &Intent) -> Result<(), Stop> {
    let mut annotations = BTreeMap::from([
        (names::ANNOTATION_NODE_ID.to_owned(), intent.node_id.clone()),
        (names::ANNOTATION_VOLUME_HANDLE.to_owned(), intent.volume_handle.clone()),
    ]);
    if let Some(secret) = &intent.secret {
        let reference = format!("{}/{}", secret.namespace, secret.name);
        annotations.insert(names::ANNOTATION_PUBLISH_SECRET.to_owned(), reference);
    }
    let Some(patch) = patch::add_finalizer(&now.object.metadata, &cx.rules.finalizer, &annotations) else {
        return Ok(());
    };
    let api = cx.scope.api.use_now()?;
    let name = ObjectName::cluster(&now.attachment.name);
    let written: VolumeAttachment = api.patch(&name, &patch).await.map_err(|error| SAVE_INTENT.failed(error))?;
    cx.confirmed.note(&now.attachment.uid);
    cx.stores.attachments.apply_own_write(written);
    Ok(())
}

/// Publishes the volume and returns the publish context.
pub(super) async fn publish(
    cx: &Context,
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
    let client = cx.scope.driver.use_now()?;
    // From here on the volume may be there again, whatever the driver has shown before; unless it says that it isn't.
    let was_lost = cx.lost.forget(&now.attachment.uid);
    let answer = cx.scope.term.during(client.controller_publish_volume(request)).await?.map_err(AttachError::from);
    if was_lost && answer.as_ref().is_err_and(refuses_publish) {
        cx.lost.note(&now.attachment.uid);
    }
    Ok(answer?.publish_context.into_iter().collect())
}

/// Unpublishes the volume.
pub(super) async fn unpublish(cx: &Context, unpublish: Unpublish, secret: Option<&Secret>) -> Result<(), Stop> {
    let request = ControllerUnpublishVolumeRequest {
        volume_id: unpublish.volume_id,
        node_id: unpublish.node_id,
        secrets: secret.map(Secret::texts).unwrap_or_default(),
    };
    let client = cx.scope.driver.use_now()?;
    cx.scope.term.during(client.controller_unpublish_volume(request)).await??;
    Ok(())
}

/// Records that the volume is attached, and keeps at it for a moment: giving up means to publish once more.
pub(super) async fn record_attached(
    cx: &Context,
    now: &Objects,
    context: &BTreeMap<String, String>,
) -> Result<Done, Stop> {
    for tries in 0.. {
        let error = match try_to_record(cx, now, context).await {
            Err(Stop::Failed(error)) if tries < MAX_RECORD_TRIES => error,
            ended => return ended.map(|()| Done::Recorded),
        };
        let Some(transient) = error.api().filter(|error| error.is_transient()) else { return Err(error.into()) };
        let pause = transient.retry_after().unwrap_or_else(|| RECORD_PAUSE * 2_u32.pow(tries));
        if pause > LONGEST_RECORD_PAUSE {
            return Err(error.into());
        }
        debug!(error = error.message(), "could not record the attachment yet");
        tokio::time::sleep(pause).await;
    }
    Ok(Done::Recorded)
}

/// Clears the attach error in any case: the cache may not have seen it yet (R48).
async fn try_to_record(cx: &Context, now: &Objects, context: &BTreeMap<String, String>) -> Result<(), Stop> {
    let mut metadata: serde_json::Map<String, Value> =
        context.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect();
    for gone in now.attachment.metadata.keys().filter(|key| !context.contains_key(*key)) {
        metadata.insert(gone.to_owned(), Value::Null);
    }
    let metadata = if context.is_empty() { Value::Null } else { Value::Object(metadata) };
    let status = json!({ "attached": true, "attachmentMetadata": metadata, "attachError": null });
    patch_status(cx, now, Guard::Uid, &status, RECORD_ATTACHED).await
}

/// Removes our finalizer from the attachment, and nobody else's. If it was the last one, the object is gone, and the
/// server then answers with the object's old version, which the cache rightly takes for no news.
pub(super) async fn release(cx: &Context, now: &Objects) -> Result<Done, Stop> {
    let Some(patch) = patch::remove_finalizer(&now.object.metadata, &cx.rules.finalizer) else {
        return Ok(Done::Nothing);
    };
    let api = cx.scope.api.use_now()?;
    let name = ObjectName::cluster(&now.attachment.name);
    let written: VolumeAttachment = api.patch(&name, &patch).await.map_err(|error| RELEASE.failed(error))?;
    let gone = written.metadata.deletion_timestamp.is_some() && written.metadata.finalizers().is_empty();
    cx.confirmed.forget(&now.attachment.uid);
    cx.stores.attachments.apply_own_write(written);
    Ok(Done::Released { gone })
}

/// Records that the volume is detached, on an attachment that somebody else's finalizer keeps.
pub(super) async fn record_detached(cx: &Context, now: &Objects) -> Result<Done, Stop> {
    let status = json!({ "attached": false, "attachmentMetadata": null, "detachError": null });
    patch_status(cx, now, Guard::Uid, &status, RELEASE).await.map(|()| Done::Recorded)
}

/// Records why an attempt failed. Until the API has confirmed what the cache says of the attachment, only on what was seen: a late
/// watch may not have told yet that the last leader attached it, and the error would stay beside that for good.
pub(super) async fn record_error(cx: &Context, now: &Objects, status: &Value) -> Result<(), Stop> {
    let guard = if cx.confirmed.has(&now.attachment.uid) { Guard::Uid } else { Guard::Version };
    patch_status(cx, now, guard, status, WRITE_ERROR).await
}

/// Merges `status` into the attachment's, as far as `guard` allows.
pub(super) async fn patch_status(
    cx: &Context,
    now: &Objects,
    guard: Guard,
    status: &Value,
    op: Op,
) -> Result<(), Stop> {
    let api = cx.scope.api.use_now()?;
    let patch = patch::status_changes(&now.object.metadata, guard, status);
    let name = ObjectName::cluster(&now.attachment.name);
    let written: VolumeAttachment = api.patch_status(&name, &patch).await.map_err(|error| op.failed(error))?;
    cx.stores.attachments.apply_own_write(written);
    Ok(())
}

/// Has the API confirm, once a term, that the attachment is what the cache says, before the driver is asked to change
/// anything for it. `Some`: it was read just now, so look again.
pub(super) async fn confirm(cx: &Context, now: &Objects) -> Result<Option<Done>, Stop> {
    if cx.confirmed.has(&now.attachment.uid) {
        return Ok(None);
    }
    let api = cx.scope.api.use_now()?;
    let name = ObjectName::cluster(&now.attachment.name);
    let found = api.get_opt::<VolumeAttachment>(&name).await.map_err(|error| CONFIRM.failed(error))?;
    let Some(found) = found else { return Ok(Some(Done::FoundGone)) };
    if *found.metadata.uid != *now.attachment.uid {
        // A namesake. The cache takes it in only from its own watch, so another look would see no more than this one did.
        return Err(Stop::Behind(InvalidAttachment::Replaced(now.attachment.name.clone()).into()));
    }
    cx.confirmed.note(&now.attachment.uid);
    cx.stores.attachments.apply_own_write(found);
    Ok(Some(Done::Nothing))
}

/// The same for the volume, before it is published: a late watch may show one that the last leader released. Our finalizer is
/// then only the cache's memory of it. A volume that was written during the term needs no such read: nobody has led since but us.
pub(super) async fn confirm_volume(cx: &Context, now: &Objects) -> Result<Option<Done>, Stop> {
    let Some(volume) = &now.volume else { return Ok(None) };
    let uid = &volume.metadata.uid;
    if cx.confirmed.has(uid) || cx.term_start.is_before(&volume.metadata) {
        return Ok(None);
    }
    let name = ObjectName::of(volume.as_ref());
    let api = cx.scope.api.use_now()?;
    match api.get_opt::<PersistentVolume>(&name).await.map_err(|error| CONFIRM.failed(error))? {
        Some(found) if found.metadata.uid == *uid => {
            cx.confirmed.note(uid);
            cx.stores.volumes.apply_own_write(found);
            Ok(Some(Done::Nothing))
        }
        // Or another volume has its name, and the cache is still to learn of it.
        _ => Err(InvalidAttachment::VolumeMissing(name.name().to_owned()).into()),
    }
}

/// Whether the API has the volume that the cache lacks. An API that cannot be asked settles nothing: then it is as the
/// cache says.
async fn is_there(cx: &Context, volume: &str) -> Result<bool, Stop> {
    let api = cx.scope.api.use_now()?;
    Ok(api.get::<PersistentVolume>(&ObjectName::cluster(volume)).await.is_ok())
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "perform_tests.rs"]
mod tests;

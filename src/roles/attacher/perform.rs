//! Performs one step at a time. It makes no decisions: they come from [`super::decide`]. Every write goes through the
//! fence of the term, has a precondition, and applies the server's answer to the cache, so that the next observation
//! sees it (R48).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;
use tracing::debug;

use crate::cluster::patch::{Guard, MetaChange};
use crate::cluster::{Api, Cache, CsiNode, ObjectName, PersistentVolume, VolumeAttachment, patch};
use crate::proto::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest};
use crate::roles::attacher::names;
use crate::roles::kit::freshness::{Freshness, lacks, read_again};
use crate::roles::kit::{Op, Secret, secrets};

use super::context::{Context, Objects};
use super::decide::{Done, Intent, Preparation, Publish, Skip, Unpublish};
use super::error::{
    AttachError, CONFIRM, InvalidAttachment, LOAD_SECRET, PROTECT, RECORD_ATTACHED, RELEASE, SAVE_INTENT, WRITE_ERROR,
    refuses_publish,
};

/// Why a step ended the attempt.
pub(super) type Stop = crate::roles::kit::Stop<InvalidAttachment>;

/// How often one attempt tries to record that a volume is attached before it gives up. After that, the volume is
/// published again.
const MAX_RECORD_TRIES: u32 = 4;
/// The pause before the second of these tries; it doubles.
const RECORD_PAUSE: Duration = Duration::from_millis(100);
/// If the server requests a longer pause, the attempt ends and the queue retries: a worker, and a stop of the daemon,
/// must not wait that long.
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

/// Ends the attempt. Each kind has its own watch, so an attachment can arrive before its volume and its node: what is missing is
/// looked for before that is reported.
pub(super) async fn refuse(cx: &Context, now: &Objects, reason: InvalidAttachment) -> Result<Done, Stop> {
    let (api, stores) = (cx.scope.api.use_now()?, &cx.stores);
    match &reason {
        InvalidAttachment::VolumeMissing(volume) => {
            let name = ObjectName::cluster(volume);
            Err(lacks(api, &stores.volumes, &name, reason).await)
        }
        InvalidAttachment::NodeMissing(node) => {
            let name = ObjectName::cluster(node);
            Err(lacks(api, &stores.nodes, &name, reason).await)
        }
        // The driver may have been registered since.
        InvalidAttachment::DriverNotOnNode { .. } if is_newer(api, now, &stores.nodes).await => Ok(Done::Nothing),
        _ => Err(reason.into()),
    }
}

/// Whether the API has a newer version of the attachment's node than the cache has had. If the API does not say, the cache counts.
async fn is_newer(api: &Api, now: &Objects, nodes: &Cache<CsiNode>) -> bool {
    let Some(node) = &now.node else { return false };
    matches!(read_again(api, nodes, node.as_ref()).await, Ok(Freshness::Newer))
}

async fn protect_volume(cx: &Context, now: &Objects) -> Result<(), Stop> {
    let Some(volume) = &now.volume else { return Ok(()) };
    let Some(patch) = patch::add_finalizer(&volume.metadata, &cx.rules.finalizer, &BTreeMap::new()) else {
        return Ok(());
    };
    let _turn = cx.scope.write_turn(&cx.stores.volumes, volume.as_ref()).await?;
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
        (names::ANNOTATION_RECORDED_FOR.to_owned(), now.attachment.uid.clone()),
    ]);
    let mut outdated: &[&str] = &[names::ANNOTATION_PUBLISH_SECRET];
    if let Some(secret) = &intent.secret {
        let reference = format!("{}/{}", secret.namespace, secret.name);
        annotations.insert(names::ANNOTATION_PUBLISH_SECRET.to_owned(), reference);
        outdated = &[];
    }
    let change = MetaChange {
        add_finalizers: &[&cx.rules.finalizer],
        set_annotations: &annotations,
        remove_annotations: outdated,
        ..MetaChange::default()
    };
    let Some(patch) = patch::change_meta(&now.object.metadata, &change) else { return Ok(()) };
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
    let client = cx.scope.driver.use_now()?.for_migrated(now.is_migrated());
    // From here on the volume may be published again, unless the driver's answer excludes it.
    let was_lost = cx.lost.forget(&now.attachment.uid);
    let answer = cx.scope.term.during(client.controller_publish_volume(request)).await?.map_err(AttachError::from);
    if was_lost && answer.as_ref().is_err_and(refuses_publish) {
        cx.lost.note(&now.attachment.uid);
    }
    Ok(answer?.publish_context.into_iter().collect())
}

/// Unpublishes the volume. A driver that does not publish any more may not have the call either.
pub(super) async fn unpublish(
    cx: &Context,
    now: &Objects,
    unpublish: Unpublish,
    secret: Option<&Secret>,
) -> Result<Done, Stop> {
    let request = ControllerUnpublishVolumeRequest {
        volume_id: unpublish.volume_id,
        node_id: unpublish.node_id,
        secrets: secret.map(Secret::texts).unwrap_or_default(),
    };
    let client = cx.scope.driver.use_now()?.for_migrated(now.is_migrated());
    match cx.scope.term.during(client.controller_unpublish_volume(request)).await? {
        Err(error) if error.code == Code::Unimplemented && !cx.rules.publishes => Ok(Done::Skipped(Skip::NotOffered)),
        answer => Ok(answer.map(|_| Done::Unpublished)?),
    }
}

/// Records that the volume is attached, with a few retries, because giving up means to publish again.
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

/// Always clears the attach error, because the cache may not have it yet (R48).
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

/// Removes only our finalizer from the attachment. If it was the last one, the object is gone, and the server answers
/// with the object's old version, which the cache ignores.
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

/// Records that the volume is detached, on an attachment that another controller's finalizer keeps.
pub(super) async fn record_detached(cx: &Context, now: &Objects) -> Result<Done, Stop> {
    let status = json!({ "attached": false, "attachmentMetadata": null, "detachError": null });
    patch_status(cx, now, Guard::Uid, &status, RELEASE).await.map(|()| Done::Recorded)
}

/// Records why an attempt failed. Until the API has confirmed the cached attachment, the write requires the seen
/// version: the watch may be late, and if the last leader has attached the volume, the error would stay there
/// permanently.
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

/// Confirms the cached attachment by a read, once per term, before the driver is called to change anything for it.
/// `Some`: it was read now, so observe again.
pub(super) async fn confirm(cx: &Context, now: &Objects) -> Result<Option<Done>, Stop> {
    if cx.confirmed.has(&now.attachment.uid) {
        return Ok(None);
    }
    let api = cx.scope.api.use_now()?;
    let name = ObjectName::cluster(&now.attachment.name);
    let found = api.get_opt::<VolumeAttachment>(&name).await.map_err(|error| CONFIRM.failed(error))?;
    let Some(found) = found else { return Ok(Some(Done::FoundGone)) };
    if *found.metadata.uid != *now.attachment.uid {
        // Another object of the same name. The cache adds objects only from its watch, so observing again would not
        // help.
        return Err(Stop::Behind(InvalidAttachment::Replaced(now.attachment.name.clone()).into()));
    }
    cx.confirmed.note(&now.attachment.uid);
    cx.stores.attachments.apply_own_write(found);
    Ok(Some(Done::Nothing))
}

/// The same for the volume, before it is published: a late watch may show a volume from which the last leader has
/// removed our finalizer. A volume that was written during the term needs no such read, because no other replica has
/// led since.
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
        // Or another volume has the name, and the cache does not have it yet.
        _ => Err(InvalidAttachment::VolumeMissing(name.name().to_owned()).into()),
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "perform_tests.rs"]
mod tests;

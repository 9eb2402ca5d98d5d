//! Each step's request or call. It makes no decisions: they come from [`policy`](super::policy). Every write has a precondition.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use tonic::Code;
use tracing::{debug, warn};

use crate::cluster::patch::{Guard, MetaChange, Patch};
use crate::cluster::{ObjectName, patch};
use crate::process::ErrorChain;
use crate::proto::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest};
use crate::roles::attacher::names;
use crate::roles::kit::{self, AttemptError, Confirmed, Io, Op, Part, Secret, Written};

use super::attachment::Direction;
use super::context::{Context, Objects};
use super::error::{InvalidAttachment, LOAD_SECRET, PROTECT, RECORD_ATTACHED, RELEASE, SAVE_INTENT, WRITE_ERROR};
use super::failure::FailureRecord;
use super::policy::{Intent, Publish, Step, Unpublish};
use super::progress::{Answer, Progress, Skip};

/// Why a step ended the attempt.
pub(super) type Stop = kit::Stop<InvalidAttachment>;

/// What a step may do.
pub(super) type Verbs<'a> = Io<'a, String>;

/// What a step works with.
pub(super) type Act<'a, 'io> = kit::Act<'a, 'io, Context, Objects, Progress, String>;

impl Act<'_, '_> {
    /// Does one step.
    pub(super) async fn perform(&self, step: Step) -> Result<Answer, Stop> {
        match step {
            Step::List => self.io.wait_listed(&self.cx.stores.attachments).await.map(|()| Answer::Nothing),
            Step::Confirm => self.confirm().await,
            Step::ConfirmVolume => self.confirm_volume().await,
            Step::ProtectVolume => self.protect_volume().await,
            Step::SaveIntent(intent) => self.save_intent(&intent).await,
            Step::ReadSecret(reference) => {
                let secret = self.io.secret(&reference).await?;
                Ok(Answer::Secret(secret.map_err(|failure| LOAD_SECRET.failed(failure))?))
            }
            Step::Publish(wanted) => self.publish(*wanted).await,
            Step::Unpublish(wanted) => self.unpublish(*wanted).await,
            Step::SkipUnpublish(skip) => Ok(Answer::Skipped(skip)),
            Step::RecordAttached(context) => {
                self.write_status(Guard::Uid, &self.attached(&context), RECORD_ATTACHED).await
            }
            Step::RecordDetached => {
                let status = json!({ "attached": false, "attachmentMetadata": null, "detachError": null });
                self.write_status(Guard::Uid, &status, RELEASE).await
            }
            Step::Release => self.release().await,
            Step::RecordFailure(record) => self.record_failure(&record).await,
            Step::Refuse(reason) => Err(self.refuse(reason).await),
        }
    }

    /// Reads the attachment, once per term, before the driver is called to change anything for it.
    async fn confirm(&self) -> Result<Answer, Stop> {
        let read = self.io.confirm(&self.cx.stores.attachments, self.seen.object.as_ref()).await?;
        let is_there = read.is_there("volumeattachment", &self.seen.attachment.name)?;
        Ok(if is_there { Answer::Nothing } else { Answer::NotFound })
    }

    /// Reads the volume before it is published.
    async fn confirm_volume(&self) -> Result<Answer, Stop> {
        let Some(volume) = &self.seen.volume else { return Ok(Answer::Nothing) };
        match self.io.confirm(&self.cx.stores.volumes, volume.as_ref()).await? {
            Confirmed::Yes => Ok(Answer::Nothing),
            // Or another volume has the name, and the cache does not have it yet.
            Confirmed::NotFound | Confirmed::Replaced => {
                Err(InvalidAttachment::VolumeMissing(volume.metadata.name.to_string()).into())
            }
        }
    }

    async fn protect_volume(&self) -> Result<Answer, Stop> {
        let Some(volume) = &self.seen.volume else { return Ok(Answer::Nothing) };
        let Some(patch) = patch::add_finalizer(&volume.metadata, &self.seen.rules.finalizer, &BTreeMap::new()) else {
            return Ok(Answer::Nothing);
        };
        match self.io.write(&self.cx.stores.volumes, volume.as_ref(), (Part::Object, &patch), PROTECT).await? {
            Written::NotFound(error) => Err(error.into()),
            Written::Kept | Written::Ended => Ok(Answer::Nothing),
        }
    }

    async fn save_intent(&self, intent: &Intent) -> Result<Answer, Stop> {
        let mut annotations = BTreeMap::from([
            (names::ANNOTATION_NODE_ID.to_owned(), intent.node_id.clone()),
            (names::ANNOTATION_VOLUME_HANDLE.to_owned(), intent.volume_handle.clone()),
            (names::ANNOTATION_RECORDED_FOR.to_owned(), self.seen.attachment.uid.clone()),
        ]);
        let mut outdated: &[&str] = &[names::ANNOTATION_PUBLISH_SECRET];
        if let Some(secret) = &intent.secret {
            let reference = format!("{}/{}", secret.namespace, secret.name);
            annotations.insert(names::ANNOTATION_PUBLISH_SECRET.to_owned(), reference);
            outdated = &[];
        }
        let change = MetaChange {
            add_finalizers: &[&self.seen.rules.finalizer],
            set_annotations: &annotations,
            remove_annotations: outdated,
            ..MetaChange::default()
        };
        let Some(patch) = patch::change_meta(&self.seen.object.metadata, &change) else { return Ok(Answer::Nothing) };
        match self.write(Part::Object, &patch, SAVE_INTENT).await? {
            Written::Kept => Ok(Answer::Nothing),
            Written::Ended | Written::NotFound(_) => Ok(Answer::NotFound),
        }
    }

    async fn publish(&self, wanted: Publish) -> Result<Answer, Stop> {
        let request = ControllerPublishVolumeRequest {
            volume_id: wanted.volume_id,
            node_id: wanted.node_id,
            volume_capability: Some(wanted.capability),
            readonly: wanted.readonly,
            secrets: self.secrets(),
            volume_context: wanted.volume_context.into_iter().collect(),
        };
        let is_migrated = self.seen.is_migrated();
        let call =
            self.io.call(async move |driver| driver.for_migrated(is_migrated).controller_publish_volume(request).await);
        Ok(Answer::Published(call.await?.publish_context.into_iter().collect()))
    }

    /// A driver that does not publish any more may not have the call either.
    async fn unpublish(&self, wanted: Unpublish) -> Result<Answer, Stop> {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: wanted.volume_id,
            node_id: wanted.node_id,
            secrets: self.secrets(),
        };
        let is_migrated = self.seen.is_migrated();
        let call = self
            .io
            .call(async move |driver| driver.for_migrated(is_migrated).controller_unpublish_volume(request).await);
        match call.await {
            Err(Stop::Failed(AttemptError::Driver(error)))
                if error.code == Code::Unimplemented && !self.seen.rules.publishes =>
            {
                Ok(Answer::Skipped(Skip::NotOffered))
            }
            answer => answer.map(|_| Answer::Unpublished),
        }
    }

    /// Always clears the attach error, because the cache may not have it yet (R48).
    fn attached(&self, context: &BTreeMap<String, String>) -> Value {
        let mut metadata: serde_json::Map<String, Value> =
            context.iter().map(|(key, value)| (key.clone(), Value::String(value.clone()))).collect();
        for gone in self.seen.attachment.metadata.keys().filter(|key| !context.contains_key(*key)) {
            metadata.insert(gone.to_owned(), Value::Null);
        }
        let metadata = if context.is_empty() { Value::Null } else { Value::Object(metadata) };
        json!({ "attached": true, "attachmentMetadata": metadata, "attachError": null })
    }

    /// Removes only our finalizer from the attachment.
    async fn release(&self) -> Result<Answer, Stop> {
        let Some(patch) = patch::remove_finalizer(&self.seen.object.metadata, &self.seen.rules.finalizer) else {
            return Ok(Answer::Nothing);
        };
        match self.write(Part::Object, &patch, RELEASE).await? {
            Written::Kept => Ok(Answer::Released { gone: false }),
            Written::Ended => Ok(Answer::Released { gone: true }),
            Written::NotFound(_) => Ok(Answer::NotFound),
        }
    }

    /// Records why the attempt has failed. A failure of this write is only logged: the attempt's own error drives the back-off (spec 2.7).
    async fn record_failure(&self, record: &FailureRecord) -> Result<Answer, Stop> {
        let time = self.seen.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let FailureRecord { message, code, admits_detached, guard } = record;
        let mut status = match self.seen.attachment.direction {
            Direction::Attach => json!({ "attachError": { "message": message, "time": time, "errorCode": code } }),
            Direction::Detach => json!({ "detachError": { "message": message, "time": time } }),
        };
        if *admits_detached && let Value::Object(fields) = &mut status {
            fields.insert("attached".to_owned(), Value::Bool(false));
        }
        match self.write_status(*guard, &status, WRITE_ERROR).await {
            Err(Stop::TermOver) => return Err(Stop::TermOver),
            Err(Stop::LookAgain) => {
                debug!(
                    "the volumeattachment has changed: what failed is looked at again, and not written to its status"
                );
            }
            Err(Stop::Failed(error)) if error.is_of_outage() => {
                debug!(error = %ErrorChain(&error), "could not write the error to the volumeattachment's status");
            }
            Err(Stop::Failed(error)) => {
                warn!(error = %ErrorChain(&error), "could not write the error to the volumeattachment's status");
            }
            _ => {}
        }
        Ok(Answer::FailureRecorded)
    }

    /// Merges `status` into the attachment's, as far as `guard` allows.
    async fn write_status(&self, guard: Guard, status: &Value, op: Op) -> Result<Answer, Stop> {
        let patch = patch::status_changes(&self.seen.object.metadata, guard, status);
        match self.write(Part::Status, &patch, op).await? {
            Written::Kept => Ok(Answer::Recorded),
            Written::Ended | Written::NotFound(_) => Ok(Answer::NotFound),
        }
    }

    /// The end of the attempt. Each kind has its own watch, so an attachment can arrive before its volume and its node: what is missing is
    /// looked for before that is reported.
    async fn refuse(&self, reason: InvalidAttachment) -> Stop {
        match (&reason, &self.seen.node) {
            (InvalidAttachment::VolumeMissing(volume), _) => {
                let name = ObjectName::cluster(volume);
                self.io.lacks(&self.cx.stores.volumes, &name, reason).await
            }
            (InvalidAttachment::NodeMissing(node), _) => {
                let name = ObjectName::cluster(node);
                self.io.lacks(&self.cx.stores.nodes, &name, reason).await
            }
            // The driver may have been registered since.
            (InvalidAttachment::DriverNotOnNode { .. }, Some(node)) => {
                self.io.unless_newer(&self.cx.stores.nodes, node.as_ref(), reason).await
            }
            _ => reason.into(),
        }
    }

    fn secrets(&self) -> HashMap<String, String> {
        self.progress.secret.as_ref().map(Secret::texts).unwrap_or_default()
    }

    /// Writes to the attachment.
    async fn write(&self, part: Part, patch: &Patch, op: Op) -> Result<Written, Stop> {
        self.io.write(&self.cx.stores.attachments, self.seen.object.as_ref(), (part, patch), op).await
    }
}

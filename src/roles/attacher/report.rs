//! Reports failures and successes: the attachment's status, Kubernetes Events, metrics, one log line.

use std::time::Duration;

use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::cluster::{ApiError, VolumeError};
use crate::cluster::{EventKind, EventTarget, patch};
use crate::process::ErrorChain;
use crate::queue::{Outcome, Ticket};
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{AttemptError, EventsMode, Stop};

use super::attachment::{Attachment, Direction};
use super::context::{Context, Objects};
use super::decide::Skip;
use super::error::{AttachError, InvalidAttachment, RECORD_ATTACHED, error_code, lacks_node, refuses_publish};
use super::perform;

impl Context {
    /// Reports a failed attempt in the status, in an Event, in the metrics and in the log, and decides on the retry.
    pub(super) async fn report_failure(
        &self,
        ticket: &Ticket<String>,
        objects: &Objects,
        error: &AttachError,
    ) -> Outcome {
        let (attachment, message) = (&objects.attachment, error.message());
        let direction = attachment.direction;
        log_failure!(
            self.failures,
            self.scope.clock.now(),
            error,
            { node = attachment.node, operation = direction.label(), attempt = ticket.attempt() + 1, },
            "attempt failed"
        );
        ticket.note(message.clone());
        // The watch shows that it is gone: nobody reads a report, and nothing would remove it from the metrics again.
        let is_gone = || self.find(&attachment.name).is_none_or(|now| now.attachment.uid != attachment.uid);
        if is_gone() {
            return Outcome::Forget;
        }
        self.reporter.failed(&attachment.name, direction, error.label());
        // The watch may have removed it just before it was counted.
        if is_gone() {
            self.reporter.forget(&attachment.name);
            return Outcome::Forget;
        }
        let note = format!("cannot {} node {}: {message}", direction.preposition(), attachment.node);
        self.publish_events(objects, EventKind::Warning, reason(direction, false), &note);
        // The driver has listed the volume twice as not published, and the volume will not be published: the driver has
        // refused, or there is no node (spec 7). With weaker evidence the volume may still be attached, and the
        // attach/detach controller would attach it to another node: two writers.
        let will_not_be = refuses_publish(error) || lacks_node(error);
        let confirmed_gone = will_not_be && self.lost.has(&attachment.uid);
        self.write_error(objects, error, &message, confirmed_gone).await;
        retry(error, self.section.retry.max)
    }

    /// Reports that an attempt has settled its attachment.
    pub(super) fn report_success(&self, ticket: &Ticket<String>, first: &Objects, did_something: bool) {
        let attachment = &first.attachment;
        self.reporter.forget(&attachment.name);
        if !did_something {
            return;
        }
        self.reporter.took(attachment.direction, ticket.age());
        if recorded_error(attachment).is_some() || ticket.attempt() > 0 {
            let note = match attachment.direction {
                Direction::Attach => format!("attached to node {} after failures", attachment.node),
                Direction::Detach => format!("detached from node {} after failures", attachment.node),
            };
            self.publish_events(first, EventKind::Normal, reason(attachment.direction, true), &note);
        }
    }

    /// Writes the error where kubelet, the attach/detach controller and people look for it. A failure of the write itself
    /// is only logged: the attempt's own error drives the back-off (spec 2.7).
    async fn write_error(&self, objects: &Objects, error: &AttachError, message: &str, confirmed_gone: bool) {
        // A published volume that will soon be recorded is no error of the attachment, but a permanent refusal by the
        // API is.
        if error.is_of(RECORD_ATTACHED) && error.api().is_some_and(ApiError::is_transient) {
            return;
        }
        // The attempt's own writes may have changed the object since.
        let Some(now) = self.find(&objects.attachment.name) else { return };
        if now.attachment.uid != objects.attachment.uid || now.attachment.direction != objects.attachment.direction {
            return;
        }
        let message = patch::truncate_message(message, patch::MESSAGE_LIMIT);
        // Only an attach error has a code in the API.
        let has_code = self.section.error_codes && now.attachment.direction == Direction::Attach;
        let code = error_code(error).filter(|_| has_code);
        let must_admit = confirmed_gone && now.attachment.attached;
        if !must_admit && says_the_same(recorded_error(&now.attachment), &message, code) {
            return;
        }
        let time = self.scope.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut status = match now.attachment.direction {
            Direction::Attach => {
                json!({ "attachError": { "message": message, "time": time, "errorCode": code } })
            }
            Direction::Detach => json!({ "detachError": { "message": message, "time": time } }),
        };
        if must_admit && let Value::Object(fields) = &mut status {
            // The status must not say any longer that it is attached (spec 7, issues 215 and 697).
            fields.insert("attached".to_owned(), Value::Bool(false));
        }
        match perform::record_error(self, &now, &status).await {
            Err(Stop::Failed(error)) if error.api().is_some_and(|error| error.kind().is_stale()) => {
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
    }

    /// A detach goes on without the driver.
    pub(super) fn report_skip(&self, objects: &Objects, skip: Skip) {
        let node = &objects.attachment.node;
        match skip {
            Skip::Copied => {
                let Some(copied) = &objects.attachment.copied else { return };
                let unknown = || "unknown".to_owned();
                let (of, handle) = (&copied.of, copied.recorded.volume_handle.clone().unwrap_or_else(unknown));
                let node_id = copied.recorded.node_id.clone().unwrap_or_else(unknown);
                let text = format!(
                    "deleted without a call to the driver: this volumeattachment is a copy of the one with the uid {of}, and the \
                     cluster does not know its volume or its node. If volume {handle} is attached to node {node_id}, and nobody \
                     needs it there, in this cluster or in the one that the copy is from, detach it at the storage"
                );
                warn!(
                    node,
                    volume = handle,
                    node_id,
                    copy_of = of,
                    "releasing a copied volumeattachment without the driver"
                );
                self.publish_events(objects, EventKind::Warning, "VolumeDetachSkipped", &text);
            }
            Skip::Shared => info!(
                node,
                "releasing the volumeattachment without the driver: another volumeattachment needs the volume on the same \
                 machine, and its deletion detaches the volume"
            ),
            Skip::NotOffered => info!(
                node,
                "releasing the volumeattachment without the driver: the driver does not attach and detach volumes any more"
            ),
        }
    }

    /// Writes an Event on the attachment, and one on the claim, where users look.
    fn publish_events(&self, objects: &Objects, kind: EventKind, reason: &'static str, note: &str) {
        if self.section.events == EventsMode::None {
            return;
        }
        let attachment = EventTarget::of(objects.object.as_ref());
        self.scope.event(&attachment, kind, reason, note);
        let claim = objects.volume.as_ref().and_then(|volume| volume.spec.claim_ref.as_ref());
        if let Some(claim) = claim {
            let target = EventTarget {
                api_version: "v1".into(),
                kind: "PersistentVolumeClaim".into(),
                namespace: Some(claim.namespace.clone()),
                name: claim.name.clone(),
                uid: claim.uid.clone().unwrap_or_default(),
            };
            self.scope.event(&target, kind, reason, note);
        }
    }
}

/// When to try again.
fn retry(error: &AttachError, longest: Duration) -> Outcome {
    match error {
        // Only a change of the volume helps, and that wakes the key (k/k 141541).
        AttemptError::Reason(InvalidAttachment::VolumeDeleting(_)) => Outcome::RetryAfter(longest),
        _ => error.outcome(),
    }
}

fn reason(direction: Direction, recovered: bool) -> &'static str {
    match (direction, recovered) {
        (Direction::Attach, false) => "VolumeAttachFailed",
        (Direction::Detach, false) => "VolumeDetachFailed",
        (Direction::Attach, true) => "VolumeAttachRecovered",
        (Direction::Detach, true) => "VolumeDetachRecovered",
    }
}

fn recorded_error(attachment: &Attachment) -> Option<&VolumeError> {
    match attachment.direction {
        Direction::Attach => attachment.attach_error.as_deref(),
        Direction::Detach => attachment.detach_error.as_deref(),
    }
}

/// Whether the status already has this error: a new time alone is not worth a request.
fn says_the_same(recorded: Option<&VolumeError>, message: &str, code: Option<i32>) -> bool {
    recorded.is_some_and(|e| e.message.as_deref() == Some(message) && e.error_code == code)
}

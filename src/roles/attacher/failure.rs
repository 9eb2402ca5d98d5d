//! What the status of an attachment says about a failed attempt. Pure.

use crate::cluster::patch::{Guard, MESSAGE_LIMIT, truncate_message};
use crate::cluster::{ApiError, VolumeError};
use crate::roles::kit::EventsMode;

use super::attachment::{Attachment, Direction};
use super::error::{AttachError, RECORD_ATTACHED, error_code, lacks_node, refuses_publish};

/// Why an attempt has failed, as far as the status of the attachment is concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failure {
    /// The error with its causes.
    pub message: String,
    /// The driver's gRPC code, if the driver answered.
    pub code: Option<i32>,
    /// The driver has refused for good, or there is no node.
    pub will_not_be_published: bool,
    /// The status says so, or something else has changed it, or it is none of the attachment: the volume is published, and that will
    /// soon be recorded.
    pub is_recorded: bool,
}

impl Failure {
    /// The part of an error that concerns the status.
    pub fn of(error: &AttachError) -> Self {
        // A permanent refusal by the API is an error of the attachment.
        let will_be_attached = error.is_of(RECORD_ATTACHED) && error.api().is_some_and(ApiError::is_transient);
        Self {
            message: error.message(),
            code: error_code(error),
            will_not_be_published: refuses_publish(error) || lacks_node(error),
            is_recorded: will_be_attached,
        }
    }
}

/// Why an attempt has failed, as the status says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureRecord {
    /// The text.
    pub message: String,
    /// The driver's gRPC code. Only an attach error has one in the API.
    pub code: Option<i32>,
    /// The status must not say any longer that the volume is attached (spec 7, issues 215 and 697).
    pub admits_detached: bool,
    /// Which version of the attachment may be written to.
    pub guard: Guard,
}

/// How failures are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TellingRules {
    /// Whether an attach error has the driver's code.
    pub error_codes: bool,
    /// Which Events are written.
    pub events: EventsMode,
}

/// What is known besides the attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// An attach error has the driver's code.
    pub has_codes: bool,
    /// The API has shown the attachment during the term.
    pub is_confirmed: bool,
    /// The driver has listed the volume twice without the node.
    pub is_lost: bool,
}

/// What the status should say about a failure, where kubelet, the attach/detach controller and people look for it; `None` if it says so
/// already.
pub fn failure_record(failure: &Failure, attachment: &Attachment, known: Known) -> Option<FailureRecord> {
    if failure.is_recorded {
        return None;
    }
    let message = truncate_message(&failure.message, MESSAGE_LIMIT).into_owned();
    let has_code = known.has_codes && attachment.direction == Direction::Attach;
    let code = failure.code.filter(|_| has_code);
    // The driver has listed the volume twice as not published, and the volume will not be published: the driver has
    // refused, or there is no node (spec 7). With weaker evidence the volume may still be attached, and the
    // attach/detach controller would attach it to another node: two writers.
    let admits_detached = failure.will_not_be_published && known.is_lost && attachment.attached;
    if !admits_detached && says_the_same(recorded_error(attachment), &message, code) {
        return None;
    }
    // Until the API has confirmed the cached attachment, the write requires the seen version: the watch may be late, and if the last
    // leader has attached the volume, the error would stay there permanently.
    let guard = if known.is_confirmed { Guard::Uid } else { Guard::Version };
    Some(FailureRecord { message, code, admits_detached, guard })
}

/// The error that the status has for the wanted operation.
pub fn recorded_error(attachment: &Attachment) -> Option<&VolumeError> {
    match attachment.direction {
        Direction::Attach => attachment.attach_error.as_deref(),
        Direction::Detach => attachment.detach_error.as_deref(),
    }
}

/// Whether the status already has this error: a new time alone is not worth a request.
fn says_the_same(recorded: Option<&VolumeError>, message: &str, code: Option<i32>) -> bool {
    recorded.is_some_and(|e| e.message.as_deref() == Some(message) && e.error_code == code)
}

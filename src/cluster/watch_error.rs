//! What the errors of lists and watches mean.

use kube::Resource as _;
use kube::core::Status;

use super::error::ApiErrorKind;
use super::objects::Cached;
use super::route::NoAnswer;
use crate::process::error_chain;

/// The verbs, as RBAC spells them.
pub(super) const LIST: &str = "list";
pub(super) const WATCH: &str = "watch";

/// How a kube-apiserver's 429 begins if it cannot fill its own cache of a kind: a moment after it has got the kind, or for ever, where
/// a webhook that converts stored objects is gone (kube-apiserver 1.36 says why behind it).
const UNFILLED: &str = "storage is (re)initializing";

/// A list or a watch that failed, as the client tells it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// A page of a list.
    #[error("cannot list")]
    List(#[source] kube::Error),
    /// A watch did not begin.
    #[error("cannot watch")]
    WatchStart(#[source] kube::Error),
    /// A watch broke, or showed what cannot be read.
    #[error("the watch broke")]
    Watch(#[source] kube::Error),
    /// The server ended a watch, and says why.
    #[error("the watch was ended: {}", .0.message)]
    Ended(Box<Status>),
    /// The server sent a list or an object without a version.
    #[error("the server sent an object without a version")]
    NoVersion,
}

/// A list or a watch that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    /// What failed, as RBAC spells it.
    pub(super) verb: &'static str,
    /// The class, as for any other request.
    pub(super) class: ApiErrorKind,
    /// The server's answer to a list or to the beginning of a watch.
    pub(super) code: Option<u16>,
    /// A server that starts, or has just got the kind, answers so, and no longer does a moment later.
    pub(super) is_brief: bool,
    /// The failure as text.
    pub(super) text: String,
}

impl Failure {
    /// What an error means.
    pub(super) fn of(error: &ReadError) -> Self {
        let (verb, class) = classified(error);
        let is_brief = matches!(class, ApiErrorKind::TooManyRequests | ApiErrorKind::Gone);
        Self { verb, class, code: code(error), is_brief, text: told(error) }
    }

    /// A list stopped half-way.
    pub(super) fn silence(seconds: u64) -> Self {
        let text = format!("a list stopped half-way: nothing more for {seconds}s");
        Self { verb: LIST, class: ApiErrorKind::Timeout, code: None, is_brief: false, text }
    }

    /// Whether the server has forgotten the version that the watch goes on from.
    pub(super) fn is_expired(&self) -> bool {
        self.verb == WATCH && self.class == ApiErrorKind::Gone
    }

    /// Whether the server does not have the kind in the version that was asked for.
    pub(super) fn is_unserved(&self) -> bool {
        self.code == Some(404)
    }

    /// Whether the right to list or watch is missing.
    pub(super) fn is_forbidden(&self) -> bool {
        self.code == Some(403)
    }

    /// Whether an optional kind counts as absent: the cluster does not know it, or we never had the right to read it. If we have seen
    /// objects and then lose the right, the objects still exist.
    pub(super) fn is_absence(&self, seen: bool) -> bool {
        self.is_unserved() || (self.is_forbidden() && !seen)
    }

    /// Whether the server has answered that it cannot show the objects, or has shown what cannot be read: not merely that it is busy,
    /// out of reach, or asked by somebody whom it does not know. Another version of the kind may be readable, and what needs no such
    /// objects need not wait.
    pub(super) fn is_of_kind(&self) -> bool {
        use ApiErrorKind as K;
        let is_answer = matches!(self.class, K::NotFound | K::Forbidden | K::ServerError | K::Invalid | K::Unexpected);
        is_answer || (self.class == K::TooManyRequests && self.text.contains(UNFILLED))
    }
}

/// The right that the watch of a kind needs.
pub(super) fn right<K: Cached>() -> String {
    format!("list and watch on {} in apiGroup {:?}", K::Kind::plural(&()), K::Kind::group(&()))
}

fn code(error: &ReadError) -> Option<u16> {
    match error {
        ReadError::List(kube::Error::Api(status)) | ReadError::WatchStart(kube::Error::Api(status)) => {
            Some(status.code)
        }
        _ => None,
    }
}

fn classified(error: &ReadError) -> (&'static str, ApiErrorKind) {
    let (verb, cause) = match error {
        ReadError::List(cause) => (LIST, cause),
        ReadError::WatchStart(cause) | ReadError::Watch(cause) => (WATCH, cause),
        ReadError::Ended(status) => return (WATCH, ApiErrorKind::of_status(status.code, Some(status), false)),
        ReadError::NoVersion => return (LIST, ApiErrorKind::Unexpected),
    };
    let class = match cause {
        kube::Error::Api(status) => ApiErrorKind::of_status(status.code, Some(status), false),
        kube::Error::Service(cause) if cause.is::<NoAnswer>() => ApiErrorKind::Timeout,
        kube::Error::Auth(_) => ApiErrorKind::Unauthorized,
        kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => ApiErrorKind::Unexpected,
        _ => ApiErrorKind::Connection,
    };
    (verb, class)
}

/// The error as text. kube's errors repeat their sources; here each source appears once.
fn told(error: &ReadError) -> String {
    let cause = match error {
        ReadError::Ended(_) | ReadError::NoVersion => return error.to_string(),
        ReadError::List(cause) | ReadError::WatchStart(cause) | ReadError::Watch(cause) => cause,
    };
    let cause = match cause {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        kube::Error::Service(cause) => error_chain(cause.as_ref()),
        kube::Error::HyperError(cause) => error_chain(cause),
        other => other.to_string(),
    };
    format!("{error}: {cause}")
}

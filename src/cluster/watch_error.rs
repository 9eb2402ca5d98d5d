//! What the errors of kube's watcher mean.

use kube::Resource as _;
use kube::runtime::watcher;

use super::error::ApiErrorKind;
use super::objects::Cached;
use super::route::NoAnswer;
use crate::process::error_chain;

/// The verbs, as RBAC spells them.
pub(super) const LIST: &str = "list";
const WATCH: &str = "watch";

/// Whether an optional kind counts as absent: the cluster does not know it, or we never had the right to read it. If we
/// have seen objects and then lose the right, the objects still exist.
pub(super) fn is_absent(error: &watcher::Error, seen: bool) -> bool {
    code(error) == Some(404) || (is_forbidden(error) && !seen)
}

/// Whether the right to list or watch is missing.
pub(super) fn is_forbidden(error: &watcher::Error) -> bool {
    code(error) == Some(403)
}

/// The right that the watch of a kind needs.
pub(super) fn right<K: Cached>() -> String {
    format!("list and watch on {} in apiGroup {:?}", K::Kind::plural(&()), K::Kind::group(&()))
}

/// The server's answer to a list or to the beginning of a watch.
pub(super) fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// The verb and the class of the failure, as for any other request.
pub(super) fn classified(error: &watcher::Error) -> (&'static str, ApiErrorKind) {
    let (verb, cause) = match error {
        watcher::Error::InitialListFailed(cause) => (LIST, cause),
        watcher::Error::WatchStartFailed(cause) | watcher::Error::WatchFailed(cause) => (WATCH, cause),
        watcher::Error::WatchError(status) => {
            return (WATCH, ApiErrorKind::of_status(status.code, Some(status), false));
        }
        watcher::Error::NoResourceVersion => return (LIST, ApiErrorKind::Unexpected),
    };
    let class = match cause {
        kube::Error::Api(status) => ApiErrorKind::of_status(status.code, Some(status), false),
        kube::Error::Service(cause) if cause.is::<NoAnswer>() => ApiErrorKind::Timeout,
        kube::Error::Auth(_) => ApiErrorKind::Unauthorized,
        kube::Error::SerdeError(_) => ApiErrorKind::Unexpected,
        _ => ApiErrorKind::Connection,
    };
    (verb, class)
}

/// The error as text. kube's errors repeat their sources; here each source appears once.
pub(super) fn told(error: &watcher::Error) -> String {
    let (what, cause) = match error {
        watcher::Error::InitialListFailed(cause) => ("cannot list", cause),
        watcher::Error::WatchStartFailed(cause) => ("cannot watch", cause),
        watcher::Error::WatchFailed(cause) => ("the watch broke", cause),
        watcher::Error::WatchError(status) => return format!("the watch was ended: {}", status.message),
        watcher::Error::NoResourceVersion => return "the server sent an object without a version".to_owned(),
    };
    let cause = match cause {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        kube::Error::Service(cause) => error_chain(cause.as_ref()),
        kube::Error::HyperError(cause) => error_chain(cause),
        other => other.to_string(),
    };
    format!("{what}: {cause}")
}

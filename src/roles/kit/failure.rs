//! Why an attempt at a key failed, and when the queue tries again.

use std::error::Error;
use std::time::Duration;

use thiserror::Error;

use crate::cluster::{ApiError, ApiErrorKind};
use crate::csi::RpcError;
use crate::election::TermOver;
use crate::journal::JournalError;
use crate::process::error_chain;
use crate::queue::Outcome;

use super::report::gist;
use super::secrets::SecretFailure;

/// The longest wait for an object that no cache watches, such as a Secret. Nothing wakes the key when a user creates
/// the object, and the user waits for a reaction.
pub const UNWATCHED: Duration = Duration::from_secs(30);

/// One kind of request that a role makes, by the text that says what failed. Each role keeps its operations as constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op(pub &'static str);

impl Op {
    /// Wraps the API's error: `api.patch(..).await.map_err(|error| PROTECT.failed(error))`.
    pub fn failed(self, source: impl Into<OpFailure>) -> OpError {
        OpError { op: self, source: source.into() }
    }
}

/// A request that failed, and which one it was.
#[derive(Debug, Clone, Error)]
#[error("{}", .op.0)]
pub struct OpError {
    /// The operation.
    pub op: Op,
    /// Why it failed.
    #[source]
    pub source: OpFailure,
}

/// Why a request failed.
#[derive(Debug, Clone, Error)]
pub enum OpFailure {
    /// The API refused it, or did not answer.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The secret cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretFailure),
    /// The driver refused it, or did not answer.
    #[error(transparent)]
    Driver(#[from] RpcError),
    /// The journal did not record the request.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl OpError {
    /// The API's error, if the API was asked.
    pub fn api(&self) -> Option<&ApiError> {
        match &self.source {
            OpFailure::Api(error) | OpFailure::Secret(SecretFailure::Api(error)) => Some(error),
            OpFailure::Journal(error) => error.api(),
            OpFailure::Secret(SecretFailure::NotText(_)) | OpFailure::Driver(_) => None,
        }
    }

    /// The driver's error, if the driver was asked.
    pub fn driver(&self) -> Option<&RpcError> {
        if let OpFailure::Driver(error) = &self.source { Some(error) } else { None }
    }

    /// Whether the operation needs a Secret that is missing, forbidden or not text. Only people can change that.
    pub fn is_of_missing_secret(&self) -> bool {
        matches!(&self.source, OpFailure::Secret(failure) if failure.is_withheld())
    }

    fn label(&self) -> &'static str {
        match &self.source {
            OpFailure::Api(error) | OpFailure::Secret(SecretFailure::Api(error)) => error.label(),
            OpFailure::Secret(SecretFailure::NotText(_)) => "SecretNotText",
            OpFailure::Driver(error) => error.label(),
            OpFailure::Journal(error) => error.label(),
        }
    }
}

/// A reason of the role's own: the object is invalid, or the driver's answer cannot be used.
pub trait Reason: Error + Send + Sync + 'static {
    /// One word for metrics and Events.
    fn label(&self) -> &'static str;

    /// The driver's error behind it, if there is one.
    fn driver(&self) -> Option<&RpcError> {
        None
    }

    /// A shorter longest wait before the next attempt than the configured one.
    fn retry_cap(&self) -> Option<Duration> {
        self.driver().and_then(RpcError::retry_cap)
    }

    /// The text that distinguishes a new failure from a repeated one. It has no parts that change at each attempt, such
    /// as the handle of a new volume.
    fn gist(&self) -> String {
        gist(&self.to_string())
    }
}

/// For handlers that only make requests: they have no reason of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoReason {}

impl Reason for NoReason {
    fn label(&self) -> &'static str {
        match *self {}
    }
}

/// Why an attempt failed. `R` is the role's own reason.
#[derive(Debug, Clone, Error)]
pub enum AttemptError<R: Reason> {
    /// For a reason of the role's own.
    #[error(transparent)]
    Reason(R),
    /// The driver refused the call, or did not answer it.
    #[error(transparent)]
    Driver(RpcError),
    /// A request failed.
    #[error(transparent)]
    Op(OpError),
    /// The API has an object (kind and name) that the cache lacks.
    #[error("the watch has not shown {0} \"{1}\" yet, which the API has")]
    Unseen(&'static str, String),
    /// The API has another object of this kind and name than the cache.
    #[error("the API has another {0} under the name \"{1}\" than the watch has shown so far")]
    Replaced(&'static str, String),
    /// The API accepts each write, but its answers do not show the changes.
    #[error("gave up after {0} steps: the API's answers do not show what was written to it")]
    Endless(u32),
}

impl<R: Reason> AttemptError<R> {
    /// The API's error, if the API was asked.
    pub fn api(&self) -> Option<&ApiError> {
        if let Self::Op(error) = self { error.api() } else { None }
    }

    /// The driver's error, if the driver was asked.
    pub fn driver(&self) -> Option<&RpcError> {
        match self {
            Self::Reason(reason) => reason.driver(),
            Self::Driver(error) => Some(error),
            Self::Op(error) => error.driver(),
            Self::Unseen(..) | Self::Replaced(..) | Self::Endless(_) => None,
        }
    }

    /// Whether this operation failed.
    pub fn is_of(&self, op: Op) -> bool {
        matches!(self, Self::Op(error) if error.op == op)
    }

    /// Whether a write failed because the view was old: an object has changed, or is gone. The kit reads again and
    /// decides again.
    pub fn is_stale(&self) -> bool {
        let is_stale = |kind: ApiErrorKind| kind.is_stale() || kind == ApiErrorKind::NotFound;
        let Self::Op(OpError { source: OpFailure::Api(error), .. }) = self else { return false };
        is_stale(error.kind())
    }

    /// Whether this also happens in a healthy cluster, and needs no line in the log: an object, or the secret, has changed or is gone.
    pub fn is_expected(&self) -> bool {
        self.api().is_some_and(|error| error.kind().is_stale() || error.kind() == ApiErrorKind::NotFound)
    }

    /// Whether it failed because the API did not answer at all: the log has a line about the outage already.
    pub fn is_of_outage(&self) -> bool {
        self.api().is_some_and(ApiError::is_of_outage)
    }

    /// Whether the API has answered a write with 404. This does not prove that the object is gone: a read must confirm
    /// it.
    pub fn says_not_found(&self) -> bool {
        self.api().is_some_and(|error| error.kind() == ApiErrorKind::NotFound)
    }

    /// One word for metrics and Events.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Reason(reason) => reason.label(),
            Self::Driver(error) => error.label(),
            Self::Op(error) => error.label(),
            Self::Unseen(..) => "WatchLate",
            Self::Replaced(..) => "Replaced",
            Self::Endless(_) => "Endless",
        }
    }

    /// The error with its causes: the text for a status, an Event, a log line or the status page.
    pub fn message(&self) -> String {
        error_chain(self)
    }

    /// The text that distinguishes a new failure from a repeated one.
    pub fn gist(&self) -> String {
        match self {
            Self::Reason(reason) => format!("{} {}", reason.label(), reason.gist()),
            _ => format!("{} {}", self.label(), gist(&self.message_without_object())),
        }
    }

    /// The message without the name of the request's object. In an outage of the API the requests of all keys fail, and
    /// their messages differ only in that name.
    fn message_without_object(&self) -> String {
        let message = self.message();
        let Some(object) = self.api().map(ApiError::object).filter(|object| !object.name().is_empty()) else {
            return message;
        };
        message.replace(&format!("\"{object}\""), "…").replace(&format!("\"{}\"", object.name()), "…")
    }

    /// A shorter longest wait before the next attempt than the configured one.
    pub fn retry_cap(&self) -> Option<Duration> {
        match self {
            Self::Reason(reason) => reason.retry_cap(),
            Self::Op(error) if error.is_of_missing_secret() => Some(UNWATCHED),
            _ => self.driver().and_then(RpcError::retry_cap),
        }
    }

    /// When to retry: not before the API's `Retry-After`, and with the failure's own limit.
    pub fn outcome(&self) -> Outcome {
        match self.api().and_then(ApiError::retry_after) {
            Some(asked) => Outcome::RetryNoSooner(asked),
            None => Outcome::Retry { cap: self.retry_cap() },
        }
    }
}

impl<R: Reason> From<OpError> for AttemptError<R> {
    fn from(error: OpError) -> Self {
        Self::Op(error)
    }
}

impl<R: Reason> From<RpcError> for AttemptError<R> {
    fn from(error: RpcError) -> Self {
        Self::Driver(error)
    }
}

/// Why an attempt ended before its key was settled.
#[derive(Debug)]
pub enum Stop<R: Reason> {
    /// It failed.
    Failed(AttemptError<R>),
    /// The term is over. Nothing may be written any more, not even an error, and nothing has failed.
    TermOver,
    /// Nothing failed, but it is too early: observe again after this time.
    Later(Duration),
    /// Another role of this process has written the object meanwhile, and the cache has what it wrote: observe and decide again.
    LookAgain,
    /// The cache is behind the API. The watch will deliver the change and wake the key. If the cache stays behind, this
    /// error is reported.
    Behind(AttemptError<R>),
}

impl<R: Reason> From<TermOver> for Stop<R> {
    fn from(_: TermOver) -> Self {
        Self::TermOver
    }
}

/// Why a write got no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoTurn {
    /// The Lease was lost meanwhile.
    TermOver,
    /// Another role has written the object meanwhile.
    Outdated,
}

impl From<TermOver> for NoTurn {
    fn from(_: TermOver) -> Self {
        Self::TermOver
    }
}

impl<R: Reason> From<NoTurn> for Stop<R> {
    fn from(why: NoTurn) -> Self {
        match why {
            NoTurn::TermOver => Self::TermOver,
            NoTurn::Outdated => Self::LookAgain,
        }
    }
}

impl<R: Reason> From<AttemptError<R>> for Stop<R> {
    fn from(error: AttemptError<R>) -> Self {
        if error.api().is_some_and(|error| error.kind() == ApiErrorKind::NotPermitted) {
            return Self::TermOver;
        }
        Self::Failed(error)
    }
}

impl<R: Reason> From<OpError> for Stop<R> {
    fn from(error: OpError) -> Self {
        AttemptError::from(error).into()
    }
}

impl<R: Reason> From<RpcError> for Stop<R> {
    fn from(error: RpcError) -> Self {
        AttemptError::from(error).into()
    }
}

impl<R: Reason> From<R> for Stop<R> {
    fn from(reason: R) -> Self {
        AttemptError::Reason(reason).into()
    }
}

impl<R: Reason> From<R> for AttemptError<R> {
    fn from(reason: R) -> Self {
        Self::Reason(reason)
    }
}

//! One write: its content, and what the API's answer means for it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{ApiError, ApiErrorKind, SmolStr};
use crate::journal::format::{Key, Version};

/// One write: the creation of an object, or a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::journal) struct Commit {
    pub(in crate::journal) segment: usize,
    /// The object to be patched; `None`: it is to be created, without entries, because an entry names the uid of its object.
    pub(in crate::journal) basis: Option<Version>,
    /// The entries to be written. Those of a creation follow it in a patch.
    pub(in crate::journal) set: Vec<(Key, Arc<str>)>,
    /// Of the entries that were written before: a version of the API from before that.
    pub(in crate::journal) since: BTreeMap<Key, SmolStr>,
    pub(in crate::journal) remove: Vec<Key>,
}

/// How a write ended.
#[derive(Debug)]
pub(in crate::journal) enum Outcome {
    /// The object is as the write wanted it, at this version.
    Stored(Version),
    /// The object was not the one that the write builds on. Nothing was written.
    Conflict(ApiError),
    /// The API refuses the write. Nothing was written.
    Refused(ApiError),
    /// The write may have taken effect, or may still do so.
    Lost(ApiError),
    /// The term ended before the write was sent.
    NotSent,
}

impl Outcome {
    /// The outcome of a write that failed: the creation of an object, or a patch.
    pub(in crate::journal) fn of(error: ApiError, creates: bool) -> Self {
        use ApiErrorKind as K;
        match error.kind() {
            K::Conflict | K::PreconditionFailed => Self::Conflict(error),
            // For a patch, the object is gone. For a creation, the namespace is gone.
            K::NotFound if !creates => Self::Conflict(error),
            K::NotFound | K::Invalid | K::Forbidden | K::Unauthorized | K::TooManyRequests => Self::Refused(error),
            K::ServerError | K::Timeout | K::Connection | K::Unexpected | K::Gone => Self::Lost(error),
            K::NotPermitted => Self::NotSent,
        }
    }

    /// For metrics. `None`: no write was sent.
    pub(in crate::journal) fn label(&self) -> Option<&'static str> {
        match self {
            Self::Stored(_) => Some("ok"),
            Self::Conflict(_) => Some("conflict"),
            Self::Refused(_) => Some("refused"),
            Self::Lost(_) => Some("lost"),
            Self::NotSent => None,
        }
    }

    /// Why the write was not confirmed, unless another writer was faster.
    pub(in crate::journal) fn failure(&self) -> Option<&ApiError> {
        if let Self::Refused(error) | Self::Lost(error) = self { Some(error) } else { None }
    }
}

//! Why the journal could not be opened, or an entry not be recorded. Pure.

use std::sync::Arc;

use super::unreadable::Unreadable;
use crate::cluster::ApiError;
use crate::election::TermOver;

/// The journal could not be opened: the driver must not be called.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OpenError {
    /// The API refused to read a segment, or did not answer.
    #[error("cannot open the journal")]
    Api(#[from] ApiError),
    /// This version cannot read a segment. Nothing was changed.
    #[error("cannot open the journal")]
    Unreadable(#[from] Arc<Unreadable>),
    /// The term has ended.
    #[error("cannot open the journal")]
    TermOver(#[from] TermOver),
}

/// It is not certain that an entry is durable: its request must not be sent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// The API refused the write.
    #[error("the entry cannot be written to the journal")]
    Refused(#[source] ApiError),
    /// The API did not confirm the write, or cannot be reached.
    #[error("the API has not confirmed the entry of the journal")]
    Unconfirmed(#[source] ApiError),
    /// No segment has room for the entry.
    #[error("the journal is full: it holds {entries} entries whose outcome is not known yet")]
    Full {
        /// The entries that it holds.
        entries: usize,
    },
    /// The entry is too large for any segment.
    #[error("the entry has {bytes} bytes, and the journal takes no entry of more than {limit}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// The entry cannot be written as JSON, or its key cannot be a key of a ConfigMap.
    #[error("the entry cannot be written as JSON with the key {key:?}")]
    Unwritable {
        /// The key.
        key: String,
        /// What is wrong with the content, if it is the content.
        #[source]
        source: Option<Arc<serde_json::Error>>,
    },
    /// A segment cannot be read any more.
    #[error("nothing is written to the journal")]
    Unreadable(#[source] Arc<Unreadable>),
    /// The entry was removed, or replaced by another content, while it was being recorded.
    #[error("the entry was removed or replaced while it was being recorded")]
    Withdrawn,
    /// An entry that is no longer needed is still on its object.
    #[error("the entry of the volume cannot be removed from the journal yet")]
    Kept(#[source] Option<Box<Self>>),
    /// The term has ended.
    #[error("nothing is written to the journal")]
    TermOver(#[from] TermOver),
}

impl JournalError {
    /// For metrics and Events.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Refused(error) | Self::Unconfirmed(error) => error.label(),
            Self::Full { .. } => "journal_full",
            Self::TooLarge { .. } => "journal_entry_too_large",
            Self::Unwritable { .. } => "journal_entry_unwritable",
            Self::Unreadable(_) => "journal_unreadable",
            Self::Withdrawn => "journal_entry_withdrawn",
            Self::Kept(cause) => cause.as_deref().map_or("journal_entry_kept", Self::label),
            Self::TermOver(_) => "term_over",
        }
    }

    /// The API's error, if the API refused the entry or did not confirm it.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Refused(error) | Self::Unconfirmed(error) => Some(error),
            Self::Kept(cause) => cause.as_deref().and_then(Self::api),
            _ => None,
        }
    }
}

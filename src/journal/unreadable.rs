//! Why this version cannot use an object that has the name of a segment, and what to do then. Pure.

use std::fmt;
use std::sync::Arc;

use super::place::VERSION;
use crate::cluster::ObjectName;
use crate::cluster::names::{ANNOTATION_JOURNAL_NODE, ANNOTATION_JOURNAL_VERSION, LABEL_JOURNAL};

/// An object that is no readable segment. The error's text names the object, the reason and the remedy.
#[derive(Debug, Clone, thiserror::Error)]
#[error("configmap \"{object}\" is not a readable segment of the journal: {reason} ({})", .reason.remedy())]
pub struct Unreadable {
    /// The object.
    pub object: ObjectName,
    /// What is wrong with it.
    pub reason: UnreadableReason,
    /// What is wrong with a value.
    #[source]
    pub source: Option<Arc<serde_json::Error>>,
}

/// What is wrong with an object that should be a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnreadableReason {
    /// It has no version, or one that no daemon has ever written.
    Version {
        /// The annotation's text.
        found: Option<String>,
    },
    /// A later version of this program has written it.
    Newer {
        /// The version of its format.
        version: u64,
    },
    /// Its label names another driver, or is missing.
    Driver {
        /// The label's text.
        found: Option<String>,
        /// The driver of this journal.
        expected: String,
    },
    /// It belongs to another node.
    Node {
        /// The annotation's text.
        found: Option<String>,
        /// The node of this journal.
        expected: Option<String>,
    },
    /// It has `binaryData`.
    Binary {
        /// One of their keys.
        key: String,
    },
    /// It is immutable.
    Immutable,
    /// A value is no entry of this journal.
    Value {
        /// The value's key.
        key: String,
    },
}

impl UnreadableReason {
    /// What a person should do.
    fn remedy(&self) -> &'static str {
        match self {
            Self::Newer { .. } => {
                "run that version again until its journal is empty; volumes may be left behind if the object is deleted"
            }
            Self::Driver { .. } | Self::Node { .. } => {
                "correct the label or the annotation, or delete the object if it is not part of a journal"
            }
            Self::Version { .. } | Self::Binary { .. } | Self::Immutable | Self::Value { .. } => {
                "restore what was there before; volumes may be left behind if the object or the key is deleted"
            }
        }
    }
}

impl fmt::Display for UnreadableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => {
                write!(f, "the annotation {ANNOTATION_JOURNAL_VERSION} is {}, not {VERSION:?}", shown(found.as_deref()))
            }
            Self::Newer { version } => {
                write!(
                    f,
                    "a newer version of the daemon has written it: the annotation {ANNOTATION_JOURNAL_VERSION} is \
                     \"{version}\", and this version reads {VERSION:?}"
                )
            }
            Self::Driver { found, expected } => {
                write!(f, "the label {LABEL_JOURNAL} is {}, not {expected:?}", shown(found.as_deref()))
            }
            Self::Node { found, expected } => {
                let (found, expected) = (shown(found.as_deref()), shown(expected.as_deref()));
                write!(f, "the annotation {ANNOTATION_JOURNAL_NODE} is {found}, not {expected}")
            }
            Self::Binary { key } => write!(f, "binaryData has the key {key:?}, and a segment has texts only"),
            Self::Immutable => f.write_str("it is immutable"),
            Self::Value { key } => write!(f, "the value of the key {key:?} is not an entry in the format {VERSION:?}"),
        }
    }
}

/// A text that may be missing.
fn shown(text: Option<&str>) -> String {
    text.map_or_else(|| "missing".to_owned(), |text| format!("{text:?}"))
}

//! What was broken, in words. Pure.

use std::fmt;

/// What has to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Invariant {
    OneAtATime,
    FinalizersBeforePublish,
    UnpublishBeforeRelease,
    NoUnpublishUnasked,
    NothingOwnerless,
    RetainedIsKept,
    NoSecret,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneAtATime => "one call at a time changes a volume or a snapshot",
            Self::FinalizersBeforePublish => {
                "no ControllerPublishVolume before the finalizers of the attachment and its volume stand"
            }
            Self::UnpublishBeforeRelease => "no finalizer off before an OK ControllerUnpublishVolume",
            Self::NoUnpublishUnasked => "no ControllerUnpublishVolume of what an attachment says is attached and stays",
            Self::NothingOwnerless => "what a driver has made has an object or is deleted",
            Self::RetainedIsKept => "no deletion of what an object with Retain names",
            Self::NoSecret => "no secret in a record or a log",
        })
    }
}

/// An invariant that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) invariant: Invariant,
    /// The volume, snapshot or group; the file of a secret.
    pub(super) subject: String,
    told: String,
    lines: Vec<String>,
}

impl Violation {
    pub(super) fn new(
        invariant: Invariant,
        subject: impl Into<String>,
        told: impl Into<String>,
        lines: impl IntoIterator<Item = String>,
    ) -> Self {
        Self { invariant, subject: subject.into(), told: told.into(), lines: lines.into_iter().collect() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.invariant, self.subject, self.told)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

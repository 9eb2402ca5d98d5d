//! The state of one attempt at an attachment, and how each step's outcome changes it. Pure.

use std::collections::BTreeMap;

use crate::roles::kit::Secret;

use super::attachment::Direction;

/// Why a detach goes on without the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// Another attachment needs the volume on the node.
    Shared,
    /// Only the data of the attachment that this one is a copy of says what to detach.
    Copied,
    /// The driver does not publish volumes any more, and says that it has no unpublish either.
    NotOffered,
}

/// What one attempt has done so far. It is dropped with the attempt.
#[derive(Debug, Default)]
pub struct Progress {
    /// The secret, once read.
    pub secret: Option<Secret>,
    /// The publish context, once the driver answered.
    pub published: Option<BTreeMap<String, String>>,
    /// The driver answered OK to an unpublish.
    pub unpublished: bool,
    /// Why the detach goes on without the driver, if it does.
    pub skipped: Option<Skip>,
    /// The attachment is gone: our finalizer was the last one, or a read has not found the object.
    pub gone: bool,
    /// The status or the finalizers of the attachment were written.
    pub wrote: bool,
}

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// Nothing to remember: a preparation was written, or the objects were read again.
    Nothing,
    /// The secret.
    ReadSecret(Secret),
    /// The driver has published the volume, with this context.
    Published(BTreeMap<String, String>),
    /// The driver has unpublished the volume.
    Unpublished,
    /// The detach goes on without the driver.
    Skipped(Skip),
    /// The status was written.
    Recorded,
    /// Our finalizer was removed from the attachment.
    Released {
        /// It was the last one, so the object is gone.
        gone: bool,
    },
    /// The API has no such attachment any more.
    FoundGone,
}

impl Progress {
    /// Applies a step's outcome.
    pub fn apply(&mut self, done: Done) {
        match done {
            Done::Nothing => {}
            Done::ReadSecret(secret) => self.secret = Some(secret),
            Done::Published(context) => self.published = Some(context),
            Done::Unpublished => {
                self.unpublished = true;
                // The next call may be for another volume, and this secret belongs to the first one.
                self.secret = None;
            }
            Done::Skipped(skip) => self.skipped = Some(skip),
            Done::Recorded => self.wrote = true,
            Done::Released { gone } => (self.wrote, self.gone) = (true, gone),
            Done::FoundGone => self.gone = true,
        }
    }

    /// Whether the driver has answered the wanted call. An unpublish from an earlier node is not the wanted call,
    /// because a publish follows.
    pub fn has_answer(&self, wanted: Direction) -> bool {
        match wanted {
            Direction::Attach => self.published.is_some(),
            Direction::Detach => self.unpublished,
        }
    }

    /// Whether there is a success to report.
    pub fn did_something(&self, wanted: Direction) -> bool {
        self.has_answer(wanted) || self.wrote
    }
}

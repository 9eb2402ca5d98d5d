//! What one attempt at an attachment has done so far, and what the term remembers of an attachment. Pure.

use std::collections::BTreeMap;

use crate::roles::kit::{End, Remembered, Secret};

use super::attachment::Direction;
use super::error::{InvalidAttachment, refuses_publish};
use super::failure::Failure;

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

/// What is wanted when an attempt begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Attach or detach.
    pub direction: Direction,
    /// The driver disagrees with the recorded state: repeat the operation although the state says that it is done.
    pub forced: bool,
}

/// What one attempt has done so far. It is dropped with the attempt.
#[derive(Debug, Default)]
pub struct Progress {
    /// What is wanted.
    pub wanted: Wanted,
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
    /// Why the attempt has failed, if it has.
    pub failure: Option<Failure>,
}

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing to remember: the next view shows it.
    Nothing,
    /// The secret.
    Secret(Secret),
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
    NotFound,
    /// The status says why the attempt has failed, as far as it can be written.
    FailureRecorded,
}

impl Progress {
    /// Applies a step's outcome.
    pub fn apply(&mut self, answer: Answer) {
        match answer {
            Answer::Nothing => {}
            Answer::Secret(secret) => self.secret = Some(secret),
            Answer::Published(context) => self.published = Some(context),
            Answer::Unpublished => {
                self.unpublished = true;
                // The next call may be for another volume, and this secret belongs to the first one.
                self.secret = None;
            }
            Answer::Skipped(skip) => self.skipped = Some(skip),
            Answer::Recorded => self.wrote = true,
            Answer::Released { gone } => (self.wrote, self.gone) = (true, gone),
            Answer::NotFound => self.gone = true,
            Answer::FailureRecorded => {
                if let Some(failure) = &mut self.failure {
                    failure.is_recorded = true;
                }
            }
        }
    }

    /// Whether the driver has answered the wanted call. An unpublish from an earlier node is not the wanted call,
    /// because a publish follows.
    pub fn has_answer(&self) -> bool {
        match self.wanted.direction {
            Direction::Attach => self.published.is_some(),
            Direction::Detach => self.unpublished,
        }
    }

    /// Whether there is a success to report.
    pub fn did_something(&self) -> bool {
        self.has_answer() || self.wrote
    }
}

/// What the driver's listings say of an attachment that is recorded as attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Listed {
    /// Nothing against it.
    #[default]
    Fine,
    /// The driver has listed the volume twice without the node.
    Lost,
    /// It had, and is asked to publish the volume now: after a call that it did not refuse for good, those listings are outdated.
    Asked,
}

/// What a term remembers of an attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// What the driver's listings say of it.
    pub listed: Listed,
    /// What its last attempt has failed to do.
    pub failing: Option<Direction>,
}

impl Remembered for Memory {
    fn group(&self) -> Option<&'static str> {
        self.failing.map(Direction::label)
    }
}

impl Memory {
    /// The driver is about to be asked to publish the volume.
    pub fn publishes(&mut self) {
        if self.listed == Listed::Lost {
            self.listed = Listed::Asked;
        }
    }

    /// The attempt at this operation has ended.
    pub fn ended(&mut self, wanted: Direction, end: &End<'_, InvalidAttachment>) {
        let is_refused = matches!(end, End::Failed(error) if refuses_publish(error));
        if self.listed == Listed::Asked {
            self.listed = if is_refused { Listed::Lost } else { Listed::Fine };
        }
        self.failing = matches!(end, End::Failed(_)).then_some(wanted);
    }
}

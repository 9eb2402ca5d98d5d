//! What one attempt at a volume has done so far, and what the term remembers of a volume. Pure.

use tokio::time::Instant;

use crate::cluster::SecretRef;
use crate::roles::kit::{Remembered, Secret, Written};

/// What one attempt has done so far. It is dropped with the attempt.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct Progress {
    /// When the attempt began.
    pub begun: Instant,
    /// Whether the driver may be called without another read of the volume: the API has shown it since the attempt last waited, or the
    /// cache was recent and it has not waited.
    pub is_fresh: bool,
    /// The attempt ends, as so many attachments name the volume.
    pub waits: Option<usize>,
    /// The secret for the call, and where the volume placed it when it was read.
    pub secret: Option<(SecretRef, Secret)>,
    /// The driver has deleted the volume, in this attempt or in an earlier one of this term.
    pub is_deleted: bool,
    /// This daemon has nothing left to do. Finalizers of others may keep the object for a while.
    pub is_finished: bool,
    /// The API no longer has the object.
    pub is_gone: bool,
}

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nothing to remember: the next view shows it.
    Nothing,
    /// Volumes and attachments were listed.
    Listed,
    /// The volume is attached.
    Waits(Waiting),
    /// The API has the volume as the cache has it now.
    Confirmed,
    /// The secret was read.
    SecretRead {
        /// Where the volume placed it.
        place: SecretRef,
        /// Its values.
        secret: Secret,
        /// Whether that took so long that the volume may be another one by now.
        waited: bool,
    },
    /// The driver has deleted the volume.
    Deleted,
    /// The object was deleted, or our finalizer was removed.
    Finished {
        /// Whether no finalizer keeps the object.
        gone: bool,
    },
    /// The API no longer has the object.
    NotFound,
}

impl Answer {
    /// The last write to the object.
    pub fn of(written: &Written) -> Self {
        match written {
            Written::Kept => Self::Finished { gone: false },
            Written::Ended => Self::Finished { gone: true },
            Written::NotFound(_) => Self::NotFound,
        }
    }
}

impl Progress {
    /// Nothing is done yet.
    pub fn new(begun: Instant, is_fresh: bool, is_deleted: bool) -> Self {
        Self { begun, is_fresh, waits: None, secret: None, is_deleted, is_finished: false, is_gone: false }
    }

    /// Whether this daemon has finished with volume and object.
    pub fn is_complete(&self) -> bool {
        self.is_deleted && (self.is_finished || self.is_gone)
    }

    /// Applies a step's outcome.
    pub fn apply(&mut self, answer: Answer) {
        match answer {
            Answer::Nothing => {}
            // After a wait, what the attempt knew may be old.
            Answer::Listed => self.is_fresh = false,
            Answer::Waits(waiting) => (self.is_fresh, self.waits) = (false, Some(waiting.attachments)),
            Answer::Confirmed => self.is_fresh = true,
            Answer::SecretRead { place, secret, waited } => {
                self.secret = Some((place, secret));
                self.is_fresh &= !waited;
            }
            Answer::Deleted => self.is_deleted = true,
            Answer::Finished { gone } => (self.is_finished, self.is_gone) = (true, gone),
            Answer::NotFound => self.is_gone = true,
        }
    }
}

/// What a term remembers of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The driver has deleted it. So this term calls the driver only once, whatever an older version of the object says (spec 3.2: the Go
    /// sidecar calls twice).
    pub is_deleted: bool,
    /// It waits for its detach.
    pub waits: Option<Waiting>,
}

/// A volume that waits for its detach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub volume: String,
    /// How many attachments name it.
    pub attachments: usize,
}

impl Remembered for Memory {}

impl Memory {
    /// Remembers a step's outcome.
    pub fn apply(&mut self, answer: &Answer) {
        match answer {
            // At once, however the attempt ends.
            Answer::Deleted => self.is_deleted = true,
            Answer::Waits(waiting) => self.waits = Some(waiting.clone()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Clock;

    fn after(answers: impl IntoIterator<Item = Answer>) -> Progress {
        let mut progress = Progress::new(Clock::system().now(), true, false);
        for answer in answers {
            progress.apply(answer);
        }
        progress
    }

    fn secret_read(waited: bool) -> Answer {
        let place = SecretRef { name: "keys".to_owned(), namespace: "ns".to_owned() };
        Answer::SecretRead { place, secret: Secret::default(), waited }
    }

    #[test]
    fn a_wait_makes_what_is_known_old_and_a_read_makes_it_new() {
        let waiting = Waiting { volume: "pv-1".to_owned(), attachments: 1 };
        assert!(!after([Answer::Listed]).is_fresh);
        assert!(!after([Answer::Waits(waiting)]).is_fresh);
        assert!(after([secret_read(false)]).is_fresh);
        assert!(!after([secret_read(true)]).is_fresh);
        assert!(!after([Answer::Listed, Answer::Nothing]).is_fresh, "a write shows only what it has tested");
        assert!(after([Answer::Listed, Answer::Confirmed]).is_fresh);
    }

    #[test]
    fn a_deletion_is_complete_once_the_driver_and_the_api_have_done_their_part() {
        for (answers, expected) in [
            (vec![Answer::Deleted], false),
            (vec![Answer::Deleted, Answer::NotFound], true),
            (vec![Answer::Deleted, Answer::Finished { gone: true }], true),
            (vec![Answer::Deleted, Answer::Finished { gone: false }], true),
            (vec![Answer::Finished { gone: false }], false),
            (vec![Answer::NotFound], false),
            (vec![Answer::Nothing, Answer::Listed], false),
        ] {
            assert_eq!(after(answers.clone()).is_complete(), expected, "{answers:?}");
        }
    }
}

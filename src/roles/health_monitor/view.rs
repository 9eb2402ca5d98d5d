//! What a decision is made from, and what the term remembers of a volume. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::PersistentVolumeClaim;
use crate::roles::kit::Remembered;

use super::condition::{Abnormal, Condition};
use super::config::Report;
use super::source::Question;

/// A volume with the claims that it is bound to, as the caches have them. Two PersistentVolumes may name one volume (H24).
#[derive(Debug, Clone)]
pub struct View {
    /// The driver's id of the volume.
    pub handle: String,
    /// What the driver is asked of it. `None`: nothing, by its capabilities.
    pub question: Option<Question>,
    /// Where its condition is reported.
    pub report: Report,
    /// The claims that are bound to it, each by the uid that its PersistentVolume names, and none that is being deleted (spec C2).
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Whether an in-tree volume was translated.
    pub is_migrated: bool,
    /// What is remembered of it.
    pub memory: Memory,
    /// Whether the API server stores the health of claims, as far as is known: until it drops what was written, and again an hour later.
    pub is_status_kept: bool,
    /// Now, for the status.
    pub now: Timestamp,
    /// Now, for what is repeated.
    pub at: Instant,
}

/// What the term remembers of a volume, by its handle. If it is lost, the driver is asked again, and claims and Events say what was told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// What a list has said, until an attempt takes it. It is later than what the attempt knows.
    pub heard: Option<Abnormal>,
    /// Whether something was wrong by the last answer.
    pub is_abnormal: bool,
    /// What Events have told on each claim, by its uid.
    pub told: BTreeMap<String, Told>,
}

/// What Events have told on a claim.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    /// What is wrong, and when that was told last. It ends with the Event that all is well.
    pub abnormal: Option<(String, Instant)>,
    /// The unknown kinds.
    pub unknown: BTreeSet<i32>,
    /// That the driver does not know the volume.
    pub is_missing: bool,
}

impl Memory {
    /// The group of the volumes that are not healthy.
    pub const ABNORMAL: &'static str = "abnormal";

    /// Whether something may still be told or held to be wrong, so that only an answer of the driver can end that.
    pub fn is_suspect(&self) -> bool {
        self.is_abnormal || self.heard.is_some() || self.told.values().any(|told| told.abnormal.is_some())
    }
}

impl Remembered for Memory {
    fn group(&self) -> Option<&'static str> {
        self.is_abnormal.then_some(Self::ABNORMAL)
    }
}

/// What one attempt has done so far.
#[derive(Debug, Default, PartialEq)]
pub struct Progress {
    /// What the driver has said.
    pub found: Option<Found>,
    /// The claims whose status was written for that, whether or not the server has kept it.
    pub written: BTreeSet<String>,
    /// Whether Events and metrics have it.
    pub is_reported: bool,
}

/// What the driver has said of a volume.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// How it is.
    Condition(Condition),
    /// That it has no such volume.
    Missing,
    /// Nothing that could be used: no condition, or the one of another volume. Nothing is concluded from it.
    Nothing,
}

/// One thing that an Event tells on a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    /// The claim's uid.
    pub claim: String,
    /// What.
    pub what: What,
}

/// What an Event tells.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// Something is wrong, in these words.
    Abnormal(String),
    /// All is well again.
    Normal,
    /// Kinds that are not known, by their numbers.
    Unknown(BTreeSet<i32>),
    /// The driver does not know the volume.
    Missing,
}

/// What a step has brought.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// What the driver has said.
    Found(Found),
    /// What a list has said was taken.
    Heard(Abnormal),
    /// The status of the claim with this uid was written.
    Wrote(String),
    /// This was told, at this time.
    Reported(Vec<News>, Instant),
}

impl Memory {
    /// Takes in what a step has brought.
    pub fn apply(&mut self, progress: &mut Progress, answer: Answer) {
        match answer {
            Answer::Found(found) => self.found(progress, found),
            Answer::Heard(heard) => {
                // A list may have said something else meanwhile.
                if self.heard.as_ref() == Some(&heard) {
                    self.heard = None;
                }
                self.found(progress, Found::Condition(Condition::Abnormal(heard)));
            }
            Answer::Wrote(claim) => drop(progress.written.insert(claim)),
            Answer::Reported(news, at) => {
                for News { claim, what } in news {
                    let told = self.told.entry(claim).or_default();
                    match what {
                        What::Abnormal(text) => told.abnormal = Some((text, at)),
                        What::Unknown(kinds) => told.unknown = kinds,
                        What::Missing => told.is_missing = true,
                        What::Normal => told.abnormal = None,
                    }
                }
                if progress.found == Some(Found::Condition(Condition::Normal)) {
                    self.told.clear();
                }
                progress.is_reported = true;
            }
        }
    }

    fn found(&mut self, progress: &mut Progress, found: Found) {
        if let Found::Condition(condition) = &found {
            self.is_abnormal = condition.abnormal().is_some();
        }
        *progress = Progress { found: Some(found), ..Progress::default() };
    }
}

//! What a decision is made from, and what the term remembers of a volume. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::PersistentVolumeClaim;
use crate::roles::kit::Remembered;

use super::condition::Condition;
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

/// What the term remembers of a volume, by its handle. If it is lost, the role asks the driver again; claims and Events say what was
/// reported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// The driver's last answer in a list, until an attempt has used it. It is later than what the attempt knows.
    pub listed: Option<Listed>,
    /// When the driver answered that something is wrong, if that was its last answer.
    pub abnormal: Option<Instant>,
    /// What Events have reported on each claim, by its uid.
    pub reported: BTreeMap<String, Reported>,
}

/// The driver's answer for a volume in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// How it is.
    pub condition: Condition,
    /// When the list began: the driver has answered later.
    pub began: Instant,
}

/// What Events have reported on a claim.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reported {
    /// What is wrong, and when that was reported last. It ends with the Event that all is well.
    pub abnormal: Option<(String, Instant)>,
    /// The unknown kinds.
    pub unknown: BTreeSet<i32>,
    /// That the driver does not know the volume.
    pub is_missing: bool,
}

impl Memory {
    /// The group of the volumes that are not healthy.
    pub const ABNORMAL: &'static str = "abnormal";

    /// Whether something may still be reported or held to be wrong, so that only an answer of the driver can end that.
    pub fn is_suspect(&self) -> bool {
        self.abnormal.is_some() || self.listed.is_some() || self.reported.values().any(|it| it.abnormal.is_some())
    }

    /// Takes in what a list says. Returns whether that counts: a healthy volume in a list that began before the driver's last bad
    /// answer may be an older answer, and ends nothing (I1).
    pub fn list(&mut self, listed: Listed) -> bool {
        let is_outdated =
            listed.condition == Condition::Normal && self.abnormal.is_some_and(|answered| listed.began < answered);
        if !is_outdated {
            self.listed = Some(listed);
        }
        !is_outdated
    }
}

impl Remembered for Memory {
    fn group(&self) -> Option<&'static str> {
        self.abnormal.map(|_| Self::ABNORMAL)
    }
}

/// What one attempt has done so far.
#[derive(Debug, Default, PartialEq)]
pub struct Progress {
    /// What the driver has answered.
    pub found: Option<Found>,
    /// The claims whose status was written for that, whether or not the server has kept it.
    pub written: BTreeSet<String>,
    /// Whether Events and metrics have it.
    pub is_reported: bool,
}

/// What the driver has answered for a volume.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// How it is.
    Condition(Condition),
    /// That it has no such volume.
    Missing,
    /// Nothing that could be used: no condition, or the one of another volume. Nothing is concluded from it.
    Nothing,
}

/// One thing that an Event reports on a claim.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    /// The claim's uid.
    pub claim: String,
    /// What.
    pub what: What,
}

/// What an Event reports.
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
    /// What the driver has answered, and when.
    Found(Found, Instant),
    /// What a list says was used.
    Listed(Listed),
    /// The status of the claim with this uid was written.
    Wrote(String),
    /// This was reported, at this time.
    Reported(Vec<News>, Instant),
}

impl Memory {
    /// Takes in what a step has brought.
    pub fn apply(&mut self, progress: &mut Progress, answer: Answer) {
        match answer {
            Answer::Found(found, at) => {
                self.found(progress, found, at);
                // A list may have ended meanwhile.
                if let Some(listed) = self.listed.take() {
                    self.list(listed);
                }
            }
            Answer::Listed(listed) => {
                // A list may have ended meanwhile with another answer.
                if self.listed.as_ref() == Some(&listed) {
                    self.listed = None;
                }
                self.found(progress, Found::Condition(listed.condition), listed.began);
            }
            Answer::Wrote(claim) => drop(progress.written.insert(claim)),
            Answer::Reported(news, at) => {
                for News { claim, what } in news {
                    let reported = self.reported.entry(claim).or_default();
                    match what {
                        What::Abnormal(text) => reported.abnormal = Some((text, at)),
                        What::Unknown(kinds) => reported.unknown = kinds,
                        What::Missing => reported.is_missing = true,
                        What::Normal => reported.abnormal = None,
                    }
                }
                if progress.found == Some(Found::Condition(Condition::Normal)) {
                    self.reported.clear();
                }
                progress.is_reported = true;
            }
        }
    }

    fn found(&mut self, progress: &mut Progress, found: Found, at: Instant) {
        if let Found::Condition(condition) = &found {
            self.abnormal = condition.abnormal().map(|_| at);
        }
        *progress = Progress { found: Some(found), ..Progress::default() };
    }
}

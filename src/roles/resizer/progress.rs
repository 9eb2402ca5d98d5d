//! What one attempt at a change has done so far, and what the term remembers of a change. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::{ObjectName, SmolStr};
use crate::csi::RpcError;
use crate::roles::kit::report::gist;
use crate::roles::kit::{AttemptError, End, Remembered, Secret, Texts};

use super::error::{ChangeError, InvalidChange, Wait, is_refusal};
use super::job::Job;
use super::step::{NodeRetries, Offer, Place, Step, Write};
use super::waiting::{Waiting, waiting_for};

/// What one attempt has done so far. It is dropped with the attempt.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Progress {
    /// Which job it is.
    pub job: Job,
    /// The claim.
    pub claim: ObjectName,
    /// When the attempt began.
    pub began: Instant,
    /// The claim is gone.
    pub gone: bool,
    /// The API has no class of the name that the cache lacks.
    pub is_looked_up: bool,
    /// The secret, once read.
    pub secret: Option<Secret>,
    /// The driver has expanded the volume, and that is not completely recorded.
    pub expanded: Option<Expanded>,
    /// The driver has changed the volume to this class, and that is not completely recorded.
    pub modified: Option<String>,
    /// The driver has not changed the volume.
    pub refused: Option<Refused>,
    /// The driver's answer cannot be used.
    pub fault: Option<InvalidChange>,
    /// A change is recorded, and the time that it took is reported.
    pub did_something: bool,
    /// Users have not read yet why the attempt has failed.
    pub is_news: bool,
    /// The version that was offered to the other change, which did not come.
    pub offered: Option<SmolStr>,
}

/// The driver has expanded the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expanded {
    /// The requested size.
    pub asked: i64,
    /// The size that the volume has now.
    pub size: i64,
    /// Whether a node has to act.
    pub needs_node: bool,
}

/// Why the driver has not changed the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The requested size or class.
    pub asked: String,
    /// The driver's error.
    pub error: RpcError,
    /// Only another request of the user, or time, can help.
    pub is_infeasible: bool,
    /// The claim's status says so, as far as it can be written.
    pub is_recorded: bool,
}

/// The outcome of a step.
#[derive(Debug)]
pub enum Answer {
    /// Nothing that the attempt must know: the next view shows it.
    Nothing,
    /// The claim is gone.
    Gone,
    /// The secret.
    Secret(Secret),
    /// The API has no such class. With the class, if the claim is being changed to it, and when that was found out.
    NoClass(Option<(String, Instant)>),
    /// The driver has expanded the volume.
    Expanded(Expanded),
    /// The driver has changed the volume to this class.
    Modified(String),
    /// The driver has refused.
    Refused {
        /// What.
        refused: Refused,
        /// When.
        at: Timestamp,
        /// The claim, if its volume may be in use.
        in_use: Option<ObjectName>,
    },
    /// The driver has answered, and this is wrong with the answer.
    Faulty(InvalidChange, Timestamp),
    /// Only nodes expand the volume, to this size.
    LeftToNode(i64),
    /// The other change did not come to write what was made from this version.
    NotMet(SmolStr),
    /// It is written.
    Wrote(Write),
    /// It is written, and what the other change had offered.
    WroteBoth(Write, Place, SmolStr),
    /// The driver's answer no longer matters.
    Dropped,
}

impl Progress {
    /// Nothing is done yet, but for answers of the driver to earlier attempts, which are not recorded yet.
    pub fn begin(job: Job, claim: ObjectName, began: Instant, memory: &Memory) -> Self {
        Self {
            job,
            claim,
            began,
            gone: false,
            is_looked_up: false,
            secret: None,
            expanded: memory.expanded,
            modified: memory.modified.clone(),
            refused: None,
            fault: None,
            did_something: false,
            is_news: false,
            offered: None,
        }
    }

    /// Whether the driver has answered, and the answer is still to be recorded.
    pub fn has_answer(&self) -> bool {
        self.expanded.is_some() || self.modified.is_some() || self.refused.is_some()
    }

    fn apply(&mut self, answer: Answer) {
        match answer {
            Answer::Nothing => {}
            Answer::Gone => self.gone = true,
            Answer::Secret(secret) => self.secret = Some(secret),
            Answer::NoClass(_) => self.is_looked_up = true,
            Answer::Expanded(expanded) => self.expanded = Some(expanded),
            Answer::LeftToNode(size) => self.expanded = Some(Expanded { asked: size, size, needs_node: true }),
            Answer::Modified(class) => self.modified = Some(class),
            Answer::Refused { refused, .. } => self.refused = Some(refused),
            Answer::Faulty(fault, _) => self.fault = Some(fault),
            Answer::NotMet(version) => self.offered = Some(version),
            Answer::Wrote(write) | Answer::WroteBoth(write, ..) => self.wrote(&write),
            Answer::Dropped => (self.expanded, self.modified) = (None, None),
        }
    }

    fn wrote(&mut self, write: &Write) {
        if let (Write::Refusal, Some(refused)) = (write, &mut self.refused) {
            refused.is_recorded = true;
        }
        if write.ends_change() {
            (self.expanded, self.modified, self.did_something) = (None, None, true);
            // The next change reads the secret and the class again.
            (self.secret, self.is_looked_up) = (None, false);
        }
    }
}

/// What the term remembers of a change. All that must survive a crash is in the claim's status.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// The last call.
    pub last_call: LastCall,
    /// An answer of the driver that is not recorded yet, so that it is not called again.
    pub expanded: Option<Expanded>,
    /// The same of a modification.
    pub modified: Option<String>,
    /// The class that the claim is being changed to and that the API does not have, and since when that is known.
    pub missing: Option<(String, Instant)>,
    /// How often a node that has failed was asked to try again.
    pub node_retries: Option<NodeRetries>,
    /// The claim, if the driver expands its volume only while no pod uses it.
    pub in_use: Option<ObjectName>,
    /// Which warnings users have read.
    pub told: Texts,
    /// What the claim waits for.
    pub waiting: Option<Waiting>,
    /// An attempt has the volume's lock.
    pub is_at_work: bool,
    /// How it meets the other change.
    pub pairing: Pairing,
}

/// What the term knows of the last call of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LastCall {
    /// This term has made no call. The claim's status says how the last one has ended, or that it may be running: whoever repeats a call
    /// that was refused says so first.
    #[default]
    Earlier,
    /// The call may still be running.
    Open,
    /// The driver has refused at this time: nothing is running.
    Refused(Timestamp),
}

impl LastCall {
    /// Whether the last call has certainly ended in a refusal. `says_so`: the claim's status says that of an earlier call.
    pub fn is_refused(self, says_so: bool) -> bool {
        match self {
            Self::Earlier => says_so,
            Self::Open => false,
            Self::Refused(_) => true,
        }
    }

    /// When the driver has refused in this term.
    pub fn refused_at(self) -> Option<Time> {
        if let Self::Refused(at) = self { Some(Time(at)) } else { None }
    }
}

/// How a change meets the other one of its claim, where the driver needs both calls at once.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Pairing {
    /// It does not.
    #[default]
    None,
    /// It waits for the other one's write.
    Offers(Offer),
    /// It writes what the other one offers, made from this version.
    Takes(Place, SmolStr),
    /// It has written that.
    Took(Place, SmolStr),
}

impl Remembered for Memory {
    fn group(&self) -> Option<&'static str> {
        self.waiting.as_ref().map(|waiting| waiting.reason.label())
    }
}

impl Memory {
    /// The step is about to be done.
    pub fn intends(&mut self, step: &Step) {
        self.is_at_work |= step.is_locked();
        self.pairing = match (step, std::mem::take(&mut self.pairing)) {
            (Step::Meet(_, offer), _) => Pairing::Offers(offer.clone()),
            (Step::WriteBoth(_, offer), _) => Pairing::Takes(offer.place, offer.version.clone()),
            // The other one may not have seen it yet.
            (_, took @ Pairing::Took(..)) => took,
            _ => Pairing::None,
        };
        // From here on the outcome is unknown until the driver answers.
        match step {
            Step::Expand(_) => self.last_call = LastCall::Open,
            Step::Modify(_) => (self.last_call, self.missing) = (LastCall::Open, None),
            _ => {}
        }
    }

    /// What a step has brought.
    pub fn apply(&mut self, progress: &mut Progress, answer: Answer) {
        match &answer {
            Answer::NoClass(Some((class, at))) if self.missing.as_ref().is_none_or(|(held, _)| held != class) => {
                self.missing = Some((class.clone(), *at));
            }
            Answer::Expanded(expanded) => {
                (self.expanded, self.last_call, self.in_use) = (Some(*expanded), LastCall::Earlier, None);
            }
            Answer::Modified(class) => (self.modified, self.last_call) = (Some(class.clone()), LastCall::Earlier),
            Answer::Refused { refused, at, in_use } => {
                self.in_use.clone_from(in_use);
                if is_refusal(refused.error.code) {
                    self.last_call = LastCall::Refused(*at);
                }
            }
            // The call is over, and has not done what it was to do: another request of the user counts from now on.
            Answer::Faulty(_, at) => (self.last_call, self.in_use) = (LastCall::Refused(*at), None),
            Answer::LeftToNode(size) => {
                self.told.is_news(&begun_gist(*size));
            }
            Answer::WroteBoth(_, place, version) => self.pairing = Pairing::Took(*place, version.clone()),
            Answer::Dropped => (self.expanded, self.modified) = (None, None),
            _ => {}
        }
        if let Answer::Wrote(write) | Answer::WroteBoth(write, ..) = &answer {
            if let Write::LeftToNode { retries: Some(retries), .. } = write {
                self.node_retries = Some(*retries);
            }
            if write.ends_change() {
                (self.expanded, self.modified, self.told) = (None, None, Texts::default());
            }
        }
        progress.apply(answer);
    }

    /// The attempt has ended.
    pub fn ended(&mut self, progress: &mut Progress, end: &End<'_, InvalidChange>) {
        self.is_at_work = false;
        if !matches!(self.pairing, Pairing::Took(..)) {
            self.pairing = Pairing::None;
        }
        match end {
            End::Settled => self.settled(),
            End::Failed(error) => {
                progress.is_news = self.told.is_news(&news(error, progress));
                let is_infeasible = progress.refused.as_ref().is_some_and(|refused| refused.is_infeasible);
                let is_try = !matches!(error, AttemptError::Reason(InvalidChange::Waits { .. }));
                self.waiting = waiting_for(error, is_infeasible).map(|(reason, says)| {
                    let held = self.waiting.take().filter(|held| held.reason.continues(reason));
                    let (since, before) = held.map_or((progress.began, 0), |held| (held.since, held.failed));
                    let failed = before + usize::from(is_try);
                    Waiting { claim: progress.claim.clone(), job: progress.job, reason, since, failed, says }
                });
            }
        }
    }

    /// Nothing is left to do: what fails from here on is news.
    pub fn settled(&mut self) {
        (self.told, self.waiting, self.in_use) = (Texts::default(), None, None);
    }

    /// Whether the size that a driver expands only on nodes to is known already.
    pub fn has_begun(&self, size: i64) -> bool {
        self.told.has(&begun_gist(size))
    }
}

fn begun_gist(size: i64) -> String {
    format!("to {size}")
}

/// What distinguishes one warning from another.
fn news(error: &ChangeError, progress: &Progress) -> String {
    match (error, &progress.refused) {
        (AttemptError::Reason(InvalidChange::Waits { wait: Wait::Pods, .. }), _) => "in use".to_owned(),
        (AttemptError::Driver(error), Some(refused)) if !is_refusal(error.code) => {
            gist(&format!("{error}, and still {}", refused.asked))
        }
        _ => gist(&error.message()),
    }
}

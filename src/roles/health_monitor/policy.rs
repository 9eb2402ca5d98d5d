//! What to do next about a volume: use what a list says, ask, write what the claims' status lacks, report (spec C3, C4). Pure.
//!
//! - Only an answer of the driver changes anything; an error and an absence clear nothing (I1). What a list says is used before anything
//!   else: it is the driver's last answer.
//! - A claim is compared with what it holds, so in a steady state nothing is written (I4), and a new leader repeats nothing (H2, H25).
//! - A status can say only the three kinds of Kubernetes. What it cannot say is never called healthy there: then it stays as it is (H19).

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cluster::patch::{Guard, status_changes};
use crate::cluster::{HealthCondition, Moment, Patch, PersistentVolumeClaim};
use crate::roles::kit::drive::Next;

use super::condition::{Abnormal, Condition, identity};
use super::config::Report;
use super::source::Question;
use super::view::{Found, Listed, News, Progress, Reported, View, What};

/// How often an Event repeats that something is still wrong: servers forget Events after an hour.
const REPEAT: Duration = Duration::from_secs(3600);

/// One step.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Uses what a list says.
    UseListed(Listed),
    /// Asks the driver.
    Ask(Question),
    /// Writes what is wrong into a claim's status.
    Write(Write),
    /// Writes Events and metrics.
    Report(Vec<News>),
}

/// A claim's health as it is to be. No conditions: none.
#[derive(Debug, PartialEq)]
pub struct Write {
    /// The claim's uid.
    pub claim: String,
    /// What is wrong, in the API's order.
    pub conditions: Vec<HealthCondition>,
    /// Since when it is these statuses and reasons.
    pub since: Moment,
}

/// The policy.
pub fn next_step(view: &View, progress: &Progress) -> Next<Step> {
    if let Some(listed) = &view.memory.listed {
        return Next::Do(Step::UseListed(listed.clone()));
    }
    let Some(found) = &progress.found else {
        return view.question.map_or(Next::Done, |question| Next::Do(Step::Ask(question)));
    };
    if let Found::Condition(condition) = found {
        let unwritten = view.claims.iter().filter(|claim| !progress.written.contains(&*claim.metadata.uid));
        let writes: Vec<Step> = unwritten.filter_map(|claim| write(view, claim, condition)).map(Step::Write).collect();
        if !writes.is_empty() {
            return Next::Together(writes);
        }
    }
    if progress.is_reported || *found == Found::Nothing {
        return Next::Done;
    }
    Next::Do(Step::Report(news(view, found)))
}

/// What the claim's status lacks of the condition.
fn write(view: &View, claim: &PersistentVolumeClaim, condition: &Condition) -> Option<Write> {
    let wanted = condition.abnormal().map_or(&[][..], |abnormal| abnormal.kinds.as_slice());
    let is_unsayable = wanted.is_empty() && *condition != Condition::Normal;
    if view.report == Report::Events || is_unsayable || (!wanted.is_empty() && !view.is_status_kept) {
        return None;
    }
    let held = claim.status.health.as_deref();
    let mut conditions = held.map(|held| held.conditions.to_vec()).unwrap_or_default();
    conditions.sort_by_key(identity);
    if conditions == wanted {
        return None;
    }
    let is_same_set = conditions.iter().map(identity).eq(wanted.iter().map(identity));
    let since = held.and_then(|held| held.last_transition_time).filter(|_| is_same_set);
    let (claim, since) = (claim.metadata.uid.to_string(), since.unwrap_or_else(|| Moment::of(view.now)));
    Some(Write { claim, conditions: wanted.to_vec(), since })
}

impl Write {
    /// The merge patch, which only this version of the claim takes. A strategic patch would merge conditions by their status alone,
    /// where the list's key is status and reason.
    pub fn patch(&self, claim: &PersistentVolumeClaim) -> Patch {
        let health = match &*self.conditions {
            [] => Value::Null,
            conditions => json!({ "healthConditions": conditions, "lastTransitionTime": self.since.timestamp() }),
        };
        status_changes(&claim.metadata, Guard::Version, &json!({ "healthStatus": health }))
    }
}

/// What Events are still to report.
fn news(view: &View, found: &Found) -> Vec<News> {
    let mut news = Vec::new();
    let nothing = Reported::default();
    for claim in &view.claims {
        let reported = view.memory.reported.get(&*claim.metadata.uid).unwrap_or(&nothing);
        let mut report = |what| news.push(News { claim: claim.metadata.uid.to_string(), what });
        match found {
            Found::Missing if !reported.is_missing => report(What::Missing),
            Found::Condition(Condition::Normal) if reported.abnormal.is_some() => report(What::Normal),
            Found::Condition(Condition::Abnormal(abnormal)) => {
                if is_for_events(view, abnormal) && is_due(reported, &abnormal.text, view.at) {
                    report(What::Abnormal(abnormal.text.clone()));
                }
                if !abnormal.unknown.is_empty() && reported.unknown != abnormal.unknown {
                    report(What::Unknown(abnormal.unknown.clone()));
                }
            }
            _ => {}
        }
    }
    news
}

/// Whether Events report what is wrong: where they are wanted, and otherwise what the status does not hold.
fn is_for_events(view: &View, abnormal: &Abnormal) -> bool {
    let is_wanted = match view.report {
        Report::Events | Report::Both => true,
        Report::Status => false,
        Report::Auto => abnormal.kinds.is_empty() || !view.is_status_kept,
    };
    is_wanted && !abnormal.text.is_empty()
}

fn is_due(reported: &Reported, text: &str, now: Instant) -> bool {
    let is_old = |at: Instant| now.saturating_duration_since(at) >= REPEAT;
    reported.abnormal.as_ref().is_none_or(|(last, at)| last != text || is_old(*at))
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

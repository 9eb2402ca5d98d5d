//! The API's history of PersistentVolumes, read once for all requests that need it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::memory::ClaimMemory;
use crate::cluster::{Api, ApiError, History, PersistentVolume};
use crate::election::TermOver;
use crate::roles::kit::{Memory, TermScope};

/// What the API has answered in this term.
#[derive(Debug, Default)]
pub struct Histories(Mutex<Vec<Answer>>);

/// How long an answer counts. So all requests of an earlier term share a few answers, however many they are; and nothing of the last leader
/// that lands so late can have been stored, used and deleted since.
const COUNTS: Duration = Duration::from_secs(10);

/// One answer.
#[derive(Debug)]
struct Answer {
    since: u128,
    asked: Instant,
    history: Arc<History<PersistentVolume>>,
}

impl Answer {
    /// Whether it answers now for what was stored after this version, where only what was asked after `not_before` counts.
    fn covers(&self, since: u128, not_before: Option<Instant>, now: Instant) -> bool {
        let is_new = not_before.is_none_or(|not_before| self.asked >= not_before) && now <= self.asked + COUNTS;
        match *self.history {
            History::Whole(_) => self.since <= since && is_new,
            // An older version is no better.
            History::Unknown => since <= self.since,
        }
    }
}

impl Histories {
    /// What has become of the PersistentVolumes since this version. The first attempt asks for all claims that need the history; the
    /// others wait. `not_before`: no answer to an earlier question counts.
    pub async fn since(
        &self,
        scope: &TermScope,
        claims: &Memory<ClaimMemory>,
        since: &str,
        not_before: Option<Instant>,
    ) -> Result<Result<Arc<History<PersistentVolume>>, ApiError>, TermOver> {
        let Ok(since) = since.parse::<u128>() else { return Ok(Ok(Arc::new(History::Unknown))) };
        let mut answers = self.0.lock().await;
        loop {
            if let Some(answer) = answers.iter().find(|answer| answer.covers(since, not_before, scope.clock.now())) {
                return Ok(Ok(Arc::clone(&answer.history)));
            }
            let too_old = answers.iter().filter(|it| matches!(*it.history, History::Unknown)).map(|it| it.since).max();
            let wanted = claims.collect(version).into_iter();
            let oldest = wanted.filter(|it| too_old.is_none_or(|too_old| *it > too_old)).min();
            let from = oldest.unwrap_or(since).min(since);
            let asked = scope.clock.now();
            let from_text = from.to_string();
            let read = async |api: Api| api.history::<PersistentVolume>(&from_text).await;
            let history = match scope.in_task(read).await? {
                Ok(history) => Arc::new(history),
                Err(error) => return Ok(Err(error)),
            };
            answers.push(Answer { since: from, asked, history: Arc::clone(&history) });
            // However long it took.
            if matches!(*history, History::Whole(_)) || from == since {
                return Ok(Ok(history));
            }
        }
    }
}

/// The version from which a claim needs the history.
fn version(claim: &ClaimMemory) -> Option<u128> {
    claim.state.as_ref()?.since()?.parse().ok()
}

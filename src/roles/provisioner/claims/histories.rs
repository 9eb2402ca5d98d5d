//! The API's history of PersistentVolumes, read once for all requests of an earlier term that need it.

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::phase::Plan;
use super::states::ClaimStates;
use crate::cluster::{ApiError, History, PersistentVolume, SmolStr};
use crate::election::TermOver;
use crate::roles::kit::TermScope;

/// What the API has answered in this term.
#[derive(Debug, Default)]
pub struct Histories(Mutex<Vec<Answer>>);

/// One answer.
#[derive(Debug)]
struct Answer {
    since: u128,
    asked: Instant,
    history: History,
}

impl Answer {
    /// Whether it answers for a request that was recorded after this version, and that this term has found at this time.
    fn covers(&self, since: u128, found: Instant) -> bool {
        match self.history {
            History::Whole(_) => self.since <= since && self.asked >= found,
            // An older version is no better.
            History::Unknown => since <= self.since,
        }
    }
}

impl Histories {
    /// What has become of the PersistentVolumes since this version. Whoever asks first, asks for all `states` that need the history; the
    /// others wait.
    pub async fn since(
        &self,
        scope: &TermScope,
        states: &ClaimStates,
        since: &str,
    ) -> Result<Result<History, ApiError>, TermOver> {
        let found = scope.clock.now();
        let Ok(since) = since.parse::<u128>() else { return Ok(Ok(History::Unknown)) };
        let mut answers = self.0.lock().await;
        loop {
            if let Some(answer) = answers.iter().find(|answer| answer.covers(since, found)) {
                return Ok(Ok(answer.history.clone()));
            }
            let too_old = answers.iter().filter(|it| it.history == History::Unknown).map(|it| it.since).max();
            let wanted = states.all().into_iter().filter_map(|state| state.plan().and_then(version));
            let oldest = wanted.filter(|it| too_old.is_none_or(|too_old| *it > too_old)).min();
            let since = oldest.unwrap_or(since).min(since);
            let asked = scope.clock.now();
            match scope.api.use_now()?.history::<PersistentVolume>(&since.to_string()).await {
                Ok(history) => answers.push(Answer { since, asked, history }),
                Err(error) => return Ok(Err(error)),
            }
        }
    }
}

/// The version from before the record of a request that has no proof yet.
fn version(plan: &Plan) -> Option<u128> {
    plan.unproven.as_ref().map(SmolStr::as_str)?.parse().ok()
}

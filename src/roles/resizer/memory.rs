//! What a term remembers about claims, by uid and job. The key is the uid, because another claim may get the same name. All of it may
//! be lost: then a call or an Event is repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cluster::ObjectName;

/// One of the two jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Job {
    /// The volume is expanded.
    Expand,
    /// The volume is modified.
    Modify,
}

impl Job {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Expand, Self::Modify];

    /// The word for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Expand => "expand",
            Self::Modify => "modify",
        }
    }
}

/// What the queue holds: one job of one claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkKey {
    /// The claim.
    pub claim: ObjectName,
    /// Which of its jobs.
    pub job: Job,
}

impl fmt::Display for WorkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.claim, self.job.label())
    }
}

/// A value for some uids.
#[derive(Debug)]
pub struct ByUid<V>(Mutex<BTreeMap<String, V>>);

impl<V> Default for ByUid<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> ByUid<V> {
    /// The value.
    pub fn get(&self, uid: &str) -> Option<V> {
        self.lock().get(uid).cloned()
    }

    /// Sets or replaces the value.
    pub fn set(&self, uid: &str, value: V) {
        self.lock().insert(uid.to_owned(), value);
    }

    /// Removes the value.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many different texts are remembered for one job of one claim.
const MOST_TEXTS: usize = 32;

/// Which warnings were written as Events.
#[derive(Debug, Default)]
pub struct Told(Mutex<BTreeMap<(String, Job), BTreeSet<String>>>);

impl Told {
    /// Whether this text is new. It is remembered from then on.
    pub fn is_news(&self, uid: &str, job: Job, gist: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let texts = told.entry((uid.to_owned(), job)).or_default();
        if texts.len() >= MOST_TEXTS {
            texts.clear();
        }
        texts.insert(gist.to_owned())
    }

    /// Forgets the texts: the next failure is new.
    pub fn forget(&self, uid: &str, job: Job) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(uid.to_owned(), job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_news_once_for_each_job_of_each_claim_until_it_is_forgotten() {
        let told = Told::default();
        assert!(told.is_news("u1", Job::Expand, "no room"));
        assert!(!told.is_news("u1", Job::Expand, "no room"));
        assert!(told.is_news("u1", Job::Expand, "denied"));
        assert!(told.is_news("u1", Job::Modify, "no room"));
        assert!(told.is_news("u2", Job::Expand, "no room"), "a namesake has another uid (Z53)");
        told.forget("u1", Job::Expand);
        assert!(told.is_news("u1", Job::Expand, "no room"));
        for number in 0..100 {
            assert!(told.is_news("u1", Job::Expand, &number.to_string()));
        }
    }
}

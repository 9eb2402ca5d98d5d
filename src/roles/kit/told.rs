//! Which warnings users have read already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// No more texts than these are told apart for one key.
const MOST_TEXTS: usize = 32;

/// The warnings about one thing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts(BTreeSet<String>);

impl Texts {
    /// Whether this text is no news.
    pub fn has(&self, gist: &str) -> bool {
        self.0.contains(gist)
    }

    /// Whether this text is news. From then on it is not.
    pub fn is_news(&mut self, gist: &str) -> bool {
        if self.0.len() >= MOST_TEXTS {
            self.0.clear();
        }
        self.0.insert(gist.to_owned())
    }
}

/// Which warnings users have read already, by what they are about. `K` holds the object's uid: names come back.
#[derive(Debug)]
pub struct Told<K>(Mutex<BTreeMap<K, Texts>>);

impl<K> Default for Told<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord> Told<K> {
    /// Whether this text is news. From then on it is not.
    pub fn is_news(&self, key: K, gist: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.entry(key).or_default().is_news(gist)
    }

    /// What fails from here on is news.
    pub fn forget(&self, key: &K) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_news_once_for_each_key_until_it_is_forgotten() {
        let told = Told::default();
        assert!(told.is_news(("u1", 1), "no room"));
        assert!(!told.is_news(("u1", 1), "no room"));
        assert!(told.is_news(("u1", 1), "denied"));
        assert!(told.is_news(("u1", 2), "no room"));
        assert!(told.is_news(("u2", 1), "no room"), "a namesake has another uid (resizer Z53)");
        told.forget(&("u1", 1));
        assert!(told.is_news(("u1", 1), "no room"));
        for number in 0..100 {
            assert!(told.is_news(("u1", 1), &number.to_string()));
        }
    }
}

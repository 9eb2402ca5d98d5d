//! Which warnings users have read already.

use std::collections::BTreeSet;

/// No more texts than these are told apart for one object.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_news_once() {
        let mut told = Texts::default();
        assert!(told.is_news("no room") && told.has("no room"));
        assert!(!told.is_news("no room"));
        assert!(!told.has("denied") && told.is_news("denied"));
        for number in 0..100 {
            assert!(told.is_news(&number.to_string()), "not all texts of a term are kept");
        }
    }
}

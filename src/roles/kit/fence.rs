//! A client that is tied to a term. No role has one in hand: the scope and the verbs take it out.

use std::fmt;

use crate::cluster::{Api, Cache, Cached};
use crate::election::{Term, TermOver};
use crate::process::Permitted;

/// A client that can be used only while its term lasts.
#[derive(Clone)]
pub(super) struct Fenced<C> {
    client: C,
    term: Term,
}

impl<C: Permitted> Fenced<C> {
    /// Ties a client to a term. The term is checked before each use, and by the client again after its own waits.
    pub(super) fn of(term: &Term, client: C) -> Self {
        Self { client: client.permitted(term.permit()), term: term.clone() }
    }

    /// The client, for a write that begins now.
    pub(super) fn use_now(&self) -> Result<&C, TermOver> {
        if self.term.may_write() { Ok(&self.client) } else { Err(TermOver) }
    }
}

impl Fenced<Api> {
    /// Gives a cache what the API has answered, also after the term.
    pub(super) fn give<K: Cached>(&self, cache: &Cache<K>, answer: K) {
        self.client.give(cache, answer);
    }

    /// The client for a journal, which checks the term by itself.
    pub(super) fn for_journal(&self) -> Api {
        self.client.clone()
    }
}

impl<C> fmt::Debug for Fenced<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fenced").field("term", &self.term).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::process::{Clock, Permit};

    /// A client that waits for nothing.
    #[derive(Debug, PartialEq)]
    struct AtOnce;

    impl Permitted for AtOnce {
        fn permitted(self, _: Permit) -> Self {
            self
        }
    }

    #[tokio::test(start_paused = true)]
    async fn r52_a_client_ends_with_its_term_even_if_nobody_has_told_it() {
        let lasts = Duration::from_secs(10);
        let term = Term::unattended(Clock::system(), lasts);
        let fenced = Fenced::of(&term, AtOnce);
        assert_eq!(fenced.use_now(), Ok(&AtOnce));
        tokio::time::advance(lasts).await;
        assert_eq!(fenced.use_now(), Err(TermOver));
    }
}

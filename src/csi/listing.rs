//! A pass over a list of the driver, page by page, and the one loop that makes it. What is done with a page is pure.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;
use tonic::Code;

use super::error::RpcError;

/// How many pages in a row may bring nothing that was not listed before. A driver may well have empty pages, where it looks
/// through what is not for us; one that has nothing else has lost its way, and each page is a call.
const BARREN_PAGES: u32 = 1_000;

/// A pass in progress. `T`: what is kept of an entry.
#[derive(Debug)]
pub struct Listing<T> {
    rpc: &'static str,
    entries: BTreeMap<String, T>,
    tokens: BTreeSet<String>,
    pages: u32,
    /// Pages without news since the last one with any.
    barren: u32,
}

/// A page: entries by their ids.
#[derive(Debug)]
pub struct Page<T> {
    /// What is kept of the entries.
    pub entries: Vec<(String, T)>,
    /// Where the next page begins. Empty: this is the last one.
    pub next_token: String,
}

/// What to do after a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask for the page that begins here.
    Page(String),
    /// The pass is complete.
    Complete,
}

/// The driver's paging leads nowhere.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum PagingError {
    /// It comes back to where it was.
    #[error("{rpc} answered next_token {token:?} a second time, on page {page}: the driver's paging loops")]
    Loop {
        /// The RPC.
        rpc: &'static str,
        /// Seen before.
        token: String,
        /// Where it was seen again.
        page: u32,
    },
    /// It goes on without end, with a new token each time.
    #[error(
        "{rpc} went on to page {page}, and the last {BARREN_PAGES} brought nothing new: the driver's paging does not end"
    )]
    Endless {
        /// The RPC.
        rpc: &'static str,
        /// The last one that was asked for.
        page: u32,
    },
}

/// A pass that ended without a listing.
#[derive(Debug, Error)]
pub enum PassError {
    /// The driver did not answer with a page.
    #[error("page {page} of {rpc} failed")]
    Page {
        /// The RPC.
        rpc: &'static str,
        /// Which one, from 1.
        page: u32,
        /// Why.
        #[source]
        source: RpcError,
    },
    /// The driver's paging leads nowhere.
    #[error(transparent)]
    Paging(#[from] PagingError),
}

impl PassError {
    /// The result of the pass, as metrics have it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Page { source, .. } => source.label(),
            Self::Paging(PagingError::Loop { .. }) => "TokenLoop",
            Self::Paging(PagingError::Endless { .. }) => "EndlessPages",
        }
    }

    /// Whether the driver does not have the RPC, whatever its capabilities say.
    pub fn is_unimplemented(&self) -> bool {
        matches!(self, Self::Page { source, .. } if source.code == Code::Unimplemented)
    }
}

/// Asks for all pages of a list. `ask` has the token of a page, and gives each its own deadline. `E`: what ends the pass whatever the
/// driver answers, such as the end of a term.
pub async fn list<T, E, F>(
    rpc: &'static str,
    mut ask: impl FnMut(String) -> F,
) -> Result<Result<Listing<T>, PassError>, E>
where
    F: Future<Output = Result<Result<Page<T>, RpcError>, E>>,
{
    let mut listing = Listing::of(rpc);
    let mut token = String::new();
    loop {
        let page = match ask(token).await? {
            Ok(page) => page,
            Err(source) => return Ok(Err(PassError::Page { rpc, page: listing.pages() + 1, source })),
        };
        match listing.take(page) {
            Ok(Next::Page(next)) => token = next,
            Ok(Next::Complete) => return Ok(Ok(listing)),
            Err(error) => return Ok(Err(error.into())),
        }
    }
}

impl<T> Listing<T> {
    /// A pass that has just begun, with this RPC.
    pub fn of(rpc: &'static str) -> Self {
        Self { rpc, entries: BTreeMap::new(), tokens: BTreeSet::new(), pages: 0, barren: 0 }
    }

    /// Takes in one page. Of two entries with one id the later wins (attacher spec 3).
    pub fn take(&mut self, page: Page<T>) -> Result<Next, PagingError> {
        self.pages += 1;
        let known = self.entries.len();
        self.entries.extend(page.entries);
        if page.next_token.is_empty() {
            return Ok(Next::Complete);
        }
        if !self.tokens.insert(page.next_token.clone()) {
            return Err(PagingError::Loop { rpc: self.rpc, token: page.next_token, page: self.pages });
        }
        self.barren = if self.entries.len() > known { 0 } else { self.barren + 1 };
        if self.barren >= BARREN_PAGES {
            return Err(PagingError::Endless { rpc: self.rpc, page: self.pages });
        }
        Ok(Next::Page(page.next_token))
    }

    /// How many pages were taken in.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// What was kept of each entry, by its id as the driver spells it.
    pub fn entries(&self) -> &BTreeMap<String, T> {
        &self.entries
    }

    /// The same, taken out.
    pub fn into_entries(self) -> BTreeMap<String, T> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(ids: &[(&str, u8)], next_token: &str) -> Page<u8> {
        Page {
            entries: ids.iter().map(|(id, kept)| ((*id).to_owned(), *kept)).collect(),
            next_token: next_token.to_owned(),
        }
    }

    #[test]
    fn r22_pages_add_up_to_one_listing() {
        let mut listing = Listing::of("ListVolumes");
        assert_eq!(listing.take(page(&[("a", 1)], "2")), Ok(Next::Page("2".into())));
        assert_eq!(listing.take(page(&[("b", 2)], "")), Ok(Next::Complete));
        assert_eq!(listing.pages(), 2);
        assert_eq!(listing.into_entries(), BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 2)]));
    }

    #[test]
    fn r53_a_token_seen_before_ends_the_pass() {
        let mut listing = Listing::of("ListSnapshots");
        assert_eq!(listing.take(page(&[], "x")), Ok(Next::Page("x".into())));
        assert_eq!(listing.take(page(&[], "y")), Ok(Next::Page("y".into())));
        let error = listing.take(page(&[], "x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ListSnapshots answered next_token \"x\" a second time, on page 3: the driver's paging loops"
        );
    }

    #[test]
    fn pages_without_end_end_the_pass_and_pages_with_news_do_not() {
        let mut listing = Listing::of("ListVolumes");
        // Twice as many as would be too many, if they brought nothing.
        for number in 0..2 * BARREN_PAGES {
            let taken = listing.take(page(&[(&format!("v{number}"), 0)], &format!("t{number}")));
            assert!(matches!(taken, Ok(Next::Page(_))));
        }
        let last = 2 * BARREN_PAGES;
        for number in last..last + BARREN_PAGES - 1 {
            assert!(matches!(listing.take(page(&[("v0", 1)], &format!("t{number}"))), Ok(Next::Page(_))));
        }
        let error = listing.take(page(&[], "one too many")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ListVolumes went on to page 3000, and the last 1000 brought nothing new: the driver's paging does not end"
        );
    }

    #[test]
    fn of_two_entries_with_one_id_the_later_wins() {
        let mut listing = Listing::of("ListVolumes");
        assert_eq!(listing.take(page(&[("a", 1), ("a", 2)], "")), Ok(Next::Complete));
        assert_eq!(listing.into_entries()["a"], 2);
    }
}

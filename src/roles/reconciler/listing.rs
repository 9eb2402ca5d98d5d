//! A pass over `ListVolumes`, page by page. Pure: the caller makes the calls.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::csi::PublishedOn;
use crate::process::folded;
use crate::proto::ListVolumesResponse;

/// How many pages in a row may bring no volume that was not listed before. A driver may well have empty pages, where it looks
/// through what is not for us; one that has nothing else has lost its way, and each page is a call.
const BARREN_PAGES: u32 = 1_000;

/// A pass in progress.
#[derive(Debug, Default)]
pub struct Listing {
    volumes: BTreeMap<String, PublishedOn>,
    tokens: BTreeSet<String>,
    pages: u32,
    /// Pages without news since the last one with any.
    barren: u32,
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
    #[error("ListVolumes answered next_token {token:?} a second time, on page {page}: the driver's paging loops")]
    Loop {
        /// Seen before.
        token: String,
        /// Where it was seen again.
        page: u32,
    },
    /// It goes on without end, with a new token each time.
    #[error(
        "ListVolumes went on to page {page}, and the last {BARREN_PAGES} brought no new volume: the driver's paging does not end"
    )]
    Endless {
        /// The last one that was asked for.
        page: u32,
    },
}

impl Listing {
    /// Takes in one page. Entries without a volume say nothing, entries without a status say that nothing is known; of
    /// two entries for one volume the later wins (R21, spec 3).
    pub fn take(&mut self, page: ListVolumesResponse) -> Result<Next, PagingError> {
        self.pages += 1;
        let known = self.volumes.len();
        for entry in page.entries {
            let Some(volume) = entry.volume else { continue };
            let on = entry.status.map_or(PublishedOn::Unknown, |status| {
                PublishedOn::Nodes(status.published_node_ids.into_iter().collect())
            });
            self.volumes.insert(volume.volume_id, on);
        }
        if page.next_token.is_empty() {
            return Ok(Next::Complete);
        }
        if !self.tokens.insert(page.next_token.clone()) {
            return Err(PagingError::Loop { token: page.next_token, page: self.pages });
        }
        self.barren = if self.volumes.len() > known { 0 } else { self.barren + 1 };
        if self.barren >= BARREN_PAGES {
            return Err(PagingError::Endless { page: self.pages });
        }
        Ok(Next::Page(page.next_token))
    }

    /// How many pages were taken in.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// What the driver said, by ids and node ids that are [folded]. Of two volumes whose ids differ only in their spelling nothing is
    /// known: an attachment's volume may be either.
    pub fn into_volumes(self) -> BTreeMap<String, PublishedOn> {
        let mut volumes = BTreeMap::new();
        for (id, on) in self.volumes {
            let on = match on {
                PublishedOn::Nodes(nodes) => PublishedOn::Nodes(nodes.iter().map(|node| folded(node)).collect()),
                PublishedOn::Unknown => on,
            };
            volumes.entry(folded(&id)).and_modify(|known| *known = PublishedOn::Unknown).or_insert(on);
        }
        volumes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Volume, list_volumes_response};

    fn entry(id: &str, nodes: Option<&[&str]>) -> list_volumes_response::Entry {
        list_volumes_response::Entry {
            volume: Some(Volume { volume_id: id.into(), ..Volume::default() }),
            status: nodes.map(|nodes| list_volumes_response::VolumeStatus {
                published_node_ids: nodes.iter().map(ToString::to_string).collect(),
                ..list_volumes_response::VolumeStatus::default()
            }),
        }
    }

    fn page(entries: Vec<list_volumes_response::Entry>, next_token: &str) -> ListVolumesResponse {
        ListVolumesResponse { entries, next_token: next_token.into() }
    }

    #[test]
    fn r22_pages_add_up_to_one_listing() {
        let mut listing = Listing::default();
        assert_eq!(listing.take(page(vec![entry("a", Some(&["n1"]))], "2")), Ok(Next::Page("2".into())));
        assert_eq!(listing.take(page(vec![entry("b", Some(&[]))], "")), Ok(Next::Complete));
        assert_eq!(listing.pages(), 2);
        let volumes = listing.into_volumes();
        assert_eq!(volumes["a"], PublishedOn::Nodes(["n1".to_owned()].into()));
        assert_eq!(volumes["b"], PublishedOn::Nodes(BTreeSet::new()));
    }

    #[test]
    fn ids_are_listed_folded_and_nothing_is_known_of_two_that_are_then_the_same() {
        let mut listing = Listing::default();
        let named = |id: &str, node: &str| entry(id, Some(&[node]));
        let entries = vec![named("/Groups/A", "VM-1"), named("b", "n1"), named("B", "n2")];
        assert_eq!(listing.take(page(entries, "")), Ok(Next::Complete));
        let volumes = listing.into_volumes();
        assert_eq!(volumes["/groups/a"], PublishedOn::Nodes(["vm-1".to_owned()].into()));
        assert_eq!(volumes["b"], PublishedOn::Unknown);
    }

    #[test]
    fn r21_entries_without_volume_or_status_do_no_harm() {
        let mut listing = Listing::default();
        let nothing = list_volumes_response::Entry { volume: None, status: None };
        assert_eq!(listing.take(page(vec![nothing, entry("a", None)], "")), Ok(Next::Complete));
        assert_eq!(listing.into_volumes(), BTreeMap::from([("a".to_owned(), PublishedOn::Unknown)]));
    }

    #[test]
    fn r53_a_token_seen_before_ends_the_pass() {
        let mut listing = Listing::default();
        assert_eq!(listing.take(page(vec![], "x")), Ok(Next::Page("x".into())));
        assert_eq!(listing.take(page(vec![], "y")), Ok(Next::Page("y".into())));
        let error = listing.take(page(vec![], "x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ListVolumes answered next_token \"x\" a second time, on page 3: the driver's paging loops"
        );
    }

    #[test]
    fn pages_without_end_end_the_pass_and_pages_with_news_do_not() {
        let mut listing = Listing::default();
        // Twice as many as would be too many, if they brought nothing.
        for number in 0..2 * BARREN_PAGES {
            let news = entry(&format!("v{number}"), None);
            assert!(matches!(listing.take(page(vec![news], &format!("t{number}"))), Ok(Next::Page(_))));
        }
        let last = 2 * BARREN_PAGES;
        for number in last..last + BARREN_PAGES - 1 {
            let old = entry("v0", Some(&["n1"]));
            assert!(matches!(listing.take(page(vec![old], &format!("t{number}"))), Ok(Next::Page(_))));
        }
        let error = listing.take(page(vec![], "one too many")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ListVolumes went on to page 3000, and the last 1000 brought no new volume: the driver's paging does not end"
        );
    }

    #[test]
    fn of_two_entries_for_one_volume_the_later_wins() {
        let mut listing = Listing::default();
        let entries = vec![entry("a", Some(&["n1"])), entry("a", Some(&["n2"]))];
        assert_eq!(listing.take(page(entries, "")), Ok(Next::Complete));
        assert_eq!(listing.into_volumes()["a"], PublishedOn::Nodes(["n2".to_owned()].into()));
    }
}

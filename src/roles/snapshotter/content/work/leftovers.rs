//! Names the snapshots that may be left over after a refusal (snapshotter L12).
//!
//! A driver that was asked without an answer and then refuses has no snapshot, by convention. Some have one. When such a content is
//! released, the driver is asked which snapshots the volume has, and an Event names those that no content has. Nothing is deleted,
//! because each of them may have an owner. A driver that does not answer delays nothing. If the driver lists nothing, and for groups, which
//! CSI cannot list, the Event says where to look.

use std::fmt;

use tracing::debug;

use crate::csi::Client;
use crate::proto::ListSnapshotsRequest;
use crate::roles::snapshotter::content::policy::{Answer, delete::list_secret};
use crate::roles::snapshotter::content::record::{ClassView, Content, Stop};
use crate::roles::snapshotter::content::told::report;

use super::call::{Act, Driven};
use super::context::Context;

/// How many snapshots one Event names.
const MOST_NAMED: usize = 5;
/// After how many pages the search ends.
const MOST_PAGES: usize = 100;

impl<K: Driven> Act<'_, '_, K> {
    /// Asks the driver, and says what users are told.
    pub(super) async fn name_leftovers(&self) -> Result<Answer, Stop> {
        let (cx, seen) = (self.cx, self.seen);
        if !cx.rules.lists {
            return Ok(Answer::Searched(Some(report::unlisted(seen))));
        }
        let place = match list_secret(&seen.view(self.progress)) {
            Ok(place) => place,
            Err(fault) => return Ok(not_asked(&fault)),
        };
        let is_known = !matches!(seen.class(), ClassView::Unread(..));
        let Some(volume) = self.content().sources().first().filter(|_| is_known) else {
            return Ok(Answer::NotSearched);
        };
        let secrets = place.map(|_| self.secrets()).unwrap_or_default();
        let request =
            ListSnapshotsRequest { source_volume_id: volume.clone(), secrets, ..ListSnapshotsRequest::default() };
        let found = self.io.call(async move |client| Ok(unnamed(cx, &client, request).await)).await?;
        Ok(Answer::Searched((!found.is_empty()).then(|| report::leftovers(volume, &found))))
    }
}

/// The driver may want a secret, and only people can bring it. It is not asked without.
pub(super) fn not_asked(why: &dyn fmt::Display) -> Answer {
    debug!(%why, "the driver is not asked which snapshots may be left over");
    Answer::NotSearched
}

/// The snapshots that no content names.
async fn unnamed<K: Content>(cx: &Context<K>, client: &Client, mut request: ListSnapshotsRequest) -> Vec<String> {
    let mut found = Vec::new();
    for _ in 0..MOST_PAGES {
        let page = match client.list_snapshots(request.clone()).await {
            Ok(page) => page,
            Err(error) => {
                debug!(%error, "the driver does not say which snapshots may be left over");
                break;
            }
        };
        let ids = page.entries.into_iter().filter_map(|entry| Some(entry.snapshot?.snapshot_id));
        found.extend(ids.filter(|id| cx.with_handle(id).is_empty()));
        if found.len() >= MOST_NAMED || page.next_token.is_empty() || page.next_token == request.starting_token {
            break;
        }
        request.starting_token = page.next_token;
    }
    found.truncate(MOST_NAMED);
    found
}

//! A pass over `ControllerListVolumeHealth`, and what it means for the volumes that are monitored: what is listed is heard, and what was
//! wrong and is listed no more is asked for (spec C3). A pass that fails means nothing (H14).

use std::collections::BTreeMap;

use thiserror::Error;
use tracing::{debug, warn};

use crate::cluster::IdKind;
use crate::csi::{Client, RpcError};
use crate::election::TermOver;
use crate::process::error_chain;
use crate::proto::volume_health::VolumeHealthEntry;
use crate::proto::{ControllerListVolumeHealthRequest, ControllerListVolumeHealthResponse};
use crate::queue::Cause;
use crate::roles::kit::TermScope;
use crate::roles::kit::listing::{Listing, Next, Page, PagingError};

use super::condition::Abnormal;
use super::context::Context;
use super::source::Source;

/// What is wrong with each volume that is not healthy.
type Listed = BTreeMap<String, Vec<VolumeHealthEntry>>;

/// A pass that ended without a list.
#[derive(Debug, Error)]
enum PassError {
    #[error("page {page} of ControllerListVolumeHealth failed")]
    Page {
        page: u32,
        #[source]
        source: RpcError,
    },
    #[error(transparent)]
    Paging(#[from] PagingError),
    #[error(transparent)]
    TermOver(#[from] TermOver),
}

impl PassError {
    fn label(&self) -> &'static str {
        match self {
            Self::Page { source, .. } => source.label(),
            Self::Paging(PagingError::Loop { .. }) => "TokenLoop",
            Self::Paging(PagingError::Endless { .. }) => "EndlessPages",
            Self::TermOver(_) => "TermOver",
        }
    }

    fn is_unimplemented(&self) -> bool {
        matches!(self, Self::Page { source, .. } if source.code == tonic::Code::Unimplemented)
    }
}

/// Makes one pass. `scope` has the deadline of a page; `wake` adds a volume to the queue.
pub(super) async fn pass(cx: &Context, scope: &TermScope, wake: impl Fn(String, Cause)) {
    let begun = scope.clock.now();
    match list(scope, cx.section.page_size).await {
        Ok(listed) => {
            cx.probed(Source::List, begun, "OK", None);
            compare(cx, &listed, wake);
            cx.round_ended(begun);
        }
        // The next term begins with a pass of its own.
        Err(PassError::TermOver(_)) => {}
        Err(error) => {
            let told = error_chain(&error);
            if error.is_unimplemented() {
                cx.deny(Source::List);
            } else {
                warn!(error = told, "could not list the volumes that are not healthy");
            }
            cx.probed(Source::List, begun, error.label(), (!error.is_unimplemented()).then_some(told));
        }
    }
}

async fn list(scope: &TermScope, max_entries: i32) -> Result<Listed, PassError> {
    let mut listing = Listing::of(Source::List.method());
    let mut starting_token = String::new();
    loop {
        let request = ControllerListVolumeHealthRequest {
            max_entries,
            starting_token,
            ..ControllerListVolumeHealthRequest::default()
        };
        let list = async |driver: Client| driver.controller_list_volume_health(request).await;
        let page = scope.ask(list).await?.map_err(|source| PassError::Page { page: listing.pages() + 1, source })?;
        match listing.take(entries(page))? {
            Next::Page(token) => starting_token = token,
            Next::Complete => return Ok(listing.into_entries()),
        }
    }
}

/// A page. An entry in which nothing is wrong is none: only the answer to a question calls a volume healthy.
fn entries(page: ControllerListVolumeHealthResponse) -> Page<Vec<VolumeHealthEntry>> {
    let entries = page.entries.into_iter().filter(|entry| !entry.health_statuses.is_empty());
    Page {
        entries: entries.map(|entry| (entry.volume_id, entry.health_statuses)).collect(),
        next_token: page.next_token,
    }
}

/// Hears what is listed, and asks for what is listed no more. Ids that differ only in their spelling are one volume's.
fn compare(cx: &Context, listed: &Listed, wake: impl Fn(String, Cause)) {
    let key = |id: &str| IdKind::Volume.key(&cx.scope.driver_name, id);
    let listed: BTreeMap<String, Abnormal> =
        listed.iter().map(|(id, entries)| (key(id), Abnormal::of(entries))).collect();
    let mut ours = 0;
    for handle in cx.handles() {
        if let Some(abnormal) = listed.get(&key(&handle)) {
            ours += 1;
            cx.memory.change(&handle, |memory| memory.heard = Some(abnormal.clone()));
            wake(handle, Cause::Changed);
        } else if cx.is_suspect(&handle) {
            wake(handle, Cause::Resync);
        }
    }
    debug!(listed = listed.len(), ours, "listed the volumes that are not healthy");
}

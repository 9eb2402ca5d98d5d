//! The driver's lists, and what they say of the volumes that are monitored (spec C3). A pass that fails says nothing (H14).
//!
//! | | lists | a volume that is listed | one that is not, and was not healthy |
//! |---|---|---|---|
//! | `ControllerListVolumeHealth` | what is not healthy | is not healthy | is asked for |
//! | `ListVolumes` | all volumes | is as its condition says; without one, it is asked for if it was not healthy | is asked for, if the driver has `ControllerGetVolume` |

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio::time::Instant;
use tracing::{debug, warn};

use crate::cluster::IdKind;
use crate::csi::listing::{Listing, Page, PassError, list};
use crate::csi::{Client, ListedVolume, Pages};
use crate::election::TermOver;
use crate::process::error_chain;
use crate::proto::volume_health::VolumeHealthEntry;
use crate::proto::{ControllerListVolumeHealthRequest, ControllerListVolumeHealthResponse};
use crate::queue::Cause;
use crate::roles::kit::{TermScope, look_at_each};

use super::condition::{Abnormal, Condition};
use super::context::Context;
use super::source::Source;
use super::view::Listed;

/// Makes one pass over `ControllerListVolumeHealth`. `scope` has the deadline of a page; `wake` adds a volume to the queue.
pub(super) async fn pass(cx: &Context, scope: &TermScope, wake: impl Fn(String, Cause)) {
    let (began, max_entries) = (scope.clock.now(), cx.section.page_size);
    let result = list(Source::List.method(), |starting_token| async move {
        let request = ControllerListVolumeHealthRequest {
            max_entries,
            starting_token,
            ..ControllerListVolumeHealthRequest::default()
        };
        let page = scope.ask(async |driver: Client| driver.controller_list_volume_health(request).await);
        Ok::<_, TermOver>(page.await?.map(entries))
    });
    // The next term begins with a pass of its own.
    let Ok(result) = result.await else { return };
    match result {
        Ok(listing) => {
            cx.probed(Source::List, began, "OK", None);
            let conditions = listing
                .into_entries()
                .into_iter()
                .map(|(id, entries)| (id, Condition::Abnormal(Abnormal::of(&entries))));
            compare(cx, began, conditions, wake).await;
            cx.round_ended(began);
        }
        Err(error) => {
            if !error.is_unimplemented() {
                warn!(error = error_chain(&error), "could not list the volumes that are not healthy");
            }
            failed(cx, Source::List, began, &error);
        }
    }
}

/// Uses the passes over `ListVolumes` that this role and the others of the process make, until the driver does not have the call, or the
/// term is over.
pub(super) async fn shared_passes(cx: &Context, wake: impl Fn(String, Cause)) -> Result<(), TermOver> {
    let (scope, section) = (&cx.scope, &cx.section);
    let pages = Pages { size: section.page_size, timeout: section.page_timeout, yields: true };
    let (mut consumer, mut at) = (scope.passes.join(pages), scope.clock.now());
    loop {
        let Ok(source @ Source::Listing(question)) = cx.source() else { return Ok(()) };
        let pass = scope.term.unless_over(async { scope.volume_pass(consumer.next(at).await).await }).await??;
        match &pass.result {
            Ok(listing) => {
                cx.probed(source, pass.started, "OK", None);
                let wake = |handle: String, cause: Cause| {
                    // Without a question the driver cannot be asked for what the list lacks.
                    if cause != Cause::Resync || question.is_some() {
                        wake(handle, cause);
                    }
                };
                compare(cx, pass.started, conditions(listing), wake).await;
                cx.round_ended(pass.started);
            }
            Err(error) => failed(cx, source, pass.started, error),
        }
        at = scope.clock.now() + section.list_interval;
    }
}

fn failed(cx: &Context, source: Source, began: Instant, error: &PassError) {
    if error.is_unimplemented() {
        cx.deny(source);
    }
    cx.probed(source, began, error.label(), (!error.is_unimplemented()).then(|| error_chain(error)));
}

/// A page. An entry in which nothing is wrong is none: only the answer to a question calls a volume healthy.
fn entries(page: ControllerListVolumeHealthResponse) -> Page<Vec<VolumeHealthEntry>> {
    let entries = page.entries.into_iter().filter(|entry| !entry.health_statuses.is_empty());
    Page {
        entries: entries.map(|entry| (entry.volume_id, entry.health_statuses)).collect(),
        next_token: page.next_token,
    }
}

/// The conditions in the entries of `ListVolumes`. An entry without one says nothing about the health of its volume.
fn conditions(listing: &Listing<ListedVolume>) -> impl Iterator<Item = (String, Condition)> {
    let conditions = listing.entries().iter().filter_map(|(id, volume)| Some((id, volume.condition.as_ref()?)));
    conditions.map(|(id, condition)| (id.clone(), Condition::of_condition(condition)))
}

/// Uses what is listed, and asks for what was not healthy and is not listed. `began`: when the pass did.
async fn compare(
    cx: &Context,
    began: Instant,
    listed: impl Iterator<Item = (String, Condition)>,
    wake: impl Fn(String, Cause),
) {
    let key = |id: &str| IdKind::Volume.key(&cx.scope.driver_name, id);
    let listed = by_key(listed.map(|(id, condition)| (key(&id), condition))).await;
    let (mut ours, mut abnormal) = (0, 0);
    look_at_each(cx.handles().await, |handle| {
        let condition = listed.get(&key(&handle));
        ours += usize::from(condition.is_some());
        abnormal += usize::from(condition.is_some_and(|it| *it != Condition::Normal));
        match condition {
            Some(Condition::Normal) if !cx.is_suspect(&handle) => {}
            Some(condition) => {
                let listed = Listed { condition: condition.clone(), began };
                if cx.memory.change(&handle, |memory| memory.list(listed)) {
                    wake(handle, Cause::Changed);
                }
            }
            None if cx.is_suspect(&handle) => wake(handle, Cause::Resync),
            None => {}
        }
    })
    .await;
    debug!(listed = listed.len(), ours, abnormal, "the driver has listed how its volumes are");
}

/// Ids that differ only in their spelling are one volume's. What is wrong with one of them counts.
async fn by_key(listed: impl Iterator<Item = (String, Condition)>) -> BTreeMap<String, Condition> {
    let mut conditions = BTreeMap::new();
    look_at_each(listed, |(key, condition)| match conditions.entry(key) {
        Entry::Vacant(vacant) => drop(vacant.insert(condition)),
        Entry::Occupied(mut held) if *held.get() == Condition::Normal => drop(held.insert(condition)),
        Entry::Occupied(_) => {}
    })
    .await;
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn i1_of_two_entries_for_one_volume_the_bad_one_counts() {
        let bad = Condition::Abnormal(Abnormal { text: "no path".to_owned(), ..Abnormal::default() });
        for listed in [[Condition::Normal, bad.clone()], [bad.clone(), Condition::Normal]] {
            let conditions = by_key(listed.into_iter().map(|condition| ("v".to_owned(), condition))).await;
            assert_eq!(conditions, BTreeMap::from([("v".to_owned(), bad.clone())]));
        }
    }
}

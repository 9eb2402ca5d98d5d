//! The requests about a content. Every write goes through the fence of the term, carries a precondition, and hands the server's answer
//! to the cache, so that the next look sees it.

use tracing::warn;

use crate::cluster::{IdKind, ObjectName, Patch, VolumeSnapshot};
use crate::roles::kit::freshness::CATCH_UP;
use crate::roles::kit::{self, Op};

use super::across;
use super::attempt::{ContentEnd, Done};
use super::context::{Context, Objects};
use super::decide::is_ours;
use super::error::{BEGIN, CONFIRM, InvalidSnapshot, READ_END, READ_OWNER, SEEK, Stop};
use super::facts;
use super::kind::Content;
use super::request::Asked;
use super::view::OwnerNeed;
use super::writes;

/// Puts mark and request back while the driver is called.
pub(super) async fn restore<K: Content>(cx: &Context<K>, now: &Objects<K>, asked: &Asked) -> Result<(), Stop> {
    let held = cx.stores.contents.get(&now.name()).filter(|held| held.meta().uid == now.content.meta().uid);
    let Some(content) = held else { return Ok(()) };
    let now = cx.about(content, true);
    if let Some(patch) = writes::begun(&*now.content, &asked.intent) {
        warn!("somebody has removed the mark of an unanswered call from the content, and it is put back");
        patch_content(cx, &now, &patch, BEGIN).await?;
    }
    Ok(())
}

/// Has the API confirm that the content is what the cache says, or that it is gone.
pub(super) async fn confirm<K: Content>(cx: &Context<K>, now: &Objects<K>) -> Result<Done, Stop> {
    let api = cx.api()?;
    let name = now.name();
    let found = api.get_opt::<K>(&name).await.map_err(|error| CONFIRM.failed(error))?;
    let Some(found) = found else { return Ok(Done::Gone) };
    if found.meta().uid != now.content.meta().uid {
        if !now.exists {
            return Ok(Done::Gone);
        }
        // The cache takes a namesake only from its own watch, so another look would see no more than this one did.
        return Err(kit::Stop::Behind(InvalidSnapshot::Replaced(name.to_string()).into()));
    }
    if !now.exists {
        // The cache of a node has the contents of that node alone.
        return if is_ours(&found, &cx.rules) { Err(Stop::Later(CATCH_UP)) } else { Ok(Done::Others) };
    }
    cx.stores.contents.apply_own_write(found);
    cx.memory.confirmed.note(now.uid());
    Ok(Done::Confirmed)
}

/// Looks for another content with this snapshot, in the whole cluster.
pub(super) async fn seek<K: Content>(cx: &Context<K>, now: &Objects<K>, handle: &str) -> Result<Done, Stop> {
    let api = cx.api()?;
    let keepers = cx.scope.term.unless_over(cx.elsewhere.keepers::<K>(&api, &cx.rules.request.driver)).await?;
    let keepers = keepers.map_err(|error| SEEK.failed(error))?;
    let key = IdKind::Snapshot.key(&cx.rules.request.driver, handle);
    let other = keepers.get(&key).into_iter().flatten().find(|(uid, _)| uid != now.uid());
    Ok(Done::Sought(other.map(|(_, name)| format!("{} {name}", K::KIND))))
}

/// Reads whose the `VolumeSnapshot` of a content is. No cache has them: they are needed before the deletion of some groups alone.
pub(super) async fn read_owner<K: Content>(cx: &Context<K>, now: &Objects<K>, need: OwnerNeed) -> Result<Done, Stop> {
    let OwnerNeed { content, snapshot: named } = need;
    let api = cx.scope.api.use_now()?;
    let read = api.get_opt::<VolumeSnapshot>(&ObjectName::namespaced(&named.namespace, &named.name)).await;
    let snapshot = read.map_err(|error| READ_OWNER.failed(error))?;
    Ok(Done::Owner(content, across::ownership(snapshot.as_ref(), &named, now.content.owner())))
}

/// Reads from the API's history which policy the content had when it was removed.
pub(super) async fn read_end<K: Content>(cx: &Context<K>, now: &Objects<K>) -> Result<Done, Stop> {
    let (api, since) = (cx.api()?, now.content.meta().resource_version.clone().unwrap_or_default());
    let end = cx.scope.term.unless_over(api.last_state::<K>(&now.name(), now.uid(), &since)).await?;
    Ok(Done::End(match end.map_err(|error| READ_END.failed(error))? {
        None => ContentEnd::Unknown,
        Some(last) if facts::is_policy_delete(&last) => ContentEnd::Delete,
        Some(_) => ContentEnd::Retain,
    }))
}

/// Writes to the content. Says whether that has removed the last finalizer of a content that is being deleted: such a content is gone.
pub(super) async fn patch_content<K: Content>(
    cx: &Context<K>,
    now: &Objects<K>,
    patch: &Patch,
    op: Op,
) -> Result<Done, Stop> {
    let api = cx.api()?;
    let written = api.patch::<K>(&now.name(), patch).await.map_err(|error| op.failed(error))?;
    let is_gone = written.meta().deletion_timestamp.is_some() && written.meta().finalizers().is_empty();
    shown(cx, now, written);
    Ok(if is_gone { Done::Gone } else { Done::Nothing })
}

pub(super) async fn patch_status<K: Content>(
    cx: &Context<K>,
    now: &Objects<K>,
    patch: &Patch,
    op: Op,
) -> Result<(), Stop> {
    let api = cx.api()?;
    let written = api.patch_status::<K>(&now.name(), patch).await;
    shown(cx, now, written.map_err(|error| op.failed(error))?);
    Ok(())
}

/// The API has shown the content.
fn shown<K: Content>(cx: &Context<K>, now: &Objects<K>, written: K) {
    cx.stores.contents.apply_own_write(written);
    cx.memory.confirmed.note(now.uid());
}

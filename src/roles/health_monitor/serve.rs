//! One term of the health monitor: its queue, what feeds it, and its rounds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, sleep_until};
use tracing::{info, info_span};

use crate::cluster::{BY_CLAIM, Cache, Change, ObjectName, Origin, PersistentVolume, PersistentVolumeClaim, ToldEvent};
use crate::diagnostics::{Age, Fact};
use crate::election::{Term, TermOver};
use crate::queue::{Activation, Cause, WorkQueue};
use crate::roles::kit::{Controllers, Store, TermScope, queues};
use crate::roles::role::{RoleContext, RoleError, Serve};

use super::config::{HealthMonitorSection, Report};
use super::context::Context;
use super::node_watch::{NodeCaches, NodeWatch};
use super::older_events::{self, OlderEvents, PAUSE};
use super::pass::{pass, shared_passes};
use super::reconcile::Volumes;
use super::source::Source;
use super::{NAME, names};

/// How often it is looked whether a round has come to its end.
const LOOK: Duration = Duration::from_secs(1);
/// The role fails when the driver has not answered for so many intervals (spec C5).
const PATIENCE: u32 = 5;

/// The role.
#[derive(Debug)]
pub(super) struct HealthMonitor {
    pub(super) section: HealthMonitorSection,
    pub(super) volumes: Cache<PersistentVolume>,
    pub(super) claims: Cache<PersistentVolumeClaim>,
    /// With `nodeWatch`.
    pub(super) nodes: Option<NodeCaches>,
}

impl Serve for HealthMonitor {
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        let synced = async { (self.claims.synced().await, self.volumes.synced().await) };
        if term.unless_over(synced).await.is_err() {
            return Ok(());
        }
        let section = &self.section;
        let (volumes, claims) = (Store::of(&self.volumes), Store::of(&self.claims));
        let cx = Arc::new(Context::new(
            TermScope::with_timeout(role, &term, section.timeout),
            section.clone(),
            volumes,
            claims,
        ));
        let Ok(Ok(is_read)) = term.unless_over(read_events(&cx)).await else { return Ok(()) };
        match cx.source() {
            Ok(source) => info!(method = source.method(), "monitoring the health of volumes"),
            Err(why) => info!(%why, "the health of volumes is not monitored"),
        }
        let span = |handle: &String| info_span!(parent: None, "volume", role = NAME, volume = %handle);
        let queue = queues::make(role, names::QUEUE, &[("ask", section.workers)], section.backoff(), span);
        let mut controllers = Controllers::new(NAME, &role.board, &cx.scope);
        controllers.follow(&cx.claims);
        controllers.follow(&cx.volumes);
        let subject = {
            let cx = Arc::clone(&cx);
            move |handle: &String| cx.volumes(handle).first()?.subject()
        };
        controllers.drive(&queue, "Volumes whose health is to be found out", subject, Volumes(Arc::clone(&cx)));
        follow(&cx, &queue, &mut controllers);
        let pages = TermScope::with_timeout(role, &term, Some(section.page_timeout));
        controllers.task("rounds", rounds(Arc::clone(&cx), queue, pages));
        if !is_read {
            controllers.task("older Events", read_events_again(Arc::clone(&cx)));
        }
        let nodes = self.nodes.as_ref().map(|nodes| NodeWatch::begin(&cx, nodes, &mut controllers));
        let shown = Arc::new((Arc::clone(&cx), nodes));
        controllers.show_facts(&shown, |(cx, nodes)| facts(cx, nodes.as_deref()));
        controllers.show_failure(&cx, failure);
        let served = controllers.serve().await;
        cx.memory.end();
        cx.gauges.end();
        served
    }
}

/// Reads what the last leader has reported in Events, so that this one does not repeat it, and reports its end (spec C4). Returns whether
/// that could be read.
async fn read_events(cx: &Context) -> Result<bool, TermOver> {
    if cx.section.report == Report::Status {
        return Ok(true);
    }
    let reasons = [names::ABNORMAL, names::NORMAL];
    let Some(OlderEvents { mut wrong, ended }) = older_events::read(cx, "the health of volumes", reasons).await? else {
        return Ok(false);
    };
    wrong.sort_by_key(|event| std::cmp::Reverse(event.last));
    for event in wrong {
        let uid = event.about.uid.as_str();
        let is_over = |it: &ToldEvent| it.about.uid == event.about.uid && it.last >= event.last;
        let volumes = cx.volumes.find(BY_CLAIM, uid);
        for handle in volumes.iter().filter(|_| !ended.iter().any(is_over)).filter_map(|it| cx.handle(it)) {
            // It is repeated an hour from now: other clocks are not compared with this one. What this term has reported is newer.
            let abnormal = (event.message.clone(), cx.scope.clock.now());
            cx.memory.change(&handle, |memory| {
                memory.reported.entry(uid.to_owned()).or_default().abnormal.get_or_insert(abnormal);
            });
        }
    }
    Ok(true)
}

/// Reads older Events again until the API server has answered.
async fn read_events_again(cx: Arc<Context>) {
    loop {
        sleep(PAUSE).await;
        if matches!(read_events(&cx).await, Ok(true) | Err(TermOver)) {
            // The end of a task counts as a failure.
            return std::future::pending().await;
        }
    }
}

/// Asks for volumes that are bound from now on, and forgets those that are gone.
fn follow(cx: &Arc<Context>, queue: &WorkQueue<String>, controllers: &mut Controllers) {
    controllers.on_store(&cx.claims, {
        let (cx, queue) = (Arc::clone(cx), queue.clone());
        move |change: &Change<PersistentVolumeClaim>| {
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            if let Some(gone) = change.gone() {
                cx.gauges.show(&ObjectName::of(gone.as_ref()), None);
            }
            let is_bound_now = new.is_some_and(|new| old.is_none_or(|old| old.status.phase != new.status.phase));
            let volume = new.filter(|_| is_bound_now).and_then(|new| new.spec.volume_name.as_deref());
            if let Some(volume) = volume.and_then(|name| cx.volumes.named(name)) {
                ask_for(&cx, &queue, &volume, change.origin);
            }
        }
    });
    controllers.on_store(&cx.volumes, {
        let (cx, queue) = (Arc::clone(cx), queue.clone());
        move |change: &Change<PersistentVolume>| {
            let (old, new) = (change.old.as_deref(), change.new.as_deref());
            if let Some(new) = new.filter(|new| old.is_none_or(|old| old.phase != new.phase)) {
                ask_for(&cx, &queue, new, change.origin);
            }
            let gone = change.gone().and_then(|gone| cx.handle(gone));
            if let Some(handle) = gone.filter(|handle| cx.volumes(handle).is_empty()) {
                queue.forget(&handle);
                cx.memory.forget(&handle);
            }
        }
    });
}

/// Asks for a volume that has been bound since the term began (H12). The others have their turn in the first round, and a list has all.
fn ask_for(cx: &Context, queue: &WorkQueue<String>, volume: &PersistentVolume, origin: Origin) {
    if origin == Origin::Replay || !matches!(cx.source(), Ok(Source::Get(_))) {
        return;
    }
    if let Some((handle, _)) = cx.monitored(volume) {
        queue.add(handle, Activation::of(Cause::Changed));
    }
}

/// Makes one round or pass after the other.
async fn rounds(cx: Arc<Context>, queue: WorkQueue<String>, pages: TermScope) {
    let wake = |handle, cause| queue.add(handle, Activation::of(cause));
    loop {
        match cx.source() {
            Ok(Source::List) => {
                pass(&cx, &pages, wake).await;
                // Without the list, each volume is asked for, and that at once.
                if cx.source() == Ok(Source::List) {
                    sleep(cx.section.list_interval).await;
                }
            }
            Ok(Source::Listing(_)) => {
                if shared_passes(&cx, wake).await.is_err() {
                    // The end of a task counts as a failure.
                    return std::future::pending().await;
                }
            }
            Ok(Source::Get(_)) => round(&cx, &queue).await,
            Err(_) => sleep(cx.section.interval).await,
        }
    }
}

/// Asks for each volume once, spread evenly over the interval. If the workers do not get that done, it takes longer (spec C3).
async fn round(cx: &Context, queue: &WorkQueue<String>) {
    let begun = cx.scope.clock.now();
    let (interval, handles) = (cx.section.interval, cx.handles().await);
    let share = interval.as_secs_f64() / f64::from(u32::try_from(handles.len().max(1)).unwrap_or(u32::MAX));
    let is_empty = handles.is_empty();
    for (number, handle) in (0_u32..).zip(handles) {
        sleep_until(begun + Duration::from_secs_f64(share * f64::from(number))).await;
        // A volume that waits after a failure goes on waiting.
        queue.add(handle, Activation::of(Cause::Resync));
    }
    while queue.snapshot().iter().any(|item| item.next_run_in.is_none()) {
        sleep(LOOK.min(interval)).await;
    }
    if !is_empty {
        cx.round_ended(begun);
    }
    sleep_until(begun + interval).await;
}

/// The role's facts on the status page.
fn facts(cx: &Context, nodes: Option<&NodeWatch>) -> Vec<Fact> {
    let source = match cx.source() {
        Ok(source) => Fact::new("source", source.method()),
        Err(why) => Fact::new("idle", why.to_string()),
    };
    let abnormal = cx.memory.collect(|memory| memory.abnormal).len();
    let last =
        cx.last_round().map(|(ago, took)| Fact::new("last round", format!("{} ago, took {}", Age(ago), Age(took))));
    let nodes = nodes.map(|nodes| match nodes.unknown() {
        Some(why) => Fact::new("failed nodes", format!("not known: {why}")),
        None => Fact::new("failed nodes", nodes.failed().to_string()),
    });
    let unread = cx.unread().into_iter();
    let unread = unread.map(|(subject, error)| Fact::new("cannot read older Events", format!("{subject}: {error}")));
    let facts = [source, Fact::new("not healthy", format!("{abnormal} volumes"))];
    facts.into_iter().chain(last).chain(nodes).chain(unread).collect()
}

/// That the driver has not answered for long.
fn failure(cx: &Context) -> Option<String> {
    let is_list = cx.source().is_ok_and(Source::is_list);
    let interval = if is_list { cx.section.list_interval } else { cx.section.interval };
    cx.failure(interval.saturating_mul(PATIENCE))
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "serve_tests.rs"]
mod tests;

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "listing_tests.rs"]
mod listing_tests;

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "node_watch_tests.rs"]
mod node_watch_tests;

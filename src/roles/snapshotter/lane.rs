//! The contents of one kind during a term: their queue, what feeds it, and the attempts.

use std::sync::Arc;
use std::time::Duration;

use tracing::info_span;

use crate::cluster::EventKind;
use crate::election::Term;
use crate::roles::kit::{Controllers, EventsMode, KeyedLock, Memory, Store, TermScope, UnknownValues, queues};
use crate::roles::role::RoleContext;

use super::NAME;
use super::config::SnapshotterSection;
use super::content::policy::Rules;
use super::content::record::{NameRule, RequestRules, across::Across, unknown::of_content};
use super::content::told::waiting::{GROUPS, Gauges, Waiting};
use super::content::work::context::{Stores, Turns};
use super::content::work::{
    Caches, Context, Driven, elsewhere::Elsewhere, memory::ContentKey, reconcile::Contents, triggers,
};

/// How often the daemon looks which contents have waited for long.
const LOOK_AT_WAITS: Duration = Duration::from_secs(10);

/// What snapshots and groups share during a term.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    gauges: Arc<Gauges>,
    turns: Arc<Turns>,
    across: Across,
}

impl Shared {
    /// Of a new term.
    pub(super) fn new(role: &RoleContext, across: Across) -> Self {
        let line = || KeyedLock::new(role.clock);
        let gauges = Gauges::new(role.meter.clone(), role.driver.name.clone());
        let turns = Turns { lines: line(), looks: line(), names: line() };
        Self { gauges: Arc::new(gauges), turns: Arc::new(turns), across }
    }
}

/// What is set for one kind alone.
#[derive(Debug)]
pub(super) struct Lane<'a, K: Driven> {
    /// The caches.
    pub(super) caches: &'a Caches<K>,
    /// The queue's name.
    pub(super) queue: &'static str,
    /// How many are taken at once, and how many deleted.
    pub(super) workers: (usize, usize),
    /// The names of their requests to the driver.
    pub(super) names: NameRule,
    /// Whose contents are served.
    pub(super) node: Option<String>,
    /// The driver takes, lists and can be asked for one.
    pub(super) capabilities: [bool; 3],
}

impl<K: Driven> Lane<'_, K> {
    /// What every attempt of the term shares.
    pub(super) fn context(
        self,
        role: &RoleContext,
        term: &Term,
        section: &SnapshotterSection,
        shared: &Shared,
    ) -> Arc<Context<K>> {
        let scope = TermScope::with_timeout(role, term, section.timeout).with_events(section.events);
        let [takes, lists, gets] = self.capabilities;
        let driver = scope.driver_name.clone();
        let rules = Rules {
            request: RequestRules { driver, names: self.names, extra_metadata: section.extra_create_metadata },
            node: self.node,
            takes,
            lists,
            gets,
            groups: role.driver.capabilities.group_snapshots(),
            secret_namespaces: section.deletion_secret_namespaces.clone(),
            delete_without_secret: section.delete_without_secret,
        };
        let span = |key: &ContentKey| info_span!(parent: None, "content", role = NAME, kind = K::KIND, volume_snapshot_content = %key);
        let lanes = [("create", self.workers.0), ("delete", self.workers.1)];
        let queue = queues::make(role, self.queue, &lanes, section.retry.backoff(), span);
        let gauges = Arc::clone(&shared.gauges);
        let count = move |group, count| gauges.show(K::NAMES.word, group, count);
        Arc::new(Context {
            scope: Arc::new(scope),
            section: Arc::new(section.clone()),
            rules: Arc::new(rules),
            stores: Stores {
                contents: Store::of(&self.caches.contents),
                caches: self.caches.clone(),
                across: shared.across.clone(),
                elsewhere: Elsewhere::default(),
            },
            queue,
            turns: Arc::clone(&shared.turns),
            memory: Memory::counting(&GROUPS, count),
            gauges: Arc::clone(&shared.gauges),
        })
    }
}

/// Works the contents of a kind whose caches are complete.
pub(super) fn work<K: Driven>(cx: &Arc<Context<K>>, title: &'static str, controllers: &mut Controllers) {
    let subject = {
        let cx = Arc::clone(cx);
        move |key: &ContentKey| {
            let content = cx.find(key)?.content;
            let owner = content.owner();
            Some(format!("{}/{}", owner.namespace, owner.name))
        }
    };
    controllers.follow(&cx.stores.contents);
    controllers.drive(&cx.queue, title, subject, Contents(Arc::clone(cx)));
    triggers::follow(cx, controllers);
    let unknown = UnknownValues::shown(cx.scope.clock, controllers);
    let driver = cx.scope.driver_name.clone();
    controllers.on_store(&cx.stores.contents, unknown.of(move |content: &K| of_content(content, &driver)));
    controllers.resync(cx.section.resync, Arc::clone(cx), |cx| async move { triggers::look_at_all(&cx).await });
    let cx = Arc::clone(cx);
    controllers.task("waits", async move {
        let mut looks = tokio::time::interval(LOOK_AT_WAITS);
        loop {
            tokio::select! {
                () = cx.gauges.turned.notified() => {}
                _ = looks.tick() => tell_long_waits(&cx),
            }
            let now = cx.scope.clock.now();
            let since = cx.memory.collect(|memory| Some(memory.facts.waiting.as_ref()?.since)).into_iter().min();
            let age = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            cx.gauges.show_oldest(K::NAMES.word, age);
        }
    });
}

/// The contents that wait.
pub(super) fn waiting<K: Driven>(cx: &Context<K>) -> Vec<Waiting> {
    cx.memory.collect(|memory| memory.facts.waiting.clone())
}

/// The term has ended: the next leader tells what waits.
pub(super) fn end<K: Driven>(cx: &Context<K>) {
    cx.memory.end();
    cx.gauges.show_oldest(K::NAMES.word, Duration::ZERO);
}

/// Tells what contents have been waiting for, once that takes more than a minute.
fn tell_long_waits<K: Driven>(cx: &Context<K>) {
    let (now, mut events) = (cx.scope.clock.now(), Vec::new());
    cx.memory.change_all(|_, memory| events.extend(memory.facts.waiting.as_mut().and_then(|it| it.event(now))));
    for (targets, says) in events.into_iter().filter(|_| cx.section.events != EventsMode::None) {
        for target in targets {
            cx.scope.event(&target, EventKind::Normal, "SnapshotWaiting", &says);
        }
    }
}

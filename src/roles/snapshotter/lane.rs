//! The contents of one kind during a term: their queue, what feeds it, and the attempts.

use std::sync::Arc;
use std::time::Duration;

use tracing::info_span;

use crate::election::Term;
use crate::roles::kit::freshness::ListedOnce;
use crate::roles::kit::report::FailureLog;
use crate::roles::kit::{Controllers, KeyedLock, TermScope, UnknownValues, queues};
use crate::roles::role::RoleContext;

use super::NAME;
use super::config::SnapshotterSection;
use super::content::across::Across;
use super::content::call::Driven;
use super::content::context::{Context, Stores};
use super::content::elsewhere::Elsewhere;
use super::content::memory::{ContentKey, Memory};
use super::content::reconcile::Contents;
use super::content::request::{NameRule, RequestRules};
use super::content::triggers;
use super::content::unknown::of_content;
use super::content::view::Rules;
use super::content::waiting::Waiting;

/// How often the daemon looks which contents have waited for long.
const LOOK_AT_WAITS: Duration = Duration::from_secs(10);

/// What snapshots and groups share during a term.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    /// Contents that wait.
    pub(super) waiting: Arc<Waiting>,
    lines: Arc<KeyedLock<String>>,
    looks: Arc<KeyedLock<String>>,
    across: Across,
}

impl Shared {
    /// Of a new term.
    pub(super) fn new(role: &RoleContext, across: Across) -> Self {
        let waiting = Waiting::new(role.meter.clone(), role.driver.name.clone(), role.clock);
        let line = || Arc::new(KeyedLock::new(role.clock));
        Self { waiting: Arc::new(waiting), lines: line(), looks: line(), across }
    }
}

/// What is set for one kind alone.
#[derive(Debug)]
pub(super) struct Lane<'a, K: Driven> {
    /// The caches.
    pub(super) stores: &'a Stores<K>,
    /// The queue's name.
    pub(super) queue: &'static str,
    /// How many are taken at once, and how many deleted.
    pub(super) workers: (usize, usize),
    /// How they are called at the driver.
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
        let scope = TermScope::with_timeout(NAME, role, term, section.timeout).with_events(section.events);
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
        Arc::new(Context {
            waiting: Arc::clone(&shared.waiting),
            scope,
            section: section.clone(),
            stores: self.stores.clone(),
            across: shared.across.clone(),
            rules,
            queue,
            lines: Arc::clone(&shared.lines),
            looks: Arc::clone(&shared.looks),
            memory: Memory::default(),
            relisted: ListedOnce::default(),
            elsewhere: Elsewhere::default(),
            failures: FailureLog::default(),
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
    controllers.reconcile(&cx.queue, title, subject, Contents(Arc::clone(cx)));
    triggers::follow(cx, controllers);
    let unknown = UnknownValues::shown(cx.scope.clock, controllers);
    let driver = cx.scope.driver_name.clone();
    controllers.on(&cx.stores.contents, unknown.of(move |content: &K| of_content(content, &driver)));
    controllers.resync(cx.section.resync, {
        let cx = Arc::clone(cx);
        move || triggers::look_at_all(&cx)
    });
    controllers.task("waits", {
        let cx = Arc::clone(cx);
        async move {
            loop {
                tokio::time::sleep(LOOK_AT_WAITS).await;
                cx.tell_long_waits();
            }
        }
    });
}

//! One term's queues, with their triggers and their status rows.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, select_all, try_join_all};
use tracing::debug;

use crate::cluster::{Cache, Cached, Change, Subscription};
use crate::diagnostics::{Board, Cell, Fact, Registered, Table};
use crate::process::{TaskEnds, Tasks};
use crate::queue::{Key, Outcome, Ticket, WorkQueue};
use crate::roles::role::RoleError;

use super::drive::{Admit, Reconcile, admit, drive};
use super::queues;
use super::scope::TermScope;
use super::store::Store;

/// One term's queues, triggers, tasks and status rows. They begin with [`serve`](Controllers::serve), the triggers first, and end together
/// with the term.
pub struct Controllers {
    role: &'static str,
    board: Board,
    scope: Arc<TermScope>,
    tasks: Tasks,
    ends: TaskEnds,
    work: Vec<BoxFuture<'static, Result<(), RoleError>>>,
    subscriptions: Vec<Subscription>,
    /// Tasks that have not begun.
    later: Vec<(&'static str, BoxFuture<'static, ()>)>,
    shown: Vec<Registered>,
}

/// A trigger that needs something that others share.
pub fn with<T, K>(
    shared: &Arc<T>,
    trigger: impl Fn(&T, &Change<K>) + Send + Sync + 'static,
) -> impl Fn(&Change<K>) + Send + Sync + 'static
where
    T: Send + Sync + 'static,
    K: 'static,
{
    let shared = Arc::clone(shared);
    move |change| trigger(&shared, change)
}

impl Controllers {
    /// Nothing yet. All attempts work with `scope`, until its term is over.
    pub fn new(role: &'static str, board: &Board, scope: &Arc<TermScope>) -> Self {
        let (tasks, ends) = Tasks::new(role);
        let shown = vec![board.tasks(tasks.view())];
        let (board, scope) = (board.clone(), Arc::clone(scope));
        let (work, subscriptions, later) = (Vec::new(), Vec::new(), Vec::new());
        Self { role, board, scope, tasks, ends, work, subscriptions, later, shown }
    }

    /// Runs a queue with the attempt loop. `title` describes the keys, `subject` the object of a key.
    pub fn drive<R: Reconcile>(
        &mut self,
        queue: &WorkQueue<R::Key>,
        title: &'static str,
        subject: impl Fn(&R::Key) -> Option<String> + Send + Sync + 'static,
        reconciler: R,
    ) {
        let both = Arc::new((reconciler, Arc::clone(&self.scope)));
        self.handle(queue, title, subject, move |ticket| {
            let both = Arc::clone(&both);
            async move { drive(&both.0, &both.1, ticket).await }.boxed()
        });
    }

    /// Runs a queue with the attempt loop. Before each attempt, `admission` decides whether the key is for this daemon.
    pub fn drive_admitted<A, R>(
        &mut self,
        queue: &WorkQueue<R::Key>,
        title: &'static str,
        subject: impl Fn(&R::Key) -> Option<String> + Send + Sync + 'static,
        admission: A,
        reconciler: R,
    ) where
        A: Admit<Key = R::Key>,
        R: Reconcile,
    {
        let all = Arc::new((admission, reconciler, Arc::clone(&self.scope)));
        self.handle(queue, title, subject, move |mut ticket| {
            let all = Arc::clone(&all);
            async move {
                let (admission, reconciler, scope) = &*all;
                match admit(admission, scope, &mut ticket).await {
                    Some(outcome) => outcome,
                    None => drive(reconciler, scope, ticket).await,
                }
            }
            .boxed()
        });
    }

    /// Runs a queue with a handler that needs no loop.
    pub fn handle<K: Key>(
        &mut self,
        queue: &WorkQueue<K>,
        title: &'static str,
        subject: impl Fn(&K) -> Option<String> + Send + Sync + 'static,
        handler: impl Fn(Ticket<K>) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) {
        self.shown.extend(queues::show(&self.board, self.role, queue, title, subject));
        let (queue, stop) = (queue.clone(), self.scope.term.stopping());
        self.work.push(async move { queue.run(stop, handler).await }.map(Ok).boxed());
    }

    /// Runs other work, which must end when the term is over.
    pub fn also(&mut self, work: impl Future<Output = Result<(), RoleError>> + Send + 'static) {
        self.work.push(work.boxed());
    }

    /// Calls `trigger` for every cached object, and then for every change, from [`Self::serve`] on: each trigger for the cached objects of
    /// its kind after the triggers that were added before. A trigger adds keys to queues; it must be quick. If it panics, this role's
    /// term fails, and other roles are not affected.
    pub fn on<K: Cached>(&mut self, cache: &Cache<K>, trigger: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.subscriptions.push(cache.subscribe_later(trigger));
    }

    /// The same for the objects of a store.
    pub fn on_store<K: Cached>(&mut self, store: &Store<K>, trigger: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.on(store.cache(), trigger);
    }

    /// Lets a store forget what it knows of objects that go.
    pub fn follow<K: Cached>(&mut self, store: &Store<K>) {
        let known = store.clone();
        self.subscriptions.push(store.cache().subscribe_to_changes(move |change| known.changed(change)));
    }

    /// Calls `look` with `shared` once per interval, in case a wake-up was missed. Zero: never. It walks over all objects, so that it must leave other
    /// tasks their turn: [`look_at_each`](super::look_at_each).
    pub fn resync<T, F>(&mut self, every: Duration, shared: T, look: impl Fn(T) -> F + Send + Sync + 'static)
    where
        T: Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send,
    {
        if every.is_zero() {
            return;
        }
        self.task("resync", async move {
            loop {
                tokio::time::sleep(every).await;
                debug!("resync");
                look(shared.clone()).await;
            }
        });
    }

    /// Starts a task that must run until the term ends.
    pub fn task(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.later.push((name, task.boxed()));
    }

    /// Keeps a row or a table on the status page for as long as the term lasts.
    pub fn show(&mut self, registered: Registered) {
        self.shown.push(registered);
    }

    /// Keeps a table of the role on the status page for as long as the term lasts. Its rows are read from what others share.
    pub fn show_table<T: Send + Sync + 'static>(
        &mut self,
        table: &'static Table,
        shared: &Arc<T>,
        rows: impl Fn(&T) -> Vec<Vec<Cell>> + Send + Sync + 'static,
    ) {
        let shared = Arc::clone(shared);
        self.shown.push(self.board.table(self.role, table, move || rows(&shared)));
    }

    /// The same for facts of the role.
    pub fn show_facts<T: Send + Sync + 'static>(
        &mut self,
        shared: &Arc<T>,
        facts: impl Fn(&T) -> Vec<Fact> + Send + Sync + 'static,
    ) {
        let shared = Arc::clone(shared);
        self.shown.push(self.board.facts(self.role, move || facts(&shared)));
    }

    /// The same for what the role itself has found to fail, while it does.
    pub fn show_failure<T: Send + Sync + 'static>(
        &mut self,
        shared: &Arc<T>,
        failure: impl Fn(&T) -> Option<String> + Send + Sync + 'static,
    ) {
        let shared = Arc::clone(shared);
        self.shown.push(self.board.failure(self.role, move || failure(&shared)));
    }

    /// Runs until the term is over and the work in flight has ended. It fails if some work fails, a task ends or a trigger panics
    /// before.
    pub async fn serve(self) -> Result<(), RoleError> {
        let Self { scope, tasks, mut ends, work, subscriptions, later, shown, .. } = self;
        let work = async {
            for subscription in &subscriptions {
                subscription.replay().await;
            }
            for (name, task) in later {
                tasks.spawn(name, task);
            }
            try_join_all(work).await
        };
        let result = tokio::select! {
            biased;
            // A lost Lease ends everything at once: another replica may lead already.
            () = scope.term.lost() => Ok(()),
            ended = work => ended.map(drop),
            Some(end) = ends.next() => Err(RoleError::TaskEnded(end)),
            error = panicked(&subscriptions) => Err(error),
        };
        drop(subscriptions);
        drop(shown);
        tasks.abort_all();
        result
    }
}

/// Waits until a trigger has panicked: from then on it gets no changes of the cluster.
async fn panicked(subscriptions: &[Subscription]) -> RoleError {
    if subscriptions.is_empty() {
        return std::future::pending().await;
    }
    let (message, _, _) = select_all(subscriptions.iter().map(|subscription| Box::pin(subscription.panicked()))).await;
    RoleError::SubscriberPanicked(message)
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "controllers_tests.rs"]
mod tests;

//! One term's queues, with what feeds them and what is shown of them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, select_all, try_join_all};
use tracing::debug;

use crate::cluster::{Cache, Cached, Change, Subscription};
use crate::diagnostics::{Board, Registered};
use crate::election::Term;
use crate::process::{TaskEnds, Tasks};
use crate::queue::{Key, Outcome, Ticket, WorkQueue};
use crate::roles::role::RoleError;

use super::queues;
use super::reconcile::{Admission, Reconciler, reconcile, reconcile_admitted};

/// One term's queues, triggers, tasks and status rows. They begin when they are added, and end together with the term.
pub struct Controllers {
    role: &'static str,
    board: Board,
    term: Term,
    tasks: Tasks,
    ends: TaskEnds,
    work: Vec<BoxFuture<'static, Result<(), RoleError>>>,
    subscriptions: Vec<Subscription>,
    shown: Vec<Registered>,
}

impl Controllers {
    /// Nothing yet.
    pub fn new(role: &'static str, board: &Board, term: &Term) -> Self {
        let (tasks, ends) = Tasks::new(role);
        let shown = vec![board.tasks(tasks.view())];
        let (board, term) = (board.clone(), term.clone());
        Self { role, board, term, tasks, ends, work: Vec::new(), subscriptions: Vec::new(), shown }
    }

    /// Works a queue by the attempt loop. `title` says in words what its keys are, `subject` what a key is about.
    pub fn reconcile<R: Reconciler>(
        &mut self,
        queue: &WorkQueue<R::Key>,
        title: &'static str,
        subject: impl Fn(&R::Key) -> Option<String> + Send + Sync + 'static,
        reconciler: R,
    ) {
        let reconciler = Arc::new(reconciler);
        self.handle(queue, title, subject, move |ticket| {
            let reconciler = Arc::clone(&reconciler);
            async move { reconcile(reconciler.as_ref(), ticket).await }.boxed()
        });
    }

    /// Works a queue by the attempt loop, after `stage` has said that the key is for this daemon.
    pub fn reconcile_admitted<A, R>(
        &mut self,
        queue: &WorkQueue<R::Key>,
        title: &'static str,
        subject: impl Fn(&R::Key) -> Option<String> + Send + Sync + 'static,
        stage: A,
        reconciler: R,
    ) where
        A: Reconciler<Key = R::Key, End = Admission>,
        R: Reconciler,
    {
        let both = Arc::new((stage, reconciler));
        self.handle(queue, title, subject, move |ticket| {
            let both = Arc::clone(&both);
            async move { reconcile_admitted(&both.0, &both.1, ticket).await }.boxed()
        });
    }

    /// Works a queue by a handler that needs no loop.
    pub fn handle<K: Key>(
        &mut self,
        queue: &WorkQueue<K>,
        title: &'static str,
        subject: impl Fn(&K) -> Option<String> + Send + Sync + 'static,
        handler: impl Fn(Ticket<K>) -> BoxFuture<'static, Outcome> + Send + Sync + 'static,
    ) {
        self.shown.push(queues::show(&self.board, self.role, queue, title, subject));
        let (queue, stop) = (queue.clone(), self.term.stopping());
        self.work.push(async move { queue.run(stop, handler).await }.map(Ok).boxed());
    }

    /// Work that is no queue, and ends by itself once the term is over.
    pub fn also(&mut self, work: impl Future<Output = Result<(), RoleError>> + Send + 'static) {
        self.work.push(work.boxed());
    }

    /// Calls `trigger` with everything that the cache holds, and then with every change. A trigger adds keys to queues; it must be
    /// quick. One that panics fails this role's term, and no other role notices.
    pub fn on<K: Cached>(&mut self, cache: &Cache<K>, trigger: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.subscriptions.push(cache.subscribe(trigger));
    }

    /// Calls `look` once per interval, in case a wake-up was ever missed. Zero: never.
    pub fn resync(&self, every: Duration, look: impl Fn() + Send + Sync + 'static) {
        if every.is_zero() {
            return;
        }
        self.tasks.spawn("resync", async move {
            loop {
                tokio::time::sleep(every).await;
                debug!("resync");
                look();
            }
        });
    }

    /// A task that goes on for as long as the term does.
    pub fn task(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(name, task);
    }

    /// Keeps a row or a table on the status page for as long as the term lasts.
    pub fn show(&mut self, registered: Registered) {
        self.shown.push(registered);
    }

    /// Works until the term is over and what was in flight has ended; or until some work fails, a task ends, or a trigger panics,
    /// which should not happen before.
    pub async fn serve(mut self) -> Result<(), RoleError> {
        let result = tokio::select! {
            biased;
            // A lost Lease ends everything at once: another replica may lead already.
            () = self.term.lost() => Ok(()),
            ended = try_join_all(self.work) => ended.map(drop),
            Some(end) = self.ends.next() => Err(RoleError::TaskEnded(end)),
            error = panicked(&self.subscriptions) => Err(error),
        };
        drop(self.subscriptions);
        drop(self.shown);
        self.tasks.abort_all();
        result
    }
}

/// Waits until a trigger has panicked: from then on it knows nothing of what happens in the cluster.
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

//! Named tasks with an owner. The end of each task is reported.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tracing::Instrument as _;

use super::error_chain;

/// A scope of named tasks. Clones share the scope; when the last clone is dropped, running tasks are aborted.
#[derive(Clone)]
pub struct Tasks(Arc<Scope>);

struct Scope {
    name: String,
    running: Arc<Mutex<Running>>,
    ends: mpsc::UnboundedSender<TaskEnd>,
}

#[derive(Default)]
struct Running {
    next: u64,
    tasks: BTreeMap<u64, (String, Option<AbortHandle>)>,
}

/// How the tasks of one scope end, in the order in which they did.
#[derive(Debug)]
pub struct TaskEnds(mpsc::UnboundedReceiver<TaskEnd>);

/// One task's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEnd {
    /// The task's full name, `scope.task`.
    pub task: String,
    /// How it ended.
    pub fate: TaskFate,
}

/// How a task ended. An aborted task reports nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskFate {
    /// It returned without an error.
    Returned,
    /// It returned an error; the text has its causes.
    Failed(String),
    /// It panicked, with this message.
    Panicked(String),
}

impl fmt::Display for TaskFate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned => f.write_str("returned"),
            Self::Failed(error) => write!(f, "failed: {error}"),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
        }
    }
}

impl Tasks {
    /// A new scope and the stream of its tasks' ends.
    pub fn new(name: impl Into<String>) -> (Self, TaskEnds) {
        let (ends, receiver) = mpsc::unbounded_channel();
        (Self(Arc::new(Scope { name: name.into(), running: Arc::default(), ends })), TaskEnds(receiver))
    }

    /// Starts a task that cannot fail.
    pub fn spawn(&self, name: impl fmt::Display, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn_fallible(name, future.map(Ok::<(), std::convert::Infallible>));
    }

    /// Starts a task that can return an error.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that spawns")]
    pub fn spawn_fallible<E: Error + 'static>(
        &self,
        name: impl fmt::Display,
        future: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        let task = format!("{}.{name}", self.0.name);
        let id = {
            let mut running = self.0.running.lock();
            running.next += 1;
            let id = running.next;
            running.tasks.insert(id, (task.clone(), None));
            id
        };
        // The task holds what it needs of the scope, but not the scope: it must not keep itself alive.
        let (running, ends) = (Arc::clone(&self.0.running), self.0.ends.clone());
        let body = async move {
            let fate = match AssertUnwindSafe(future).catch_unwind().await {
                Ok(Ok(())) => TaskFate::Returned,
                Ok(Err(error)) => TaskFate::Failed(error_chain(&error)),
                Err(panic) => TaskFate::Panicked(panic_message(panic.as_ref())),
            };
            running.lock().tasks.remove(&id);
            // Without a receiver, the scope's owner ignores the ends of its tasks.
            let _ = ends.send(TaskEnd { task, fate });
        };
        let handle = tokio::spawn(body.in_current_span()).abort_handle();
        if let Some(entry) = self.0.running.lock().tasks.get_mut(&id) {
            entry.1 = Some(handle);
        }
    }

    /// The names of the tasks that run now, sorted.
    pub fn running(&self) -> Vec<String> {
        self.view()()
    }

    /// The same as a closure, which does not keep the scope alive.
    pub fn view(&self) -> impl Fn() -> Vec<String> + Send + Sync + 'static + use<> {
        let running = Arc::clone(&self.0.running);
        move || {
            let running = running.lock();
            let mut names: Vec<String> = running.tasks.values().map(|(name, _)| name.clone()).collect();
            names.sort();
            names
        }
    }

    /// Aborts every task of the scope now.
    pub fn abort_all(&self) {
        self.0.abort_all();
    }
}

impl Scope {
    fn abort_all(&self) {
        let tasks = std::mem::take(&mut self.running.lock().tasks);
        for (_, handle) in tasks.into_values() {
            if let Some(handle) = handle {
                handle.abort();
            }
        }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").field("scope", &self.0.name).finish_non_exhaustive()
    }
}

impl TaskEnds {
    /// The next task to end; `None` once the scope is gone and every end was returned.
    pub async fn next(&mut self) -> Option<TaskEnd> {
        self.0.recv().await
    }
}

/// What a caught panic said.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&'static str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is not text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_panic_is_an_event_with_its_message() {
        let (tasks, mut ends) = Tasks::new("attacher");
        tasks.spawn("worker", async { panic!("lost") });
        let end = ends.next().await.unwrap();
        assert_eq!(end, TaskEnd { task: "attacher.worker".into(), fate: TaskFate::Panicked("lost".into()) });
        assert_eq!(tasks.running(), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_scope_aborts_its_tasks() {
        let (tasks, mut ends) = Tasks::new("scope");
        let (alive, mut gone) = mpsc::channel::<()>(1);
        tasks.spawn("holder", async move {
            let _alive = alive;
            tokio::time::sleep(Duration::from_secs(3600)).await;
        });
        let view = tasks.view();
        assert_eq!((tasks.running(), view()), (vec!["scope.holder".to_owned()], tasks.running()));
        drop(tasks);
        assert_eq!(gone.recv().await, None, "a view keeps nothing alive");
        assert_eq!(view(), Vec::<String>::new());
        assert_eq!(ends.next().await, None);
    }
}

//! The log lines of the daemons of one test, which run on the test's own thread.

use std::fmt::Debug;
use std::sync::LazyLock;

use tokio::sync::watch;
use tracing::field::Field;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

struct Counter {
    message: &'static str,
    count: watch::Sender<usize>,
}

impl<S: tracing::Subscriber> Layer<S> for Counter {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        event.record(&mut |field: &Field, value: &dyn Debug| {
            if field.name() == "message" && format!("{value:?}") == self.message {
                self.count.send_modify(|count| *count += 1);
            }
        });
    }
}

/// Counts the lines that say exactly this, as long as the guard lives.
pub(crate) fn count(message: &'static str) -> (watch::Receiver<usize>, DefaultGuard) {
    let (count, counted) = watch::channel(0);
    (counted, listen(tracing_subscriber::registry().with(Counter { message, count })))
}

/// Makes `subscriber` this thread's.
///
/// While a process has one subscriber, tracing asks only the thread that first reaches a log line whether anybody listens,
/// and remembers the answer: a test on another thread would silence it here. A second one, kept for good, prevents that.
pub(crate) fn listen(subscriber: impl tracing::Subscriber + Send + Sync) -> DefaultGuard {
    static SECOND_SUBSCRIBER: LazyLock<tracing::Dispatch> =
        LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));
    LazyLock::force(&SECOND_SUBSCRIBER);
    tracing::subscriber::set_default(subscriber)
}

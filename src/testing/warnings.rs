//! The warnings of one test, which runs on its own thread.

use std::fmt;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

/// Gathers the warnings that this thread logs.
pub(crate) struct Warnings {
    errors: Arc<Mutex<Vec<String>>>,
    _guard: DefaultGuard,
}

/// The field `error` of each warning.
struct Errors(Arc<Mutex<Vec<String>>>);

impl<S: tracing::Subscriber> Layer<S> for Errors {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == tracing::Level::WARN {
            let mut error = ErrorField::default();
            event.record(&mut error);
            self.0.lock().unwrap().push(error.0);
        }
    }
}

#[derive(Default)]
struct ErrorField(String);

impl Visit for ErrorField {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "error" {
            self.0 = value.to_owned();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "error" {
            self.0 = format!("{value:?}");
        }
    }
}

/// Makes `subscriber` this thread's until the guard is dropped.
///
/// While a process has one subscriber, tracing asks only the thread that first reaches a log line whether anybody listens, and
/// remembers the answer: a test on another thread would silence it here. A second one, kept for good, prevents that.
pub(crate) fn listen(subscriber: impl tracing::Subscriber + Send + Sync) -> DefaultGuard {
    static SECOND_SUBSCRIBER: LazyLock<tracing::Dispatch> =
        LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));
    LazyLock::force(&SECOND_SUBSCRIBER);
    tracing::subscriber::set_default(subscriber)
}

impl Warnings {
    /// Gathers from now on.
    pub(crate) fn begin() -> Self {
        let errors = Arc::default();
        let subscriber = tracing_subscriber::registry().with(Errors(Arc::clone(&errors)));
        Self { errors, _guard: listen(subscriber) }
    }

    /// How many there were.
    pub(crate) fn count(&self) -> usize {
        self.errors.lock().unwrap().len()
    }

    /// What each of them says in its field `error`.
    pub(crate) fn errors(&self) -> Vec<String> {
        self.errors.lock().unwrap().clone()
    }
}

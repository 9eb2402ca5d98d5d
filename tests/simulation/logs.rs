//! The daemons' own log lines: into the trace, and searched for secrets (I10).

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::invariants::Invariant;
use crate::trace::Trace;
use crate::world::MARKER;

/// How closely the daemons' log is listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    /// Not at all, which is fast.
    No,
    /// Every line is searched for secrets.
    ForSecrets,
    /// Every line is also written into the trace.
    Aloud,
}

/// Listens on this thread until the guard is dropped.
pub(crate) fn listen(listen: Listen, trace: &Trace) -> Option<DefaultGuard> {
    if listen == Listen::No {
        return None;
    }
    let ear = Ear { trace: trace.clone(), aloud: listen == Listen::Aloud };
    Some(tracing::subscriber::set_default(tracing_subscriber::registry().with(ear)))
}

struct Ear {
    trace: Trace,
    aloud: bool,
}

/// A daemon's name, on its span.
struct Speaker(String);

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write as _;
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ear {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("csi_control_plane") || metadata.target().starts_with("simulation")
    }

    fn on_new_span(&self, attributes: &tracing::span::Attributes<'_>, id: &tracing::Id, context: Context<'_, S>) {
        let mut text = Text::default();
        attributes.record(&mut text);
        self.search(&text.0);
        if attributes.metadata().name() == "daemon"
            && let Some(span) = context.span(id)
        {
            span.extensions_mut().insert(Speaker(text.0.trim().trim_start_matches("name=").replace('"', "")));
        }
    }

    fn on_record(&self, _: &tracing::Id, values: &tracing::span::Record<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        values.record(&mut text);
        self.search(&text.0);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.search(&text.0);
        if self.aloud && *event.metadata().level() <= Level::DEBUG {
            let mut scope = context.event_scope(event).into_iter().flatten();
            let speaker = scope.find_map(|span| span.extensions().get::<Speaker>().map(|speaker| speaker.0.clone()));
            let (level, target) = (event.metadata().level(), event.metadata().target());
            let target = target.trim_start_matches("csi_control_plane::");
            self.trace.note(speaker.as_deref().unwrap_or("stage"), format_args!("  {level} {target}: {}", text.0));
        }
    }
}

impl Ear {
    fn search(&self, text: &str) {
        if text.contains(MARKER) {
            self.trace.violate(Invariant::I10, format_args!("a log line holds a secret's value: {text}"));
        }
    }
}

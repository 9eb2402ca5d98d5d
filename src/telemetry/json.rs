//! One line for each event: a JSON object for machines, or text for people (`text.rs`).
//!
//! ```text
//! {"ts":"2026-11-21T06:00:00.000000Z","level":"INFO","target":"…","message":"attached","span":"attach:publish",
//!  "role":"attacher","persistent_volume":"pv-1","trace_id":"4bf9…"}
//! ```
//!
//! Fields of the event and of all its spans are at the top level, so that one query finds all lines of a volume. If two
//! have the same name, the innermost wins. A field with the name of one of our own keys becomes `field_<name>`. An
//! error value is written with its causes.

use std::error::Error;
use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;

use opentelemetry::trace::TraceContextExt as _;
use serde::Serializer as _;
use serde::ser::SerializeMap as _;
use serde_json::Value;
use tracing::dispatcher::WeakDispatch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

use super::text::TextLine;
use crate::process::{Clock, error_chain};

/// The keys of every line; `span` and `trace_id` only inside a span and a sampled trace.
const OWN_KEYS: [&str; 6] = ["ts", "level", "target", "message", "span", "trace_id"];

/// Writes each event as one line.
pub(super) struct LineLayer<W> {
    writer: W,
    clock: Clock,
    style: Style,
    /// How the trace of a span is found; empty until the subscriber is installed.
    dispatch: OnceLock<WeakDispatch>,
}

/// What a line looks like.
#[derive(Debug, Clone, Copy)]
pub(super) enum Style {
    /// A JSON object.
    Json,
    /// Text, with colours if `ansi`.
    Text { ansi: bool },
}

impl<W> LineLayer<W> {
    pub(super) fn new(writer: W, clock: Clock, style: Style) -> Self {
        Self { writer, clock, style, dispatch: OnceLock::new() }
    }

    fn text<S>(&self, event: &Event<'_>, context: &Context<'_, S>, ansi: bool) -> String
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        let time = format!("{:.6}", self.clock.wall());
        let mut line = TextLine::begin(&time, *metadata.level(), ansi);
        for span in context.event_scope(event).into_iter().flat_map(Scope::from_root) {
            let extensions = span.extensions();
            line.span(
                span.name(),
                extensions.get::<Fields>().map(|fields| fields.values.as_slice()).unwrap_or_default(),
            );
        }
        line.end(metadata.target(), fields.message.as_deref().unwrap_or_default(), &fields.values)
    }

    fn trace_id(&self, span: &Id) -> Option<String> {
        let dispatch = self.dispatch.get()?.upgrade()?;
        let context = tracing_opentelemetry::get_otel_context(span, &dispatch)?;
        let context = context.span().span_context().clone();
        (context.is_valid() && context.is_sampled()).then(|| context.trace_id().to_string())
    }
}

/// The fields of a span or an event, in the order in which they came; a later value replaces an earlier one.
#[derive(Debug, Default)]
struct Fields {
    message: Option<String>,
    values: Vec<(&'static str, Value)>,
}

impl Fields {
    fn set(&mut self, field: &Field, value: Value) {
        let name = field.name();
        let name = name.strip_prefix("r#").unwrap_or(name);
        // OpenTelemetry's own fields control the exporter and are not data of the event.
        if name.starts_with("otel.") {
            return;
        }
        match self.values.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.values.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has no infinities.
        self.set(field, serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = Some(value.to_owned());
        } else {
            self.set(field, value.into());
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.set(field, error_chain(value).into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl<S, W> Layer<S> for LineLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_register_dispatch(&self, subscriber: &Dispatch) {
        // A second registration would be of the same subscriber.
        let _ = self.dispatch.set(subscriber.downgrade());
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if let Style::Text { ansi } = self.style {
            let line = self.text(event, &context, ansi);
            let _ = self.writer.make_writer_for(event.metadata()).write_all(line.as_bytes());
            return;
        }
        let mut all = Fields::default();
        event.record(&mut all);
        let mut path: Vec<&'static str> = Vec::new();
        for span in context.event_scope(event).into_iter().flatten() {
            path.push(span.name());
            let extensions = span.extensions();
            for (name, value) in extensions.get::<Fields>().map(|fields| fields.values.as_slice()).unwrap_or_default() {
                if all.values.iter().all(|(known, _)| known != name) {
                    all.values.push((name, value.clone()));
                }
            }
        }
        path.reverse();
        let trace = context.event_span(event).and_then(|span| self.trace_id(&span.id()));

        let metadata = event.metadata();
        let mut line = Vec::with_capacity(256);
        let written = (|| {
            let mut serializer = serde_json::Serializer::new(&mut line);
            let mut map = serializer.serialize_map(None)?;
            map.serialize_entry("ts", &format_args!("{:.6}", self.clock.wall()))?;
            map.serialize_entry("level", metadata.level().as_str())?;
            map.serialize_entry("target", metadata.target())?;
            map.serialize_entry("message", all.message.as_deref().unwrap_or_default())?;
            for (name, value) in &all.values {
                if OWN_KEYS.contains(name) {
                    map.serialize_entry(&format_args!("field_{name}"), value)?;
                } else {
                    map.serialize_entry(name, value)?;
                }
            }
            if !path.is_empty() {
                map.serialize_entry("span", &path.join(":"))?;
            }
            if let Some(trace) = &trace {
                map.serialize_entry("trace_id", trace)?;
            }
            map.end()
        })();
        if written.is_ok() {
            line.push(b'\n');
            // A whole line in one write, so that the lines of two threads do not mix. A write error is ignored, because
            // there is no place to report it.
            let _ = self.writer.make_writer_for(metadata).write_all(&line);
        }
    }
}

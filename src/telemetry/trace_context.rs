//! A span's place in its trace, as text that an object of the cluster can carry from one role, process or leader to another.
//!
//! The text is W3C's `traceparent`. It is written only for a sampled span, so that a daemon without traces writes
//! exactly what the Go sidecars write. An invalid text is ignored, because users can edit it.

use std::collections::HashMap;
use std::fmt;

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry::{Context, SpanId, TraceId};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The header's name, which is also the key that the propagator looks for.
const TRACEPARENT: &str = "traceparent";

/// A span of a trace that is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceContext(SpanContext);

impl TraceContext {
    /// Of this span; `None` where there are no traces or this one is not kept.
    pub fn of(span: &Span) -> Option<Self> {
        Self::kept(&span.context())
    }

    /// Reads a `traceparent`. One of a trace that is not kept counts as none.
    pub fn parse(text: &str) -> Option<Self> {
        let carrier = HashMap::from([(TRACEPARENT.to_owned(), text.to_owned())]);
        Self::kept(&TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier))
    }

    fn kept(context: &Context) -> Option<Self> {
        let span = context.span();
        let context = span.span_context();
        (context.is_valid() && context.is_sampled()).then(|| Self(context.clone()))
    }

    /// Makes `span` continue this trace. If `span` already has a trace, it gets a link to this one.
    pub fn continue_in(self, span: &Span) {
        let context = Context::new().with_remote_span_context(self.0.clone());
        let is_begun = span.set_parent(context).is_err();
        if is_begun && Self::of(span).is_some_and(|own| own.trace_id() != self.trace_id()) {
            self.link_from(span);
        }
    }

    /// Links `span`, which has its own trace, to this one.
    pub fn link_from(self, span: &Span) {
        span.add_link(self.0);
    }

    /// Its trace.
    pub fn trace_id(&self) -> TraceId {
        self.0.trace_id()
    }

    /// Its span.
    pub fn span_id(&self) -> SpanId {
        self.0.span_id()
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id(), self.span_id(), self.0.trace_flags().to_u8())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_text_of_a_kept_trace_is_read() {
        let kept = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceContext::parse(kept).unwrap().to_string(), kept);
        for text in [
            "",
            "not a traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_span_has_none_where_there_are_no_traces() {
        assert_eq!(TraceContext::of(&tracing::info_span!("claim")), None);
        assert_eq!(TraceContext::of(&Span::none()), None);
        // And nothing happens to one that should continue another's.
        let other = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        other.clone().continue_in(&Span::none());
        other.link_from(&Span::none());
    }
}

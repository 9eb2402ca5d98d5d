//! How a trace travels to the driver.

use opentelemetry::Context;
use opentelemetry::propagation::{Injector, TextMapPropagator as _};
use opentelemetry_sdk::propagation::{BaggagePropagator, TraceContextPropagator};

/// What is put on each call. The standard's default is both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Propagation {
    /// `traceparent` and `tracestate`.
    pub trace_context: bool,
    /// `baggage`.
    pub baggage: bool,
}

impl Default for Propagation {
    fn default() -> Self {
        Self { trace_context: true, baggage: true }
    }
}

impl Propagation {
    /// The driver is told nothing.
    pub const NONE: Self = Self { trace_context: false, baggage: false };

    /// Puts a span's context on a call.
    pub fn inject(self, context: &Context, headers: &mut dyn Injector) {
        if self.trace_context {
            TraceContextPropagator::new().inject_context(context, headers);
        }
        if self.baggage {
            BaggagePropagator::new().inject_context(context, headers);
        }
    }
}

//! The reports of an attempt as values: Events, metrics, and rows of the status page.

use std::borrow::Cow;
use std::time::Duration;

use crate::cluster::{EventKind, EventTarget};
use crate::queue::{Key, Ticket};
use crate::telemetry::names::Metric;

use super::scope::TermScope;

/// The labels of a figure.
pub type Labels = Vec<(&'static str, String)>;

/// One thing to tell.
#[derive(Debug, Clone, PartialEq)]
pub enum Telling {
    /// A Kubernetes Event on an object.
    Event {
        /// The object.
        on: EventTarget,
        /// Normal or Warning.
        kind: EventKind,
        /// Its reason.
        reason: Cow<'static, str>,
        /// Its text.
        note: String,
    },
    /// One of low priority: it is dropped if too many wait, or if this daemon begins to stop.
    MinorEvent {
        /// The object.
        on: EventTarget,
        /// Its reason.
        reason: &'static str,
        /// Its text.
        note: String,
    },
    /// One more.
    Count(&'static Metric, Labels),
    /// How long it took.
    Took(&'static Metric, Labels, Duration),
    /// What was done, as a past participle, and a description of the object, which may be gone when a person reads it.
    Did(&'static str, Option<String>),
}

impl Telling {
    /// An Event that something is wrong with an object.
    pub fn warning(on: EventTarget, reason: impl Into<Cow<'static, str>>, note: String) -> Self {
        Self::Event { on, kind: EventKind::Warning, reason: reason.into(), note }
    }
}

/// Tells it.
pub(super) fn tell<K: Key>(telling: Telling, scope: &TermScope, ticket: &Ticket<K>) {
    fn borrowed(labels: &Labels) -> Vec<(&'static str, &str)> {
        labels.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }
    match telling {
        Telling::Event { on, kind, reason, note } => scope.event(&on, kind, &reason, &note),
        Telling::MinorEvent { on, reason, note } => scope.event_low(&on, EventKind::Normal, reason, &note),
        Telling::Count(metric, labels) => scope.meter.counter(metric, &borrowed(&labels)).increment(1),
        Telling::Took(metric, labels, took) => {
            scope.meter.histogram(metric, &borrowed(&labels)).record(took.as_secs_f64());
        }
        Telling::Did(what, subject) => ticket.did(what, subject),
    }
}

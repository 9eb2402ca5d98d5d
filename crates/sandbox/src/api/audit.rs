//! The audit log of requests and answers, for tests and the simulation.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::call::Call;

/// The latest entries that are kept.
const KEPT: usize = 65_536;
/// The code of a request whose answer never left: the connection was cut or the client went away.
pub const UNANSWERED: u16 = 0;

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// When it was answered; for a watch, when it began.
    pub time: Timestamp,
    /// From its arrival to its answer, in the order of all arrivals and answers.
    pub order: Range<u64>,
    /// The user who sent the request.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// The kind's plural.
    pub resource: &'static str,
    /// `status`, or nothing.
    pub subresource: String,
    /// Empty for the cluster scope.
    pub namespace: String,
    /// Empty for lists and generated names.
    pub name: String,
    /// The answer's status code, or [`UNANSWERED`].
    pub code: u16,
    /// The body of a write. Never that of a Secret.
    pub body: Option<Value>,
}

/// The log. Clones are the same log.
#[derive(Debug, Clone, Default)]
pub struct Audit(Arc<Mutex<Log>>);

#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<Entry>,
    /// The number of arrivals and answers.
    order: u64,
    counts: BTreeMap<(&'static str, &'static str), u64>,
}

impl Audit {
    /// The kept entries, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.log().entries.iter().cloned().collect()
    }

    /// The kept entries that pass `wanted`, oldest first.
    pub fn matching(&self, wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        self.log().entries.iter().filter(|entry| wanted(entry)).cloned().collect()
    }

    /// The number of uses of a verb on a kind, with any answer, since the start.
    pub fn count(&self, verb: &str, plural: &str) -> u64 {
        let log = self.log();
        log.counts.iter().find(|((v, p), _)| *v == verb && *p == plural).map_or(0, |(_, count)| *count)
    }

    /// All counts, by verb and plural.
    pub fn counts(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.log().counts.clone()
    }

    /// Forgets entries and counts.
    pub fn clear(&self) {
        let mut log = self.log();
        *log = Log { order: log.order, ..Log::default() };
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock()
    }

    /// Counts the arrival of a request, and returns its place in the order.
    pub(crate) fn arrival(&self) -> u64 {
        self.log().next()
    }

    /// Writes one request down, which came at this place in the order.
    pub(crate) fn record(
        &self,
        arrival: u64,
        time: Timestamp,
        user: &str,
        call: &Call,
        code: u16,
        body: Option<&Value>,
    ) {
        let mut log = self.log();
        let order = arrival..log.next();
        *log.counts.entry((call.verb, call.resource.plural)).or_default() += 1;
        if log.entries.len() == KEPT {
            log.entries.pop_front();
        }
        log.entries.push_back(Entry {
            time,
            order,
            user: user.to_owned(),
            verb: call.verb,
            resource: call.resource.plural,
            subresource: call.subresource.clone(),
            namespace: call.namespace.clone(),
            name: call.name.clone(),
            code,
            body: if call.resource.plural == "secrets" { None } else { body.cloned() },
        });
    }
}

impl Log {
    fn next(&mut self) -> u64 {
        self.order += 1;
        self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_shows_which_requests_met() {
        let audit = Audit::default();
        let done = |arrival: u64| {
            let call = Call::for_test("patch", "configmaps", "a");
            audit.record(arrival, Timestamp::UNIX_EPOCH, "u", &call, 200, None);
        };
        let (slow, quick) = (audit.arrival(), audit.arrival());
        done(quick);
        let late = audit.arrival();
        done(slow);
        audit.clear();
        done(late);
        let last = audit.entries().remove(0).order;
        assert!(slow < quick && quick < late && late == last.start && last.end > last.start + 1, "{last:?}");
    }
}

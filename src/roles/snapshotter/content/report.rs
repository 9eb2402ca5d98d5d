//! Reports what became of an attempt: Kubernetes Events, metrics, one log line, the status page.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use crate::cluster::{ApiErrorKind, EventKind, EventTarget};
use crate::queue::{Cause, Outcome, Ticket};
use crate::roles::kit::report::{gist, log_failure};
use crate::roles::kit::{AttemptError, EventsMode};
use crate::roles::snapshotter::metrics;

use super::attempt::{Operation, State};
use super::context::{Context, Objects};
use super::error::{ContentError, InvalidSnapshot, is_infeasible_create, is_infeasible_delete};
use super::facts;
use super::kind::Content;
use super::memory::ContentKey;
use super::predicates;
use super::request;
use super::texts;
use super::view::{Kept, Left};
use super::waiting::{Reason, Who};

impl<K: Content> Context<K> {
    /// An Event on the content, and on what its user has made, where people look.
    fn event(&self, targets: &[EventTarget], kind: EventKind, reason: &str, note: &str) {
        if self.section.events == EventsMode::None {
            return;
        }
        for target in targets {
            self.scope.event(target, kind, reason, note);
        }
    }

    /// Where Events about a content go.
    fn targets(&self, content: &K) -> Vec<EventTarget> {
        let mut target = EventTarget::of(content);
        if let Some(version) = self.stores.contents.version() {
            target.api_version = format!("{}/{version}", K::NAMES.group);
        }
        let owner = owner_of(content, &target.api_version);
        [target].into_iter().chain(owner).collect()
    }

    /// Notes that a content waits.
    pub(super) fn note_wait(&self, content: &K, operation: Operation, reason: Reason, says: &str) {
        let owner = content.owner();
        let who = Who {
            uid: content.meta().uid.to_string(),
            name: content.meta().name.to_string(),
            owner: format!("{}/{}", owner.namespace, owner.name),
            targets: self.targets(content),
        };
        self.waiting.note(who, K::NAMES.operation(operation), reason, says);
    }

    /// A Warning: once for each text that differs in more than ids. Says whether it is news.
    fn warn(&self, now: &Objects<K>, reason: &str, note: &str) -> bool {
        let is_news = self.memory.told.is_news(now.uid().to_owned(), &gist(note));
        if is_news || self.section.events == EventsMode::All {
            self.event(&self.targets(&now.content), EventKind::Warning, reason, note);
        }
        is_news
    }

    /// The class of a content is another driver's, and so nobody works the content.
    pub(super) fn tell_of_class(&self, now: &Objects<K>, says: &str) {
        self.warn(now, "SnapshotClassMismatch", says);
    }

    /// The content is a copy of another one, and so nobody works it.
    pub(super) fn tell_of_copy(&self, now: &Objects<K>, says: &str) {
        let reason = format!("{}ContentCopied", K::NAMES.reason);
        if self.warn(now, &reason, says) {
            warn!(content = &*now.content.meta().name, "a content is a copy of another one, and is left alone");
        }
    }

    /// The content is released, and the driver keeps a snapshot that its policy would have deleted.
    pub(super) fn report_kept(&self, now: &Objects<K>, kept: &Kept) {
        let (word, handle) = (K::NAMES.word, facts::handle(&*now.content).unwrap_or_default());
        let note = match kept {
            Kept::NamedBy(other) => format!(
                "the {word} {handle} is kept, because the {other} names it, too. It is deleted when that one is, if its policy says \
                 so"
            ),
            Kept::Earlier(handle) => format!(
                "the {word} {handle} is kept, because it was taken before this {} was made: it may be somebody else's",
                K::KIND
            ),
            Kept::OfAnother => format!(
                "this {} was a copy of another one, in this cluster or in another: the {word} {handle} of that one, if there is \
                 one, is kept",
                K::KIND
            ),
        };
        warn!(snapshot = handle, reason = ?kept, "the content is released, and its snapshot is kept");
        self.warn(now, &format!("{}Kept", K::NAMES.reason), &note);
    }

    /// The attempt has ended with nothing left to do.
    pub(super) fn report_settled(&self, uid: &str) {
        self.waiting.forget(uid);
        self.memory.told.forget(&uid.to_owned());
    }

    /// What the attempt has done, as far as it has.
    pub(super) fn report_progress(&self, ticket: &Ticket<ContentKey>, state: &State) {
        let took = |operation: Operation, time: Duration| {
            let labels =
                [("driver_name", self.scope.driver_name.as_str()), ("operation", K::NAMES.operation(operation))];
            self.scope.meter.histogram(&metrics::SNAPSHOT_DURATION, &labels).record(time.as_secs_f64());
        };
        let did = |what: &'static str| {
            let owner = self.find(ticket.key()).map(|now| {
                let owner = now.content.owner();
                format!("{}/{}", owner.namespace, owner.name)
            });
            ticket.did(what, owner);
        };
        if state.has_cut {
            took(Operation::Create, ticket.age());
            did("taken");
        }
        if state.has_become_ready {
            let since = self.memory.no_longer_unready(&state.uid);
            let waited = since.map(|since| self.scope.clock.now().saturating_duration_since(since));
            took(Operation::Ready, waited.unwrap_or_default());
            did("ready to use");
        }
        if state.has_deleted {
            took(Operation::Delete, ticket.age());
            did("deleted");
        }
        self.show_unanswered();
    }

    /// How many requests have no final answer.
    pub(in crate::roles::snapshotter) fn show_unanswered(&self) {
        self.waiting.show_unanswered(K::NAMES.word, self.memory.count_unanswered());
    }

    /// A content carries the mark of a call that this term has not made.
    pub(super) fn note_resumed(&self, now: &Objects<K>, is_ours: bool) {
        let has_handle = facts::stored_handle(&*now.content).is_some();
        if facts::has_mark(&*now.content) && !is_ours && !has_handle && !self.memory.refused.has(now.uid()) {
            self.memory.resumed.note(now.uid());
        }
    }

    /// The call of an earlier term has its answer.
    pub(super) fn report_resumed(&self, now: &Objects<K>, result: &'static str) {
        if self.memory.resumed.forget(now.uid()) {
            let labels = [("driver_name", self.scope.driver_name.as_str()), ("result", result)];
            self.scope.meter.counter(&metrics::SNAPSHOTS_RESUMED, &labels).increment(1);
        }
    }

    /// The attempt failed: says so in Events, in the figures and in the log, and decides on the retry.
    pub(super) fn report_failure(
        &self,
        ticket: &Ticket<ContentKey>,
        now: &Objects<K>,
        operation: Operation,
        error: &ContentError,
    ) -> Outcome {
        let message = error.message();
        if is_expected(error) {
            debug!(error = message, "looking again");
        } else {
            log_failure!(
                self.failures,
                self.scope.clock.now(),
                error,
                { operation = K::NAMES.operation(operation), attempt = ticket.attempt() + 1, },
                "attempt failed"
            );
        }
        let label = error.label();
        let labels = [
            ("driver_name", self.scope.driver_name.as_str()),
            ("operation", K::NAMES.operation(operation)),
            ("error", label),
        ];
        self.scope.meter.counter(&metrics::SNAPSHOT_ERRORS, &labels).increment(1);
        if matches!(error, AttemptError::Reason(InvalidSnapshot::OtherSnapshot { .. })) {
            self.count_orphan("otherId");
        }
        if let Some((reason, note)) = texts::told(&*now.content, operation, error) {
            self.warn(now, &reason, &note);
        }
        ticket.note(&message);
        self.note_wait(&now.content, operation, Reason::Failed, &message);
        let is_infeasible = match operation {
            Operation::Delete => is_infeasible_delete(error),
            Operation::Create | Operation::Ready => is_infeasible_create(error),
        };
        match error {
            // Only another driver helps, and its term begins anew.
            AttemptError::Reason(InvalidSnapshot::Unsupported { .. }) => Outcome::Settled,
            _ if is_infeasible => Outcome::RetryFailedAfter(self.section.retry.infeasible),
            _ => error.outcome(),
        }
    }

    /// The driver has answered, and the status could not say so. People hear of the answer; this is why the status lacks it.
    pub(super) fn log_unrecorded(&self, operation: Operation, error: &ContentError) {
        if is_expected(error) {
            debug!(error = error.message(), "looking again");
            return;
        }
        log_failure!(
            self.failures,
            self.scope.clock.now(),
            error,
            { operation = K::NAMES.operation(operation), },
            "the driver has refused, and the status of the content does not say so"
        );
    }

    /// The content was removed by force during a call, and the driver has answered.
    pub(super) fn report_orphan(&self, now: &Objects<K>, handle: Option<&str>, left: Left) {
        let (name, handle) = (&*now.content.meta().name, handle.unwrap_or_default());
        let (call, word) = (K::NAMES.call, K::NAMES.word);
        let (result, note) = match left {
            Left::Deleted => ("deleted", format!("{name} was removed during {call}: its {word} {handle} is deleted")),
            Left::Retained => {
                ("left", format!("{name} was removed during {call}: its {word} {handle} is kept, as its policy says"))
            }
            Left::EndUnknown => (
                "left",
                format!(
                    "{name} was removed during {call}: its {word} {handle} is kept, because the API no longer says which \
                     deletionPolicy {name} had in the end. If nobody needs it, delete it at the storage"
                ),
            ),
            Left::MemberNeeded => (
                "left",
                format!(
                    "{name} was removed during {call}: its {word} {handle} is kept, because a VolumeSnapshotContent names one of its \
                     snapshots. If nobody needs it any more, delete it at the storage"
                ),
            ),
            Left::MaybeKept => (
                "left",
                format!(
                    "{name} was removed during {call}: its {word} {handle} is kept, because it is older than {name}, or the \
                     driver does not say how old it is, or there is a copy of {name}: somebody may have kept it on purpose. If \
                     nobody needs it, delete it at the storage"
                ),
            ),
            Left::ToOtherNode => (
                "left",
                format!(
                    "{name} was given to another node during {call}. The driver of this node may have the {word} {}{handle}, which \
                     nobody deletes",
                    if handle.is_empty() { self.asked_name(now) } else { String::new() }
                ),
            ),
            Left::ToHeir => {
                debug!(snapshot = handle, "another content has the snapshot of the one that is gone");
                return;
            }
        };
        warn!(snapshot = handle, result, note, "a content was taken away while its snapshot was taken");
        self.count_orphan(result);
        // On what the user has made: the content is gone.
        let targets = self.targets(&now.content);
        let reason = format!("{}ContentRemoved", K::NAMES.reason);
        self.event(targets.get(1..).unwrap_or_default(), EventKind::Warning, &reason, &note);
    }

    /// The driver has snapshots of the content's volume that no content names, and may have taken one of them for this content.
    pub(super) fn report_leftovers(&self, now: &Objects<K>, volume: &str, snapshots: &[String]) {
        let note = format!(
            "the driver was asked for a snapshot of volume {volume}, and never said whether it has it, or by which id. No \
             VolumeSnapshotContent has these snapshots of the volume, and one of them may be left over: {}. Nothing was deleted",
            snapshots.join(", ")
        );
        warn!(volume, ?snapshots, "snapshots may be left over at the driver");
        self.warn(now, "SnapshotMaybeLeaked", &note);
    }

    /// The driver was asked for one snapshot by its id, and has named several others.
    pub(in crate::roles::snapshotter) fn report_other_id(
        &self,
        now: &Objects<K>,
        asked: &str,
        taken: &str,
        others: usize,
    ) {
        let note = format!(
            "the driver was asked for the {} {asked}, and answered with {taken} and {others} more, none of which has this id: {taken} is \
             taken for it. Check that the {0} exists",
            K::NAMES.word
        );
        if self.warn(now, &format!("{}IdNotListed", K::NAMES.reason), &note) {
            warn!(asked, taken, others, "the driver has several snapshots for one id, and none with it");
        }
    }

    /// The driver may have taken a snapshot for the content, and cannot be asked which ones it has.
    pub(super) fn report_unlisted(&self, now: &Objects<K>) {
        let (word, name) = (K::NAMES.word, request::name(&*now.content, &self.rules.request));
        let note = format!(
            "the driver was asked for the {word} {name} of {}, and never said whether it has it, or by which id. It may be left over, and \
             the driver cannot be asked: look for that name at the storage. Nothing was deleted",
            now.content.sources().join(", ")
        );
        warn!(name, kind = word, "a snapshot may be left over at the driver");
        self.warn(now, "SnapshotMaybeLeaked", &note);
    }

    /// By which name the driver was asked.
    fn asked_name(&self, now: &Objects<K>) -> String {
        let unanswered = self.memory.unanswered(now.uid());
        unanswered.map(|it| format!("by the name {}", it.asked.request.name)).unwrap_or_default()
    }

    fn count_orphan(&self, result: &'static str) {
        let labels = [("driver_name", self.scope.driver_name.as_str()), ("result", result)];
        self.scope.meter.counter(&metrics::SNAPSHOTS_ORPHANED, &labels).increment(1);
    }

    /// Tells what contents have waited for since a minute.
    pub(in crate::roles::snapshotter) fn tell_long_waits(&self) {
        for (targets, says) in self.waiting.worth_an_event() {
            self.event(&targets, EventKind::Normal, "SnapshotWaiting", &says);
        }
        self.show_unanswered();
    }

    /// The content is gone: nothing of it is remembered.
    pub(super) fn forget(&self, key: &ContentKey) {
        self.queue.forget(key);
        self.memory.forget(&key.uid);
        self.waiting.forget(&key.uid);
    }

    /// Wakes the content if there is something to do. Otherwise its failures are forgotten, and it waits for nothing any more.
    pub(super) fn wake(&self, content: &Arc<K>, cause: Cause) {
        if self.is_idle() {
            return;
        }
        let now = self.about(Arc::clone(content), true);
        let is_unanswered = self.memory.is_unanswered(now.uid());
        if predicates::wants(&**content, self.class_of(&now), &self.rules, is_unanswered) {
            self.add(&now, cause);
        } else {
            self.queue.forget(&ContentKey::of(&**content));
            self.report_settled(now.uid());
        }
    }
}

/// What the user of a content has made, if it names that by its uid.
fn owner_of<K: Content>(content: &K, api_version: &str) -> Option<EventTarget> {
    let named = content.owner();
    (!named.uid.is_empty() && !named.name.is_empty()).then(|| EventTarget {
        api_version: api_version.to_owned(),
        kind: K::NAMES.owner.to_owned(),
        namespace: Some(named.namespace.clone()),
        name: named.name.clone(),
        uid: named.uid.clone(),
    })
}

/// What happens in a healthy cluster, and is no line in the log.
fn is_expected(error: &ContentError) -> bool {
    error.api().is_some_and(|error| error.kind().is_stale() || error.kind() == ApiErrorKind::NotFound)
}

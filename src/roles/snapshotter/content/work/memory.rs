//! What a term remembers of contents. What is unanswered stands on the content too, as long as nobody wipes it. The rest can be lost:
//! then a call is repeated, or an Event. It changes by functions without clock or client; only its bell may be waited for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::Moment;
use crate::queue::Backoff;
use crate::roles::kit::report::gist;
use crate::roles::kit::{End, Remembered, Texts};
use crate::roles::snapshotter::content::policy::{Answer, Known, NotTaken, Progress, Step};
use crate::roles::snapshotter::content::record::{Asked, Content, Found, InvalidSnapshot, Wait, facts};
use crate::roles::snapshotter::content::told::waiting;
use crate::roles::snapshotter::content::told::waiting::{UNANSWERED, Waiting};

/// By how much of itself chance shortens a pause between two looks.
const MOST_SHORTENED: f64 = 0.2;

/// What the queue holds: a content. A namesake is another key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContentKey {
    /// Its name.
    pub name: Arc<str>,
    /// Its uid.
    pub uid: Box<str>,
}

impl ContentKey {
    /// The key of a content.
    pub fn of(content: &impl Content) -> Self {
        Self { name: Arc::clone(&content.meta().name), uid: content.meta().uid.clone() }
    }
}

impl fmt::Display for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A request for a snapshot without a final answer.
#[derive(Debug, Clone)]
pub struct Unanswered<K> {
    /// What was asked.
    pub asked: Asked,
    /// The content as it was last seen: it may be removed by force meanwhile.
    pub content: Arc<K>,
    /// The creation time of the content for which it was asked first.
    pub since: Option<Moment>,
    /// The snapshot, where the driver has answered and the content does not say so yet.
    pub found: Option<Found>,
    /// Rung when mark, request or finalizer were taken off the content.
    pub wiped: Arc<Notify>,
    /// Only a list has shown that the content is gone: its last version is not known.
    pub is_end_unseen: bool,
}

/// The looks at a snapshot that is not ready.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Poll {
    count: u32,
    looked: Instant,
    due: Instant,
    since: Instant,
}

/// What a term remembers of a content.
#[derive(Debug)]
pub struct Memory<K> {
    /// What the driver was asked without a final answer.
    pub unanswered: Option<Unanswered<K>>,
    /// The rest.
    pub facts: Facts,
}

/// What a term remembers of a content besides the call.
#[derive(Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct Facts {
    poll: Option<Poll>,
    /// There is a final answer, and the mark could not be taken off yet.
    is_refused: bool,
    /// The driver has deleted the snapshot.
    is_deleted: bool,
    /// An answer has said that the snapshot is of a group.
    is_grouped: bool,
    /// The driver does not delete the snapshot by itself.
    is_undeletable: bool,
    /// An earlier term has left the call without an answer.
    pub is_resumed: bool,
    /// A call had no answer, and the next one was refused or its answer had no id: the driver may have a snapshot that nobody knows.
    is_doubtful: bool,
    /// The last look has no answer. The look is the call that takes the snapshot, and the driver may still work on it.
    is_late: bool,
    told: Texts,
    /// What the content waits for.
    pub waiting: Option<Waiting>,
}

impl<K> Default for Memory<K> {
    fn default() -> Self {
        Self { unanswered: None, facts: Facts::default() }
    }
}

impl<K> PartialEq for Memory<K> {
    fn eq(&self, other: &Self) -> bool {
        // Each call has a bell of its own.
        let bell = |it: &Self| it.unanswered.as_ref().map(|it| Arc::as_ptr(&it.wiped));
        bell(self) == bell(other) && self.facts == other.facts
    }
}

impl<K: Content> Remembered for Memory<K> {
    fn group(&self) -> Option<&'static str> {
        self.facts.waiting.as_ref().map(Waiting::group)
    }

    fn second_group(&self) -> Option<&'static str> {
        self.unanswered.as_ref().map(|_| UNANSWERED)
    }
}

impl<K: Content> Memory<K> {
    /// The driver is asked, and has not answered.
    pub fn ask(&mut self, content: &Arc<K>, asked: &Asked) {
        let held = self.unanswered.take();
        self.unanswered = Some(match held {
            Some(held) => Unanswered { asked: asked.clone(), content: Arc::clone(content), ..held },
            None => Unanswered {
                asked: asked.clone(),
                content: Arc::clone(content),
                since: content.meta().creation_timestamp,
                found: None,
                wiped: Arc::default(),
                is_end_unseen: false,
            },
        });
    }

    /// The driver was asked for another content, which is gone, and `content` is to get the answer. It may have asked by itself. The
    /// request on it names its own uid: with that of the other one it would pass for a copy.
    pub fn inherit(&mut self, content: &Arc<K>, from: &Unanswered<K>) {
        if self.unanswered.is_none() {
            self.ask(content, &from.asked.clone().for_content(&content.meta().uid));
        }
        if let Some(own) = &mut self.unanswered {
            own.since = [own.since, from.since].into_iter().flatten().min();
        }
    }

    /// The content looks like this now, as far as the watch has shown. Rings if something was wiped.
    pub fn see(&mut self, content: &Arc<K>, is_wiped: bool) {
        if let Some(unanswered) = &mut self.unanswered {
            unanswered.content = Arc::clone(content);
            if is_wiped {
                unanswered.wiped.notify_one();
            }
        }
    }

    /// What a decision needs of it. `began`: when the attempt did; `longest`: the longest pause between two looks.
    pub fn known(&self, began: Instant, longest: Duration) -> Known {
        let (asked, facts) = (self.unanswered.as_ref(), &self.facts);
        let left = facts.poll.map(|poll| poll.due.saturating_duration_since(began));
        Known {
            unanswered: asked.map(|it| it.asked.clone()),
            asked_since: asked.and_then(|it| it.since),
            found: asked.and_then(|it| it.found.clone()),
            is_end_unseen: asked.is_some_and(|it| it.is_end_unseen),
            is_refused: facts.is_refused,
            is_deleted: facts.is_deleted,
            is_grouped: facts.is_grouped,
            is_of_group: facts.is_undeletable,
            is_resumed: facts.is_resumed,
            is_doubtful: facts.is_doubtful,
            is_late: facts.is_late,
            pause_left: left.filter(|left| !left.is_zero()),
            is_overdue: facts.poll.is_some_and(|poll| began.saturating_duration_since(poll.looked) >= longest),
            looks: facts.poll.map_or(0, |poll| poll.count),
            told: facts.told.clone(),
            ..Known::default()
        }
    }

    /// The step is about to be done.
    pub fn intends(&mut self, content: &Arc<K>, step: &Step) {
        match step {
            // The answer to an earlier request says nothing of this one.
            Step::Begin(_) => self.facts.is_refused = false,
            Step::Create(_) if facts::stored_handle(&**content).is_some() => self.facts.is_late = true,
            // Before the driver can begin.
            Step::Create(asked) => self.ask(content, asked),
            // Before the write: the memory of the call must not take the write for a wipe, nor the end of the content for a removal by
            // force. From now on the stored handle counts, and what the user changes, not what is remembered.
            Step::Unmark { .. }
            | Step::Release
            | Step::ReleaseKept(_)
            | Step::Fail(_, InvalidSnapshot::OtherSnapshot { .. })
            | Step::Wait(Wait::Earlier(_)) => self.unanswered = None,
            _ => {}
        }
    }

    /// What a step has brought.
    pub fn apply(&mut self, progress: &mut Progress, answer: Answer) {
        let facts = &mut self.facts;
        facts.is_resumed |= std::mem::take(&mut progress.is_resumed);
        if let Some(warning) = answer.warning() {
            facts.told.is_news(&gist(&warning.note));
        }
        match &answer {
            Answer::GaveWay(now, _) => {
                // The first look of a term is waited for from now on.
                facts.poll.get_or_insert(Poll { count: 0, looked: *now, due: *now, since: *now });
            }
            Answer::Taken(found, is_grouped) => {
                facts.is_grouped |= is_grouped;
                (facts.is_doubtful, facts.is_resumed, facts.is_late) = (false, false, false);
                if let Some(unanswered) = &mut self.unanswered {
                    unanswered.found = Some(found.clone());
                }
            }
            Answer::Found { is_grouped, .. } => {
                facts.is_grouped |= is_grouped;
                facts.is_late = false;
            }
            Answer::Refused(failed, refusal) => self.refused(failed.failure.is_final, refusal),
            Answer::SourceGone => facts.is_late = false,
            Answer::NotReady(failed, pause) => {
                let (count, since) = facts.poll.map_or((0, failed.at), |poll| (poll.count, poll.since));
                let count = count.saturating_add(1);
                facts.poll = Some(Poll { count, looked: failed.at, due: failed.at + *pause, since });
            }
            Answer::Saved { is_ready: true, .. } => {
                progress.unready_since = facts.poll.take().map(|poll| poll.since).or(progress.unready_since);
            }
            Answer::Unmarked => facts.is_refused = false,
            Answer::Searched(_) => facts.is_doubtful = false,
            Answer::Deleted => facts.is_deleted = true,
            Answer::Undeletable => facts.is_undeletable = true,
            Answer::Abandoned(_) => self.unanswered = None,
            _ => {}
        }
        progress.apply(answer);
    }

    fn refused(&mut self, is_final: bool, refusal: &NotTaken) {
        let facts = &mut self.facts;
        facts.is_doubtful |= refusal.leaves_doubt;
        facts.is_late &= !refusal.is_answer;
        facts.is_refused |= is_final && refusal.exists;
        if is_final {
            facts.is_resumed = false;
            self.unanswered.take_if(|_| !refusal.exists);
        }
    }

    /// The attempt has ended.
    pub fn ended(&mut self, progress: &mut Progress, end: &End<'_, InvalidSnapshot>) {
        let End::Failed(error) = end else { return self.settled() };
        if let Some(warning) = &progress.warning {
            progress.is_news = self.facts.told.is_news(&gist(&warning.note));
        }
        let Some(now) = progress.failed_at.or(progress.began) else { return };
        let (held, what) =
            (self.facts.waiting.take(), (K::NAMES.operation(progress.operation()), waiting::reason(error)));
        self.facts.waiting = Some(Waiting::next(held, progress.who.clone(), what, now, error.message()));
    }

    /// Nothing is left to do: it waits no more, and what fails from here on is news.
    pub fn settled(&mut self) {
        (self.facts.waiting, self.facts.told) = (None, Texts::default());
    }
}

/// The pause before the next look at a snapshot that is not ready, after so many looks.
pub fn pause(looks: u32, pace: &Backoff, jitter: f64) -> Duration {
    // Shortened by chance and not lengthened, so that nobody hears of it later than the longest pause after it.
    pace.delay(looks.saturating_add(1), None, 0.0).mul_f64(1.0 - MOST_SHORTENED * jitter)
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;

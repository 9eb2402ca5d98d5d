//! The calls to the driver about a content: what is common to snapshots and groups.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tonic::Code;
use tracing::{debug, info, warn};

use crate::cluster::ObjectName;
use crate::csi::{Client, RpcError};
use crate::process::{Clock, ErrorChain};
use crate::queue::Backoff;
use crate::roles::kit::{self, AttemptError, Part, Secret};
use crate::roles::snapshotter::content::policy::{
    Answer, Doomed, Failed, Failure, LookUp, NotTaken, Observed, Progress, Rules, Warning,
};
use crate::roles::snapshotter::content::record::error::{BEGIN, is_answer, is_refusal};
use crate::roles::snapshotter::content::record::{
    Asked, ContentError, Found, InvalidSnapshot, Operation, Request, Stop, facts, writes,
};
use crate::roles::snapshotter::content::told::{report, texts};

use super::{context::Context, memory::ContentKey};

/// Between two tries to put the mark of an unanswered call back. A call is seldom longer than a minute.
const PUT_BACK_PACE: Backoff = Backoff { initial: Duration::from_secs(1), max: Duration::from_secs(10) };

/// An answer, and what it says.
pub type Brought<T> = Result<Result<T, InvalidSnapshot>, RpcError>;

/// What the driver is asked about a snapshot that exists.
#[derive(Debug)]
pub struct Query<'a, K> {
    /// The content.
    pub content: &'a K,
    /// The driver's id.
    pub handle: &'a str,
    /// What the driver can be asked.
    pub rules: &'a Rules,
    /// The group whose content lists the snapshot.
    pub listed_group: Option<String>,
    /// An answer that says no time has that of this clock.
    pub clock: Clock,
}

/// What the driver says of a snapshot that exists.
#[derive(Debug)]
pub struct LookedUp {
    /// The snapshot.
    pub found: Found,
    /// Whether it is of a group.
    pub is_grouped: bool,
    /// The first id in the answer, and how many more there are, if none is the one that was asked for.
    pub others: Option<(String, usize)>,
}

/// The calls that each kind of contents has of its own.
pub trait Driven: LookUp {
    /// Asks for it by its request. An answer that says no time has that of the clock.
    fn create(
        client: &Client,
        request: &Request,
        secrets: HashMap<String, String>,
        clock: Clock,
    ) -> impl Future<Output = Brought<Found>> + Send;

    /// Asks for it by its id.
    fn look_up(
        client: &Client,
        query: &Query<'_, Self>,
        secrets: HashMap<String, String>,
    ) -> impl Future<Output = Brought<LookedUp>> + Send;

    /// Has it deleted.
    fn delete(
        client: &Client,
        doomed: &Doomed,
        secrets: HashMap<String, String>,
    ) -> impl Future<Output = Result<(), RpcError>> + Send;
}

/// What the steps of an attempt work with.
pub(super) type Act<'a, 'io, K> = kit::Act<'a, 'io, Context<K>, Observed<K>, Progress, ContentKey>;

impl<K: Driven> Act<'_, '_, K> {
    /// The content.
    pub(super) fn content(&self) -> &K {
        &self.seen.now.content
    }

    /// The secrets of a call.
    pub(super) fn secrets(&self) -> HashMap<String, String> {
        self.progress.secret.as_ref().map(|(_, secret)| Secret::texts(secret)).unwrap_or_default()
    }

    /// An operation that has failed, and what users are told of it.
    pub(super) fn failed(&self, operation: Operation, error: impl Into<ContentError>) -> Box<Failed> {
        let error = error.into();
        let told = texts::told(self.content(), operation, &error);
        Box::new(Failed {
            failure: Failure { operation, error, is_final: false, is_recorded: false },
            at: self.cx.scope.clock.now(),
            warning: told.map(|(reason, note)| Warning { reason, note }),
        })
    }

    /// Asks the driver for a snapshot, or whether the one that it has taken is ready. Meanwhile, mark and request come back whenever
    /// another writer wipes them: without them a crash would leave a snapshot that no object names.
    pub(super) async fn create(&self, asked: &Asked) -> Result<Answer, Stop> {
        let (cx, request, secrets) = (self.cx, &asked.request, self.secrets());
        let (clock, timeout) = (cx.scope.clock, cx.section.call_timeout);
        let call = async move |client: Client| K::create(&client.with_timeout(timeout), request, secrets, clock).await;
        let mut call = pin!(self.io.call(call));
        let bell = cx.memory.read(self.seen.now.uid(), |it| it.unanswered.as_ref().map(|it| Arc::clone(&it.wiped)));
        let bell = bell.filter(|_| self.seen.now.exists && self.operation() == Operation::Create);
        let mut failures = 0;
        let answer = loop {
            let Some(wiped) = &bell else { break call.await };
            let pause =
                async { tokio::time::sleep(PUT_BACK_PACE.delay(failures, None, cx.scope.rng.fraction())).await };
            tokio::select! {
                biased;
                answer = &mut call => break answer,
                () = wiped.notified() => {}
                () = pause, if failures > 0 => {}
            }
            failures = self.put_back(asked, failures).await;
        };
        match answer {
            Ok(Ok(found)) => Ok(self.taken(found)),
            Ok(Err(reason)) => Ok(self.nameless(reason)),
            Err(Stop::Failed(AttemptError::Driver(error))) => Ok(self.refused(asked, error)),
            Err(stop) => Err(stop),
        }
    }

    /// Puts mark and request back, which another writer has wiped during the call. Returns how often that has failed in a row. The caller must
    /// try again by itself: the watch has shown the wipe already, and rings no second time.
    async fn put_back(&self, asked: &Asked, failures: u32) -> u32 {
        let contents = &self.cx.stores.contents;
        let held = contents.get(&ObjectName::of(self.content()));
        let Some(content) = held.filter(|held| *held.meta().uid == *self.seen.now.uid()) else { return 0 };
        let Some(patch) = writes::begun(&*content, &asked.intent) else { return 0 };
        warn!("somebody has removed the mark of an unanswered call from the content, and it is put back");
        match self.io.beside().write(contents, &*content, (Part::Object, &patch), BEGIN).await {
            Ok(_) => return 0,
            // Others were faster: the watch shows soon what the content looks like.
            Err(Stop::Failed(error)) if failures == 0 && !error.is_stale() && !error.is_of_outage() => {
                warn!(error = %ErrorChain(&error), "cannot put the mark of an unanswered call back, and try again until it is there");
            }
            Err(stop) => debug!(?stop, failures, "the mark of an unanswered call could not be put back"),
        }
        failures.saturating_add(1)
    }

    /// What the call that takes a snapshot is for.
    fn operation(&self) -> Operation {
        if facts::stored_handle(self.content()).is_some() { Operation::Ready } else { Operation::Create }
    }

    fn taken(&self, mut found: Found) -> Answer {
        // A group's handle in the status would make the snapshot-controller look for a group that is none of its own.
        let group = found.group.take();
        if group.is_some() && !self.seen.known.is_grouped {
            warn!(snapshot = found.handle, group, "the driver says that the snapshot is of a group");
        }
        if let Some(odd) = &found.odd {
            warn!(group = found.handle, odd = odd.why, "the driver has taken the group, and its answer cannot be used");
        }
        match self.operation() {
            Operation::Create => Answer::Taken(found, group.is_some()),
            _ => Answer::Found { found, is_grouped: group.is_some(), warning: None },
        }
    }

    /// The driver's answer is a success without an id: there may be a snapshot of unknown id. The driver is asked again as long as the
    /// snapshot is wanted. A content that is being deleted goes, and an Event tells its user where to look.
    fn nameless(&self, reason: InvalidSnapshot) -> Answer {
        let (content, exists, operation) = (self.content(), self.seen.now.exists, self.operation());
        let is_taken = operation == Operation::Create;
        let mut failed = self.failed(operation, reason);
        let is_over = !exists || (facts::is_deleting(content) && facts::has_lost_owner(content));
        failed.failure.is_final = is_taken && is_over;
        let warning = (failed.failure.is_final && !exists).then(|| report::unlisted(self.seen));
        Answer::Refused(failed, NotTaken { is_answer: true, leaves_doubt: is_taken, exists, warning })
    }

    fn refused(&self, asked: &Asked, error: RpcError) -> Answer {
        let (code, operation, known) = (error.code, self.operation(), &self.seen.known);
        let (lists, gets) = (self.cx.rules.lists, self.cx.rules.gets);
        if operation == Operation::Ready && code == Code::NotFound && (lists || gets) {
            return Answer::SourceGone;
        }
        let mut failed = self.failed(operation, error);
        failed.failure.is_final = operation == Operation::Create && asked.is_as_recorded && is_refusal(code);
        let is_repeated = known.unanswered.is_some() || known.is_resumed || self.progress.is_resumed;
        let leaves_doubt = failed.failure.is_final && is_repeated;
        let (is_answer, exists) = (is_answer(code), self.seen.now.exists);
        Answer::Refused(failed, NotTaken { is_answer, leaves_doubt, exists, warning: None })
    }

    /// Asks the driver for a snapshot by its id.
    pub(super) async fn look_up(&self, handle: &str) -> Result<Answer, Stop> {
        let (cx, content, secrets) = (self.cx, self.content(), self.secrets());
        let listed_group = facts::given_handle(content).and_then(|_| cx.listed_group(handle));
        let query = &Query { content, handle, rules: &cx.rules, listed_group, clock: cx.scope.clock };
        let call = self.io.call(async move |client| K::look_up(&client, query, secrets).await);
        let LookedUp { found, is_grouped, others } = match call.await {
            Ok(Ok(found)) => found,
            Ok(Err(reason)) => return Ok(Answer::Failed(self.failed(Operation::Ready, reason))),
            Err(stop) => return self.unless_of_driver(Operation::Ready, stop),
        };
        let warning = others.map(|(taken, others)| report::other_id(self.seen, handle, &taken, others));
        Ok(Answer::Found { found, is_grouped, warning })
    }

    /// Has the driver delete it.
    pub(super) async fn delete(&self, doomed: &Doomed) -> Result<Answer, Stop> {
        let (secrets, timeout) = (self.secrets(), self.cx.section.call_timeout);
        let (snapshot, kind) = (&*doomed.handle, K::NAMES.word);
        let call = async move |client: Client| K::delete(&client.with_timeout(timeout), doomed, secrets).await;
        match self.io.call(call).await {
            Ok(()) => {
                info!(snapshot, kind, "deleted the snapshot");
                Ok(Answer::Deleted)
            }
            Err(Stop::Failed(AttemptError::Driver(error)))
                if error.code == Code::InvalidArgument && self.seen.known.is_grouped =>
            {
                warn!(snapshot, %error, "the snapshot goes with its group: only the content is released");
                Ok(Answer::Undeletable)
            }
            Err(stop) => self.unless_of_driver(Operation::Delete, stop),
        }
    }

    /// What the driver says is recorded before the attempt fails.
    fn unless_of_driver(&self, operation: Operation, stop: Stop) -> Result<Answer, Stop> {
        match stop {
            Stop::Failed(error @ AttemptError::Driver(_)) => Ok(Answer::Failed(self.failed(operation, error))),
            stop => Err(stop),
        }
    }
}

//! What a step may do to the world: one request or one call.
//!
//! `Io` alone takes the clients of the term, so nothing is written after it. It alone writes to the caches: what the API answers is in them
//! before the next decision. And it alone reads again after a 404, a 409 or a 422, so no role concludes anything from an old view.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;
use tracing::debug;

use futures::FutureExt as _;

use crate::cluster::{Api, ApiError, Cached, ObjectName, Patch, SecretRef};
use crate::csi::{Client, RpcError};
use crate::election::TermOver;
use crate::process::ErrorChain;
use crate::queue::{Key, Ticket};

use super::failure::{AttemptError, NoTurn, Op, OpError, Reason, Stop};
use super::freshness::{Freshness, catch_up, compare, lacks, look_up, read_again};
use super::locks::Patience;
use super::scope::TermScope;
use super::secrets::{self, Secret, SecretFailure};
use super::store::Store;
use super::telling::{Telling, tell};

/// Reads an object again whose cached version was old.
pub const REFRESH: Op = Op("cannot read the object again after a conflict");
/// Reads an object before the driver is called for it.
pub const CONFIRM: Op = Op("cannot read the object to confirm it before the driver is asked");

/// How often one attempt reads its objects again because a precondition failed. After that it conflicts with another
/// writer too often, and backs off.
const MAX_REFRESHES: u32 = 3;
/// How often the driver's answer is written again at once if the API is busy. After that the attempt fails, and the driver is asked
/// again.
const MAX_RECORD_TRIES: u32 = 4;
/// The pause before the second of these tries; it doubles.
const RECORD_PAUSE: Duration = Duration::from_millis(100);
/// If the API asks for a longer pause, the attempt fails: a worker, and a stop of the daemon, must not wait that long.
const LONGEST_RECORD_PAUSE: Duration = Duration::from_secs(5);

/// The outcome of a write.
#[derive(Debug)]
pub enum Written {
    /// The store has the object as the write has left it.
    Kept,
    /// The object is gone: it was being deleted, and the write took its last finalizer, or it had none when it was deleted.
    Ended,
    /// The API has no such object any more. The error is that of the write.
    NotFound(OpError),
}

/// The outcome of a read that confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmed {
    /// The cache has what the API has.
    Yes,
    /// The API has no such object any more.
    NotFound,
    /// The API has another object under the name, which the watch has not shown yet.
    Replaced,
}

impl Confirmed {
    /// Whether the API has the object. If it has another one of the kind and name, the attempt ends: the cache takes that one only from its
    /// watch, so another look would see no more than this one did.
    pub fn is_there<R: Reason>(self, kind: &'static str, name: &str) -> Result<bool, Stop<R>> {
        match self {
            Self::Yes => Ok(true),
            Self::NotFound => Ok(false),
            Self::Replaced => Err(Stop::Behind(AttemptError::Replaced(kind, name.to_owned()))),
        }
    }
}

/// Which part of an object a patch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All but the status.
    Object,
    /// The status.
    Status,
}

/// What all steps of an attempt share.
#[derive(Debug)]
pub(super) struct Shared<'a, K: Key> {
    pub(super) scope: &'a TermScope,
    pub(super) ticket: Mutex<&'a mut Ticket<K>>,
    pub(super) patience: Patience,
    /// Whether the driver has given an answer that is still to be recorded.
    pub(super) has_answer: bool,
    /// How often the attempt has read its objects again.
    pub(super) refreshes: &'a AtomicU32,
}

/// What one step may do: one of these verbs, once.
#[derive(Debug)]
pub struct Io<'a, K: Key> {
    shared: &'a Shared<'a, K>,
    #[cfg(all(test, feature = "sandbox"))]
    is_used: std::sync::atomic::AtomicBool,
}

/// What the steps of a role work with: what the term shares, what is seen, what the attempt has done so far, and the verbs.
#[derive(Debug)]
pub(crate) struct Act<'a, 'io, C, V, P, K: Key> {
    pub(crate) cx: &'a C,
    pub(crate) seen: &'a V,
    pub(crate) progress: &'a P,
    pub(crate) io: &'a Io<'io, K>,
}

impl<'a, K: Key> Io<'a, K> {
    pub(super) fn of(shared: &'a Shared<'a, K>) -> Self {
        Self {
            shared,
            #[cfg(all(test, feature = "sandbox"))]
            is_used: false.into(),
        }
    }

    /// An `Io` for one request beside the call that this step is making: for what the call rests on, which another writer may take away.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self::of(self.shared)
    }

    /// Waits for something that is no request and no call. Meanwhile another key has the worker, unless it has happened already.
    pub async fn wait<T, R: Reason>(&self, event: impl Future<Output = T>) -> Result<T, Stop<R>> {
        let Shared { scope, ticket, patience, .. } = self.shared;
        let mut ticket = ticket.lock().await;
        let mut event = pin!(event);
        let happened = match event.as_mut().now_or_never() {
            Some(happened) => happened,
            None => ticket.park(patience.wait(&scope.term, event)).await?,
        };
        self.is_done().await;
        Ok(happened)
    }

    /// Waits until the journal has recorded. The key keeps its worker, so that no more is being recorded than there are workers.
    pub async fn record<T, R: Reason>(&self, recording: impl Future<Output = T>) -> Result<T, Stop<R>> {
        let Shared { scope, patience, .. } = self.shared;
        let recorded = patience.wait(&scope.term, recording).await?;
        self.is_done().await;
        Ok(recorded)
    }

    /// Tells people during a call what they must know before it ends.
    pub async fn tell(&self, telling: Telling) {
        tell(telling, self.shared.scope, &**self.shared.ticket.lock().await);
    }

    /// Waits until the objects of a kind were listed once in this term.
    pub async fn wait_listed<T: Cached, R: Reason>(&self, store: &Store<T>) -> Result<(), Stop<R>> {
        self.wait(store.list()).await
    }

    /// Waits until the store has every object that is older than `seen`, which may have come in an answer before the watch got as far.
    pub async fn catch_up<T: Cached, R: Reason>(&self, store: &Store<T>, seen: &T) -> Result<(), Stop<R>> {
        let api = &self.api_of(store)?;
        Ok(self.wait(catch_up(api, store.cache(), seen)).await?.map_err(|error| CONFIRM.failed(error))?)
    }

    /// Reads an object that the store has, so that the store has [confirmed](Store::is_confirmed) it.
    pub async fn confirm<T: Cached, R: Reason>(&self, store: &Store<T>, seen: &T) -> Result<Confirmed, Stop<R>> {
        let api = self.api_of(store)?;
        let found = api.get_opt::<T>(&ObjectName::of(seen)).await;
        self.is_done().await;
        let Some(found) = found.map_err(|error| CONFIRM.failed(error))? else { return Ok(Confirmed::NotFound) };
        if found.meta().uid != seen.meta().uid {
            return Ok(Confirmed::Replaced);
        }
        compare(&api, store.cache(), seen, found).map_err(|error| CONFIRM.failed(error))?;
        store.confirm(seen);
        Ok(Confirmed::Yes)
    }

    /// The end of the attempt for the reason that a store lacks an object, after a look whether the API lacks it, too.
    pub async fn lacks<T: Cached, R: Reason>(&self, store: &Store<T>, name: &ObjectName, reason: R) -> Stop<R> {
        let stop = match self.api() {
            Ok(api) => lacks(api, store.cache(), name, reason).await,
            Err(over) => over.into(),
        };
        self.is_done().await;
        stop
    }

    /// The end of the attempt for a reason that an object gives, after a look whether the API has a newer version of it. If the API does
    /// not say, what the store has counts.
    pub async fn unless_newer<T: Cached, R: Reason>(
        &self,
        store: &Store<T>,
        seen: &T,
        reason: impl Into<Stop<R>>,
    ) -> Stop<R> {
        let stop = match self.api_of(store) {
            Ok(api) => match read_again(&api, store.cache(), seen).await {
                Ok(Freshness::Newer) => Stop::LookAgain,
                _ => reason.into(),
            },
            Err(over) => over.into(),
        };
        self.is_done().await;
        stop
    }

    /// The verb is done, and this is the API's answer.
    async fn done<T, R: Reason>(&self, answer: Result<T, ApiError>, op: Op) -> Result<T, Stop<R>> {
        self.is_done().await;
        Ok(answer.map_err(|error| op.failed(error))?)
    }

    /// Reads an object. Only this answer counts: the kind is not watched, or the watch may be behind.
    pub async fn get<T: Cached, R: Reason>(&self, name: &ObjectName, op: Op) -> Result<Option<T>, Stop<R>> {
        self.done(self.api()?.get_opt::<T>(name).await, op).await
    }

    /// Creates an object. No cache has it before the watch shows it: until then the role remembers the answer.
    pub async fn create<T: Cached, R: Reason>(&self, name: &ObjectName, body: &Value, op: Op) -> Result<T, Stop<R>> {
        self.done(self.api()?.create::<T>(name, body).await, op).await
    }

    /// The same of a kind that a store watches, in the version in which it does.
    pub async fn look_up<T: Cached, R: Reason>(
        &self,
        store: &Store<T>,
        name: &ObjectName,
        op: Op,
    ) -> Result<Option<T>, Stop<R>> {
        self.done(look_up(self.api()?, store.cache(), name).await, op).await
    }

    /// Reads all objects of a kind. The store may watch only some of them.
    pub async fn list<T: Cached, R: Reason>(&self, store: &Store<T>, op: Op) -> Result<Vec<T>, Stop<R>> {
        self.done(self.api_of(store)?.list::<T>(None, None).await, op).await
    }

    /// Reads from the API's history how an object was in the end that `seen` shows as it was before. `None`: the API no longer says.
    pub async fn history<T: Cached, R: Reason>(
        &self,
        store: &Store<T>,
        seen: &T,
        op: Op,
    ) -> Result<Option<T>, Stop<R>> {
        let since = seen.meta().resource_version.clone().unwrap_or_default();
        self.done(self.api_of(store)?.last_state::<T>(&ObjectName::of(seen), &seen.meta().uid, &since).await, op).await
    }

    /// Reads a Secret.
    pub async fn secret<R: Reason>(&self, place: &SecretRef) -> Result<Result<Secret, SecretFailure>, Stop<R>> {
        let found = secrets::read(self.api()?, place).await;
        self.is_done().await;
        Ok(found)
    }

    /// Patches the object that `seen` shows. What records an answer of the driver is tried a few times, because an attempt that gives up
    /// has to ask the driver again.
    pub async fn write<T: Cached, R: Reason>(
        &self,
        store: &Store<T>,
        seen: &T,
        (part, patch): (Part, &Patch),
        op: Op,
    ) -> Result<Written, Stop<R>> {
        let written = self.try_to_write(store, seen, (part, patch)).await;
        let end = match written? {
            Ok(written) => Ok(self.written(store, written)),
            Err(error) => self.read_after(store, seen, op.failed(error)).await,
        };
        self.is_done().await;
        end
    }

    /// Deletes the object that `seen` shows, whatever else has changed in it.
    pub async fn delete<T: Cached, R: Reason>(&self, store: &Store<T>, seen: &T, op: Op) -> Result<Written, Stop<R>> {
        let answer = self.api_of(store)?.delete::<T>(&ObjectName::of(seen), &seen.meta().uid).await;
        self.deleted(store, seen, answer, op).await
    }

    /// Deletes it, unless something has changed in it since. Whatever becomes of the answer, nothing is deleted after the next write.
    pub async fn delete_unchanged<T: Cached, R: Reason>(
        &self,
        store: &Store<T>,
        seen: &T,
        op: Op,
    ) -> Result<Written, Stop<R>> {
        let answer = self.api_of(store)?.delete_unchanged::<T>(&ObjectName::of(seen), seen.meta()).await;
        self.deleted(store, seen, answer, op).await
    }

    async fn deleted<T: Cached, R: Reason>(
        &self,
        store: &Store<T>,
        seen: &T,
        answer: Result<Option<T>, ApiError>,
        op: Op,
    ) -> Result<Written, Stop<R>> {
        let end = match answer {
            Ok(Some(left)) => Ok(self.written(store, left)),
            Ok(None) => {
                store.doubt(seen);
                Ok(Written::Ended)
            }
            Err(error) => self.read_after(store, seen, op.failed(error)).await,
        };
        self.is_done().await;
        end
    }

    /// Calls the driver. A failure after the loss of the term is none of the object.
    pub async fn call<T, R, F>(&self, call: impl FnOnce(Client) -> F) -> Result<T, Stop<R>>
    where
        R: Reason,
        F: Future<Output = Result<T, RpcError>>,
    {
        let answer = self.shared.scope.ask(call).await?;
        self.is_done().await;
        Ok(answer?)
    }

    fn api(&self) -> Result<&Api, TermOver> {
        self.shared.scope.api.use_now()
    }

    /// The API, in the version in which the store's kind is read.
    fn api_of<T: Cached>(&self, store: &Store<T>) -> Result<Api, TermOver> {
        Ok(self.api()?.in_version_of(store.cache()))
    }

    async fn try_to_write<T: Cached>(
        &self,
        store: &Store<T>,
        seen: &T,
        (part, patch): (Part, &Patch),
    ) -> Result<Result<T, ApiError>, NoTurn> {
        let name = ObjectName::of(seen);
        for tries in 0.. {
            let turn = self.shared.scope.write_turn(store.cache(), seen).await?;
            let api = self.api_of(store)?;
            let error = match part {
                Part::Object => api.patch::<T>(&name, patch).await,
                Part::Status => api.patch_status::<T>(&name, patch).await,
            };
            drop(turn);
            let error = match error {
                Err(error) if error.is_transient() && self.shared.has_answer && tries < MAX_RECORD_TRIES => error,
                answer => return Ok(answer),
            };
            let pause = error.retry_after().unwrap_or_else(|| RECORD_PAUSE * 2_u32.pow(tries));
            if pause > LONGEST_RECORD_PAUSE {
                return Ok(Err(error));
            }
            debug!(error = %ErrorChain(&error), "could not record the driver's answer yet");
            tokio::time::sleep(pause).await;
        }
        unreachable!("a try returns what the last one has brought")
    }

    fn written<T: Cached>(&self, store: &Store<T>, written: T) -> Written {
        let is_gone = written.meta().deletion_timestamp.is_some() && written.meta().finalizers().is_empty();
        if is_gone {
            store.doubt(&written);
        } else {
            store.confirm(&written);
        }
        // What is gone has its old version, which the cache ignores.
        self.shared.scope.api.give(store.cache(), written);
        if is_gone { Written::Ended } else { Written::Kept }
    }

    /// After a failed precondition, reads the object again. Any other error ends the attempt.
    async fn read_after<T: Cached, R: Reason>(
        &self,
        store: &Store<T>,
        seen: &T,
        error: OpError,
    ) -> Result<Written, Stop<R>> {
        let failure = AttemptError::from(error.clone());
        if !failure.is_stale() || self.shared.refreshes.fetch_add(1, Ordering::Relaxed) >= MAX_REFRESHES {
            return Err(failure.into());
        }
        debug!(error = failure.message(), "a precondition failed: reading again");
        match read_again(&self.api_of(store)?, store.cache(), seen).await.map_err(|error| REFRESH.failed(error))? {
            Freshness::Newer => Err(Stop::LookAgain),
            // The 404 of the write was wrong: the API has the object.
            Freshness::Same if failure.says_not_found() => Err(Stop::LookAgain),
            Freshness::Same => Err(failure.into()),
            Freshness::Gone => {
                store.doubt(seen);
                Ok(Written::NotFound(error))
            }
        }
    }

    /// A verb is done. In tests, a step that uses a second one is an error, and the daemon may die here.
    #[cfg(all(test, feature = "sandbox"))]
    async fn is_done(&self) {
        let is_first = !self.is_used.swap(true, Ordering::Relaxed);
        assert!(is_first, "a step is one request or one call");
        super::cuts::pass().await;
    }

    #[cfg(not(all(test, feature = "sandbox")))]
    #[expect(clippy::unused_async, reason = "in tests it waits")]
    async fn is_done(&self) {}
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "io_tests.rs"]
mod tests;

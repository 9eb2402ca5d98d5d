//! Reads the objects of one kind: a list in pages, and the watch that goes on from the list's version. [`watch`](super::watch) decides when
//! to read again.
//!
//! - **The watch begins behind the first page**, which says of which version all pages are. A list of a hundred thousand objects takes
//!   seconds, and what changes meanwhile does not wait for its end. [`Fanout`](super::Fanout) tells a page's object from a later event
//!   by their versions.
//! - A watch that fails during the list is begun anew behind it, from where it was. If that fails, too, the error is told.
//! - A watch that ends without an error, or is silent for longer than the server may keep it, is begun anew from where it was.

use std::future::pending;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _, TryFutureExt as _};
use kube::Resource as _;
use kube::core::params::{ListParams, WatchParams};
use kube::core::{ObjectList, Request};
use smol_str::SmolStr;
use tokio::time::timeout;

use super::api::url_in_version;
use super::fanout::News;
use super::objects::Cached;
use super::scope::WatchScope;
use super::watch_error::ReadError;
use super::watch_events::{WatchEvent, watch_events};

/// How long the server may keep one watch open. Short, because a dead connection is noticed only when this time is
/// over; a new watch costs one request.
const WATCH_SECONDS: u32 = 60;
/// A watch that is silent for so long is dead: the server would have ended it 5 s ago.
const WATCH_IDLE: Duration = Duration::from_secs(65);
/// Objects a page.
const PAGE: u32 = 500;

/// Where the objects of a kind are read, and which of them.
pub(super) struct Source {
    client: kube::Client,
    request: Request,
    is_metadata: bool,
    labels: Option<String>,
}

/// A list, and the watch that goes on from it.
pub(super) struct ListWatch<K: Cached> {
    source: Source,
    /// The list until it is complete.
    list: Option<Pages<K>>,
    /// How far list and watch have come. Empty: no page has said it.
    version: SmolStr,
    watch: Option<Events<K>>,
}

/// A list that is not complete.
struct Pages<K: Cached> {
    /// What is left of the page.
    objects: std::vec::IntoIter<K>,
    /// `None`: the page is the last one.
    next: Option<BoxFuture<'static, kube::Result<ObjectList<K>>>>,
    /// A watch has failed since the list began.
    is_unwatched: bool,
}

type Events<K> = BoxStream<'static, Result<WatchEvent<K>, ReadError>>;

impl Source {
    /// The objects of a scope, in this version of the kind or else in that of its type.
    pub(super) fn new<K: Cached>(client: &kube::Client, scope: &WatchScope, version: Option<&str>) -> Self {
        Self {
            client: client.clone(),
            request: Request::new(url_in_version::<K::Kind>(scope.namespace.as_deref(), version)),
            is_metadata: K::Kind::metadata_api(),
            labels: scope.labels.clone(),
        }
    }

    /// A page: the first, or the one that this token leads to. A consistent read: it is no older than the request.
    fn page<K: Cached>(&self, token: Option<String>) -> BoxFuture<'static, kube::Result<ObjectList<K>>> {
        let (label_selector, limit) = (self.labels.clone(), Some(PAGE));
        let params = ListParams { label_selector, limit, continue_token: token, ..ListParams::default() };
        let request = if self.is_metadata { self.request.list_metadata(&params) } else { self.request.list(&params) };
        let client = self.client.clone();
        async move { client.request(request.map_err(kube::Error::BuildRequest)?).await }.boxed()
    }

    /// What happens after a version.
    fn watch<K: Cached>(&self, version: &str) -> Events<K> {
        let (label_selector, timeout_seconds) = (self.labels.clone(), Some(WATCH_SECONDS));
        let params =
            WatchParams { label_selector, timeout: timeout_seconds, bookmarks: true, ..WatchParams::default() };
        let request = if self.is_metadata {
            self.request.watch_metadata(&params, version)
        } else {
            self.request.watch(&params, version)
        };
        let client = self.client.clone();
        let begun = async move { watch_events(&client, request.map_err(kube::Error::BuildRequest)?).await };
        let events = begun.map_err(ReadError::WatchStart).map_ok(|events| {
            stream::unfold(Box::pin(events), |mut events| async move {
                let event = timeout(WATCH_IDLE, events.next()).await.ok().flatten()?;
                Some((event.map_err(ReadError::Watch), events))
            })
        });
        events.try_flatten_stream().boxed()
    }
}

impl<K: Cached> ListWatch<K> {
    /// Nothing is requested before the first [`Self::next`].
    pub(super) fn new(source: Source) -> Self {
        let list = Pages { objects: Vec::new().into_iter(), next: Some(source.page(None)), is_unwatched: false };
        Self { source, list: Some(list), version: SmolStr::default(), watch: None }
    }

    /// What is read next: after the objects of the list, the end of the list; from the first page on, what the watch shows. A list that
    /// has failed is over. After any other error the next call goes on, from where the watch was.
    ///
    /// Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<News<K>, ReadError> {
        loop {
            let Some(list) = &mut self.list else {
                let event = self.watch.get_or_insert_with(|| self.source.watch(&self.version)).next().await;
                if let Some(news) = self.seen(event) {
                    return news;
                }
                continue;
            };
            if let Some(object) = list.objects.next() {
                return Ok(News::Listed(object));
            }
            let Some(next) = &mut list.next else {
                self.list = None;
                return if self.version.is_empty() { Err(ReadError::NoVersion) } else { Ok(News::ListDone) };
            };
            if self.watch.is_none() && !list.is_unwatched && !self.version.is_empty() {
                self.watch = Some(self.source.watch(&self.version));
            }
            tokio::select! {
                // The page first: nothing can keep the list from its end.
                biased;
                page = next => {
                    let ObjectList { metadata, items, .. } = page.map_err(ReadError::List)?;
                    if self.version.is_empty() {
                        self.version = metadata.resource_version.unwrap_or_default().into();
                    }
                    let token = metadata.continue_.filter(|token| !token.is_empty());
                    list.next = token.map(|token| self.source.page(Some(token)));
                    list.objects = items.into_iter();
                }
                event = next_of(self.watch.as_mut()) => match (self.seen(event), &mut self.list) {
                    (Some(Err(_)), Some(list)) => (list.is_unwatched, self.watch) = (true, None),
                    (Some(news), _) => return news,
                    (None, _) => {}
                },
            }
        }
    }

    /// The watch has shown something, or has ended.
    fn seen(&mut self, event: Option<Result<WatchEvent<K>, ReadError>>) -> Option<Result<News<K>, ReadError>> {
        match event {
            None => {
                self.watch = None;
                None
            }
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(WatchEvent::Ended(status))) => Some(Err(ReadError::Ended(status))),
            Some(Ok(WatchEvent::Reached(version))) => {
                self.version = version;
                None
            }
            Some(Ok(WatchEvent::Applied(object))) => Some(self.come_to(&object).map(|()| News::Applied(object))),
            Some(Ok(WatchEvent::Deleted(object))) => Some(self.come_to(&object).map(|()| News::Deleted(object))),
        }
    }

    /// The watch has shown an object of this version.
    fn come_to(&mut self, object: &K) -> Result<(), ReadError> {
        let version = object.meta().resource_version.as_ref().filter(|version| !version.is_empty());
        self.version = version.ok_or(ReadError::NoVersion)?.clone();
        Ok(())
    }
}

/// What a watch shows next. Without a watch, nothing.
async fn next_of<K>(watch: Option<&mut Events<K>>) -> Option<Result<WatchEvent<K>, ReadError>> {
    match watch {
        Some(watch) => watch.next().await,
        None => pending().await,
    }
}

//! The connections to the Kubernetes API: one set for work, one for watches, one for elections.
//!
//! There are three, so that none can starve another: slow patches never delay a Lease's renewal, and a busy watch never
//! delays a patch. The one for elections uses only HTTP/1.1 (`Versions` says why). The connections do not retry: the
//! queue, the watch or the elector decides about retries.
//!
//! With a [`Dial`](crate::process::Dial) (sandbox, simulation) the clients use plain HTTP over the dialled byte stream, with tokio's clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use kube::client::{Body, ClientBuilder};
use tokio::time::{Instant, sleep_until, timeout};
use tower::{BoxError, ServiceExt as _, service_fn};

use super::access::{ClusterAccess, ConnectError};
use super::connections::{AGENT, AnswerBody, ClientOptions, Lane};
use super::credentials::Credentials;
use super::outage::Outage;
use super::route::NoAnswer;

/// Clients of the API, each with its own connections.
#[derive(Clone)]
pub struct Clients {
    /// For reads and writes of single objects.
    pub work: kube::Client,
    /// For lists and watches.
    pub watch: kube::Client,
    /// For Leases.
    pub election: kube::Client,
    /// How long they wait for a response to begin.
    pub response_timeout: Duration,
    /// Whether the API answers them.
    pub outage: Outage,
    /// What they come with. It is renewed under them.
    pub credentials: Credentials,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").field("outage", &self.outage).finish_non_exhaustive()
    }
}

impl Clients {
    /// Reads the credentials and creates the clients. They connect at their first request. [`Credentials::renew`] has to run,
    /// or [`Credentials::look_if_due`] before a request, if they are to be renewed.
    pub async fn connect(access: &ClusterAccess, options: &ClientOptions) -> Result<Self, ConnectError> {
        Ok(Self::with(Credentials::read(access, options).await?, options))
    }

    #[cfg(test)]
    pub(super) fn from_config(access: &super::access::Access, options: &ClientOptions) -> Result<Self, ConnectError> {
        let connections = super::connections::Connections::of(access, options)?;
        Ok(Self::with(Credentials::fixed(connections), options))
    }

    fn with(credentials: Credentials, options: &ClientOptions) -> Self {
        let outage = Outage::default();
        let client = |lane| guarded(lane, &credentials, options, &outage);
        let (work, watch, election) = (client(Lane::Work), client(Lane::Watch), client(Lane::Election));
        Self { work, watch, election, response_timeout: options.response_timeout, outage, credentials }
    }
}

/// Adds what every client needs: a user agent, a limit for the beginning of a response, a pace for watches, and the news
/// whether the API answers and takes the credentials.
fn guarded(lane: Lane, credentials: &Credentials, options: &ClientOptions, outage: &Outage) -> kube::Client {
    let pace = Pace { gap: options.watch_pace, next: Arc::default() };
    let (limit, outage, credentials) = (options.response_timeout, outage.clone(), credentials.clone());
    let service = service_fn(move |mut request: Request<Body>| {
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        let (slot, outage, credentials) = (pace.slot(&request), outage.clone(), credentials.clone());
        async move {
            if let Some(start) = slot {
                sleep_until(start).await;
            }
            let (http, replaced) = credentials.connections(lane);
            let what = format!("{} {}", request.method(), request.uri().path());
            let watched = outage.begin(what.clone());
            let answer = timeout(limit, http.oneshot(request)).await;
            let answer = answer.unwrap_or_else(|_| Err(BoxError::from(NoAnswer(limit))));
            credentials.heard(&what, &answer);
            match &answer {
                Ok(response) => watched.answered(response.status()),
                Err(error) => watched.failed(error),
            }
            let end = slot.map(|_| replaced);
            answer.map(|response| response.map(|body| AnswerBody::new(body, end)))
        }
    });
    // No request of ours is for a default namespace: each names its own.
    ClientBuilder::new(service, "default").build()
}

/// Spaces the starts of watches of one path.
#[derive(Clone)]
struct Pace {
    gap: Duration,
    next: Arc<Mutex<BTreeMap<String, Instant>>>,
}

impl Pace {
    /// When a watch may start; `None` for any other request.
    fn slot(&self, request: &Request<Body>) -> Option<Instant> {
        request.uri().query().filter(|query| query.split('&').any(|pair| pair == "watch=true"))?;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let slot = next.entry(request.uri().path().to_owned()).or_insert(now);
        let start = (*slot).max(now);
        *slot = start + self.gap;
        Some(start)
    }
}

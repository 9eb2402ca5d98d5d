//! The connections of one set of credentials: three pools, which are exchanged together.
//!
//! A response to a watch ends when its credentials are exchanged, as if the server had ended it: the next watch begins where it
//! ended, over the new connections. Any other request in flight goes on.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _, RustlsTlsError};
use rustls::pki_types::ServerName;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::util::BoxCloneService;
use tower::{BoxError, ServiceBuilder, ServiceExt as _, service_fn};
use tracing::{info, warn};

use super::access::{Access, ConnectError};
use super::route::{DialConnector, Route};
use super::tls::client_config;
use crate::process::{Dial, Proxies, Proxy, ProxyError, error_chain};

/// The user agent in the API's audit log.
pub(super) const AGENT: &str = concat!("csi-control-plane/", env!("CARGO_PKG_VERSION"));

/// The timeouts of the connections.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Limit for connecting.
    pub connect_timeout: Duration,
    /// Limit for the beginning of a response. A response has no limit for its end, because a watch never ends.
    pub response_timeout: Duration,
    /// Pause between probes of an idle TCP connection, to notice a dead peer.
    pub keepalive: Duration,
    /// Pause between the starts of two watches of the same kind, so that a server that closes each watch at once is not
    /// called in a loop.
    pub watch_pace: Duration,
    /// The proxies of the environment, for a kubeconfig without `proxy-url` and for the pod's service account.
    pub proxies: Proxies,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(60),
            keepalive: Duration::from_secs(20),
            watch_pace: Duration::from_secs(1),
            proxies: Proxies::default(),
        }
    }
}

/// Sends requests.
pub(super) type Http = BoxCloneService<Request<Body>, Response<Incoming>, BoxError>;

/// What a request is for. Each lane has its own connections.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lane {
    Work,
    Watch,
    Election,
}

/// The connections of one set of credentials.
pub(super) struct Connections {
    work: Http,
    watch: Http,
    election: Http,
    /// Ends watches. Dropping the connections alone would not: a watch in flight holds its own.
    pub(super) replaced: CancellationToken,
}

impl Connections {
    pub(super) fn lane(&self, lane: Lane) -> Http {
        match lane {
            Lane::Work => &self.work,
            Lane::Watch => &self.watch,
            Lane::Election => &self.election,
        }
        .clone()
    }

    /// Plain HTTP over a byte stream.
    pub(super) fn over(dial: &Dial, token: Option<&str>, options: &ClientOptions) -> Result<Self, ConnectError> {
        let authorization = match token {
            None => None,
            Some(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| ConnectError::Token)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let lane = || {
            let http = pool().build::<_, Body>(DialConnector { dial: dial.clone(), timeout: options.connect_timeout });
            let authorization = authorization.clone();
            let service = service_fn(move |mut request: Request<Body>| {
                if let Some(value) = &authorization {
                    request.headers_mut().insert(AUTHORIZATION, value.clone());
                }
                let (request, http) = (absolute(request), http.clone());
                async move { http.request(request?).await.map_err(BoxError::from) }
            });
            service.boxed_clone()
        };
        Ok(Self { work: lane(), watch: lane(), election: lane(), replaced: CancellationToken::new() })
    }

    /// The connections of a kubeconfig or a service account. They are made with the first request.
    pub(super) fn of(access: &Access, options: &ClientOptions) -> Result<Self, ConnectError> {
        let Access { config, proxy_url, .. } = access;
        let proxy = proxy(&config.cluster_url, proxy_url.as_deref(), &options.proxies)?;
        if let Some(proxy) = &proxy {
            info!(%proxy, "the Kubernetes API is reached through a proxy");
        }
        let tls = client_config(config)?;
        let lane = |versions: Versions| -> Result<Http, kube::Error> {
            let mut tcp = HttpConnector::new();
            tcp.enforce_http(false);
            tcp.set_nodelay(true);
            tcp.set_connect_timeout(Some(options.connect_timeout));
            tcp.set_keepalive(Some(options.keepalive));
            tcp.set_keepalive_interval(Some(options.keepalive));
            tcp.set_keepalive_retries(Some(3));
            let mut pool = pool();
            // With HTTP/2, all requests would wait for a dead peer. An HTTP/1.1 connection has one request and is
            // dropped with it.
            pool.http2_keep_alive_interval(options.keepalive).http2_keep_alive_timeout(options.connect_timeout);
            let route = Route::new(tcp, proxy.clone(), &tls, options.connect_timeout);
            let authorization = route.authorization(&config.cluster_url);
            let http = pool.build::<_, Body>(https(route, tls.clone(), config.tls_server_name.as_deref(), versions)?);
            let service = ServiceBuilder::new()
                .layer(config.base_uri_layer())
                .option_layer(config.auth_layer()?)
                .layer(config.extra_headers_layer()?)
                .map_err(BoxError::from)
                .map_request(move |mut request: Request<Body>| {
                    if let Some(value) = &authorization {
                        request.headers_mut().insert(PROXY_AUTHORIZATION, value.clone());
                    }
                    request
                })
                .service(http);
            Ok(service.boxed_clone())
        };
        let lane = |versions| lane(versions).map_err(|error| ConnectError::Credentials(Box::new(error)));
        Ok(Self {
            work: lane(Versions::Any)?,
            watch: lane(Versions::Any)?,
            election: lane(Versions::One)?,
            replaced: CancellationToken::new(),
        })
    }
}

/// The proxy for the API server: as client-go, the kubeconfig's `proxy-url` whatever `NO_PROXY` says, else the variables.
fn proxy(server: &Uri, proxy_url: Option<&str>, variables: &Proxies) -> Result<Option<Proxy>, ConnectError> {
    if let Some(url) = proxy_url {
        return Proxy::parse(url, "`proxy-url` of the kubeconfig").map(Some).map_err(ConnectError::Proxy);
    }
    match variables.of(server) {
        Err(error @ ProxyError::Address { .. }) => {
            warn!(error = error_chain(&error), "the Kubernetes API is reached without a proxy, as kubectl does");
            Ok(None)
        }
        found => found.map_err(ConnectError::Proxy),
    }
}

/// Connection pools with tokio's clock, so that a simulation controls their time.
fn pool() -> legacy::Builder {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.timer(TokioTimer::new()).pool_timer(TokioTimer::new());
    builder
}

/// The HTTP versions of a client.
#[derive(Debug, Clone, Copy)]
enum Versions {
    /// HTTP/2 if the server has it, as every kube-apiserver does: one connection carries all requests of a client. With
    /// HTTP/1.1 each request in flight needs its own connection, with a handshake, buffers, and a task in the server.
    Any,
    /// HTTP/1.1, for elections. When a request times out, its connection is closed, and the next request gets a new
    /// connection. With HTTP/2 only the stream would be closed: if a firewall or a load balancer has lost the
    /// connection, the client would still use it until a ping has had no answer for `keepalive` plus `connect_timeout`
    /// (30 s), and all renewals in that time would fail. Because `renewDeadline` is 10 s, the term would be lost. The
    /// watch on the Lease has a second connection.
    One,
}

fn https(
    route: Route,
    tls: rustls::ClientConfig,
    server_name: Option<&str>,
    versions: Versions,
) -> Result<HttpsConnector<Route>, kube::Error> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let builder = match server_name {
        None => builder,
        Some(name) => {
            let name = ServerName::try_from(name.to_owned())
                .map_err(|error| kube::Error::RustlsTls(RustlsTlsError::InvalidServerName(error)))?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
    };
    Ok(match versions {
        Versions::Any => builder.enable_all_versions().wrap_connector(route),
        Versions::One => builder.enable_http1().wrap_connector(route),
    })
}

/// The API behind a byte stream has no address; HTTP wants one.
fn absolute(mut request: Request<Body>) -> Result<Request<Body>, BoxError> {
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    *request.uri_mut() = format!("http://kubernetes{path}").parse::<Uri>()?;
    Ok(request)
}

/// The body of an answer. That of a watch ends with its connections.
pub(super) struct AnswerBody {
    body: Incoming,
    end: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl AnswerBody {
    pub(super) fn new(body: Incoming, end: Option<CancellationToken>) -> Self {
        Self { body, end: end.map(|end| Box::pin(end.cancelled_owned())) }
    }
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let has_ended = frame.is_pending() && self.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready());
        if has_ended { Poll::Ready(None) } else { frame }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! The connections to the Kubernetes API: one set for work, one for watches, one for elections.
//!
//! There are three, so that none can starve another: slow patches never delay a Lease's renewal, and a busy watch never
//! delays a patch. The one for elections uses only HTTP/1.1 (`Versions` says why). The connections do not retry: the
//! queue, the watch or the elector decides about retries.
//!
//! With a [`Dial`] (sandbox, simulation) the clients use plain HTTP over the dialled byte stream, with tokio's clock.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION, USER_AGENT};
use http::{HeaderValue, Request, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt as _, RustlsTlsError};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use rustls::pki_types::ServerName;
use tokio::time::{Instant, sleep_until, timeout};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, service_fn};
use tracing::{info, warn};

use super::outage::Outage;
use super::route::{DialConnector, NoAnswer, Route};
use super::tls::{TlsError, client_config};
use crate::process::{Dial, Proxies, Proxy, ProxyError, error_chain};

/// The user agent in the API's audit log.
const AGENT: &str = concat!("csi-control-plane/", env!("CARGO_PKG_VERSION"));

/// The API's address and our credentials.
#[derive(Clone)]
pub enum ClusterAccess {
    /// The usual search: `$KUBECONFIG`, the user's kubeconfig, then the pod's service account.
    Inferred,
    /// This kubeconfig's current context.
    Kubeconfig(PathBuf),
    /// Plain HTTP over a byte stream.
    Endpoint {
        /// Opens a byte stream.
        dial: Dial,
        /// The bearer token, if the server wants one.
        token: Option<String>,
    },
}

impl std::fmt::Debug for ClusterAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inferred => f.write_str("Inferred"),
            Self::Kubeconfig(path) => f.debug_tuple("Kubeconfig").field(path).finish(),
            Self::Endpoint { token, .. } => {
                f.debug_struct("Endpoint").field("token", &token.as_ref().map(|_| "…")).finish_non_exhaustive()
            }
        }
    }
}

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
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients").field("outage", &self.outage).finish_non_exhaustive()
    }
}

/// Why there are no clients.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {}", .path.display())]
    Kubeconfig {
        /// Which one.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[error("found neither a kubeconfig nor a pod's service account")]
    Infer(#[source] Box<kube::config::InferConfigError>),
    /// What is configured is no proxy.
    #[error("cannot reach the Kubernetes API through a proxy")]
    Proxy(#[source] ProxyError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The credentials cannot be used.
    #[error("cannot use the credentials for the Kubernetes API")]
    Credentials(#[source] Box<kube::Error>),
    /// The token has characters that no HTTP header may have.
    #[error("the bearer token is not fit for an HTTP header")]
    Token,
}

impl ConnectError {
    /// For metrics and events.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Kubeconfig { .. } => "kubeconfig",
            Self::Infer(_) => "infer",
            Self::Proxy(_) => "proxy",
            Self::Tls(_) => "tls",
            Self::Credentials(_) => "credentials",
            Self::Token => "token",
        }
    }
}

/// hyper's response, whatever the connection.
type Answer = <legacy::Client<HttpConnector, Body> as Service<Request<Body>>>::Response;

impl Clients {
    /// Reads the credentials and creates the clients. They connect at their first request.
    pub async fn connect(access: &ClusterAccess, options: &ClientOptions) -> Result<Self, ConnectError> {
        match access {
            ClusterAccess::Endpoint { dial, token } => Self::over(dial, token.as_deref(), options),
            ClusterAccess::Inferred => Self::from_config(&inferred().await?, options),
            ClusterAccess::Kubeconfig(path) => Self::from_config(&kubeconfig(path).await?, options),
        }
    }

    fn over(dial: &Dial, token: Option<&str>, options: &ClientOptions) -> Result<Self, ConnectError> {
        let authorization = match token {
            None => None,
            Some(token) => {
                let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| ConnectError::Token)?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let outage = Outage::default();
        let client = || {
            let http = pool().build::<_, Body>(DialConnector { dial: dial.clone(), timeout: options.connect_timeout });
            let authorization = authorization.clone();
            let service = service_fn(move |mut request: Request<Body>| {
                if let Some(value) = &authorization {
                    request.headers_mut().insert(AUTHORIZATION, value.clone());
                }
                let (request, http) = (absolute(request), http.clone());
                async move { http.request(request?).await.map_err(BoxError::from) }
            });
            guarded(service, options, &outage)
        };
        Ok(Self {
            work: client(),
            watch: client(),
            election: client(),
            response_timeout: options.response_timeout,
            outage: outage.clone(),
        })
    }

    pub(super) fn from_config(
        Access { config, proxy_url }: &Access,
        options: &ClientOptions,
    ) -> Result<Self, ConnectError> {
        let proxy = proxy(&config.cluster_url, proxy_url.as_deref(), &options.proxies)?;
        if let Some(proxy) = &proxy {
            info!(%proxy, "the Kubernetes API is reached through a proxy");
        }
        let outage = Outage::default();
        let tls = client_config(config)?;
        let client = |versions: Versions| -> Result<kube::Client, kube::Error> {
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
            Ok(guarded(service, options, &outage))
        };
        let client = |versions| client(versions).map_err(|error| ConnectError::Credentials(Box::new(error)));
        Ok(Self {
            work: client(Versions::Any)?,
            watch: client(Versions::Any)?,
            election: client(Versions::One)?,
            response_timeout: options.response_timeout,
            outage: outage.clone(),
        })
    }
}

/// The API's address and credentials, and the proxy that the kubeconfig itself names.
pub(super) struct Access {
    config: kube::Config,
    proxy_url: Option<String>,
}

async fn kubeconfig(path: &Path) -> Result<Access, ConnectError> {
    let failed = |source| ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let file = Kubeconfig::read_from(path).map_err(failed)?;
    read(file).await.map_err(failed)
}

async fn inferred() -> Result<Access, ConnectError> {
    let access = match Kubeconfig::read() {
        Ok(file) => read(file).await.ok(),
        Err(_) => None,
    };
    if let Some(mut access) = access {
        access.config.apply_debug_overrides();
        return Ok(access);
    }
    kube::Config::infer().await.map(of_pod).map_err(|error| ConnectError::Infer(Box::new(error)))
}

/// The access of a pod's service account, which names no proxy of its own.
pub(super) fn of_pod(config: kube::Config) -> Access {
    Access { config, proxy_url: None }
}

/// kube puts `HTTPS_PROXY` in the place of a `proxy-url` that is not there, without a look at `NO_PROXY`: [`Proxies`] decides.
async fn read(mut file: Kubeconfig) -> Result<Access, KubeconfigError> {
    let proxy_url = cluster(&mut file).and_then(|cluster| cluster.proxy_url.clone()).filter(|url| !url.is_empty());
    let made = kube::Config::from_custom_kubeconfig(file.clone(), &KubeConfigOptions::default()).await;
    let mut config = match made {
        // Of the variable: it may be that `NO_PROXY` makes it meaningless.
        Err(KubeconfigError::ParseProxyUrl(_)) if proxy_url.is_none() => {
            if let Some(cluster) = cluster(&mut file) {
                cluster.proxy_url = Some("http://none.invalid".to_owned());
            }
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?
        }
        made => made?,
    };
    config.proxy_url = None;
    Ok(Access { config, proxy_url })
}

/// The cluster of the current context.
fn cluster(file: &mut Kubeconfig) -> Option<&mut kube::config::Cluster> {
    let context = file.contexts.iter().find(|context| Some(&context.name) == file.current_context.as_ref())?;
    let name = &context.context.as_ref()?.cluster;
    file.clusters.iter_mut().find(|cluster| cluster.name == *name)?.cluster.as_mut()
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

/// Adds what every client needs: a user agent, a limit for the beginning of a response, a pace for watches, and the news
/// whether the API answers.
fn guarded<S>(inner: S, options: &ClientOptions, outage: &Outage) -> kube::Client
where
    S: Service<Request<Body>, Response = Answer, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    let pace = Pace { gap: options.watch_pace, next: Arc::default() };
    let (limit, outage) = (options.response_timeout, outage.clone());
    let service = service_fn(move |mut request: Request<Body>| {
        let inner = inner.clone();
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
        let (slot, outage) = (pace.slot(&request), outage.clone());
        async move {
            if let Some(start) = slot {
                sleep_until(start).await;
            }
            let watched = outage.begin(format!("{} {}", request.method(), request.uri().path()));
            let answer = timeout(limit, inner.oneshot(request)).await;
            let answer = answer.unwrap_or_else(|_| Err(BoxError::from(NoAnswer(limit))));
            match &answer {
                Ok(response) => watched.answered(response.status()),
                Err(error) => watched.failed(error),
            }
            answer
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

//! Connections through a proxy: HTTP CONNECT, or SOCKS 5.
//!
//! Each failure names the proxy and what was to be reached, because neither is in the answer of a proxy.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{Request, StatusCode, Uri};
use hyper::client::conn::http1;
use hyper::rt::{Read, Write};
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tower::{BoxError, Service, ServiceExt as _};

use super::proxy::{Proxy, port};
use super::socks::{self, SocksError};
use super::transport::BoxedIo;

/// Why there is no connection through a proxy.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The proxy could not be reached.
    #[error("cannot connect to the proxy {proxy}")]
    Unreachable {
        /// The proxy.
        proxy: String,
        /// Why not.
        source: BoxError,
    },
    /// The proxy does not let us through.
    #[error("the proxy {proxy} refuses to connect to {target}: {status}; {}", remedy(*.status))]
    Refused {
        /// The proxy.
        proxy: String,
        /// What was to be reached.
        target: String,
        /// Its answer.
        status: StatusCode,
    },
    /// The proxy did not answer as one.
    #[error("the proxy {proxy} did not connect to {target}")]
    Failed {
        /// The proxy.
        proxy: String,
        /// What was to be reached.
        target: String,
        /// Why not.
        source: BoxError,
    },
    /// The proxy did not answer.
    #[error("the proxy {proxy} has not connected to {target} within {limit:?}")]
    Slow {
        /// The proxy.
        proxy: String,
        /// What was to be reached.
        target: String,
        /// How long it had.
        limit: Duration,
    },
}

fn remedy(status: StatusCode) -> &'static str {
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        "give its address a user and a password that it accepts, as http://USER:PASSWORD@HOST:PORT"
    } else {
        "allow that host and port there, or list the host in NO_PROXY (a kubeconfig's `proxy-url` is used without NO_PROXY)"
    }
}

/// Connects to the proxy alone.
pub async fn reach<C>(proxy: &Proxy, connector: C) -> Result<C::Response, TunnelError>
where
    C: Service<Uri>,
    C::Error: Into<BoxError>,
{
    let connected = connector.oneshot(proxy.dialled()).await;
    connected.map_err(|error| TunnelError::Unreachable { proxy: proxy.to_string(), source: error.into() })
}

/// Connects to `target` through the proxy, which `connector` reaches.
pub async fn tunnel<C>(proxy: &Proxy, connector: C, target: &Uri, limit: Duration) -> Result<BoxedIo, TunnelError>
where
    C: Service<Uri>,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Error: Into<BoxError>,
{
    let stream = reach(proxy, connector).await?;
    let (name, address) = (proxy.to_string(), format!("{}:{}", target.host().unwrap_or_default(), port(target)));
    let failed = |source: BoxError| TunnelError::Failed { proxy: name.clone(), target: address.clone(), source };
    let opened = async {
        if proxy.is_socks() {
            return socks(proxy, stream, target).await.map_err(|error| failed(error.into()));
        }
        match connect(proxy, stream, &address).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(status)) => Err(TunnelError::Refused { proxy: name.clone(), target: address.clone(), status }),
            Err(error) => Err(failed(error.into())),
        }
    };
    match timeout(limit, opened).await {
        Ok(opened) => opened,
        Err(_) => Err(TunnelError::Slow { proxy: name.clone(), target: address.clone(), limit }),
    }
}

async fn connect<S>(proxy: &Proxy, stream: S, address: &str) -> Result<Result<BoxedIo, StatusCode>, hyper::Error>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let (mut requests, connection) = http1::handshake::<_, String>(stream).await?;
    let mut request = Request::connect(address).body(String::new()).unwrap_or_default();
    if let Ok(host) = address.parse() {
        request.headers_mut().insert(HOST, host);
    }
    if let Some(value) = proxy.authorization() {
        request.headers_mut().insert(PROXY_AUTHORIZATION, value);
    }
    let answered = async {
        let answer = requests.send_request(request).await?;
        if !answer.status().is_success() {
            return Ok(Err(answer.status()));
        }
        Ok(Ok(Box::new(TokioIo::new(hyper::upgrade::on(answer).await?)) as BoxedIo))
    };
    // The connection hands its stream over at the answer, and ends.
    match select(pin!(answered), pin!(connection.with_upgrades())).await {
        Either::Left((answer, _)) => answer,
        Either::Right((_, answered)) => answered.await,
    }
}

async fn socks<S>(proxy: &Proxy, stream: S, target: &Uri) -> Result<BoxedIo, SocksError>
where
    S: Read + Write + Unpin + Send + 'static,
{
    let host = target.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let mut stream = TokioIo::new(stream);
    socks::connect(&mut stream, proxy.credentials(), host, port(target)).await?;
    Ok(Box::new(stream))
}

//! How a connection to the API server is made: directly, through a proxy, or with a [`Dial`].

use std::error::Error;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tower::{BoxError, Service, ServiceExt as _};

use crate::process::{BoxedIo, Dial, Proxy, reach, tunnel};

/// The server did not begin to answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {0:?}")]
pub(super) struct NoAnswer(pub(super) Duration);

/// Opens connections over TCP, through a proxy if there is one.
#[derive(Clone)]
pub(super) struct Route {
    tcp: HttpConnector,
    via: Option<Arc<Via>>,
}

struct Via {
    proxy: Proxy,
    /// Reaches the proxy. With an `https://` proxy it trusts whom the API server's clients trust, as Go's programs do.
    connector: HttpsConnector<HttpConnector>,
    timeout: Duration,
}

impl Route {
    pub(super) fn new(tcp: HttpConnector, proxy: Option<Proxy>, tls: &rustls::ClientConfig, timeout: Duration) -> Self {
        let via = proxy.map(|proxy| {
            let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http().enable_http1();
            Arc::new(Via { proxy, connector: builder.wrap_connector(tcp.clone()), timeout })
        });
        Self { tcp, via }
    }

    /// What each request to an `http://` server carries for the proxy: without TLS, requests go to the proxy itself.
    pub(super) fn authorization(&self, server: &Uri) -> Option<HeaderValue> {
        let via = self.via.as_ref().filter(|via| is_relayed(&via.proxy, server))?;
        via.proxy.authorization()
    }
}

/// Whether the proxy is sent the requests themselves, and not asked for a tunnel.
fn is_relayed(proxy: &Proxy, server: &Uri) -> bool {
    server.scheme_str() == Some("http") && !proxy.is_socks()
}

impl Service<Uri> for Route {
    type Response = TokioIo<Dialed>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Self { tcp, via } = self.clone();
        Box::pin(async move {
            let (stream, is_relayed) = match via {
                None => (Box::new(tcp.oneshot(server).await?.into_inner()) as BoxedIo, false),
                Some(via) if is_relayed(&via.proxy, &server) => {
                    let stream = reach(&via.proxy, via.connector.clone()).await?;
                    (Box::new(TokioIo::new(stream)) as BoxedIo, true)
                }
                Some(via) => (tunnel(&via.proxy, via.connector.clone(), &server, via.timeout).await?, false),
            };
            Ok(TokioIo::new(Dialed { stream, is_relayed }))
        })
    }
}

/// Opens connections with a [`Dial`].
#[derive(Clone)]
pub(super) struct DialConnector {
    pub(super) dial: Dial,
    pub(super) timeout: Duration,
}

impl Service<Uri> for DialConnector {
    type Response = TokioIo<Dialed>;
    type Error = Box<dyn Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { dial, timeout: limit } = self.clone();
        Box::pin(async move {
            match timeout(limit, dial.dial()).await {
                Ok(stream) => Ok(TokioIo::new(Dialed { stream: stream?, is_relayed: false })),
                Err(_) => Err(BoxError::from(NoAnswer(limit))),
            }
        })
    }
}

/// A stream, as hyper's connection pool wants it.
pub(super) struct Dialed {
    stream: BoxedIo,
    is_relayed: bool,
}

impl Connection for Dialed {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_relayed)
    }
}

impl AsyncRead for Dialed {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Dialed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

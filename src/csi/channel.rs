//! The driver's address, and one connection to it.
//!
//! ```text
//!   Endpoint ─dial()─> Dial ─open()─> Connection { channel, lost }
//!                                          │          └ the far end closed, an error, or tonic wanting to dial anew
//!                              Route (what calls go through): open ⇄ down, at last retired
//! ```
//!
//! Decisions:
//! - tonic would reconnect silently on the next call, and the call would reach a driver whose name was not checked. So
//!   a [`Connection`] never outlives its byte stream: the connector returns the stream only once, and the handshake
//!   decides whether calls may use the next one.
//! - The end of an idle connection is noticed: HTTP/2 always reads, so it sees the end of file at once.
//! - No keep-alive pings: a dead peer closes a unix socket, and a Go gRPC server closes the connection if pings come
//!   more often than every five minutes.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Channel;

use super::neighbours;
use crate::process::{BoxedIo, Dial, MAX_SOCKET_PATH};

/// The driver's unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    path: PathBuf,
}

/// An address that is no absolute unix socket path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Nothing there.
    #[error("the address is empty; give the driver's socket, such as unix:///run/csi/socket")]
    Empty,
    /// A path that depends on the working directory, or `unix://` followed by a host.
    #[error("{0:?} is not absolute; write unix:///run/csi/socket or /run/csi/socket")]
    NotAbsolute(String),
    /// Another kind of address.
    #[error(
        "{scheme:?} addresses are not supported: a CSI driver listens on a unix socket, such as unix:///run/csi/socket"
    )]
    Scheme {
        /// The part before the colon.
        scheme: String,
    },
    /// A path that ends where a socket's name should begin.
    #[error("{0:?} is a folder; give the driver's socket, such as unix:///run/csi/socket")]
    Folder(String),
    /// More than the operating system can bind.
    #[error("the socket's path has {0} bytes; unix sockets allow at most {MAX_SOCKET_PATH}")]
    TooLong(usize),
    /// A byte that ends a path.
    #[error("the socket's path contains a NUL character")]
    Nul,
}

impl Endpoint {
    /// Reads `unix:///path`, `unix:/path` or `/path`.
    pub fn parse(address: &str) -> Result<Self, EndpointError> {
        let path = match address.strip_prefix("unix:") {
            // After `//` stands a host, and a socket has none: the path begins at the third slash.
            Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
            None => address,
        };
        if path.is_empty() {
            return Err(EndpointError::Empty);
        }
        if !path.starts_with('/') {
            return Err(match address.split_once(':') {
                Some((scheme, _)) if scheme != "unix" => EndpointError::Scheme { scheme: scheme.to_owned() },
                _ => EndpointError::NotAbsolute(address.to_owned()),
            });
        }
        if path.contains('\0') {
            return Err(EndpointError::Nul);
        }
        if path.ends_with('/') {
            return Err(EndpointError::Folder(address.to_owned()));
        }
        if path.len() > MAX_SOCKET_PATH {
            return Err(EndpointError::TooLong(path.len()));
        }
        Ok(Self { path: path.into() })
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How to connect to it.
    pub fn dial(&self) -> Dial {
        let (path, dial) = (self.path.clone(), Dial::unix(self.path.clone()));
        Dial::new(move || {
            let (path, dial) = (path.clone(), dial.clone());
            async move {
                match dial.dial().await {
                    Ok(io) => Ok(io),
                    Err(error) => Err(neighbours::explain(&path, error).await),
                }
            }
        })
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The socket.
    #[error("cannot connect to the driver's socket")]
    Dial(#[source] io::Error),
    /// What listens there.
    #[error("cannot speak HTTP/2 with the driver")]
    Protocol(#[source] tonic::transport::Error),
    /// The socket, within this time.
    #[error("cannot connect to the driver's socket within {0:?}")]
    Slow(Duration),
    /// What listens there, within this time.
    #[error("cannot speak HTTP/2 with the driver within {0:?}")]
    Silent(Duration),
}

/// One connection. It ends with its byte stream and never reconnects.
pub(super) struct Connection {
    pub(super) channel: Channel,
    lost: CancellationToken,
}

/// Trailers contain the driver's error message. gRPC for Go accepts 16 MiB, hyper 16 KiB.
const MAX_HEADERS: u32 = 1 << 20;

impl Connection {
    pub(super) async fn open(dial: &Dial, limit: Duration) -> Result<Self, ConnectError> {
        let deadline = Instant::now() + limit;
        let dialed = timeout_at(deadline, dial.dial()).await.map_err(|_| ConnectError::Slow(limit))?;
        let io = dialed.map_err(ConnectError::Dial)?;
        timeout_at(deadline, Self::speak(io)).await.unwrap_or(Err(ConnectError::Silent(limit)))
    }

    async fn speak(io: BoxedIo) -> Result<Self, ConnectError> {
        let lost = CancellationToken::new();
        let mut once = Some(TokioIo::new(Watched { io, lost: lost.clone(), _dropped: lost.clone().drop_guard() }));
        let again = lost.clone();
        let connector = tower::service_fn(move |_| {
            let io = once.take();
            if io.is_none() {
                // tonic connects a second time if the first stream is no longer usable, for example after a GOAWAY.
                again.cancel();
            }
            std::future::ready(
                io.ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the connection has ended")),
            )
        });
        // The authority that gRPC for Go sends for a unix socket.
        let channel = Channel::from_static("http://localhost")
            .user_agent(concat!("csi-control-plane/", env!("CARGO_PKG_VERSION")))
            .map_err(ConnectError::Protocol)?
            .http2_max_header_list_size(MAX_HEADERS)
            .connect_with_connector(connector)
            .await
            .map_err(ConnectError::Protocol)?;
        Ok(Self { channel, lost })
    }

    /// Resolves when the connection is over.
    pub(super) fn lost(&self) -> impl Future<Output = ()> + use<> {
        self.lost.clone().cancelled_owned()
    }
}

/// The current connection for the calls of one generation of a driver.
pub(super) struct Route(Mutex<Via>);

#[derive(Clone)]
enum Via {
    Open(Channel),
    Down,
    Retired,
}

/// Why a call can't be made at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoRoute {
    #[error("not connected to the driver")]
    Down,
    #[error("the driver came back with other capabilities: decisions based on the old ones are dropped")]
    Retired,
}

impl Route {
    pub(super) fn open(channel: Channel) -> Self {
        Self(Mutex::new(Via::Open(channel)))
    }

    /// Without a connection.
    pub(super) fn closed() -> Self {
        Self(Mutex::new(Via::Down))
    }

    pub(super) fn channel(&self) -> Result<Channel, NoRoute> {
        match &*self.0.lock() {
            Via::Open(channel) => Ok(channel.clone()),
            Via::Down => Err(NoRoute::Down),
            Via::Retired => Err(NoRoute::Retired),
        }
    }

    pub(super) fn reopen(&self, channel: Channel) {
        self.turn(Via::Open(channel));
    }

    pub(super) fn down(&self) {
        self.turn(Via::Down);
    }

    pub(super) fn retire(&self) {
        self.turn(Via::Retired);
    }

    fn turn(&self, to: Via) {
        *self.0.lock() = to;
    }
}

/// A byte stream that signals its end.
struct Watched {
    io: BoxedIo,
    lost: CancellationToken,
    _dropped: DropGuard,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (room, filled) = (buf.remaining(), buf.filled().len());
        let result = Pin::new(&mut self.io).poll_read(cx, buf);
        match &result {
            Poll::Ready(Ok(())) if room > 0 && buf.filled().len() == filled => self.lost.cancel(),
            Poll::Ready(Err(_)) => self.lost.cancel(),
            _ => {}
        }
        result
    }
}

impl Watched {
    fn note<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = &result {
            self.lost.cancel();
        }
        result
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write(cx, buf);
        self.note(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_flush(cx);
        self.note(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.note(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absolute_socket_paths_are_read_in_all_their_spellings() {
        for address in ["unix:///run/csi/socket", "unix:/run/csi/socket", "/run/csi/socket"] {
            assert_eq!(Endpoint::parse(address).unwrap().path(), Path::new("/run/csi/socket"), "{address}");
        }
        assert_eq!(Endpoint::parse("/a:b").unwrap().path(), Path::new("/a:b"));
    }

    #[test]
    fn other_addresses_are_refused_with_the_right_spelling() {
        let refused = |address: &str| Endpoint::parse(address).unwrap_err();
        for empty in ["", "unix:", "unix://"] {
            assert_eq!(refused(empty), EndpointError::Empty, "{empty}");
        }
        for folder in ["unix:///", "/", "/run/csi/"] {
            assert_eq!(refused(folder), EndpointError::Folder(folder.into()));
        }
        for relative in ["unix://run/csi/socket", "unix:socket", "socket", "./socket"] {
            assert_eq!(refused(relative), EndpointError::NotAbsolute(relative.into()));
        }
        for (address, scheme) in
            [("tcp://127.0.0.1:50051", "tcp"), ("dns:///driver:1", "dns"), ("localhost:1", "localhost")]
        {
            assert_eq!(refused(address), EndpointError::Scheme { scheme: scheme.into() });
        }
        assert_eq!(refused(&format!("/{}", "x".repeat(107))), EndpointError::TooLong(108));
        assert_eq!(refused("/a\0b"), EndpointError::Nul);
        assert!(refused("tcp://x").to_string().contains("unix:///run/csi/socket"));
    }
}

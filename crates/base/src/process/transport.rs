//! Byte streams behind a connector, so that a simulated network can replace sockets.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::socket_path::check_socket_path;

/// A connected byte stream of any kind.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// A connected byte stream whose kind no longer matters.
pub type BoxedIo = Box<dyn Io>;

/// How to reach one peer: every call makes a new connection.
#[derive(Clone)]
pub struct Dial(Arc<dyn Fn() -> BoxFuture<'static, io::Result<BoxedIo>> + Send + Sync>);

impl Dial {
    /// Connects by calling `connect`.
    pub fn new<F, C>(connect: F) -> Self
    where
        F: Fn() -> C + Send + Sync + 'static,
        C: Future<Output = io::Result<BoxedIo>> + Send + 'static,
    {
        Self(Arc::new(move || connect().boxed()))
    }

    /// Connects to a unix socket.
    pub fn unix(path: PathBuf) -> Self {
        Self::new(move || {
            let path = path.clone();
            async move {
                check_socket_path(&path)?;
                Ok(Box::new(UnixStream::connect(path).await?) as BoxedIo)
            }
        })
    }

    /// Connects over TCP.
    pub fn tcp(address: SocketAddr) -> Self {
        Self::new(move || async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxedIo)
        })
    }

    /// Makes a connection.
    pub async fn dial(&self) -> io::Result<BoxedIo> {
        (self.0)().await
    }
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dial")
    }
}

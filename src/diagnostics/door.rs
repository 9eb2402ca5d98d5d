//! Where the diagnostics are served: a TCP listener, or connections of a simulated network.

use std::fmt;
use std::future::pending;
use std::io;
use std::net::SocketAddr;

use axum::serve::Listener;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::net::TcpListener;

use crate::process::BoxedIo;

/// Where the diagnostics are served.
pub enum Door {
    /// At this address.
    Tcp(TcpListener),
    /// For these connections. Without a next one, nobody can come any more.
    Connections(BoxStream<'static, io::Result<BoxedIo>>),
}

impl Door {
    /// The address, if there is one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Connections(_) => None,
        }
    }
}

impl Listener for Door {
    type Io = BoxedIo;
    type Addr = Option<SocketAddr>;

    async fn accept(&mut self) -> (BoxedIo, Option<SocketAddr>) {
        match self {
            Self::Tcp(listener) => {
                // axum's own waits after an error of the process, such as too many open files.
                let (io, address) = Listener::accept(listener).await;
                (Box::new(io), Some(address))
            }
            Self::Connections(connections) => loop {
                match connections.next().await {
                    Some(Ok(io)) => return (io, None),
                    Some(Err(_)) => {}
                    None => pending().await,
                }
            },
        }
    }

    fn local_addr(&self) -> io::Result<Option<SocketAddr>> {
        Ok(self.address())
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Door").field(&self.address()).finish()
    }
}

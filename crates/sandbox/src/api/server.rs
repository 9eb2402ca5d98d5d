//! Serving: HTTP/1.1 over any stream of connections, be they sockets or a simulated network's.

use std::io;
use std::time::Duration;

use base::process::watch;
use futures::{Stream, StreamExt as _};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::Api;
use super::http::{Surroundings, handle};
use base::process::{BoxedIo, Tasks, error_chain};

/// How long a stopping server waits for requests that are being answered.
const GRACE: Duration = Duration::from_secs(5);
/// How long it waits after a connection that could not be accepted: descriptors may have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The handle on a server's connections.
#[derive(Debug, Clone, Default)]
pub struct Connections {
    cut: watch::Sender<u64>,
}

impl Connections {
    /// Cuts every open connection at once. New ones are accepted.
    pub fn cut_all(&self) {
        self.cut.send_modify(|count| *count += 1);
    }
}

/// Serves the API until `stop`: then watches end, requests in flight are answered, and it returns. Dropping the future
/// cuts everything at once, as a crash would.
pub async fn serve<S>(api: Api, incoming: S, connections: Connections, stop: CancellationToken)
where
    S: Stream<Item = io::Result<BoxedIo>> + Send,
{
    let (tasks, mut ends) = Tasks::new("sandbox-api");
    let surroundings = Surroundings { tasks: tasks.clone(), stopping: stop.clone() };
    let mut incoming = std::pin::pin!(incoming);
    let mut number = 0_u64;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            _ = ends.next() => {}
            connection = incoming.next() => match connection {
                Some(Ok(io)) => {
                    number += 1;
                    let connection =
                        serve_connection(api.clone(), io, surroundings.clone(), connections.cut.subscribe());
                    tasks.spawn(format_args!("connection.{number}"), connection);
                }
                Some(Err(error)) => {
                    warn!(error = %error_chain(&error), "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                None => break,
            },
        }
    }
    // After a stop, or when no connection can come any more: serve the open ones to their end.
    let rest = async {
        while !tasks.running().is_empty() {
            ends.next().await;
        }
    };
    if stop.is_cancelled() {
        // Longer requests are cut when the scope ends.
        let _ = tokio::time::timeout(GRACE, rest).await;
    } else {
        rest.await;
    }
}

async fn serve_connection(api: Api, io: BoxedIo, surroundings: Surroundings, mut cut: watch::Receiver<u64>) {
    let stopping = surroundings.stopping.clone();
    let service = service_fn(move |request| handle(api.clone(), request, surroundings.clone()));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(io), service);
    let mut connection = std::pin::pin!(connection);
    let mut asked = false;
    loop {
        tokio::select! {
            biased;
            _ = cut.changed() => return,
            () = stopping.cancelled(), if !asked => {
                asked = true;
                connection.as_mut().graceful_shutdown();
            }
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    debug!(error = %error_chain(&error), "a connection broke");
                }
                return;
            }
        }
    }
}

/// The connections of a TCP listener.
pub fn tcp_connections(listener: TcpListener) -> impl Stream<Item = io::Result<BoxedIo>> + Send {
    futures::stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await.and_then(|(stream, _)| {
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as BoxedIo)
        });
        Some((accepted, listener))
    })
}

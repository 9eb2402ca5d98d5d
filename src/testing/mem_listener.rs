//! Connections in memory, for the tests of what speaks HTTP: no ports, and paused time stays paused.

use std::io;

use axum::serve::Listener;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

/// Takes the ends of streams that are plugged in. The address of each is its number, from 1.
pub(crate) struct MemListener {
    plugged: mpsc::UnboundedReceiver<DuplexStream>,
    accepted: usize,
}

/// A listener, and where to plug in.
pub(crate) fn mem_listener() -> (mpsc::UnboundedSender<DuplexStream>, MemListener) {
    let (sender, plugged) = mpsc::unbounded_channel();
    (sender, MemListener { plugged, accepted: 0 })
}

impl Listener for MemListener {
    type Io = DuplexStream;
    type Addr = usize;

    async fn accept(&mut self) -> (DuplexStream, usize) {
        match self.plugged.recv().await {
            Some(stream) => {
                self.accepted += 1;
                (stream, self.accepted)
            }
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<usize> {
        Ok(0)
    }
}

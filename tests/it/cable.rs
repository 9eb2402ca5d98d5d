//! The line between one daemon and the API, which can be cut, or go dead, for as long as an outage.

use std::io;

use csi_control_plane::process::{BoxedIo, Dial, Tasks};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::ground::outage;

/// An outage that has begun.
pub(crate) struct Outage {
    end: Instant,
}

impl Outage {
    /// It begins now.
    pub(crate) fn begin() -> Self {
        Self { end: Instant::now() + outage() }
    }

    /// Waits for its end: nothing shall happen in it, so there is nothing else to wait for.
    pub(crate) async fn end(self) {
        sleep_until(self.end).await;
    }
}

/// The fate of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// They arrive.
    Up,
    /// Every connection is closed, and every new one at once: a refusal.
    Cut,
    /// They are held back without a sign: a switch that lost its memory.
    Dead,
}

/// A line that forwards connections to one address.
pub(crate) struct Cable {
    line: watch::Sender<Line>,
    _tasks: Tasks,
}

impl Cable {
    /// A line that is up: from these connections to the peer that `target` leads to.
    pub(crate) fn lay(mut incoming: BoxStream<'static, io::Result<BoxedIo>>, target: Dial) -> Self {
        let (line, state) = watch::channel(Line::Up);
        let (tasks, _) = Tasks::new("cable");
        let connections = tasks.clone();
        tasks.spawn("listener", async move {
            while let Some(Ok(client)) = incoming.next().await {
                connections.spawn("connection", carry(client, target.clone(), state.clone()));
            }
        });
        Self { line, _tasks: tasks }
    }

    /// Changes what becomes of bytes from now on.
    pub(crate) fn set(&self, line: Line) {
        self.line.send_replace(line);
    }
}

/// Carries one connection until it ends or is cut.
async fn carry(client: BoxedIo, target: Dial, line: watch::Receiver<Line>) {
    let mut cut = line.clone();
    tokio::select! {
        _ = cut.wait_for(|line| *line == Line::Cut) => {}
        // However it ends, both sides see it.
        _ = forward(client, target, line) => {}
    }
}

async fn forward(client: BoxedIo, target: Dial, mut line: watch::Receiver<Line>) -> io::Result<()> {
    until_up(&mut line).await?;
    let server = target.dial().await?;
    let ((from_client, to_client), (from_server, to_server)) = (split(client), split(server));
    futures::try_join!(pump(from_client, to_server, line.clone()), pump(from_server, to_client, line))?;
    Ok(())
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut line: watch::Receiver<Line>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        until_up(&mut line).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
    }
}

async fn until_up(line: &mut watch::Receiver<Line>) -> io::Result<()> {
    line.wait_for(|line| *line == Line::Up).await.map_err(io::Error::other)?;
    Ok(())
}

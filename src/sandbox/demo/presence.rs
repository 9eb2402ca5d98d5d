//! Whether there is a driver at the user's endpoint at all. A mistyped path or a driver that does not run must not look like a slow
//! driver: the user hears of it within two seconds. A driver that is there gets the time to become ready.

use std::time::Duration;

use thiserror::Error;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::csi::{ConnectError, Dialer, RpcError};

/// How long the driver's socket may take to appear: two seconds, less what the sandbox's own start takes.
pub(super) const THERE_WITHIN: Duration = Duration::from_millis(1500);
/// Between two attempts, for a driver that starts at the same time. After an error, the time in which the end of its connection is
/// noticed.
const PAUSE: Duration = Duration::from_millis(100);
/// A deadline that no probe reaches here, so that the end of the wait is told apart from an answer of the driver.
const UNBOUNDED: Duration = Duration::from_secs(60);

/// How a driver that is there behaves.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// Ready for calls.
    Ready,
    /// It says that it is not ready yet.
    NotReady,
    /// It answers the first call with an error.
    Refuses(RpcError),
    /// It takes connections, and does not answer.
    Silent,
}

/// There is no driver.
#[derive(Debug, Error)]
pub enum Absent {
    /// Nothing takes connections.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Something takes connections and ends them at the first call.
    #[error("the connection ends at the call of Probe, as if something else than a CSI driver listened there")]
    Ends(#[source] RpcError),
}

impl Presence {
    /// The words for a user who has to wait. `None`: nobody has to.
    pub(super) fn why_wait(&self) -> Option<String> {
        match self {
            Self::Ready => None,
            Self::NotReady => Some("it answers Probe with ready: false".to_owned()),
            Self::Refuses(error) => Some(format!("it answers Probe with an error: {error}")),
            Self::Silent => Some("it accepts connections and has not answered Probe yet".to_owned()),
        }
    }
}

/// Connects and probes until a driver is there or the time is over.
pub(super) async fn find(dialer: &Dialer) -> Result<Presence, Absent> {
    let deadline = Instant::now() + THERE_WITHIN;
    let mut before = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let absent = match dialer.connect(left).await {
            Err(ConnectError::Silent(_)) => return Ok(Presence::Silent),
            // The time was over first: nothing has accepted this connection, and the attempt before it says why.
            Err(error @ ConnectError::Slow(_)) => return Err(before.unwrap_or(Absent::Connect(error))),
            Err(error) => Absent::Connect(error),
            Ok(link) => match timeout_at(deadline, link.probe(UNBOUNDED)).await {
                Err(_) => return Ok(Presence::Silent),
                Ok(Ok(true)) => return Ok(Presence::Ready),
                Ok(Ok(false)) => return Ok(Presence::NotReady),
                // A driver that answers with an error keeps the connection.
                Ok(Err(error)) if timeout(PAUSE, link.lost()).await.is_err() => return Ok(Presence::Refuses(error)),
                Ok(Err(error)) => Absent::Ends(error),
            },
        };
        if Instant::now() + PAUSE >= deadline {
            return Err(absent);
        }
        before = Some(absent);
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;

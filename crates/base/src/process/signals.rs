//! The signals that stop the daemon.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Cancels `stop` at the first SIGTERM or SIGINT. Resolves at the second, which ends the process at once.
pub fn stop_on_signal(stop: CancellationToken) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        for first in [true, false] {
            tokio::select! {
                biased;
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if first {
                info!("stopping: waiting for work in flight, then releasing the leases");
                stop.cancel();
            }
        }
    })
}

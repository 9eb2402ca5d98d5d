//! Watches the driver: its name, and whether it answers.
//!
//! One connection is kept while the driver runs and costs it nothing; its end says that the driver has restarted, and only then is the
//! driver asked again.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use super::decide::DriverSeen;
use crate::csi::{ConnectError, Link, NameError, RpcError, check_name};
use crate::process::{error_chain, watch};
use crate::roles::LocalContext;

/// The pause after a driver has not answered: the Go sidecars' pace of `Probe`.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause between two questions to a driver that must not be silent for long, and whose connection is there.
const PROBE_PAUSE: Duration = Duration::from_secs(5);

/// Why the driver is not announced, or is thought to be gone.
#[derive(Debug, thiserror::Error)]
enum Silence {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("cannot probe the driver")]
    Probe(#[source] RpcError),
    #[error("the driver is not ready yet")]
    NotReady,
    #[error("cannot get the driver's name")]
    Name(#[source] RpcError),
    #[error("the driver gives no valid name")]
    Invalid(#[from] NameError),
}

/// Watches the driver for ever. `probes`: whether it is also asked again and again while its connection is there.
pub(super) async fn watch_driver(cx: &LocalContext, seen: &watch::Sender<DriverSeen>, probes: impl Fn() -> bool) {
    loop {
        match meet(cx).await {
            Ok((link, name)) => {
                cx.driver.note_name(&name);
                note(cx, seen, Ok(name));
                let silence = until_silent(cx, &link, &probes).await;
                note(cx, seen, Err(silence));
            }
            Err(silence) => note(cx, seen, Err(error_chain(&silence))),
        }
        sleep(PAUSE).await;
    }
}

/// Connects to the driver and asks both questions, each with the deadline of a call.
async fn meet(cx: &LocalContext) -> Result<(Link, String), Silence> {
    let limit = cx.driver.timeout();
    let link = cx.driver.connect(limit).await?;
    if !link.probe(limit).await.map_err(Silence::Probe)? {
        return Err(Silence::NotReady);
    }
    let name = link.name(limit).await.map_err(Silence::Name)?;
    check_name(&name)?;
    Ok((link, name))
}

/// Waits until the connection ends or a probe fails, and says which.
async fn until_silent(cx: &LocalContext, link: &Link, probes: &impl Fn() -> bool) -> String {
    let probing = async {
        loop {
            sleep(PROBE_PAUSE).await;
            if !probes() {
                continue;
            }
            match link.probe(cx.driver.timeout()).await {
                Ok(true) => {}
                Ok(false) => return Silence::NotReady.to_string(),
                Err(error) => return error_chain(&Silence::Probe(error)),
            }
        }
    };
    tokio::select! {
        biased;
        () = link.lost() => "the connection to the driver was lost".to_owned(),
        silence = probing => silence,
    }
}

/// Publishes what was seen. The time counts from the first answer, or from the first silence.
fn note(cx: &LocalContext, seen: &watch::Sender<DriverSeen>, now: Result<String, String>) {
    seen.send_if_modified(|seen| {
        let (name, silence) = match now {
            Ok(name) => (Some(name), None),
            Err(silence) => (seen.name.clone(), Some(silence)),
        };
        if (&seen.name, &seen.silence) == (&name, &silence) {
            return false;
        }
        match &silence {
            // A lost connection is a restart as a rule: told only if the driver does not come back at once.
            Some(silence) if seen.silence.is_some() => warn!(reason = silence, "the driver does not answer"),
            Some(_) => {}
            None => info!(driver = name, "the driver answers"),
        }
        let since = if seen.silence.is_some() == silence.is_some() { seen.since } else { cx.clock.now() };
        *seen = DriverSeen { name, silence, since };
        true
    });
}

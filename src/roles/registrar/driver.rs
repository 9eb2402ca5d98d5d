//! Watches the driver: its name, and whether it answers.
//!
//! One connection is kept while the driver runs and costs it nothing; its end says that the driver has restarted, and only then is the
//! driver asked again.

use std::time::Duration;

use tokio::time::sleep;
use tracing::{info, warn};

use super::decide::DriverSeen;
use crate::csi::Link;
use crate::process::{error_chain, watch};
use crate::roles::LocalContext;

/// The pause after a driver has not answered: the Go sidecars' pace of `Probe`.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause between two questions to a driver that must not be silent for long, and whose connection is there.
const PROBE_PAUSE: Duration = Duration::from_secs(5);

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
            Err(silence) => note(cx, seen, Err(silence)),
        }
        sleep(PAUSE).await;
    }
}

/// Connects to the driver and asks both questions, each with the deadline of a call. The error says why it is not announced.
async fn meet(cx: &LocalContext) -> Result<(Link, String), String> {
    let limit = cx.driver.timeout();
    let link = cx.driver.connect(limit).await.map_err(|error| error_chain(&error))?;
    let name = link.meet(limit).await.map_err(|error| error_chain(&error))?;
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
            if let Err(error) = link.must_be_ready(cx.driver.timeout()).await {
                return error_chain(&error);
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

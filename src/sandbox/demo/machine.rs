//! The part of the demo about the machine that driver and daemon run on: its kubelet registers the driver, and probes it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{Demo, NotObserved, Seen, StoryError, sights};
use crate::sandbox::kubelet::{Deed, Kubelet};

/// Between two looks at what tells of no change.
const LOOK: Duration = Duration::from_millis(50);
/// As the probe of a driver's container has it.
const PROBE: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The machine of driver and daemon.
#[derive(Debug)]
pub struct Machine {
    /// `None`: the driver has no node service that a kubelet could ask.
    pub kubelet: Option<Kubelet>,
    /// Where the daemon answers probes of the driver.
    pub probe: SocketAddr,
}

impl Demo<'_> {
    /// Waits until the kubelet has registered the driver, and probes it as the kubelet would.
    pub(super) async fn see_registered(&mut self) -> Result<(), StoryError> {
        const WHAT: &str = "the kubelet registers the driver";
        let Some(machine) = self.machine else { return Ok(()) };
        match &machine.kubelet {
            None => self.narrator.skip(WHAT, "--node-id stands for the driver's node service"),
            Some(kubelet) => {
                let look = async || match kubelet.deeds().pop() {
                    Some(Deed::Registered(info)) => Seen::Yes(info),
                    Some(Deed::Refused(why)) => Seen::NotYet(why),
                    Some(Deed::Unregistered(_)) | None => Seen::NotYet("it has found no socket".to_owned()),
                };
                let info = self.look_at_machine(WHAT, look).await?;
                self.narrator.step(format_args!("the kubelet registered {} at {}", info.name, info.endpoint));
            }
        }
        let look = async || match probe(machine.probe).await {
            Ok(answer) if answer.starts_with("HTTP/1.1 200 ") => Seen::Yes(()),
            Ok(answer) => Seen::NotYet(answer.lines().last().unwrap_or_default().to_owned()),
            Err(error) => Seen::NotYet(error.to_string()),
        };
        self.look_at_machine("a probe of the driver is answered", look).await?;
        self.narrator.step(format_args!("a probe of the driver, http://{}/healthz, is answered: ok", machine.probe));
        Ok(())
    }

    /// Waits until the kubelet has unregistered the driver, if it had.
    pub(super) async fn see_unregistered(&mut self) -> Result<(), StoryError> {
        let Some(kubelet) = self.machine.and_then(|machine| machine.kubelet.as_ref()) else { return Ok(()) };
        if !kubelet.deeds().iter().any(|deed| matches!(deed, Deed::Registered(_))) {
            return Ok(());
        }
        let look = async || match kubelet.drivers() {
            drivers if drivers.is_empty() => Seen::Yes(()),
            drivers => Seen::NotYet(format!("it has {}", drivers.join(", "))),
        };
        self.look_at_machine("the kubelet unregisters the driver", look).await?;
        self.narrator.step("the daemon withdrew the driver, and the kubelet unregistered it");
        Ok(())
    }

    async fn look_at_machine<T>(&mut self, what: &str, look: impl AsyncFnMut() -> Seen<T>) -> Result<T, NotObserved> {
        let observed = self.narrator.observe(what, || sleep(LOOK), look).await;
        observed.map_err(|error| error.in_world(sights::world(self.api)))
    }
}

async fn probe(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(PROBE).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

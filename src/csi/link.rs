//! Connections to the driver that belong to one user each, for roles that check the driver itself.
//!
//! The shared connection ([`super::Csi`]) answers whether calls can be made. It says nothing about a socket file that was removed
//! under it, and its handshake asks for services that a node's driver need not have. A [`Link`] asks only what every driver must
//! answer, `Probe` and `GetPluginInfo`, and so cannot change anything.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::channel::{ConnectError, Connection, Route};
use super::client::{Caller, Client};
use super::error::RpcError;
use super::meeting::{self, MeetError};
use crate::process::Dial;
use crate::proto;

/// Makes connections to the driver. Clones share the options of calls and the driver's name in metrics.
#[derive(Clone)]
pub struct Dialer {
    dial: Dial,
    caller: Arc<Caller>,
}

/// One connection to the driver. It is closed when this is dropped, and never made again.
pub struct Link {
    connection: Connection,
    client: Client,
}

impl Dialer {
    pub(super) fn new(dial: Dial, caller: Arc<Caller>) -> Self {
        Self { dial, caller }
    }

    /// Connects within this time.
    pub async fn connect(&self, limit: Duration) -> Result<Link, ConnectError> {
        let connection = Connection::open(&self.dial, limit).await?;
        let route = Arc::new(Route::open(connection.channel.clone()));
        Ok(Link { client: Client::new(route, Arc::clone(&self.caller)), connection })
    }

    /// The configured deadline of a call.
    pub fn timeout(&self) -> Duration {
        self.caller.options().timeout
    }

    /// Whether metrics have the driver's name.
    pub fn knows_name(&self) -> bool {
        self.caller.knows_driver_name()
    }

    /// Gives metrics the driver's name from now on.
    pub fn note_name(&self, name: &str) {
        self.caller.note_driver_name(name);
    }
}

impl Link {
    /// Asks the driver whether it is ready. A driver that leaves the answer's field out is ready.
    pub async fn probe(&self, limit: Duration) -> Result<bool, RpcError> {
        let answer = self.client.with_timeout(limit).probe(proto::ProbeRequest {}).await?;
        Ok(answer.ready != Some(false))
    }

    /// Asks for the driver's name. It may not be a valid one: see [`super::check_name`].
    pub async fn name(&self, limit: Duration) -> Result<String, RpcError> {
        let info = self.client.with_timeout(limit).get_plugin_info(proto::GetPluginInfoRequest {}).await?;
        Ok(info.name)
    }

    /// Asks the driver whether it is ready, and for its name, which is a valid one. Each question has this deadline.
    pub async fn meet(&self, limit: Duration) -> Result<String, MeetError> {
        Ok(meeting::meet(&self.client.with_timeout(limit)).await?.name)
    }

    /// Asks the driver whether it is ready, and says why it is not.
    pub async fn must_be_ready(&self, limit: Duration) -> Result<(), MeetError> {
        meeting::probe(&self.client.with_timeout(limit)).await
    }

    /// Resolves when the connection has ended, as it does when the driver restarts.
    pub fn lost(&self) -> impl Future<Output = ()> + use<> {
        self.connection.lost()
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

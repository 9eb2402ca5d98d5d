//! Asks the registration socket as the kubelet does: a file that exists says nothing about a process behind it (N4).

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Error};
use tonic::{Request, Status};

use crate::proto::pluginregistration::registration_client::RegistrationClient;
use crate::proto::pluginregistration::{InfoRequest, PluginInfo};

/// The limit of node-driver-registrar.
pub(super) const LIMIT: Duration = Duration::from_secs(1);

/// Marks our own question: only the kubelet's says that the kubelet is there.
const MARK: &str = "csi-control-plane-self-check";

/// Whether a question is our own.
pub(super) fn is_self_check<T>(request: &Request<T>) -> bool {
    request.metadata().contains_key(MARK)
}

/// Why the socket is not well.
#[derive(Debug, thiserror::Error)]
pub(super) enum SelfCheckError {
    /// No process listens.
    #[error("cannot connect to the registration socket")]
    Connect(#[source] io::Error),
    /// Another protocol.
    #[error("cannot speak HTTP/2 with the registration socket")]
    Protocol(#[source] Error),
    /// An error for an answer.
    #[error("the registration socket does not answer GetInfo")]
    Answer(#[source] Box<Status>),
    /// No answer.
    #[error("the registration socket does not answer within {LIMIT:?}")]
    Slow,
}

/// Asks the socket at this path which plugin it is.
pub(super) async fn ask(path: &Path) -> Result<PluginInfo, SelfCheckError> {
    timeout(LIMIT, ask_unhurried(path)).await.unwrap_or(Err(SelfCheckError::Slow))
}

async fn ask_unhurried(path: &Path) -> Result<PluginInfo, SelfCheckError> {
    let stream = UnixStream::connect(path).await.map_err(SelfCheckError::Connect)?;
    let mut once = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: http::Uri| {
        let stream = once.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        std::future::ready(stream)
    });
    let channel = Channel::from_static("http://localhost").connect_with_connector(connector).await;
    let channel = channel.map_err(SelfCheckError::Protocol)?;
    let mut request = Request::new(InfoRequest {});
    request.metadata_mut().insert(MARK, MetadataValue::from_static("1"));
    let answer = RegistrationClient::new(channel).get_info(request).await;
    answer.map(tonic::Response::into_inner).map_err(|status| SelfCheckError::Answer(Box::new(status)))
}

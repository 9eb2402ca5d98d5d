//! The gRPC service that the kubelet calls, over one unix socket after the other.

use std::time::Duration;

use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};
use tower::ServiceExt as _;
use tracing::{debug, warn};

use super::NAME;
use super::authority::Renamed;
use super::self_check::is_self_check;
use crate::process::{TaskEnds, TaskFate, Tasks, error_chain};
use crate::proto::pluginregistration::registration_server::{Registration, RegistrationServer};
use crate::proto::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};

/// The pause after a connection could not be accepted, for example because there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// What the kubelet has said on one of our sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Heard {
    /// The socket's number.
    socket: u64,
    pub(super) said: Said,
}

/// What the kubelet has said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    /// It asks which driver this is.
    Asked,
    /// It has registered the driver, or says why not.
    Verdict(Result<(), String>),
}

/// Serves the sockets. Dropping it ends all connections.
pub(super) struct Server {
    heard: mpsc::UnboundedSender<Heard>,
    tasks: Tasks,
    ends: TaskEnds,
    /// Ends the listening on the latest socket, but not its connections: the kubelet may be between two calls.
    listening: Option<DropGuard>,
    /// The number of the latest socket.
    latest: u64,
}

impl Server {
    /// Serves nothing yet. What the kubelet says comes out of the receiver.
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Heard>) {
        let (heard, receiver) = mpsc::unbounded_channel();
        let (tasks, ends) = Tasks::new(NAME);
        (Self { heard, tasks, ends, listening: None, latest: 0 }, receiver)
    }

    /// Serves this socket with this answer, and the one before no more.
    pub(super) fn listen(&mut self, listener: UnixListener, info: PluginInfo) {
        let stop = CancellationToken::new();
        self.latest += 1;
        let answers = Answers { info, socket: self.latest, heard: self.heard.clone() };
        self.tasks.spawn("listener", accept(listener, answers, stop.clone()));
        self.listening = Some(stop.drop_guard());
    }

    /// Stops listening.
    pub(super) fn close(&mut self) {
        self.listening = None;
        self.latest += 1;
    }

    /// Whether it was said on the socket that is announced now. The kubelet speaks of an earlier one if it was still calling the
    /// driver when the file was replaced; it forgets that registration and asks the new file.
    pub(super) fn is_of_latest(&self, heard: &Heard) -> bool {
        heard.socket == self.latest
    }

    /// Resolves with the message of a panic of one of its tasks, which is our bug.
    pub(super) async fn panicked(&mut self) -> String {
        loop {
            match self.ends.next().await {
                Some(end) => {
                    if let TaskFate::Panicked(message) = end.fate {
                        return message;
                    }
                }
                None => std::future::pending().await,
            }
        }
    }
}

/// Accepts connections until `stop`. Those that are open then go on.
async fn accept(listener: UnixListener, answers: Answers, stop: CancellationToken) {
    // The connections outlive the listener; they end with the whole server.
    let (tasks, mut ends) = Tasks::new("registrar.connection");
    let mut number = 0_u64;
    let mut listener = Some(listener);
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled(), if listener.is_some() => {
                listener = None;
                if tasks.running().is_empty() {
                    return;
                }
            }
            Some(end) = ends.next() => {
                debug!(task = end.task, fate = %end.fate, "a connection of the kubelet ended");
                if listener.is_none() && tasks.running().is_empty() {
                    return;
                }
            }
            accepted = accepted => match accepted {
                Ok((stream, _)) => {
                    number += 1;
                    tasks.spawn(number, serve(stream, answers.clone()));
                }
                Err(error) => {
                    warn!(error = error_chain(&error), "cannot accept a connection of the kubelet");
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

async fn serve(stream: UnixStream, answers: Answers) {
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        RegistrationServer::new(answers.clone()).oneshot(request)
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new());
    if let Err(error) = builder.serve_connection(TokioIo::new(Renamed::new(stream)), service).await {
        debug!(error = error_chain(&error), "a connection to the registration socket broke off");
    }
}

/// The answers on one socket.
#[derive(Debug, Clone)]
struct Answers {
    info: PluginInfo,
    socket: u64,
    heard: mpsc::UnboundedSender<Heard>,
}

impl Answers {
    fn hear(&self, said: Said) {
        // Without a receiver the role is ending.
        let _ = self.heard.send(Heard { socket: self.socket, said });
    }
}

#[tonic::async_trait]
impl Registration for Answers {
    async fn get_info(&self, request: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        if !is_self_check(&request) {
            self.hear(Said::Asked);
        }
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        self.hear(Said::Verdict(if plugin_registered { Ok(()) } else { Err(error) }));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

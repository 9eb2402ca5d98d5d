//! The driver's process: accepts connections, serves HTTP/2 on each, crashes and restarts.
//!
//! Own accept loop instead of tonic's: connections are tasks of ours that a restart cuts at once, and nothing depends on the
//! wall clock (no `date` header) or on a random `select!`.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::process::watch;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, Stream, StreamExt};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::Driver;
use super::socket::Socket;
use crate::network::Network;
use base::process::{BoxedIo, TaskEnd, TaskEnds, TaskFate, Tasks, error_chain};

/// How long the server waits before it tries again to listen after a restart.
const RETRY: Duration = Duration::from_millis(100);

/// New connections, one after the other.
type Incoming = BoxStream<'static, io::Result<BoxedIo>>;

/// Where connections come from.
pub struct Listen(Kind);

enum Kind {
    /// Listens anew after each restart; refuses connections while the driver is away.
    Bind(Arc<dyn Fn() -> BoxFuture<'static, io::Result<Incoming>> + Send + Sync>),
    /// The one stream of all connections; what arrives while the driver is away is dropped.
    Stream(Option<Incoming>),
}

impl Listen {
    /// Listens on a unix socket with these permission bits (0o600, or 0o660 for a group).
    pub fn unix(path: PathBuf, mode: u32) -> Self {
        Self::bind(move || {
            let path = path.clone();
            async move { Ok(Socket::bind(&path, mode).await?.boxed()) }
        })
    }

    /// Listens at an address of the simulated network. A crash of that host ends the listening until the next restart.
    pub fn network(network: Network, address: &str) -> Self {
        let address = address.to_owned();
        Self::bind(move || {
            let incoming = network.listen(&address).map(StreamExt::boxed);
            async move { incoming }
        })
    }

    /// Listens by calling `bind` at the start and after each restart.
    pub fn bind<F, B>(bind: F) -> Self
    where
        F: Fn() -> B + Send + Sync + 'static,
        B: Future<Output = io::Result<Incoming>> + Send + 'static,
    {
        Self(Kind::Bind(Arc::new(move || bind().boxed())))
    }

    /// Takes all connections from one stream.
    pub fn stream(connections: impl Stream<Item = io::Result<BoxedIo>> + Send + 'static) -> Self {
        Self(Kind::Stream(Some(connections.boxed())))
    }

    async fn open(&mut self) -> io::Result<Incoming> {
        match &mut self.0 {
            Kind::Bind(bind) => bind().await,
            Kind::Stream(stream) => stream.take().ok_or_else(|| io::Error::other("the stream is in use")),
        }
    }

    /// Takes back what [`Listen::open`] gave: closes it, or keeps it where there is only one.
    fn close(&mut self, incoming: Incoming) {
        if let Kind::Stream(stream) = &mut self.0 {
            *stream = Some(incoming);
        }
    }

    /// Turns connections away, for ever.
    async fn refuse(&mut self) {
        if let Kind::Stream(Some(stream)) = &mut self.0 {
            while let Some(connection) = stream.next().await {
                drop(connection);
            }
        }
        std::future::pending::<()>().await;
    }
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listen")
    }
}

/// A running server. Dropping it is a crash for good, as soon as the runtime gets to it; after [`Server::stop`] another
/// server can listen at the same place. The driver's state stays with the [`Driver`] in either case.
#[derive(Debug)]
pub struct Server {
    _tasks: Tasks,
    commands: mpsc::UnboundedSender<Command>,
    up: watch::Receiver<bool>,
}

/// The commands to the server.
#[derive(Debug)]
pub(super) enum Command {
    /// Die and come back after this long.
    Crash(Duration),
    /// The same, and say when everything is cut.
    Restart(Duration, oneshot::Sender<()>),
    /// Stop and say when everything is gone.
    Stop(oneshot::Sender<()>),
}

impl Server {
    /// Serves `driver` to whoever connects. Listens when this returns.
    pub async fn start(driver: &Driver, mut listen: Listen) -> io::Result<Self> {
        let incoming = listen.open().await?;
        let (commands, receiver) = mpsc::unbounded_channel();
        let (up_sender, up) = watch::channel(true);
        driver.served_by(commands.clone());
        let (tasks, _) = Tasks::new("driver");
        let process = Process { driver: driver.clone(), listen, commands: receiver, up: up_sender };
        tasks.spawn("server", process.run(incoming));
        Ok(Self { _tasks: tasks, commands, up })
    }

    /// Cuts all connections, and comes back after `down` with the same state. Returns as soon as everything is cut.
    pub async fn restart(&self, down: Duration) {
        self.tell(|cut| Command::Restart(down, cut)).await;
    }

    /// Whether the driver accepts calls.
    pub fn is_up(&self) -> bool {
        *self.up.borrow()
    }

    /// Waits until the driver accepts calls.
    pub async fn up(&self) {
        // A server whose loop has ended never comes back: its owner is about to drop it.
        let _ = self.up.clone().wait_for(|up| *up).await;
    }

    /// Cuts all connections and stops listening; a unix socket's file is gone when this returns.
    pub async fn stop(self) {
        self.tell(Command::Stop).await;
    }

    async fn tell(&self, command: impl FnOnce(oneshot::Sender<()>) -> Command) {
        let (done, wait) = oneshot::channel();
        if self.commands.send(command(done)).is_ok() {
            // An error means that the loop is gone, and everything with it.
            let _ = wait.await;
        }
    }
}

/// The server's loop.
struct Process {
    driver: Driver,
    listen: Listen,
    commands: mpsc::UnboundedReceiver<Command>,
    up: watch::Sender<bool>,
}

impl Process {
    async fn run(mut self, mut incoming: Incoming) {
        loop {
            let Some(mut command) = self.serve(&mut incoming).await else { return };
            self.listen.close(incoming);
            self.up.send_replace(false);
            loop {
                let down = match command {
                    Command::Crash(down) => {
                        self.driver.restarted();
                        down
                    }
                    Command::Restart(down, cut) => {
                        self.driver.restarted();
                        // The caller may have stopped waiting.
                        let _ = cut.send(());
                        down
                    }
                    Command::Stop(gone) => {
                        drop(self.listen);
                        let _ = gone.send(());
                        return;
                    }
                };
                match self.away(down).await {
                    None => break,
                    Some(next) => command = next,
                }
            }
            incoming = self.reopen().await;
            self.up.send_replace(true);
        }
    }

    /// Serves until the next command, then cuts every connection. `None`: no command can come any more.
    async fn serve(&mut self, incoming: &mut Incoming) -> Option<Command> {
        let (mut connections, mut ends) = Connections::new();
        let mut open = true;
        let command = loop {
            tokio::select! {
                biased;
                command = self.commands.recv() => break command,
                Some(end) = ends.next() => self.note(end),
                connection = incoming.next(), if open => match connection {
                    Some(Ok(io)) => connections.serve(&self.driver, io),
                    Some(Err(error)) => tracing::debug!(error = error_chain(&error), "cannot accept a connection"),
                    None => open = false,
                },
            }
        };
        connections.cut().await;
        command
    }

    /// The driver is away. A command ends that early.
    async fn away(&mut self, down: Duration) -> Option<Command> {
        let until = Instant::now() + down;
        tokio::select! {
            biased;
            command = self.commands.recv() => command,
            () = sleep_until(until) => None,
            () = self.listen.refuse() => None,
        }
    }

    async fn reopen(&mut self) -> Incoming {
        loop {
            match self.listen.open().await {
                Ok(incoming) => return incoming,
                Err(error) => tracing::warn!(error = error_chain(&error), "the demo driver cannot listen"),
            }
            sleep(RETRY).await;
        }
    }

    fn note(&self, end: TaskEnd) {
        if let TaskFate::Panicked(message) = end.fate {
            self.driver.panicked(format!("{}: {message}", end.task));
        }
    }
}

/// The connections of one life of the driver. Dropping them cuts them.
struct Connections {
    tasks: Tasks,
    alive: mpsc::Sender<()>,
    gone: mpsc::Receiver<()>,
}

impl Connections {
    fn new() -> (Self, TaskEnds) {
        let (tasks, ends) = Tasks::new("driver");
        let (alive, gone) = mpsc::channel(1);
        (Self { tasks, alive, gone }, ends)
    }

    fn serve(&mut self, driver: &Driver, io: BoxedIo) {
        let connection = driver.connected();
        let executor = Executor { tasks: self.tasks.clone(), name: format!("call.{}", connection.0) };
        let (driver, alive) = (driver.clone(), self.alive.clone());
        let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(connection);
            driver.clone().dispatch(request)
        });
        let mut builder = http2::Builder::new(executor);
        builder.timer(TokioTimer::new()).auto_date_header(false);
        let serving = builder.serve_connection(TokioIo::new(io), service);
        self.tasks.spawn(format!("connection.{}", connection.0), async move {
            let _alive = alive;
            if let Err(error) = serving.await {
                tracing::debug!(error = error_chain(&error), "a connection to the demo driver broke");
            }
        });
    }

    /// Cuts all connections; none is left when this returns.
    async fn cut(mut self) {
        self.tasks.abort_all();
        let (alive, _) = mpsc::channel(1);
        drop(std::mem::replace(&mut self.alive, alive));
        while self.gone.recv().await.is_some() {}
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        // Executors hold clones of the scope, which would keep it alive.
        self.tasks.abort_all();
    }
}

/// Runs hyper's futures, one per call, as named tasks.
#[derive(Clone)]
struct Executor {
    tasks: Tasks,
    name: String,
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Executor {
    fn execute(&self, future: F) {
        self.tasks.spawn(&self.name, future);
    }
}

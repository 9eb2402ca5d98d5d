//! A kubelet's plugin watcher on a real directory: it finds registration sockets, asks them, calls the driver, and says how it went.
//!
//! It plays what kubelet 1.37 does (node-and-health spec B3), but looks at the directory every few milliseconds instead of being told
//! by inotify, has shorter back-offs, and does not name the socket's path as the `:authority`, which no client for Rust would send. A
//! kubelet's restart is a new one on the same directory.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use tonic::Request;
use tonic::transport::Channel;

use crate::process::{Clock, Tasks, check_socket_path, error_chain};
use crate::proto::NodeGetInfoRequest;
use crate::proto::node_client::NodeClient;
use crate::proto::pluginregistration::registration_client::RegistrationClient;
use crate::proto::pluginregistration::{InfoRequest, PluginInfo, RegistrationStatus};

/// The pause between two looks at the directory.
const LOOK: Duration = Duration::from_millis(20);
/// The real ones are 10 s, 1 s, 2 m and 5 s.
const LIMIT: Duration = Duration::from_secs(5);
/// The first back-off of a socket that was refused; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// How it behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retries {
    /// A socket that was refused is tried again with a back-off, as in current kubelets.
    BackingOff,
    /// Only a new file is tried again, as in older kubelets.
    Never,
}

/// One thing that it did, and which file it was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// It has registered the driver.
    Registered(PluginInfo),
    /// It has refused the driver for this reason.
    Refused(String),
    /// It has unregistered the driver of this name.
    Unregistered(String),
}

/// A kubelet. Dropping it ends it: it forgets all drivers without a word to them.
#[derive(Debug)]
pub struct Kubelet {
    known: Arc<Mutex<Known>>,
    _tasks: Tasks,
}

/// A file: device and inode.
type FileId = (u64, u64);

#[derive(Debug, Default)]
struct Known {
    deeds: Vec<Deed>,
    sockets: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug)]
struct Entry {
    id: FileId,
    /// The driver, if it is registered.
    driver: Option<String>,
    pause: Duration,
    again: Option<Instant>,
}

impl Kubelet {
    /// Watches a directory. `host` finds a path of the host in this process's file system.
    pub fn start(
        directory: &Path,
        retries: Retries,
        clock: Clock,
        host: impl Fn(&str) -> PathBuf + Send + Sync + 'static,
    ) -> Self {
        let known = Arc::new(Mutex::new(Known::default()));
        let (tasks, _) = Tasks::new("kubelet");
        let watcher = Watcher { directory: directory.to_owned(), retries, clock, known: Arc::clone(&known) };
        tasks.spawn("plugins", async move { watcher.watch(host).await });
        Self { known, _tasks: tasks }
    }

    /// All that it has done, in this order.
    pub fn deeds(&self) -> Vec<Deed> {
        self.known.lock().deeds.clone()
    }

    /// The drivers that are registered: what `CSINode` would have.
    pub fn drivers(&self) -> Vec<String> {
        let known = self.known.lock();
        known.sockets.values().filter_map(|entry| entry.driver.clone()).collect()
    }
}

struct Watcher {
    directory: PathBuf,
    retries: Retries,
    clock: Clock,
    known: Arc<Mutex<Known>>,
}

impl Watcher {
    async fn watch(&self, host: impl Fn(&str) -> PathBuf) {
        loop {
            for (path, id) in self.look() {
                let registered = timeout(LIMIT * 3, register(&path, &host)).await;
                let result = registered.unwrap_or_else(|_| Err("no answer".to_owned()));
                self.note(&path, id, result);
            }
            sleep(LOOK).await;
        }
    }

    /// Unregisters drivers whose sockets are gone, and returns the sockets to ask now.
    fn look(&self) -> Vec<(PathBuf, FileId)> {
        let found = sockets(&self.directory);
        let now = self.clock.now();
        let mut known = self.known.lock();
        let Known { deeds, sockets } = &mut *known;
        for (path, entry) in sockets.iter_mut().filter(|(path, entry)| found.get(*path) != Some(&entry.id)) {
            deeds.extend(entry.driver.take().map(Deed::Unregistered));
            if let Some(id) = found.get(path) {
                // A new file. It does not shorten a back-off that runs.
                entry.id = *id;
                entry.again.get_or_insert(now);
            }
        }
        sockets.retain(|path, _| found.contains_key(path));
        for (path, id) in found {
            sockets.entry(path).or_insert(Entry { id, driver: None, pause: FIRST_PAUSE, again: Some(now) });
        }
        let is_due = |entry: &Entry| entry.driver.is_none() && entry.again.is_some_and(|again| again <= now);
        let due = sockets.iter().filter(|(_, entry)| is_due(entry));
        due.map(|(path, entry)| (path.clone(), entry.id)).collect()
    }

    fn note(&self, path: &Path, id: FileId, result: Result<PluginInfo, String>) {
        let now = self.clock.now();
        let mut known = self.known.lock();
        let Known { deeds, sockets } = &mut *known;
        let Some(entry) = sockets.get_mut(path).filter(|entry| entry.id == id) else { return };
        match result {
            Ok(info) => {
                (entry.driver, entry.pause, entry.again) = (Some(info.name.clone()), FIRST_PAUSE, None);
                deeds.push(Deed::Registered(info));
            }
            Err(error) => {
                entry.again = (self.retries == Retries::BackingOff).then_some(now + entry.pause);
                entry.pause *= 2;
                deeds.push(Deed::Refused(error));
            }
        }
    }
}

/// The sockets in a directory, but for hidden ones.
fn sockets(directory: &Path) -> BTreeMap<PathBuf, FileId> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let found = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let found = found.filter_map(|entry| Some((entry.path(), fs::symlink_metadata(entry.path()).ok()?)));
    found
        .filter(|(_, metadata)| metadata.file_type().is_socket())
        .map(|(path, metadata)| (path, (metadata.dev(), metadata.ino())))
        .collect()
}

/// Asks a socket, calls the driver, and says how it went.
async fn register(path: &Path, host: &impl Fn(&str) -> PathBuf) -> Result<PluginInfo, String> {
    let mut plugin = RegistrationClient::new(connect(path).await?);
    let info = plugin.get_info(InfoRequest {}).await.map_err(|status| status.to_string())?.into_inner();
    let result = validate(&info, host).await;
    let error = result.as_ref().err().cloned().unwrap_or_default();
    let status = RegistrationStatus { plugin_registered: result.is_ok(), error };
    plugin.notify_registration_status(status).await.map_err(|status| status.to_string())?;
    result.map(|()| info)
}

async fn validate(info: &PluginInfo, host: &impl Fn(&str) -> PathBuf) -> Result<(), String> {
    if info.r#type != "CSIPlugin" || !info.supported_versions.iter().any(|version| version.starts_with("1.")) {
        return Err(format!("not a CSI driver of version 1: {info:?}"));
    }
    let mut node = NodeClient::new(connect(&host(&info.endpoint)).await?);
    let asked = node.node_get_info(Request::new(NodeGetInfoRequest {})).await;
    asked.map(|_| ()).map_err(|status| format!("NodeGetInfo: {}", status.message()))
}

/// Connects to a unix socket.
pub(crate) async fn connect(path: &Path) -> Result<Channel, String> {
    let told = |error: io::Error| format!("{}: {error}", path.display());
    check_socket_path(path).map_err(|error| error.to_string())?;
    let stream = timeout(LIMIT, UnixStream::connect(path)).await.map_err(|_| told(io::ErrorKind::TimedOut.into()))?;
    let mut once = Some(TokioIo::new(stream.map_err(told)?));
    let connector = tower::service_fn(move |_: http::Uri| {
        std::future::ready(once.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    let channel = Channel::from_static("http://localhost").connect_with_connector(connector).await;
    channel.map_err(|error| error_chain(&error))
}

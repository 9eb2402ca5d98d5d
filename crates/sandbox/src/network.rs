//! An in-memory network for the deterministic simulation: named hosts, and links that are slow, cut or torn.
//!
//! ```text
//!   Network::dial("daemon-1", "api") ──> Dial ═══ connection: two pipes ═══ Incoming <── Network::listen("api")
//!                                               each with its link's latency and state
//! ```
//!
//! - A host may listen at several addresses, `host:service`; links, crashes and resets go by the host.
//! - Like TCP: what a stalled link holds back arrives after the link heals; a full buffer makes the writer wait; dropping one
//!   end is an end of file for the other; a crash or a reset is `ConnectionReset`.
//! - No tasks, no chance, only tokio's clock: under paused time one program gives one run. Everything that has an order keeps
//!   it (`BTreeMap`, first in first out).

mod pipe;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use base::process::watch;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use base::process::{BoxedIo, Dial};
use pipe::{End, Pipe, Stream};

/// The network. Clones are handles of the same network.
#[derive(Clone)]
pub struct Network(Arc<Shared>);

struct Shared {
    inner: Mutex<Inner>,
    /// Changes when a waiting dial should look again.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    listeners: BTreeMap<String, (u64, mpsc::UnboundedSender<(String, BoxedIo)>)>,
    connections: BTreeMap<u64, Connection>,
    /// For each address, the hosts of the connections that it has accepted so far.
    accepted: BTreeMap<String, Vec<String>>,
    /// By sending and receiving host. Missing: a perfect link.
    links: BTreeMap<(String, String), Link>,
}

/// One direction between two hosts.
#[derive(Debug, Clone, Copy, Default)]
struct Link {
    latency: Duration,
    cut: Option<Cut>,
}

/// The fate of new connections over a cut link. Existing ones stall: their bytes wait until the link heals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// New connections hang until the link heals.
    Hang,
    /// New connections are refused at once.
    Refuse,
}

/// A connection that was made. Its pipes are alive as long as one of its ends is.
struct Connection {
    from: String,
    to: String,
    forth: Weak<Pipe>,
    back: Weak<Pipe>,
}

impl Network {
    /// A network without hosts, whose links are perfect.
    pub fn new() -> Self {
        let (changes, _) = watch::channel(0);
        Self(Arc::new(Shared { inner: Mutex::default(), changes }))
    }

    /// Listens at `address`, `host` or `host:service`, until the stream is dropped or the host crashes.
    pub fn listen(&self, address: &str) -> io::Result<Incoming> {
        let mut inner = self.lock();
        if inner.listeners.contains_key(address) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{address} listens already")));
        }
        let id = inner.number();
        let (sender, receiver) = mpsc::unbounded_channel();
        inner.listeners.insert(address.to_owned(), (id, sender));
        Ok(Incoming { network: self.clone(), address: address.to_owned(), id, receiver })
    }

    /// The dialer from the host `from` to `to`, a `host` or `host:service`.
    pub fn dial(&self, from: &str, to: &str) -> Dial {
        let (network, from, to) = (self.clone(), from.to_owned(), to.to_owned());
        Dial::new(move || {
            let (network, from, to) = (network.clone(), from.clone(), to.clone());
            async move { network.connect(&from, &to).await }
        })
    }

    /// Sets how long bytes take between two hosts, in both directions, from now on.
    pub fn set_latency(&self, a: &str, b: &str, latency: Duration) {
        self.set_links(&[(a, b), (b, a)], |link| link.latency = latency);
    }

    /// Cuts the link between two hosts in both directions. Existing connections stall; see [`Network::reset`].
    pub fn partition(&self, a: &str, b: &str, cut: Cut) {
        self.set_links(&[(a, b), (b, a)], |link| link.cut = Some(cut));
    }

    /// Cuts one direction: what `from` sends does not arrive at `to`, while what `to` sends still does. No new connection
    /// between the two comes about.
    pub fn partition_one_way(&self, from: &str, to: &str, cut: Cut) {
        self.set_links(&[(from, to)], |link| link.cut = Some(cut));
    }

    /// Heals the link between two hosts: what waited goes on.
    pub fn heal(&self, a: &str, b: &str) {
        self.set_links(&[(a, b), (b, a)], |link| link.cut = None);
    }

    /// Heals every link.
    pub fn heal_all(&self) {
        let links: Vec<(String, String)> = self.lock().links.keys().cloned().collect();
        let links: Vec<(&str, &str)> = links.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        self.set_links(&links, |link| link.cut = None);
    }

    /// Tears every connection between two hosts. Both ends notice at once, also while the link is cut or slow.
    pub fn reset(&self, a: &str, b: &str) {
        let now = Instant::now();
        let inner = self.lock();
        for connection in inner.connections.values().filter(|connection| connection.joins(a, b)) {
            connection.pipes().for_each(|pipe| pipe.break_now(now));
        }
    }

    /// Ends a host's part in the network: its listeners are closed and its connections reset. Its peers notice as soon as
    /// their link lets them. The host may listen and dial again at once: that is its next life.
    pub fn crash(&self, host: &str) {
        let mut inner = self.lock();
        inner.listeners.retain(|address, _| host_of(address) != host);
        for connection in inner.connections.values() {
            let sides = [
                (&connection.from, &connection.forth, &connection.back),
                (&connection.to, &connection.back, &connection.forth),
            ];
            for (_, outgoing, incoming) in sides.into_iter().filter(|(address, ..)| host_of(address) == host) {
                outgoing.upgrade().into_iter().for_each(|pipe| pipe.end(End::Reset));
                incoming.upgrade().into_iter().for_each(|pipe| pipe.tear());
            }
        }
        drop(inner);
        self.changed();
    }

    /// The open connections, as pairs of the dialling host and the dialled address, oldest first.
    pub fn connections(&self) -> Vec<(String, String)> {
        let mut inner = self.lock();
        inner.prune();
        inner.connections.values().map(|connection| (connection.from.clone(), connection.to.clone())).collect()
    }

    /// The dialling host of a connection that `address` has accepted, counted from 1 since the network exists.
    pub fn accepted_from(&self, address: &str, number: usize) -> Option<String> {
        self.lock().accepted.get(address)?.get(number.checked_sub(1)?).cloned()
    }

    async fn connect(&self, from: &str, to: &str) -> io::Result<BoxedIo> {
        let mut changes = self.0.changes.subscribe();
        let host = host_of(to);
        loop {
            let there = self.lock().link(from, host);
            let back = self.lock().link(host, from);
            match there.cut.or(back.cut) {
                Some(Cut::Refuse) => return Err(io::ErrorKind::ConnectionRefused.into()),
                Some(Cut::Hang) => {
                    // The sender lives as long as the network, which `self` keeps alive.
                    let _ = changes.changed().await;
                    continue;
                }
                None => {}
            }
            let round_trip = there.latency + back.latency;
            if !round_trip.is_zero() {
                sleep(round_trip).await;
                changes.mark_unchanged();
                // The link may have been cut meanwhile.
                if self.lock().link(from, host).cut.is_some() || self.lock().link(host, from).cut.is_some() {
                    continue;
                }
            }
            return self.join(from, to);
        }
    }

    /// Makes the connection and hands its far end to the listener.
    fn join(&self, from: &str, to: &str) -> io::Result<BoxedIo> {
        let mut inner = self.lock();
        inner.prune();
        let Some((_, listener)) = inner.listeners.get(to) else {
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let listener = listener.clone();
        let forth = Pipe::new(inner.link(from, host_of(to)).latency, false);
        let back = Pipe::new(inner.link(host_of(to), from).latency, false);
        let far = Stream::new(Arc::clone(&forth), Arc::clone(&back));
        if listener.send((from.to_owned(), Box::new(far))).is_err() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let id = inner.number();
        let connection = Connection {
            from: from.to_owned(),
            to: to.to_owned(),
            forth: Arc::downgrade(&forth),
            back: Arc::downgrade(&back),
        };
        inner.connections.insert(id, connection);
        Ok(Box::new(Stream::new(back, forth)))
    }

    fn set_links(&self, links: &[(&str, &str)], set: impl Fn(&mut Link)) {
        let mut inner = self.lock();
        for (from, to) in links {
            set(inner.links.entry(((*from).to_owned(), (*to).to_owned())).or_default());
        }
        for connection in inner.connections.values() {
            let (from, to) = (host_of(&connection.from), host_of(&connection.to));
            for (pipe, link) in [(&connection.forth, inner.link(from, to)), (&connection.back, inner.link(to, from))] {
                if let Some(pipe) = pipe.upgrade() {
                    pipe.set_link(link.latency, link.cut.is_some());
                }
            }
        }
        drop(inner);
        self.changed();
    }

    fn changed(&self) {
        self.0.changes.send_modify(|version| *version += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock()
    }
}

impl Default for Network {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        let listeners: Vec<&String> = inner.listeners.keys().collect();
        f.debug_struct("Network").field("listeners", &listeners).field("links", &inner.links).finish_non_exhaustive()
    }
}

impl Inner {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn link(&self, from: &str, to: &str) -> Link {
        self.links.get(&(from.to_owned(), to.to_owned())).copied().unwrap_or_default()
    }

    /// Forgets connections that both ends have dropped.
    fn prune(&mut self) {
        self.connections.retain(|_, connection| connection.pipes().next().is_some());
    }
}

impl Connection {
    fn pipes(&self) -> impl Iterator<Item = Arc<Pipe>> {
        [self.forth.upgrade(), self.back.upgrade()].into_iter().flatten()
    }

    fn joins(&self, a: &str, b: &str) -> bool {
        let ends = (self.from.as_str(), host_of(&self.to));
        ends == (a, b) || ends == (b, a)
    }
}

fn host_of(address: &str) -> &str {
    address.split_once(':').map_or(address, |(host, _)| host)
}

/// The connections that arrive at one address.
pub struct Incoming {
    network: Network,
    address: String,
    id: u64,
    receiver: mpsc::UnboundedReceiver<(String, BoxedIo)>,
}

impl futures::Stream for Incoming {
    type Item = io::Result<BoxedIo>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.receiver.poll_recv(cx).map(|arrived| {
            let (from, io) = arrived?;
            self.network.lock().accepted.entry(self.address.clone()).or_default().push(from);
            Some(Ok(io))
        })
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        let mut inner = self.network.lock();
        // After a crash, the address may belong to the host's next life.
        if inner.listeners.get(&self.address).is_some_and(|(id, _)| *id == self.id) {
            inner.listeners.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests;

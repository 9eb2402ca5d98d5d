//! The data of the checks: the stored objects, the calls, and the times that allow exceptions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use csi_control_plane::sandbox::api::audit::Audit;
use csi_control_plane::sandbox::driver::{Call, Method, State};
use csi_control_plane::sandbox::network::Network;
use csi_control_plane::sandbox::testbed::DRIVER_HOST;
use serde_json::Value;

use crate::journal::{Journal, is_lease};
use crate::supply::Supply;
use crate::trace::Trace;
use crate::world::{LEASE, text};

/// How long two daemons may both believe that they lead, after a user has edited the Lease.
const CONFUSION: Duration = Duration::from_secs(8);
/// A term may end this long after a renewal.
const TERM: Duration = Duration::from_millis(3500);
/// How long after the last trouble every watch has caught up.
pub(crate) const CALM: Duration = Duration::from_secs(60);

/// A volume on a node's id.
pub(crate) type Place = (String, String);

/// Everything that the checks know.
pub(crate) struct Model {
    pub(crate) trace: Trace,
    pub(crate) network: Network,
    pub(crate) attachments: BTreeMap<String, Value>,
    pub(crate) volumes: BTreeMap<String, Value>,
    pub(crate) lease: Option<Value>,
    pub(crate) tallies: BTreeMap<Place, Tally>,
    /// Mutating calls and listings that run.
    pub(crate) live: BTreeMap<u64, Live>,
    pub(crate) streaks: BTreeMap<Place, Streak>,
    /// When a daemon last met the driver, on a connection of its own.
    pub(crate) probed_at: Option<Duration>,
    /// When an object's deletion began, and when the object appeared.
    pub(crate) deleted_at: BTreeMap<String, Duration>,
    pub(crate) created_at: BTreeMap<String, Duration>,
    /// When another program changed something on which an attachment depends.
    pub(crate) woken_at: BTreeMap<String, Duration>,
    pub(crate) supply: Supply,
    pub(crate) journal: Journal,
    renewed_at: Duration,
    /// The same of the provisioner's Lease.
    supplier_renewed_at: Duration,
    confused_until: Duration,
    troubled_until: Duration,
}

/// The calls to the driver for one volume on one node.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The number of the last publish call, whatever its outcome.
    pub(crate) last_publish: Option<u64>,
    /// The number of the last unpublish that was answered OK.
    pub(crate) last_unpublish: Option<u64>,
    /// The publish contexts that were answered since the last unpublish.
    pub(crate) contexts: BTreeSet<String>,
    pub(crate) published: bool,
    /// Published, but not by a daemon that could have known better.
    pub(crate) excused: bool,
    /// Attached by hand at some time: its publish context may be one that no daemon has ever seen.
    pub(crate) by_hand: bool,
}

/// A running call.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) method: Method,
    pub(crate) volume: Option<String>,
    pub(crate) caller: String,
    pub(crate) deadline: Option<Duration>,
}

/// Publishes of one attachment that failed in a row.
#[derive(Debug)]
pub(crate) struct Streak {
    pub(crate) uid: String,
    pub(crate) failures: u32,
    pub(crate) ended: Duration,
    /// Whether a code was among them whose back-off is capped lower.
    pub(crate) soft: bool,
}

impl Model {
    pub(crate) fn new(trace: Trace, network: Network, audit: Audit) -> Self {
        Self {
            trace,
            network,
            attachments: BTreeMap::new(),
            volumes: BTreeMap::new(),
            lease: None,
            tallies: BTreeMap::new(),
            live: BTreeMap::new(),
            streaks: BTreeMap::new(),
            probed_at: None,
            deleted_at: BTreeMap::new(),
            created_at: BTreeMap::new(),
            woken_at: BTreeMap::new(),
            supply: Supply::default(),
            journal: Journal::of(audit),
            renewed_at: Duration::ZERO,
            supplier_renewed_at: Duration::ZERO,
            confused_until: Duration::ZERO,
            troubled_until: Duration::ZERO,
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.trace.age()
    }

    /// A user edited the Lease by hand.
    pub(crate) fn confuse(&mut self) {
        self.confused_until = self.now() + CONFUSION;
        self.streaks.clear();
    }

    /// Whether two daemons may both believe that they lead.
    pub(crate) fn is_confused(&self) -> bool {
        self.now() < self.confused_until
    }

    /// Something stands between a daemon and the world for this long.
    pub(crate) fn trouble(&mut self, lasts: Duration) {
        self.troubled_until = self.troubled_until.max(self.now() + lasts);
    }

    /// Whether what the daemons see is as it is, but for the last moments.
    pub(crate) fn is_calm(&self) -> bool {
        self.now() > self.troubled_until + CALM
    }

    /// The holder of the Lease: `daemon-a_1234`.
    pub(crate) fn holder(&self) -> &str {
        self.lease.as_ref().map_or("", |lease| text(lease, "/spec/holderIdentity"))
    }

    /// Whether the Lease is this daemon's, in whichever life of it.
    pub(crate) fn is_led_by(&self, daemon: &str) -> bool {
        self.holder().strip_prefix(daemon).is_some_and(|rest| rest.starts_with('_'))
    }

    /// The holder of the provisioner's Lease.
    pub(crate) fn supplier(&self) -> &str {
        self.supply.lease.as_ref().map_or("", |lease| text(lease, "/spec/holderIdentity"))
    }

    /// Whether the provisioner's Lease is this daemon's.
    pub(crate) fn supplied_by(&self, daemon: &str) -> bool {
        self.supplier().strip_prefix(daemon).is_some_and(|rest| rest.starts_with('_'))
    }

    /// The daemon that a call comes from.
    pub(crate) fn caller(&self, call: &Call) -> String {
        let number = usize::try_from(call.connection).unwrap_or_default();
        self.network.accepted_from(DRIVER_HOST, number).unwrap_or_else(|| "nobody".to_owned())
    }

    /// Takes over what the driver says of a volume.
    pub(crate) fn see_published(&mut self, volume: &str, state: &State) {
        let published = state.published(volume);
        for node in &published {
            self.tallies.entry((volume.to_owned(), node.clone())).or_default();
        }
        for ((of, node), tally) in &mut self.tallies {
            if of == volume {
                tally.published = published.contains(node);
            }
        }
    }

    /// Keeps an object as it is stored now.
    pub(crate) fn keep(&mut self, plural: &str, name: &str, object: Option<&Value>) {
        let now = self.now();
        let kept = match plural {
            "volumeattachments" => &mut self.attachments,
            "persistentvolumes" => &mut self.volumes,
            "leases" => {
                let of = |lease: Option<&Value>| {
                    lease.map(|lease| {
                        (text(lease, "/spec/holderIdentity").to_owned(), text(lease, "/spec/acquireTime").to_owned())
                    })
                };
                if is_lease(name) {
                    let late = now.saturating_sub(std::mem::replace(&mut self.supplier_renewed_at, now)) > TERM;
                    if late || of(self.supply.lease.as_ref()) != of(object) {
                        self.journal.terms += 1;
                    }
                    self.supply.lease = object.cloned();
                }
                if name == LEASE.1 {
                    // A leader that could not renew in time has begun another term, though the Lease never changed hands.
                    let late = now.saturating_sub(std::mem::replace(&mut self.renewed_at, now)) > TERM;
                    if late || of(self.lease.as_ref()) != of(object) {
                        // Another term: its queues begin afresh.
                        self.streaks.clear();
                    }
                    self.lease = object.cloned();
                }
                return;
            }
            _ => return,
        };
        match object {
            Some(object) => drop(kept.insert(name.to_owned(), object.clone())),
            None => drop(kept.remove(name)),
        }
    }
}

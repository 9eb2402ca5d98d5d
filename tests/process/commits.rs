//! Everything that was committed to the store, on the driver's time axis, with the leader at that time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::sandbox::api::{Api, Committed};
use csi_control_plane::sandbox::driver::Driver;
use serde_json::Value;

/// The users that are daemons: everyone else is a stagehand.
pub(crate) const DAEMONS: &str = "daemon-";

/// One commit.
#[derive(Debug, Clone)]
pub(crate) struct Commit {
    /// When, by the driver's clock: comparable with its calls.
    pub(crate) at: Duration,
    /// The caller.
    pub(crate) user: String,
    /// The kind's plural.
    pub(crate) plural: &'static str,
    /// The object's name.
    pub(crate) name: String,
    /// The object after; null when it is gone.
    pub(crate) new: Value,
    /// The user who held the Lease when this was committed, and when that user had last renewed it.
    pub(crate) leader: Option<(String, Duration)>,
}

impl Commit {
    /// Whether the Lease was handed back.
    pub(crate) fn is_release(&self) -> bool {
        self.plural == "leases"
            && self.new.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or("").is_empty()
    }

    /// Whether this says that a volume is attached.
    pub(crate) fn is_attached(&self, attachment: &str) -> bool {
        self.plural == "volumeattachments"
            && self.name == attachment
            && self.new.pointer("/status/attached") == Some(&Value::Bool(true))
    }
}

/// All commits so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Commits(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    commits: Vec<Commit>,
    /// The identity with which each user signs.
    users: BTreeMap<String, String>,
    leader: Option<(String, Duration)>,
}

impl Commits {
    /// Writes down what is committed from now on.
    pub(crate) fn of(api: &Api, driver: &Driver) -> Self {
        let commits = Self::default();
        let (book, driver) = (commits.clone(), driver.clone());
        api.on_commit(move |commit| book.0.lock().unwrap().note(commit, driver.age()));
        commits
    }

    /// The commits so far, oldest first.
    pub(crate) fn all(&self) -> Vec<Commit> {
        self.0.lock().unwrap().commits.clone()
    }

    /// The first commit that passes.
    pub(crate) fn first(&self, passes: impl Fn(&Commit) -> bool) -> Option<Commit> {
        self.all().into_iter().find(passes)
    }

    /// attacher I8: no daemon writes but the one that holds the Lease, and that not a moment longer than the Lease is valid.
    pub(crate) fn assert_one_leader(&self, lease_duration: Duration) {
        let writes =
            self.all().into_iter().filter(|commit| commit.user.starts_with(DAEMONS) && commit.plural != "leases");
        for write in writes {
            let what = format!("{} wrote {} {} at {:?}", write.user, write.plural, write.name, write.at);
            let (leader, renewed) = write.leader.unwrap_or_else(|| panic!("{what} while nobody led"));
            assert_eq!(leader, write.user, "{what}");
            assert!(write.at <= renewed + lease_duration, "{what}, with a Lease renewed at {renewed:?}");
        }
    }
}

impl Book {
    fn note(&mut self, commit: &Committed<'_>, at: Duration) {
        let object = commit.new.or(commit.old).cloned().unwrap_or_default();
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if commit.resource.plural == "leases" {
            let holder = commit.new.and_then(|lease| lease.pointer("/spec/holderIdentity")).and_then(Value::as_str);
            self.leader = holder.filter(|holder| !holder.is_empty()).map(|holder| {
                let user = self.users.entry(holder.to_owned()).or_insert_with(|| commit.actor.to_owned());
                (user.clone(), at)
            });
        }
        self.commits.push(Commit {
            at,
            user: commit.actor.to_owned(),
            plural: commit.resource.plural,
            name,
            new: commit.new.cloned().unwrap_or_default(),
            leader: self.leader.clone(),
        });
    }
}

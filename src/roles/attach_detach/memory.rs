//! What a term remembers of volumes, attachments and nodes. All of it can be lost: then each time begins anew, which is the safe side.
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::roles::kit::memory::{Mark, Remembered};

use super::volume_id::VolumeId;

/// The relation of attachments to their volumes.
pub const OF: &str = "of";

/// The mark of the attachments of a volume.
pub fn of_volume(id: &VolumeId) -> Mark {
    Mark(OF, id.name().to_owned())
}

/// An attachment by its name, and the volume that it is of, once that is known. It stays known when its `PersistentVolume` goes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KnownAttachment {
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Its volume.
    pub id: Option<VolumeId>,
    /// Whether its name is the one that is computed for its volume and node.
    pub is_own: bool,
}

impl Remembered for KnownAttachment {
    fn marks(&self) -> Vec<Mark> {
        self.id.iter().map(of_volume).collect()
    }
}

/// How far a volume is on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is wanted, and there is no attachment.
    Blocked,
    /// It is wanted, and its attachment is not attached, or not reported to the node yet.
    Attaching,
    /// It is wanted, attached and reported.
    Settled,
    /// Nobody wants it, and there is a live attachment.
    Unwanted,
    /// Its attachment is being deleted.
    Deleting,
}

/// How far the name of a volume is taken out of the status of its node, before the attachment is deleted (attach-detach spec 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// The writer of the node's status has to take it out.
    Asked,
    /// It is out, and the cache shows the node as it was then, or later.
    Confirmed,
    /// The attachment stays: its name is reported again.
    Ended,
}

/// A volume on a node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SiteMemory {
    /// The uid of its attachment; empty if there is none.
    pub uid: Box<str>,
    /// How far it is, and since when.
    pub phase: Option<(Phase, Instant)>,
    /// Whether its name is being withdrawn from the node's status.
    pub withdrawal: Option<Withdrawal>,
    /// The API has taken the deletion of its attachment, which the cache may not show yet.
    pub is_deleted: bool,
    /// The version in which its attachment was created, which the cache may not show yet.
    pub created: Option<u128>,
    /// What was told last.
    pub told: Option<String>,
    /// How often in a row the API has not taken the deletion of its attachment.
    pub refused: u32,
    /// When the deletion is asked for again, if the API has not taken it.
    pub retry_at: Option<Instant>,
    /// No deletion of its attachment can be done any more that was sent before and is not answered: by this leader or an earlier one. This
    /// leader has made it or written it since, or it was reported when the leader first saw it.
    pub is_kept: bool,
}

/// How far a volume is on a node, as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The uid of its attachment; empty if there is none.
    pub uid: Box<str>,
    /// How far it is.
    pub phase: Phase,
    /// Whether its name is in the status of the node.
    pub is_reported: bool,
}

/// A volume, by the names of the nodes that have it or want it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct VolumeMemory {
    /// What is remembered of each node.
    pub sites: BTreeMap<String, SiteMemory>,
}

impl Remembered for VolumeMemory {}

impl VolumeMemory {
    /// Notes how far the volume is on each node, and forgets other nodes. What is remembered of another attachment is not this one's.
    pub fn track(&mut self, found: BTreeMap<String, Found>, now: Instant) {
        self.sites.retain(|node, _| found.contains_key(node));
        for (node, Found { uid, phase, is_reported }) in found {
            let site = self.sites.entry(node).or_default();
            if site.uid != uid {
                // What was created has its uid from the beginning. A name is out of the status before its attachment is deleted.
                let is_kept = is_reported || phase == Phase::Settled;
                *site = SiteMemory { uid, is_kept, ..SiteMemory::default() };
            }
            if site.phase.is_none_or(|(held, _)| held != phase) {
                (site.phase, site.told) = (Some((phase, now)), None);
            }
        }
    }

    /// Changes what is remembered of a node, if anything is.
    pub fn change(&mut self, node: &str, change: impl FnOnce(&mut SiteMemory)) {
        if let Some(site) = self.sites.get_mut(node) {
            change(site);
        }
    }

    /// What is remembered of this attachment to the node.
    pub fn site(&self, node: &str, uid: &str) -> Option<&SiteMemory> {
        self.sites.get(node).filter(|site| *site.uid == *uid)
    }

    /// How far the name of this attachment's volume is withdrawn from the status of the node.
    pub fn withdrawal(&self, node: &str, uid: &str) -> Option<Withdrawal> {
        self.site(node, uid).and_then(|site| site.withdrawal)
    }

    /// The writer of the node's status has taken the name out, if that is still asked.
    pub fn confirm(&mut self, node: &str, uid: &str) {
        if self.withdrawal(node, uid) == Some(Withdrawal::Asked) {
            self.change(node, |site| site.withdrawal = Some(Withdrawal::Confirmed));
        }
    }
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeMemory {
    /// The names of the volumes that its kubelet used when its Node object was last seen, and of those that it may have begun to use since,
    /// if that is gone.
    pub last_in_use: Option<BTreeSet<Box<str>>>,
    /// The uid of the Node object that has been ready.
    pub ready: Option<Box<str>>,
    /// The version that this leader's last write of its status has made.
    pub written: Option<u128>,
    /// Since when names are gathered that will be reported to it.
    pub gathering: Option<Instant>,
    /// How many attachments have become reportable to it.
    pub came: u64,
    /// How many will have, once all are there that are gathered for.
    pub expected: u64,
    /// Since when its status cannot be written.
    pub failing: Option<Instant>,
}

impl Remembered for NodeMemory {}

impl NodeMemory {
    /// An attachment has become reportable. Whether its report can wait for others that are on their way.
    pub fn can_wait(&mut self) -> bool {
        self.came += 1;
        self.gathering.is_some() && self.came < self.expected
    }

    /// For how long its status cannot be written.
    pub fn failing_for(&self, now: Instant) -> Option<Duration> {
        self.failing.map(|since| now.saturating_duration_since(since))
    }
}

/// An attachment of an unknown volume.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OrphanMemory {
    /// Since when.
    pub since: Option<Instant>,
    /// It was deleted, or a person has to look: it was told.
    pub is_done: bool,
}

impl Remembered for OrphanMemory {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_gathers_names_waits_for_the_last_that_is_awaited_and_others_for_nobody() {
        let mut node = NodeMemory { expected: 2, ..NodeMemory::default() };
        assert!(!node.can_wait(), "nothing is gathered");
        node = NodeMemory { gathering: Some(Instant::now()), expected: node.came + 2, ..node };
        assert_eq!([node.can_wait(), node.can_wait(), node.can_wait()], [true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_of_one_attachment_and_its_time_begins_with_each_phase() {
        let mut memory = VolumeMemory::default();
        let begun = Instant::now();
        let phases =
            |uid: &str, phase| BTreeMap::from([("n".to_owned(), Found { uid: uid.into(), phase, is_reported: false })]);
        memory.track(phases("u", Phase::Unwanted), begun);
        memory.sites.get_mut("n").unwrap().withdrawal = Some(Withdrawal::Asked);
        memory.track(phases("u", Phase::Unwanted), begun + Duration::from_secs(1));
        assert_eq!(memory.sites["n"].phase, Some((Phase::Unwanted, begun)), "t0 stays");
        assert_eq!(memory.withdrawal("n", "u"), Some(Withdrawal::Asked));
        assert_eq!((memory.withdrawal("n", "v"), memory.withdrawal("m", "u")), (None, None));
        memory.confirm("n", "v");
        assert_eq!(memory.withdrawal("n", "u"), Some(Withdrawal::Asked), "of another attachment");
        memory.confirm("n", "u");
        assert_eq!(memory.withdrawal("n", "u"), Some(Withdrawal::Confirmed));
        memory.track(phases("u", Phase::Settled), begun + Duration::from_secs(2));
        assert_eq!(memory.sites["n"].phase, Some((Phase::Settled, begun + Duration::from_secs(2))));
        memory.track(phases("v", Phase::Settled), begun + Duration::from_secs(3));
        assert_eq!(memory.withdrawal("n", "v"), None, "a new attachment has a life of its own");
        assert!(memory.sites["n"].is_kept, "what pods use is not being deleted");
        memory.change("n", |site| site.is_kept = false);
        memory.track(phases("v", Phase::Attaching), begun);
        memory.track(phases("v", Phase::Settled), begun);
        assert!(!memory.sites["n"].is_kept, "a deletion was sent since");
        memory.track(phases("w", Phase::Attaching), begun);
        assert!(!memory.sites["n"].is_kept, "an earlier leader may have sent one");
        // A withdrawal that was not asked is not confirmed.
        memory.confirm("n", "w");
        assert_eq!(memory.withdrawal("n", "w"), None);
        memory.track(BTreeMap::new(), begun);
        assert_eq!(memory, VolumeMemory::default());
    }
}

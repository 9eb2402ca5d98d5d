//! Which volumes the status of a node reports as attached: attach-detach spec 8. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::cluster::names::CSI_VOLUME;
use crate::cluster::{AttachedVolume, NodeState, Patch};
use crate::roles::attach_detach::guard::Permit;
use crate::roles::attach_detach::volume_id::VolumeId;
use crate::roles::kit::drive::Next;

/// The shortest time for which names are gathered before they are reported, if more of them are on their way: 250 ms, half of the time
/// after which a kubelet looks again for a volume that was not reported. So a burst of pods costs a few writes of each node, and not one
/// for each volume (row 1, D35).
const GATHERED_FOR: Duration = Duration::from_millis(250);
/// The divisor that makes the time for which names are gathered of the time that a pod has waited: a quarter. Each time that a kubelet looks
/// in vain, it waits twice as long until it looks again. So the longer a pod has waited, the longer its names may be gathered.
const PART_OF_WAIT: u32 = 4;
/// The longest time for which names are gathered, however long a pod has waited: 2 seconds. So gathering never costs a pod more than that.
const GATHERED_AT_MOST: Duration = Duration::from_secs(2);

/// What becomes of the name of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// It is reported.
    Yes,
    /// It is not.
    No,
    /// It stays as it is.
    AsIs,
}

/// An attachment to the node, of a known volume and under the name that was computed for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact")]
pub struct Attachment {
    /// It is attached, as its status says.
    pub is_attached: bool,
    /// Its deletion was requested.
    pub is_deleting: bool,
    /// A pod on the node wants it, or it was withdrawn and stays.
    pub is_wanted: bool,
    /// Its name is withdrawn, so that it can be deleted.
    pub is_withdrawn: bool,
    /// No earlier deletion of it can still be done.
    pub is_kept: bool,
}

impl Attachment {
    /// Whether it is about to be attached for a pod.
    pub fn is_on_its_way(self) -> bool {
        self.is_wanted && !self.is_attached && !self.is_deleting && !self.is_withdrawn
    }
}

/// What becomes of the name of an attachment's volume (row 7, and rows 4, 9, 11, 14 of spec 5).
pub fn report(attachment: Attachment) -> Report {
    let Attachment { is_attached, is_deleting, is_wanted, is_withdrawn, is_kept } = attachment;
    if !is_attached || is_deleting || is_withdrawn {
        Report::No
    } else if is_wanted && is_kept {
        Report::Yes
    } else {
        Report::AsIs
    }
}

/// The list that a node's status should have: what is not CSI's as it is and where it is, then the names that are reported, sorted. A name
/// of CSI's without an attachment is not reported.
pub fn list(held: &[AttachedVolume], reports: &BTreeMap<VolumeId, Report>) -> Vec<AttachedVolume> {
    let is_csi = |volume: &&AttachedVolume| volume.name.starts_with(CSI_VOLUME);
    let by_name: BTreeMap<&str, &AttachedVolume> = held.iter().rev().map(|volume| (&*volume.name, volume)).collect();
    let entry = |(id, report): (&VolumeId, &Report)| {
        let as_it_is = by_name.get(id.name()).map(|volume| (*volume).clone());
        let new = || AttachedVolume { name: id.name().into(), device_path: Box::default() };
        match report {
            Report::Yes => Some(as_it_is.unwrap_or_else(new)),
            Report::No => None,
            Report::AsIs => as_it_is,
        }
    };
    held.iter().filter(|volume| !is_csi(volume)).cloned().chain(reports.iter().filter_map(entry)).collect()
}

/// The names in a list. Their order does not matter to a kubelet.
fn names(list: &[AttachedVolume]) -> BTreeSet<&str> {
    list.iter().map(|volume| &*volume.name).collect()
}

/// The patch that writes the list, of this version of the node alone, and nothing else of it.
pub fn patch(node: &NodeState, list: &[AttachedVolume]) -> Patch {
    Patch::Merge(json!({
        "metadata": { "uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version },
        "status": { "volumesAttached": list },
    }))
}

/// A node.
#[derive(Debug, Clone)]
pub struct View {
    /// Its name.
    pub name: String,
    /// The node, if it exists.
    pub node: Option<Arc<NodeState>>,
    /// Whether its volumes are managed by this controller.
    pub is_managed: bool,
    /// Whether statuses are written at all.
    pub is_written: bool,
    /// What may be done now.
    pub permit: Permit,
    /// What becomes of the name of each volume that has an attachment to it.
    pub reports: BTreeMap<VolumeId, Report>,
    /// The volumes whose names have to be withdrawn, with the uids of their attachments.
    pub asked: Vec<(VolumeId, Box<str>)>,
    /// How many other volumes are about to be attached to it.
    pub coming: u64,
    /// How many attachments had become reportable to it before it was looked at.
    pub came: u64,
    /// The volumes that pods want there, with the time that the oldest of these pods has waited.
    pub wanted: BTreeMap<VolumeId, Duration>,
    /// Since when names are being gathered, if they are.
    pub gathering: Option<Instant>,
    /// When it was looked at.
    pub now: Instant,
}

/// One request, or what is confirmed by it.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Write this list.
    Write(Vec<AttachedVolume>),
    /// Read the node: its kubelet may have begun to use a volume.
    Read,
    /// The names of these volumes are out.
    Confirm(Vec<(VolumeId, Box<str>)>),
    /// Gather names for this time.
    Gather(Duration),
    /// Nothing can be done before this time is over.
    Wait(Duration),
}

/// What one attempt has done so far.
#[derive(Debug, Default, PartialEq)]
pub struct Progress {
    /// The API has shown the node during the attempt.
    pub is_fresh: bool,
    /// It does not have the node any more.
    pub is_gone: bool,
}

/// The policy.
pub fn next_step(view: &View, progress: &Progress) -> Next<Step> {
    match view.permit {
        Permit::Yes => {}
        Permit::After(left) => return Next::Do(Step::Wait(left)),
        Permit::No => return Next::Done,
    }
    let confirm = || Next::Do(Step::Confirm(view.asked.clone()));
    let Some(node) = view.node.as_ref().filter(|_| !progress.is_gone) else {
        return if view.asked.is_empty() { Next::Done } else { confirm() };
    };
    if !view.is_managed {
        return Next::Done;
    }
    let list = list(&node.volumes_attached, &view.reports);
    let (held, listed) = (names(&node.volumes_attached), names(&list));
    if view.is_written && (list.len() != node.volumes_attached.len() || held != listed) {
        let is_added_to = held.is_subset(&listed);
        let time = gather_for(view, &held);
        return Next::Do(match view.gathering.map(|since| time.saturating_sub(view.now - since)) {
            _ if !is_added_to || view.coming == 0 => Step::Write(list),
            None => Step::Gather(time),
            Some(Duration::ZERO) => Step::Write(list),
            Some(left) => Step::Wait(left),
        });
    }
    match (view.asked.is_empty(), progress.is_fresh) {
        (true, _) => Next::Done,
        (false, false) => Next::Do(Step::Read),
        (false, true) => confirm(),
    }
}

/// For how long names are gathered with those that are not in the list yet.
fn gather_for(view: &View, held: &BTreeSet<&str>) -> Duration {
    let is_new = |(id, report): &(&VolumeId, &Report)| **report == Report::Yes && !held.contains(id.name());
    let waited = view.reports.iter().filter(is_new).filter_map(|(id, _)| view.wanted.get(id)).max();
    (waited.copied().unwrap_or_default() / PART_OF_WAIT).clamp(GATHERED_FOR, GATHERED_AT_MOST)
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

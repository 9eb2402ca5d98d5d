//! What one attempt at a claim has done so far, and what each step's answer means for that and for what the term remembers. Pure.

use std::sync::Arc;

use tokio::time::Instant;

use crate::cluster::{PersistentVolume, SmolStr, StorageClass, VolumeAttributesClass};
use crate::csi::SnapshotLock;
use crate::roles::kit::{End, Secret};

use super::answer::{Answer, Ended, Happened, SourceRead, anothers};
use super::decide::Ignored;
use super::error::{AttemptError, ClaimReason, InvalidClaim};
use super::memory::{ClaimMemory, Dependency};
use super::phase::Phase;
use super::state::ClaimState;
use super::transition::Change;
use super::view::{Evidence, Lookup};
use crate::roles::provisioner::sources::status::SourceObjects;

/// What an attempt knows when it begins.
#[derive(Debug, Clone)]
pub struct Beginning {
    /// How far the claim is. A request that was not sent is made again, because claim and class may have changed.
    pub known: Arc<ClaimState>,
    /// The claim's PersistentVolume has gone, and the API has not shown since that the claim is there and unbound.
    pub is_without_volume: bool,
    /// How many finalizers of sources were removed by then.
    pub releases: u64,
    /// When that was.
    pub at: Instant,
}

/// What one attempt has done so far. It is dropped with the attempt.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct Progress {
    /// What it knew when it began.
    pub beginning: Beginning,
    /// How far the claim is by now. The term's memory has the same.
    pub known: Arc<ClaimState>,
    /// Whether that has changed in this attempt.
    pub is_changed: bool,
    /// The journal has confirmed the request as it is now.
    pub has_recorded: bool,
    /// The claim's PersistentVolume has gone, and the API has not shown since that the claim is there and unbound.
    pub is_without_volume: bool,
    /// The API does not have the claim any more.
    pub is_gone: bool,
    /// What was read of the data source, and its lock.
    pub found: SourceObjects,
    /// The class, where the cache does not have it.
    pub class: Lookup<Arc<StorageClass>>,
    /// The class of attributes.
    pub attributes_class: Option<VolumeAttributesClass>,
    /// The secret for the driver.
    pub secrets: Option<Secret>,
    /// The turn of the snapshot that is restored. It lasts until the driver has answered.
    pub turn: Option<SnapshotLock>,
    /// The PersistentVolume of the volume's name, as the API itself has shown it.
    pub seen: Option<PersistentVolume>,
    /// `Some`: no other PersistentVolume has the volume. The value says whether one may have been stored for it before this check.
    pub checked: Option<bool>,
    /// PersistentVolumes were listed since the driver has created the volume.
    pub has_listed: bool,
    /// The name of the PersistentVolume that the claim is bound to, which the API was asked for, and whether it has the volume.
    pub bound: Option<(String, bool)>,
    /// The PersistentVolume was not stored, because its name is taken.
    pub taken: Option<AttemptError>,
    /// A write to the claim was forbidden in this version of it.
    pub refused: Option<(Option<SmolStr>, AttemptError)>,
    /// What the API's history says of the request.
    pub history: Option<Evidence>,
    /// Whether the selected node was removed from the claim.
    pub given_back: bool,
    /// The journal does not say yet that the volume may exist whatever error the driver returns.
    pub is_doubt_unrecorded: bool,
    /// Why the attempt is to end.
    pub failure: Option<AttemptError>,
    /// Why it has ended. What is to be done about that follows.
    pub failed: Option<AttemptError>,
    /// That was done.
    pub is_failure_noted: bool,
    /// The attempt has come to its end, and nothing is left to do.
    pub end: Option<Ended>,
}

/// Applies the outcome of a step. What it changes is remembered at once, so that an attempt that is cancelled loses nothing.
pub fn apply(memory: &mut ClaimMemory, progress: &mut Progress, Answer { claim, volume_name, happened }: Answer) {
    if let Some(claim) = claim
        && !Arc::ptr_eq(&progress.known.claim.object, &claim.object)
    {
        progress.known_mut().claim = claim;
    }
    let waits = happened.failure().and_then(|it| Dependency::after(it, &progress.known.claim, volume_name.as_deref()));
    let is_waiting = waits.is_some();
    memory.waits.extend(waits);
    let is_noted = matches!(happened, Happened::FailureNoted(_));
    progress.apply(happened);
    memory.is_without_volume |= progress.beginning.is_without_volume;
    if progress.is_changed || is_waiting || is_noted {
        memory.state = Some(Arc::clone(&progress.known));
    }
    if let (true, Some(AttemptError::Reason(ClaimReason::Invalid(InvalidClaim::Source(_))))) =
        (is_noted, &progress.failed)
    {
        // It may not use the source.
        memory.admitted = None;
    }
    if let Some(end) = progress.end {
        memory.settled();
        match end {
            // Until the cache has the PersistentVolume, only the claim's state says so: another run must not call the driver a second
            // time (R59).
            Ended::Provisioned { is_shown: false, .. } => memory.state = Some(Arc::clone(&progress.known)),
            Ended::Ignored(Ignored::NoNode) => memory.wait_for_node(Arc::clone(&progress.known)),
            Ended::Provisioned { .. } | Ended::Ignored(_) => memory.state = None,
        }
    }
}

/// What the end of the attempt means for it.
pub fn ended(progress: &mut Progress, end: &End<'_, ClaimReason>) {
    if let End::Failed(error) = end {
        progress.failed = Some((*error).clone());
    }
}

impl Progress {
    /// Nothing is done yet.
    pub fn new(beginning: Beginning) -> Self {
        Self {
            known: Arc::clone(&beginning.known),
            is_without_volume: beginning.is_without_volume,
            beginning,
            is_changed: false,
            has_recorded: false,
            is_gone: false,
            found: SourceObjects::default(),
            class: Lookup::NotAsked,
            attributes_class: None,
            secrets: None,
            turn: None,
            seen: None,
            checked: None,
            has_listed: false,
            bound: None,
            taken: None,
            refused: None,
            history: None,
            given_back: false,
            is_doubt_unrecorded: false,
            failure: None,
            failed: None,
            is_failure_noted: false,
            end: None,
        }
    }

    /// The driver's id of the volume that it has created.
    pub fn volume_id(&self) -> Option<&str> {
        match self.known.phase() {
            Phase::Created(made) => Some(&made.volume.volume_id),
            Phase::Discarding(unusable) => Some(&unusable.volume_id),
            _ => None,
        }
    }

    fn known_mut(&mut self) -> &mut ClaimState {
        Arc::make_mut(&mut self.known)
    }

    fn change(&mut self, change: Change) {
        match &change {
            // The next request is not sent without its secret.
            Change::Discarded => self.secrets = None,
            // The entry changes with the request.
            Change::Planned(_) | Change::NoErrorIsFinal | Change::Unusable { .. } => self.has_recorded = false,
            Change::Made { .. } => (self.checked, self.has_listed, self.bound) = (None, false, None),
            _ => {}
        }
        self.known_mut().apply(change);
        self.is_changed = true;
    }

    fn apply(&mut self, happened: Happened) {
        match happened {
            Happened::Nothing => {}
            Happened::ClaimRead { gone } => (self.is_without_volume, self.is_gone) = (false, gone),
            Happened::Recorded => self.has_recorded = true,
            Happened::DoubtRecorded => self.is_doubt_unrecorded = false,
            Happened::LeftOver => self.change(Change::LeftAlone),
            Happened::Changed(Change::Concluded) => self.conclude(),
            Happened::Changed(change) => self.change(change),
            Happened::Failed(change, failure) => {
                if let Some(change) = change {
                    self.change(change);
                }
                self.failure = Some(failure);
            }
            Happened::Turn(turn) => self.turn = Some(turn),
            Happened::Answered { told, change, failure } => {
                self.turn = None;
                if told {
                    self.known_mut().reported.provisioning = true;
                    self.is_changed = true;
                }
                self.is_doubt_unrecorded = matches!(change, Some(Change::NoErrorIsFinal));
                if let Some(change) = change {
                    self.change(change);
                }
                self.failure = failure;
            }
            Happened::Source(read) => self.read_source(read),
            Happened::Class(class) => self.class = class.map_or(Lookup::Missing, |class| Lookup::Found(class.into())),
            Happened::AttributesClass(class) => self.attributes_class = Some(*class),
            Happened::Secret(secret) => self.secrets = Some(secret),
            Happened::NoSecret { proves_nothing } => {
                self.secrets = Some(Secret::default());
                if proves_nothing {
                    self.change(Change::NoErrorIsFinal);
                }
            }
            Happened::Confirmed(seen, change) => {
                self.seen = seen.map(|seen| *seen);
                if let Some(change) = change {
                    self.change(change);
                }
            }
            // The next attempt looks again for the PersistentVolume that has the volume.
            Happened::Listed => (self.has_listed, self.bound) = (true, None),
            Happened::Bound(name, is_owner) => self.bound = Some((name, is_owner)),
            Happened::Abandoned { volume_id, other, is_unwanted } => {
                let failure = (!is_unwanted).then(|| anothers(&volume_id, &other));
                self.change(Change::Abandoned { failure });
            }
            Happened::Taken(error) => self.taken = Some(error),
            Happened::Refused(version, error) => self.refused = Some((version, error)),
            Happened::History(evidence) => self.history = Some(evidence),
            Happened::Checked => {
                if let Phase::Created(made) = self.known.phase() {
                    self.checked = Some(made.may_be_stored);
                }
                self.change(Change::MayBeStored(true));
            }
            Happened::Ended(end) => {
                if matches!(end, Ended::Provisioned { is_shown: false, .. }) {
                    self.known_mut().apply(Change::SuccessTold);
                }
                self.end = Some(end);
            }
            Happened::FailureNoted(told) => {
                if let Some(news) = told.and_then(|told| told.news) {
                    self.known_mut().reported.failure = Some(news);
                }
                self.is_failure_noted = true;
            }
        }
    }

    /// The request has ended, and its failure is now the attempt's.
    fn conclude(&mut self) {
        if let Phase::Finished { reschedule, failure, .. } = self.known.phase() {
            (self.given_back, self.failure) = (*reschedule, failure.clone());
        }
        self.change(Change::Concluded);
    }

    fn read_source(&mut self, read: SourceRead) {
        let found = &mut self.found;
        match read {
            SourceRead::Grants(grants) => found.grants = Some(grants),
            SourceRead::Snapshot(snapshot) => found.snapshot = Some(snapshot.map(|it| *it)),
            SourceRead::Content(content) => found.content = Some(content.map(|it| *it)),
            SourceRead::Claim(claim) => found.claim = Some(claim.map(|it| *it)),
            SourceRead::Volume(volume) => found.volume = Some(volume.map(|it| *it)),
            SourceRead::Locked { lock, is_old } => {
                if is_old {
                    found.forget();
                }
                found.lock = Some(lock);
            }
            SourceRead::Outdated => found.forget(),
            SourceRead::Protected => found.protect(),
            SourceRead::Unprotected(_) => {
                found.protect();
                self.known_mut().reported.unprotected = true;
                self.is_changed = true;
            }
        }
    }
}

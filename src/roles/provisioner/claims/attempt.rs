//! The state of one attempt at a claim, and how the outcome of a step changes it.

use std::sync::Arc;

use tokio::time::Instant;

use crate::cluster::{
    ObjectName, PersistentVolume, PersistentVolumeClaim, ReferenceGrant, StorageClass, VolumeAttributesClass,
    VolumeSnapshot, VolumeSnapshotContent,
};
use crate::roles::kit::Secret;

use super::claim::{Claim, ClaimKey};
use super::error::AttemptError;
use super::phase::Phase;
use super::state::ClaimState;
use super::transition::Change;
use super::view::{Evidence, Lookup};
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::sources::status::SourceObjects;

/// The state of one attempt.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub(in crate::roles::provisioner) struct State {
    /// A copy of the claim's state in the term. It is written back before each step, and when the attempt ends.
    pub(in crate::roles::provisioner) known: ClaimState,
    /// Whether the copy differs from the term's state.
    pub(in crate::roles::provisioner) is_changed: bool,
    /// The journal has confirmed the request as it is now.
    pub(in crate::roles::provisioner) has_recorded: bool,
    /// The claim's PersistentVolume has gone, and the API has not shown since that the claim is there and unbound.
    pub(in crate::roles::provisioner) is_without_volume: bool,
    /// The API does not have the claim any more.
    pub(in crate::roles::provisioner) is_gone: bool,
    /// How many finalizers of sources were removed when the attempt began.
    pub(in crate::roles::provisioner) releases: u64,
    pub(in crate::roles::provisioner) found: SourceObjects,
    /// The class, where the cache does not have it.
    pub(in crate::roles::provisioner) class: Lookup<Arc<StorageClass>>,
    pub(in crate::roles::provisioner) attributes_class: Option<VolumeAttributesClass>,
    pub(in crate::roles::provisioner) secrets: Option<Secret>,
    /// The PersistentVolume of the volume's name, as the API itself has shown it.
    pub(in crate::roles::provisioner) seen: Option<PersistentVolume>,
    /// `Some`: no other PersistentVolume has the volume. The value says whether one may have been stored for it before this check.
    pub(in crate::roles::provisioner) checked: Option<bool>,
    /// PersistentVolumes were listed since the driver has created the volume.
    pub(in crate::roles::provisioner) has_listed: bool,
    /// What the API's history says of the request.
    pub(in crate::roles::provisioner) history: Option<Evidence>,
    pub(in crate::roles::provisioner) begun: Instant,
    /// Whether the selected node was removed from the claim.
    pub(in crate::roles::provisioner) given_back: bool,
    /// The failure that ends the attempt.
    pub(in crate::roles::provisioner) failure: Option<AttemptError>,
}

/// The outcome of a step.
#[derive(Debug)]
pub(in crate::roles::provisioner) struct Event {
    /// The claim as it was when the step began.
    pub(in crate::roles::provisioner) claim: Option<Claim>,
    /// What has happened.
    pub(in crate::roles::provisioner) happened: Happened,
}

/// What has happened in a step.
#[derive(Debug)]
pub(in crate::roles::provisioner) enum Happened {
    /// Nothing that the next observation does not show.
    Nothing,
    /// The claim was read again.
    Renewed,
    /// The claim was read. `gone`: the API does not have it.
    ClaimRead { gone: bool },
    /// A change of the claim's phase.
    Changed(Change),
    /// A change of the claim's phase that ends the attempt with a failure.
    Failed(Change, AttemptError),
    /// The journal has confirmed the request.
    Recorded,
    /// The driver was called. `told`: an Event says that the volume is being created.
    Answered { told: bool, change: Option<Change>, failure: Option<AttemptError> },
    /// An object behind the content source was read.
    Source(SourceRead),
    /// The class was read, which the cache does not have.
    Class(Option<Box<StorageClass>>),
    /// The class of attributes was read.
    AttributesClass(Box<VolumeAttributesClass>),
    /// The secret was read.
    Secret(Secret),
    /// There is no secret, and the driver is called without. `proves_nothing`: the driver may refuse, without the secret, a volume
    /// that it has created with the secret.
    NoSecret { proves_nothing: bool },
    /// The PersistentVolume of the volume's name that the API has, and the change that follows.
    Confirmed(Option<Box<PersistentVolume>>, Option<Change>),
    /// No other PersistentVolume has the volume.
    Checked,
    /// PersistentVolumes were listed.
    Listed,
    /// What the API's history says of the request.
    History(Evidence),
}

/// What was read, or written, of the content source.
#[derive(Debug)]
pub(in crate::roles::provisioner) enum SourceRead {
    Grants(Vec<ReferenceGrant>),
    Snapshot(Option<Box<VolumeSnapshot>>),
    Content(Option<Box<VolumeSnapshotContent>>),
    Claim(Option<Box<PersistentVolumeClaim>>),
    Volume(Option<Box<PersistentVolume>>),
    /// `told`: an Event says that the source is not protected.
    Protected {
        told: bool,
    },
}

impl From<Change> for Happened {
    fn from(change: Change) -> Self {
        Self::Changed(change)
    }
}

impl From<SourceRead> for Happened {
    fn from(read: SourceRead) -> Self {
        Self::Source(read)
    }
}

impl State {
    /// The state of an attempt when it begins. `None`: the claim is gone, and the term has no state of it.
    pub(in crate::roles::provisioner) fn begin(cx: &Context, key: &ClaimKey) -> Option<Self> {
        let found = cx.find(key);
        let mut known = match cx.states.get(&key.uid) {
            Some(mut known) => {
                known.claim = found.unwrap_or(known.claim);
                known
            }
            None => ClaimState::at_first_sight(found?),
        };
        let has_heard = |version| cx.stores.volumes.has_heard(version);
        // From then on the cache says it, also if somebody has deleted the PersistentVolume meanwhile.
        if known.stored_version().is_some_and(has_heard) {
            let name = known.request().map(|request| ObjectName::cluster(&request.volume_name));
            if name.is_none_or(|name| cx.stores.volumes.get(&name).is_none()) {
                cx.without_volume.note(&key.uid);
            }
            known.apply(Change::Seen);
        }
        known.apply(Change::Renewed);
        let (is_without_volume, releases) = (cx.without_volume.has(&key.uid), cx.sources.releases());
        Some(Self { is_without_volume, releases, ..Self::new(known, cx.scope.clock.now()) })
    }

    /// The state of an attempt that has done nothing yet.
    fn new(known: ClaimState, begun: Instant) -> Self {
        Self {
            known,
            is_changed: false,
            has_recorded: false,
            is_without_volume: false,
            is_gone: false,
            releases: 0,
            found: SourceObjects::default(),
            class: Lookup::NotAsked,
            attributes_class: None,
            secrets: None,
            seen: None,
            checked: None,
            has_listed: false,
            history: None,
            begun,
            given_back: false,
            failure: None,
        }
    }

    fn change(&mut self, change: Change) {
        match &change {
            // The next request is not sent without its secret.
            Change::Discarded => self.secrets = None,
            // The entry changes with the request.
            Change::Planned(_) | Change::NoErrorIsFinal | Change::Unusable { .. } => self.has_recorded = false,
            Change::Made { .. } => (self.checked, self.has_listed) = (None, false),
            _ => {}
        }
        self.known.apply(change);
        self.is_changed = true;
    }

    /// Applies the outcome of a step.
    pub(in crate::roles::provisioner) fn apply(&mut self, event: Event) {
        if let Some(claim) = event.claim {
            self.known.claim = claim;
        }
        match event.happened {
            Happened::Nothing => {}
            Happened::Renewed => {
                self.known.apply(Change::Renewed);
                self.has_recorded = false;
            }
            Happened::ClaimRead { gone } => (self.is_without_volume, self.is_gone) = (false, gone),
            Happened::Recorded => self.has_recorded = true,
            Happened::Changed(Change::Concluded) => self.conclude(),
            Happened::Changed(change) => self.change(change),
            Happened::Failed(change, failure) => {
                self.change(change);
                self.failure = Some(failure);
            }
            Happened::Answered { told, change, failure } => {
                self.known.reported.provisioning |= told;
                self.is_changed |= told;
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
            Happened::Listed => self.has_listed = true,
            Happened::History(evidence) => self.history = Some(evidence),
            Happened::Checked => {
                if let Phase::Created(made) = self.known.phase() {
                    self.checked = Some(made.may_be_stored);
                }
                self.change(Change::MayBeStored(true));
            }
        }
    }

    /// The request has ended, and its failure is now the attempt's.
    fn conclude(&mut self) {
        if let Phase::Finished { reschedule, failure, .. } = self.known.phase() {
            self.given_back = *reschedule;
            self.failure.clone_from(failure);
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
            SourceRead::Protected { told } => {
                found.protected = true;
                self.known.reported.unprotected |= told;
                self.is_changed |= told;
            }
        }
    }
}

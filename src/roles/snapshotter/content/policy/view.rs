//! Everything that a decision on a content depends on. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::{Moment, ObjectReference, SecretRef};
use crate::process::folded;
use crate::roles::kit::Texts;
use crate::roles::snapshotter::content::record::{
    Asked, ClassView, Content, Found, InvalidSnapshot, Needed, Operation, RequestRules, Wait, intent,
};
use crate::roles::snapshotter::secrets;

use super::progress::{Left, Progress};

/// What is the same for every content of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct Rules {
    /// Our driver, and what goes into its requests.
    pub request: RequestRules,
    /// Whose contents are ours, where each node has a daemon of its own.
    pub node: Option<String>,
    /// The driver takes and deletes snapshots.
    pub takes: bool,
    /// The driver lists snapshots.
    pub lists: bool,
    /// The driver can be asked for one snapshot.
    pub gets: bool,
    /// The driver takes groups, so that any snapshot may be of one.
    pub groups: bool,
    /// Where secrets may be; empty: anywhere.
    pub secret_namespaces: Vec<String>,
    /// A snapshot may be deleted without its secret.
    pub delete_without_secret: bool,
}

/// What the term remembers of a content.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
pub struct Known {
    /// What the driver was asked without a final answer.
    pub unanswered: Option<Asked>,
    /// The creation time of the content for which the driver was asked first. A snapshot that is older was not taken for it.
    pub asked_since: Option<Moment>,
    /// The content is gone, and its last version is not known.
    pub is_end_unseen: bool,
    /// The snapshot, where the driver has answered and the content does not say so yet.
    pub found: Option<Found>,
    /// Contents were listed since the term began.
    pub is_relisted: bool,
    /// This version of the content came in an answer: the cache may lack contents that are older.
    pub is_ahead: bool,
    /// The driver's final answer is that there is no snapshot, and the mark still stands.
    pub is_refused: bool,
    /// The driver has deleted the snapshot.
    pub is_deleted: bool,
    /// The snapshot is of a group: that is being deleted as well, or the driver has refused to delete the snapshot by itself, and an
    /// answer has said so.
    pub is_of_group: bool,
    /// An answer has said that the snapshot is of a group.
    pub is_grouped: bool,
    /// An earlier term has left the call without an answer.
    pub is_resumed: bool,
    /// A call had no answer, and the next one was refused or its answer had no id: the driver may have a snapshot that nobody knows.
    pub is_doubtful: bool,
    /// The last look, which is the call that takes the snapshot, has no answer.
    pub is_late: bool,
    /// The API itself has shown the content during the term.
    pub is_confirmed: bool,
    /// What is left of the pause before the next look at a snapshot that is not ready.
    pub pause_left: Option<Duration>,
    /// The snapshot is not ready, and was last looked at longer ago than the longest pause: its volume was never free.
    pub is_overdue: bool,
    /// Another content names the snapshot, or is to get the snapshot of this name.
    pub has_heir: bool,
    /// Another content, of another object, whose snapshot has the name that this content's request would have.
    pub namesake: Option<String>,
    /// The same once the content is marked: then only a content counts whose request with that name was sent, or that has that snapshot.
    pub rival: Option<String>,
    /// Another content that names the snapshot, by kind and name, and does not have it deleted just now.
    pub named_by: Option<String>,
    /// Of a group that is to be deleted: a snapshot that another object needs.
    pub needed_member: Option<Needed>,
    /// The same: a content that may need one of the snapshots. Its `VolumeSnapshot` must be read first.
    pub unread_owner: Option<OwnerNeed>,
    /// Of a group: the cluster shows no contents of snapshots. It is unknown then who needs one of its snapshots.
    pub are_members_unseen: bool,
    /// Somebody has put a copy of the content into the cluster.
    pub has_copy: bool,
    /// The cluster has no contents at all by now: their definition was deleted, and nothing follows from that.
    pub is_kind_absent: bool,
    /// How often a snapshot that is not ready was looked at.
    pub looks: u32,
    /// Which warnings users have read.
    pub told: Texts,
}

/// Everything that a decision depends on.
#[derive(Debug)]
pub struct View<'a, K: Content> {
    /// The content, or what was last seen of it.
    pub content: &'a K,
    /// Whether the cluster still has it.
    pub exists: bool,
    /// Its class.
    pub class: ClassView<'a, K::Class>,
    /// What the term remembers.
    pub known: &'a Known,
    /// The term's rules.
    pub rules: &'a Rules,
    /// What this attempt has learnt.
    pub progress: &'a Progress,
}

/// Why a step cannot be taken.
pub type Refusal = (Operation, InvalidSnapshot);

/// The next thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing: the content is as it should be, or it is not ours.
    Settled,
    /// Nothing until something else has happened.
    Wait(Wait),
    /// Give up this attempt, and say so.
    Fail(Operation, InvalidSnapshot),
    /// Read a secret.
    ReadSecret(SecretNeed),
    /// Wait for the turns of the source volumes.
    TakeTurn(Vec<String>),
    /// Take the turns of the source volumes if they are free, else come back soon.
    TryTurn(Vec<String>),
    /// The same for a look that is overdue: stand in the line of the volume, as one such look of the volume may at a time.
    AwaitTurn(Vec<String>),
    /// Wait for the turns of what is to be deleted.
    TakeSnapshotTurns(Vec<String>),
    /// P1.
    Begin(Box<Asked>),
    /// Read the content: only the cache has shown it.
    Confirm,
    /// Come back after this pause: others change the volume.
    GiveWay(Duration),
    /// List the contents: once in the term, and once more before the snapshot of a content that is gone is deleted.
    Relist,
    /// Wait until the cache has every content that is older than this version of the content.
    CatchUp,
    /// Read from the API's history what was written last on a content that is gone.
    ReadEnd,
    /// Read the contents of all nodes, and look for another one with this snapshot.
    Seek(String),
    /// Read the `VolumeSnapshot` of a content that names a snapshot of the group: the group may own it.
    ReadOwner(OwnerNeed),
    /// `CreateSnapshot`, `CreateVolumeGroupSnapshot`.
    Create(Box<Asked>),
    /// Do not ask the driver, because another content has the name.
    LeaveName(Box<Asked>, String),
    /// A driver that lists nothing is believed: the snapshot with this handle is ready.
    Assume(String),
    /// `GetSnapshot`, `ListSnapshots`, `GetVolumeGroupSnapshot`.
    LookUp(String),
    /// Note the ids of a group's snapshots on the content, whose status cannot list them.
    ListMembers(Vec<String>),
    /// P2.
    Save(Found),
    /// P3.
    Unmark {
        /// The request is needed until the snapshot is ready.
        keep_intent: bool,
    },
    /// P2 for a failure.
    RecordError,
    /// The failure is recorded: the attempt ends.
    Failed,
    /// `DeleteSnapshot`, `DeleteVolumeGroupSnapshot`.
    Delete(Doomed),
    /// Ask the driver which snapshots the volume has, and name those that no content has.
    NameLeftovers,
    /// P5.
    Clear,
    /// P4.
    Release,
    /// P4, and the driver keeps a snapshot that the policy would have it delete.
    ReleaseKept(Kept),
    /// The content is gone: the driver's snapshot, if there is one, is left as it is.
    Abandon(Left),
}

/// What the driver is to delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doomed {
    /// Its id.
    pub handle: String,
    /// Of a group, the ids of its snapshots.
    pub members: Vec<String>,
}

impl Doomed {
    /// The turns that its deletion takes, in the order in which everybody takes them.
    pub fn turns(&self) -> Vec<String> {
        let ids = self.members.iter().chain([&self.handle]);
        ids.map(|id| (folded(id), id)).collect::<BTreeMap<_, _>>().into_values().cloned().collect()
    }
}

/// A content that goes with a group if the group owns its `VolumeSnapshot`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerNeed {
    /// The uid of the content.
    pub content: String,
    /// Its `VolumeSnapshot`.
    pub snapshot: ObjectReference,
}

/// Which secret is read, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretNeed {
    /// Where it is.
    pub place: SecretRef,
    /// The call that needs it.
    pub operation: Operation,
    /// Whether it is the class' secret for look-ups.
    pub is_for_listing: bool,
}

/// Why a snapshot is kept although its content is deleted with the policy `Delete`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// The content is a copy of another one, whose snapshot it is.
    OfAnother,
    /// The snapshot with this id was taken before the content was made.
    Earlier(String),
    /// The content of this kind and name needs it, too.
    NamedBy(String),
}

impl<K: Content> View<'_, K> {
    /// Where the secret of the content is.
    pub fn secret_place(&self) -> Result<Option<SecretRef>, InvalidSnapshot> {
        let allowed = &self.rules.secret_namespaces;
        let place = secrets::from_annotations(self.content.meta(), K::NAMES.secret, allowed);
        let content = || self.content.meta().name.to_string();
        place.map_err(|fault| InvalidSnapshot::Secret { of: K::NAMES.word, content: content(), fault })
    }

    /// The step that reads a secret, unless it was read.
    pub fn read(&self, place: Option<SecretRef>, operation: Operation, is_for_listing: bool) -> Option<Step> {
        let place = place?;
        let is_read = self.progress.secret.as_ref().is_some_and(|(read, _)| *read == place);
        (!is_read).then_some(Step::ReadSecret(SecretNeed { place, operation, is_for_listing }))
    }

    /// The error of a driver that takes no snapshots.
    pub fn takes(&self, operation: Operation) -> Result<(), Refusal> {
        if self.rules.takes {
            return Ok(());
        }
        let (driver, capability) = (self.rules.request.driver.clone(), K::NAMES.capability);
        Err((operation, InvalidSnapshot::Unsupported { driver, capability }))
    }

    /// Whether the content is a copy of another one (J9), and not one that the process has asked for by itself.
    pub fn is_copy(&self) -> bool {
        self.known.unanswered.is_none() && intent::is_copied(self.content)
    }

    /// Whether the API has shown the content during the term.
    pub fn is_confirmed(&self) -> bool {
        self.known.is_confirmed || self.progress.is_confirmed
    }
}

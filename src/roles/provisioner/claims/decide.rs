//! What to do next for one claim. Pure, total, and asserted without a server.
//!
//! ```text
//!   wanted? ─> source, attributes class ─> plan ─> secret ─> SaveIntent ─> Create ─> SaveVolume ─> Release
//!                                                  (claim)    (driver)      (PV)      (claim)
//!   final error ──────────────────────────────────────────────> Release (with the node, if another may do) ─> Conclude
//!   claim deleted, or bound elsewhere, meanwhile ──> on to the final answer ─> DeleteCreated ─> Release
//! ```
//!
//! Three rules carry the safety. The driver is asked only after our mark is durable on the claim. The mark leaves the claim
//! only after a volume object exists, or after the driver has said for good that nothing does, or, unasked, by whoever has just
//! put it there. What is asked while an answer is outstanding is the same, byte by byte, whatever the claim says by then.
//!
//! Where each node has a driver of its own, a claim may come to another node while ours still owes an answer. What that answer
//! brings is deleted, and the claim's mark and place are the other's ([`Whose::GivenAway`]).
//!
//! One thing ends the second rule: where each node has a driver of its own, a node that is gone has taken its driver along, and
//! with it all that the driver was asked. Nobody else's driver can answer for it. The stage before the claims, in
//! [`crate::roles::provisioner::node`], removes the mark then.
//!
//! Each step is one request to the API or one call of the driver, and nothing else: a crash between any two of them is a
//! case that the tests can list.

use crate::cluster::{InTree, StorageClass};

use super::claim::{Claim, Owner};
use super::error::InvalidClaim;
use super::phase::Phase;
pub use super::view::{AttemptFacts, NameStatus, Rules, SourceStatus, SourceStep, View, Whose};
use crate::roles::provisioner::parameters::secrets::SecretReference;

/// Why nothing is done for a claim. None of it is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// It is gone.
    Gone,
    /// It has a volume.
    Bound,
    /// Another provisioner's.
    Foreign,
    /// Its class is of an in-tree plugin, whose claims Kubernetes gives to our driver: the class must be replaced.
    InTree,
    /// Its class is another provisioner's by now.
    ForeignClass,
    /// Somebody wants it gone, and nothing was begun.
    Deleting,
    /// No node was chosen for its first consumer yet.
    NoNode,
    /// Another node's daemon provisions it.
    Elsewhere,
    /// A volume populator provisions it.
    Populator,
}

impl Ignored {
    /// Whether people are told of it.
    pub fn is_told(self) -> bool {
        matches!(self, Self::InTree | Self::Populator)
    }
}

/// The next thing to do for a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing, for this reason.
    Ignore(Ignored),
    /// Nothing: its volume exists.
    Settled,
    /// Nothing more in this attempt: tell how it ended.
    Conclude,
    /// Take up what another process, or an earlier term, has begun. No request.
    Resume,
    /// Note that the claim's PersistentVolume exists. No request.
    Found,
    /// Work out anew what to ask: the class has changed, and what is asked is in doubt. No request.
    Replan,
    /// Give up this attempt.
    Refuse(InvalidClaim),
    /// Read what the API has under the name of the claim's volume.
    ConfirmVolume,
    /// What another node's daemon had begun has ended: nothing of it is known here any more. No request.
    LetGo,
    /// Find out about the content source.
    Source(SourceStep),
    /// Read the class of attributes.
    GetAttributesClass(String),
    /// Work out what to ask, and pin it. No request.
    Plan,
    /// Read the secret for the driver.
    ReadSecret(SecretReference),
    /// Put our mark on the claim, with what is about to be asked.
    SaveIntent,
    /// Lock the volume, and note that the driver is asked from here on. No request.
    Begin,
    /// `CreateVolume`.
    Create,
    /// `DeleteVolume`, for a volume that nobody wants any more, or nobody can use.
    DeleteCreated(String),
    /// Look whether another PersistentVolume names the volume, before it is stored.
    CheckHandle,
    /// Store the volume object, which always says whose claim it was made for.
    SaveVolume,
    /// Let the claims go first that have no PersistentVolume yet: nobody waits for the release of this one.
    GiveWay,
    /// Take our mark off the claim.
    Release {
        /// And the node that the scheduler chose.
        reschedule: bool,
    },
}

/// What to do next for the claim of `view`.
pub fn next_step(view: &View<'_>) -> Step {
    let state = view.state;
    if *view.volume == NameStatus::Ours && !matches!(state.phase(), Phase::Finished { .. } | Phase::Stored { .. }) {
        return Step::Found;
    }
    match state.phase() {
        phase if is_anothers_mark(view, phase) => Step::Resume,
        Phase::Created(made) => match fate_of(view, made.may_be_stored) {
            Fate::Keep if view.attempt.has_checked => Step::SaveVolume,
            Fate::Keep => Step::CheckHandle,
            Fate::Delete => secret_then(view, Step::DeleteCreated(made.volume.volume_id.clone())),
        },
        // The next leader must not store what is being deleted.
        Phase::Discarding(_) if owes_word(view) || lacks_mark(view) => Step::SaveIntent,
        Phase::Discarding(unusable) => secret_then(view, Step::DeleteCreated(unusable.volume_id.clone())),
        Phase::Finished { reschedule, marked, node, .. } => {
            given_back(view, *reschedule, *marked, node.as_deref()).unwrap_or(Step::Conclude)
        }
        Phase::Creating { .. } | Phase::Stored { .. } if state.is_anothers() && view.whose != Whose::Ours => {
            begun_elsewhere(view)
        }
        // The mark that it carries by now is that node's.
        Phase::Stored { .. } if view.whose != Whose::Ours => Step::Settled,
        Phase::Stored { .. } => owed(view).unwrap_or(Step::Settled),
        Phase::Idle { .. } | Phase::Marked { .. } => unasked_step(view),
        Phase::Creating { .. } if view.is_outdated => Step::Replan,
        Phase::Creating { confirmed: false, .. } => Step::ConfirmVolume,
        Phase::Creating { .. } => match view.volume {
            NameStatus::Conflict(what) => Step::Refuse(InvalidClaim::NameTaken(what.clone())),
            NameStatus::Free | NameStatus::Ours | NameStatus::OtherNode => {
                prepare(view).unwrap_or_else(|| ask_again(view))
            }
        },
    }
}

/// All is known that is to be asked again.
fn ask_again(view: &View<'_>) -> Step {
    // The next leader must not take an error for the driver's last word either.
    let is_unsaid = view.state.plan().is_some_and(|plan| plan.doubtful) && owes_word(view);
    if is_unsaid || lacks_mark(view) {
        return Step::SaveIntent;
    }
    if view.state.is_anothers() { Step::Begin } else { Step::Create }
}

/// Whether the claim carries a mark that we did not put there in this term: another node's daemon has, or whoever led before,
/// and a watch that is behind has hidden it. The driver may have been asked.
fn is_anothers_mark(view: &View<'_>, phase: &Phase) -> bool {
    let is_ours = match phase {
        Phase::Idle { .. } => false,
        // A claim that is another node's by now may be in that node's hands, under the mark that we have left on it.
        Phase::Marked { .. } => view.whose == Whose::Ours,
        _ => true,
    };
    view.present && view.claim.guarded && !is_ours
}

/// Begun by another node's daemon, which goes on with it as long as there is that node.
fn begun_elsewhere(view: &View<'_>) -> Step {
    if !view.present {
        return Step::Ignore(Ignored::Gone);
    }
    if !view.claim.guarded {
        return Step::LetGo;
    }
    // All that is left is the mark, and nobody else will remove it.
    if view.state.is_stored() { Step::Release { reschedule: false } } else { Step::Ignore(Ignored::Elsewhere) }
}

/// The driver was not asked, or nothing came of it: only a claim that wants a volume gets further.
fn unasked_step(view: &View<'_>) -> Step {
    if let Some(why) = ignored(view) {
        // What people are told of it, the daemon of the claim's node tells.
        let why = if why.is_told() && view.whose != Whose::Ours { Ignored::Elsewhere } else { why };
        return owed(view).unwrap_or(Step::Ignore(why));
    }
    if view.whose != Whose::Ours {
        return Step::Ignore(Ignored::Elsewhere);
    }
    let missing = match view.volume {
        NameStatus::Conflict(what) => Some(Step::Refuse(InvalidClaim::NameTaken(what.clone()))),
        NameStatus::Free | NameStatus::Ours | NameStatus::OtherNode => prepare(view),
    };
    if let Some(step) = missing {
        return step;
    }
    if view.rules.durable && !is_marked(view) {
        return Step::SaveIntent;
    }
    Step::Begin
}

/// Whether the claim carries our mark and what we are about to ask.
fn is_marked(view: &View<'_>) -> bool {
    let written = view.state.plan().map(|plan| &*plan.written);
    view.claim.guarded && view.claim.intent.as_deref() == written
}

/// Whether something was learnt since that is still to be written on the claim that carries our mark.
fn owes_word(view: &View<'_>) -> bool {
    view.rules.durable && view.present && view.claim.guarded && !is_marked(view) && view.whose != Whose::GivenAway
}

/// Whether the mark is gone that has to be there before the driver is asked: somebody has taken it off. A claim that is being
/// deleted, or has a volume, takes none any more.
fn lacks_mark(view: &View<'_>) -> bool {
    let claim = view.claim;
    let takes_one = view.present && !claim.deleting && claim.volume_name.is_none() && view.whose == Whose::Ours;
    view.rules.durable && !claim.guarded && takes_one
}

/// What must be known before the driver is asked. `None`: all of it is.
fn prepare(view: &View<'_>) -> Option<Step> {
    let Some(request) = view.state.request() else {
        if view.class.is_none() {
            let class = view.claim.class.clone();
            return Some(Step::Refuse(class.map_or(InvalidClaim::NoClass, InvalidClaim::ClassMissing)));
        }
        match view.source {
            // A claim that a populator serves is ignored once it is granted, and the rest of it is not looked at.
            SourceStatus::Step(step @ SourceStep::ListGrants(_)) => return Some(Step::Source(step.clone())),
            SourceStatus::Stores | SourceStatus::Step(_) => {}
            // A populator's claim is ignored before anything is begun. One whose source was changed since has an answer due.
            SourceStatus::Populator(what) => return Some(Step::Refuse(InvalidClaim::Populator(what.clone()))),
            SourceStatus::Refused(refusal) => return Some(Step::Refuse(refusal.clone())),
        }
        // Before the source: by the time that it is protected, nothing but the driver may say no.
        if let Some(name) = view.attributes_class {
            return Some(Step::GetAttributesClass(name.to_owned()));
        }
        return Some(match view.source {
            SourceStatus::Step(step) => Step::Source(step.clone()),
            _ => Step::Plan,
        });
    };
    match &request.secret {
        Some(reference) if !view.attempt.has_secret => Some(Step::ReadSecret(reference.clone())),
        _ => None,
    }
}

fn secret_then(view: &View<'_>, step: Step) -> Step {
    match view.state.request().and_then(|request| request.secret.as_ref()) {
        Some(reference) if !view.attempt.has_secret => Step::ReadSecret(reference.clone()),
        _ => step,
    }
}

/// The write that takes the mark off the claim, if it is there.
fn owed(view: &View<'_>) -> Option<Step> {
    (view.present && view.claim.guarded).then_some(Step::Release { reschedule: false })
}

/// The write that takes off the claim what is left there of what ended: the mark, and the node, if another may do better and
/// nobody has chosen that already.
fn given_back(view: &View<'_>, reschedule: bool, marked: bool, node: Option<&str>) -> Option<Step> {
    let claim = view.claim;
    // A claim that is another node's by now, or was marked since, is in other hands.
    if !view.present || claim.guarded && !(marked && view.whose == Whose::Ours) {
        return None;
    }
    let is_same = claim.selected_node.is_some() && claim.selected_node.as_deref() == node;
    let reschedule = reschedule && is_same && claim.volume_name.is_none();
    (claim.guarded || reschedule).then_some(Step::Release { reschedule })
}

/// Why the claim gets no volume from us, if so.
pub fn ignored(view: &View<'_>) -> Option<Ignored> {
    let claim = view.claim;
    if !view.present {
        return Some(Ignored::Gone);
    }
    if claim.volume_name.is_some() {
        return Some(Ignored::Bound);
    }
    match claim.owner {
        Owner::Us => {}
        Owner::InTree => return Some(Ignored::InTree),
        Owner::Others => return Some(Ignored::Foreign),
    }
    if claim.deleting {
        return Some(Ignored::Deleting);
    }
    // A class that is not there is an error, told by `prepare`.
    let class = view.class?;
    if class.provisioner != view.rules.driver {
        let in_tree = InTree::of_plugin(&class.provisioner);
        let is_ours_by_now = in_tree.is_some_and(|plugin| plugin.successor() == view.rules.driver);
        return Some(if is_ours_by_now { Ignored::InTree } else { Ignored::ForeignClass });
    }
    if waits_for_consumer(class) && claim.selected_node.is_none() {
        return Some(Ignored::NoNode);
    }
    matches!(view.source, SourceStatus::Populator(_)).then_some(Ignored::Populator)
}

/// Whether volumes of the class are made only once a pod has been given a node.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// What becomes of a volume that no volume object tells of.
enum Fate {
    Keep,
    Delete,
}

/// A volume that nobody waits for is deleted at once, unless its class keeps volumes: the detour over a volume object that
/// is released and then deleted would take three writes and the patience of two controllers.
fn fate_of(view: &View<'_>, may_be_stored: bool) -> Fate {
    let claim = view.claim;
    // The claim's name is another volume's, and so is whatever the class says of keeping.
    if view.whose == Whose::GivenAway && !may_be_stored {
        return Fate::Delete;
    }
    let name = view.state.request().map(|request| request.volume_name.as_str());
    let is_unwanted = is_unwanted(claim, view.present, name);
    let is_kept = view.state.request().is_some_and(|request| request.plan.is_retained());
    if is_unwanted && !is_kept && !may_be_stored {
        return Fate::Delete;
    }
    // Also the one of a claim that is bound elsewhere names that claim. Without it any claim of any namespace could get it, with
    // whatever it was made from; and one that nobody gets would never be released, so never deleted. With it the PV controller
    // releases what is to be deleted, and keeps the rest for that claim.
    Fate::Keep
}

/// Whether the claim has another volume than the one of this name.
fn is_bound_elsewhere(claim: &Claim, name: Option<&str>) -> bool {
    claim.volume_name.is_some() && claim.volume_name.as_deref() != name
}

/// Whether nobody waits for the claim's volume, which is called `name`, any more. That never changes back.
pub fn is_unwanted(claim: &Claim, present: bool, name: Option<&str>) -> bool {
    !present || claim.deleting || is_bound_elsewhere(claim, name)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

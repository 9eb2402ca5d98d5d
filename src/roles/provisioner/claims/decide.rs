//! What to do next for one claim. Pure, total, and asserted without a server.
//!
//! ```text
//!   wanted? ─> source, attributes class ─> plan ─> secret ─> Record ──> Create ─> SaveVolume
//!                                                           (journal)  (driver)    (PV)
//!   final error ───────────────────────> Reschedule (the node leaves the claim, if another may do better) ─> Conclude
//!   claim deleted, or bound elsewhere, meanwhile ──> on to the final answer ─> DeleteCreated
//! ```
//!
//! A request of an earlier term is judged first ([`evidence`](super::evidence)), and so is a volume whose PersistentVolume was written
//! without an answer, once its claim no longer waits. Before the first request of a term, claims and PersistentVolumes are listed once:
//! otherwise a late watch could show a claim that waits, although its volume was provisioned, used and kept by its user in an earlier
//! term.
//!
//! Three rules prevent leaks. The driver is called only with a request that the API has confirmed in the journal (J1). The entry leaves
//! the journal only after a PersistentVolume exists, after the driver's final answer that no volume exists, or after the volume's
//! deletion (J2). The request is the same, byte by byte, until the driver's final answer, whatever the claim says by then.
//!
//! With node deployment, a claim may get another node before our driver has given its final answer. Then the daemon deletes the volume
//! that our driver creates, and the other node's driver creates one ([`Whose::GivenAway`]).
//!
//! [`policy`](super::policy) has the steps of one attempt around these. Each is one request to the API or one call of the driver, and
//! nothing else: a crash between any two of them is a case that the tests can list.

use super::error::InvalidClaim;
use super::evidence::{Judgement, judge};
use super::phase::{Made, Phase};
pub use super::view::{AttemptFacts, Lookup, NameStatus, Rules, View, Whose};
use crate::roles::provisioner::claim::{Claim, Owner};
use crate::roles::provisioner::class::is_served;
use crate::roles::provisioner::parameters::secrets::SecretReference;
use crate::roles::provisioner::sources::status::{SourceStatus, SourceStep};

/// Why a claim is ignored. No reason is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// It is gone.
    Gone,
    /// It has a volume.
    Bound,
    /// It is for another provisioner.
    Foreign,
    /// Its class now belongs to another provisioner.
    ForeignClass,
    /// It is being deleted, and no request was sent.
    Deleting,
    /// The scheduler has not selected a node for its first consumer yet.
    NoNode,
    /// Another node's daemon provisions it.
    Elsewhere,
    /// A volume populator provisions it.
    Populator,
}

impl Ignored {
    /// Whether an Event says so.
    pub fn is_told(self) -> bool {
        self == Self::Populator
    }
}

/// The next thing to do for a claim.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing, for this reason.
    Ignore(Ignored),
    /// Nothing: its volume exists.
    Settled,
    /// End the attempt, and report how the request ended.
    Conclude,
    /// Note that the claim's PersistentVolume exists. No request.
    Found,
    /// Give up this attempt.
    Refuse(InvalidClaim),
    /// List claims and PersistentVolumes once in this term: the watches of a new leader may be behind.
    Relist,
    /// Read the claim. Its PersistentVolume has gone, and a late watch may hide that the claim was bound, that its user has kept the
    /// volume, and that the claim is gone: the driver would answer the next request with that volume.
    ReadClaim,
    /// Note that no PersistentVolume was stored for a request of an earlier term. No request.
    Prove,
    /// Drop a request whose PersistentVolume was stored. No request.
    Drop,
    /// Leave a request alone, and report that its volume may be left over. No request.
    LeaveAlone,
    /// Read from the API's history whether a PersistentVolume was stored for the request.
    ReadHistory,
    /// Read what the API has under the name of the claim's volume.
    ConfirmVolume,
    /// Read the class, which the cache does not have: its watch may be late.
    GetClass(String),
    /// Read or protect the content source.
    Source(SourceStep),
    /// Read the class of attributes.
    GetAttributesClass(String),
    /// Build the request, which stays the same until the driver's final answer. Calls neither the API nor the driver.
    Plan,
    /// Read the secret for the driver.
    ReadSecret(SecretReference),
    /// Record the request in the journal.
    Record,
    /// Lock the volume, and note that the driver may be called from here on. Calls neither the API nor the driver.
    Begin,
    /// `CreateVolume`.
    Create,
    /// `DeleteVolume`, for a volume that no claim wants any more, or that cannot be used.
    DeleteCreated(String),
    /// Check, before the volume is stored, whether another PersistentVolume has it.
    CheckHandle,
    /// Store the PersistentVolume, whose `claimRef` always names the claim.
    SaveVolume,
    /// Remove the selected node from the claim, so that the scheduler selects another one.
    Reschedule,
    /// Wait for the turn of the snapshot with this id, which is restored: many volumes may be made from it at once, but none while it is
    /// deleted (snapshotter spec 13).
    TakeTurn(String),
    /// Record that the volume may exist whatever error the driver returns. If that fails, the next attempt records it before it calls
    /// the driver.
    RecordDoubt,
    /// List PersistentVolumes before the volume with this id is deleted. Claims and PersistentVolumes have watches of their own: one may
    /// show that the claim is gone before the other shows who has the volume now.
    ListVolumes(String),
    /// Read the PersistentVolume of this name, to which the claim is bound. It may have the volume with this id.
    ReadBound(String, String),
    /// Leave the volume to the PersistentVolume of this name. No request.
    LeaveTo(String),
    /// Give up this attempt, because the PersistentVolume of this name has the volume. No request.
    Yield(String),
    /// Read the PersistentVolume that has the name of the claim's.
    ReadTaken,
    /// A write to the claim was forbidden: read the claim again.
    ReadAgain,
    /// End the attempt, which has failed.
    Fail,
    /// Do what follows from the failure. No request.
    NoteFailure,
    /// Look at the claim again soon: it may be another node's. No request.
    ComeBack,
}

/// What to do next for the claim of `view`.
pub fn next_step(view: &View<'_>) -> Step {
    let state = view.state;
    if *view.volume == NameStatus::Ours && !matches!(state.phase(), Phase::Finished { .. } | Phase::Stored { .. }) {
        return Step::Found;
    }
    // A request of an earlier term: nothing is done for it without proof that no PersistentVolume was stored (J10).
    if let Some(plan) = state.plan().filter(|plan| plan.unproven.is_some()) {
        return match judge(view, &plan.request.volume_name) {
            Judgement::List => Step::Relist,
            Judgement::ReadHistory => Step::ReadHistory,
            Judgement::GoOn => Step::Prove,
            Judgement::Drop => Step::Drop,
            Judgement::LeaveAlone => Step::LeaveAlone,
        };
    }
    match state.phase() {
        Phase::Created(made) if is_in_doubt(view, made) => match judge(view, &made.plan.request.volume_name) {
            Judgement::List => Step::Relist,
            Judgement::ReadHistory => Step::ReadHistory,
            Judgement::GoOn => created_step(view, made),
            Judgement::Drop => Step::Drop,
            Judgement::LeaveAlone => Step::LeaveAlone,
        },
        Phase::Created(made) => created_step(view, made),
        // The entry must say so, or the next leader would store the volume.
        Phase::Discarding(_) if must_record(view) => Step::Record,
        Phase::Discarding(unusable) => secret_then(view, Step::DeleteCreated(unusable.volume_id.clone())),
        Phase::Finished { reschedule, node, .. } => {
            if *reschedule && has_node(view, node.as_deref()) {
                Step::Reschedule
            } else {
                Step::Conclude
            }
        }
        Phase::Stored { .. } => Step::Settled,
        Phase::Idle { .. } => unasked_step(view),
        Phase::Creating { confirmed: false, .. } => Step::ConfirmVolume,
        Phase::Creating { .. } => match view.volume {
            NameStatus::Conflict(what) => Step::Refuse(InvalidClaim::NameTaken(what.clone())),
            _ if must_record(view) => Step::Record,
            _ => secret_then(view, if state.is_of_earlier_term() { Step::Begin } else { Step::Create }),
        },
    }
}

/// The next step for a volume that exists: to store its PersistentVolume, or to delete the volume if no claim wants it.
fn created_step(view: &View<'_>, made: &Made) -> Step {
    match fate_of(view, made.may_be_stored) {
        Fate::Keep if view.attempt.checked.is_some() => Step::SaveVolume,
        Fate::Keep => Step::CheckHandle,
        Fate::Delete => secret_then(view, Step::DeleteCreated(made.volume.volume_id.clone())),
    }
}

/// Whether a PersistentVolume may have been stored, used and deleted since: the answer to an earlier write was lost, and the claim does
/// not wait any more. To store it once more would bring back what its user has deleted, and the life cycle of a PersistentVolume with the
/// policy `Delete` would then delete the volume that its user has kept (J10).
fn is_in_doubt(view: &View<'_>, made: &Made) -> bool {
    let waits = view.present && view.claim.volume_name.is_none();
    // What this attempt has sent first is answered by what it reads.
    let is_earlier = made.may_be_stored && view.attempt.checked != Some(false);
    is_earlier && !waits && !view.has_volume
}

/// The driver was not called: only a claim that wants a volume gets further.
fn unasked_step(view: &View<'_>) -> Step {
    if let Some(why) = ignored(view) {
        // The daemon of the claim's node writes the Event.
        let is_silent = why.is_told() && view.whose != Whose::Ours;
        return Step::Ignore(if is_silent { Ignored::Elsewhere } else { why });
    }
    if view.whose != Whose::Ours {
        return Step::Ignore(Ignored::Elsewhere);
    }
    if let NameStatus::Conflict(what) = view.volume {
        return Step::Refuse(InvalidClaim::NameTaken(what.clone()));
    }
    match prepare(view) {
        Some(step) => step,
        None if view.attempt.is_without_volume => Step::ReadClaim,
        None if !view.listed => Step::Relist,
        None if must_record(view) => Step::Record,
        None => Step::Begin,
    }
}

/// Whether the journal has not confirmed the request in this attempt. To record the same request again costs no write.
fn must_record(view: &View<'_>) -> bool {
    view.rules.durable && !view.attempt.has_recorded
}

/// The next step before the driver is called. `None`: everything is known.
fn prepare(view: &View<'_>) -> Option<Step> {
    if view.state.request().is_some() {
        return secret(view);
    }
    if view.class.is_none() {
        return Some(match view.claim.class.clone() {
            None => Step::Refuse(InvalidClaim::NoClass),
            Some(class) if view.attempt.class == Lookup::NotAsked => Step::GetClass(class),
            Some(class) => Step::Refuse(InvalidClaim::ClassMissing(class)),
        });
    }
    match view.source {
        // The ReferenceGrant comes first: once access is granted, a claim that a populator serves is ignored.
        Ok(SourceStatus::Step(step @ SourceStep::ListGrants(_))) => return Some(Step::Source(step.clone())),
        Err(refusal) => return Some(Step::Refuse(refusal.clone())),
        // `ignored` has already excluded a claim that a populator serves.
        Ok(_) => {}
    }
    // Before the source: once it is protected, only the driver may refuse.
    if let Some(name) = view.attributes_class {
        return Some(Step::GetAttributesClass(name.to_owned()));
    }
    Some(match view.source {
        Ok(SourceStatus::Step(step)) => Step::Source(step.clone()),
        _ => Step::Plan,
    })
}

/// Reads the secret of the request, if it was not read in this attempt.
fn secret(view: &View<'_>) -> Option<Step> {
    let reference = view.state.request().and_then(|request| request.secret.as_ref());
    reference.filter(|_| !view.attempt.has_secret).cloned().map(Step::ReadSecret)
}

fn secret_then(view: &View<'_>, step: Step) -> Step {
    secret(view).unwrap_or(step)
}

/// Whether the claim still waits for a volume on the node that was selected when the request was made.
fn has_node(view: &View<'_>, node: Option<&str>) -> bool {
    let claim = view.claim;
    let is_same = claim.selected_node.is_some() && claim.selected_node.as_deref() == node;
    view.present && is_same && claim.volume_name.is_none()
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
    if claim.owner == Owner::Others {
        return Some(Ignored::Foreign);
    }
    if claim.deleting {
        return Some(Ignored::Deleting);
    }
    // `prepare` reports a missing class as an error.
    let class = view.class?;
    if !is_served(class, &view.rules.driver) {
        return Some(Ignored::ForeignClass);
    }
    if class.waits_for_consumer() && claim.selected_node.is_none() {
        return Some(Ignored::NoNode);
    }
    matches!(view.source, Ok(SourceStatus::Populator(_))).then_some(Ignored::Populator)
}

/// What happens to a volume that no PersistentVolume names.
enum Fate {
    Keep,
    Delete,
}

/// A volume that no claim waits for is deleted at once, unless its class retains volumes. To store a PersistentVolume first, and to
/// release and delete it then, would take three writes and two controllers.
fn fate_of(view: &View<'_>, may_be_stored: bool) -> Fate {
    let claim = view.claim;
    // The other node's driver creates the claim's volume. The reclaim policy of the class is for that volume.
    if view.whose == Whose::GivenAway && !may_be_stored {
        return Fate::Delete;
    }
    let name = view.state.request().map(|request| request.volume_name.as_str());
    let is_unwanted = is_unwanted(claim, view.present, name);
    let is_kept = view.state.request().is_some_and(|request| request.plan.is_retained());
    if is_unwanted && !is_kept && !may_be_stored {
        return Fate::Delete;
    }
    // The PersistentVolume has a `claimRef` also if the claim is bound to another volume. Without it any claim of any namespace
    // could get the volume and the data in it, and a volume that no claim gets would never be released, so never deleted. With it
    // the PV controller releases a volume that is to be deleted, and keeps a retained one for that claim.
    Fate::Keep
}

/// Whether the claim has another volume than the one of this name.
fn is_bound_elsewhere(claim: &Claim, name: Option<&str>) -> bool {
    claim.volume_name.is_some() && claim.volume_name.as_deref() != name
}

/// Whether the claim no longer wants its volume, which is called `name`. Once it does not, it never wants the volume again.
pub fn is_unwanted(claim: &Claim, present: bool, name: Option<&str>) -> bool {
    !present || claim.deleting || is_bound_elsewhere(claim, name)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;

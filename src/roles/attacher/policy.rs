//! Decides what to do next for one attachment or one volume. Pure, total, and tested without a server.
//!
//! ```text
//! attach:  checks ─> secret ∥ finalizer on the volume ∥ intent on the attachment ─> confirm both ─> publish ─> record
//!          (if the intent has another node ID or handle: unpublish that before it is overwritten)
//! detach:  target ─> secret ─> list ─> confirm ─> unpublish ─> release (one write; a second only if others still hold the object)
//!          (if another attachment that is wanted has the same target, or only what stands on a copy names the target:
//!          release without the driver)
//! failure: why, to the status
//! ```
//!
//! A driver without publish is called only to unpublish what it has published before (spec 2.3).
//!
//! Three rules make this safe. Publish comes only after our finalizer is on the volume and on the attachment and the
//! node ID is saved (I2). Our finalizer is removed from an attachment only after the driver answered an unpublish with
//! OK (I3), or another attachment owes that unpublish. Checks come before any write, so that an invalid attachment stays deletable (spec 2.5).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::{CsiSource, IdKind, PersistentVolume, SecretRef};
use crate::csi::volume;
use crate::process::folded;
use crate::proto::VolumeCapability;
use crate::roles::kit::drive::Next;

use super::attachment::{Attachment, Direction, Source};
use super::error::InvalidAttachment;
use super::failure::{self, FailureRecord, TellingRules, failure_record};
use super::migration;
use super::progress::{Progress, Skip};

/// The parameters of all decisions of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Our driver.
    pub driver: String,
    /// Our finalizer, on volumes and attachments alike.
    pub finalizer: String,
    /// The driver can publish read-only.
    pub publish_readonly: bool,
    /// The driver has `SINGLE_NODE_MULTI_WRITER` (spec 2.6).
    pub multi_writer: bool,
    /// The file system type of mounted volumes whose spec has none.
    pub default_fs_type: String,
    /// The driver publishes volumes. If not, it is called only for what it has published before: an attachment is attached as
    /// soon as the status says so (spec 2.3).
    pub publishes: bool,
    /// How failures are reported.
    pub telling: TellingRules,
    /// The longest pause between two attempts.
    pub longest_pause: Duration,
}

/// The input of a decision: what the caches have, and what is known of them.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The attachment.
    pub attachment: &'a Attachment,
    /// The volume that it names, if it names one and the cache holds it.
    pub volume: Option<&'a PersistentVolume>,
    /// The node as the cluster knows it.
    pub node: Node<'a>,
    /// The term's rules.
    pub rules: &'a Rules,
    /// What the API has shown during the term.
    pub shown: Shown,
    /// Whether the driver has listed the volume twice without the node, and nothing was published since.
    pub is_lost: bool,
    /// What this attempt has done so far.
    pub done: &'a Progress,
    /// Where our other attachments that are wanted have their volumes, or are about to: what their own detach unpublishes. A machine
    /// that has registered under another node name has the same node ID under both.
    pub others: &'a [Unpublish],
}

impl View<'_> {
    /// Whether this is what the detach of another attachment unpublishes. A doubt counts as yes: a driver may take two spellings for
    /// one volume, and the other attachment is wanted.
    fn is_anothers(&self, unpublish: &Unpublish) -> bool {
        let is_same = |other: &Unpublish| {
            let is_node = folded(&other.node_id) == folded(&unpublish.node_id);
            is_node && IdKind::Volume.may_be_same(&self.rules.driver, &other.volume_id, &unpublish.volume_id)
        };
        self.others.iter().any(is_same)
    }
}

/// What the API has shown during the term. A watch may be late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// All attachments, in a list. Without a list, the absence of one proves nothing (I4).
    pub list: bool,
    /// The attachment.
    pub attachment: bool,
    /// The volume. The last leader may have removed our finalizer from it.
    pub volume: bool,
}

/// Our driver's entry in a node's `CSINode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node<'a> {
    /// There is no such `CSINode`.
    Missing,
    /// It does not list our driver.
    WithoutDriver,
    /// Our driver's id of the node.
    Id(&'a str),
}

/// One request or call for an attachment.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// List the attachments, once a term.
    List,
    /// Read the attachment.
    Confirm,
    /// Read its volume.
    ConfirmVolume,
    /// Put our finalizer on the volume.
    ProtectVolume,
    /// Write our finalizer and the data for a detach to the attachment, in one patch.
    SaveIntent(Intent),
    /// Read the publish secret.
    ReadSecret(SecretRef),
    /// `ControllerPublishVolume`.
    Publish(Box<Publish>),
    /// Write `attached: true` and the publish context.
    RecordAttached(BTreeMap<String, String>),
    /// `ControllerUnpublishVolume`.
    Unpublish(Box<Unpublish>),
    /// The driver is not called for a detach.
    SkipUnpublish(Skip),
    /// Remove our finalizer from the attachment.
    Release,
    /// Write `attached: false`, because another controller's finalizer keeps the attachment.
    RecordDetached,
    /// Write why the attempt has failed.
    RecordFailure(Box<FailureRecord>),
    /// Give up this attempt.
    Refuse(InvalidAttachment),
}

/// The data that is written to the attachment before its volume is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// The ID of the node for the publish.
    pub node_id: String,
    /// The handle of the volume. A detach uses it if the PersistentVolume was removed by force.
    pub volume_handle: String,
    /// Where its secret is.
    pub secret: Option<SecretRef>,
}

/// A publish request without the secret's values.
#[derive(Debug, Clone, PartialEq)]
pub struct Publish {
    /// The volume's handle.
    pub volume_id: String,
    /// The driver's id of the node.
    pub node_id: String,
    /// How the volume will be used.
    pub capability: VolumeCapability,
    /// Whether it is published read-only.
    pub readonly: bool,
    /// The volume's attributes.
    pub volume_context: BTreeMap<String, String>,
}

/// An unpublish request without the secret's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpublish {
    /// The volume's handle.
    pub volume_id: String,
    /// The driver's id of the node.
    pub node_id: String,
}

/// What to do next for the attachment of `view`.
pub fn next_step(view: &View<'_>) -> Next<Step> {
    if let Some(failure) = &view.done.failure {
        let (has_codes, is_confirmed, is_lost) = (view.rules.telling.error_codes, view.shown.attachment, view.is_lost);
        let record = failure_record(failure, view.attachment, failure::Known { has_codes, is_confirmed, is_lost });
        return record.map_or(Next::Done, |record| Next::Do(Step::RecordFailure(Box::new(record))));
    }
    if view.done.gone {
        return Next::Done;
    }
    let next = match view.attachment.direction {
        Direction::Attach if !view.rules.publishes => Ok(trivial_attach_step(view.attachment)),
        Direction::Attach => attach_step(view),
        Direction::Detach if !view.rules.publishes && !was_published(view) => Ok(Next::Done),
        Direction::Detach => detach_step(view),
    };
    let next = next.unwrap_or_else(|refusal| Next::Do(Step::Refuse(refusal)));
    unknown(view, &next).map_or(next, Next::Do)
}

/// What must be found out before the next step, because a new leader's watch may be late: it may not have shown yet that another
/// attachment needs the volume there, or needs it no more, or what the last leader has done.
fn unknown(view: &View<'_>, next: &Next<Step>) -> Option<Step> {
    let (is_publish, is_unpublish) =
        (matches!(next, Next::Do(Step::Publish(_))), matches!(next, Next::Do(Step::Unpublish(_))));
    let depends_on_others = is_unpublish || (!view.others.is_empty() && *next != Next::Done);
    if depends_on_others && !view.shown.list {
        Some(Step::List)
    } else if (is_publish || is_unpublish) && !view.shown.attachment {
        Some(Step::Confirm)
    } else if is_publish && !view.shown.volume {
        Some(Step::ConfirmVolume)
    } else {
        None
    }
}

/// For a driver without publish: only the status is written, and the driver is not called (spec 2.3).
fn trivial_attach_step(attachment: &Attachment) -> Next<Step> {
    if attachment.attached { Next::Done } else { Next::Do(Step::RecordAttached(BTreeMap::new())) }
}

/// Whether the driver has published the volume, or may have, although it does not any more: only an attach by a call leaves our
/// finalizer. It is asked to unpublish, because a driver may leave a capability out once (an upgrade, a fault at its start), and a
/// volume that is released without a call can be attached to two machines. Its `UNIMPLEMENTED` is then an answer
/// ([`Skip::NotOffered`]).
fn was_published(view: &View<'_>) -> bool {
    view.attachment.has_our_finalizer || view.done.unpublished || view.done.skipped.is_some()
}

fn attach_step(view: &View<'_>) -> Result<Next<Step>, InvalidAttachment> {
    let (attachment, done) = (view.attachment, view.done);
    if let Some(context) = &done.published {
        return Ok(if is_recorded(attachment, context) {
            Next::Done
        } else {
            Next::Do(Step::RecordAttached(context.clone()))
        });
    }
    if attachment.attached && !done.wanted.forced {
        return Ok(Next::Done);
    }
    let source = attachment.source.clone()?;
    refuse_deleting(&source, view.volume)?;
    let csi_form = migration::csi_form(&source, view.volume, &view.rules.driver)?;
    let csi = csi_form.csi.as_deref().ok_or_else(|| migration::not_csi(&source))?;
    let capability = volume::capability(
        &csi_form.access_modes,
        csi_form.is_block(),
        fs_type(csi, view.rules),
        &csi_form.mount_options,
        view.rules.multi_writer,
    )
    .map_err(InvalidAttachment::AccessModes)?;
    let node_id = match view.node {
        Node::Id(id) => id,
        Node::Missing => return Err(InvalidAttachment::NodeMissing(attachment.node.clone())),
        Node::WithoutDriver => {
            return Err(InvalidAttachment::DriverNotOnNode {
                node: attachment.node.clone(),
                driver: view.rules.driver.clone(),
            });
        }
    };

    let left = left_behind(attachment, csi, node_id);
    if let Some((left, secret)) = left.filter(|(left, _)| !done.unpublished && !view.is_anothers(left)) {
        return Ok(Next::Do(match (secret, &done.secret) {
            (Some(reference), None) => Step::ReadSecret(reference),
            _ => Step::Unpublish(Box::new(left)),
        }));
    }
    if let Some(preparations) = preparations(view, csi, node_id) {
        return Ok(preparations);
    }
    Ok(Next::Do(Step::Publish(Box::new(Publish {
        volume_id: csi.volume_handle.clone(),
        node_id: node_id.to_owned(),
        capability,
        readonly: view.rules.publish_readonly && csi.read_only,
        volume_context: csi.volume_attributes.to_map(),
    }))))
}

/// An earlier publish with an unknown outcome and another target: to an earlier node of the same name, or of an earlier
/// volume of the same name. It must be unpublished before its node ID or handle is overwritten, because nothing would
/// unpublish it later (I3), unless another attachment has the same target. It uses the secret of its publish.
fn left_behind(attachment: &Attachment, csi: &CsiSource, node_id: &str) -> Option<(Unpublish, Option<SecretRef>)> {
    let recorded = &attachment.recorded;
    let left_id = recorded.node_id.as_deref().unwrap_or(node_id);
    let left_handle = recorded.volume_handle.as_deref().unwrap_or(&csi.volume_handle);
    let is_same_volume = left_handle == csi.volume_handle;
    if !attachment.has_our_finalizer || (left_id == node_id && is_same_volume) {
        return None;
    }
    let secret =
        if is_same_volume { csi.controller_publish_secret_ref.as_deref().cloned() } else { recorded.secret.clone() };
    Some((Unpublish { volume_id: left_handle.to_owned(), node_id: left_id.to_owned() }, secret))
}

/// What must still be saved or read before the driver is called. The secret is read before our finalizer is added: an
/// attachment whose secret cannot be read must stay deletable (R25).
fn preparations(view: &View<'_>, csi: &CsiSource, node_id: &str) -> Option<Next<Step>> {
    let attachment = view.attachment;
    let lacks_finalizer = view.volume.is_some_and(|volume| !has_finalizer(volume, &view.rules.finalizer));
    let protect = lacks_finalizer.then_some(Step::ProtectVolume);
    let recorded = &attachment.recorded;
    let is_marked = attachment.has_our_finalizer
        && recorded.node_id.as_deref() == Some(node_id)
        && recorded.volume_handle.as_deref().is_none_or(|handle| handle == csi.volume_handle);
    let other = match (&csi.controller_publish_secret_ref, &view.done.secret) {
        (Some(reference), None) => Some(Step::ReadSecret(reference.as_ref().clone())),
        _ if is_marked => None,
        _ => Some(Step::SaveIntent(Intent {
            node_id: node_id.to_owned(),
            volume_handle: csi.volume_handle.clone(),
            secret: csi.controller_publish_secret_ref.as_deref().cloned(),
        })),
    };
    match (protect, other) {
        (Some(protect), Some(other)) => Some(Next::Together(vec![protect, other])),
        (one, other) => one.or(other).map(Next::Do),
    }
}

fn detach_step(view: &View<'_>) -> Result<Next<Step>, InvalidAttachment> {
    let (attachment, done) = (view.attachment, view.done);
    if done.unpublished || done.skipped.is_some() {
        return Ok(if attachment.has_our_finalizer {
            Next::Do(Step::Release)
        } else if attachment.has_finalizers && shows_attached(attachment) {
            Next::Do(Step::RecordDetached)
        } else {
            Next::Done
        });
    }
    if !attachment.has_our_finalizer && !done.wanted.forced {
        return Ok(Next::Done);
    }
    let (target, node_id) = match (detach_target(view), detach_node(view)) {
        (Ok(target), Ok(node_id)) => (target, node_id),
        (Err(_), _) | (_, Err(_)) if attachment.copied.is_some() => {
            return Ok(Next::Do(Step::SkipUnpublish(Skip::Copied)));
        }
        (Err(reason), _) | (_, Err(reason)) => return Err(reason),
    };
    let unpublish = Unpublish { volume_id: target.volume_handle, node_id };
    if view.is_anothers(&unpublish) {
        return Ok(Next::Do(Step::SkipUnpublish(Skip::Shared)));
    }
    if let (Some(reference), None) = (target.secret, &done.secret) {
        return Ok(Next::Do(Step::ReadSecret(reference)));
    }
    Ok(Next::Do(Step::Unpublish(Box::new(unpublish))))
}

/// The node ID of a detach.
fn detach_node(view: &View<'_>) -> Result<String, InvalidAttachment> {
    let attachment = view.attachment;
    // The recorded ID takes precedence: a node that was recreated under the same name has another ID (R45), and a node
    // that is gone has none (R15, R16). The current ID is used for attachments without a recorded ID.
    match (&attachment.recorded.node_id, view.node) {
        (Some(id), _) => Ok(id.clone()),
        (None, Node::Id(id)) => Ok(id.to_owned()),
        (None, Node::Missing) => Err(InvalidAttachment::NodeMissing(attachment.node.clone())),
        (None, Node::WithoutDriver) => {
            Err(InvalidAttachment::DriverNotOnNode { node: attachment.node.clone(), driver: view.rules.driver.clone() })
        }
    }
}

struct Target {
    volume_handle: String,
    secret: Option<SecretRef>,
}

/// The target of a detach: the PersistentVolume if it still has the recorded handle, otherwise the recorded handle.
fn detach_target(view: &View<'_>) -> Result<Target, InvalidAttachment> {
    let attachment = view.attachment;
    let from_spec = attachment.source.clone().and_then(|source| {
        let csi = migration::csi_source(&source, view.volume, &view.rules.driver)?;
        Ok(Target {
            volume_handle: csi.volume_handle.clone(),
            secret: csi.controller_publish_secret_ref.as_deref().cloned(),
        })
    });
    match (from_spec, &attachment.recorded.volume_handle) {
        // If the PersistentVolume was replaced, it is not the published volume.
        (Ok(target), Some(handle)) if target.volume_handle == *handle => Ok(target),
        (Ok(target), None) => Ok(target),
        (Ok(_) | Err(_), Some(handle)) => {
            Ok(Target { volume_handle: handle.clone(), secret: attachment.recorded.secret.clone() })
        }
        (Err(refusal), None) => Err(refusal),
    }
}

/// Attaching a volume would delay its deletion.
fn refuse_deleting(source: &Source, volume: Option<&PersistentVolume>) -> Result<(), InvalidAttachment> {
    match (source, volume) {
        (Source::Volume(name), Some(volume)) if volume.metadata.deletion_timestamp.is_some() => {
            Err(InvalidAttachment::VolumeDeleting(name.clone()))
        }
        _ => Ok(()),
    }
}

fn fs_type<'a>(csi: &'a CsiSource, rules: &'a Rules) -> &'a str {
    csi.fs_type.as_deref().filter(|fs_type| !fs_type.is_empty()).unwrap_or(&rules.default_fs_type)
}

/// Whether the status already has what an attach would write. Then no request is made.
fn is_recorded(attachment: &Attachment, context: &BTreeMap<String, String>) -> bool {
    attachment.attached && attachment.attach_error.is_none() && attachment.metadata == *context
}

/// Whether the status still says that the volume is attached.
fn shows_attached(attachment: &Attachment) -> bool {
    attachment.attached || !attachment.metadata.is_empty() || attachment.detach_error.is_some()
}

/// Whether a volume carries our finalizer.
pub fn has_finalizer(volume: &PersistentVolume, finalizer: &str) -> bool {
    volume.metadata.has_finalizer(finalizer)
}

/// Whether our finalizer should be removed from a volume now (spec 2.11): the volume is being deleted, or its CSI
/// migration was rolled back, and no attachment of any driver names it (I4).
pub fn is_releasable(volume: &PersistentVolume, has_attachments: bool, rules: &Rules) -> bool {
    wants_release(volume, rules) && !has_attachments
}

/// The part of [`is_releasable`] that the volume alone decides.
pub fn wants_release(volume: &PersistentVolume, rules: &Rules) -> bool {
    let deleting = volume.metadata.deletion_timestamp.is_some();
    let rolled_back = volume.spec.csi.is_none()
        && volume.spec.in_tree.is_some()
        && volume.migrated_to().is_none_or(|driver| driver != rules.driver);
    has_finalizer(volume, &rules.finalizer) && (deleting || rolled_back)
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

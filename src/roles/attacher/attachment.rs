//! A `VolumeAttachment`, parsed once, so that no other code checks its options again. Pure.

use crate::cluster::{PackedMap, SecretRef, VolumeAttachment, VolumeError, VolumeSpec};
use crate::queue;
use crate::roles::attacher::names;

use super::error::InvalidAttachment;

/// The parts of a `VolumeAttachment` that the attacher uses.
#[derive(Debug, Clone, PartialEq)]
pub struct Attachment {
    /// The object's name: the key of the work.
    pub name: String,
    /// The object's uid. Names of attachments repeat over time (spec 0); uids do not.
    pub uid: String,
    /// The node to attach to.
    pub node: String,
    /// What to attach.
    pub source: Result<Source, InvalidAttachment>,
    /// Attach or detach.
    pub direction: Direction,
    /// Whether it has any finalizer.
    pub has_finalizers: bool,
    /// Whether ours is among them.
    pub has_our_finalizer: bool,
    /// The data that was saved on the object before the volume was first published. Empty on a copy.
    pub recorded: Recorded,
    /// What the object says although it was saved on another one.
    pub copied: Option<Box<Copied>>,
    /// `status.attached`.
    pub attached: bool,
    /// `status.attachmentMetadata`.
    pub metadata: PackedMap,
    /// `status.attachError`.
    pub attach_error: Option<Box<VolumeError>>,
    /// `status.detachError`.
    pub detach_error: Option<Box<VolumeError>>,
}

/// The volume of an attachment.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// The `PersistentVolume` of this name.
    Volume(String),
    /// A volume written into the attachment itself.
    Inline(Box<VolumeSpec>),
}

/// Attach or detach.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The attachment is wanted.
    #[default]
    Attach,
    /// The attachment is being deleted.
    Detach,
}

/// The data that an earlier attach saved, which is all that a detach needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The CSI node id that the volume was published to.
    pub node_id: Option<String>,
    /// The volume's handle.
    pub volume_handle: Option<String>,
    /// The name of the publish secret.
    pub secret: Option<SecretRef>,
}

/// The data of another attachment: an administrator has restored this one from a copy, maybe of another cluster. This daemon never called the
/// driver for it, and the volume may be in use where the copy is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The uid of the attachment that it was saved on.
    pub of: String,
    /// What was saved there.
    pub recorded: Recorded,
}

impl Direction {
    /// The word for logs, metrics and events.
    pub fn label(self) -> &'static str {
        match self {
            Self::Attach => "attach",
            Self::Detach => "detach",
        }
    }

    /// The verb with its preposition, for events.
    pub fn preposition(self) -> &'static str {
        match self {
            Self::Attach => "attach to",
            Self::Detach => "detach from",
        }
    }

    /// The queue lane: slow detaches never starve attaches (spec 7).
    pub fn lane(self) -> usize {
        match self {
            Self::Attach => 0,
            Self::Detach => 1,
        }
    }
}

impl Attachment {
    /// Parses an object. `finalizer` is ours.
    pub fn parse(object: &VolumeAttachment, finalizer: &str) -> Self {
        let metadata = &object.metadata;
        let status = object.status.clone();
        let (recorded, copied) = Recorded::of(object);
        Self {
            name: metadata.name.to_string(),
            uid: metadata.uid.to_string(),
            node: object.spec.node_name.clone(),
            source: Self::source_of(object),
            direction: direction_of(object),
            has_our_finalizer: metadata.has_finalizer(finalizer),
            has_finalizers: !metadata.finalizers().is_empty(),
            recorded,
            copied,
            attached: status.attached,
            metadata: status.attachment_metadata.unwrap_or_default(),
            attach_error: status.attach_error,
            detach_error: status.detach_error,
        }
    }

    fn source_of(object: &VolumeAttachment) -> Result<Source, InvalidAttachment> {
        let source = &object.spec.source;
        match (&source.persistent_volume_name, &source.inline_volume_spec) {
            (Some(_), Some(_)) => Err(InvalidAttachment::BothSources),
            (None, None) => Err(InvalidAttachment::NoSource),
            (Some(name), None) => Ok(Source::Volume(name.clone())),
            (None, Some(spec)) => Ok(Source::Inline(spec.clone())),
        }
    }
}

impl Recorded {
    /// What was saved on the object, and what was saved on another one. Objects of csi-attacher, and of versions of this daemon that
    /// did not write whose it is, are believed.
    fn of(object: &VolumeAttachment) -> (Self, Option<Box<Copied>>) {
        let recorded = Self::on(object);
        match object.metadata.annotation(names::ANNOTATION_RECORDED_FOR) {
            Some(of) if *of != *object.metadata.uid => {
                (Self::default(), Some(Box::new(Copied { of: of.to_owned(), recorded })))
            }
            _ => (recorded, None),
        }
    }

    fn on(object: &VolumeAttachment) -> Self {
        let annotation = |name: &str| object.metadata.annotation(name).map(str::to_owned);
        Self {
            node_id: annotation(names::ANNOTATION_NODE_ID),
            volume_handle: annotation(names::ANNOTATION_VOLUME_HANDLE),
            secret: annotation(names::ANNOTATION_PUBLISH_SECRET).and_then(|text| {
                let (namespace, name) = text.split_once('/')?;
                Some(SecretRef { namespace: namespace.to_owned(), name: name.to_owned() })
            }),
        }
    }
}

/// The direction of an attachment: an object that is being deleted means detach.
pub fn direction_of(object: &VolumeAttachment) -> Direction {
    if object.metadata.deletion_timestamp.is_some() { Direction::Detach } else { Direction::Attach }
}

/// The epoch of a key's failures: a new uid or another direction starts a new count (spec 7; R44).
pub fn epoch_of(object: &VolumeAttachment) -> u64 {
    queue::epoch_of((&object.metadata.uid, direction_of(object)))
}

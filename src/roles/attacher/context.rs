//! What the attempts of a term share, and the objects of one attachment, as read from the caches.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::cluster::{
    BY_HANDLE, BY_NODE, BY_VOLUME, Cache, CsiNode, IdKind, PersistentVolume, VolumeAttachment, names,
};
use crate::queue::Ticket;
use crate::roles::kit::{Memory, Store, TermScope};
use crate::telemetry::TraceContext;

use super::attachment::{Attachment, Direction, Source, direction_of};
use super::migration;
use super::policy::{Node, Rules, Shown, Unpublish, View};
use super::progress::{self, Listed, Progress};
use super::trace_link::{TraceLink, trace_link};

/// The caches that the attacher reads.
#[derive(Debug, Clone)]
pub struct Caches {
    /// Every `VolumeAttachment`; other drivers' as stubs.
    pub attachments: Cache<VolumeAttachment>,
    /// Every `PersistentVolume`.
    pub volumes: Cache<PersistentVolume>,
    /// Every `CSINode`, with our driver's entry only.
    pub nodes: Cache<CsiNode>,
}

/// The same during a term.
#[derive(Debug, Clone)]
pub struct Stores {
    /// Every `VolumeAttachment`; other drivers' as stubs.
    pub attachments: Store<VolumeAttachment>,
    /// Every `PersistentVolume`.
    pub volumes: Store<PersistentVolume>,
    /// Every `CSINode`, with our driver's entry only.
    pub nodes: Store<CsiNode>,
}

/// What the attempts of a term share.
#[derive(Debug)]
pub struct Context {
    /// The term, its clients, the volume locks.
    pub scope: Arc<TermScope>,
    /// The rules of the term.
    pub rules: Arc<Rules>,
    /// The caches.
    pub stores: Stores,
    /// What the term remembers of attachments.
    pub memory: Memory<progress::Memory>,
}

/// Handles to the objects that one decision is made from, and what is known of them.
#[derive(Debug, Clone)]
pub struct Objects {
    /// The rules of the term.
    pub rules: Arc<Rules>,
    /// The attachment, parsed.
    pub attachment: Attachment,
    /// The attachment as the API has it.
    pub object: Arc<VolumeAttachment>,
    /// The volume that it names.
    pub volume: Option<Arc<PersistentVolume>>,
    /// The node that it names.
    pub node: Option<Arc<CsiNode>>,
    /// Where our other attachments that are wanted have the same volume: `Context::others_of`.
    pub others: Vec<Unpublish>,
    /// What the API has shown during the term.
    pub shown: Shown,
    /// Whether the driver has listed the volume twice without the node.
    pub is_lost: bool,
    /// Now.
    pub now: Timestamp,
}

impl Objects {
    /// Whether the volume is an in-tree one that is served in its CSI form. An inline specification is always of such a volume.
    pub fn is_migrated(&self) -> bool {
        let is_in_tree = |volume: &Arc<PersistentVolume>| volume.spec.in_tree.is_some();
        matches!(self.attachment.source, Ok(Source::Inline(_))) || self.volume.as_ref().is_some_and(is_in_tree)
    }
}

impl Context {
    /// Reads the cached objects of an attachment of ours.
    pub fn find(&self, name: &str) -> Option<Objects> {
        self.about(self.stores.attachments.named(name)?)
    }

    /// The same, with what other attachments have of its volume if the driver may be called to unpublish something for it.
    pub fn find_with_others(&self, name: &str) -> Option<Objects> {
        let mut now = self.find(name)?;
        if now.may_unpublish(&self.rules.driver) {
            now.others = self.others_of(&now);
        }
        Some(now)
    }

    /// Where our other attachments that are wanted have the volume of `now`, or are about to. One counts from when its intent is
    /// saved, because only from then on its own detach calls the driver.
    fn others_of(&self, now: &Objects) -> Vec<Unpublish> {
        let driver = &self.rules.driver;
        let (object, recorded) = (&now.object, now.attachment.recorded.volume_handle.clone());
        let mut handles: Vec<String> = recorded.into_iter().chain(now.current_handle(driver)).collect();
        handles.dedup();
        let attachments = &self.stores.attachments;
        let candidates = match &now.attachment.source {
            Ok(Source::Volume(own)) => {
                let keys = handles.iter().map(|handle| IdKind::Volume.key(driver, handle));
                let twins = keys.flat_map(|key| self.stores.volumes.find(BY_HANDLE, &key));
                let twins =
                    twins.filter(|twin| *twin.metadata.name != **own).map(|twin| twin.metadata.name.to_string());
                let volumes = twins.chain([own.clone()]);
                let by_volume = volumes.flat_map(|volume| attachments.find(BY_VOLUME, &volume));
                by_volume.chain(attachments.find(BY_NODE, &now.attachment.node)).collect()
            }
            // An inline volume has no name under which others would be found.
            _ => attachments.own(),
        };
        let is_candidate = |other: &Arc<VolumeAttachment>| {
            let handle = other.metadata.annotation(names::ANNOTATION_VOLUME_HANDLE);
            other.spec.attacher == *driver
                && other.metadata.uid != object.metadata.uid
                && other.metadata.has_finalizer(&self.rules.finalizer)
                && direction_of(other) == Direction::Attach
                && handle.is_none_or(|handle| handles.iter().any(|own| IdKind::Volume.may_be_same(driver, own, handle)))
        };
        let others = candidates.into_iter().filter(is_candidate).filter_map(|other| self.about(other));
        let saved = others.filter(|other| other.attachment.copied.is_none());
        let targets = saved.filter_map(|other| other.published_as(driver));
        targets.map(|(volume_id, node_id)| Unpublish { volume_id, node_id }).collect()
    }

    /// The other cached objects of an attachment, if it is ours.
    pub fn about(&self, object: Arc<VolumeAttachment>) -> Option<Objects> {
        if object.spec.attacher != self.rules.driver {
            return None;
        }
        let attachment = Attachment::parse(&object, &self.rules.finalizer);
        let volume = match &attachment.source {
            Ok(Source::Volume(volume)) => self.stores.volumes.named(volume),
            _ => None,
        };
        Some(Objects {
            node: self.stores.nodes.named(&attachment.node),
            shown: Shown {
                list: self.stores.attachments.is_listed(),
                attachment: self.stores.attachments.is_confirmed(&object),
                volume: volume.as_ref().is_none_or(|volume| self.stores.volumes.is_confirmed(volume)),
            },
            is_lost: self.memory.read(&attachment.uid, |memory| memory.listed == Listed::Lost),
            rules: Arc::clone(&self.rules),
            now: self.scope.clock.wall(),
            others: Vec::new(),
            attachment,
            object,
            volume,
        })
    }
}

impl Objects {
    /// Connects a run with its trace. Call it before the run logs anything.
    pub fn join_trace(&self, ticket: &Ticket<String>) {
        // A retry stays in the trace of its first attempt.
        let (0, Some(volume)) = (ticket.attempt(), &self.volume) else { return };
        let Some((link, text)) = trace_link(volume, &self.object, &self.attachment) else { return };
        match (TraceContext::parse(text), link) {
            (Some(claim), TraceLink::Continues) => claim.continue_in(ticket.span()),
            (Some(claim), TraceLink::Points) => claim.link_from(ticket.span()),
            (None, _) => {}
        }
    }

    /// The volume, the node and the claim of the attachment, for people: its own name is a checksum.
    pub fn subject(&self) -> String {
        let volume = match &self.attachment.source {
            Ok(Source::Volume(name)) => name,
            _ => "inline volume",
        };
        let claim = self.volume.as_ref().and_then(|volume| volume.claim());
        let claim = claim.map(|claim| format!(", claim {claim}")).unwrap_or_default();
        format!("{volume} on {}{claim}", self.attachment.node)
    }

    /// The volume's handle and the node's ID, as in the driver's listing: the recorded values, otherwise the current
    /// ones (R17, R51).
    pub fn published_as(&self, driver: &str) -> Option<(String, String)> {
        let recorded = &self.attachment.recorded;
        let node_id = recorded.node_id.clone().or_else(|| self.current_node_id(driver).map(str::to_owned))?;
        let handle = recorded.volume_handle.clone().or_else(|| self.current_handle(driver))?;
        Some((handle, node_id))
    }

    /// The handle that the volume has now.
    fn current_handle(&self, driver: &str) -> Option<String> {
        let source = self.attachment.source.as_ref().ok()?;
        let csi = migration::csi_source(source, self.volume.as_deref(), driver).ok()?;
        Some(csi.volume_handle.clone())
    }

    /// The ID that the node has now.
    fn current_node_id(&self, driver: &str) -> Option<&str> {
        self.node.as_ref()?.node_id(driver)
    }

    /// Whether the decision may be to unpublish something: always for a detach, and for an attach whose saved target is not the current
    /// one.
    fn may_unpublish(&self, driver: &str) -> bool {
        let (attachment, recorded) = (&self.attachment, &self.attachment.recorded);
        let is_current = || {
            recorded.node_id.as_deref() == self.current_node_id(driver)
                && recorded.volume_handle == self.current_handle(driver)
        };
        attachment.direction == Direction::Detach || (attachment.has_our_finalizer && !is_current())
    }

    /// The decision's view.
    pub fn view<'a>(&'a self, done: &'a Progress) -> View<'a> {
        let node = match &self.node {
            None => Node::Missing,
            Some(node) => node.node_id(&self.rules.driver).map_or(Node::WithoutDriver, Node::Id),
        };
        View {
            attachment: &self.attachment,
            volume: self.volume.as_deref(),
            node,
            rules: &self.rules,
            shown: self.shown,
            is_lost: self.is_lost,
            done,
            others: &self.others,
        }
    }
}

//! The view of a volume, read from the caches and from what the term remembers. It decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{NodeState, PersistentVolume, VolumeAttachment};
use crate::roles::attach_detach::context::Context;
use crate::roles::attach_detach::memory::{SiteMemory, of_volume};
use crate::roles::attach_detach::volume_id::VolumeId;
use crate::roles::attach_detach::wishes::{in_tree_volume, is_volume, modes_of, wants};

use super::gate::Standing;
use super::multi_attach::is_exclusive;
use super::view::{Held, Rules, Site, View, Volume, Wisher, seniority};

/// The view of a volume.
pub(in crate::roles::attach_detach) fn observe(cx: &Context, id: &VolumeId) -> View {
    let mut memories = cx.memory.volumes.read(id.name(), |remembered| remembered.sites.clone());
    let remembered: BTreeSet<String> = memories.keys().cloned().collect();
    let mut wishers: BTreeMap<String, Vec<Wisher>> = BTreeMap::new();
    for (node, wisher) in wishers_of(cx, id) {
        wishers.entry(node).or_default().push(wisher);
    }
    for of_node in wishers.values_mut() {
        of_node.sort_by_key(seniority);
    }
    let (mut own, mut foreign) = (BTreeMap::new(), Vec::new());
    for (held, is_own) in attachments_of(cx, id) {
        if is_own {
            own.insert(held.spec.node_name.clone(), held);
        } else {
            foreign.push(held);
        }
    }
    let volume = volume_of(cx, id, wishers.values().flatten(), own.values().chain(&foreign));
    let nodes: BTreeSet<String> = own.keys().chain(wishers.keys()).chain(&remembered).cloned().collect();
    let sites = nodes.into_iter().map(|node| {
        let wishers = wishers.remove(&node).unwrap_or_default();
        let memory = memories.remove(&node).unwrap_or_default();
        let site = site(cx, id, &node, (wishers, own.remove(&node)), memory);
        (node, site)
    });
    View {
        volume,
        permit: cx.permit(),
        until_detach: cx.until_detach(),
        rules: Rules::of(&cx.section),
        sites: sites.collect(),
        has_foreign: !foreign.is_empty(),
        remembered,
        id: id.clone(),
    }
}

/// The attachments of the volume, and whether each has the name that is computed for it.
fn attachments_of(cx: &Context, id: &VolumeId) -> Vec<(Arc<VolumeAttachment>, bool)> {
    let of = |uid: String| {
        let (name, is_own) = cx.memory.attachments.read(&uid, |known| Some((known.name.clone()?, known.is_own)))?;
        Some((cx.stores.attachments.named(&name).filter(|held| *held.metadata.uid == *uid)?, is_own))
    };
    cx.memory.attachments.marked(&of_volume(id)).into_iter().filter_map(of).collect()
}

/// Whether [`observe`] finds a node that has the volume or wants it.
pub(super) fn is_there(cx: &Context, id: &VolumeId) -> bool {
    cx.memory.volumes.read(id.name(), |remembered| !remembered.sites.is_empty()) || !observe(cx, id).sites.is_empty()
}

/// The pods that want the volume, with their nodes.
fn wishers_of(cx: &Context, id: &VolumeId) -> Vec<(String, Wisher)> {
    let of = |uid: String| {
        cx.memory.pods.read(&uid, |wishes| {
            let pod = wishes.pod.clone()?;
            let wish = wishes.wanted().find(|wish| wish.id == *id)?.clone();
            Some((pod.node.as_deref()?.to_owned(), Wisher { pod, wish }))
        })
    };
    cx.memory.pods.marked(&wants(id)).into_iter().filter_map(of).collect()
}

/// What the volume is: by the `PersistentVolume` that a pod or an attachment names, or by the pod that has it.
fn volume_of<'a>(
    cx: &Context,
    id: &VolumeId,
    wishers: impl Iterator<Item = &'a Wisher> + Clone,
    held: impl Iterator<Item = &'a Arc<VolumeAttachment>>,
) -> Option<Volume> {
    let named = wishers.clone().filter_map(|wisher| wisher.wish.volume.as_deref());
    let attached = held.filter_map(|held| held.spec.source.persistent_volume_name.as_deref());
    let found = named.chain(attached).find_map(|name| {
        let volume = cx.stores.volumes.named(name)?;
        is_volume(&volume, id).then_some(volume)
    });
    let of_volume = |volume: Arc<PersistentVolume>| Volume {
        name: Arc::clone(&volume.metadata.name),
        is_exclusive: is_exclusive(&modes_of(&volume)),
        uid: volume.metadata.uid.clone(),
    };
    found.map(of_volume).or_else(|| {
        wishers.into_iter().find_map(|wisher| {
            let volume = inline(wisher, id)?;
            let is_exclusive = is_exclusive(&volume.volume.access_modes);
            Some(Volume { name: volume.name.into(), is_exclusive, uid: Box::default() })
        })
    })
}

/// The in-tree volume that the pod itself has, in its CSI form.
pub(super) fn inline(wisher: &Wisher, id: &VolumeId) -> Option<crate::translation::PodVolume> {
    let volumes = wisher.pod.in_tree().iter().filter_map(|(name, _)| in_tree_volume(&wisher.pod, name)?.ok());
    let is_same = |source: &crate::cluster::CsiSource| VolumeId::new(&source.driver, &source.volume_handle) == *id;
    volumes.into_iter().find(|volume| is_same(&volume.volume.source))
}

fn site(
    cx: &Context,
    id: &VolumeId,
    node: &str,
    (wishers, own): (Vec<Wisher>, Option<Arc<VolumeAttachment>>),
    memory: SiteMemory,
) -> Site {
    let state = cx.stores.nodes.named(node);
    let object = own.or_else(|| cx.stores.attachments.named(&id.attachment_name(node)));
    let attachment = match object {
        Some(object) if cx.is_of(&object, id, node) => Held::Fits(object),
        Some(object) => Held::Clash(object),
        None if memory.created.is_some_and(|version| !cx.stores.attachments.has_heard(version)) => Held::Created,
        None => Held::None,
    };
    let uid = match &attachment {
        Held::Fits(object) => &*object.metadata.uid,
        Held::Created => &*memory.uid,
        Held::None | Held::Clash(_) => "",
    };
    // What is remembered of another attachment is not this one's.
    let memory = if *memory.uid == *uid { memory } else { SiteMemory::default() };
    let is_written = cx.section.write_node_status;
    let is_listed = |state: &NodeState| state.volumes_attached.iter().any(|volume| *volume.name == *id.name());
    let now = cx.scope.clock.now();
    let age = memory.phase.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(since));
    let until_retry = memory.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
    Site {
        is_managed: state.as_ref().is_none_or(|state| cx.manages(state)),
        standing: standing(cx, id, node, state.as_deref(), &attachment),
        is_registered: cx.stores.csi_nodes.named(node).is_some_and(|it| it.has(id.driver())),
        is_reported: is_written && state.is_some_and(|state| is_listed(&state)),
        wishers,
        attachment,
        is_written,
        age,
        until_retry,
        memory,
    }
}

fn standing(cx: &Context, id: &VolumeId, node: &str, state: Option<&NodeState>, attachment: &Held) -> Standing {
    let Some(state) = state else {
        let was_free = |names: &BTreeSet<Box<str>>| !names.contains(id.name());
        return Standing::Missing {
            was_free: cx.memory.nodes.read(node, |memory| memory.last_in_use.as_ref().is_some_and(was_free)),
        };
    };
    let is_ready = state.ready.as_ref().is_some_and(|ready| ready.status == "True");
    let is_listed = state.volumes_in_use.iter().any(|name| **name == *id.name());
    // A node that is registered anew has lost its list, and says what it uses once it has been ready. Times are seconds: a doubt counts as
    // in use.
    let made = match attachment {
        Held::Fits(held) => held.metadata.creation_timestamp,
        Held::None | Held::Created | Held::Clash(_) => None,
    };
    let is_newer = made.zip(state.metadata.creation_timestamp).is_some_and(|(attachment, node)| attachment <= node);
    let was_ready = is_ready || cx.memory.nodes.read(node, |memory| memory.ready.as_ref() == Some(&state.metadata.uid));
    let is_unheard = cx.section.write_node_status && is_newer && !was_ready;
    Standing::There { in_use: is_listed || is_unheard, out_of_service: state.is_out_of_service, is_ready }
}

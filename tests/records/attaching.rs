//! A volume is published to a node only while finalizers hold the objects that say so, it is unpublished before they go, and no sooner than
//! that is asked for. Pure.
//!
//! A controller knows of its finalizer by the answer to its write, or by a watch. The answers to its own attachment's writes it waits for;
//! so a publish begins after the stamp of such an answer, if that was not sent before its stamp ([`super::audit`]). A finalizer on the volume
//! it may have from a watch, before another answer is stamped: then the write must have begun.

use super::Objects;
use super::audit::{Kind, Object, Write};
use super::objects::History;
use super::rpc::Rpc;
use super::violation::{Invariant, Violation};

const PUBLISH: &str = "ControllerPublishVolume";
const UNPUBLISH: &str = "ControllerUnpublishVolume";

/// The publishes before their finalizers, the finalizers that went before an unpublish, and the unpublishes that nobody has asked for.
pub(super) fn violations(rpcs: &[&Rpc], objects: &Objects) -> Vec<Violation> {
    let publishes = rpcs.iter().filter(|rpc| rpc.method == PUBLISH);
    let unprotected = publishes.filter_map(|publish| unprotected(publish, objects));
    let unpublishes = rpcs.iter().filter(|rpc| rpc.method == UNPUBLISH);
    let unasked = unpublishes.filter_map(|unpublish| unasked(unpublish, objects));
    unprotected.chain(released_early(rpcs, objects)).chain(unasked).collect()
}

fn held(object: &Object, finalizer: &str) -> bool {
    object.finalizers.iter().any(|it| it == finalizer)
}

/// What is wrong with a publish.
fn unprotected(publish: &Rpc, objects: &Objects) -> Option<Violation> {
    let (handle, node) = (publish.volume.as_ref()?, publish.node.as_ref()?);
    let mut why = "no attachment of it to this node holds a finalizer".to_owned();
    let mut lines = vec![publish.words()];
    for attachment in objects.of(Kind::Attachment) {
        let mine = attachment.known_at(publish.begin).filter(|write| {
            write.object.as_ref().is_some_and(|it| it.node.as_ref() == Some(node) && held(it, objects.finalizer))
        });
        for write in mine {
            match unprotected_volume(handle, publish, write, objects) {
                None => return None,
                // Of an attachment of another volume nothing needs to be said.
                Some(_) if !write.object.as_ref().is_some_and(|it| objects.names(it, handle)) => {}
                Some(told) => (why, lines) = (told, vec![write.words(), publish.words()]),
            }
        }
    }
    // What came too late.
    if lines.len() == 1 {
        let late = objects.of(Kind::Attachment).flat_map(|it| it.writes.iter());
        let is_of = |write: &&&Write| {
            write.object.as_ref().is_some_and(|it| it.node.as_ref() == Some(node) && objects.names(it, handle))
        };
        lines.extend(late.filter(is_of).map(|write| write.words()).take(3));
    }
    Some(Violation::new(Invariant::FinalizersBeforePublish, format!("volume {handle} on node {node}"), why, lines))
}

/// What is wrong with the volume of an attachment that is protected itself.
fn unprotected_volume(handle: &String, publish: &Rpc, attachment: &Write, objects: &Objects) -> Option<String> {
    let object = attachment.object.as_ref()?;
    let Some(name) = &object.volume else {
        return (object.handle.as_ref() != Some(handle)).then(|| "its attachment is for another volume".to_owned());
    };
    let mut volumes = objects.of_any_driver(Kind::Volume).filter(|it| it.name == name).peekable();
    if volumes.peek().is_none() {
        return Some(format!("there is no PersistentVolume {name}"));
    }
    // One of an in-tree plugin has no handle.
    let is_it = |it: &Object| it.handle.as_ref().is_none_or(|it| it == handle) && held(it, objects.finalizer);
    let is_held = volumes.any(|volume| volume.may_have_been(publish.begin, is_it));
    (!is_held).then(|| format!("its PersistentVolume {name} has no finalizer"))
}

/// What is wrong with an unpublish: an attachment says that the volume is attached there, and it is not being deleted.
fn unasked(unpublish: &Rpc, objects: &Objects) -> Option<Violation> {
    let (handle, node) = (unpublish.volume.as_ref()?, unpublish.node.as_ref()?);
    let stays =
        |it: &Object| it.is_attached && !it.is_deleting && it.node.as_ref() == Some(node) && objects.names(it, handle);
    let attachment = objects.of(Kind::Attachment).find(|it| it.was_surely(unpublish.begin, stays))?;
    let lines = attachment.at(unpublish.begin).map(Write::words).chain([unpublish.words()]);
    let told = format!("{:?} {} stays", attachment.kind, attachment.name);
    Some(Violation::new(Invariant::NoUnpublishUnasked, format!("volume {handle} on node {node}"), told, lines))
}

/// The finalizers that controllers took off too early.
fn released_early(rpcs: &[&Rpc], objects: &Objects) -> Vec<Violation> {
    let mut found = Vec::new();
    for history in objects.of_any_driver(Kind::Attachment).chain(objects.of_any_driver(Kind::Volume)) {
        for (before, removal) in history.removals(objects.finalizer).filter(|(_, it)| it.is_a_controllers()) {
            found.extend(still_published(history, before, removal, rpcs, objects));
        }
    }
    found
}

/// What was still published when a finalizer went.
fn still_published(
    history: &History<'_>,
    before: &Object,
    removal: &Write,
    rpcs: &[&Rpc],
    objects: &Objects,
) -> Option<Violation> {
    // An earlier object of the same name, or a volume of the same handle, has been answered for.
    let since = history.writes.first()?.from;
    let is_about = |rpc: &&&Rpc| {
        let handle = rpc.volume.as_ref().is_some_and(|it| objects.names(before, it));
        handle && (history.kind == Kind::Volume || rpc.node == before.node)
    };
    let calls: Vec<&Rpc> = rpcs.iter().filter(is_about).copied().collect();
    let publishes = calls.iter().filter(|it| it.method == PUBLISH && (since..removal.from).contains(&it.begin));
    for publish in publishes {
        let same = |it: &&&Rpc| it.volume == publish.volume && it.node == publish.node;
        // A later one counts in its place.
        let is_last = |it: &&&Rpc| it.begin > publish.begin && it.begin < removal.from && it.method == PUBLISH;
        let others = calls.iter().filter(same);
        let is_undone = |it: &&Rpc| {
            let code = it.end.as_ref().map(|(_, code)| code.as_str());
            // A driver that has lost the capability publishes nothing (attacher spec 2.3).
            let answered = if code == Some("Unimplemented") { it.end.as_ref().map(|(at, _)| *at) } else { it.ok() };
            it.method == UNPUBLISH && it.begin >= publish.begin && answered.is_some_and(|at| at <= removal.from)
        };
        if calls.iter().filter(same).any(|it| is_last(&it)) || others.clone().any(is_undone) {
            continue;
        }
        // Another one that stays needs it where it is (attacher spec 2.10).
        let is_needed = objects.of(history.kind).filter(|other| other.name != history.name).any(|other| {
            other.may_have_been(removal.from, |it| {
                let handle = publish.volume.as_ref().is_some_and(|handle| objects.names(it, handle));
                handle && held(it, objects.finalizer) && (history.kind == Kind::Volume || it.node == publish.node)
            })
        });
        if !is_needed {
            let subject =
                [&publish.volume, &publish.node].map(|it| it.as_deref().unwrap_or_default()).join(" on node ");
            let told = format!("{:?} {} lost its finalizer", history.kind, history.name);
            let unpublishes = others.filter(|it| it.method == UNPUBLISH).map(|it| it.words());
            let lines = [publish.words()].into_iter().chain(unpublishes).chain([removal.words()]);
            let subject = format!("volume {subject}");
            return Some(Violation::new(Invariant::UnpublishBeforeRelease, subject, told, lines));
        }
    }
    None
}

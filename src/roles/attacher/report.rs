//! Reports an attempt: one log line, Kubernetes Events, metrics, a row on the status page.

use tracing::{info, warn};

use crate::cluster::{EventKind, EventTarget};
use crate::roles::kit::report::log_failure;
use crate::roles::kit::telling::Labels;
use crate::roles::kit::{End, EventsMode, Run, Telling};

use super::attachment::Direction;
use super::context::Objects;
use super::error::{AttachError, InvalidAttachment};
use super::failure::recorded_error;
use super::metrics;
use super::progress::{Progress, Skip};

/// The reports of an attempt that began with `first`.
pub(super) fn tell(
    first: &Objects,
    progress: &Progress,
    end: &End<'_, InvalidAttachment>,
    run: &Run<'_>,
) -> Vec<Telling> {
    let skipped = progress.skipped.map(|skip| tell_skip(first, skip)).unwrap_or_default();
    let ended = match end {
        End::Settled => tell_success(first, progress, run),
        End::Failed(error) => tell_failure(first, error, run),
    };
    skipped.into_iter().chain(ended).collect()
}

fn tell_failure(first: &Objects, error: &AttachError, run: &Run<'_>) -> Vec<Telling> {
    let (node, direction) = (&first.attachment.node, first.attachment.direction);
    log_failure!(run, error, { node, operation = direction.label(), }, "attempt failed");
    let labels = [labels(first), vec![("error", error.label().to_owned())]].concat();
    let text = format!("cannot {} node {node}: {}", direction.preposition(), error.message());
    let counted = Telling::Count(&metrics::OPERATION_ERRORS, labels);
    [vec![counted], events(first, EventKind::Warning, reason(direction, false), &text)].concat()
}

fn tell_success(first: &Objects, progress: &Progress, run: &Run<'_>) -> Vec<Telling> {
    let (node, direction) = (&first.attachment.node, first.attachment.direction);
    if !progress.did_something() {
        return Vec::new();
    }
    let done = match direction {
        Direction::Attach => {
            info!(node, "attached");
            Some("attached")
        }
        Direction::Detach if progress.skipped.is_none() => {
            info!(node, "detached");
            Some("detached")
        }
        Direction::Detach => None,
    };
    let did = done.map(|done| Telling::Did(done, Some(first.subject())));
    let took = Telling::Took(&metrics::OPERATION_DURATION, labels(first), run.age);
    let has_failed = recorded_error(&first.attachment).is_some() || run.failed_before > 0;
    let text = match direction {
        Direction::Attach => format!("attached to node {node} after failures"),
        Direction::Detach => format!("detached from node {node} after failures"),
    };
    let recovered =
        if has_failed { events(first, EventKind::Normal, reason(direction, true), &text) } else { Vec::new() };
    did.into_iter().chain([took]).chain(recovered).collect()
}

/// A detach goes on without the driver.
fn tell_skip(first: &Objects, skip: Skip) -> Vec<Telling> {
    let node = &first.attachment.node;
    match skip {
        Skip::Copied => {
            let Some(copied) = &first.attachment.copied else { return Vec::new() };
            let unknown = || "unknown".to_owned();
            let (of, handle) = (&copied.of, copied.recorded.volume_handle.clone().unwrap_or_else(unknown));
            let node_id = copied.recorded.node_id.clone().unwrap_or_else(unknown);
            let text = format!(
                "deleted without a call to the driver: this volumeattachment is a copy of the one with the uid {of}, and the \
                 cluster does not know its volume or its node. If volume {handle} is attached to node {node_id}, and nobody \
                 needs it there, in this cluster or in the one that the copy is from, detach it at the storage"
            );
            warn!(
                node,
                volume = handle,
                node_id,
                copy_of = of,
                "releasing a copied volumeattachment without the driver"
            );
            return events(first, EventKind::Warning, "VolumeDetachSkipped", &text);
        }
        Skip::Shared => info!(
            node,
            "releasing the volumeattachment without the driver: another volumeattachment needs the volume on the same \
             machine, and its deletion detaches the volume"
        ),
        Skip::NotOffered => info!(
            node,
            "releasing the volumeattachment without the driver: the driver does not attach and detach volumes any more"
        ),
    }
    Vec::new()
}

/// An Event on the attachment, and one on the claim, where users look.
fn events(first: &Objects, kind: EventKind, reason: &'static str, text: &str) -> Vec<Telling> {
    if first.rules.telling.events == EventsMode::None {
        return Vec::new();
    }
    let claim = first.volume.as_ref().and_then(|volume| volume.spec.claim_ref.as_ref());
    let claim = claim.map(|claim| EventTarget {
        api_version: "v1".into(),
        kind: "PersistentVolumeClaim".into(),
        namespace: Some(claim.namespace.clone()),
        name: claim.name.clone(),
        uid: claim.uid.clone().unwrap_or_default(),
    });
    let targets = [EventTarget::of(first.object.as_ref())].into_iter().chain(claim);
    targets.map(|on| Telling::Event { on, kind, reason: reason.into(), note: text.to_owned() }).collect()
}

fn labels(first: &Objects) -> Labels {
    let operation = first.attachment.direction.label();
    vec![("driver_name", first.rules.driver.clone()), ("operation", operation.to_owned())]
}

fn reason(direction: Direction, recovered: bool) -> &'static str {
    match (direction, recovered) {
        (Direction::Attach, false) => "VolumeAttachFailed",
        (Direction::Detach, false) => "VolumeDetachFailed",
        (Direction::Attach, true) => "VolumeAttachRecovered",
        (Direction::Detach, true) => "VolumeDetachRecovered",
    }
}

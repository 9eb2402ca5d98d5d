//! What people and metrics are told of volumes: Events on pods, log lines, counts. Pure, but for the log. The texts are those of
//! kube-controller-manager: attach-detach spec 13.

use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use crate::cluster::{EventKind, EventTarget, Pod};
use crate::roles::attach_detach::memory::{Found, Phase};
use crate::roles::attach_detach::{metrics, names};
use crate::roles::kit::report::log_failure;
use crate::roles::kit::{End, NoReason, Op, Run, Telling};

use super::gate::Force;
use super::news::{failed, name};
use super::view::{Answer, Site, State, View, What};

/// Creates an attachment: pods are told if that fails.
pub(super) const CREATE: Op = Op("cannot create the VolumeAttachment");

/// What is told as soon as a step has brought its answer.
pub(super) fn tell_step(view: &View, answer: &Answer) -> Vec<Telling> {
    match answer {
        Answer::Tracked(found, _) => {
            let settled = |(node, found): (&String, &Found)| {
                let site = view.sites.get(node)?;
                let was = site.memory.phase.map(|(phase, _)| phase);
                (found.phase == Phase::Settled && was == Some(Phase::Attaching)).then(|| attached(view, node, site))
            };
            found.iter().filter_map(settled).flatten().collect()
        }
        Answer::Deleted(node, force) => {
            view.sites.get(node).map(|site| deleted(view, node, site, *force)).unwrap_or_default()
        }
        Answer::Created(node, ..) => {
            info!(volume = %view.id, node, "created the VolumeAttachment");
            let waited =
                view.sites.get(node).filter(|site| !site.age.is_zero()).map(|site| waited("multi-attach", site.age));
            waited.into_iter().chain([Telling::Did("attaching", None)]).collect()
        }
        Answer::Told(news) => news.iter().flat_map(|news| told(view, &news.node, &news.what)).collect(),
        Answer::Kept(node) => {
            info!(volume = %view.id, node, "kept the VolumeAttachment: it is not deleted by what was asked for earlier");
            Vec::new()
        }
        Answer::Withdrawn | Answer::Restored | Answer::NotDeleted(..) | Answer::Unanswered(..) | Answer::Read(..) => {
            Vec::new()
        }
    }
}

fn attached(view: &View, node: &str, site: &Site) -> Vec<Telling> {
    info!(volume = %view.id, node, "the volume is attached");
    // The text ends with a blank, as that of kube-controller-manager does.
    let text = format!("AttachVolume.Attach succeeded for volume \"{}\" ", name(view));
    let pods = site.wishers.iter().map(|wisher| &wisher.pod);
    pods.filter_map(|pod| event(view, pod, EventKind::Normal, names::ATTACHED, text.clone())).collect()
}

fn deleted(view: &View, node: &str, site: &Site, force: Option<Force>) -> Vec<Telling> {
    match force {
        None => info!(volume = %view.id, node, "deleted the VolumeAttachment"),
        Some(force) => warn!(volume = %view.id, node, reason = force.label(), "detached the volume by force"),
    }
    let reason = match force {
        None if site.age.is_zero() => None,
        None | Some(Force::OutOfService) => Some("in-use"),
        Some(Force::Timeout) => Some("timer"),
    };
    let forced = force.map(|force| Telling::Count(&metrics::FORCED, vec![("reason", force.label().to_owned())]));
    let waited = reason.map(|reason| waited(reason, site.age));
    forced.into_iter().chain(waited).chain([Telling::Did("detaching", None)]).collect()
}

fn waited(reason: &str, time: Duration) -> Telling {
    Telling::Took(&metrics::GATE_WAIT, vec![("reason", reason.to_owned())], time)
}

fn told(view: &View, node: &str, what: &What) -> Vec<Telling> {
    match what {
        What::AttachFailed(texts) => {
            let of = |(pod, text): &(Arc<Pod>, String)| {
                event(view, pod, EventKind::Warning, names::ATTACH_FAILED, text.clone())
            };
            texts.iter().filter_map(of).collect()
        }
        What::DetachFailed(text) => {
            warn!(volume = %view.id, node, error = text, "the volume is not detached");
            let volume = view.volume.as_ref().filter(|volume| !volume.uid.is_empty() && view.rules.events);
            let Some(volume) = volume else { return Vec::new() };
            let on = EventTarget {
                api_version: "v1".to_owned(),
                kind: "PersistentVolume".to_owned(),
                namespace: None,
                name: volume.name.to_string(),
                uid: volume.uid.to_string(),
            };
            let text = format!("DetachVolume.Detach failed for volume \"{}\" : {text}", name(view));
            vec![Telling::warning(on, names::DETACH_FAILED, text)]
        }
    }
}

fn event(view: &View, pod: &Arc<Pod>, kind: EventKind, reason: &'static str, note: String) -> Option<Telling> {
    view.rules.events.then(|| Telling::Event { on: EventTarget::of(pod.as_ref()), kind, reason: reason.into(), note })
}

/// What is told of the end of an attempt: who waits for an attachment that cannot be created reads why.
pub(super) fn tell(first: &View, end: &End<'_, NoReason>, run: &Run<'_>) -> Vec<Telling> {
    let End::Failed(error) = end else { return Vec::new() };
    log_failure!(run, error, { volume = %first.id, }, "cannot attach or detach the volume");
    if !error.is_of(CREATE) {
        return Vec::new();
    }
    let waiting = first.sites.iter().filter(|(_, site)| site.is_managed && site.state() == State::None);
    waiting.flat_map(|(node, site)| told(first, node, &failed(first, site, &error.message()))).collect()
}

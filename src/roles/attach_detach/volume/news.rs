//! What pods are told of a volume that they wait for, and when: attach-detach spec 6 and 13. Pure.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Pod;
use crate::roles::attach_detach::memory::Phase;

use super::gate::Standing;
use super::holders::{clashes, waits_for};
use super::multi_attach;
use super::view::{News, Site, State, View, What};

/// An attachment that is silent for this long is told.
const SILENT: Duration = Duration::from_secs(120);
/// How often the silence is told again.
const SILENT_AGAIN: Duration = Duration::from_secs(600);
/// How often it is told again that another node has the volume.
const BLOCKED_AGAIN: Duration = Duration::from_secs(300);

/// What is to be told now, and was not told before.
pub(super) fn news(view: &View) -> Vec<News> {
    let of = |(node, site): (&String, &Site)| {
        let (what, turn) = what(view, node, site)?;
        let key = key(&what, turn, site);
        let is_news = site.memory.told.as_ref() != Some(&key);
        is_news.then(|| News { node: node.clone(), key, what })
    };
    view.sites.iter().filter(|(_, site)| site.is_managed).filter_map(of).collect()
}

/// How long it is until something may be told that was not.
pub(super) fn until_news(view: &View) -> Option<Duration> {
    let of = |(node, site): (&String, &Site)| {
        let next = |first: Duration, every: Duration| {
            let past = site.age.saturating_sub(first);
            let turn = u32::try_from(past.as_nanos() / every.as_nanos()).unwrap_or(u32::MAX);
            if site.age < first {
                first.saturating_sub(site.age)
            } else {
                every.saturating_mul(turn + 1).saturating_sub(past)
            }
        };
        match site.phase()? {
            Phase::Attaching if attach_error(site).is_none() => Some(next(SILENT, SILENT_AGAIN)),
            Phase::Blocked if !waits_for(view, node, site).is_empty() => Some(next(Duration::ZERO, BLOCKED_AGAIN)),
            Phase::Deleting if site.age < SILENT => Some(SILENT.saturating_sub(site.age)),
            _ => None,
        }
    };
    view.sites.iter().filter(|(_, site)| site.is_managed).filter_map(of).min()
}

/// What the pods of a node wait for now, or what its volume does; and the how-many-eth time it is told. `None`: nothing is to be told.
fn what(view: &View, node: &str, site: &Site) -> Option<(What, u128)> {
    let turn =
        |first: Duration, every: Duration| site.age.checked_sub(first).map(|past| past.as_nanos() / every.as_nanos());
    match site.phase()? {
        Phase::Attaching => match attach_error(site) {
            Some(message) => Some((failed(view, site, message), 0)),
            None if site.state() == State::Pending => {
                let message = if site.is_registered { silent(view, "attach") } else { unregistered(view, node) };
                Some((failed(view, site, &message), turn(SILENT, SILENT_AGAIN)?))
            }
            None => None,
        },
        Phase::Blocked if clashes(site) => {
            Some((failed(view, site, "the name of its VolumeAttachment belongs to another volume"), 0))
        }
        Phase::Blocked => Some((blocked(view, node, site)?, turn(Duration::ZERO, BLOCKED_AGAIN)?)),
        Phase::Deleting => {
            turn(SILENT, SILENT)?;
            let error = site.attachment().and_then(|held| held.status.detach_error.as_deref());
            let message = error.and_then(|error| error.message.clone());
            Some((What::DetachFailed(message.unwrap_or_else(|| silent(view, "detach"))), 0))
        }
        Phase::Settled | Phase::Unwanted => None,
    }
}

/// The text that tells this news from what was told before: another error, the same error at another time, another set of holders.
fn key(what: &What, turn: u128, site: &Site) -> String {
    let time =
        site.attachment().and_then(|held| held.status.attach_error.as_deref()).and_then(|error| error.time.as_ref());
    let time = time.map(|time| time.0.to_string()).unwrap_or_default();
    match what {
        What::AttachFailed(pods) => {
            let texts: Vec<_> = pods.iter().map(|(pod, text)| format!("{} {text}", pod.metadata.uid)).collect();
            format!("{turn} {time} {}", texts.join("\n"))
        }
        What::DetachFailed(text) => text.clone(),
    }
}

/// What each pod that wants the volume on the node is told if it cannot be attached.
pub(super) fn failed(view: &View, site: &Site, message: &str) -> What {
    let text = format!("AttachVolume.Attach failed for volume \"{}\" : {message}", name(view));
    What::AttachFailed(site.wishers.iter().map(|wisher| (Arc::clone(&wisher.pod), text.clone())).collect())
}

/// What each pod is told that waits for another node.
fn blocked(view: &View, node: &str, site: &Site) -> Option<What> {
    let holders = waits_for(view, node, site);
    if holders.is_empty() {
        return None;
    }
    let text = |pod: &Arc<Pod>| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        (Arc::clone(pod), multi_attach::text(name(view), namespace, &holders))
    };
    Some(What::AttachFailed(site.wishers.iter().map(|wisher| text(&wisher.pod)).collect()))
}

/// What the pods of a node wait for, as the status page says it; `None`: nothing.
pub fn waits(view: &View, node: &str, pod: &Arc<Pod>) -> Option<String> {
    let site = view.sites.get(node)?;
    if !site.is_managed {
        return Some("the node is not managed: its kubelet does not leave attaching to a controller".to_owned());
    }
    let of_pod = |what: What| match what {
        What::AttachFailed(texts) => {
            texts.into_iter().find(|(it, _)| it.metadata.uid == pod.metadata.uid).map(|it| it.1)
        }
        What::DetachFailed(_) => None,
    };
    match site.phase()? {
        Phase::Settled | Phase::Unwanted => None,
        Phase::Deleting => Some("an earlier attachment to the node is being deleted".to_owned()),
        Phase::Attaching => Some(match site.attachment().and_then(|held| held.status.attach_error.as_deref()) {
            Some(error) if error.error_code == Some(LIMIT) => {
                format!("the node has as many volumes as it may have: {}", error.message.as_deref().unwrap_or_default())
            }
            _ if site.state() == State::Pending && !site.is_registered => unregistered(view, node),
            Some(error) => format!("the attacher fails: {}", error.message.as_deref().unwrap_or_default()),
            None if site.state() == State::Attached => "the status of the node".to_owned(),
            None => format!("the attacher of {}", view.id.driver()),
        }),
        Phase::Blocked if clashes(site) => {
            Some("the name of its VolumeAttachment belongs to another volume".to_owned())
        }
        Phase::Blocked if matches!(site.standing, Standing::Missing { .. }) => Some(format!("there is no node {node}")),
        Phase::Blocked => Some(blocked(view, node, site).and_then(of_pod).unwrap_or_else(|| "its turn".to_owned())),
    }
}

/// gRPC's `RESOURCE_EXHAUSTED`: the node has reached its limit of volumes.
const LIMIT: i32 = 8;

fn attach_error(site: &Site) -> Option<&str> {
    let held = site.attachment().filter(|held| !held.status.attached)?;
    Some(held.status.attach_error.as_deref()?.message.as_deref().unwrap_or("failed"))
}

fn unregistered(view: &View, node: &str) -> String {
    format!("driver {} is not registered on node {node}: its CSINode does not name the driver", view.id.driver())
}

fn silent(view: &View, verb: &str) -> String {
    let (driver, handle) = (view.id.driver(), view.id.handle());
    format!("timed out waiting for external-attacher of {driver} CSI driver to {verb} volume {handle}")
}

/// The name of the volume for people.
pub(super) fn name(view: &View) -> &str {
    view.volume.as_ref().map_or_else(|| view.id.handle(), |volume| &volume.name)
}

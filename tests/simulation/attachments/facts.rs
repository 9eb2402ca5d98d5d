//! What there is, and since when: what the checks know of the cluster, from commits alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::objects::{
    ALL, ATTACHMENTS, CLAIMS, Claim, NODES, PODS, Site, VOLUMES, are_bound, attachment_name, claims_of, has_statuses,
    is_attached, is_finished, is_managed, is_ready, is_running, is_tainted, reported, used,
};
use crate::stage::Commit;
use crate::world::{is_deleting, text};

/// Something that is so or not, and since when.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flag {
    pub(super) is: bool,
    pub(super) since: Duration,
}

impl Flag {
    fn set(&mut self, is: bool, now: Duration) {
        if self.is != is {
            *self = Self { is, since: now };
        }
    }

    /// Whether it was so at some moment since then.
    pub(super) fn was(self, is: bool, from: Duration) -> bool {
        self.is == is || self.since >= from
    }
}

/// All that there is.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) objects: BTreeMap<&'static str, BTreeMap<String, Value>>,
    /// Where a pod wants a volume, as far as pod, claim and volume say so now.
    pub(super) wanted: BTreeMap<Site, Flag>,
    /// The same, but what was wanted once stays wanted as long as the pod does not end.
    pub(super) wished: BTreeMap<Site, Flag>,
    wishes: BTreeSet<(String, Site)>,
    /// The claims that lead to a volume.
    leads: BTreeMap<&'static str, Flag>,
    /// Where a kubelet may use a volume, as it has said, or has not said yet since its node was registered anew.
    pub(super) in_use: BTreeMap<Site, Flag>,
    /// Where a node reports a volume.
    pub(super) reported: BTreeMap<Site, Flag>,
    /// Where a volume is attached, and not being detached.
    pub(super) attached: BTreeMap<Site, Flag>,
    /// Nodes that exist, those that are ready, tainted, managed.
    pub(super) there: BTreeMap<String, Flag>,
    pub(super) ready: BTreeMap<String, Flag>,
    pub(super) tainted: BTreeMap<String, Flag>,
    pub(super) managed: BTreeMap<String, Flag>,
    /// The uids of the Node objects that have been ready.
    heard: BTreeSet<String>,
}

/// The flag of a place.
pub(super) fn flag<K: Ord + ?Sized, Q: Ord + std::borrow::Borrow<K>>(flags: &BTreeMap<Q, Flag>, key: &K) -> Flag {
    flags.get(key).copied().unwrap_or_default()
}

impl Facts {
    /// The objects of a kind.
    pub(super) fn all(&self, plural: &str) -> impl Iterator<Item = &Value> {
        self.objects.get(plural).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn get(&self, plural: &str, name: &str) -> Option<&Value> {
        self.objects.get(plural)?.get(name)
    }

    /// Takes a commit in.
    pub(super) fn take(&mut self, commit: &Commit<'_>) {
        let Some(plural) = [PODS, CLAIMS, VOLUMES, NODES, ATTACHMENTS].into_iter().find(|it| *it == commit.plural)
        else {
            return;
        };
        let (all, name, now) = (self.objects.entry(plural).or_default(), commit.name.to_owned(), commit.at);
        match commit.new {
            Some(new) => drop(all.insert(name.clone(), new.clone())),
            None => drop(all.remove(&name)),
        }
        match plural {
            NODES => self.node(&name, now),
            ATTACHMENTS => {
                let Some(held) = commit.new.or(commit.old) else { return };
                if let Some(site) = site_of(held) {
                    let is_live = commit.new.is_some_and(|it| is_attached(it) && !is_deleting(it));
                    self.attached.entry(site).or_default().set(is_live, now);
                }
                let node = text(held, "/spec/nodeName").to_owned();
                self.uses(&node, now);
            }
            _ => self.wish(now),
        }
    }

    fn node(&mut self, name: &str, now: Duration) {
        let object = self.get(NODES, name).cloned();
        let is = |test: fn(&Value) -> bool| object.as_ref().is_some_and(test);
        for (flags, is) in [
            (&mut self.there, object.is_some()),
            (&mut self.ready, is(is_ready)),
            (&mut self.tainted, is(is_tainted)),
            (&mut self.managed, is(is_managed)),
        ] {
            flags.entry(name.to_owned()).or_default().set(is, now);
        }
        let names = object.as_ref().map(reported).unwrap_or_default();
        set_all(&mut self.reported, name, &names, now);
        if let Some(object) = object.filter(is_ready) {
            self.heard.insert(text(&object, "/metadata/uid").to_owned());
        }
        self.uses(name, now);
    }

    /// What the kubelet of a node uses. That of a node that is gone uses what it used.
    fn uses(&mut self, name: &str, now: Duration) {
        let Some(node) = self.get(NODES, name) else { return };
        let made = |object: &Value| text(object, "/metadata/creationTimestamp").to_owned();
        let is_heard = self.heard.contains(text(node, "/metadata/uid"));
        let is_unsaid = |held: &&Value| !is_heard && text(held, "/spec/nodeName") == name && made(held) <= made(node);
        let unsaid = self.all(ATTACHMENTS).filter(is_unsaid).filter_map(site_of).map(|(_, volume)| volume);
        let uses = used(node).into_iter().chain(unsaid).collect();
        set_all(&mut self.in_use, name, &uses, now);
    }

    /// Whether a daemon that may see each object as late as this may find that a pod wants a volume there. A pod and its claim need not have
    /// been there together.
    pub(super) fn may_be_wished(&self, site: &Site, from: Duration) -> bool {
        let claims =
            self.all(PODS).filter(|pod| uses_volumes(pod) && text(pod, "/spec/nodeName") == site.0).flat_map(claims_of);
        let leads = |claim: &str| {
            let volume = Claim::of(claim).and_then(Claim::volume);
            volume.as_ref() == Some(&site.1) && flag(&self.leads, claim).was(true, from)
        };
        flag(&self.wished, site).was(true, from) || claims.into_iter().any(leads)
    }

    fn wish(&mut self, now: Duration) {
        for claim in &ALL {
            let is_led = self.volume(claim.name).is_some();
            self.leads.entry(claim.name).or_default().set(is_led, now);
        }
        let (mut wanted, mut living) = (BTreeSet::new(), BTreeSet::new());
        for pod in self.all(PODS).filter(|pod| uses_volumes(pod)) {
            let uid = text(pod, "/metadata/uid").to_owned();
            living.insert(uid.clone());
            for claim in claims_of(pod) {
                if let Some(volume) = self.volume(claim) {
                    wanted.insert((uid.clone(), (text(pod, "/spec/nodeName").to_owned(), volume)));
                }
            }
        }
        self.wishes.retain(|(pod, _)| living.contains(pod));
        self.wishes.extend(wanted.iter().cloned());
        let sites = |wishes: &BTreeSet<(String, Site)>| wishes.iter().map(|(_, site)| site.clone()).collect();
        let (wanted, wished): (BTreeSet<Site>, BTreeSet<Site>) = (sites(&wanted), sites(&self.wishes));
        for (flags, sites) in [(&mut self.wanted, wanted), (&mut self.wished, wished)] {
            let all: BTreeSet<Site> = flags.keys().cloned().chain(sites.iter().cloned()).collect();
            for site in all {
                let is = sites.contains(&site);
                flags.entry(site).or_default().set(is, now);
            }
        }
    }

    /// The volume that a claim leads to. `None`: none yet, or none that is attached.
    pub(super) fn volume(&self, claim: &str) -> Option<String> {
        let object = self.get(CLAIMS, claim)?;
        let volume = self.get(VOLUMES, text(object, "/spec/volumeName"))?;
        are_bound(object, volume).then(|| Claim::of(claim)?.volume()).flatten()
    }
}

/// Whether a pod counts as using volumes on its node (attach-detach spec 3).
pub(super) fn uses_volumes(pod: &Value) -> bool {
    let has_ended = is_finished(pod) || (is_deleting(pod) && !(has_statuses(pod) && is_running(pod)));
    !text(pod, "/spec/nodeName").is_empty() && !has_ended
}

/// Node and volume of an attachment that has the name which belongs to them.
pub(super) fn site_of(attachment: &Value) -> Option<Site> {
    let claim = Claim::of_volume(text(attachment, "/spec/source/persistentVolumeName"))?;
    let site = (text(attachment, "/spec/nodeName").to_owned(), claim.volume()?);
    (attachment_name(&site) == text(attachment, "/metadata/name")).then_some(site)
}

fn set_all(flags: &mut BTreeMap<Site, Flag>, node: &str, volumes: &BTreeSet<String>, now: Duration) {
    let known = flags.keys().filter(|(it, _)| it == node).map(|(_, volume)| volume.clone());
    let all: BTreeSet<String> = known.chain(volumes.iter().cloned()).collect();
    for volume in all {
        let is = volumes.contains(&volume);
        flags.entry((node.to_owned(), volume)).or_default().set(is, now);
    }
}

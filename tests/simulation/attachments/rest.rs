//! The checks of the end: what there is follows from what pods want, and nothing else is left.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::checks::Checks;
use super::facts::{flag, site_of, uses_volumes};
use super::invariants::Rule;
use super::objects::{ATTACHMENTS, Claim, NODES, PODS, Site, claims_of, is_attached, is_exclusive, reported, used};
use crate::world::{is_deleting, text};

impl Checks {
    /// All that was broken, and what is not as it should be in the end.
    pub(crate) fn faults(&mut self) -> Vec<String> {
        self.requested();
        let all = self.broken.iter().cloned().chain(self.unrest(true));
        all.map(|(rule, what)| format!("{rule:?}: {what}")).collect()
    }

    /// What is not as it should be in the end. `of_waits`: also the pods of claims that lead nowhere know it.
    pub(super) fn unrest(&self, of_waits: bool) -> Vec<(Rule, String)> {
        let mut faults = Vec::new();
        let is_now = |site: &&Site| flag(&self.facts.wanted, *site).is && flag(&self.facts.there, site.0.as_str()).is;
        let wanted: BTreeSet<&Site> = self.facts.wanted.keys().filter(is_now).collect();
        let mut held: BTreeMap<Site, &Value> = BTreeMap::new();
        for object in self.facts.all(ATTACHMENTS) {
            let name = text(object, "/metadata/name");
            match site_of(object) {
                Some(site) if is_deleting(object) => faults.push((Rule::End, format!("{name} of {site:?} never goes"))),
                Some(site) if wanted.contains(&site) => drop(held.insert(site, object)),
                // Perhaps it is of a volume that a pod there waits for (spec 10).
                None if self.facts.all(PODS).any(|pod| self.is_open(pod, text(object, "/spec/nodeName"))) => {}
                site => faults.push((Rule::End, format!("{name} of {site:?} is left"))),
            }
        }
        for site in &wanted {
            let (node, volume) = site;
            let others = || held.iter().filter(|((it, other), _)| other == volume && it != node);
            let is_elsewhere = is_exclusive(volume) && others().any(|(_, it)| is_attached(it));
            let may_share = !is_exclusive(volume) || self.setting.may_share();
            match held.get(*site) {
                Some(_) if !may_share && others().next().is_some() => {
                    faults.push((Rule::End, format!("{volume} has an attachment beside that to {node}")));
                }
                Some(object) if is_attached(object) || !is_elsewhere => self.settled(site, object, &mut faults),
                None if !is_elsewhere => faults.push((Rule::I12, format!("{site:?} has no attachment"))),
                _ => {
                    let waits = |pod: &&Value| self.wants(pod, node, volume);
                    faults.extend(self.facts.all(PODS).filter(waits).filter_map(|pod| self.is_warned(pod)));
                }
            }
        }
        for node in self.facts.all(NODES) {
            let name = text(node, "/metadata/name");
            let (reports, uses) = (reported(node), used(node));
            let is_here = |((it, _), object): &(&Site, &&Value)| it == name && is_attached(object);
            let here: BTreeSet<String> = held.iter().filter(is_here).map(|((_, volume), _)| volume.clone()).collect();
            if reports != here {
                faults.push((Rule::End, format!("{name} reports {reports:?}, and there is {here:?}")));
            }
            let is_wanted = |volume: &&String| wanted.contains(&(name.to_owned(), (*volume).clone()));
            if let Some(volume) = uses.iter().find(|volume| !is_wanted(volume)) {
                faults.push((Rule::End, format!("{name} uses {volume} still")));
            }
        }
        for site in self.mounts().filter(|site| !held.contains_key(*site)) {
            faults.push((Rule::Mounted, format!("{site:?} is mounted in the end, and not attached")));
        }
        if of_waits {
            let waits = |pod: &&Value| {
                let node = text(pod, "/spec/nodeName");
                flag(&self.facts.there, node).is && self.is_open(pod, node)
            };
            faults.extend(self.facts.all(PODS).filter(waits).filter_map(|pod| self.is_warned(pod)));
        }
        faults
    }

    /// A volume that is where it is wanted is attached, reported, used and mounted.
    fn settled(&self, site: &Site, object: &Value, faults: &mut Vec<(Rule, String)>) {
        let is_mounted = self.mounted_on(&site.0).contains(&site.1);
        let [is_reported, in_use] = [&self.facts.reported, &self.facts.in_use].map(|flags| flag(flags, site).is);
        let is_attached = is_attached(object);
        if !(is_attached && is_reported && in_use && is_mounted) {
            let what = format!(
                "{site:?} is wanted: attached {is_attached}, reported {is_reported}, used {in_use}, mounted {is_mounted}"
            );
            faults.push((Rule::End, what));
        }
    }

    /// Whether it is not known yet what a pod on the node wants.
    fn is_open(&self, pod: &Value, node: &str) -> bool {
        let is_attached = |claim: &str| Claim::of(claim).is_some_and(|it| it.volume().is_some());
        let mut open = claims_of(pod).filter(|claim| is_attached(claim) && self.facts.volume(claim).is_none());
        uses_volumes(pod) && text(pod, "/spec/nodeName") == node && open.next().is_some()
    }

    fn wants(&self, pod: &Value, node: &str, volume: &str) -> bool {
        let is_of = |claim: &str| self.facts.volume(claim).as_deref() == Some(volume);
        uses_volumes(pod) && text(pod, "/spec/nodeName") == node && claims_of(pod).any(is_of)
    }

    /// What is wrong if a pod that waits has no warning.
    fn is_warned(&self, pod: &Value) -> Option<(Rule, String)> {
        let (name, uid) = (text(pod, "/metadata/name"), text(pod, "/metadata/uid"));
        (!self.warned.contains(uid)).then(|| (Rule::I12, format!("{name} waits, and is not told what for")))
    }
}

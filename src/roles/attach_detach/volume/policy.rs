//! What to do next about a volume: attach-detach spec 5, with the gates of 6 and 7. Pure.
//!
//! What is safe depends on the order of spec 7: a name is withdrawn from the status of the node, the writer confirms it with a node that
//! was read after that, the gate is asked again with this node, and only then the attachment is deleted. Each is a step of its own,
//! decided on what is known by then. The writer of the status looks at the same memory ([`super::super::node_status`]).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::roles::attach_detach::guard::Permit;
use crate::roles::attach_detach::memory::{Found, Withdrawal};
use crate::roles::kit::drive::Next;

use super::gate::{Force, Gate, gate};
use super::holders::{holders, is_candidate};
use super::news::{news, until_news};
use super::view::{Progress, Site, State, Step, View};

/// The policy.
pub fn next_step(view: &View, progress: &Progress) -> Next<Step> {
    if let Some(next) = after_failure(view, progress) {
        return next;
    }
    match view.permit {
        Permit::Yes => {}
        Permit::After(left) => return Next::Do(Step::Wait(left)),
        Permit::No => return Next::Done,
    }
    if let Some(found) = found(view) {
        return Next::Do(Step::Track(found));
    }
    if !progress.kept.is_empty() {
        return Next::Do(Step::Restore(progress.kept.clone()));
    }
    let mut plan = Plan::default();
    for (node, site) in view.sites.iter().filter(|(_, site)| site.is_managed) {
        plan.detach(view, node, site);
    }
    if !plan.restored.is_empty() {
        return Next::Do(Step::Restore(plan.restored));
    }
    if !plan.withdrawn.is_empty() {
        return Next::Do(Step::Withdraw(plan.withdrawn));
    }
    if !plan.kept.is_empty() {
        return Next::Together(plan.kept.into_iter().map(Step::Keep).collect());
    }
    // All that is detached comes before anything is attached.
    if !plan.deleted.is_empty() {
        return Next::Together(plan.deleted.into_iter().map(|(node, force)| Step::Delete(node, force)).collect());
    }
    let created: Vec<Step> = view
        .sites
        .iter()
        .filter(|(node, site)| may_create(view, node, site))
        .map(|(node, _)| node.clone())
        .map(Step::Create)
        .collect();
    if !created.is_empty() {
        return Next::Together(created);
    }
    let news = news(view);
    if !news.is_empty() {
        return Next::Do(Step::Tell(news));
    }
    plan.waits.extend(until_news(view));
    plan.waits.into_iter().min().map_or(Next::Done, |wait| Next::Do(Step::Wait(wait)))
}

/// A deletion has failed: if the attachment is live still, its name is put back, and then the attempt ends (row d of spec 7). Nothing is put
/// back that the API may still delete.
fn after_failure(view: &View, progress: &Progress) -> Option<Next<Step>> {
    let (node, failure) = progress.failed.as_ref()?;
    Some(Next::Do(match progress.is_live {
        _ if view.sites.get(node).is_some_and(Site::may_go) => Step::Fail(failure.clone()),
        None => Step::ReadAgain(node.clone()),
        Some(true) if !progress.is_restored => Step::Restore(vec![node.clone()]),
        Some(_) => Step::Fail(failure.clone()),
    }))
}

/// How far the volume is on each node, if that is not what is remembered.
fn found(view: &View) -> Option<BTreeMap<String, Found>> {
    let of = |(node, site): (&String, &Site)| {
        let phase = site.phase()?;
        Some((node.clone(), Found { uid: site.uid().into(), phase, is_reported: site.is_reported }))
    };
    let found: BTreeMap<_, _> = view.sites.iter().filter_map(of).collect();
    let is_held = |(node, found): (&String, &Found)| {
        let memory = &view.sites[node].memory;
        memory.uid == found.uid && memory.phase.is_some_and(|(held, _)| held == found.phase)
    };
    let is_known = found.iter().all(is_held) && view.remembered.iter().all(|node| found.contains_key(node));
    (!is_known).then_some(found)
}

/// What the rows about detaching say.
#[derive(Debug, Default)]
struct Plan {
    restored: Vec<String>,
    kept: Vec<String>,
    withdrawn: Vec<String>,
    deleted: Vec<(String, Option<Force>)>,
    waits: Vec<Duration>,
}

impl Plan {
    fn detach(&mut self, view: &View, node: &str, site: &Site) {
        if !matches!(site.state(), State::Pending | State::Attached) {
            return;
        }
        let withdrawal = site.withdrawal();
        // A pod wants it again (row c of spec 7).
        if site.is_wanted() {
            if site.may_go() {
                self.kept.push(node.to_owned());
            } else {
                self.restored.extend(withdrawal.map(|_| node.to_owned()));
            }
            return;
        }
        // What no watch has shown yet is deleted once one has.
        if site.attachment().is_none() {
            return;
        }
        match gate(site.standing, site.age, view.rules.force) {
            Gate::Open(_) if !view.until_detach.is_zero() => self.waits.push(view.until_detach),
            // Each attempt ends well that only asks for a withdrawal, so its queue knows nothing of failed deletions.
            Gate::Open(_) if !site.until_retry.is_zero() => self.waits.push(site.until_retry),
            Gate::Open(force) => match withdrawal {
                None => self.withdrawn.push(node.to_owned()),
                Some(Withdrawal::Confirmed) if !site.is_reported => self.deleted.push((node.to_owned(), force)),
                // The writer of the node's status wakes this volume.
                Some(_) => {}
            },
            Gate::Shut(left) => {
                match withdrawal {
                    Some(_) if site.may_go() => self.kept.push(node.to_owned()),
                    Some(_) => self.restored.push(node.to_owned()),
                    None => {}
                }
                self.waits.extend(left);
            }
        }
    }
}

/// Whether the attachment to the node is created now (rows 6, 7, 16, 17, 18 of spec 5).
fn may_create(view: &View, node: &str, site: &Site) -> bool {
    // A name that is reported without an attachment is withdrawn first (row 6).
    let Some(volume) = &view.volume else { return false };
    is_candidate(site) && !site.is_reported && (!volume.is_exclusive || holders(view, node).is_empty())
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "invariants_tests.rs"]
mod invariants;

//! Which other nodes keep an exclusive volume from a node: attach-detach spec 5, row 16, and 6. Pure.

use super::gate::Standing;
use super::multi_attach::{Hold, Holder, blocks};
use super::view::{Held, Site, State, View, seniority};

/// Whether the volume could be attached to the node, if no other node had it.
pub(super) fn is_candidate(site: &Site) -> bool {
    site.is_managed
        && site.is_wanted()
        && site.state() == State::None
        && !matches!(site.standing, Standing::Missing { .. })
}

/// Which other nodes keep an exclusive volume from this node (spec 6, and row 16 of spec 5).
pub(super) fn holders(view: &View, node: &str) -> Vec<Holder> {
    let others = || view.sites.iter().filter(|(other, _)| *other != node);
    let hold = |site: &Site| match site.state() {
        State::None | State::Clash => None,
        State::Attached => Some(Hold::Attached),
        State::Pending | State::Deleting => Some(Hold::Uncertain),
    };
    let of = |site: &Site| Holder {
        pods: site.wishers.iter().map(|wisher| wisher.pod.clone()).collect(),
        ends: !site.is_wanted() && site.is_managed,
    };
    let mut found: Vec<Holder> = others()
        .filter(|(_, site)| hold(site).is_some_and(|hold| blocks(hold, view.rules.multi_attach)))
        .map(|(_, site)| of(site))
        .collect();
    if view.has_foreign {
        found.push(Holder::default());
    }
    if found.is_empty() {
        // Nobody has it: the oldest pod goes first.
        let oldest = |site: &Site| site.wishers.first().map(seniority);
        let own = view.sites.get(node).and_then(oldest);
        let first = others().filter(|(_, site)| is_candidate(site)).min_by_key(|(_, site)| oldest(site));
        found.extend(first.filter(|(_, site)| oldest(site) < own).map(|(_, site)| of(site)));
    }
    found
}

/// Whether this exclusive volume waits for another node.
pub(super) fn waits_for(view: &View, node: &str, site: &Site) -> Vec<Holder> {
    let is_exclusive = view.volume.as_ref().is_some_and(|volume| volume.is_exclusive);
    if is_exclusive && is_candidate(site) { holders(view, node) } else { Vec::new() }
}

/// Whether the name of the attachment belongs to another volume.
pub(super) fn clashes(site: &Site) -> bool {
    matches!(site.attachment, Held::Clash(_)) && site.is_managed && site.is_wanted()
}

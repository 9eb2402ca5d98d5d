//! Each volume, snapshot and group that a driver has made has an object that names it, or is deleted; and nothing is deleted that an object
//! with Retain names. Pure.

use std::collections::BTreeSet;

use super::Objects;
use super::audit::{Kind, Object, Write};
use super::objects::History;
use super::rpc::Rpc;
use super::time::SECOND;
use super::violation::{Invariant, Violation};

/// How long Retain must have stood for certain: a controller reads the object, and then calls. In between it may change.
const READ: i64 = 2 * SECOND;

/// A kind of thing at the driver.
struct Sort {
    what: &'static str,
    create: &'static str,
    delete: &'static str,
    kind: Kind,
}

const SORTS: [Sort; 3] = [
    Sort { what: "volume", create: "CreateVolume", delete: "DeleteVolume", kind: Kind::Volume },
    Sort { what: "snapshot", create: "CreateSnapshot", delete: "DeleteSnapshot", kind: Kind::Snapshot },
    Sort { what: "group", create: "CreateVolumeGroupSnapshot", delete: "DeleteVolumeGroupSnapshot", kind: Kind::Group },
];

/// What has no owner, and what was deleted although its owner keeps it.
pub(super) fn violations(rpcs: &[&Rpc], objects: &Objects) -> Vec<Violation> {
    SORTS
        .iter()
        .flat_map(|sort| ownerless(sort, rpcs, objects).into_iter().chain(not_kept(sort, rpcs, objects)))
        .collect()
}

impl Sort {
    /// What a call is to make, by name. A snapshot's name is where the ID of others is.
    fn name<'a>(&self, rpc: &'a Rpc) -> &'a str {
        let name = if self.kind == Kind::Volume { &rpc.name } else { &rpc.snapshot };
        name.as_deref().unwrap_or_default()
    }

    /// What a call deletes, by ID.
    fn id<'a>(&self, rpc: &'a Rpc) -> Option<&'a String> {
        if self.kind == Kind::Volume { rpc.volume.as_ref() } else { rpc.snapshot.as_ref() }
    }
}

fn ownerless(sort: &Sort, rpcs: &[&Rpc], objects: &Objects) -> Vec<Violation> {
    // An object may spell an ID in other letters than the driver: then it is not deleted, either.
    let letters = |id: &String| id.to_lowercase();
    let owned: BTreeSet<String> = objects
        .of(sort.kind)
        .flat_map(|history| &history.writes)
        .filter_map(|write| write.object.as_ref()?.handle.as_ref().map(letters))
        .collect();
    let creates = || rpcs.iter().filter(|rpc| rpc.method == sort.create && !rpc.is_lie);
    let mut told = BTreeSet::new();
    let mut found = Vec::new();
    for create in creates() {
        let name = sort.name(create);
        let subject = match create.made.first() {
            Some(id) if owned.contains(&letters(id)) => continue,
            Some(id) => {
                let deletes =
                    |it: &&Rpc| it.method == sort.delete && sort.id(it) == Some(id) && it.begin >= create.begin;
                if rpcs.iter().any(deletes) {
                    continue;
                }
                format!("{} {id}", sort.what)
            }
            // The driver says that nothing was made.
            None if create.end.is_some() => continue,
            // Whoever asks again gets what was made.
            None if creates().any(|it| sort.name(it) == name && it.begin > create.begin && it.end.is_some()) => {
                continue;
            }
            None => format!("the {} that is named {name}, if it was made", sort.what),
        };
        if !is_answered_for(sort, create, objects) && told.insert(subject.clone()) {
            let why =
                "no object has named it, none stands that it is made for, nobody has deleted it, and no Event names it";
            found.push(Violation::new(Invariant::NothingOwnerless, subject, why, [create.words()]));
        }
    }
    found
}

/// Whether something stands at the end that the call was made for, so that a controller will come back to it; or was there, with Retain; or
/// whether an Event names it as left over.
fn is_answered_for(sort: &Sort, create: &Rpc, objects: &Objects) -> bool {
    let name = sort.name(create);
    let is_for = |of: &str| !of.is_empty() && name.contains(of);
    let is_told = |it: &Object| create.made.iter().map(String::as_str).chain([name]).any(|its| it.text.contains(its));
    if objects.of(Kind::Left).any(|event| event.was_ever(is_told)) {
        return true;
    }
    if sort.kind != Kind::Volume {
        let is_its = |it: &Object| it.of.as_deref().is_some_and(is_for);
        let kept = |content: &History<'_>| content.was_ever(|it| it.is_retained && is_its(it));
        return objects.of(sort.kind).any(|content| kept(content) || content.last().is_some_and(is_its));
    }
    let is_noted = objects.of(Kind::Journal).filter_map(History::last).any(|it| it.text.contains(name));
    // What csi-provisioner asks for is named by the claim.
    let claims = objects.of_any_driver(Kind::Claim).filter(|it| it.last().is_some());
    is_noted || claims.filter_map(|it| it.writes.first()).any(|it| is_for(&it.uid))
}

fn not_kept(sort: &Sort, rpcs: &[&Rpc], objects: &Objects) -> Vec<Violation> {
    let mut found = Vec::new();
    for delete in rpcs.iter().filter(|rpc| rpc.method == sort.delete) {
        let Some(id) = sort.id(delete) else { continue };
        for history in objects.of(sort.kind) {
            let keeps = |at: i64| history.was_surely(at, |it| it.is_retained && it.handle.as_ref() == Some(id));
            if keeps(delete.begin) && keeps(delete.begin - READ) {
                let told = format!("{} was called, and {:?} {} keeps it", sort.delete, sort.kind, history.name);
                let last = history.at(delete.begin).map(Write::words);
                let subject = format!("{} {id}", sort.what);
                let lines = last.chain([delete.words()]);
                found.push(Violation::new(Invariant::RetainedIsKept, subject, told, lines));
            }
        }
    }
    found
}

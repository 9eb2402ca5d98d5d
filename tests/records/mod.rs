//! The API server's audit log and the driver's record of calls, read together: whatever a test on a real control plane does, the rules of the
//! CSI specification held meanwhile.
//!
//! ```text
//! kube-apiserver ── audit.log ──> audit [pure] ──> objects over time ──┐
//!                                                                      ├──> the invariants [pure] ──> violations, in words
//! demo driver ───── rpcs.log ───> rpc [pure] ──────────────────────────┘
//! ```
//!
//! | file | invariant |
//! |---|---|
//! | `turns` | one call at a time changes a volume or a snapshot |
//! | `attaching` | no publish before the finalizers of the attachment and its volume stand; none of them off before an OK unpublish; no unpublish of what an attachment keeps |
//! | `owners` | what was made has an object that names it, or is deleted; no deletion of what an object with Retain names |
//! | `secrets` | no secret in a record or a log |
//!
//! Both records come from one machine and one clock. A call is the driver's from its begin, before any effect, to its end, before the answer
//! leaves; a write had its effect between the stamps of its request and of its answer. A rule is broken where no order of these effects
//! keeps it: so there is no false alarm. A record that ends in the middle of the work is as good as any other.

mod attaching;
mod audit;
mod objects;
mod owners;
mod rpc;
mod secrets;
#[cfg(test)]
mod tests;
mod time;
mod turns;
mod violation;
mod watched;

use std::collections::HashSet;

use audit::{Kind, Object, Write};
use csi_control_plane::roles::csi_attacher;
use objects::History;
use rpc::Rpc;
use violation::Violation;

pub(crate) use watched::{RPCS, Watched, remember_secret};

/// The objects of a driver.
struct Objects<'a> {
    all: Vec<History<'a>>,
    driver: &'a str,
    /// The finalizer of its attachments and their volumes.
    finalizer: &'a str,
}

impl<'a> Objects<'a> {
    /// Those of a kind that are the driver's.
    fn of(&self, kind: Kind) -> impl Iterator<Item = &History<'a>> {
        self.of_any_driver(kind).filter(|history| history.was_ever(|it| it.driver == self.driver))
    }

    /// Those of a kind. A volume of an in-tree plugin is another driver's by its spec.
    fn of_any_driver(&self, kind: Kind) -> impl Iterator<Item = &History<'a>> {
        self.all.iter().filter(move |history| history.kind == kind)
    }

    /// Whether an attachment or volume is for the volume of this handle.
    fn names(&self, object: &Object, handle: &str) -> bool {
        let is_it = |it: &Object| it.handle.as_deref() == Some(handle);
        let its_volume =
            |name: &str| self.of_any_driver(Kind::Volume).any(|volume| volume.name == name && volume.was_ever(is_it));
        is_it(object) || object.volume.as_deref().is_some_and(its_volume)
    }
}

/// The invariants that did not hold for a driver. `takes_pairs`: it wants an expansion and a modification together.
fn violations(driver: &str, takes_pairs: bool, writes: &[Write], rpcs: &[Rpc]) -> Vec<Violation> {
    let finalizer = csi_attacher::finalizer(driver);
    let mut rpcs: Vec<&Rpc> = rpcs.iter().filter(|rpc| rpc.driver == driver).collect();
    rpcs.sort_by_key(|rpc| (rpc.begin, rpc.line));
    let writes = concerned(driver, writes, &rpcs);
    let objects = Objects { all: objects::histories(&writes), driver, finalizer: &finalizer };
    let mut found = turns::violations(&rpcs, takes_pairs);
    found.extend(attaching::violations(&rpcs, &objects));
    found.extend(owners::violations(&rpcs, &objects));
    found
}

/// The writes to objects that are the driver's, that an attachment of it names, or that a call was made for. Others share the control plane.
fn concerned<'a>(driver: &str, writes: &'a [Write], rpcs: &[&Rpc]) -> Vec<&'a Write> {
    let own = |write: &&Write| write.object.as_ref().is_some_and(|it| it.driver == driver);
    let volume = |write: &'a Write| Some((Kind::Volume, write.object.as_ref()?.volume.as_deref()?));
    let owned = || writes.iter().filter(own);
    let objects: HashSet<(Kind, &str)> =
        owned().map(|write| (write.kind, write.name.as_str())).chain(owned().filter_map(volume)).collect();
    let names: Vec<&str> = rpcs.iter().filter_map(|rpc| rpc.name.as_deref()).collect();
    let is_asked_for = |uid: &str| !uid.is_empty() && names.iter().any(|name| name.contains(uid));
    let claims: HashSet<&str> = writes
        .iter()
        .filter(|write| write.kind == Kind::Claim && is_asked_for(&write.uid))
        .map(|write| write.name.as_str())
        .collect();
    let is_concerned = |write: &&Write| {
        objects.contains(&(write.kind, write.name.as_str()))
            || write.kind == Kind::Claim && claims.contains(write.name.as_str())
    };
    writes.iter().filter(is_concerned).collect()
}

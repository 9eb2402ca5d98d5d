//! Volumes that are provisioned and attached, among which there is nothing to do: what the sidecars of a driver hold in memory
//! together, each in a process of its own, beside one process with the roles of both. And volumes that are provisioned and then
//! attached for the first time: what one process knows of the other role's work.

use std::ops::Range;

use csi_control_plane::sandbox::driver::{Driver, Profile};
use serde_json::Value;

use super::attach::ATTACHMENTS;
use super::provision::{class, profile, settled};
use super::{Attach, Facts, Placed, Provision, There, Undo, Workload};
use crate::write::Writes;

/// Volumes that are provisioned and attached.
pub(crate) struct Both;

impl Workload for Both {
    fn facts(&self) -> Facts {
        Facts {
            name: "both",
            sidecars: &["csi-attacher", "csi-provisioner"],
            resources: Provision.facts().resources,
            leases: &["external-attacher-leader-demo-csi-example-com", "demo-csi-example-com"],
            ..Attach.facts()
        }
    }

    fn suits(&self, kind: &str) -> bool {
        ["idle", "first-attach"].contains(&kind)
    }

    fn undo(&self, name: &str, made: &str) -> Vec<Undo> {
        Attach.undo(name, made)
    }

    fn collections(&self) -> Vec<&'static str> {
        [Attach.collections(), Provision.collections()].concat()
    }

    fn ground(&self) -> Vec<Placed> {
        let mut ground = Attach.ground();
        ground.push(class());
        ground
    }

    fn before(&self, number: usize) -> Vec<There> {
        Attach.before(number)
    }

    fn object(&self, number: usize) -> Value {
        Attach.object(number)
    }

    fn settled(&self, number: usize) -> Vec<There> {
        let mut all = settled(number);
        all.extend(Attach.settled(number).into_iter().filter(|there| there.collection() == Some(ATTACHMENTS)));
        all
    }

    fn bare(&self) -> &'static [(&'static str, Writes)] {
        Attach.bare()
    }

    fn profile(&self) -> Profile {
        profile(Attach.profile())
    }

    fn seed(&self, driver: &Driver, numbers: Range<usize>) {
        Attach.seed(driver, numbers);
    }

    fn seed_done(&self, driver: &Driver, numbers: Range<usize>) {
        Provision.seed_done(driver, numbers.clone());
        Attach.seed_done(driver, numbers);
    }
}

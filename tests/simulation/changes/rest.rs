//! The checks of the end, when nothing goes wrong any more.

use std::sync::Arc;

use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::driver::{Call, Method};
use serde_json::Value;

use super::checks::{Checks, handle};
use super::invariants::Rule;
use super::objects::{
    CAPACITY, CLAIMS, COUNT, CURRENT, LEFT_ALONE, MODIFY, OF_CLASSES, OF_SIZES, RECORDED, REQUESTED, STATE, VOLUMES,
    WANTED, claim_name, conditions, size,
};
use crate::world::{DAEMONS, text};

impl Checks {
    /// The claims that the users change, with their volumes' objects.
    fn pairs_of_ours(&self) -> Vec<(String, Value, Value)> {
        let pair = |index: usize| {
            let claim = self.claims.get(&claim_name(&index.to_string()))?;
            let volume = self.volumes.get(text(claim, "/spec/volumeName"))?;
            Some((text(claim, "/metadata/name").to_owned(), claim.clone(), volume.clone()))
        };
        (0..COUNT).filter_map(pair).collect()
    }

    /// The missing parts of the claims (I13), and the remaining conditions (I15).
    pub(super) fn unrest(&self) -> Vec<(Rule, String)> {
        let mut faults = Vec::new();
        for (name, claim, _) in self.pairs_of_ours() {
            let (wanted, modify) = (text(&claim, WANTED), text(&claim, MODIFY));
            let is_sized = size(&claim, REQUESTED) <= size(&claim, CAPACITY) && text(&claim, STATE).is_empty();
            // A claim whose first class was given up keeps what was said of it.
            let is_given_up = wanted.is_empty() && modify != "InProgress";
            let is_classed = is_given_up || (text(&claim, CURRENT) == wanted && modify.is_empty());
            let left: Vec<&str> = conditions(&claim)
                .into_iter()
                .filter(|it| {
                    OF_SIZES.contains(it) || (OF_CLASSES.contains(it) && !(is_given_up && *it == OF_CLASSES[1]))
                })
                .collect();
            if !is_sized || !is_classed {
                faults.push((
                    Rule::I13,
                    format!("{name} never got what it asks for: {} {}", claim["spec"], claim["status"]),
                ));
            } else if !left.is_empty() {
                faults
                    .push((Rule::I15, format!("{name} has what it asks for, and still {left:?}: {}", claim["status"])));
            }
        }
        faults
    }

    /// Where claim, volume and driver say different things (I13).
    pub(super) fn differences(&self) -> Vec<(Rule, String)> {
        let mut faults = Vec::new();
        for (name, claim, volume) in self.pairs_of_ours() {
            let (says, recorded) = (size(&claim, CAPACITY), size(&volume, RECORDED));
            let (has, applied) = self.held.get(handle(&volume)).cloned().unwrap_or_default();
            let current = text(&claim, CURRENT);
            if says != recorded || (!self.is_node_only && recorded > has) {
                faults.push((Rule::I13, format!("{name}: {says} bytes, its volume {recorded}, the driver's {has}")));
            }
            let is_driver_true = !self.excused.contains(handle(&volume));
            if current != text(&volume, WANTED) || (is_driver_true && !current.is_empty() && current != applied) {
                let recorded = text(&volume, WANTED);
                faults.push((
                    Rule::I13,
                    format!("{name}: class {current}, its volume {recorded}, the driver's {applied}"),
                ));
            }
        }
        faults
    }

    /// What the daemons have sent to the API: nothing about what is not ours (I10), and nothing that a quota forbids.
    pub(super) fn asked(&mut self, requests: &[Entry]) {
        for entry in requests.iter().filter(|it| DAEMONS.contains(&it.user.as_str())) {
            let is_ours =
                !LEFT_ALONE.iter().any(|name| entry.name == claim_name(name) || entry.name == format!("pv-{name}"));
            let (verb, resource, name) = (entry.verb, entry.resource, &entry.name);
            if [CLAIMS, VOLUMES].contains(&resource) && !is_ours {
                self.violate(Rule::I10, format_args!("{verb} {resource} {name}, which is not ours"));
            }
            if resource == CLAIMS && verb == "patch" && entry.code == 403 {
                self.violate(Rule::Quota, format_args!("{verb} {resource} {name} is forbidden: {:?}", entry.body));
            }
        }
    }

    /// The requests to the API and the driver while there was no work.
    pub(super) fn disturbed(&mut self, requests: &[Entry], calls: &[Arc<Call>]) {
        for entry in requests.iter().filter(|it| DAEMONS.contains(&it.user.as_str())) {
            let is_write = !matches!(entry.verb, "get" | "list" | "watch") && entry.resource != "leases";
            let is_read = entry.verb == "get" && [CLAIMS, VOLUMES].contains(&entry.resource);
            if is_write || is_read || entry.resource == "pods" {
                self.violate(Rule::I14, format_args!("{} {} {}", entry.verb, entry.resource, entry.name));
            }
        }
        let works = [Method::ControllerExpandVolume, Method::ControllerModifyVolume];
        for call in calls.iter().filter(|it| works.contains(&it.method)) {
            self.violate(Rule::I14, format_args!("{} of {:?}", call.method, call.volume));
        }
    }
}

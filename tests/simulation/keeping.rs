//! Users who keep the data of their volumes, and the checks of J10: a kept volume is neither deleted nor requested
//! again, gets no new object (`deliveries` checks this), and exists in the end.

use csi_control_plane::sandbox::api::PatchBody;
use csi_control_plane::sandbox::driver::State;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use crate::invariants::Invariant;
use crate::model::Model;
use crate::play::Play;
use crate::world::{is_deleting, text};

/// How a user keeps the data of a volume, before the user deletes the claim and the volume's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The policy becomes `Retain`.
    Retain,
    /// The same, and all finalizers are taken off the volume's object.
    RetainByForce,
    /// The policy stays as it is, and all finalizers are taken off the volume's object.
    ByForce,
}

impl Play {
    /// A user keeps the data of a volume that a claim is bound to.
    pub(crate) fn keep(&self, rank: usize, how: Keep) {
        let Some((volume, handle, claim)) = self.usable(rank, how) else { return };
        let content = format!("the data of {claim} at {:.3}", self.trace.age().as_secs_f64());
        if !self.testbed.driver.change_state(|state| state.write(&handle, &content)) {
            return;
        }
        {
            let supply = &mut self.model().supply;
            supply.kept.insert(handle.clone());
            supply.contents.insert(handle, content);
        }
        let patch = |patch| drop(self.api().patch::<PersistentVolume>("", &volume, PatchBody::Merge(patch)));
        if how != Keep::ByForce {
            patch(json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
        }
        self.delete_pod(&claim.replace("data-", "pod-"));
        self.delete_claim(&claim);
        let _ = self.api().delete::<PersistentVolume>("", &volume);
        if how != Keep::Retain {
            patch(json!({ "metadata": { "finalizers": null } }));
        }
    }

    /// A volume that a claim is bound to: its object, its handle and the claim's name.
    fn usable(&self, rank: usize, how: Keep) -> Option<(String, String, String)> {
        let model = self.model();
        let is_named =
            |name: &str| model.attachments.values().any(|it| text(it, "/spec/source/persistentVolumeName") == name);
        let claim_of = |object: &Value| {
            let claim = model.supply.claims.get(text(object, "/spec/claimRef/uid"))?;
            let is_usable = text(object, "/status/phase") == "Bound" && text(claim, "/status/phase") == "Bound";
            (is_usable && !is_deleting(claim) && !is_deleting(object)).then(|| text(claim, "/metadata/name").to_owned())
        };
        // A user who uses force waits until nothing is attached any more.
        let volumes = model.made().filter(|(name, _)| how == Keep::Retain || !is_named(name));
        let mut usable: Vec<_> = volumes
            .filter_map(|(name, object)| {
                let handle = text(object, "/spec/csi/volumeHandle").to_owned();
                let at = model.created_at.get(name).copied().unwrap_or_default();
                Some((at, name.clone(), handle, claim_of(object)?))
            })
            .collect();
        usable.sort();
        // The newest one most often: its entry may still be in the journal.
        let nth = if rank.is_multiple_of(4) { rank / 4 % usable.len().max(1) } else { usable.len().saturating_sub(1) };
        let (_, volume, handle, claim) = usable.into_iter().nth(nth)?;
        Some((volume, handle, claim))
    }
}

/// A `DeleteVolume` call.
pub(crate) fn delete_arrived(model: &Model, id: u64, handle: &str) {
    if model.supply.kept.contains(handle) {
        model.trace.violate(Invariant::J10, format_args!("#{id} deletes {handle}, which a user has kept"));
    }
}

/// A `CreateVolume` call.
pub(crate) fn asked(model: &Model, id: u64, name: &str) {
    let kept = model.supply.kept.iter().find(|handle| model.supply.names.get(*handle).is_some_and(|it| it == name));
    if let Some(handle) = kept.filter(|_| !model.is_confused()) {
        model.trace.violate(Invariant::J10, format_args!("#{id} asks for {name} again: a user has kept {handle}"));
    }
}

/// What users have kept is there, and what is on it as well.
pub(crate) fn wrong(model: &Model, state: &State) -> Vec<(Invariant, String)> {
    let is_there = |handle: &str, content: &str| state.volumes().get(handle).is_some_and(|it| it.content == content);
    let lost = model.supply.contents.iter().filter(|(handle, content)| !is_there(handle, content));
    lost.map(|(handle, content)| (Invariant::J10, format!("{content} is no longer on {handle}"))).collect()
}

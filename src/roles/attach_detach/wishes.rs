//! Which volumes a pod wants on its node: attach-detach spec 3. Pure.

use std::sync::Arc;

use thiserror::Error;

use crate::cluster::{ObjectName, PersistentVolume, PersistentVolumeClaim, Pod, SmolStr, VolumeSpec};
use crate::roles::kit::memory::{Mark, Remembered};
use crate::translation::{NotServed, PodVolume, TranslationError, csi_form, pod_volume_to_csi};

use super::volume_id::VolumeId;

/// The relation of pods to the volumes that they want.
pub const WANTS: &str = "wants";

/// What an attempt to resolve a wish reads.
pub trait Facts {
    /// The claim of that name.
    fn claim(&self, name: &ObjectName) -> Option<Arc<PersistentVolumeClaim>>;
    /// The PersistentVolume of that name.
    fn volume(&self, name: &str) -> Option<Arc<PersistentVolume>>;
    /// Whether the volumes of a driver are attached at all.
    fn is_attached(&self, driver: &str) -> bool;
}

/// A volume that a pod wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The volume.
    pub id: VolumeId,
    /// The name of its PersistentVolume; `None` for an in-tree volume that the pod itself has.
    pub volume: Option<Arc<str>>,
}

/// Why it is not known yet which volume a pod wants.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unresolved {
    /// There is no claim.
    #[error("claim {0} does not exist")]
    ClaimMissing(SmolStr),
    /// The claim has no volume.
    #[error("claim {0} is not bound")]
    ClaimUnbound(SmolStr),
    /// A claim of the name of a generic ephemeral volume's is not the pod's.
    #[error("claim {0} was not made for this pod")]
    ClaimOfOther(SmolStr),
    /// The volume of the claim does not exist.
    #[error("volume {volume} of claim {claim} does not exist")]
    VolumeMissing {
        /// The claim.
        claim: SmolStr,
        /// The PersistentVolume.
        volume: String,
    },
    /// The volume of the claim is bound to another claim.
    #[error("volume {volume} is not bound to claim {claim}")]
    VolumeOfOther {
        /// The claim.
        claim: SmolStr,
        /// The PersistentVolume.
        volume: String,
    },
    /// An in-tree volume has no CSI form.
    #[error("in-tree volume {0} cannot be translated: {1}")]
    Untranslatable(SmolStr, TranslationError),
}

impl Unresolved {
    /// Whether it mostly ends by itself.
    pub fn is_passing(&self) -> bool {
        !matches!(self, Self::Untranslatable(..))
    }
}

/// What becomes of one volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// It is wanted on the pod's node.
    Wanted(Wish),
    /// Nobody attaches it: it is of no CSI driver, or of one whose volumes are not attached.
    Unattached,
    /// It is not known yet which volume that is.
    Open(Box<Unresolved>),
}

/// A pod, and what its volumes are. The default is one that wants nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodWishes {
    /// The pod.
    pub pod: Option<Arc<Pod>>,
    /// By the name of the claim, or of an in-tree volume in the pod.
    pub volumes: Vec<(SmolStr, Resolved)>,
}

impl From<Unresolved> for Resolved {
    fn from(why: Unresolved) -> Self {
        Self::Open(Box::new(why))
    }
}

impl PodWishes {
    /// What it wants.
    pub fn wanted(&self) -> impl Iterator<Item = &Wish> {
        self.volumes.iter().filter_map(|(_, resolved)| match resolved {
            Resolved::Wanted(wish) => Some(wish),
            Resolved::Unattached | Resolved::Open(_) => None,
        })
    }

    /// The volumes that it wants.
    pub fn ids(&self) -> Vec<VolumeId> {
        self.wanted().map(|wish| wish.id.clone()).collect()
    }

    /// That some of its volumes cannot be translated, for people.
    pub fn untranslatable(&self) -> Vec<String> {
        self.open().filter(|why| !why.is_passing()).map(ToString::to_string).collect()
    }

    /// What it waits for, before a volume is known.
    pub fn open(&self) -> impl Iterator<Item = &Unresolved> {
        self.volumes.iter().filter_map(|(_, resolved)| match resolved {
            Resolved::Open(why) => Some(why.as_ref()),
            Resolved::Unattached | Resolved::Wanted(_) => None,
        })
    }
}

impl Remembered for PodWishes {
    fn marks(&self) -> Vec<Mark> {
        self.wanted().map(|wish| wants(&wish.id)).collect()
    }
}

/// The mark of the pods that want a volume.
pub fn wants(id: &VolumeId) -> Mark {
    Mark(WANTS, id.name().to_owned())
}

/// Whether the pod still uses volumes on a node (rows 1, 3, 4, 5).
fn uses_volumes(pod: &Pod) -> bool {
    pod.node.is_some() && !pod.has_ended && (pod.metadata.deletion_timestamp.is_none() || pod.has_running())
}

/// What the pod's volumes are now. `before` is what they were: a wish that is no longer readable stays (row 10).
pub fn wishes(pod: &Arc<Pod>, before: &PodWishes, facts: &impl Facts) -> PodWishes {
    if !uses_volumes(pod) {
        return PodWishes::default();
    }
    let claims = pod.claims.iter().map(|claim| (claim, of_claim(pod, claim, facts)));
    let in_tree = pod.in_tree().iter().map(|(name, _)| (name, of_in_tree(pod, name, facts)));
    let stays = |name: &SmolStr, now: Resolved| match now {
        Resolved::Open(_) => {
            let held = before.volumes.iter().find(|(held, was)| held == name && matches!(was, Resolved::Wanted(_)));
            held.map_or(now, |(_, was)| was.clone())
        }
        Resolved::Wanted(_) | Resolved::Unattached => now,
    };
    let volumes: Vec<_> = claims.chain(in_tree).map(|(name, now)| (name.clone(), stays(name, now))).collect();
    if volumes.iter().all(|(_, resolved)| *resolved == Resolved::Unattached) {
        return PodWishes::default();
    }
    PodWishes { pod: Some(Arc::clone(pod)), volumes }
}

fn of_claim(pod: &Pod, name: &SmolStr, facts: &impl Facts) -> Resolved {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let Some(claim) = facts.claim(&ObjectName::namespaced(namespace, name)) else {
        return Unresolved::ClaimMissing(name.clone()).into();
    };
    let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
    let is_pods = || owners.iter().any(|it| it.controller == Some(true) && *it.uid == *pod.metadata.uid);
    if pod.is_ephemeral(name) && !is_pods() {
        return Unresolved::ClaimOfOther(name.clone()).into();
    }
    let is_bound = claim.status.phase.as_deref() == Some("Bound");
    let Some(volume_name) = claim.spec.volume_name.clone().filter(|_| is_bound) else {
        return Unresolved::ClaimUnbound(name.clone()).into();
    };
    let Some(volume) = facts.volume(&volume_name) else {
        return Unresolved::VolumeMissing { claim: name.clone(), volume: volume_name }.into();
    };
    let bound_to = volume.spec.claim_ref.as_ref().and_then(|it| it.uid.as_deref());
    if bound_to != Some(&*claim.metadata.uid) {
        return Unresolved::VolumeOfOther { claim: name.clone(), volume: volume_name }.into();
    }
    match id_of(&volume) {
        Ok(Some(id)) if facts.is_attached(id.driver()) => {
            Resolved::Wanted(Wish { id, volume: Some(Arc::clone(&volume.metadata.name)) })
        }
        Ok(_) => Resolved::Unattached,
        Err(cause) => Unresolved::Untranslatable(volume_name.into(), cause).into(),
    }
}

fn of_in_tree(pod: &Pod, name: &SmolStr, facts: &impl Facts) -> Resolved {
    match in_tree_volume(pod, name) {
        Some(Ok(volume)) => {
            let source = &volume.volume.source;
            let id = VolumeId::new(&source.driver, &source.volume_handle);
            if facts.is_attached(id.driver()) {
                Resolved::Wanted(Wish { id, volume: None })
            } else {
                Resolved::Unattached
            }
        }
        Some(Err(cause)) => Unresolved::Untranslatable(name.clone(), cause).into(),
        None => Resolved::Unattached,
    }
}

/// The in-tree volume that a pod calls `name`, in its CSI form (row 9).
pub fn in_tree_volume(pod: &Pod, name: &str) -> Option<Result<PodVolume, TranslationError>> {
    let (_, source) = pod.in_tree().iter().find(|(held, _)| held == name)?;
    Some(pod_volume_to_csi(source, name, pod.metadata.namespace.as_deref()))
}

/// Which volume a PersistentVolume is; `None` if it is of no CSI driver.
pub fn id_of(volume: &PersistentVolume) -> Result<Option<VolumeId>, TranslationError> {
    if let Some((driver, handle)) = csi_of(volume) {
        return Ok(Some(VolumeId::new(driver, handle)));
    }
    let Some(driver) = volume.served_by() else { return Ok(None) };
    let of_spec = |spec: &VolumeSpec| spec.csi.as_ref().map(|csi| VolumeId::new(&csi.driver, &csi.volume_handle));
    match csi_form(volume, driver) {
        Ok(spec) => Ok(of_spec(&spec)),
        Err(NotServed::Untranslatable(cause)) => Err(cause),
        Err(NotServed::NotCsi | NotServed::OtherDriver(_)) => Ok(None),
    }
}

/// Whether a PersistentVolume is this volume.
pub fn is_volume(volume: &PersistentVolume, id: &VolumeId) -> bool {
    match csi_of(volume) {
        Some((driver, handle)) => id.driver() == driver && id.handle() == handle,
        None => matches!(id_of(volume), Ok(Some(other)) if other == *id),
    }
}

/// Driver and handle of a PersistentVolume of a CSI driver. One of an in-tree plugin has them only in its CSI form.
fn csi_of(volume: &PersistentVolume) -> Option<(&str, &str)> {
    let spec = &volume.spec;
    let foreign = spec.foreign_driver.as_deref().zip(spec.foreign_handle.as_deref());
    foreign.or_else(|| spec.csi.as_ref().map(|csi| (csi.driver.as_str(), csi.volume_handle.as_str())))
}

/// The access modes of a PersistentVolume: an in-tree volume's are those of its CSI form.
pub fn modes_of(volume: &PersistentVolume) -> Box<[SmolStr]> {
    let served = volume.served_by().and_then(|driver| csi_form(volume, driver).ok());
    served.map_or_else(|| volume.spec.access_modes.clone(), |spec| spec.access_modes.clone())
}

#[cfg(test)]
#[path = "wishes_tests.rs"]
mod tests;

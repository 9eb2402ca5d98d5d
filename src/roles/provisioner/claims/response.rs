//! Checks the driver's answer to `CreateVolume`. Pure.
//!
//! The daemon deletes a volume that cannot be stored, is too small, does not have the requested source, or is not accessible; the
//! error says so ([`ResponseError::must_delete`]). The claim's entry stays in the journal until the volume is deleted.

use thiserror::Error;

use super::request::Request;
use super::volume::{Created, persistent_volume};
use crate::proto::{self, CreateVolumeResponse};
use crate::roles::provisioner::topology::{AffinityError, Requirement, Segment, affinity};
use crate::translation::TranslationError;

/// With more bytes than this in the volume's ID, attributes and segments, the API would refuse the PersistentVolume on every attempt:
/// etcd takes 1.5 MiB.
const MOST_BYTES: usize = 1 << 20;

/// Why no PersistentVolume can be made from an answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResponseError {
    /// Success without a volume.
    #[error("the driver answered CreateVolume with success and without a volume: its answer must have one")]
    NoVolume,
    /// A volume without an ID.
    #[error("the driver answered CreateVolume with a volume without an id")]
    NoId,
    /// Too small.
    #[error("the driver created volume {id} with {created} bytes: at least {requested} were requested")]
    TooSmall {
        /// The volume.
        id: String,
        /// Its size.
        created: i64,
        /// The requested size.
        requested: i64,
    },
    /// The answer does not name the requested source.
    #[error(
        "the driver's answer does not say that volume {0} was made from the requested content source: it would be empty, \
         and the driver may not support content sources"
    )]
    SourceIgnored(String),
    /// Not accessible from any segment.
    #[error("volume {id} can't be reached from anywhere")]
    Nowhere {
        /// The volume.
        id: String,
        /// Why.
        source: AffinityError,
    },
    /// Not in a requested segment.
    #[error("the driver created volume {id} in {found}: expected one of {wanted}")]
    Elsewhere {
        /// The volume.
        id: String,
        /// Where it is.
        found: String,
        /// Where it should be.
        wanted: String,
    },
    /// The class belongs to an in-tree plugin, and the volume has no form as a volume of the plugin (migration spec 10, row 7).
    #[error("volume {id} can't be stored as a volume of the in-tree plugin that its class names")]
    NoInTreeForm {
        /// The volume.
        id: String,
        /// Why.
        source: TranslationError,
    },
    /// Too large for a PersistentVolume.
    #[error(
        "the id, attributes and topologies of the created volume have {0} bytes: a PersistentVolume holds {MOST_BYTES} of \
         them at most"
    )]
    TooMuch(usize),
}

impl ResponseError {
    /// Whether the answer has a volume with an ID, which must be deleted again.
    pub fn must_delete(&self) -> bool {
        !matches!(self, Self::NoVolume | Self::NoId)
    }

    /// A word for metrics.
    pub fn label(&self) -> &'static str {
        match self {
            Self::NoVolume => "NoVolume",
            Self::NoId => "NoVolumeId",
            Self::TooSmall { .. } => "VolumeTooSmall",
            Self::SourceIgnored(_) => "ContentSourceIgnored",
            Self::Nowhere { .. } | Self::Elsewhere { .. } => "Topology",
            Self::NoInTreeForm { .. } => "Translation",
            Self::TooMuch(_) => "VolumeTooMuch",
        }
    }

    /// What is wrong, without the parts that differ in each answer: IDs, sizes, segments.
    pub fn gist(&self) -> &'static str {
        match self {
            Self::Nowhere { .. } => "nowhere",
            Self::Elsewhere { .. } => "elsewhere",
            _ => self.label(),
        }
    }
}

/// Reads the answer to `request`.
///
/// A content source with another ID than the requested one is accepted: some drivers answer with another form of the ID.
pub fn check_response(request: &Request, response: &CreateVolumeResponse) -> Result<Created, ResponseError> {
    let volume = response.volume.as_ref().ok_or(ResponseError::NoVolume)?;
    if volume.volume_id.is_empty() {
        return Err(ResponseError::NoId);
    }
    let (id, requested) = (volume.volume_id.clone(), request.required_bytes);
    let capacity_bytes = if volume.capacity_bytes == 0 { requested } else { volume.capacity_bytes };
    if capacity_bytes < requested || capacity_bytes < 0 {
        return Err(ResponseError::TooSmall { id, created: capacity_bytes, requested });
    }
    if request.content_source.is_some() && volume.content_source.is_none() {
        return Err(ResponseError::SourceIgnored(id));
    }
    let size = size_of(volume);
    if size > MOST_BYTES {
        return Err(ResponseError::TooMuch(size));
    }
    let places = if request.plan.topology {
        affinity(&volume.accessible_topology).map_err(|source| ResponseError::Nowhere { id: id.clone(), source })?
    } else {
        None
    };
    if let (Some(wanted), Some(found)) = (&request.requirement, &places)
        && !may_be_reached(wanted, found)
    {
        let (found, wanted) = (listed(found), listed(&wanted.requisite));
        return Err(ResponseError::Elsewhere { id, found, wanted });
    }
    let context = volume.volume_context.clone().into_iter().collect();
    let created = Created { volume_id: id, capacity_bytes, context, affinity: places };
    // Found out here and not when it is stored: a volume that cannot be stored is deleted.
    if request.plan.in_tree {
        let stored = persistent_volume(&request.plan, &created, "", &[]);
        stored.map_err(|source| ResponseError::NoInTreeForm { id: created.volume_id.clone(), source })?;
    }
    Ok(created)
}

fn size_of(volume: &proto::Volume) -> usize {
    let pairs = |size: usize, (key, value): (&String, &String)| size + key.len() + value.len();
    let places = volume.accessible_topology.iter().flat_map(|topology| &topology.segments);
    volume.volume_id.len() + volume.volume_context.iter().fold(0, pairs) + places.fold(0, pairs)
}

/// Whether a segment of the answer agrees with a requested one. Drivers answer with more keys than requested, with fewer, and with
/// others. Only another value for the same key is certainly another place.
fn may_be_reached(wanted: &Requirement, found: &[Segment]) -> bool {
    let agree =
        |one: &Segment, other: &Segment| one.pairs().all(|(key, value)| other.get(key).is_none_or(|at| at == value));
    wanted.requisite.is_empty() || found.iter().any(|place| wanted.requisite.iter().any(|term| agree(place, term)))
}

/// The first segments as text, and the number of the others.
fn listed(places: &[Segment]) -> String {
    const SHOWN: usize = 5;
    let mut text = places.iter().take(SHOWN).map(|place| format!("({place})")).collect::<Vec<_>>().join(", ");
    if places.len() > SHOWN {
        text = format!("{text} and {} more", places.len() - SHOWN);
    }
    text
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;

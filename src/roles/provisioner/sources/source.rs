//! What a new volume is to be created from, and whether that is possible now. Pure.
//!
//! | kind | group | is |
//! |---|---|---|
//! | `VolumeSnapshot` | `snapshot.storage.k8s.io` | a restore |
//! | `VolumeSnapshot` | none | a mistake: the core group has no snapshots |
//! | `PersistentVolumeClaim` | any | a clone |
//! | anything else | any | a populator's work: no volume of ours |
//!
//! A source of another namespace needs the configuration's permission and a grant there, whatever its kind: a claim is
//! left to a populator only after that.
//!
//! If a claim names a source that is not available, the claim waits; it never gets an empty volume. Each error says
//! what the claim waits for. A change there wakes the claim, or, if nothing watches there, the claim soon looks again.
//!
//! A source that is being deleted is refused, unless it has our finalizer. Then the driver may have begun to copy the
//! source, only its final answer ends the protection, and a refusal would wait for ever.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cluster::{
    ClaimSpec, DataSource, PersistentVolume, PersistentVolumeClaim, ReferenceGrant, VolumeSnapshot,
    VolumeSnapshotContent, quantity,
};
use crate::proto;
use crate::proto::volume_content_source::{self, SnapshotSource, VolumeSource};
use crate::roles::provisioner::names::{ANNOTATION_ALLOW_MODE_CHANGE, FINALIZER_CLONING, FINALIZER_SNAPSHOT_SOURCE};
use crate::translation::csi_form;

mod fault;

pub use fault::{Problem, SourceError, SourceFault, WaitsFor};

/// The API group of snapshots.
pub const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";
const SNAPSHOT: &str = "VolumeSnapshot";
const CLAIM: &str = "PersistentVolumeClaim";

/// What a claim's volume is to be created from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// Nothing: an empty volume.
    None,
    /// A snapshot.
    Snapshot {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Another claim's volume.
    Claim {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// An object from which another program fills the volume.
    Populator {
        /// Its API group; empty for the core group.
        group: String,
        /// Its kind.
        kind: String,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

impl Source {
    /// The kind, for metrics: empty for an empty volume, and one word for all kinds that populators serve, because
    /// their names are free text.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "",
            Self::Snapshot { .. } => SNAPSHOT,
            Self::Claim { .. } => CLAIM,
            Self::Populator { .. } => "populator",
        }
    }

    /// The source, if it is in another namespace than the claim: then it needs a grant.
    pub fn foreign_namespace(&self, own: &str) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Snapshot { namespace, .. } | Self::Claim { namespace, .. } | Self::Populator { namespace, .. } => {
                (namespace != own).then_some(namespace)
            }
        }
    }
}

/// A kind that a populator serves, with its group, as people write it.
pub fn kind_of_group(kind: &str, group: &str) -> String {
    if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") }
}

/// The source in the driver's terms.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContentSource {
    /// By the snapshot's handle.
    Snapshot(String),
    /// By the volume's handle.
    Volume(String),
}

impl ContentSource {
    /// The source in a CSI request.
    pub fn to_proto(&self) -> proto::VolumeContentSource {
        let kind = match self {
            Self::Snapshot(id) => volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id: id.clone() }),
            Self::Volume(id) => volume_content_source::Type::Volume(VolumeSource { volume_id: id.clone() }),
        };
        proto::VolumeContentSource { r#type: Some(kind) }
    }
}

/// The source that a claim in `namespace` names. `dataSource` wins over `dataSourceRef`.
pub fn normalise(spec: &ClaimSpec, namespace: &str, cross_namespace: bool) -> Result<Source, SourceError> {
    let fail = |fault| SourceError { fault: Box::new(fault), waits_for: WaitsFor::Claim };
    let (source, elsewhere) = match (&spec.data_source, &spec.data_source_ref) {
        (Some(source), _) => (source, None),
        // An empty namespace is the claim's own.
        (None, Some(source)) => (source, source.namespace.as_deref().filter(|other| !other.is_empty())),
        (None, None) => return Ok(Source::None),
    };
    let DataSource { api_group, kind, name, .. } = source.as_ref();
    let group = api_group.as_deref().unwrap_or_default();
    if name.is_empty() {
        return Err(fail(SourceFault::NoName(kind.clone())));
    }
    let (name, is_snapshot) = (name.clone(), kind == SNAPSHOT && group == SNAPSHOT_GROUP);
    if kind == SNAPSHOT && group.is_empty() {
        return Err(fail(SourceFault::WrongGroup(name)));
    }
    if let Some(elsewhere) = elsewhere.filter(|_| !cross_namespace) {
        return Err(fail(SourceFault::CrossNamespaceOff(elsewhere.to_owned())));
    }
    let namespace = elsewhere.unwrap_or(namespace).to_owned();
    Ok(match kind.as_str() {
        _ if is_snapshot => Source::Snapshot { namespace, name },
        CLAIM => Source::Claim { namespace, name },
        _ => Source::Populator { group: group.to_owned(), kind: kind.clone(), namespace, name },
    })
}

/// Whether the namespace of a source lets claims of `from` use it. `grants`: those of the source's namespace; others do
/// not count. A source in the claim's own namespace needs no grant.
pub fn check_grants(grants: &[ReferenceGrant], from: &str, source: &Source) -> Result<(), SourceError> {
    let (group, kind, namespace, name) = match source {
        Source::Snapshot { namespace, name } => (SNAPSHOT_GROUP, SNAPSHOT, namespace, name),
        Source::Claim { namespace, name } => ("", CLAIM, namespace, name),
        Source::Populator { group, kind, namespace, name } => (group.as_str(), kind.as_str(), namespace, name),
        Source::None => return Ok(()),
    };
    if namespace == from || grants.iter().any(|grant| grants_use(grant, from, (group, kind, namespace, name))) {
        return Ok(());
    }
    let kind = match source {
        Source::Populator { .. } => kind_of_group(kind, group),
        _ => kind.to_owned(),
    };
    let (namespace, name) = (namespace.clone(), name.clone());
    Err(SourceError {
        fault: Box::new(SourceFault::NotGranted { kind, namespace, name, from: from.to_owned() }),
        waits_for: WaitsFor::Grant,
    })
}

fn grants_use(grant: &ReferenceGrant, from: &str, (group, kind, namespace, name): (&str, &str, &str, &str)) -> bool {
    grant.metadata.namespace.as_deref() == Some(namespace)
        && grant.from.iter().any(|one| one.group.is_empty() && one.kind == CLAIM && one.namespace == from)
        && grant.to.iter().any(|one| {
            let named = one.name.as_deref().filter(|named| !named.is_empty());
            one.group == group && one.kind == kind && named.is_none_or(|named| named == name)
        })
}

/// What a source must agree with.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The claim.
    pub claim: &'a PersistentVolumeClaim,
    /// Our driver.
    pub driver: &'a str,
    /// Whether another volume mode than the source's needs permission.
    pub prevent_mode_conversion: bool,
}

impl Wanted<'_> {
    fn bytes(&self) -> i64 {
        // An unreadable size is reported where the request is built.
        self.claim.spec.storage.as_deref().and_then(|text| quantity::bytes(text).ok()).unwrap_or(0)
    }

    /// Checks that the claim requests at least the source's size, if that is known.
    fn fits(&self, field: &'static str, text: Option<&str>) -> Result<(), Problem> {
        let Some(text) = text else { return Ok(()) };
        let size = quantity::bytes(text).map_err(|error| Problem::Size { field, error })?;
        let requested = self.bytes();
        if requested < size { Err(Problem::TooLarge { size, field, requested }) } else { Ok(()) }
    }
}

fn mode(text: Option<&str>) -> &str {
    text.filter(|text| !text.is_empty()).unwrap_or("Filesystem")
}

fn equal(field: &'static str, found: impl fmt::Display, expected: impl fmt::Display) -> Result<(), Problem> {
    let (found, expected) = (found.to_string(), expected.to_string());
    if found == expected { Ok(()) } else { Err(Problem::Differs { field, found, expected }) }
}

fn is_true(text: &str) -> bool {
    // The values that Go's strconv.ParseBool accepts.
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// The error about an object to which a source of this kind and name leads.
fn at_object(kind: &'static str, name: &str, object: String, problem: Problem) -> SourceFault {
    SourceFault::Object { kind, name: name.to_owned(), object, problem }
}

/// The snapshot's handle, if the snapshot can be restored. Read both objects from the API: the cache may not show a
/// deletion yet. `content` is the content that `snapshot` names.
pub fn check_snapshot(
    wanted: &Wanted<'_>,
    (namespace, name): (&str, &str),
    snapshot: Option<&VolumeSnapshot>,
    content: Option<&VolumeSnapshotContent>,
) -> Result<ContentSource, SourceError> {
    let at_snapshot = |problem| SourceError {
        fault: Box::new(at_object(SNAPSHOT, name, format!("{SNAPSHOT} {namespace}/{name}"), problem)),
        waits_for: WaitsFor::Snapshot,
    };
    let snapshot = snapshot.ok_or_else(|| at_snapshot(Problem::Missing))?;
    let (meta, status) = (&snapshot.metadata, &snapshot.status);
    if meta.deletion_timestamp.is_some() && !meta.has_finalizer(FINALIZER_SNAPSHOT_SOURCE) {
        return Err(at_snapshot(Problem::Deleting));
    }
    let bound =
        bound_content(snapshot).ok_or_else(|| at_snapshot(Problem::Lacks("status.boundVolumeSnapshotContentName")))?;
    let at_content = |problem| SourceError {
        fault: Box::new(at_object(SNAPSHOT, name, format!("VolumeSnapshotContent {bound}"), problem)),
        waits_for: WaitsFor::Content,
    };
    let content = content.ok_or_else(|| at_content(Problem::Missing))?;
    let back = &content.snapshot_ref;
    equal("spec.volumeSnapshotRef.uid", &back.uid, &meta.uid)
        .and_then(|()| equal("spec.volumeSnapshotRef.namespace", &back.namespace, namespace))
        .and_then(|()| equal("spec.volumeSnapshotRef.name", &back.name, name))
        .and_then(|()| equal("spec.driver", &content.driver, wanted.driver))
        .map_err(at_content)?;
    if status.ready_to_use != Some(true) {
        return Err(at_snapshot(Problem::Differs {
            field: "status.readyToUse",
            found: status.ready_to_use.map_or_else(|| "unset".to_owned(), |ready| ready.to_string()),
            expected: "true".to_owned(),
        }));
    }
    let handle = content.snapshot_handle.as_deref().filter(|handle| !handle.is_empty());
    let handle = handle.ok_or_else(|| at_content(Problem::Lacks("status.snapshotHandle")))?;
    wanted.fits("status.restoreSize", status.restore_size.as_deref()).map_err(at_snapshot)?;
    let (from, to) = (content.source_volume_mode.as_deref(), mode(wanted.claim.spec.volume_mode.as_deref()));
    if let Some(from) = from.filter(|from| wanted.prevent_mode_conversion && *from != to) {
        let leave = content.metadata.annotation(ANNOTATION_ALLOW_MODE_CHANGE);
        if !leave.is_some_and(is_true) {
            return Err(at_content(Problem::ModeChange { from: from.to_owned(), to: to.to_owned() }));
        }
    }
    Ok(ContentSource::Snapshot(handle.to_owned()))
}

/// The name of the content that a snapshot is bound to.
pub fn bound_content(snapshot: &VolumeSnapshot) -> Option<&str> {
    snapshot.status.bound_content.as_deref().filter(|bound| !bound.is_empty())
}

/// The source volume's handle, if the volume can be cloned. `volume` is the PersistentVolume that `source` names, read
/// from the API.
pub fn check_clone(
    wanted: &Wanted<'_>,
    (namespace, name): (&str, &str),
    source: Option<&PersistentVolumeClaim>,
    volume: Option<&PersistentVolume>,
) -> Result<ContentSource, SourceError> {
    let at_source = |problem| SourceError {
        fault: Box::new(at_object(CLAIM, name, format!("{CLAIM} {namespace}/{name}"), problem)),
        waits_for: WaitsFor::Source,
    };
    let source = source.ok_or_else(|| at_source(Problem::Missing))?;
    let (meta, spec) = (&source.metadata, &source.spec);
    if meta.deletion_timestamp.is_some() && !meta.has_finalizer(FINALIZER_CLONING) {
        return Err(at_source(Problem::Deleting));
    }
    equal("status.phase", source.status.phase.as_deref().unwrap_or("unset"), "Bound").map_err(at_source)?;
    if source.class_name().is_none() {
        return Err(at_source(Problem::Lacks("spec.storageClassName")));
    }
    wanted.fits("spec.resources.requests.storage", spec.storage.as_deref()).map_err(at_source)?;
    let held = spec.volume_name.as_deref().filter(|held| !held.is_empty());
    let held = held.ok_or_else(|| at_source(Problem::Lacks("spec.volumeName")))?;
    let at_volume = |problem| SourceError {
        fault: Box::new(at_object(CLAIM, name, format!("PersistentVolume {held}"), problem)),
        waits_for: WaitsFor::Volume,
    };
    let volume = volume.ok_or_else(|| at_volume(Problem::Missing))?;
    // An in-tree volume that our driver has taken over can be cloned, too.
    let form = csi_form(volume, wanted.driver).ok();
    let csi = match (form.as_ref().and_then(|form| form.csi.as_deref()), &volume.spec.foreign_driver) {
        (Some(csi), _) => equal("spec.csi.driver", &csi.driver, wanted.driver).map(|()| csi),
        (None, Some(foreign)) => equal("spec.csi.driver", foreign, wanted.driver).and(Err(Problem::Lacks("spec.csi"))),
        (None, None) => Err(Problem::Differs {
            field: "a source",
            found: "that is not CSI".to_owned(),
            expected: format!("a volume of driver {}", wanted.driver),
        }),
    };
    let csi = csi.map_err(at_volume)?;
    let back = volume.spec.claim_ref.as_deref().ok_or_else(|| at_volume(Problem::Lacks("spec.claimRef")))?;
    equal("spec.claimRef.uid", back.uid.as_deref().unwrap_or("unset"), &meta.uid)
        .and_then(|()| equal("spec.claimRef.namespace", &back.namespace, namespace))
        .and_then(|()| equal("spec.claimRef.name", &back.name, name))
        .and_then(|()| equal("status.phase", volume.phase.as_deref().unwrap_or("unset"), "Bound"))
        .map_err(at_volume)?;
    equal("spec.volumeMode", mode(spec.volume_mode.as_deref()), mode(wanted.claim.spec.volume_mode.as_deref()))
        .map_err(at_source)?;
    Ok(ContentSource::Volume(csi.volume_handle.clone()))
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;

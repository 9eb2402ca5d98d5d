//! How much is known about a claim's data source: the next request, or the source itself. Pure.
//!
//! Everything is read from the API, because a cache may not show a deletion yet. The finalizer comes last, once nothing
//! else is in the way: an unusable source is not kept.

use crate::cluster::{PersistentVolume, PersistentVolumeClaim, ReferenceGrant, VolumeSnapshot, VolumeSnapshotContent};

use crate::csi::VolumeLock;

use super::source::{
    ContentSource, Source, SourceError, Wanted, bound_content, check_clone, check_grants, check_snapshot, kind_of_group,
};

/// The status of the claim's data source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceStatus {
    /// The claim has no source, or the source is read and protected.
    Stores,
    /// An object of the source must be read or written first.
    Step(SourceStep),
    /// A volume populator creates and fills the volume.
    Populator(String),
}

/// One request that a data source needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceStep {
    /// List the grants of a namespace.
    ListGrants(String),
    /// Read the snapshot.
    GetSnapshot,
    /// Read the content behind the snapshot.
    GetContent(String),
    /// Read the source claim.
    GetClaim,
    /// Read the volume behind the source claim.
    GetVolume(String),
    /// Lock the source: its finalizer is about to be added.
    Lock,
    /// Add the protection finalizer to the source.
    Protect,
}

/// What one attempt has read about a source. An inner `None`: it was looked for, and does not exist.
#[derive(Debug, Default)]
pub struct SourceObjects {
    /// The grants of its namespace.
    pub grants: Option<Vec<ReferenceGrant>>,
    /// The snapshot.
    pub snapshot: Option<Option<VolumeSnapshot>>,
    /// The content of the snapshot.
    pub content: Option<Option<VolumeSnapshotContent>>,
    /// The source claim.
    pub claim: Option<Option<PersistentVolumeClaim>>,
    /// The volume of the source claim.
    pub volume: Option<Option<PersistentVolume>>,
    /// The source's lock, from before its finalizer is added until that is done.
    pub lock: Option<VolumeLock>,
    /// Whether the source has the finalizer that keeps it meanwhile.
    pub protected: bool,
}

impl SourceObjects {
    /// Whether anything was read. It is as old as that.
    pub fn is_read(&self) -> bool {
        let of_snapshot = self.snapshot.is_some() || self.content.is_some();
        self.grants.is_some() || of_snapshot || self.claim.is_some() || self.volume.is_some()
    }

    /// The source must be read again.
    pub fn forget(&mut self) {
        (self.snapshot, self.content, self.claim, self.volume) = (None, None, None, None);
    }

    /// The source is kept, or need not be.
    pub fn protect(&mut self) {
        (self.protected, self.lock) = (true, None);
    }
}

/// How much is known about the source, or why it cannot be used now.
pub fn status(
    source: &Result<Source, SourceError>,
    own: &str,
    wanted: &Wanted<'_>,
    found: &SourceObjects,
) -> Result<SourceStatus, SourceError> {
    let source = source.as_ref().map_err(Clone::clone)?;
    if let Some(namespace) = source.foreign_namespace(own) {
        match &found.grants {
            None => return Ok(SourceStatus::Step(SourceStep::ListGrants(namespace.to_owned()))),
            Some(grants) => check_grants(grants, own, source)?,
        }
    }
    match source {
        Source::None => return Ok(SourceStatus::Stores),
        Source::Populator { group, kind, name, .. } => {
            return Ok(SourceStatus::Populator(format!("{} \"{name}\"", kind_of_group(kind, group))));
        }
        Source::Snapshot { .. } => {
            let Some(snapshot) = &found.snapshot else { return Ok(SourceStatus::Step(SourceStep::GetSnapshot)) };
            if let (Some(bound), None) = (snapshot.as_ref().and_then(bound_content), &found.content) {
                return Ok(SourceStatus::Step(SourceStep::GetContent(bound.to_owned())));
            }
        }
        Source::Claim { .. } => {
            let Some(claim) = &found.claim else { return Ok(SourceStatus::Step(SourceStep::GetClaim)) };
            let held =
                claim.as_ref().and_then(|claim| claim.spec.volume_name.as_deref()).filter(|held| !held.is_empty());
            if let (Some(held), None) = (held, &found.volume) {
                return Ok(SourceStatus::Step(SourceStep::GetVolume(held.to_owned())));
            }
        }
    }
    content(source, wanted, found)?;
    Ok(match (found.protected, &found.lock) {
        (true, _) => SourceStatus::Stores,
        (false, None) => SourceStatus::Step(SourceStep::Lock),
        (false, Some(_)) => SourceStatus::Step(SourceStep::Protect),
    })
}

/// The source in the driver's terms, from what was read.
pub fn content(
    source: &Source,
    wanted: &Wanted<'_>,
    found: &SourceObjects,
) -> Result<Option<ContentSource>, SourceError> {
    match source {
        Source::None | Source::Populator { .. } => Ok(None),
        Source::Snapshot { namespace, name } => {
            let snapshot = found.snapshot.as_ref().and_then(Option::as_ref);
            let content = found.content.as_ref().and_then(Option::as_ref);
            check_snapshot(wanted, (namespace, name), snapshot, content).map(Some)
        }
        Source::Claim { namespace, name } => {
            let claim = found.claim.as_ref().and_then(Option::as_ref);
            let volume = found.volume.as_ref().and_then(Option::as_ref);
            check_clone(wanted, (namespace, name), claim, volume).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::roles::provisioner::fixtures::{DRIVER, claim};

    #[test]
    fn what_a_populator_serves_in_another_namespace_is_left_to_it_once_that_has_agreed() {
        let (claim, claims) = (claim(json!({})), json!({"group": "", "kind": "PersistentVolumeClaim"}));
        let wanted = Wanted { claim: &claim, driver: DRIVER, prevent_mode_conversion: true };
        let dump = |namespace: &str| {
            let (group, kind, name) = ("x.io".to_owned(), "Dump".to_owned(), "monday".to_owned());
            Ok(Source::Populator { group, kind, namespace: namespace.to_owned(), name })
        };
        let granting = |to: serde_json::Value| SourceObjects {
            grants: Some(vec![
                serde_json::from_value(json!({"metadata": {"namespace": "far"}, "spec": {
                    "from": [{"group": "", "kind": "PersistentVolumeClaim", "namespace": "shop"}], "to": [to]}}))
                .unwrap(),
            ]),
            ..SourceObjects::default()
        };
        let left = Ok(SourceStatus::Populator("Dump.x.io \"monday\"".to_owned()));
        let look = |source, found: &SourceObjects| status(&source, "shop", &wanted, found);
        assert_eq!(look(dump("shop"), &SourceObjects::default()), left, "its own namespace needs no grant");
        assert_eq!(
            look(dump("far"), &SourceObjects::default()),
            Ok(SourceStatus::Step(SourceStep::ListGrants("far".to_owned())))
        );
        assert_eq!(look(dump("far"), &granting(json!({"group": "x.io", "kind": "Dump"}))), left);
        for found in [granting(claims), SourceObjects { grants: Some(Vec::new()), ..SourceObjects::default() }] {
            let error = look(dump("far"), &found).unwrap_err();
            assert!(error.to_string().contains("no ReferenceGrant in namespace far"), "{error}");
        }
    }
}

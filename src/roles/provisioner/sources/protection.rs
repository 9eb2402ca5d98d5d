//! Which data sources are still needed, and by which claims. Pure.
//!
//! A claim of our driver uses the source that it names while it may still be provisioned: it has no volume, or its
//! volume was begun, whatever became of the claim since. A claim of another namespace counts once a grant was found for
//! it. The finalizer is removed with the last user (spec 3.4 and 3.5: the Go sidecar removes a snapshot's with the
//! first user, and a claim's only once the claim is being deleted).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cluster::names::FINALIZER_CLONING;
use crate::cluster::{DataSource, ObjectName, PersistentVolumeClaim, SmolStr};

use super::source::{SNAPSHOT_GROUP, Source};
use crate::roles::provisioner::claim::{Owner, owner_of};
use crate::roles::provisioner::names::FINALIZER_SNAPSHOT_SOURCE;

/// The kinds of sources that we protect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SourceKind {
    /// Another claim's volume.
    #[serde(rename = "PersistentVolumeClaim")]
    Claim,
    /// A snapshot.
    #[serde(rename = "VolumeSnapshot")]
    Snapshot,
}

/// One data source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey {
    /// Its kind.
    pub kind: SourceKind,
    /// Its namespace and name.
    pub name: ObjectName,
}

impl SourceKind {
    /// The kind's name in a claim.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "PersistentVolumeClaim",
            Self::Snapshot => "VolumeSnapshot",
        }
    }

    /// Its API group, if it is not the core group.
    pub fn group(self) -> Option<&'static str> {
        (self == Self::Snapshot).then_some(SNAPSHOT_GROUP)
    }

    /// The finalizer that protects a source of this kind.
    pub fn finalizer(self) -> &'static str {
        match self {
            Self::Claim => FINALIZER_CLONING,
            Self::Snapshot => FINALIZER_SNAPSHOT_SOURCE,
        }
    }
}

impl fmt::Display for SourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), self.name)
    }
}

impl SourceKey {
    /// The source that a claim names, whether or not the claim may use it.
    pub fn of(claim: &PersistentVolumeClaim) -> Option<Self> {
        let own = claim.metadata.namespace.as_deref().unwrap_or_default();
        let source = claim.spec.data_source.as_ref().or(claim.spec.data_source_ref.as_ref())?;
        Self::named(source, own)
    }

    /// The source that a claim's volume is to be created from, if we protect its kind.
    pub fn of_source(source: &Source) -> Option<Self> {
        let (kind, namespace, name) = match source {
            Source::Claim { namespace, name } => (SourceKind::Claim, namespace, name),
            Source::Snapshot { namespace, name } => (SourceKind::Snapshot, namespace, name),
            Source::None | Source::Populator { .. } => return None,
        };
        Some(Self { kind, name: ObjectName::namespaced(namespace, name) })
    }

    fn named(source: &DataSource, own: &str) -> Option<Self> {
        let kind = [SourceKind::Claim, SourceKind::Snapshot].into_iter().find(|kind| kind.as_str() == source.kind)?;
        if kind == SourceKind::Snapshot && source.api_group.as_deref().is_some_and(|group| group != SNAPSHOT_GROUP) {
            // Another API group has a kind of the same name: a populator serves it.
            return None;
        }
        let namespace = source.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or(own);
        Some(Self { kind, name: ObjectName::namespaced(namespace, &source.name) })
    }

    /// The source that [`Display`](fmt::Display) has written so.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(' ')?;
        let kind = [SourceKind::Claim, SourceKind::Snapshot].into_iter().find(|it| it.as_str() == kind)?;
        let (namespace, name) = name.split_once('/')?;
        Some(Self { kind, name: ObjectName::namespaced(namespace, name) })
    }

    /// The key of the index of claims by source.
    pub fn index_value(&self) -> String {
        format!("{}/{}/{}", self.name.namespace().unwrap_or_default(), self.kind.as_str(), self.name.name())
    }
}

/// Whether a claim still needs the source that it names. `begun`: the driver may have been called for it. `admitted`:
/// the source's namespace has granted it, which matters only for another namespace than the claim's, because any claim
/// may name any source.
pub fn is_user(claim: &PersistentVolumeClaim, begun: bool, admitted: bool, driver: &str) -> bool {
    if begun {
        return true;
    }
    if !admitted && is_strange(claim) {
        return false;
    }
    let is_waiting = claim.spec.volume_name.as_deref().is_none_or(str::is_empty);
    owner_of(claim, driver) == Owner::Us && is_waiting && claim.metadata.deletion_timestamp.is_none()
}

/// Whether the source that a claim names is in another namespace.
fn is_strange(claim: &PersistentVolumeClaim) -> bool {
    SourceKey::of(claim).is_some_and(|source| source.name.namespace() != claim.metadata.namespace.as_deref())
}

/// Whether our finalizer should be removed from a source now. The caller looks for users only if the source has the
/// finalizer.
pub fn is_releasable(finalizers: &[SmolStr], finalizer: &str, is_used: impl FnOnce() -> bool) -> bool {
    finalizers.iter().any(|held| held == finalizer) && !is_used()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::roles::provisioner::fixtures::{self, DRIVER};
    use crate::roles::provisioner::names;

    fn claim(patch: Value) -> PersistentVolumeClaim {
        let ours = json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: DRIVER } } });
        fixtures::claim(fixtures::merged(ours, patch))
    }

    #[test]
    fn a_source_is_used_until_its_claim_is_provisioned_or_given_up() {
        let deleting = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let cases = [
            (json!({}), false, true, "waiting"),
            (json!({ "spec": { "volumeName": "pv-1" } }), false, false, "provisioned"),
            (deleting.clone(), false, false, "deleted before anything was begun"),
            (deleting, true, true, "deleted while the driver owes an answer"),
            (
                json!({ "metadata": { "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: "other" } } }),
                false,
                false,
                "another's",
            ),
        ];
        for (patch, begun, expected, what) in cases {
            for admitted in [false, true] {
                assert_eq!(is_user(&claim(patch.clone()), begun, admitted, DRIVER), expected, "{what}");
            }
        }
    }

    #[test]
    fn a_source_of_another_namespace_is_used_once_that_has_agreed() {
        let from = |namespace: &str| {
            let source = json!({ "kind": "PersistentVolumeClaim", "name": "it", "namespace": namespace });
            json!({ "spec": { "dataSourceRef": source } })
        };
        for (patch, begun, admitted, expected, what) in [
            (from("other"), false, false, false, "nobody has looked for a grant"),
            (from("other"), false, true, true, "granted"),
            (from("other"), true, false, true, "begun"),
            (from("shop"), false, false, true, "its own namespace by name"),
            (from(""), false, false, true, "its own namespace"),
        ] {
            assert_eq!(is_user(&claim(patch), begun, admitted, DRIVER), expected, "{what}");
        }
    }

    #[test]
    fn a_source_is_known_by_kind_namespace_and_name() {
        let of = |spec: Value| SourceKey::of(&claim(json!({ "spec": spec }))).map(|key| key.to_string());
        let source = |kind: &str| json!({ "kind": kind, "name": "it" });
        assert_eq!(of(json!({})), None);
        let key = SourceKey { kind: SourceKind::Snapshot, name: ObjectName::namespaced("shop", "it") };
        assert_eq!(SourceKey::parse(&key.to_string()), Some(key));
        assert_eq!(of(json!({ "dataSource": source("VolumeSnapshot") })).as_deref(), Some("VolumeSnapshot shop/it"));
        assert_eq!(of(json!({ "dataSource": source("Sample") })), None);
        let grouped = |group: &str| fixtures::merged(source("VolumeSnapshot"), json!({ "apiGroup": group }));
        let ours = of(json!({ "dataSourceRef": grouped(SNAPSHOT_GROUP) }));
        assert_eq!(ours.as_deref(), Some("VolumeSnapshot shop/it"));
        assert_eq!(of(json!({ "dataSourceRef": grouped("example.com") })), None, "a populator's");
        let elsewhere = json!({ "kind": "PersistentVolumeClaim", "name": "it", "namespace": "other" });
        let found = SourceKey::of(&claim(json!({ "spec": { "dataSourceRef": elsewhere } }))).unwrap();
        assert_eq!(found.index_value(), "other/PersistentVolumeClaim/it");
    }

    #[test]
    fn a_finalizer_goes_with_the_last_user_and_only_where_it_is() {
        let held = ["x".into()];
        assert!(is_releasable(&held, "x", || false));
        assert!(!is_releasable(&held, "x", || true));
        assert!(!is_releasable(&held, "y", || panic!("users are not looked for in vain")));
    }
}

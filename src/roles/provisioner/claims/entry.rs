//! A claim's entry in the journal: everything that is needed to send the same request again, and to finish without the claim. Pure.
//!
//! ```json
//! {"at":"2026-11-23T08:00:00Z","request":{"volumeName":"pvc-6f1a","requiredBytes":1073741824,"modes":["SINGLE_NODE_WRITER"],
//!  "persistentVolume":{"driver":"d","name":"pvc-6f1a","claim":{"namespace":"shop","name":"data",…},"class":"gold",…}},"node":"n1"}
//! ```
//!
//! Only administrators may have the right to write ConfigMaps in the daemon's namespace. Still, an entry alone proves only that the driver
//! may have been asked; what came after, [`evidence`](super::evidence) judges. An entry names secrets, and never contains their values.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cluster::{DataSource, ObjectName, PersistentVolumeClaim, SmolStr, names};
use crate::roles::provisioner::sources::protection::{SourceKey, SourceKind};

use super::error::ClaimReason;
use super::phase::{Asker, Phase, Plan, Unusable};
use super::request::Request;
use super::state::ClaimState;
use crate::roles::provisioner::claim::{Claim, ClaimKey, Owner};

/// A claim's entry in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The request to the driver, without secrets.
    pub request: Request,
    /// The node that the scheduler had selected when the request was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The data source, which stays protected until the driver has given its final answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<StoredSource>,
    /// The driver's id of a volume that cannot be used and is being deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarding: Option<String>,
    /// A volume may exist whatever error the driver returns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_error_is_final: bool,
}

/// A data source, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredSource {
    /// Its kind.
    pub kind: SourceKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl StoredSource {
    fn of(key: &SourceKey) -> Self {
        let namespace = key.name.namespace().unwrap_or_default().to_owned();
        Self { kind: key.kind, namespace, name: key.name.name().to_owned() }
    }

    fn key(&self) -> SourceKey {
        SourceKey { kind: self.kind, name: ObjectName::namespaced(&self.namespace, &self.name) }
    }
}

impl Entry {
    /// The entry that the journal must have before the driver is called. `None`: there is no request.
    pub fn of(state: &ClaimState) -> Option<Self> {
        let plan = state.plan()?;
        let discarding = match state.phase() {
            Phase::Discarding(unusable) => Some(unusable.volume_id.clone()),
            _ => None,
        };
        Some(Self {
            request: Request::clone(&plan.request),
            node: plan.node.clone(),
            source: plan.source.as_ref().map(StoredSource::of),
            discarding,
            no_error_is_final: plan.no_error_is_final,
        })
    }

    /// The claim's key.
    pub fn key(&self) -> ClaimKey {
        let claim = &self.request.plan.claim;
        ClaimKey { uid: claim.uid.as_str().into(), name: ObjectName::namespaced(&claim.namespace, &claim.name) }
    }

    /// The state of a request of an earlier term, as far as the entry tells it. The claim may be gone, so a claim is made from the
    /// entry. `since`: a version of the API from before the entry was recorded.
    pub fn resume(self, since: &str) -> ClaimState {
        let since = self.since(since);
        let claim = self.claim();
        let source = self.source.as_ref().map(StoredSource::key);
        let Self { node, no_error_is_final, .. } = self;
        let plan = Plan { request: self.request.into(), source, node, no_error_is_final, unproven: Some(since) };
        let by = Asker::EarlierTerm;
        let phase = match self.discarding {
            Some(volume_id) => {
                let why = ClaimReason::Unfit(volume_id.clone()).into();
                Phase::Discarding(Box::new(Unusable { plan, by, kept: None, volume_id, why }))
            }
            None => Phase::Creating { plan: Box::new(plan), by, confirmed: false, kept: None },
        };
        ClaimState::resumed(claim, phase)
    }

    /// The latest known version of the API from before the request was recorded. A segment that was not written for a long time has an old
    /// one; then the claim's is later.
    fn since(&self, segment: &str) -> SmolStr {
        latest([segment, &self.request.plan.claim.resource_version]).into()
    }

    /// The claim, as far as the entry describes it.
    fn claim(&self) -> Claim {
        let identity = &self.request.plan.claim;
        let metadata = json!({
            "namespace": identity.namespace, "name": identity.name, "uid": identity.uid,
            "annotations": { names::ANNOTATION_STORAGE_PROVISIONER: self.request.plan.driver },
        });
        let mut object = PersistentVolumeClaim {
            // Cannot fail: each member is a text or a map of texts.
            metadata: serde_json::from_value(metadata).unwrap_or_default(),
            ..PersistentVolumeClaim::default()
        };
        object.spec.storage_class_name = Some(self.request.plan.class.as_str().into());
        object.spec.data_source_ref = self.source.as_ref().map(|source| {
            Box::new(DataSource {
                kind: source.kind.as_str().to_owned(),
                name: source.name.clone(),
                namespace: Some(source.namespace.clone()),
                api_group: source.kind.group().map(str::to_owned),
            })
        });
        Claim { owner: Owner::Us, ..Claim::parse(object.into(), &self.request.plan.driver) }
    }
}

/// The later of two versions of the API. One that is no number is the earlier one.
pub(super) fn latest(versions: [&str; 2]) -> &str {
    versions.into_iter().max_by_key(|version| version.parse::<u128>().ok()).unwrap_or_default()
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;

//! What in the cluster knows a volume or a snapshot of the driver.
//!
//! | | is known by |
//! |---|---|
//! | a volume | the `PersistentVolume` with its handle, also one of an in-tree plugin that the driver has taken over; an entry of the journal, or a claim in progress, by its handle or its name |
//! | a snapshot | the `VolumeSnapshotContent` with its handle, the `VolumeGroupSnapshotContent` with its handle or its group's; a content in progress, by the volume that it takes a snapshot of |
//!
//! CSI lists volumes without their names. While the journal has an entry whose volume cannot be told from the others, what may be that
//! volume does not count ([`Orphans`](super::orphans::Orphans)). With `nodeDeployment` each node has a journal: they are found by their label.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cluster::names::object_name;
use crate::cluster::rbac::Rule;
use crate::cluster::{
    Cache, Cached, Fields, GroupSource, PersistentVolume, PersistentVolumeClaim, VolumeGroupSnapshotContent,
    VolumeSnapshotContent,
};
use crate::journal::{self, Content, OpenError, Opened, Place};
use crate::roles::kit::{TermScope, look_at_each};
use crate::roles::wiring::Wiring;
use crate::translation::{NotServed, csi_form};

use super::orphans::Unknown;

/// The objects that know volumes and snapshots.
#[derive(Debug)]
pub(super) struct Objects {
    volumes: Cache<PersistentVolume>,
    claims: Cache<PersistentVolumeClaim>,
    contents: Cache<VolumeSnapshotContent>,
    groups: Cache<VolumeGroupSnapshotContent>,
}

/// Why it cannot be said what the cluster knows.
#[derive(Debug, Error)]
pub(super) enum ObscureError {
    /// The objects of a kind are not known.
    #[error("{0}")]
    Kind(String),
    /// An in-tree volume cannot be translated, so that its handle is not known.
    #[error("PersistentVolume {name} may be any volume of the driver")]
    Volume {
        name: String,
        #[source]
        source: NotServed,
    },
    /// The journal of the requests for volumes cannot be read.
    #[error("the journal of the requests for volumes cannot be read")]
    Journal(#[source] OpenError),
}

/// What an entry of the provisioner's journal says of its volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    request: Request,
    /// The driver's id of a volume that is being deleted again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    discarding: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    volume_name: String,
}

impl Content for Entry {
    fn subject(&self) -> String {
        format!("volume {}", self.request.volume_name)
    }
}

/// What the journal's segments are named after: the provisioner's Lease.
fn stem(driver: &str) -> String {
    object_name(driver)
}

/// The rights to read the journals, which the provisioner may keep in other daemons.
pub(super) fn rules(driver: Option<&str>) -> Vec<Rule> {
    let names = driver.map(|driver| Place::names(&stem(driver))).unwrap_or_default();
    let configmaps = |verb: &'static str, reason| Rule::namespaced("", "configmaps", &[verb], reason);
    vec![
        configmaps("get", "tell an orphan from the volume of a request whose outcome is open").named(names),
        configmaps("list", "find the journals of nodes, for the same"),
    ]
}

impl Objects {
    /// Declares the caches and the rights.
    pub(super) fn wire(wiring: &mut Wiring<'_>) -> Self {
        wiring.needs_of(rules);
        Self {
            volumes: wiring.cache_with(Fields::MIGRATION),
            claims: wiring.cache_for_feature(),
            contents: wiring.cache_for_feature(),
            groups: wiring.cache_for_feature(),
        }
    }

    /// Waits until each kind is listed, or is known to be unreadable.
    pub(super) async fn settled(&self) {
        self.volumes.settled().await;
        self.claims.settled().await;
        self.contents.settled().await;
        self.groups.settled().await;
    }

    /// Takes what is known from the volumes of a listing, and adds the claims for which what is left may have been made. `namespace`: the
    /// daemon's own.
    pub(super) async fn know_volumes(
        &self,
        scope: &TermScope,
        namespace: &str,
        unknown: &mut Unknown<'_>,
    ) -> Result<(), ObscureError> {
        let driver = &scope.driver_name;
        is_known(&self.claims)?;
        self.know_handles(driver, unknown).await?;
        let in_progress = |claim: &PersistentVolumeClaim| {
            claim.spec.volume_name.is_none()
                && [claim.provisioner(), claim.migrated_to()].contains(&Some(driver.as_str()))
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let mut claims = Vec::new();
        look_at_each(self.claims.own(), |claim| claims.extend(in_progress(&claim).then(|| claim.metadata.uid.clone())))
            .await;
        let claims: Vec<&str> = claims.iter().map(|uid| &**uid).collect();
        let place = Place { namespace: namespace.to_owned(), stem: stem(driver), driver: driver.clone(), node: None };
        let read = scope.in_task(async |api| journal::read::<Entry>(&api, &place).await).await;
        let entries = read.map_err(OpenError::from).flatten().map_err(ObscureError::Journal)?;
        // What was stored meanwhile may have left the journal meanwhile.
        self.know_handles(driver, unknown).await?;
        know_requests(unknown, &claims, &entries, |name| self.volumes.named(name).is_some());
        Ok(())
    }

    async fn know_handles(&self, driver: &str, unknown: &mut Unknown<'_>) -> Result<(), ObscureError> {
        is_known(&self.volumes)?;
        let mut obscure = None;
        look_at_each(self.volumes.own(), |volume| match handle(&volume, driver) {
            Ok(handle) => handle.iter().for_each(|handle| unknown.know(handle)),
            Err(error) => obscure = Some(error),
        })
        .await;
        obscure.map_or(Ok(()), Err)
    }

    /// Takes what is known from the snapshots of a listing.
    pub(super) async fn know_snapshots(&self, driver: &str, unknown: &mut Unknown<'_>) -> Result<(), ObscureError> {
        is_known(&self.contents)?;
        // Most clusters have no groups. Then none knows a snapshot.
        if !self.groups.does_not_exist() {
            is_known(&self.groups)?;
        }
        let is_ours = |of: &str| of == driver;
        look_at_each(self.contents.own().into_iter().filter(|content| is_ours(&content.driver)), |content| {
            let handles = [&content.snapshot_handle, &content.source_snapshot];
            handles.into_iter().flatten().for_each(|handle| unknown.know(handle));
            if handles == [&None, &None] {
                content.source_volume.iter().for_each(|volume| unknown.know_of_volume(volume));
            }
        })
        .await;
        look_at_each(self.groups.each().filter(|content| is_ours(&content.driver)), |content| {
            know_group(&content, unknown);
        })
        .await;
        Ok(())
    }
}

/// Takes what claims in progress and entries of the journal know by a handle or a name. `is_stored`: there is a `PersistentVolume` of this
/// name; an entry leaves the journal some time after that.
fn know_requests(
    unknown: &mut Unknown<'_>,
    claims: &[&str],
    entries: &[Opened<Entry>],
    is_stored: impl Fn(&str) -> bool,
) {
    unknown.know_named(claims);
    entries.iter().filter_map(|entry| entry.content.discarding.as_deref()).for_each(|handle| unknown.know(handle));
    let names: Vec<Option<&str>> = entries
        .iter()
        .map(|entry| {
            let Entry { request, discarding } = &entry.content;
            discarding.is_none().then_some(&*request.volume_name).filter(|name| !is_stored(name))
        })
        .collect();
    let found = unknown.know_named(&names.iter().copied().flatten().collect::<Vec<_>>());
    for (entry, name) in entries.iter().zip(names) {
        unknown.claim(&entry.key, name.is_some_and(|name| !found.contains(name)));
    }
    for uid in claims {
        unknown.claim(uid, false);
    }
}

fn know_group(content: &VolumeGroupSnapshotContent, unknown: &mut Unknown<'_>) {
    let status = content.status.as_deref();
    for member in status.iter().flat_map(|status| &status.members) {
        unknown.know(&member.snapshot_handle);
    }
    let group = status.and_then(|status| status.volume_group_snapshot_handle.as_ref());
    if let Some(group) = group {
        unknown.know_of_group(group);
    }
    match &content.source {
        GroupSource::Snapshots { group, members } => {
            unknown.know_of_group(group);
            for member in members {
                unknown.know(member);
            }
        }
        GroupSource::Volumes(volumes) if group.is_none() => {
            for volume in volumes {
                unknown.know_of_volume(volume);
            }
        }
        GroupSource::Volumes(_) | GroupSource::None => {}
    }
}

fn is_known<K: Cached>(cache: &Cache<K>) -> Result<(), ObscureError> {
    cache.unknown().map_or(Ok(()), |why| Err(ObscureError::Kind(why)))
}

/// The handle of a volume of this driver.
fn handle(volume: &PersistentVolume, driver: &str) -> Result<Option<String>, ObscureError> {
    match csi_form(volume, driver) {
        Ok(spec) => Ok(spec.csi.as_ref().filter(|csi| csi.driver == driver).map(|csi| csi.volume_handle.clone())),
        Err(NotServed::NotCsi | NotServed::OtherDriver(_)) => Ok(None),
        Err(source) => Err(ObscureError::Volume { name: volume.metadata.name.to_string(), source }),
    }
}

#[cfg(test)]
#[path = "known_tests.rs"]
mod tests;

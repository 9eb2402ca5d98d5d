//! What must hold after every failure: nothing is lost, and nothing is attached that should not be.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::sandbox::driver::{Call, Method, Violation};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::Value;

use crate::ground::Daemon;
use crate::world::{PATIENCE, World, brief, settled};

/// How long a daemon may take to hear of a cluster that is back: a watch that has failed for long is tried again within half a
/// minute.
pub(crate) const RETURN: Duration = Duration::from_secs(75);

impl World {
    /// Asserts that the driver's attachments come to be exactly those that the API has, all of them recorded and protected and
    /// none of them on its way out, and that no call met another of the same caller for the same volume.
    pub(crate) async fn balanced(&self) {
        settled("a balance of API and driver", PATIENCE, async || match self.imbalance().await {
            None => Ok(()),
            Some(what) => Err(format!("{what}; calls: {:#?}", brief(&self.changing_calls()))),
        })
        .await;
        let own = |violation: &Violation| !matches!(violation, Violation::Overlap { same_connection: false, .. });
        let violations: Vec<_> = self.driver().violations().into_iter().filter(own).collect();
        assert_eq!(violations, []);
    }

    /// Differences between the API and the driver.
    pub(crate) async fn imbalance(&self) -> Option<String> {
        let attachments = self.all::<VolumeAttachment>().list(&ListParams::default()).await.unwrap();
        let volumes = self.all::<PersistentVolume>().list(&ListParams::default()).await.unwrap();
        let ours = attachments.into_iter().filter(|it| it.spec.attacher == self.driver_name());
        let (mut wanted, mut attached_volumes) = (BTreeSet::new(), BTreeSet::new());
        for attachment in ours {
            let status = attachment.status.clone().unwrap_or_default();
            let is_going = attachment.metadata.deletion_timestamp.is_some();
            let is_settled = status.attached && status.attach_error.is_none() && status.detach_error.is_none();
            if is_going || !is_settled || !attachment.finalizers().contains(&self.finalizer()) {
                return Some(format!("an attachment is not settled: {attachment:#?}"));
            }
            let volume = attachment.spec.source.persistent_volume_name.clone().unwrap_or_default();
            wanted.insert((self.handle(&volume), self.node_id(&attachment.spec.node_name)));
            attached_volumes.insert(volume);
        }
        let state = self.driver().state();
        let on_nodes = state
            .volumes()
            .iter()
            .flat_map(|(handle, volume)| volume.published.keys().map(|node| (handle.clone(), node.clone())));
        let published: BTreeSet<_> = on_nodes.collect();
        if published != wanted {
            return Some(format!("the API wants {wanted:#?}, the driver has {published:#?}"));
        }
        let protected = volumes.iter().filter(|it| it.finalizers().contains(&self.finalizer()));
        let protected: BTreeSet<_> = protected.map(kube::ResourceExt::name_any).collect();
        // A volume keeps the finalizer until it is deleted.
        (!attached_volumes.is_subset(&protected))
            .then(|| format!("attached are {attached_volumes:#?}, and protected are {protected:#?}"))
    }

    /// Asserts how often at most each of these volumes was published and unpublished since these calls.
    pub(crate) fn called_at_most<'a>(
        &self,
        times: usize,
        volumes: impl IntoIterator<Item = &'a String>,
        since: &[Arc<Call>],
    ) {
        let calls = self.changing_calls();
        for volume in volumes {
            for method in [Method::ControllerPublishVolume, Method::ControllerUnpublishVolume] {
                let about =
                    |call: &&Arc<Call>| call.method == method && call.volume.as_ref() == Some(&self.handle(volume));
                let count = calls[since.len()..].iter().filter(about).count();
                assert!(count <= times, "{method} of {volume}, {count} times: {:#?}", brief(&calls));
            }
        }
    }

    /// The calls for a change, so far.
    pub(crate) fn changing_calls(&self) -> Vec<Arc<Call>> {
        let mut calls = self.driver().calls();
        calls.retain(|call| matches!(call.method, Method::ControllerPublishVolume | Method::ControllerUnpublishVolume));
        calls
    }

    /// How often a daemon has listed a kind.
    pub(crate) async fn lists(&self, daemon: &Daemon, kind: &str) -> u64 {
        let figure = format!("csi_control_plane_cache_relists_total{{kind=\"{kind}\"}} ");
        let metrics = self.metrics(daemon).await;
        metrics.lines().find_map(|line| line.strip_prefix(&figure)?.parse().ok()).unwrap_or(0)
    }

    /// Waits until a daemon sees the whole cluster and serves.
    pub(crate) async fn serving(&self, daemon: &Daemon) {
        self.shows(daemon, "a daemon that sees everything and serves", |status| {
            let roles = status["roles"].as_array().unwrap();
            !roles.is_empty() && roles.iter().all(|role| role["state"] == "serving") && sees_everything(status)
        })
        .await;
    }

    /// Waits until a daemon's status page is like this.
    pub(crate) async fn shows(&self, daemon: &Daemon, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        settled(what, RETURN, async || {
            let status = self.status(daemon).await;
            if holds(&status) { Ok(status) } else { Err(format!("the status is {status:#}")) }
        })
        .await
    }

    /// Waits until a daemon's status page contains all of these.
    pub(crate) async fn page_names(&self, daemon: &Daemon, texts: &[&str]) {
        self.shows(daemon, &format!("the status page names {texts:?}"), |status| {
            let page = status.to_string().replace('\\', "");
            texts.iter().all(|text| page.contains(text))
        })
        .await;
    }
}

/// Whether all caches are filled, if there are any, and none of them fails.
fn sees_everything(status: &Value) -> bool {
    let caches = status["caches"].as_array();
    caches.is_some_and(|caches| caches.iter().all(|cache| cache["synced"] == true && cache["lastError"].is_null()))
}

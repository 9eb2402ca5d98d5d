//! The common parts of the health monitor's scenarios: a daemon with the role, claims that are bound, and looks at what is told of them.

use csi_control_plane::sandbox::driver::{Method, Profile};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::ground::{Daemon, Ground};
use crate::objects::merge;
use crate::supplier::figure;
use crate::world::World;

/// One path of a volume is lost.
pub(crate) const DEGRADED: (i32, &str, &str) = (1, "PathLost", "one path of two");
/// The volume has lost data.
pub(crate) const TORN: (i32, &str, &str) = (3, "Torn", "block 7");

/// The configuration of a daemon with the health monitor alone and short times; `section` is merged into the role's.
pub(crate) fn monitor(section: Value) -> Value {
    let mut monitor = json!({ "interval": "200ms", "listInterval": "200ms" });
    merge(&mut monitor, section);
    json!({ "roles": { "attacher": null, "reconciler": null, "healthMonitor": monitor } })
}

/// How many of these Events have this reason.
pub(crate) fn count(events: &[Event], reason: &str) -> usize {
    events.iter().filter(|it| it.reason.as_deref() == Some(reason)).count()
}

impl World {
    /// A world whose server stores the health of claims, if it is one that can.
    pub(crate) async fn keeping_health(change: impl FnOnce(&mut Profile)) -> Self {
        Self::on(Ground::with_volume_health, change).await
    }

    /// A claim that is bound to a volume of its own, as a cluster's controllers leave both. Returns the names of both.
    pub(crate) async fn monitored(&self, short: &str) -> (String, String) {
        let volume = self.name(&format!("{short}-pv"));
        let claim = self.claim(short, "", json!({ "spec": { "volumeName": volume } })).await;
        self.volume_of(&claim, &format!("{short}-pv"), json!({})).await;
        self.bind(&claim, &volume).await;
        (claim, volume)
    }

    /// A volume of the driver that names this claim, with `spec` merged into its spec.
    pub(crate) async fn volume_of(&self, claim: &str, short: &str, spec: Value) {
        let uid = self.remembered_uid(claim).unwrap();
        let mut of_claim = json!({ "claimRef": { "namespace": "default", "name": claim, "uid": uid } });
        merge(&mut of_claim, spec);
        self.volume_with(short, of_claim).await;
    }

    /// Says of a claim and its volume that they are bound to each other.
    pub(crate) async fn bind(&self, claim: &str, volume: &str) {
        let bound = Patch::Merge(json!({ "status": { "phase": "Bound" } }));
        let params = PatchParams::default();
        self.all::<PersistentVolume>().patch_status(volume, &params, &bound).await.unwrap();
        self.namespaced::<PersistentVolumeClaim>().patch_status(claim, &params, &bound).await.unwrap();
    }

    /// Changes what is wrong with a volume.
    pub(crate) fn ails(&self, volume: &str, wrong: &[(i32, &'static str, &'static str)]) {
        assert!(self.driver().set_health(&self.handle(volume), wrong.iter().copied()));
    }

    /// Waits until this many questions of a method for a volume have ended from now on.
    pub(crate) async fn asked_again(&self, method: Method, volume: &str, times: usize) {
        let ended = || self.calls(method, volume).iter().filter(|call| call.ended.is_some()).count();
        let target = ended() + times;
        self.driver_until("asked again", |_| ended() >= target).await;
    }

    /// Waits until the Events on a claim satisfy a condition, and returns them.
    pub(crate) async fn told_of(&self, claim: &str, what: &str, holds: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        self.events_until(&self.remembered_uid(claim).unwrap(), what, holds).await
    }

    /// Waits until the health monitor's metric is at this value.
    pub(crate) async fn measures(&self, daemon: &Daemon, name: &str, labels: &[&str], value: f64) {
        self.metrics_until(daemon, name, |metrics| figure(metrics, name, labels) == Some(value)).await;
    }
}

//! Helpers for the provisioner's scenarios, in addition to [`crate::supply`]: a daemon with the role, and reads of its
//! claims.

use std::sync::Arc;

use csi_control_plane::app::Plan;
use csi_control_plane::config::{self, File, Sources};
use csi_control_plane::proto::volume_content_source::Type as Source;
use csi_control_plane::roles;
use csi_control_plane::roles::provisioner::names;
use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method, Pool};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tonic::Code;

use crate::ground::Daemon;
use crate::objects;
use crate::supply::{has_ours, phase, pool, zoned};
use crate::world::{PATIENCE, World, settled, until_some};

/// The provisioner's section with short times.
pub(crate) fn short_times() -> Value {
    json!({"retry": {"initial": "50ms", "max": "400ms", "infeasible": "1s"}, "resync": "0s"})
}

/// The configuration of a daemon with the provisioner and short times; `section` is merged into the role's.
pub(crate) fn supplier(section: Value) -> Value {
    let mut provisioner = short_times();
    objects::merge(&mut provisioner, section);
    json!({"roles": {"provisioner": provisioner}})
}

/// Back-offs that are longer than any test waits, so that a retry proves a wake-up.
pub(crate) fn slow() -> Value {
    json!({"retry": {"initial": "300s", "max": "300s", "infeasible": "300s"}})
}

/// Something goes wrong with each `CreateVolume`.
pub(crate) fn create(action: Action) -> Fault {
    Fault::on(Method::CreateVolume, action)
}

/// The driver creates the volume, and its answer does not come in time: the outcome is unknown.
pub(crate) fn unanswered() -> Fault {
    create(Action::DoneButFail { code: Code::DeadlineExceeded, message: "too slow".to_owned() })
}

/// Whether an Event says so.
pub(crate) fn says(event: &Event, reason: &str, text: &str) -> bool {
    event.reason.as_deref() == Some(reason) && event.message.as_deref().unwrap_or_default().contains(text)
}

impl World {
    /// A daemon with all roles; `section` is merged into the provisioner's.
    pub(crate) async fn provisioner(&self, section: Value) -> Daemon {
        self.provisioner_with(json!({}), section).await
    }

    /// The same with `roles` merged into the roles. A role set to null is off.
    pub(crate) async fn provisioner_with(&self, roles: Value, section: Value) -> Daemon {
        let mut all = json!({ "provisioner": short_times() });
        objects::merge(&mut all["provisioner"], section);
        // Not merged: a null must come through.
        for (role, section) in roles.as_object().unwrap() {
            all[role] = section.clone();
        }
        self.daemon(json!({ "roles": all })).await
    }

    /// Waits until a claim is bound, and returns its volume.
    pub(crate) async fn provisioned(&self, claim: &str) -> PersistentVolume {
        self.supplied_with(claim).await
    }

    /// The source in the driver's call for this volume.
    pub(crate) fn source_of(&self, volume: &PersistentVolume) -> Option<Source> {
        let asked = self.driver().creates_of(&volume.name_any()).remove(0).create.clone().unwrap();
        asked.volume_content_source?.r#type
    }

    /// A world whose driver has two zones.
    pub(crate) async fn two_zones() -> Self {
        let pools: [Pool; 2] = [pool("z1", 100), pool("z2", 100)];
        Self::supplied(zoned(pools)).await
    }

    /// A daemon with the provisioner, its section changed like this.
    pub(crate) async fn supplier(&self, section: Value) -> Daemon {
        self.daemon(supplier(section)).await
    }

    /// A world with controllers, and a daemon in it with the provisioner, its section changed like this.
    pub(crate) async fn with_supplier(section: Value) -> (Self, Daemon) {
        Self::supplied_with_daemon("daemon", supplier(section)).await
    }

    /// The same on a host of this name, for scenarios with several daemons.
    pub(crate) async fn with_supplier_on(host: &str) -> (Self, Daemon) {
        Self::supplied_with_daemon(host, supplier(json!({}))).await
    }

    /// A world with controllers, and a daemon in it with all roles; `section` is merged into the provisioner's.
    pub(crate) async fn with_provisioner(section: Value) -> (Self, Daemon) {
        let world = Self::supplied(|_| {}).await;
        let daemon = world.provisioner(section).await;
        (world, daemon)
    }

    /// The claim as it is.
    pub(crate) async fn claim_now(&self, claim: &str) -> PersistentVolumeClaim {
        self.namespaced::<PersistentVolumeClaim>().get(claim).await.unwrap()
    }

    /// The uid of a claim, which may be gone.
    pub(crate) async fn claim_uid(&self, claim: &str) -> String {
        match self.remembered_uid(claim) {
            Some(uid) => uid,
            None => self.claim_now(claim).await.uid().unwrap(),
        }
    }

    /// The name that the claim's volume gets.
    pub(crate) async fn volume_name(&self, claim: &str) -> String {
        format!("pvc-{}", self.claim_uid(claim).await)
    }

    /// Applies a merge patch to a claim.
    pub(crate) async fn patch_claim(&self, claim: &str, patch: Value) {
        let claims = self.namespaced::<PersistentVolumeClaim>();
        claims.patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Says, or takes back, which node a claim is for.
    pub(crate) async fn select(&self, claim: &str, node: Option<&str>) {
        self.patch_claim(claim, json!({"metadata": {"annotations": {names::ANNOTATION_SELECTED_NODE: node}}})).await;
    }

    /// A claim of a class whose content comes from `source`, as `kind/name`.
    pub(crate) async fn claim_from(&self, short: &str, class: &str, kind: &str, source: &str) -> String {
        let mut from = json!({"kind": kind, "name": source});
        if kind == "VolumeSnapshot" {
            from["apiGroup"] = "snapshot.storage.k8s.io".into();
        }
        self.claim(short, class, json!({"spec": {"dataSource": from}})).await
    }

    /// Deletes a volume that no claim has, and waits until it is gone. Another may have its name at once.
    pub(crate) async fn drop_volume(&self, name: &str) {
        let volumes = self.all::<PersistentVolume>();
        let uid = volumes.get(name).await.unwrap().uid();
        volumes.delete(name, &DeleteParams::default()).await.unwrap();
        until_some(volumes, name, "gone", |it: Option<&PersistentVolume>| it.is_none_or(|it| it.uid() != uid)).await;
    }

    /// Waits until the claim is bound, and carries nothing of ours.
    pub(crate) async fn supplied_with(&self, claim: &str) -> PersistentVolume {
        self.claim_until(claim, "bound, with nothing of ours", |it| phase(it) == "Bound" && !has_ours(it)).await;
        self.bound(claim).await
    }

    /// A claim of a new class that has its volume. Returns the names of class and claim, and the volume.
    pub(crate) async fn supplied_claim(&self) -> (String, String, PersistentVolume) {
        let class = self.class("class", json!({})).await;
        let claim = self.claim("claim", &class, json!({})).await;
        let volume = self.supplied_with(&claim).await;
        (class, claim, volume)
    }

    /// A claim of a new class, into which `change` is merged, whose volume the driver has made, [`unanswered`]: so it goes on until
    /// the faults are cleared. Returns the names of class and claim.
    pub(crate) async fn unanswered_claim(&self, change: Value) -> (String, String) {
        self.asked_claim_of(change, unanswered()).await
    }

    /// A claim of a new class, at whose first call this goes wrong. Returns the names of class and claim.
    pub(crate) async fn asked_claim(&self, fault: Fault) -> (String, String) {
        self.asked_claim_of(json!({}), fault).await
    }

    async fn asked_claim_of(&self, change: Value, fault: Fault) -> (String, String) {
        let class = self.class("class", change).await;
        self.driver().inject(fault);
        let claim = self.claim("claim", &class, json!({})).await;
        self.asked(&claim, 1).await;
        (class, claim)
    }

    /// Waits until the driver was called this often for the volume of a claim, and returns the calls.
    pub(crate) async fn asked(&self, claim: &str, times: usize) -> Vec<Arc<Call>> {
        let name = self.volume_name(claim).await;
        self.driver_until("asked for the volume", |driver| driver.creates_of(&name).len() >= times).await;
        self.driver().creates_of(&name)
    }

    /// Waits for an Event on the claim that says so, and returns all of the claim's. Kubernetes' own controller says some of it, too, and
    /// knows nothing of what the daemon has seen.
    pub(crate) async fn claim_told(&self, claim: &str, reason: &str, text: &str) -> Vec<Event> {
        let uid = self.claim_uid(claim).await;
        let what = format!("{reason}: {text}");
        let is_ours = |event: &Event| {
            let source = event.source.as_ref().and_then(|source| source.component.as_deref());
            source != Some("persistentvolume-controller") && says(event, reason, text)
        };
        self.events_until(&uid, &what, |events| events.iter().any(is_ours)).await
    }

    /// Waits until the daemon has seen what became of claims so far: it hears of one after the other.
    pub(crate) async fn daemon_has_seen(&self, short: &str) {
        self.events_are_out(short).await;
    }

    /// Waits until the Events of all failures so far are written. They are written in order.
    pub(crate) async fn events_are_out(&self, short: &str) {
        let owner = json!({"metadata": {"annotations": {names::ANNOTATION_STORAGE_PROVISIONER: self.driver_name()}}});
        let claim = self.claim(short, &self.name("no-such-class"), owner).await;
        self.claim_told(&claim, "ProvisioningFailed", "not found").await;
        self.delete_claim(&claim).await;
    }

    /// The Events on the object of this uid.
    pub(crate) async fn events_on(&self, uid: &str) -> Vec<Event> {
        let mut events = self.namespaced::<Event>().list(&ListParams::default()).await.unwrap().items;
        events.retain(|event| event.involved_object.uid.as_deref() == Some(uid));
        events
    }

    /// Waits until the daemon's metrics satisfy a condition.
    pub(crate) async fn metrics_until(&self, daemon: &Daemon, what: &str, holds: impl Fn(&str) -> bool) -> String {
        settled(what, PATIENCE, async || {
            let metrics = self.metrics(daemon).await;
            if holds(&metrics) { Ok(metrics) } else { Err(metrics) }
        })
        .await
    }

    /// Deletes a claim, and sees it and its volume go, with one call to the driver, which would refuse one for a volume that is attached.
    pub(crate) async fn deleted_with_its_volume(&self, claim: &str, volume: &PersistentVolume) {
        self.delete_claim(claim).await;
        self.claim_gone(claim).await;
        self.gone::<PersistentVolume>(&volume.name_any()).await;
        assert_eq!(self.driver().calls_of(Method::DeleteVolume).len(), 1);
    }

    /// Waits until a claim is gone, then asserts that neither driver nor API has a volume of this world.
    pub(crate) async fn assert_all_gone(&self, claims: &[&str]) {
        for claim in claims {
            self.claim_gone(claim).await;
        }
        self.driver_until("no volume", |driver| driver.state().volumes().is_empty()).await;
        self.assert_nothing_leaked().await;
        let left: Vec<String> = self.volumes().await.iter().map(kube::ResourceExt::name_any).collect();
        assert_eq!(left, Vec::<String>::new());
    }
}

/// The rights that `check` prints for this configuration, without one verb on one resource, or more: `create|patch`.
pub(crate) fn rights(world: &World, config: &Value, without: Option<(&str, &str)>) -> Vec<Value> {
    let file = File { name: "rights.yaml".to_owned(), text: config.to_string() };
    let loaded = config::load(&Sources { file: Some(file), ..Sources::default() }, &roles::sections()).unwrap();
    let manifests = Plan::of(&loaded, world.driver_name(), None).unwrap().manifests.replace("NAMESPACE", "kube-system");
    let documents = serde_yaml::Deserializer::from_str(&manifests);
    let mut roles: Vec<Value> = documents.map(|document| Value::deserialize(document).unwrap()).collect();
    let every_rule = roles.iter_mut().flat_map(|role| role["rules"].as_array_mut().unwrap());
    for rule in every_rule.filter(|rule| without.is_some_and(|(_, resource)| rule["resources"] == json!([resource]))) {
        rule["verbs"]
            .as_array_mut()
            .unwrap()
            .retain(|verb| without.is_some_and(|(missing, _)| missing.split('|').all(|missing| verb != missing)));
    }
    // A server takes no rule without a verb.
    for role in &mut roles {
        role["rules"].as_array_mut().unwrap().retain(|rule| rule["verbs"] != json!([]));
    }
    roles
}

/// The value of a figure that has all of these in its line.
pub(crate) fn figure(metrics: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let line =
        metrics.lines().find(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)))?;
    line.rsplit(' ').next()?.parse().ok()
}

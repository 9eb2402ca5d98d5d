//! Claims that grow in a namespace with a quota: what is charged, from when on, and until when.
//!
//! The quotas are of the scenario's own classes, so that they are nobody else's business.

use csi_control_plane::sandbox::driver::Action;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ResourceQuota};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tonic::Code;

use crate::resizing::{ALLOCATED, STATE, at, conditions, expanding};
use crate::supplier::slow;
use crate::world::wait::asked;
use crate::world::{World, until_some};

/// A quota, and what it limits.
struct Limit {
    quota: String,
    of: String,
}

impl World {
    /// A quota of this, which has counted what is there. Returns its name.
    async fn quota(&self, short: &str, spec: Value, is_counted: impl Fn(&ResourceQuota) -> bool) -> String {
        let name = self.name(short);
        self.create_namespaced::<ResourceQuota>(json!({"metadata": {"name": name}, "spec": spec})).await;
        until_some(self.namespaced(), &name, "counted", |it: Option<&ResourceQuota>| it.is_some_and(&is_counted)).await;
        name
    }

    /// A quota for the storage of the claim's class, which has counted what is there.
    async fn limit(&self, claim: &str, size: &str) -> Limit {
        let class = self.claim_now(claim).await.spec.unwrap().storage_class_name.unwrap();
        let of = format!("{class}.storageclass.storage.k8s.io/requests.storage");
        let spec = json!({"hard": {&of: size}});
        let quota = self.quota("quota", spec, |it| used(it, &of) == "1Gi").await;
        Limit { quota, of }
    }

    /// Waits until so much of the limit is used.
    async fn charged(&self, limit: &Limit, size: &str) {
        let what = format!("{size} used");
        let is_used = |it: Option<&ResourceQuota>| it.is_some_and(|it| used(it, &limit.of) == size);
        until_some(self.namespaced(), &limit.quota, &what, is_used).await;
    }

    /// Why the claim may not be changed like this. The server judges by what it has heard of quotas, so it is asked until it has.
    async fn refusal(&self, claim: &str, spec: Value) -> String {
        let (claims, patch) = (self.namespaced::<PersistentVolumeClaim>(), Patch::Merge(json!({"spec": spec})));
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        asked("a refusal", async || claims.patch(claim, &dry, &patch).await.is_err().then_some(())).await;
        match claims.patch(claim, &PatchParams::default(), &patch).await {
            Err(kube::Error::Api(status)) => {
                assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"), "{status:?}");
                status.message
            }
            other => panic!("not refused: {other:?}"),
        }
    }
}

fn used(quota: &ResourceQuota, of: &str) -> Value {
    let used = quota.status.as_ref().and_then(|it| it.used.as_ref());
    used.and_then(|used| used.get(of)).map_or(Value::Null, |it| json!(it.0))
}

fn size(size: &str) -> Value {
    json!({"resources": {"requests": {"storage": size}}})
}

#[tokio::test]
async fn nothing_is_charged_to_a_quota_or_marked_as_begun_that_cannot_be_asked_for() {
    let world = World::supplied(|_| {}).await;
    let secret = world.name("secret");
    let needs = json!({"volumeMode": "Block",
        "csi": {"controllerExpandSecretRef": {"name": secret, "namespace": "default"}}});
    let (claim, _) = world.sizable("claim", needs).await;
    let limit = world.limit(&claim, "4Gi").await;
    let _daemon = world.resizer(json!({})).await;
    // More than there is: the wish itself is refused, and nobody hears of it.
    let Limit { quota, of } = &limit;
    let text = format!("exceeded quota: {quota}, requested: {of}=4Gi, used: {of}=1Gi, limited: {of}=4Gi");
    let refusal = world.refusal(&claim, size("5Gi")).await;
    assert!(refusal.ends_with(&text), "{refusal}");
    // A wish counts. That it cannot be served for want of its secret costs no more than that.
    world.ask_for(&claim, "3Gi").await;
    world.charged(&limit, "3Gi").await;
    let why = format!("error getting secret {secret} in namespace default: ");
    world.claim_told(&claim, "VolumeResizeFailed", &why).await;
    let waiting = world.claim_now(&claim).await;
    assert_eq!((at(&waiting, STATE), at(&waiting, ALLOCATED)), (json!(null), json!(null)), "nothing has begun");
    assert_eq!((conditions(&waiting), world.expansions().len()), (Vec::new(), 0));
    // So it can be taken back, and the quota is free again.
    world.ask_for(&claim, "2Gi").await;
    world.charged(&limit, "2Gi").await;
    world.secret(&secret, &[("password", b"hunter2")]).await;
    let grown = world.sized(&claim, "2Gi").await;
    assert_eq!((at(&grown, ALLOCATED), world.sizes_asked()), (json!("2Gi"), vec![2.0]));
    world.charged(&limit, "2Gi").await;
}

#[tokio::test]
async fn z12_z13_what_was_begun_is_charged_until_less_is_begun_which_an_unknown_outcome_forbids() {
    for (code, is_known) in [(Code::OutOfRange, true), (Code::DeadlineExceeded, false)] {
        let world = World::supplied(|_| {}).await;
        let section = if is_known { slow() } else { json!({}) };
        let _daemon = world.resizer(section).await;
        let (claim, _) = world.sizable_device("claim").await;
        let limit = world.limit(&claim, "4Gi").await;
        let fault = expanding(Action::fail(code, "no"));
        world.driver().inject(if is_known { fault.once() } else { fault });
        world.ask_for(&claim, "4Gi").await;
        world.expanded_times(1).await;
        if is_known {
            world.in_state(&claim, "ControllerResizeInfeasible").await;
        }
        world.charged(&limit, "4Gi").await;
        world.ask_for(&claim, "2Gi").await;
        if is_known {
            // Less is begun at once, and what was begun in vain is free again.
            world.sized(&claim, "2Gi").await;
            world.charged(&limit, "2Gi").await;
            assert_eq!(world.sizes_asked(), [4.0, 2.0]);
            continue;
        }
        let times = world.expansions().len();
        world.expanded_times(times + 2).await;
        let begun = world.claim_now(&claim).await;
        assert_eq!((at(&begun, STATE), at(&begun, ALLOCATED)), (json!("ControllerResizeInProgress"), json!("4Gi")));
        let quota = world.namespaced::<ResourceQuota>().get(&limit.quota).await.unwrap();
        assert_eq!(used(&quota, &limit.of), "4Gi", "{:?}", quota.name_any());
        world.driver().clear_faults();
        world.sized(&claim, "4Gi").await;
        world.charged(&limit, "4Gi").await;
        assert!(world.sizes_asked().iter().all(|size| *size > 3.9), "{:?}", world.sizes_asked());
    }
}

#[tokio::test]
async fn a_class_beyond_its_quota_is_refused_and_one_that_is_being_given_is_counted() {
    const CLAIMS: &str = "persistentvolumeclaims";
    let (world, _daemon) = World::with_resizer(slow()).await;
    let (claim, _) = world.sizable("claim", json!({})).await;
    let (gold, silver) = (world.attributes("gold", "100").await, world.attributes("silver", "50").await);
    let of = |class: &str, count: &str| {
        json!({"hard": {"persistentvolumeclaims": count}, "scopeSelector": {"matchExpressions": [
            {"scopeName": "VolumeAttributesClass", "operator": "In", "values": [class]}]}})
    };
    let none = world.quota("none", of(&gold, "0"), |it| used(it, CLAIMS) == "0").await;
    let some = world.quota("some", of(&silver, "1"), |it| used(it, CLAIMS) == "0").await;
    let refusal = world.refusal(&claim, json!({"volumeAttributesClassName": gold})).await;
    let text = format!("exceeded quota: {none}, requested: {CLAIMS}=1, used: {CLAIMS}=0, limited: {CLAIMS}=0");
    assert!(refusal.ends_with(&text), "{refusal}");
    world.ask_for_class(&claim, &silver).await;
    world.classed(&claim, &silver).await;
    world.charged(&Limit { quota: some, of: CLAIMS.to_owned() }, "1").await;
    assert_eq!(world.modifications().len(), 1);
}

//! Claims: the requests to the driver, the objects made from its answers, the Events, and the claims that are ignored.

use csi_control_plane::cluster::names;
use csi_control_plane::sandbox::driver::{Action, Driver, Lie, Method};
use k8s_openapi::api::core::v1::{Event, PersistentVolume};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tonic::Code;

use crate::supplier::{create, figure, says, slow, supplier, unanswered};
use crate::supply::{ZONE, handle_of};
use crate::world::World;

#[tokio::test]
async fn r10_s0_a_claim_that_can_never_be_is_tried_again_at_once_when_it_is_edited() {
    let (world, _daemon) = World::with_supplier(slow()).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::fail(Code::InvalidArgument, "no such colour")).once());
    let claim = world.claim("claim", &class, json!({})).await;
    world.claim_told(&claim, "ProvisioningFailed", "no such colour").await;
    world.patch_claim(&claim, json!({"metadata": {"annotations": {"example.com/colour": "blue"}}})).await;
    world.supplied_with(&claim).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r10_s0_the_wait_after_an_infeasible_claim_is_the_configured_one() {
    let (world, _daemon) =
        World::with_supplier(json!({"retry": {"initial": "10ms", "max": "20ms", "infeasible": "1500ms"}})).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::fail(Code::InvalidArgument, "no")).once());
    let claim = world.claim("claim", &class, json!({})).await;
    world.supplied_with(&claim).await;
    let asked = world.asked(&claim, 2).await;
    assert_eq!(asked.len(), 2);
    let wait = asked[1].started.saturating_sub(asked[0].ended.unwrap());
    assert!(wait >= std::time::Duration::from_millis(1450), "{wait:?}");
}

#[tokio::test]
async fn s0_an_answer_without_a_volume_is_an_error_and_no_crash() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    for (short, lie) in [("none", Lie::NoVolume), ("unnamed", Lie::EmptyVolumeId)] {
        world.driver().inject(create(Action::Lie(lie)).once());
        let claim = world.claim(short, &class, json!({})).await;
        world.supplied_with(&claim).await;
        world.claim_told(&claim, "ProvisioningFailed", "volume").await;
        assert_eq!(world.asked(&claim, 2).await.len(), 2);
    }
    assert!(!daemon.has_ended());
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r45_r55_a_volume_has_the_drivers_size_exactly_or_the_requested_and_a_smaller_one_goes() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    for (short, bytes, shown) in [("odd", 5_970_004_541, "5970004541"), ("silent", 0, "1Gi"), ("small", 5, "1Gi")] {
        world.driver().inject(create(Action::Lie(Lie::Size(bytes))).once());
        let claim = world.claim(short, &class, json!({})).await;
        let volume = world.supplied_with(&claim).await;
        assert_eq!(volume.spec.unwrap().capacity.unwrap()["storage"].0, shown, "{short}");
    }
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 1, "the one that was too small");
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r59_s0_a_stranger_under_the_name_of_the_volume_is_named_and_never_taken_for_it() {
    let world = World::supplied(|_| {}).await;
    let (class, claim) = world.claim_anew("claim").await;
    let name = format!("vol-{}", world.claim_uid(&claim).await);
    let stranger = |handle: &str| {
        json!({"metadata": {"name": name}, "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "another", "csi": {"driver": "another.example.com", "volumeHandle": handle}}})
    };
    let before = world.create::<PersistentVolume>(stranger("theirs")).await;
    let mut section = slow();
    section["volumeNamePrefix"] = "vol".into();
    let _daemon = world.supplier(section).await;
    let events = world.claim_told(&claim, "ProvisioningFailed", &name).await;
    assert!(events.iter().any(|it| says(it, "ProvisioningFailed", "another.example.com")), "{events:#?}");
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), 0);
    let after = world.all::<PersistentVolume>().get(&name).await.unwrap();
    assert_eq!((after.uid(), after.spec), (before.uid(), before.spec));
    // Its going is all that the claim waits for.
    world.drop_volume(&name).await;
    assert_eq!(world.supplied_with(&claim).await.name_any(), name);

    // One that comes while the driver is at it.
    world.driver().inject(create(Action::Hold).once());
    let claim = world.claim("second", &class, json!({})).await;
    let name = format!("vol-{}", world.claim_uid(&claim).await);
    let creates = |driver: &csi_control_plane::sandbox::driver::Driver| driver.creates_of(&name).len();
    world.driver_until("asked", |driver| creates(driver) == 1).await;
    let mut stranger = stranger("theirs");
    stranger["metadata"]["name"] = name.as_str().into();
    world.create::<PersistentVolume>(stranger).await;
    world.driver().release();
    world.claim_told(&claim, "ProvisioningFailed", "another.example.com").await;
    assert_eq!(world.driver().calls_of(Method::DeleteVolume).len(), 0);
    assert!(world.driver().volume_named(&name).is_some(), "it stays, and so does the claim's entry");
    assert!(world.is_recorded(&claim).await);
    world.drop_volume(&name).await;
    assert_eq!(world.supplied_with(&claim).await.name_any(), name);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r59_s0_a_volume_object_that_is_there_ends_the_work_whatever_its_prefix() {
    let world = World::supplied(|_| {}).await;
    let (class, claim) = world.claim_anew("claim").await;
    let (uid, short) = (world.claim_uid(&claim).await, world.name("claim"));
    let name = format!("vol-{}", uid.replace('-', "").get(..12).unwrap());
    world.driver().seed(["already"]);
    let volume = json!({"metadata": {"name": name, "finalizers": [names::FINALIZER_PROVISIONER],
            "annotations": {names::ANNOTATION_PROVISIONED_BY: world.driver_name()}},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": world.driver_name(), "volumeHandle": "already"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": short,
                "uid": uid}}});
    world.create::<PersistentVolume>(volume).await;
    let _daemon = world.supplier(json!({"volumeNamePrefix": "vol", "volumeNameUuidLength": 12})).await;
    assert_eq!(world.supplied_with(&claim).await.name_any(), name);
    // The next claim is made by the daemon, so it is at work.
    let next = world.claim("next", &class, json!({})).await;
    let made = world.supplied_with(&next).await;
    assert_eq!(made.name_any().len(), "vol-".len() + 12);
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), 1);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r28_r4_a_volume_object_says_all_that_its_class_and_its_driver_say() {
    let world = World::two_zones().await;
    let _daemon = world.supplier(json!({"extraCreateMetadata": true})).await;
    let node = world.node_in("n1", "z1").await;
    let mut parameters = json!({"kind": "fast", "csi.storage.k8s.io/fstype": "xfs"});
    for (number, secret) in
        ["controller-publish", "node-stage", "node-publish", "controller-expand", "node-expand", "controller-modify"]
            .into_iter()
            .enumerate()
    {
        parameters[format!("csi.storage.k8s.io/{secret}-secret-name")] = json!(format!("secret-{number}"));
        parameters[format!("csi.storage.k8s.io/{secret}-secret-namespace")] = json!("${pvc.namespace}");
    }
    let class =
        world.waiting_class("class", json!({"parameters": parameters, "mountOptions": ["noatime", "discard"]})).await;
    let claim = world.claim("claim", &class, json!({"spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}})).await;
    world.select(&claim, Some(&node)).await;
    let volume = world.supplied_with(&claim).await;
    let asked = world.asked(&claim, 1).await.remove(0).create.clone().unwrap();
    let mut sent: Vec<_> = asked.parameters.iter().map(|(key, value)| format!("{key}={value}")).collect();
    sent.sort();

    let object = serde_json::to_value(&volume).unwrap();
    let mut told = json!({"annotations": object["metadata"]["annotations"], "finalizers": object["metadata"]["finalizers"],
        "labels": object["metadata"]["labels"], "spec": object["spec"], "parameters": sent});
    told["finalizers"].as_array_mut().unwrap().sort_by_key(Value::to_string);
    let spec = &mut told["spec"];
    spec["claimRef"]["resourceVersion"] = "<version>".into();
    let identity = &mut spec["csi"]["volumeAttributes"]["storage.kubernetes.io/csiProvisionerIdentity"];
    assert!(identity.as_str().unwrap().ends_with(world.driver_name()), "{identity}");
    *identity = "<identity>".into();
    // The members that Kubernetes adds when it binds them.
    told["annotations"].as_object_mut().unwrap().remove("pv.kubernetes.io/bound-by-controller");
    let (_, handle) = handle_of(&volume).unwrap();
    let text = serde_json::to_string_pretty(&told).unwrap();
    let text = text
        .replace(&world.claim_uid(&claim).await, "<uid>")
        .replace(&handle, "<handle>")
        .replace(world.driver_name(), "<driver>")
        .replace(&world.driver_name().replace('.', "-"), "<driver-name>")
        .replace(&claim, "<claim>")
        .replace(&class, "<class>");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("a_volume_object", text));
    assert!(text.contains(ZONE));
}

#[tokio::test]
async fn r11_a_class_of_attributes_goes_into_the_request_and_one_of_another_driver_does_not() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let attributes = |short: &str, driver: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
            "metadata": {"name": world.name(short)}, "driverName": driver, "parameters": {"iops": "5000"}})
    };
    world.create::<VolumeAttributesClass>(attributes("fast", world.driver_name())).await;
    world.create::<VolumeAttributesClass>(attributes("theirs", "another.example.com")).await;
    let spec = |short: &str| json!({"spec": {"volumeAttributesClassName": world.name(short)}});
    let claim = world.claim("claim", &class, spec("fast")).await;
    let volume = world.supplied_with(&claim).await;
    assert_eq!(volume.spec.unwrap().volume_attributes_class_name, Some(world.name("fast")));
    let asked = world.asked(&claim, 1).await.remove(0).create.clone().unwrap();
    assert_eq!(asked.mutable_parameters.get("iops").map(String::as_str), Some("5000"));
    let other = world.claim("other", &class, spec("theirs")).await;
    world.claim_told(&other, "ProvisioningFailed", "another.example.com").await;
    assert_eq!(world.driver().creates_of(&world.volume_name(&other).await).len(), 0);
    // One that does not exist yet is waited for.
    let early = world.claim("early", &class, spec("late")).await;
    world.claim_told(&early, "ProvisioningFailed", &format!("\"{}\" not found: create it", world.name("late"))).await;
    world.create::<VolumeAttributesClass>(attributes("late", world.driver_name())).await;
    world.supplied_with(&early).await;
    world.delete_claim(&other).await;
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn s0_ignored_claims_are_no_failures_and_the_oldest_claim_has_an_age() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let waiting = world.waiting_class("waiting", json!({})).await;
    let foreign = world.class("foreign", json!({"provisioner": "another.example.com"})).await;
    for (short, class) in [("one", &waiting), ("two", &foreign)] {
        world.claim(short, class, json!({})).await;
    }
    world.driver().inject(create(Action::fail(Code::Internal, "the shelf is stuck")));
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 3).await;
    let (failed, oldest) = (
        "controller_persistentvolumeclaim_provision_failed_total",
        "csi_control_plane_claims_oldest_pending_age_seconds",
    );
    let metrics = world
        .metrics_until(&daemon, "failures, and an age", |metrics| {
            figure(metrics, failed, &[&class]).is_some_and(|count| count >= 2.0)
                && figure(metrics, oldest, &[]).is_some_and(|age| age > 0.0)
        })
        .await;
    for class in [&waiting, &foreign] {
        assert_eq!(figure(&metrics, failed, &[class]), None, "{metrics}");
    }
    world.driver().clear_faults();
    world.supplied_with(&claim).await;
    let done = |metrics: &str| {
        let total = "controller_persistentvolumeclaim_provision_total";
        figure(metrics, total, &[&class]) == Some(1.0) && figure(metrics, oldest, &[]) == Some(0.0)
    };
    world.metrics_until(&daemon, "a success, and nobody waits", done).await;
}

#[tokio::test]
async fn the_status_page_shows_claims_in_progress_with_state_attempts_and_error() {
    let (world, daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(unanswered());
    let claim = world.claim("claim", &class, json!({})).await;
    let find = |status: &Value| {
        let work = status["work"].as_array().cloned().unwrap_or_default();
        work.into_iter().find(|item| item["key"].as_str().is_some_and(|key| key.ends_with(&claim)))
    };
    let status = world
        .shows(&daemon, "the claim, twice tried", |status| {
            find(status).is_some_and(|item| {
                item["attempts"].as_u64().unwrap_or(0) >= 2
                    && item["subject"].as_str().is_some_and(|text| text.contains("in background"))
                    && item.to_string().contains("too slow")
            })
        })
        .await;
    assert!(find(&status).unwrap().to_string().contains(&class), "{status:#}");
    world.driver().clear_faults();
    world.supplied_with(&claim).await;
    world.shows(&daemon, "nothing any more", |status| find(status).is_none()).await;
}

#[tokio::test]
async fn events_tell_of_each_new_error_once_and_all_of_them_on_request() {
    let (world, first) = World::with_supplier_on("first").await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::fail(Code::Internal, "the shelf is stuck")).times(3));
    world.driver().inject(create(Action::fail(Code::Internal, "the door is shut")).times(3));
    let claim = world.claim("claim", &class, json!({})).await;
    world.supplied_with(&claim).await;
    let events = world.claim_told(&claim, "ProvisioningSucceeded", "").await;
    for text in ["the shelf is stuck", "the door is shut"] {
        let told: Vec<&Event> = events.iter().filter(|it| says(it, "ProvisioningFailed", text)).collect();
        assert_eq!(told.len(), 1, "{events:#?}");
        let times = told[0].series.as_ref().and_then(|series| series.count).or(told[0].count).unwrap_or(1);
        assert_eq!(times, 1, "{told:#?}");
    }
    // A claim that goes well at once ends with one Event of ours.
    let ours = |event: &Event| event.reason.as_deref().is_some_and(|reason| reason.starts_with("Provisioning"));
    let quiet = world.claim("quiet", &class, json!({})).await;
    let name = world.volume_name(&quiet).await;
    let events = world.claim_told(&quiet, "ProvisioningSucceeded", &name).await;
    assert_eq!(events.iter().filter(|it| ours(it)).count(), 1, "{events:#?}");
    first.stop().await.unwrap();

    let _second = world.daemon_on("second", supplier(json!({"events": "all"}))).await;
    let loud = world.claim("loud", &class, json!({})).await;
    let events = world.claim_told(&loud, "ProvisioningSucceeded", "").await;
    assert!(events.iter().filter(|it| ours(it)).any(|it| it.reason.as_deref() == Some("Provisioning")), "{events:#?}");
}

#[tokio::test]
async fn r31_s0_two_daemons_on_one_host_never_ask_for_one_volume_at_once() {
    let (world, _first) = World::with_supplier_on("host").await;
    let _second = world.daemon_on("host", supplier(json!({}))).await;
    let class = world.class("class", json!({})).await;
    let mut claims = Vec::new();
    for number in 0..10 {
        claims.push(world.claim(&format!("claim-{number}"), &class, json!({})).await);
    }
    for claim in &claims {
        world.supplied_with(claim).await;
        assert_eq!(world.asked(claim, 1).await.len(), 1);
    }
    assert_eq!(world.driver().violations(), []);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r57_claims_of_in_tree_plugins_that_the_driver_has_not_taken_over_are_left_alone() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({"provisioner": "kubernetes.io/aws-ebs"})).await;
    let plugin = |more: Value| {
        let mut annotations = json!({names::ANNOTATION_STORAGE_PROVISIONER: "kubernetes.io/aws-ebs"});
        crate::objects::merge(&mut annotations, more);
        json!({"metadata": {"annotations": annotations}})
    };
    let plain = world.claim("plain", &class, plugin(json!({}))).await;
    // The class says whose claim it is, whatever annotations it has.
    let ours = json!({names::ANNOTATION_MIGRATED_TO: world.driver_name()});
    let claimed = world.claim("claimed", &class, plugin(ours)).await;
    world.events_are_out("fence").await;
    for claim in [&plain, &claimed] {
        let uid = world.claim_uid(claim).await;
        assert!(!world.events_on(&uid).await.iter().any(|it| says(it, "ProvisioningFailed", world.driver_name())));
    }
    assert_eq!(world.driver().calls_of(Method::CreateVolume).len(), 0);
}

#[tokio::test]
async fn s0_a_claim_whose_class_is_in_the_old_annotation_alone_is_provisioned() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    let old = json!({"metadata": {"annotations": {names::ANNOTATION_BETA_STORAGE_CLASS: class}},
        "spec": {"storageClassName": null}});
    let claim = world.claim("claim", &class, old).await;
    assert_eq!(world.claim_now(&claim).await.spec.unwrap().storage_class_name, None);
    let volume = world.supplied_with(&claim).await;
    assert_eq!(volume.spec.unwrap().storage_class_name, Some(class));
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn only_what_is_for_readers_alone_is_published_to_be_read_and_only_on_request() {
    let world = World::supplied(|_| {}).await;
    let class = world.class("class", json!({})).await;
    let of = |modes: &[&str]| json!({"spec": {"accessModes": modes}});
    let read_only = async |short: &str, modes: &[&str]| {
        let claim = world.claim(short, &class, of(modes)).await;
        world.supplied_with(&claim).await.spec.unwrap().csi.unwrap().read_only.unwrap_or_default()
    };
    let first = world.daemon_on("first", supplier(json!({}))).await;
    assert!(!read_only("default", &["ReadOnlyMany"]).await);
    first.stop().await.unwrap();
    let _second = world.daemon_on("second", supplier(json!({"publishReadonly": true}))).await;
    assert!(read_only("readers", &["ReadOnlyMany"]).await);
    assert!(!read_only("both", &["ReadOnlyMany", "ReadWriteOnce"]).await);
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn r34_r49_a_raw_claim_has_no_file_system_and_no_class_gets_one_that_it_does_not_name() {
    let world = World::supplied(|_| {}).await;
    world.place("n1", &[]).await;
    // Row 34 is with capacity on: each volume has the daemon ask for the room once more.
    let section = json!({"enabled": true, "immediateBinding": true, "pollInterval": "1h", "ownerLevel": -1});
    let _daemon = world.supplier(json!({"capacity": section})).await;
    let class = world.class("class", json!({})).await;
    let rooms = |driver: &Driver| driver.calls_of(Method::GetCapacity).len();
    world.driver_until("asked for the room", |driver| rooms(driver) > 0).await;
    for (before, mode) in [(1, "Block"), (2, "Filesystem")] {
        let claim = world.claim(&mode.to_lowercase(), &class, json!({"spec": {"volumeMode": mode}})).await;
        let spec = world.supplied_with(&claim).await.spec.unwrap();
        assert_eq!((spec.volume_mode.as_deref(), spec.csi.unwrap().fs_type), (Some(mode), None));
        world.driver_until("asked for the room again", |driver| rooms(driver) > before).await;
    }
    world.assert_nothing_leaked().await;
}

#[tokio::test]
async fn a_retry_asks_the_same_byte_by_byte_although_the_class_was_replaced() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({ "parameters": { "kind": "fast" } })).await;
    world.driver().inject(create(Action::fail(Code::DeadlineExceeded, "slow")).times(3));
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 1).await;
    world.all::<StorageClass>().delete(&class, &DeleteParams::default()).await.unwrap();
    world.supplied_with(&claim).await;
    let asked: Vec<_> = world.asked(&claim, 4).await.into_iter().map(|call| call.create.clone().unwrap()).collect();
    assert_eq!(asked.len(), 4);
    assert!(asked.iter().all(|it| *it == asked[0]), "{asked:#?}");
}

#[tokio::test]
async fn a_final_error_is_told_once_and_leaves_no_entry() {
    let (world, _daemon) = World::with_supplier(json!({})).await;
    let class = world.class("class", json!({})).await;
    world.driver().inject(create(Action::fail(Code::Internal, "no such pool")));
    let claim = world.claim("claim", &class, json!({})).await;
    world.asked(&claim, 4).await;
    world.claim_told(&claim, "ProvisioningFailed", "no such pool").await;
    world.driver().clear_faults();
    world.supplied_with(&claim).await;
    world.journal_is_empty().await;
    // Events are written in order: when the next one is there, so are all Events of the failure.
    let told = world.claim_told(&claim, "ProvisioningSucceeded", "").await;
    let failures = told.iter().filter(|it| it.reason.as_deref() == Some("ProvisioningFailed")).count();
    assert_eq!(failures, 1, "{told:#?}");
}

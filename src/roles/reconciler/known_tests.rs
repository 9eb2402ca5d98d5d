//! Which objects know what.

use serde_json::{Value, json};

use super::*;
use crate::cluster::IdKind;
use crate::roles::provisioner::claims::entry::Entry as ProvisionersEntry;
use crate::roles::provisioner::names;
use crate::roles::reconciler::orphans::Item;

const DRIVER: &str = "Demo.CSI.example.com";

#[test]
fn the_journal_is_the_one_that_the_provisioner_keeps() {
    assert_eq!(stem(DRIVER), names::lease(DRIVER));
    let [get, list] = &rules(Some(DRIVER))[..] else { panic!("one right to each verb") };
    assert_eq!((get.resource_names.len(), list.resource_names.len()), (16, 0));
    assert!(get.resource_names.contains("demo-csi-example-com-journal-0"));
    assert!(rules(None)[0].resource_names.is_empty(), "of any driver");
}

#[test]
fn an_entry_of_the_provisioner_tells_the_name_or_the_handle_of_its_volume() {
    let written = |more: Value| {
        let mut entry = json!({
            "request": { "volumeName": "pvc-1", "requiredBytes": 1, "modes": ["SINGLE_NODE_WRITER"], "persistentVolume": {
                "driver": DRIVER, "name": "pvc-1", "accessModes": [], "reclaimPolicy": "Delete", "class": "gold",
                "claim": { "namespace": "shop", "name": "data", "uid": "1", "resourceVersion": "7" } } },
        });
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let theirs: ProvisionersEntry = serde_json::from_value(entry).unwrap();
        serde_json::from_value::<Entry>(serde_json::to_value(theirs).unwrap()).unwrap()
    };
    let expected = |discarding: Option<&str>| Entry {
        request: Request { volume_name: "pvc-1".to_owned() },
        discarding: discarding.map(str::to_owned),
    };
    assert_eq!(written(json!({})), expected(None));
    assert_eq!(written(json!({ "discarding": "vol-1" })), expected(Some("vol-1")));
    assert_eq!(expected(None).subject(), "volume pvc-1");
}

#[test]
fn requests_know_their_volumes_by_handle_or_name_and_the_others_may_be_those_of_open_ones() {
    let entry = |key: &str, name: &str, discarding: Option<&str>| Opened {
        key: key.to_owned(),
        at: jiff::Timestamp::UNIX_EPOCH,
        since: crate::cluster::SmolStr::default(),
        content: Entry { request: Request { volume_name: name.to_owned() }, discarding: discarding.map(str::to_owned) },
    };
    let named = Item { name: Some("pvc-1".to_owned()), ..Item::of("v1".to_owned()) };
    for (what, claims, entries, left, is_doubtful) in [
        ("nothing is known", &[][..], vec![], &["v1", "v2"][..], false),
        ("a claim's uid is in a name", &["1"], vec![], &["v2"], false),
        ("a claim whose uid is nowhere has no request", &["7"], vec![], &["v1", "v2"], false),
        ("an entry's name is told", &[], vec![entry("1", "pvc-1", None)], &["v2"], false),
        ("an entry's name is not told", &[], vec![entry("7", "pvc-7", None)], &["v1", "v2"], true),
        ("its PersistentVolume is stored", &[], vec![entry("8", "pvc-stored", None)], &["v1", "v2"], false),
        ("a volume that is discarded", &[], vec![entry("7", "pvc-7", Some("V2"))], &["v1"], false),
        ("one of two", &["7"], vec![entry("1", "pvc-1", None), entry("7", "pvc-7", None)], &["v2"], true),
    ] {
        let listed = [named.clone(), Item::of("v2".to_owned())];
        let mut unknown = Unknown::all(IdKind::Volume, DRIVER, listed.clone());
        know_requests(&mut unknown, claims, &entries, |name| name == "pvc-stored");
        let mut orphans = crate::roles::reconciler::orphans::Orphans::default();
        orphans.compare(tokio::time::Instant::now(), 2, unknown);
        assert_eq!(orphans.undecided() > 0, is_doubtful, "{what}");
        assert_eq!(orphans.undecided() + orphans.waiting(), left.len(), "{what}");
        let mut unknown = Unknown::all(IdKind::Volume, DRIVER, listed);
        know_requests(&mut unknown, claims, &entries, |name| name == "pvc-stored");
        let found: Vec<String> = unknown.into_items().map(|item| item.handle).collect();
        assert_eq!(found, left, "{what}");
    }
}

#[test]
fn volumes_of_the_driver_have_a_handle_in_tree_or_not_and_those_of_others_have_none() {
    const EBS: &str = "ebs.csi.aws.com";
    for (spec, expected) in [
        (json!({ "csi": { "driver": EBS, "volumeHandle": "vol-1" } }), Ok(Some("vol-1"))),
        (json!({ "csi": { "driver": "other", "volumeHandle": "vol-1" } }), Ok(None)),
        (
            json!({ "awsElasticBlockStore": { "volumeID": "aws://us-east-1a/vol-02399794d890f9375" } }),
            Ok(Some("vol-02399794d890f9375")),
        ),
        (
            json!({ "awsElasticBlockStore": { "volumeID": "aws://us-east-1a/" } }),
            Err("PersistentVolume pv may be any volume of the driver"),
        ),
        (json!({ "gcePersistentDisk": { "pdName": "d" } }), Ok(None)),
        (json!({ "nfs": { "server": "s", "path": "/" } }), Ok(None)),
    ] {
        let volume: PersistentVolume =
            serde_json::from_value(json!({ "metadata": { "name": "pv", "uid": "1" }, "spec": spec })).unwrap();
        let found = handle(&volume, EBS).map_err(|error| error.to_string());
        assert_eq!(found, expected.map(|handle| handle.map(str::to_owned)).map_err(str::to_owned), "{spec}");
    }
}

#[test]
fn a_group_knows_its_members_and_before_it_is_taken_the_snapshots_of_its_volumes() {
    let snapshot = |handle: &str, source: &str, group: &str| {
        let told = |id: &str| Some(id.to_owned()).filter(|id| !id.is_empty());
        Item { source: told(source), group: told(group), ..Item::of(handle.to_owned()) }
    };
    let volumes = json!({ "volumeHandles": ["v1", "v2"] });
    let given =
        json!({ "groupSnapshotHandles": { "volumeGroupSnapshotHandle": "g1", "volumeSnapshotHandles": ["s3"] } });
    let taken = json!({ "volumeGroupSnapshotHandle": "g1", "volumeSnapshotInfoList": [{ "volumeHandle": "v1", "snapshotHandle": "s3" }] });
    for (source, status, expected) in [
        (&volumes, &Value::Null, &["s3", "s4"][..]),
        (&volumes, &taken, &["s2", "s4"]),
        (&given, &Value::Null, &["s2", "s4"]),
        (&json!({}), &Value::Null, &["s1", "s2", "s3", "s4"]),
    ] {
        let content: VolumeGroupSnapshotContent = serde_json::from_value(json!({
            "apiVersion": "groupsnapshot.storage.k8s.io/v1", "metadata": { "name": "g", "uid": "1" },
            "spec": { "driver": DRIVER, "source": source }, "status": status,
        }))
        .unwrap();
        let listed =
            [snapshot("s1", "v1", "g1"), snapshot("s2", "v2", ""), snapshot("s3", "v3", ""), snapshot("s4", "", "g4")];
        let mut unknown = Unknown::all(IdKind::Snapshot, DRIVER, listed);
        know_group(&content, &mut unknown);
        let left: Vec<String> = unknown.into_items().map(|item| item.handle).collect();
        assert_eq!(left, expected, "{source} {status}");
    }
}

#[test]
fn volumes_that_a_cache_has_packed_know_no_handle_of_ours() {
    for driver in [DRIVER, "ebs.csi.aws.com"] {
        for volume in crate::roles::kit::fixtures::packed_volumes(driver, "f") {
            assert_eq!(handle(&volume, driver).unwrap(), None, "{volume:?}");
        }
    }
}

#[cfg(feature = "sandbox")]
#[tokio::test(start_paused = true)]
async fn a_look_at_hundreds_of_volumes_leaves_others_their_turn() {
    use futures::FutureExt as _;

    use crate::sandbox::driver::Profile;
    use crate::sandbox::testbed::harness::RoleHarness;

    let harness = RoleHarness::with(Profile::default()).await;
    let caches = &harness.caches;
    let objects =
        Objects { volumes: caches.want(), claims: caches.want(), contents: caches.want(), groups: caches.want() };
    let names: Vec<String> = (0..300).map(|number| format!("v{number}")).collect();
    for name in &names {
        let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": harness.context.driver.name, "volumeHandle": name } } });
        harness.testbed.api.create_value(volume).unwrap();
    }
    harness.watch();
    objects.volumes.synced().await;
    let driver = &harness.context.driver.name;
    let listed = names.iter().cloned().chain(["orphan".to_owned()]).map(Item::of);
    let mut unknown = Unknown::all(IdKind::Volume, driver, listed);
    let mut look = Box::pin(objects.know_handles(driver, &mut unknown));
    assert!(look.as_mut().now_or_never().is_none(), "others have their turn");
    look.await.unwrap();
    assert_eq!(unknown.into_items().map(|item| item.handle).collect::<Vec<_>>(), ["orphan"]);
    harness.testbed.tear_down().await;
}

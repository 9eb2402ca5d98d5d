use serde_json::{Value, json};

use super::*;
use crate::roles::provisioner::finality::Finality;
use crate::roles::provisioner::fixtures::{DRIVER, claim, claim_value, merged};

fn spec(source: impl Into<Value>, reference: impl Into<Value>) -> ClaimSpec {
    let (source, reference) = (source.into(), reference.into());
    claim(json!({"spec": {"dataSource": source, "dataSourceRef": reference}})).spec
}

fn snapshot_source(namespace: &str) -> Source {
    Source::Snapshot { namespace: namespace.into(), name: "s".into() }
}

fn clone_source(namespace: &str) -> Source {
    Source::Claim { namespace: namespace.into(), name: "c".into() }
}

fn populator(group: &str, kind: &str, namespace: &str) -> Source {
    Source::Populator { group: group.into(), kind: kind.into(), namespace: namespace.into(), name: "x".into() }
}

#[test]
fn the_data_source_wins_over_the_reference() {
    let snapshot = json!({"apiGroup": SNAPSHOT_GROUP, "kind": "VolumeSnapshot", "name": "s"});
    let clone = json!({"kind": "PersistentVolumeClaim", "name": "c"});
    for (source, reference, expected) in [
        (json!(null), json!(null), Source::None),
        (snapshot.clone(), json!(null), snapshot_source("shop")),
        (json!(null), snapshot.clone(), snapshot_source("shop")),
        (snapshot.clone(), clone.clone(), snapshot_source("shop")),
        (clone.clone(), snapshot.clone(), clone_source("shop")),
        // `dataSource` wins, so the reference's namespace does not count either.
        (snapshot.clone(), merged(snapshot.clone(), json!({"namespace": "far"})), snapshot_source("shop")),
    ] {
        assert_eq!(normalise(&spec(source, reference), "shop", false), Ok(expected));
    }
}

#[test]
fn rows_46_and_47_no_unknown_source_makes_an_empty_volume() {
    let of = |group: Value, kind: &str| {
        normalise(&spec(json!({"apiGroup": group, "kind": kind, "name": "x"}), json!(null)), "shop", false)
    };
    for (group, kind, expected) in [
        (json!("cache.example.com"), "Dataset", populator("cache.example.com", "Dataset", "shop")),
        (json!(null), "ConfigMap", populator("", "ConfigMap", "shop")),
        (json!("x.io"), "VolumeSnapshot", populator("x.io", "VolumeSnapshot", "shop")),
        (json!("x.io"), "", populator("x.io", "", "shop")),
    ] {
        assert_eq!(of(group, kind), Ok(expected));
    }
    for group in [json!(null), json!("x.io")] {
        assert_eq!(of(group, CLAIM), Ok(Source::Claim { namespace: "shop".into(), name: "x".into() }));
    }
    for group in [json!(null), json!("")] {
        let error = of(group, SNAPSHOT).unwrap_err();
        assert_eq!(*error.fault, SourceFault::WrongGroup("x".into()));
        assert_eq!((error.finality(), error.waits_for()), (Finality::Finished, WaitsFor::Claim));
    }
    for kind in [SNAPSHOT, CLAIM, "Dataset"] {
        let error = normalise(&spec(json!({"kind": kind, "name": ""}), json!(null)), "shop", false).unwrap_err();
        assert_eq!((&*error.fault, error.finality()), (&SourceFault::NoName(kind.into()), Finality::Finished));
    }
}

#[test]
fn another_namespace_must_be_allowed_by_the_configuration() {
    let reference = |group: &str, kind: &str, name: &str, namespace: &Value| {
        spec(json!(null), json!({"apiGroup": group, "kind": kind, "name": name, "namespace": namespace}))
    };
    for (namespace, allowed, expected) in [
        (json!(null), false, Some("shop")),
        (json!(""), false, Some("shop")),
        (json!(""), true, Some("shop")),
        (json!("far"), true, Some("far")),
        (json!("far"), false, None),
        (json!("shop"), false, None),
        (json!("shop"), true, Some("shop")),
    ] {
        for (group, kind, name, source) in [
            (SNAPSHOT_GROUP, SNAPSHOT, "s", expected.map(snapshot_source)),
            ("", CLAIM, "c", expected.map(clone_source)),
            // Also for a kind that only a populator knows (spec 2.7: the namespace comes before the kind).
            ("x.io", "Dump", "x", expected.map(|expected| populator("x.io", "Dump", expected))),
            ("", "ConfigMap", "x", expected.map(|expected| populator("", "ConfigMap", expected))),
            ("x.io", SNAPSHOT, "x", expected.map(|expected| populator("x.io", SNAPSHOT, expected))),
        ] {
            let result = normalise(&reference(group, kind, name, &namespace), "shop", allowed);
            let what = format!("{kind} of group {group:?} in {namespace}, {allowed}");
            let Some(source) = source else {
                let error = result.expect_err(&what);
                let other = namespace.as_str().unwrap_or_default();
                assert_eq!(*error.fault, SourceFault::CrossNamespaceOff(other.into()), "{what}");
                assert_eq!((error.finality(), error.waits_for()), (Finality::Finished, WaitsFor::Claim), "{what}");
                continue;
            };
            assert_eq!(result, Ok(source), "{what}");
        }
    }
    for source in [snapshot_source("far"), clone_source("far"), populator("x.io", "Dump", "far")] {
        assert_eq!((source.foreign_namespace("shop"), source.foreign_namespace("far")), (Some("far"), None));
    }
    assert_eq!(Source::None.foreign_namespace("shop"), None);
}

fn grant(namespace: &str, from: &[(&str, &str, &str)], to: &[(&str, &str, Option<&str>)]) -> ReferenceGrant {
    let from: Vec<Value> =
        from.iter().map(|(group, kind, ns)| json!({"group": group, "kind": kind, "namespace": ns})).collect();
    let to: Vec<Value> =
        to.iter().map(|(group, kind, name)| json!({"group": group, "kind": kind, "name": name})).collect();
    serde_json::from_value(json!({"metadata": {"namespace": namespace}, "spec": {"from": from, "to": to}})).unwrap()
}

#[test]
fn a_grant_must_name_who_and_what() {
    let ours = [("", CLAIM, "shop")];
    let any = [(SNAPSHOT_GROUP, SNAPSHOT, None)];
    for (grants, expected, why) in [
        (vec![], false, "none"),
        (vec![grant("far", &ours, &any)], true, "any snapshot"),
        (vec![grant("far", &ours, &[(SNAPSHOT_GROUP, SNAPSHOT, Some("s"))])], true, "this one"),
        (vec![grant("far", &ours, &[(SNAPSHOT_GROUP, SNAPSHOT, Some(""))])], true, "an empty name is any"),
        (vec![grant("far", &ours, &[(SNAPSHOT_GROUP, SNAPSHOT, Some("t"))])], false, "another"),
        (vec![grant("far", &ours, &[("", SNAPSHOT, None)])], false, "another group"),
        (vec![grant("far", &ours, &[("", CLAIM, None)])], false, "another kind"),
        (vec![grant("far", &[("", CLAIM, "other")], &any)], false, "from elsewhere"),
        (vec![grant("far", &[("", "Pod", "shop")], &any)], false, "for another kind"),
        (vec![grant("far", &[("x", CLAIM, "shop")], &any)], false, "for another group"),
        (vec![grant("near", &ours, &any)], false, "in a namespace that is not the source's"),
        (vec![grant("far", &ours, &[]), grant("far", &[], &any)], false, "two halves"),
        (vec![grant("far", &[], &[]), grant("far", &ours, &any)], true, "the second one"),
    ] {
        let result = check_grants(&grants, "shop", &snapshot_source("far"));
        assert_eq!(result.is_ok(), expected, "{why}");
        if let Err(error) = result {
            assert_eq!((error.finality(), error.waits_for()), (Finality::NoChange, WaitsFor::Grant));
            assert!(error.to_string().contains("far/s") && error.to_string().contains("shop"), "{error}");
        }
    }
    assert!(check_grants(&[grant("far", &ours, &[("", CLAIM, None)])], "shop", &clone_source("far")).is_ok());
    for own in [snapshot_source("shop"), clone_source("shop"), Source::None, populator("x", "y", "shop")] {
        assert!(check_grants(&[], "shop", &own).is_ok(), "{own:?}");
    }
}

#[test]
fn what_a_populator_serves_needs_a_grant_of_its_own_kind_and_group() {
    let to = |group, kind, name| vec![grant("far", &[("", CLAIM, "shop")], &[(group, kind, name)])];
    let (dump, core) = (populator("x.io", "Dump", "far"), populator("", "ConfigMap", "far"));
    for (source, grants, expected, why) in [
        (&dump, vec![], false, "none"),
        (&dump, to("x.io", "Dump", None), true, "any dump"),
        (&dump, to("x.io", "Dump", Some("x")), true, "this one"),
        (&dump, to("x.io", "Dump", Some("y")), false, "another"),
        (&dump, to("", "Dump", None), false, "another group"),
        (&dump, to("x.io", "Sample", None), false, "another kind"),
        (&dump, to("", CLAIM, None), false, "claims"),
        (&core, to("", "ConfigMap", None), true, "of the core group"),
        (&core, to("x.io", "ConfigMap", None), false, "not of the core group"),
    ] {
        assert_eq!(check_grants(&grants, "shop", source).is_ok(), expected, "{why}");
    }
    let error = check_grants(&[], "shop", &dump).unwrap_err();
    assert_eq!((error.finality(), error.waits_for()), (Finality::NoChange, WaitsFor::Grant));
    assert!(error.to_string().starts_with("access to Dump.x.io far/x is denied: "), "{error}");
}

fn wanted(claim: &PersistentVolumeClaim) -> Wanted<'_> {
    Wanted { claim, driver: DRIVER, prevent_mode_conversion: true }
}

fn restore(wants: Value, snapshot: Value, content: Value) -> Result<ContentSource, SourceError> {
    let base = json!({
        "metadata": {"namespace": "shop", "name": "s", "uid": "u1"},
        "status": {"boundVolumeSnapshotContentName": "content-1", "readyToUse": true, "restoreSize": "10Gi"},
    });
    let snapshot: VolumeSnapshot = serde_json::from_value(merged(base, snapshot)).unwrap();
    let base = json!({
        "metadata": {"name": "content-1"},
        "spec": {
            "driver": DRIVER,
            "volumeSnapshotRef": {"namespace": "shop", "name": "s", "uid": "u1"},
            "sourceVolumeMode": "Filesystem",
        },
        "status": {"snapshotHandle": "snap-1"},
    });
    let content: VolumeSnapshotContent = serde_json::from_value(merged(base, content)).unwrap();
    check_snapshot(&wanted(&claim(wants)), ("shop", "s"), Some(&snapshot), Some(&content))
}

fn refused_by(result: Result<ContentSource, SourceError>) -> (String, WaitsFor) {
    let error = result.unwrap_err();
    assert_eq!(error.finality(), Finality::NoChange, "{error}");
    let text = error.to_string();
    let (source, rest) = text.split_once(": ").unwrap();
    let is_of = |it: &str| source == format!("error getting handle for DataSource Type {it}");
    assert!(is_of("VolumeSnapshot by Name s") || is_of("PersistentVolumeClaim by Name c"), "{text}");
    (rest.to_owned(), error.waits_for())
}

#[test]
fn a_ready_snapshot_gives_its_handle() {
    let handle = Ok(ContentSource::Snapshot("snap-1".into()));
    assert_eq!(restore(json!({}), json!({}), json!({})), handle);
    for size in [json!(null), json!("9Gi"), json!("10737418240"), json!("0")] {
        assert_eq!(restore(json!({}), json!({"status": {"restoreSize": size}}), json!({})), handle, "{size}");
    }
}

#[test]
fn each_thing_that_a_snapshot_lacks_is_named_and_waited_for() {
    let snapshot = WaitsFor::Snapshot;
    let content = WaitsFor::Content;
    let reference = |field: &str| json!({"spec": {"volumeSnapshotRef": {field: "other"}}});
    for (of_snapshot, of_content, text, waits_for) in [
        (
            json!({"status": {"boundVolumeSnapshotContentName": null}}),
            json!({}),
            "boundVolumeSnapshotContentName",
            snapshot,
        ),
        (
            json!({"status": {"boundVolumeSnapshotContentName": ""}}),
            json!({}),
            "boundVolumeSnapshotContentName",
            snapshot,
        ),
        (json!({"status": null}), json!({}), "boundVolumeSnapshotContentName", snapshot),
        (json!({"status": {"readyToUse": false}}), json!({}), "readyToUse false", snapshot),
        (json!({"status": {"readyToUse": null}}), json!({}), "readyToUse unset", snapshot),
        (json!({"status": {"restoreSize": "10737418241"}}), json!({}), "10737418241 bytes", snapshot),
        (json!({"status": {"restoreSize": "much"}}), json!({}), "\"much\" is not a quantity", snapshot),
        (json!({}), reference("uid"), "volumeSnapshotRef.uid other: expected u1", content),
        (json!({}), reference("namespace"), "volumeSnapshotRef.namespace other", content),
        (json!({}), reference("name"), "volumeSnapshotRef.name other", content),
        (json!({}), json!({"spec": {"driver": "other"}}), "driver other: expected disk.example.com", content),
        (json!({}), json!({"status": null}), "snapshotHandle", content),
        (json!({}), json!({"status": {"snapshotHandle": ""}}), "snapshotHandle", content),
    ] {
        let (told, waited) = refused_by(restore(json!({}), of_snapshot, of_content));
        assert!(told.contains(text), "{told}");
        assert_eq!(waited, waits_for, "{told}");
    }
    let asks = claim(json!({}));
    let (told, waited) = refused_by(check_snapshot(&wanted(&asks), ("shop", "s"), None, None));
    assert_eq!((told.as_str(), waited), ("VolumeSnapshot shop/s not found", snapshot));
    let bound = serde_json::from_value(json!({
        "metadata": {"uid": "u1"}, "status": {"boundVolumeSnapshotContentName": "content-1", "readyToUse": true},
    }));
    let (told, waited) = refused_by(check_snapshot(&wanted(&asks), ("shop", "s"), Some(&bound.unwrap()), None));
    assert_eq!((told.as_str(), waited), ("VolumeSnapshotContent content-1 not found", content));
    let sizeless = json!({"spec": {"resources": null}});
    assert!(restore(sizeless, json!({}), json!({})).is_err(), "no request is smaller than any size");
}

#[test]
fn rows_06_and_05_a_deleting_snapshot_goes_on_once_a_restore_has_begun() {
    let deleting =
        |finalizer: &str| json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]}});
    assert!(restore(json!({}), deleting(FINALIZER_SNAPSHOT_SOURCE), json!({})).is_ok());
    let (told, _) = refused_by(restore(json!({}), deleting("snapshot.storage.kubernetes.io/other"), json!({})));
    assert!(told.contains("being deleted"), "{told}");
}

#[test]
fn row_21_another_mode_than_the_snapshots_needs_leave() {
    let allow = |text: &str| json!({"metadata": {"annotations": {ANNOTATION_ALLOW_MODE_CHANGE: text}}});
    let block = json!({"spec": {"volumeMode": "Block"}});
    let (told, waited) = refused_by(restore(block.clone(), json!({}), json!({})));
    assert!(told.contains(ANNOTATION_ALLOW_MODE_CHANGE) && told.contains("Block"), "{told}");
    assert_eq!(waited, WaitsFor::Content);
    for (text, expected) in [("true", true), ("1", true), ("T", true), ("false", false), ("yes", false), ("", false)] {
        assert_eq!(restore(block.clone(), json!({}), allow(text)).is_ok(), expected, "{text}");
    }
    assert!(restore(block.clone(), json!({}), json!({"spec": {"sourceVolumeMode": null}})).is_ok(), "nobody knows");
    let (told, _) = refused_by(restore(block.clone(), json!({}), json!({"spec": {"sourceVolumeMode": "Tape"}})));
    assert!(told.contains("Tape") && told.contains("Block"), "a mode that is not known is another one: {told}");
    assert!(restore(json!({"spec": {"volumeMode": null}}), json!({}), json!({})).is_ok(), "unset is Filesystem");
    let asks = claim(block);
    let free = Wanted { prevent_mode_conversion: false, ..wanted(&asks) };
    let snapshot: VolumeSnapshot = serde_json::from_value(json!({
        "metadata": {"uid": "u1"}, "status": {"boundVolumeSnapshotContentName": "c", "readyToUse": true},
    }))
    .unwrap();
    let content: VolumeSnapshotContent = serde_json::from_value(json!({
        "metadata": {}, "status": {"snapshotHandle": "h"},
        "spec": {"driver": DRIVER, "sourceVolumeMode": "Filesystem",
            "volumeSnapshotRef": {"namespace": "shop", "name": "s", "uid": "u1"}},
    }))
    .unwrap();
    assert!(check_snapshot(&free, ("shop", "s"), Some(&snapshot), Some(&content)).is_ok());
}

fn copy(wants: Value, source: Value, volume: Value) -> Result<ContentSource, SourceError> {
    copy_for(DRIVER, wants, source, volume)
}

fn copy_for(driver: &str, wants: Value, source: Value, volume: Value) -> Result<ContentSource, SourceError> {
    let base = json!({
        "metadata": {"name": "c", "uid": "u2"},
        "spec": {"storageClassName": "silver", "volumeName": "pv-2"},
        "status": {"phase": "Bound"},
    });
    // One patch after the other: a field that the first one removes stays removed.
    let source = merged(merged(claim_value(), base), source);
    let source: PersistentVolumeClaim = serde_json::from_value(source).unwrap();
    let base = json!({
        "metadata": {"name": "pv-2"},
        "spec": {
            "csi": {"driver": DRIVER, "volumeHandle": "vol-2"},
            "claimRef": {"namespace": "shop", "name": "c", "uid": "u2"},
        },
        "status": {"phase": "Bound"},
    });
    let volume: PersistentVolume = serde_json::from_value(merged(base, volume)).unwrap();
    let claim = claim(wants);
    let wanted = Wanted { driver, ..wanted(&claim) };
    check_clone(&wanted, ("shop", "c"), Some(&source), Some(&volume))
}

#[test]
fn row_30_a_bound_claim_of_any_class_of_the_driver_gives_its_handle() {
    let handle = Ok(ContentSource::Volume("vol-2".into()));
    assert_eq!(copy(json!({}), json!({}), json!({})), handle);
    let beta = json!({
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "silver"}},
        "spec": {"storageClassName": null},
    });
    assert_eq!(copy(json!({}), beta, json!({})), handle, "a class by annotation");
}

#[test]
fn m25_an_in_tree_volume_that_the_driver_has_taken_over_is_cloned_by_its_translated_handle() {
    let in_tree = json!({"spec": {"csi": null, "awsElasticBlockStore": {"volumeID": "aws://us-east-1a/vol-2"}}});
    let of = |driver: &str| copy_for(driver, json!({}), json!({}), in_tree.clone());
    assert_eq!(of("ebs.csi.aws.com"), Ok(ContentSource::Volume("vol-2".into())));
    assert!(of(DRIVER).is_err(), "another driver's");
}

#[test]
fn each_thing_that_a_clones_source_lacks_is_named_and_waited_for() {
    let source = WaitsFor::Source;
    let volume = WaitsFor::Volume;
    let larger = json!({"spec": {"resources": {"requests": {"storage": "11Gi"}}}});
    let reference = |field: &str| json!({"spec": {"claimRef": {field: "other"}}});
    for (of_source, of_volume, text, waits_for) in [
        (json!({"status": {"phase": "Pending"}}), json!({}), "phase Pending: expected Bound", source),
        (json!({"status": {"phase": "Lost"}}), json!({}), "phase Lost", source),
        (json!({"status": null}), json!({}), "phase unset", source),
        (json!({"spec": {"storageClassName": null}}), json!({}), "storageClassName", source),
        (larger, json!({}), "11811160064 bytes", source),
        (json!({"spec": {"volumeName": null}}), json!({}), "volumeName", source),
        (json!({"spec": {"volumeName": ""}}), json!({}), "volumeName", source),
        (json!({"spec": {"volumeMode": "Block"}}), json!({}), "volumeMode Block: expected Filesystem", source),
        (json!({}), json!({"spec": {"csi": null}}), "not CSI", volume),
        (json!({}), json!({"spec": {"csi": {"driver": "other"}}}), "driver other: expected disk.example.com", volume),
        (json!({}), json!({"spec": {"claimRef": null}}), "claimRef", volume),
        (json!({}), reference("uid"), "claimRef.uid other", volume),
        (json!({}), reference("namespace"), "claimRef.namespace other", volume),
        (json!({}), reference("name"), "claimRef.name other", volume),
        (json!({}), json!({"spec": {"claimRef": {"uid": null}}}), "claimRef.uid unset", volume),
        (json!({}), json!({"status": {"phase": "Released"}}), "phase Released: expected Bound", volume),
    ] {
        let (told, waited) = refused_by(copy(json!({}), of_source, of_volume));
        assert!(told.contains(text), "{told}");
        assert_eq!(waited, waits_for, "{told}");
    }
    let asks = claim(json!({}));
    let (told, waited) = refused_by(check_clone(&wanted(&asks), ("shop", "c"), None, None));
    assert_eq!((told.as_str(), waited), ("PersistentVolumeClaim shop/c not found", source));
}

#[test]
fn a_volume_of_another_driver_that_the_cache_trimmed_is_refused_by_its_drivers_name() {
    let source = claim(
        json!({"metadata": {"name": "c", "uid": "u2"}, "spec": {"volumeName": "pv-2"}, "status": {"phase": "Bound"}}),
    );
    let mut volume: PersistentVolume = serde_json::from_value(json!({"metadata": {"name": "pv-2"}})).unwrap();
    volume.spec.foreign_driver = Some("other".into());
    let asks = claim(json!({}));
    let (told, _) = refused_by(check_clone(&wanted(&asks), ("shop", "c"), Some(&source), Some(&volume)));
    assert!(told.contains("driver other: expected disk.example.com"), "{told}");
}

#[test]
fn rows_23_and_52_modes_are_compared_by_value_and_unset_is_filesystem() {
    for (wants, has, expected) in [
        (json!(null), json!("Filesystem"), true),
        (json!("Filesystem"), json!(null), true),
        (json!("Block"), json!("Block"), true),
        (json!("Block"), json!(null), false),
        (json!(null), json!("Block"), false),
    ] {
        let mode = |mode: &Value| json!({"spec": {"volumeMode": mode}});
        assert_eq!(copy(mode(&wants), mode(&has), json!({})).is_ok(), expected, "{wants} {has}");
    }
}

#[test]
fn s0_a_deleting_clone_source_goes_on_once_it_is_protected() {
    let deleting =
        |finalizer: &str| json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]}});
    assert!(copy(json!({}), deleting(FINALIZER_CLONING), json!({})).is_ok());
    let (told, _) = refused_by(copy(json!({}), deleting("kubernetes.io/pvc-protection"), json!({})));
    assert!(told.contains("being deleted"), "{told}");
}

use super::*;
use crate::api::pure::resources::{RESOURCES, find};

fn row(group: &str, plural: &str, object: &Value) -> Vec<Value> {
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    let resource = RESOURCES.iter().find(|it| it.group == group && it.plural == plural).unwrap();
    cells::of(resource, object, now)
}

fn created(name: &str) -> Value {
    json!({ "name": name, "creationTimestamp": "2026-01-01T00:00:00Z" })
}

#[test]
fn every_kind_has_as_many_cells_as_columns() {
    for resource in RESOURCES.iter().filter(|it| it.is_stored()) {
        let cells = row(resource.group, resource.plural, &json!({ "metadata": created("x") }));
        assert_eq!(cells.len(), columns(resource).len(), "{}", resource.kind);
    }
}

#[test]
fn rows_of_installed_kinds_have_the_columns_of_their_definitions() {
    for (group, plural, object, expected) in [
        (
            "snapshot.storage.k8s.io",
            "volumesnapshots",
            json!({ "metadata": created("s"), "spec": { "source": { "persistentVolumeClaimName": "data" }, "volumeSnapshotClassName": "c" },
                "status": { "readyToUse": true, "restoreSize": "1Gi", "boundVolumeSnapshotContentName": "snapcontent-1",
                    "creationTime": "2026-01-01T00:09:00Z" } }),
            json!(["s", true, "data", null, "1Gi", "c", "snapcontent-1", "60s", "10m"]),
        ),
        (
            "snapshot.storage.k8s.io",
            "volumesnapshotcontents",
            json!({ "metadata": created("c"), "status": { "restoreSize": 5 }, "spec": { "deletionPolicy": "Delete", "driver": "d",
                "volumeSnapshotRef": { "name": "s", "namespace": "ns" } } }),
            json!(["c", null, 5, "Delete", "d", null, "s", "ns", "10m"]),
        ),
        (
            "groupsnapshot.storage.k8s.io",
            "volumegroupsnapshots",
            json!({ "metadata": created("g"), "spec": { "volumeGroupSnapshotClassName": "c" }, "status": { "readyToUse": false } }),
            json!(["g", false, "c", null, null, "10m"]),
        ),
        ("gateway.networking.k8s.io", "referencegrants", json!({ "metadata": created("r") }), json!(["r", "10m"])),
    ] {
        assert_eq!(json!(row(group, plural, &object)), expected, "{plural}");
    }
    let names: Vec<&str> =
        columns(find("snapshot.storage.k8s.io", "v1", "volumesnapshots").unwrap()).iter().map(|it| it.0).collect();
    let expected =
        "Name ReadyToUse SourcePVC SourceSnapshotContent RestoreSize SnapshotClass SnapshotContent CreationTime Age";
    assert_eq!(names.join(" "), expected);
}

#[test]
fn rows_read_as_the_real_servers() {
    let storage = "storage.k8s.io";
    let cases: Vec<(&str, &str, Value, Value)> = vec![
        (
            "",
            "persistentvolumes",
            json!({ "metadata": created("pv-1"), "status": { "phase": "Bound" }, "spec": {
                "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete", "claimRef": { "namespace": "ns", "name": "data" },
                "storageClassName": "fast", "volumeMode": "Block" } }),
            json!(["pv-1", "1Gi", "RWO,RWX", "Delete", "Bound", "ns/data", "fast", "<unset>", "", "10m", "Block"]),
        ),
        (
            "",
            "persistentvolumeclaims",
            json!({ "metadata": created("data"), "status": { "phase": "Pending" }, "spec": {} }),
            json!(["data", "Pending", "", "", "", "", "<unset>", "10m", "<unset>"]),
        ),
        (
            storage,
            "volumeattachments",
            json!({ "metadata": created("csi-1"), "status": { "attached": true }, "spec": {
                "attacher": "csi.example.com", "nodeName": "n1", "source": { "persistentVolumeName": "pv-1" } } }),
            json!(["csi-1", "csi.example.com", "pv-1", "n1", true, "10m"]),
        ),
        (
            "",
            "nodes",
            json!({ "metadata": { "name": "n1", "creationTimestamp": "2026-01-01T00:09:59Z",
                    "labels": { "node-role.kubernetes.io/control-plane": "" } },
                "spec": { "unschedulable": true },
                "status": { "conditions": [{ "type": "Ready", "status": "True" }],
                    "nodeInfo": { "kubeletVersion": "v1.37.0", "kernelVersion": "6.1", "architecture": "amd64" } } }),
            json!([
                "n1",
                "Ready,SchedulingDisabled",
                "control-plane",
                "1s",
                "v1.37.0",
                "<none>",
                "<none>",
                "<unknown>",
                "6.1 (amd64)",
                "<unknown>"
            ]),
        ),
        (
            "",
            "pods",
            json!({ "metadata": created("p"), "spec": { "nodeName": "n1", "containers": [{}, {}] },
                "status": { "phase": "Running", "podIPs": [{ "ip": "10.0.0.1" }], "containerStatuses": [
                    { "ready": true, "restartCount": 0, "state": { "running": {} } },
                    { "restartCount": 3, "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                      "lastState": { "terminated": { "finishedAt": "2026-01-01T00:09:00Z" } } } ] } }),
            json!(["p", "1/2", "CrashLoopBackOff", "3 (60s ago)", "10m", "10.0.0.1", "n1", "<none>", "<none>"]),
        ),
        (
            "",
            "events",
            json!({ "metadata": created("e"), "type": "Warning", "reason": "FailedAttachVolume", "message": "no \n",
                "involvedObject": { "kind": "VolumeAttachment", "name": "csi-1" }, "count": 2,
                "source": { "component": "attacher" },
                "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:08:00Z" }),
            json!([
                "2m",
                "Warning",
                "FailedAttachVolume",
                "volumeattachment/csi-1",
                "",
                "attacher",
                "no",
                "10m",
                2,
                "e"
            ]),
        ),
        (
            storage,
            "csidrivers",
            json!({ "metadata": created("d"), "spec": { "volumeLifecycleModes": ["Persistent"] } }),
            json!(["d", true, false, false, "<unset>", false, "Persistent", "10m"]),
        ),
        (
            storage,
            "storageclasses",
            json!({ "metadata": { "name": "fast", "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
                "provisioner": "csi.example.com" }),
            json!(["fast (default)", "csi.example.com", "Delete", "Immediate", false, "<unknown>"]),
        ),
        (
            "",
            "secrets",
            json!({ "metadata": created("s"), "type": "Opaque", "data": { "a": "", "b": "" } }),
            json!(["s", "Opaque", 2, "10m"]),
        ),
    ];
    for (group, plural, object, expected) in cases {
        assert_eq!(Value::from(row(group, plural, &object)), expected, "{plural}");
    }
}

#[test]
fn a_table_carries_what_was_asked_for() {
    let resource = find("storage.k8s.io", "v1", "csinodes").unwrap();
    let object = json!({ "metadata": created("n1"), "spec": { "drivers": [] } });
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    let table =
        |include, headers| render(resource, [&object], &json!({ "resourceVersion": "7" }), now, include, headers);
    let first = table(Include::Metadata, true);
    assert_eq!(first["metadata"]["resourceVersion"], "7");
    assert_eq!(first["columnDefinitions"][1]["name"], "Drivers");
    assert_eq!(first["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table(Include::Object, false)["rows"][0]["object"]["kind"], "CSINode");
    assert_eq!(table(Include::Object, false)["columnDefinitions"], json!([]));
    assert_eq!(table(Include::None, true)["rows"][0]["object"], Value::Null);
}

#[test]
fn tables_are_made_only_for_clients_that_want_them() {
    assert!(is_accepted(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    ));
    assert!(!is_accepted("application/json"));
    assert!(!is_accepted("application/json, application/json;as=Table;v=v1;g=meta.k8s.io"));
}

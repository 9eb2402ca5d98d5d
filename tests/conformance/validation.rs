//! Invalid objects, and the server's error messages.

use http::Method;
use serde_json::{Value, json};

use super::dialogue::{Case, PatchType, Server};
use super::objects::{ATTACHMENTS, CLAIMS, CONFIG_MAPS, LEASES, VOLUMES, attachment, claim, config_map, volume, with};

pub(crate) async fn names_are_dns_names(server: &Server) {
    let mut case = Case::begin(server).await;
    for name in ["CASE_a", "CASE-A", "-CASE", "CASE-", "CASE..a"] {
        assert_eq!(case.post(ATTACHMENTS, attachment(name)).await.code, 422, "{name}");
    }
    assert_eq!(case.post(ATTACHMENTS, attachment(&format!("CASE-{}", "a".repeat(250)))).await.code, 422);
    // One at a time: the server's maps have no order.
    for labels in [json!({"bad key": "x"}), json!({"ok": "bad value!"}), json!({"/": "x"})] {
        assert_eq!(case.post(CONFIG_MAPS, with(config_map("a"), "/metadata", "labels", labels)).await.code, 422);
    }
    let annotations = json!({"Bad Key": "x"});
    assert_eq!(case.post(CONFIG_MAPS, with(config_map("a"), "/metadata", "annotations", annotations)).await.code, 422);
    let finalizers = json!(["unqualified"]);
    case.post(CONFIG_MAPS, with(config_map("a"), "/metadata", "finalizers", finalizers)).await;
    case.post(CONFIG_MAPS, with(config_map("b"), "/metadata", "finalizers", json!(["bad one/x y"]))).await;
    case.end("names_are_dns_names");
}

/// A body with fields that the kind does not have, and with one that is there twice.
const ODD: &str = r#"{"metadata":{"name":"NAME","foo":1},"spec":{"storageClassName":"x","accessModes":["ReadWriteOnce"],
    "odd":{"a":1,"a":2},"resources":{"requests":{"storage":"1Gi"},"odd":1},"storageClassName":"y"},"spec2":1}"#;

const JSON: &str = "application/json";

const PODS: &str = "/api/v1/namespaces/CASE/pods";

pub(crate) async fn unknown_and_double_fields_are_told_as_the_client_asks(server: &Server) {
    let case = Case::begin(server).await;
    let create = async |validation: &str, name: &str| {
        let path = format!("{CLAIMS}?{validation}");
        case.write(&Method::POST, &path, JSON, &ODD.replace("NAME", name)).await
    };
    let faults = [
        r#"unknown field "metadata.foo""#,
        r#"unknown field "spec.odd""#,
        r#"unknown field "spec.resources.odd""#,
        r#"duplicate field "spec.storageClassName""#,
        r#"unknown field "spec2""#,
    ];
    let refused = create("fieldValidation=Strict", "a").await;
    let says =
        "PersistentVolumeClaim in version \"v1\" cannot be handled as a PersistentVolumeClaim: strict decoding error: ";
    let says = format!("{says}{}", faults.join(", "));
    assert_eq!((refused.code, refused.text("/reason"), refused.text("/message")), (400, "BadRequest", says.as_str()));
    let warnings: Vec<String> = faults.iter().map(|it| format!("299 - \"{}\"", it.replace('"', r#"\""#))).collect();
    for (validation, name, expected) in
        [("fieldValidation=Warn", "b", &warnings[..]), ("", "c", &warnings), ("fieldValidation=Ignore", "d", &[])]
    {
        let made = create(validation, name).await;
        assert_eq!((made.code, made.warnings.as_slice()), (201, expected), "{validation}");
        // Dropped they are in any case, and of two the last one counts.
        assert_eq!(made.text("/spec/storageClassName"), "y");
        let has_odd =
            ["/metadata/foo", "/spec/odd", "/spec/resources/odd", "/spec2"].map(|it| made.body.pointer(it).is_some());
        assert_eq!(has_odd, [false; 4], "{}", made.body);
    }
    let refused = create("fieldValidation=Often", "e").await;
    let says = "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Often\": supported values: \"\", \
                \"Ignore\", \"Strict\", \"Warn\"";
    assert_eq!((refused.code, refused.text("/message")), (422, says));
    let put = case.write(&Method::PUT, &format!("{CLAIMS}/b?dryRun=Some"), JSON, r#"{"metadata":{"name":"b"}}"#).await;
    assert!(put.text("/message").starts_with("UpdateOptions.meta.k8s.io \"\" is invalid: dryRun: "), "{}", put.body);
    let put = format!("{CLAIMS}/b?fieldValidation=Strict");
    let put = case.write(&Method::PUT, &put, JSON, r#"{"metadata":{"name":"b"},"spec":{"x":1}}"#).await;
    assert!(put.text("/message").ends_with(r#"strict decoding error: unknown field "spec.x""#), "{}", put.body);
    // A member of the wrong type is the worse fault.
    let wrong = r#"{"metadata":{"name":"f"},"spec":{"x":1,"volumeName":7}}"#;
    let wrong = case.write(&Method::POST, &format!("{CLAIMS}?fieldValidation=Strict"), JSON, wrong).await;
    assert!(wrong.text("/message").contains("json: cannot unmarshal number into Go struct field"), "{}", wrong.body);
}

pub(crate) async fn unknown_and_double_fields_of_a_patch_are_told_as_the_client_asks(server: &Server) {
    let mut case = Case::begin(server).await;
    assert_eq!(case.post(CLAIMS, claim("a")).await.code, 201);
    let twice = r#"{"metadata":{"labels":{"a":"1","a":"2"}},"spec":{"foo":1,"bar":{"x":1}}}"#;
    let operations = r#"[{"op":"add","path":"/spec/foo","value":1,"odd":2},{"op":"add","op":"add","path":"/metadata/labels","value":{}}]"#;
    let of_object =
        [r#"duplicate field "metadata.labels.a""#, r#"unknown field "spec.bar""#, r#"unknown field "spec.foo""#];
    let of_list = [
        r#"json patch unknown field "[0].odd""#,
        r#"json patch duplicate field "[1].op""#,
        r#"unknown field "spec.foo""#,
    ];
    let shown = r#""map[metadata:map[labels:map[a:2]] spec:map[bar:map[x:1] foo:1]]""#;
    for (media, body, faults, shown) in [
        ("application/merge-patch+json", twice, of_object, "\"{"),
        ("application/strategic-merge-patch+json", twice, of_object, shown),
        ("application/json-patch+json", operations, of_list, "\"{"),
    ] {
        let refused = case.write(&Method::PATCH, &format!("{CLAIMS}/a?fieldValidation=Strict"), media, body).await;
        let message = refused.text("/message");
        assert_eq!((refused.code, refused.text("/details/causes/0/field")), (422, "patch"), "{media}");
        assert!(message.starts_with(&format!(" \"\" is invalid: patch: Invalid value: {shown}")), "{media}: {message}");
        assert!(message.ends_with(&format!(": strict decoding error: {}", faults.join(", "))), "{media}: {message}");
        let patched = case.write(&Method::PATCH, &format!("{CLAIMS}/a"), media, body).await;
        let warnings: Vec<String> = faults.iter().map(|it| format!("299 - \"{}\"", it.replace('"', r#"\""#))).collect();
        assert_eq!((patched.code, &patched.warnings), (200, &warnings), "{media}");
        let odd = ["/spec/foo", "/spec/bar"].map(|it| patched.body.pointer(it));
        assert_eq!(odd, [None; 2], "{media}");
    }
    let intent = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"foo": 1}});
    let applied = format!("{CLAIMS}/a?fieldManager=m&fieldValidation=Ignore");
    let applied = case.write(&Method::PATCH, &applied, "application/apply-patch+yaml", &intent.to_string()).await;
    let says = "failed to create typed patch object (/; /v1, Kind=PersistentVolumeClaim): .spec.foo: field not declared in schema";
    assert_eq!((applied.code, applied.text("/message")), (500, says));
    let status = format!("{CLAIMS}/a/status?fieldValidation=Strict");
    let status = case.write(&Method::PATCH, &status, "application/merge-patch+json", r#"{"status":{"foo":1}}"#).await;
    assert!(
        status.text("/message").ends_with(r#"strict decoding error: unknown field "status.foo""#),
        "{}",
        status.body
    );
}

pub(crate) async fn a_change_of_what_never_changes_is_shown(server: &Server) {
    let mut case = Case::begin(server).await;
    let merge = "application/merge-patch+json";
    assert_eq!(case.post(CLAIMS, claim("a")).await.code, 201);
    let change = r#"{"spec":{"accessModes":["ReadWriteMany"],"selector":{"matchLabels":{"a":"b"}}}}"#;
    let refused = case.write(&Method::PATCH, &format!("{CLAIMS}/a"), merge, change).await;
    let says = "PersistentVolumeClaim \"a\" is invalid: spec: Forbidden: spec is immutable after creation except resources.requests and \
                volumeAttributesClassName for bound claims\n@@ -1,8 +1,12 @@\n {\n  \"AccessModes\": [\n-  \"ReadWriteOnce\"\n+  \
                \"ReadWriteMany\"\n  ],\n- \"Selector\": null,\n+ \"Selector\": {\n+  \"matchLabels\": {\n+   \"a\": \"b\"\n+  }\n+ \
                },\n  \"Resources\": {\n   \"Limits\": null,\n   \"Requests\": {\n";
    assert_eq!((refused.code, refused.text("/message")), (422, says));

    assert_eq!(case.post(VOLUMES, volume("CASE-a")).await.code, 201);
    let change = r#"{"spec":{"csi":{"fsType":"xfs","nodeStageSecretRef":{"name":"a","namespace":"b"}}}}"#;
    let refused = case.write(&Method::PATCH, &format!("{VOLUMES}/CASE-a"), merge, change).await;
    let says = "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n@@ -24,10 +24,13 @@\n   \
                \"Driver\": \"demo.csi.example.com\",\n";
    assert!(refused.text("/message").contains(says), "{}", refused.text("/message"));
    let says = "\n-  \"NodeStageSecretRef\": null,\n+  \"NodeStageSecretRef\": {\n+   \"Name\": \"a\",\n+   \"Namespace\": \"b\"\n+  \
                },\n   \"NodePublishSecretRef\": null,\n   \"ControllerExpandSecretRef\": null,\n   \"NodeExpandSecretRef\": null\n";
    assert!(refused.text("/message").ends_with(says), "{}", refused.text("/message"));

    let pod = r#"{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#;
    assert_eq!(case.write(&Method::POST, PODS, JSON, pod).await.code, 201);
    let change = async |change: &str| case.write(&Method::PATCH, &format!("{PODS}/a"), merge, change).await;
    assert_eq!(change(r#"{"spec":{"containers":[{"name":"c","image":"j"}]}}"#).await.code, 200);
    let refused = change(r#"{"spec":{"subdomain":"x"}}"#).await;
    let says = "Pod \"a\" is invalid: spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
                `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
                tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
    assert!(refused.text("/message").starts_with(says), "{}", refused.text("/message"));
    let refused = change(r#"{"spec":{"containers":[{"name":"c","image":"j"},{"name":"d","image":"j"}]}}"#).await;
    let says = "Pod \"a\" is invalid: spec.containers: Forbidden: pod updates may not add or remove containers";
    assert_eq!((refused.code, refused.text("/message")), (422, says));
}

pub(crate) async fn an_attachment_names_one_source(server: &Server) {
    let mut case = Case::begin(server).await;
    let spec = |spec: Value| with(attachment("CASE-a"), "", "spec", spec);
    let inline =
        json!({"accessModes": ["ReadWriteOnce"], "csi": {"driver": "demo.csi.example.com", "volumeHandle": "v"}});
    for bad in [
        json!({}),
        json!({"attacher": "a", "nodeName": "n", "source": {}}),
        json!({"attacher": "", "nodeName": "n", "source": {"persistentVolumeName": "p"}}),
        json!({"attacher": "bad name", "nodeName": "Bad_Node", "source": {"persistentVolumeName": "Bad_Volume"}}),
        json!({"attacher": "a", "nodeName": "", "source": {"persistentVolumeName": ""}}),
        json!({"attacher": "a".repeat(64), "nodeName": "n", "source": {"persistentVolumeName": "p"}}),
        json!({"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p", "inlineVolumeSpec": inline}}),
    ] {
        assert_eq!(case.post(ATTACHMENTS, spec(bad)).await.code, 422);
    }
    assert_eq!(
        case.post(ATTACHMENTS, spec(json!({"attacher": "a", "nodeName": "n", "source": {"inlineVolumeSpec": inline}})))
            .await
            .code,
        201
    );
    case.end("an_attachment_names_one_source");
}

pub(crate) async fn an_attachments_spec_never_changes(server: &Server) {
    let (mut case, path, _) = Case::with(server, ATTACHMENTS, attachment("CASE-a")).await;
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"spec": {"nodeName": "node-2"}})).await.code, 422);
    let renamed = json!({"metadata": {"name": "CASE-b"}});
    case.patch(PatchType::Merge, &path, renamed).await;
    case.end("an_attachments_spec_never_changes");
}

pub(crate) async fn a_volumes_source_never_changes(server: &Server) {
    let (mut case, path, _) = Case::with(server, VOLUMES, volume("CASE-a")).await;
    let handle = json!({"spec": {"csi": {"volumeHandle": "other"}}});
    assert_eq!(case.patch(PatchType::Merge, &path, handle).await.code, 422);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"spec": {"capacity": {"storage": "2Gi"}}})).await.code, 200);
    let policy = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    assert_eq!(case.patch(PatchType::Merge, &path, policy).await.code, 200);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"spec": {"volumeMode": "Block"}})).await.code, 422);
    case.patch(PatchType::Merge, &path, json!({"spec": {"accessModes": ["ReadWriteMany"]}})).await;
    case.patch(PatchType::Merge, &path, json!({"spec": {"persistentVolumeReclaimPolicy": "Burn"}})).await;
    case.end("a_volumes_source_never_changes");
}

pub(crate) async fn a_volume_has_what_it_must(server: &Server) {
    let mut case = Case::begin(server).await;
    let spec = |spec: Value| with(volume("CASE-a"), "", "spec", spec);
    let csi = json!({"driver": "demo.csi.example.com", "volumeHandle": "v"});
    for bad in [
        json!({}),
        json!({"csi": csi}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}),
        json!({"capacity": {"storage": "0"}, "accessModes": ["ReadWriteOnce"], "csi": csi}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadSometimes"], "csi": csi}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod", "ReadWriteOnce"], "csi": csi}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "", "volumeHandle": ""}}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi, "volumeMode": "Tape"}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "d", "volumeHandle": "v",
            "controllerPublishSecretRef": {"name": "", "namespace": "x"}}}),
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi, "hostPath": {"path": "/x"}}),
    ] {
        assert_eq!(case.post(VOLUMES, spec(bad)).await.code, 422);
    }
    case.end("a_volume_has_what_it_must");
}

pub(crate) async fn a_csi_node_lists_each_driver_once(server: &Server) {
    let mut case = Case::begin(server).await;
    let path = "/apis/storage.k8s.io/v1/csinodes";
    let node = |drivers: Value| json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "CASE-n"}, "spec": {"drivers": drivers}});
    let driver = json!({"name": "demo.csi.example.com", "nodeID": "id-1", "topologyKeys": ["example.com/zone"]});
    assert_eq!(case.post(path, node(json!([driver, driver]))).await.code, 422);
    assert_eq!(case.post(path, node(json!([{"name": "demo.csi.example.com", "nodeID": ""}]))).await.code, 422);
    assert_eq!(case.post(path, node(json!([{"name": "d", "nodeID": "x".repeat(257)}]))).await.code, 422);
    assert_eq!(
        case.post(path, node(json!([{"name": "d", "nodeID": "x", "allocatable": {"count": -1}}]))).await.code,
        422
    );
    assert_eq!(case.post(path, node(json!([driver]))).await.code, 201);
    let moved = json!({"spec": {"drivers": [{"name": "demo.csi.example.com", "nodeID": "id-2", "topologyKeys": ["example.com/zone"]}]}});
    assert_eq!(case.patch(PatchType::Merge, &format!("{path}/CASE-n"), moved).await.code, 422);
    assert_eq!(
        case.patch(PatchType::Merge, &format!("{path}/CASE-n"), json!({"spec": {"drivers": []}})).await.code,
        200
    );
    case.end("a_csi_node_lists_each_driver_once");
}

pub(crate) async fn leases_are_checked(server: &Server) {
    let mut case = Case::begin(server).await;
    let lease = |spec: Value| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": spec});
    let good = json!({"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.123456Z"});
    assert_eq!(case.post(LEASES, lease(good)).await.code, 201);
    for bad in [
        json!({"leaseDurationSeconds": 0}),
        json!({"leaseTransitions": -1}),
        json!({"holderIdentity": ""}),
        json!({"renewTime": "2026-01-01"}),
        json!({"renewTime": "2026-01-01T00:00:00Z"}),
        json!({"leaseDurationSeconds": "15"}),
    ] {
        case.put(&format!("{LEASES}/a"), lease(bad)).await;
    }
    case.end("leases_are_checked");
}

pub(crate) async fn events_belong_to_their_objects_namespace(server: &Server) {
    let mut case = Case::begin(server).await;
    let event = |name: &str, about: Value| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about,
            "reason": "FailedAttachVolume", "message": "no", "type": "Warning", "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "source": {"component": "x"}})
    };
    let path = "/api/v1/namespaces/CASE/events";
    let here = json!({"kind": "PersistentVolumeClaim", "namespace": "CASE", "name": "c", "apiVersion": "v1"});
    assert_eq!(case.post(path, event("a", here.clone())).await.code, 201);
    let cluster = json!({"kind": "VolumeAttachment", "name": "v", "apiVersion": "storage.k8s.io/v1"});
    assert_eq!(case.post(path, event("b", cluster)).await.code, 422);
    let series = json!({"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z"});
    assert_eq!(case.patch(PatchType::Merge, &format!("{path}/a"), series).await.code, 200);
    case.end("events_belong_to_their_objects_namespace");
}

pub(crate) async fn wrong_types_are_bad_requests(server: &Server) {
    let mut case = Case::begin(server).await;
    assert_eq!(case.post(CONFIG_MAPS, with(config_map("a"), "", "data", json!({"key": 1}))).await.code, 400);
    assert_eq!(case.post(CONFIG_MAPS, with(config_map("a"), "/metadata", "labels", json!(["x"]))).await.code, 400);
    let number = with(attachment("CASE-a"), "/spec", "nodeName", json!(5));
    assert_eq!(case.post(ATTACHMENTS, number).await.code, 400);
    assert_eq!(case.post(CONFIG_MAPS, json!("text")).await.code, 400);
    assert_eq!(
        case.post(CONFIG_MAPS, json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}})).await.code,
        400
    );
    case.post(CONFIG_MAPS, json!({"metadata": {"name": "untyped"}})).await;
    case.post(CONFIG_MAPS, json!({"apiVersion": "v1", "metadata": {"name": "untyped-2"}})).await;
    case.end("wrong_types_are_bad_requests");
}

pub(crate) async fn immutable_maps_and_secrets_stay(server: &Server) {
    let mut case = Case::begin(server).await;
    case.post(CONFIG_MAPS, with(config_map("a"), "", "immutable", json!(true))).await;
    let path = format!("{CONFIG_MAPS}/a");
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"data": {"key": "2"}})).await.code, 422);
    assert_eq!(case.patch(PatchType::Merge, &path, json!({"immutable": false})).await.code, 422);
    // One at a time: the server's maps have no order.
    for data in [json!({"bad key": "x"}), json!({"": "y"})] {
        case.post(CONFIG_MAPS, with(config_map("b"), "", "data", data)).await;
    }
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "data": {"key": "not base64!"}});
    case.post("/api/v1/namespaces/CASE/secrets", secret).await;
    case.end("immutable_maps_and_secrets_stay");
}

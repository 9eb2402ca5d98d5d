//! What strict decoding finds, in the words of kube-apiserver 1.37. `tests/conformance` asks a real one the same.

use serde_json::json;

use super::*;
use crate::api::pure::resources;

fn resource(kind: &str) -> &'static Resource {
    resources::RESOURCES.iter().find(|it| it.kind == kind).unwrap()
}

/// What a body of this kind warns of.
fn warned(kind: &str, body: &str) -> Vec<String> {
    let mut dropped = Dropped::new(Directive::Warn);
    dropped.in_body(resource(kind), body.as_bytes()).unwrap();
    dropped.warnings().to_vec()
}

#[test]
fn a_body_names_its_unknown_and_double_fields_in_the_order_of_its_text() {
    for (kind, body, says) in [
        (
            "PersistentVolumeClaim",
            r#"{"metadata":{"foo":1},"spec":{"storageClassName":"x","odd":{"a":1,"a":2},"resources":{"odd":1},"storageClassName":"y"},"spec2":1}"#,
            &[
                r#"unknown field "metadata.foo""#,
                r#"unknown field "spec.odd""#,
                r#"unknown field "spec.resources.odd""#,
                r#"duplicate field "spec.storageClassName""#,
                r#"unknown field "spec2""#,
            ][..],
        ),
        (
            "Pod",
            r#"{"metadata":{"labels":{"a":"1","a":"2"},"annotations":{"a/b.c":"1","a/b.c":"2"}},"spec":{"containers":[{"imag":"c","volumeMounts":[{"mountpath":"/c"}]}],"volumes":[{"persistentVolumeClaim":{"claimname":"d"}}]}}"#,
            &[
                r#"duplicate field "metadata.labels.a""#,
                r#"duplicate field "metadata.annotations.a/b.c""#,
                r#"unknown field "spec.containers[0].imag""#,
                r#"unknown field "spec.containers[0].volumeMounts[0].mountpath""#,
                r#"unknown field "spec.volumes[0].persistentVolumeClaim.claimname""#,
            ],
        ),
        // Of an installed kind: what is there twice first, also within what is unknown; then what is unknown, sorted.
        (
            "VolumeSnapshot",
            r#"{"metadata":{"zfoo":1},"spec":{"z":{"k":1,"k":2},"volumeSnapshotClassName":"a","volumeSnapshotClassName":"b","source":{"odd":1}},"odd":1}"#,
            &[
                r#"duplicate field "spec.z.k""#,
                r#"duplicate field "spec.volumeSnapshotClassName""#,
                r#"unknown field "metadata.zfoo""#,
                r#"unknown field "odd""#,
                r#"unknown field "spec.source.odd""#,
                r#"unknown field "spec.z""#,
            ],
        ),
        // Fields that another decoder reads, and fields whose members the table does not have.
        ("ConfigMap", r#"{"metadata":{"managedFields":[{"fieldsV1":{"f:x":{},"f:x":{}}}]},"data":{"any":"1"}}"#, &[]),
        ("Deployment", r#"{"spec":{"whatever":1}}"#, &[]),
        // No JSON at all is another's fault to tell.
        ("Pod", r#"{"spec":"#, &[]),
    ] {
        assert_eq!(warned(kind, body), says, "{kind}");
    }
}

#[test]
fn the_directive_says_what_becomes_of_a_request_with_such_fields() {
    let (claim, body) = (resource("PersistentVolumeClaim"), br#"{"spec":{"odd":1},"odd":2}"#);
    let ask = |directive| {
        let mut dropped = Dropped::new(directive);
        dropped.in_body(claim, body).map(|()| dropped.warnings().len())
    };
    assert_eq!((ask(Directive::Ignore), ask(Directive::Warn), Directive::default()), (Ok(0), Ok(2), Directive::Warn));
    let refused = ask(Directive::Strict).unwrap_err();
    let says = r#"PersistentVolumeClaim in version "v1" cannot be handled as a PersistentVolumeClaim: strict decoding error: unknown field "spec.odd", unknown field "odd""#;
    assert_eq!((refused.code, refused.reason, refused.message.as_str()), (400, "BadRequest", says));
    let fine = br#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","spec":{"volumeName":"v"}}"#;
    assert_eq!(Dropped::new(Directive::Strict).in_body(claim, fine), Ok(()));
}

#[test]
fn a_patch_is_looked_at_and_so_is_what_it_makes() {
    let claim = resource("PersistentVolumeClaim");
    let ask = |kind: &PatchKind, directive, body: &str| {
        let mut patched = json!({"spec": {"volumeName": "v", "odd": {"x": 1}, "bad": 1}});
        let mut dropped = Dropped::new(directive);
        let asked = dropped.in_patch(claim, kind, body.as_bytes(), &mut patched);
        asked.map(|()| (dropped.warnings().join(", "), patched))
    };
    let twice = r#"{"metadata":{"labels":{"a":"1","a":"2"}},"spec":{"odd":{"x":1},"bad":1}}"#;
    let says = r#"duplicate field "metadata.labels.a", unknown field "spec.bad", unknown field "spec.odd""#;
    let left = json!({"spec": {"volumeName": "v"}});
    for kind in [PatchKind::Merge, PatchKind::Strategic] {
        assert_eq!(ask(&kind, Directive::Warn, twice), Ok((says.to_owned(), left.clone())), "{kind:?}");
    }
    let operations =
        r#"[{"op":"add","path":"/spec/odd","value":{"a":1,"a":2},"odd":2},{"op":"add","op":"add","path":"/spec/bad"}]"#;
    let told = r#"json patch unknown field "[0].odd", json patch duplicate field "[1].op", unknown field "spec.bad", unknown field "spec.odd""#;
    assert_eq!(ask(&PatchKind::Json, Directive::Warn, operations), Ok((told.to_owned(), left)));
    // What is shown of it: the whole object as JSON, or a strategic patch as Go prints it.
    let refused = ask(&PatchKind::Strategic, Directive::Strict, twice).unwrap_err();
    let shown = "map[metadata:map[labels:map[a:2]] spec:map[bad:1 odd:map[x:1]]]";
    let message = format!(" \"\" is invalid: patch: Invalid value: \"{shown}\": strict decoding error: {says}");
    assert_eq!((refused.code, refused.message), (422, message));
    let refused = ask(&PatchKind::Merge, Directive::Strict, "{}").unwrap_err();
    assert!(refused.message.contains(r#"Invalid value: "{\"spec\":{\"bad\":1,"#), "{}", refused.message);
}

#[test]
fn each_kind_that_every_cluster_has_is_known_but_those_of_workloads() {
    let unknown: Vec<_> = resources::RESOURCES
        .iter()
        .filter(|it| !it.optional && matches!(Type::of(it), Type::Any))
        .map(|it| it.kind)
        .collect();
    assert_eq!(unknown, ["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]);
}

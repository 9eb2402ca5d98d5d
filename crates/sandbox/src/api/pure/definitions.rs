//! The definitions of kinds that a cluster has only if somebody installs them: members, types and rules, as the released
//! definitions of external-snapshotter 8.4 have them. Pure data.
//!
//! The store enforces them (`validate::structural`), and `tests/cluster` installs the same ones on a real server: so what the
//! two make of them can be compared. Left out is what no client of the API meets: descriptions, old versions.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::resources::Resource;

/// The schema of this kind's objects. A kind that was installed without a schema keeps all fields.
pub fn schema(resource: &Resource) -> Option<&'static Value> {
    let schema: &'static LazyLock<Value> = match (resource.group, resource.plural) {
        ("snapshot.storage.k8s.io", "volumesnapshotclasses") => &CLASSES,
        ("snapshot.storage.k8s.io", "volumesnapshotcontents") => &CONTENTS,
        ("snapshot.storage.k8s.io", "volumesnapshots") => &SNAPSHOTS,
        (GROUPS, "volumegroupsnapshotclasses") => &GROUP_CLASSES,
        (GROUPS, "volumegroupsnapshotcontents") if resource.version == "v1beta1" => &OLD_GROUP_CONTENTS,
        (GROUPS, "volumegroupsnapshotcontents") => &GROUP_CONTENTS,
        (GROUPS, "volumegroupsnapshots") => &GROUP_SNAPSHOTS,
        _ => return None,
    };
    Some(schema)
}

const GROUPS: &str = "groupsnapshot.storage.k8s.io";

/// A column of `kubectl get`: its name, its type, and where its value stands.
pub type PrinterColumn = (&'static str, &'static str, &'static [&'static str]);

const AGE: PrinterColumn = ("Age", "date", &["metadata", "creationTimestamp"]);
const READY: PrinterColumn = ("ReadyToUse", "boolean", &["status", "readyToUse"]);
const TAKEN: PrinterColumn = ("CreationTime", "date", &["status", "creationTime"]);
const POLICY: PrinterColumn = ("DeletionPolicy", "string", &["spec", "deletionPolicy"]);
const DRIVER: PrinterColumn = ("Driver", "string", &["spec", "driver"]);
const OF_CLASS: &[PrinterColumn] =
    &[("Driver", "string", &["driver"]), ("DeletionPolicy", "string", &["deletionPolicy"]), AGE];

/// The columns of a kind that was installed, but for the name; none for a kind that every cluster has.
pub fn columns(resource: &Resource) -> &'static [PrinterColumn] {
    match resource.plural {
        _ if !resource.optional => &[],
        "volumesnapshotclasses" | "volumegroupsnapshotclasses" => OF_CLASS,
        "volumesnapshots" => &[
            READY,
            ("SourcePVC", "string", &["spec", "source", "persistentVolumeClaimName"]),
            ("SourceSnapshotContent", "string", &["spec", "source", "volumeSnapshotContentName"]),
            ("RestoreSize", "string", &["status", "restoreSize"]),
            ("SnapshotClass", "string", &["spec", "volumeSnapshotClassName"]),
            ("SnapshotContent", "string", &["status", "boundVolumeSnapshotContentName"]),
            TAKEN,
            AGE,
        ],
        "volumesnapshotcontents" => &[
            READY,
            ("RestoreSize", "integer", &["status", "restoreSize"]),
            POLICY,
            DRIVER,
            ("VolumeSnapshotClass", "string", &["spec", "volumeSnapshotClassName"]),
            ("VolumeSnapshot", "string", &["spec", "volumeSnapshotRef", "name"]),
            ("VolumeSnapshotNamespace", "string", &["spec", "volumeSnapshotRef", "namespace"]),
            AGE,
        ],
        "volumegroupsnapshots" => &[
            READY,
            ("VolumeGroupSnapshotClass", "string", &["spec", "volumeGroupSnapshotClassName"]),
            ("VolumeGroupSnapshotContent", "string", &["status", "boundVolumeGroupSnapshotContentName"]),
            TAKEN,
            AGE,
        ],
        "volumegroupsnapshotcontents" => &[
            READY,
            POLICY,
            DRIVER,
            ("VolumeGroupSnapshotClass", "string", &["spec", "volumeGroupSnapshotClassName"]),
            ("VolumeGroupSnapshotNamespace", "string", &["spec", "volumeGroupSnapshotRef", "namespace"]),
            ("VolumeGroupSnapshot", "string", &["spec", "volumeGroupSnapshotRef", "name"]),
            AGE,
        ],
        // What a server shows of a kind whose definition names no columns.
        _ => &[AGE],
    }
}

/// A reference to an object, without its rules.
fn reference() -> Value {
    let members = ["apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"];
    let mut reference = object(&members.into_iter().map(|name| (name.to_owned(), text())).collect());
    reference["x-kubernetes-map-type"] = "atomic".into();
    reference
}

static CLASSES: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = root(&json!({
        "deletionPolicy": policy(), "driver": text(),
        "parameters": {"type": "object", "additionalProperties": text()},
    }));
    schema["required"] = json!(["deletionPolicy", "driver"]);
    schema
});

static CONTENTS: LazyLock<Value> = LazyLock::new(|| {
    let mut reference = reference();
    let both = "both spec.volumeSnapshotRef.name and spec.volumeSnapshotRef.namespace must be set";
    reference["x-kubernetes-validations"] = json!([rule("has(self.name) && has(self.__namespace__)", both)]);
    let mut spec = object(&json!({
        "deletionPolicy": policy(), "driver": text(), "source": one_of("volumeHandle", "snapshotHandle"),
        "sourceVolumeMode": fixed("sourceVolumeMode"), "volumeSnapshotClassName": text(),
        "volumeSnapshotRef": reference,
    }));
    spec["required"] = json!(["deletionPolicy", "driver", "source", "volumeSnapshotRef"]);
    spec["x-kubernetes-validations"] = json!([stays("sourceVolumeMode")]);
    let status = object(&json!({
        "creationTime": {"type": "integer", "format": "int64"}, "error": error(), "readyToUse": {"type": "boolean"},
        "restoreSize": {"type": "integer", "format": "int64", "minimum": 0},
        "snapshotHandle": text(), "volumeGroupSnapshotHandle": text(),
    }));
    let mut schema = root(&json!({"spec": spec, "status": status}));
    schema["required"] = json!(["spec"]);
    schema
});

static SNAPSHOTS: LazyLock<Value> = LazyLock::new(|| {
    let class = "volumeSnapshotClassName must not be the empty string when set";
    let mut spec = object(&json!({
        "source": one_of("volumeSnapshotContentName", "persistentVolumeClaimName"),
        "volumeSnapshotClassName": {"type": "string", "x-kubernetes-validations": [rule("size(self) > 0", class)]},
    }));
    spec["required"] = json!(["source"]);
    let quantity = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
    let status = object(&json!({
        "boundVolumeSnapshotContentName": text(), "creationTime": {"type": "string", "format": "date-time"},
        "error": error(), "readyToUse": {"type": "boolean"},
        "restoreSize": {"type": "string", "pattern": quantity, "x-kubernetes-int-or-string": true},
        "volumeGroupSnapshotName": text(),
    }));
    let mut schema = root(&json!({"spec": spec, "status": status}));
    schema["required"] = json!(["spec"]);
    schema
});

static GROUP_CLASSES: LazyLock<Value> = LazyLock::new(|| {
    let mut parameters = json!({"type": "object", "additionalProperties": text()});
    parameters["x-kubernetes-validations"] = json!([rule("self == oldSelf", "parameters are immutable once set")]);
    let mut policy = policy();
    policy["x-kubernetes-validations"] = json!([rule("self == oldSelf", "deletionPolicy is immutable once set")]);
    let mut schema = root(&json!({"deletionPolicy": policy, "driver": once("driver"), "parameters": parameters}));
    schema["required"] = json!(["deletionPolicy", "driver"]);
    schema
});

static GROUP_CONTENTS: LazyLock<Value> = LazyLock::new(|| {
    let mut reference = reference();
    reference["x-kubernetes-validations"] = json!([
        rule(
            "has(self.name) && has(self.__namespace__)",
            "both volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace must be set",
        ),
        rule(
            "self.name == oldSelf.name && self.__namespace__ == oldSelf.__namespace__",
            "volumeGroupSnapshotRef.name and volumeGroupSnapshotRef.namespace are immutable",
        ),
        rule(
            "!has(oldSelf.uid) || (has(self.uid) && self.uid == oldSelf.uid)",
            "volumeGroupSnapshotRef.uid is immutable once set",
        ),
    ]);
    let mut handles = object(&json!({"volumeGroupSnapshotHandle": text(), "volumeSnapshotHandles": texts()}));
    handles["required"] = json!(["volumeGroupSnapshotHandle", "volumeSnapshotHandles"]);
    let source = either(("volumeHandles", texts()), ("groupSnapshotHandles", handles));
    let mut spec = object(&json!({
        "deletionPolicy": policy(), "driver": once("driver"), "source": source,
        "volumeGroupSnapshotClassName": once("volumeGroupSnapshotClassName"), "volumeGroupSnapshotRef": reference,
    }));
    spec["required"] = json!(["deletionPolicy", "driver", "source", "volumeGroupSnapshotRef"]);
    let number = || json!({"type": "integer", "format": "int64"});
    let member = object(&json!({
        "creationTime": number(), "readyToUse": {"type": "boolean"}, "restoreSize": number(), "snapshotHandle": text(),
        "volumeHandle": text(),
    }));
    let status = object(&json!({
        "creationTime": {"type": "string", "format": "date-time"}, "error": error(), "readyToUse": {"type": "boolean"},
        "volumeGroupSnapshotHandle": once("volumeGroupSnapshotHandle"),
        "volumeSnapshotInfoList": {"type": "array", "items": member},
    }));
    let mut schema = root(&json!({"spec": spec, "status": status}));
    schema["required"] = json!(["spec"]);
    schema
});

/// The same in `v1beta1`, with another list of members. Its fields may change: no client here changes them.
static OLD_GROUP_CONTENTS: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = GROUP_CONTENTS.clone();
    let mut pair = object(&json!({"snapshotHandle": text(), "volumeHandle": text()}));
    pair["required"] = json!(["snapshotHandle", "volumeHandle"]);
    if let Some(Value::Object(status)) = schema.pointer_mut("/properties/status/properties") {
        status.remove("volumeSnapshotInfoList");
        status.insert("volumeSnapshotHandlePairList".to_owned(), json!({"type": "array", "items": pair}));
    }
    schema
});

static GROUP_SNAPSHOTS: LazyLock<Value> = LazyLock::new(|| {
    let class = "volumeGroupSnapshotClassName must not be the empty string when set";
    let expression = object(&json!({"key": text(), "operator": text(), "values": texts()}));
    let selector = object(&json!({
        "matchExpressions": {"type": "array", "items": expression},
        "matchLabels": {"type": "object", "additionalProperties": text()},
    }));
    let mut spec = object(&json!({
        "source": either(("selector", selector), ("volumeGroupSnapshotContentName", text())),
        "volumeGroupSnapshotClassName": {"type": "string", "x-kubernetes-validations": [rule("size(self) > 0", class)]},
    }));
    spec["required"] = json!(["source"]);
    let status = object(&json!({
        "boundVolumeGroupSnapshotContentName": once("boundVolumeGroupSnapshotContentName"),
        "creationTime": {"type": "string", "format": "date-time"}, "error": error(), "readyToUse": {"type": "boolean"},
    }));
    let mut schema = root(&json!({"spec": spec, "status": status}));
    schema["required"] = json!(["spec"]);
    schema
});

fn root(members: &Value) -> Value {
    let mut schema = object(members);
    schema["properties"]["apiVersion"] = text();
    schema["properties"]["kind"] = text();
    schema["properties"]["metadata"] = json!({"type": "object"});
    schema
}

fn object(members: &Value) -> Value {
    json!({"type": "object", "properties": members})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn policy() -> Value {
    json!({"type": "string", "enum": ["Delete", "Retain"]})
}

fn error() -> Value {
    object(&json!({"message": text(), "time": {"type": "string", "format": "date-time"}}))
}

fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// A text that never changes.
fn fixed(name: &str) -> Value {
    json!({"type": "string", "x-kubernetes-validations": [rule("self == oldSelf", &format!("{name} is immutable"))]})
}

/// The rule that a member is never taken away.
fn stays(name: &str) -> Value {
    rule(&format!("!has(oldSelf.{name}) || has(self.{name})"), &format!("{name} is required once set"))
}

/// A text that never changes once it is there.
fn once(name: &str) -> Value {
    let says = format!("{name} is immutable once set");
    json!({"type": "string", "x-kubernetes-validations": [rule("self == oldSelf", &says)]})
}

fn texts() -> Value {
    json!({"type": "array", "items": text()})
}

/// A source: one of two texts, which never change.
fn one_of(first: &str, second: &str) -> Value {
    either((first, text()), (second, text()))
}

/// The same of any two members.
fn either(first: (&str, Value), second: (&str, Value)) -> Value {
    let stands = |(name, mut schema): (&str, Value)| {
        let says = format!("{name} is immutable");
        schema["x-kubernetes-validations"] = json!([rule("self == oldSelf", &says)]);
        (name.to_owned(), schema)
    };
    let names = (first.0, second.0);
    let mut source = object(&[first, second].into_iter().map(stands).collect());
    let (first, second) = names;
    let only = |this: &str, other: &str| format!("(has(self.{this}) && !has(self.{other}))");
    let exactly = format!("{} || (!has(self.{first}) && has(self.{second}))", only(first, second));
    let message = format!("exactly one of {first} and {second} must be set");
    source["x-kubernetes-validations"] = json!([stays(first), stays(second), rule(&exactly, &message)]);
    source
}

#[cfg(test)]
mod tests {
    use super::super::resources::RESOURCES;
    use super::*;

    #[test]
    fn only_kinds_that_are_installed_have_a_definition() {
        let defined: Vec<_> = RESOURCES.iter().filter(|it| schema(it).is_some()).collect();
        assert!(defined.iter().all(|it| it.optional) && defined.len() == 12);
        for resource in defined {
            let has_status = schema(resource).unwrap().pointer("/properties/status").is_some();
            assert_eq!(has_status, resource.has_status, "{}", resource.plural);
        }
    }

    #[test]
    fn the_versions_of_groups_have_one_schema_but_for_the_list_of_members() {
        for plural in ["volumegroupsnapshotclasses", "volumegroupsnapshotcontents", "volumegroupsnapshots"] {
            let of = |version| super::super::resources::find(GROUPS, version, plural).and_then(schema);
            let is_old_the_same = of("v1") == of("v1beta1");
            assert!(of("v1").is_some() && of("v1") == of("v1beta2") && of("v1beta1").is_some(), "{plural}");
            assert_eq!(is_old_the_same, plural != "volumegroupsnapshotcontents");
        }
    }
}

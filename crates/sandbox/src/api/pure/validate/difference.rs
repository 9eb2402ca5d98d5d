//! The difference of two specs in the server's words: both as its own Go types print them, line by line, in unified form with three
//! lines around each change, as `pkg/util/diff` of apimachinery shows them behind "is immutable after creation".

use std::fmt::Write as _;
use std::ops::Range;

use super::super::access::{at, list};
use serde_json::Value;

/// Lines around a change.
const CONTEXT: usize = 3;

/// A value as the server's internal types print it: their structs have all members, in their order and by their Go names.
enum Go {
    /// As it came: its members sorted.
    Plain(Value),
    Struct(Vec<(&'static str, Self)>),
}

/// A member: its Go name, and the name in JSON.
type Member = (&'static str, &'static str);

const SECRET: &[Member] = &[("Name", "name"), ("Namespace", "namespace")];
const DATA_SOURCE: &[Member] = &[("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name")];
const DATA_SOURCE_REF: &[Member] =
    &[("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"), ("Namespace", "namespace")];
/// The sources of a volume in the order of the server's type.
const SOURCES: [Member; 22] = [
    ("GCEPersistentDisk", "gcePersistentDisk"),
    ("AWSElasticBlockStore", "awsElasticBlockStore"),
    ("HostPath", "hostPath"),
    ("Glusterfs", "glusterfs"),
    ("NFS", "nfs"),
    ("RBD", "rbd"),
    ("Quobyte", "quobyte"),
    ("ISCSI", "iscsi"),
    ("FlexVolume", "flexVolume"),
    ("Cinder", "cinder"),
    ("CephFS", "cephfs"),
    ("FC", "fc"),
    ("Flocker", "flocker"),
    ("AzureFile", "azureFile"),
    ("VsphereVolume", "vsphereVolume"),
    ("AzureDisk", "azureDisk"),
    ("PhotonPersistentDisk", "photonPersistentDisk"),
    ("PortworxVolume", "portworxVolume"),
    ("ScaleIO", "scaleIO"),
    ("Local", "local"),
    ("StorageOS", "storageos"),
    ("CSI", "csi"),
];

/// The difference of two specs of claims.
pub(super) fn of_claims(old: &Value, new: &Value) -> String {
    unified(&lines(claim(old)), &lines(claim(new)))
}

/// The difference of the sources in two specs of volumes.
pub(super) fn of_sources(old: &Value, new: &Value) -> String {
    unified(&lines(sources(old)), &lines(sources(new)))
}

/// A member as it came; null if it is not there.
fn plain(object: &Value, name: &str) -> Go {
    Go::Plain(object.get(name).cloned().unwrap_or_default())
}

/// A member that is a text and never null.
fn text(object: &Value, name: &str) -> Go {
    Go::Plain(object.get(name).cloned().unwrap_or_else(|| "".into()))
}

fn members(object: Option<&Value>, members: &[Member], read: fn(&Value, &str) -> Go) -> Go {
    object.map_or(Go::Plain(Value::Null), |object| {
        Go::Struct(members.iter().map(|(name, json)| (*name, read(object, json))).collect())
    })
}

fn claim(spec: &Value) -> Go {
    let resources = vec![
        ("Limits", at(spec, &["resources", "limits"]).cloned()),
        ("Requests", at(spec, &["resources", "requests"]).cloned()),
    ];
    let resources = resources.into_iter().map(|(name, value)| (name, Go::Plain(value.unwrap_or_default())));
    Go::Struct(vec![
        ("AccessModes", plain(spec, "accessModes")),
        ("Selector", plain(spec, "selector")),
        ("Resources", Go::Struct(resources.collect())),
        ("VolumeName", text(spec, "volumeName")),
        ("StorageClassName", plain(spec, "storageClassName")),
        ("VolumeMode", plain(spec, "volumeMode")),
        ("DataSource", members(spec.get("dataSource"), DATA_SOURCE, plain)),
        ("DataSourceRef", members(spec.get("dataSourceRef"), DATA_SOURCE_REF, plain)),
        ("VolumeAttributesClassName", plain(spec, "volumeAttributesClassName")),
    ])
}

/// Of other drivers than those of CSI only that they are there is as the server shows it.
fn sources(spec: &Value) -> Go {
    let source = |json: &str| match (json, spec.get(json)) {
        ("csi", Some(csi)) => {
            let secret = |name: &str| members(csi.get(name), SECRET, text);
            Go::Struct(vec![
                ("Driver", text(csi, "driver")),
                ("VolumeHandle", text(csi, "volumeHandle")),
                ("ReadOnly", Go::Plain(csi.get("readOnly").cloned().unwrap_or(Value::Bool(false)))),
                ("FSType", text(csi, "fsType")),
                ("VolumeAttributes", plain(csi, "volumeAttributes")),
                ("ControllerPublishSecretRef", secret("controllerPublishSecretRef")),
                ("NodeStageSecretRef", secret("nodeStageSecretRef")),
                ("NodePublishSecretRef", secret("nodePublishSecretRef")),
                ("ControllerExpandSecretRef", secret("controllerExpandSecretRef")),
                ("NodeExpandSecretRef", secret("nodeExpandSecretRef")),
            ])
        }
        ("hostPath", Some(path)) => Go::Struct(vec![("Path", text(path, "path")), ("Type", text(path, "type"))]),
        _ => plain(spec, json),
    };
    Go::Struct(SOURCES.iter().map(|(name, json)| (*name, source(json))).collect())
}

fn lines(value: Go) -> Vec<String> {
    let mut lines = Vec::new();
    print(value, 0, "", "", &mut lines);
    lines
}

/// As `json.MarshalIndent` with one space, after `begin` and before `end`.
fn print(value: Go, depth: usize, begin: &str, end: &str, lines: &mut Vec<String>) {
    let named = |name: &str| format!("{}\"{name}\": ", " ".repeat(depth + 1));
    let (parts, brackets): (Vec<(String, Go)>, _) = match value {
        Go::Struct(members) => (members.into_iter().map(|(name, value)| (named(name), value)).collect(), ('{', '}')),
        Go::Plain(Value::Object(map)) if !map.is_empty() => {
            (map.into_iter().map(|(name, value)| (named(&name), Go::Plain(value))).collect(), ('{', '}'))
        }
        Go::Plain(value) if !list(&value, &[]).is_empty() => {
            let items = list(&value, &[]).iter();
            (items.map(|item| (" ".repeat(depth + 1), Go::Plain(item.clone()))).collect(), ('[', ']'))
        }
        Go::Plain(value) => {
            lines.push(format!("{begin}{value}{end}"));
            return;
        }
    };
    lines.push(format!("{begin}{}", brackets.0));
    let count = parts.len();
    for (at, (begin, value)) in parts.into_iter().enumerate() {
        print(value, depth + 1, &begin, if at + 1 < count { "," } else { "" }, lines);
    }
    lines.push(format!("{}{}{end}", " ".repeat(depth), brackets.1));
}

/// The blocks that two texts share, in order: of the longest ones the first, and so on before and behind it.
fn shared(a: &[String], b: &[String], from: (usize, usize), found: &mut Vec<(usize, usize, usize)>) {
    let mut longest = (0, 0, 0);
    for i in 0..a.len() {
        for j in 0..b.len() {
            let size = a[i..].iter().zip(&b[j..]).take_while(|(a, b)| a == b).count();
            if size > longest.2 {
                longest = (i, j, size);
            }
        }
    }
    let (i, j, size) = longest;
    if size == 0 {
        return;
    }
    shared(&a[..i], &b[..j], from, found);
    found.push((from.0 + i, from.1 + j, size));
    shared(&a[i + size..], &b[j + size..], (from.0 + i + size, from.1 + j + size), found);
}

fn unified(a: &[String], b: &[String]) -> String {
    let mut blocks = Vec::new();
    shared(a, b, (0, 0), &mut blocks);
    blocks.push((a.len(), b.len(), 0));
    // Each change: the lines that go, and those that come.
    let (mut changes, mut at): (Vec<(Range<usize>, Range<usize>)>, _) = (Vec::new(), (0, 0));
    for (i, j, size) in blocks {
        if (i, j) != at {
            changes.push((at.0..i, at.1..j));
        }
        at = (i + size, j + size);
    }
    let mut text = String::new();
    let mut rest = changes.as_slice();
    while let Some(first) = rest.first() {
        let apart = |pair: &[(Range<usize>, Range<usize>)]| pair[1].0.start - pair[0].0.end > 2 * CONTEXT;
        let count = rest.windows(2).position(apart).map_or(rest.len(), |at| at + 1);
        let (hunk, others) = rest.split_at(count);
        let before = first.0.start.min(CONTEXT);
        let last = &hunk[count - 1];
        let after = (a.len() - last.0.end).min(CONTEXT);
        let (of_a, of_b) = (first.0.start - before..last.0.end + after, first.1.start - before..last.1.end + after);
        // Writing to a text cannot fail.
        let _ = writeln!(text, "@@ -{},{} +{},{} @@", of_a.start + 1, of_a.len(), of_b.start + 1, of_b.len());
        let mut write = |sign: char, lines: &[String]| {
            for line in lines {
                text.push(sign);
                text.push_str(line);
                text.push('\n');
            }
        };
        let mut seen = of_a.start;
        for (gone, come) in hunk {
            write(' ', &a[seen..gone.start]);
            write('-', &a[gone.clone()]);
            write('+', &b[come.clone()]);
            seen = gone.end;
        }
        write(' ', &a[seen..of_a.end]);
        rest = others;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Both differences were recorded from kube-apiserver 1.36.
    #[test]
    fn a_difference_is_the_servers() {
        let old = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "x", "volumeMode": "Filesystem"});
        let mut new = old.clone();
        new["accessModes"] = json!(["ReadWriteMany"]);
        new["volumeMode"] = "Block".into();
        new["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "x"});
        new["dataSourceRef"] = new["dataSource"].clone();
        let says = "@@ -1,6 +1,6 @@\n {\n  \"AccessModes\": [\n-  \"ReadWriteOnce\"\n+  \"ReadWriteMany\"\n  ],\n  \"Selector\": null,\n  \
                    \"Resources\": {\n@@ -11,8 +11,17 @@\n  },\n  \"VolumeName\": \"\",\n  \"StorageClassName\": \"x\",\n- \"VolumeMode\": \
                    \"Filesystem\",\n- \"DataSource\": null,\n- \"DataSourceRef\": null,\n+ \"VolumeMode\": \"Block\",\n+ \"DataSource\": {\n+  \"APIGroup\": null,\n+  \
                    \"Kind\": \"PersistentVolumeClaim\",\n+  \"Name\": \"x\"\n+ },\n+ \"DataSourceRef\": {\n+  \"APIGroup\": null,\n+  \"Kind\": \
                    \"PersistentVolumeClaim\",\n+  \"Name\": \"x\",\n+  \"Namespace\": null\n+ },\n  \"VolumeAttributesClassName\": null\n }\n";
        assert_eq!(of_claims(&old, &new), says);

        let old = json!({"csi": {"driver": "d.x", "volumeHandle": "h", "volumeAttributes": {"a": "b"}}});
        let mut new = old.clone();
        new["csi"]["volumeHandle"] = "i".into();
        new["csi"]["fsType"] = "xfs".into();
        new["csi"]["nodeStageSecretRef"] = json!({"name": "a", "namespace": "b"});
        let says = "@@ -22,14 +22,17 @@\n  \"StorageOS\": null,\n  \"CSI\": {\n   \"Driver\": \"d.x\",\n-  \"VolumeHandle\": \"h\",\n+  \
                    \"VolumeHandle\": \"i\",\n   \"ReadOnly\": false,\n-  \"FSType\": \"\",\n+  \"FSType\": \"xfs\",\n   \
                    \"VolumeAttributes\": {\n    \"a\": \"b\"\n   },\n   \"ControllerPublishSecretRef\": null,\n-  \"NodeStageSecretRef\": \
                    null,\n+  \"NodeStageSecretRef\": {\n+   \"Name\": \"a\",\n+   \"Namespace\": \"b\"\n+  },\n   \
                    \"NodePublishSecretRef\": null,\n   \"ControllerExpandSecretRef\": null,\n   \"NodeExpandSecretRef\": null\n";
        assert_eq!(of_sources(&old, &new), says);
        assert_eq!(of_sources(&old, &old), "");
    }
}

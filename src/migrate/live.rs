//! Manifests that come from a running cluster, as `kubectl get -o yaml` prints them: removes the fields that the API
//! server has set. With these fields they could not be applied again: an old `resourceVersion` is a conflict, and the
//! `uid` may be that of another object. Pure.

use serde_yaml::Value;

use super::document::{Document, name_of, placed, string};
use super::outline::{self, Outline, Step};

/// What the server owns of any object; its annotations are below.
const OWNED: [&[&str]; 10] = [
    &["metadata", "creationTimestamp"],
    &["metadata", "deletionGracePeriodSeconds"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    // Null in what older servers print.
    &["spec", "template", "metadata", "creationTimestamp"],
    &["status"],
];
/// Annotations that the server, its controllers and kubectl keep. The last is what the object was before, in full: put back, it
/// would make the next `kubectl apply` compare with the wrong thing.
const ANNOTATIONS: [&str; 3] = [
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// A manifest as a user would have written it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cleaned {
    /// Its text.
    pub(super) text: String,
    /// What was taken out, one line an object.
    pub(super) told: Vec<String>,
    /// Whether every other line is as it was.
    pub(super) is_kept: bool,
}

/// Takes what the server wrote out of every object that came from one.
pub(super) fn clean(text: &str, documents: &[Document]) -> Option<Cleaned> {
    let mut told = Vec::new();
    let all: Vec<&str> = text.lines().collect();
    let (mut lines, mut at, mut is_kept) = (Vec::new(), 0, true);
    for document in documents {
        let mut paths = Vec::new();
        for (item, object) in placed(document) {
            let prefix = item.map(|item| vec![Step::Key("items"), Step::Item(item)]).unwrap_or_default();
            let owned = owned(object);
            if owned.is_empty() {
                continue;
            }
            let names: Vec<String> = owned.iter().map(|path| name(path)).collect();
            told.push(format!("{}: {}", title(object), names.join(", ")));
            paths.extend(owned.into_iter().map(|path| [prefix.clone(), path].concat()));
        }
        if paths.is_empty() {
            continue;
        }
        let mut value = document.value.clone();
        for path in &paths {
            remove(&mut value, path)?;
        }
        let old = all.get(document.lines.clone())?;
        let (edited, is_edit) = outline::meaning(&value, edit(old, &paths));
        is_kept &= is_edit;
        lines.extend(all.get(at..document.lines.start)?.iter().map(|&line| line.to_owned()));
        lines.extend(edited);
        at = document.lines.end;
    }
    if told.is_empty() {
        return Some(Cleaned { text: text.to_owned(), told, is_kept });
    }
    lines.extend(all.get(at..)?.iter().map(|&line| line.to_owned()));
    Some(Cleaned { text: lines.join("\n") + "\n", told, is_kept })
}

/// What of an object the server owns; nothing if the object never was on one.
fn owned(object: &Value) -> Vec<Vec<Step<'static>>> {
    let has = |path: &[&str]| path.iter().try_fold(object, |value, key| value.get(*key));
    let marks = [["metadata", "uid"], ["metadata", "resourceVersion"], ["metadata", "managedFields"]];
    if marks.iter().all(|mark| has(mark).is_none_or(Value::is_null)) {
        return Vec::new();
    }
    let mut paths: Vec<Vec<Step<'static>>> = Vec::new();
    let steps = |path: &[&'static str]| path.iter().map(|key| Step::Key(key)).collect::<Vec<_>>();
    let annotations = has(&["metadata", "annotations"]).and_then(Value::as_mapping);
    let ours = |key: &Value| key.as_str().is_some_and(|key| ANNOTATIONS.contains(&key));
    if annotations.is_some_and(|all| !all.is_empty() && all.keys().all(ours)) {
        paths.push(steps(&["metadata", "annotations"]));
    } else {
        let there = ANNOTATIONS.iter().filter(|key| annotations.is_some_and(|all| all.contains_key(**key)));
        paths.extend(there.map(|key| steps(&["metadata", "annotations", key])));
    }
    paths.extend(OWNED.iter().filter(|path| has(path).is_some()).map(|path| steps(path)));
    paths
}

fn title(object: &Value) -> String {
    format!("{} {}", string(object, "kind").unwrap_or_default(), name_of(object).unwrap_or_default())
}

/// A path as people write it.
fn name(path: &[Step<'_>]) -> String {
    let mut name = String::new();
    for step in path {
        match step {
            Step::Key(key) if name.is_empty() => name.push_str(key),
            // A key with dots is no path.
            Step::Key(key) if key.contains('.') => name = format!("{name}[{key}]"),
            Step::Key(key) => name = format!("{name}.{key}"),
            Step::Item(item) => name = format!("{name}[{item}]"),
        }
    }
    name
}

fn remove(value: &mut Value, path: &[Step<'_>]) -> Option<()> {
    let (Step::Key(last), parents) = path.split_last()? else { return None };
    outline::descend(value, parents)?.as_mapping_mut()?.remove(*last).map(|_| ())
}

/// The document's lines without those of the keys; `None` where the text can't be followed.
fn edit(lines: &[&str], paths: &[Vec<Step<'_>>]) -> Option<Vec<String>> {
    let outline = Outline::of(lines.iter().copied());
    let gone: Vec<_> = paths.iter().map(|path| outline.entry(path)).collect::<Option<_>>()?;
    let stays = |at: &usize| !gone.iter().any(|range| range.contains(at));
    Some((0..lines.len()).filter(stays).map(|at| lines[at].to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::*;

    fn cleaned(text: &str) -> Cleaned {
        clean(text, &document::read(text).unwrap()).unwrap()
    }

    const LIVE: &str = "\
# from the cluster
apiVersion: apps/v1
kind: Deployment
metadata:
  annotations:
    deployment.kubernetes.io/revision: \"3\"
    kubectl.kubernetes.io/last-applied-configuration: |
      {\"kind\":\"Deployment\"}
  creationTimestamp: \"2026-01-01T00:00:00Z\"
  generation: 7
  labels: {app: d} # ours
  managedFields:
  - apiVersion: apps/v1
    fieldsV1:
      f:spec: {}
  name: d
  resourceVersion: \"4711\"
  uid: 11111111-2222-3333-4444-555555555555
spec:
  # as measured
  replicas: 2
  template:
    metadata:
      creationTimestamp: null
      labels: {app: d}
status:
  conditions:
  - type: Available
";

    #[test]
    fn what_the_server_wrote_goes_and_every_other_line_stays() {
        let expected = "\
# from the cluster
apiVersion: apps/v1
kind: Deployment
metadata:
  labels: {app: d} # ours
  name: d
spec:
  # as measured
  replicas: 2
  template:
    metadata:
      labels: {app: d}
";
        let Cleaned { text, told, is_kept } = cleaned(LIVE);
        assert_eq!(text, expected);
        assert!(is_kept);
        let said = "Deployment d: metadata.annotations, metadata.creationTimestamp, metadata.generation, \
                    metadata.managedFields, metadata.resourceVersion, metadata.uid, spec.template.metadata.creationTimestamp, status";
        assert_eq!(told, [said]);
        assert_eq!(cleaned(&text), Cleaned { text, told: vec![], is_kept: true }, "once is enough");
    }

    #[test]
    fn annotations_of_the_user_stay() {
        let text = LIVE.replace("  annotations:\n", "  annotations:\n    team: storage\n");
        let Cleaned { text, told, .. } = cleaned(&text);
        assert!(text.contains("  annotations:\n    team: storage\n  labels"), "{text}");
        assert!(!text.contains("kubernetes.io"), "{text}");
        assert!(told[0].contains("metadata.annotations[deployment.kubernetes.io/revision], "), "{told:?}");
    }

    #[test]
    fn every_object_of_a_list_and_of_a_stream_is_cleaned() {
        let item = |text: &str| {
            let lines = text.lines().skip(1).enumerate();
            let lines = lines.map(|(at, line)| format!("{}{line}\n", if at == 0 { "- " } else { "  " }));
            lines.collect::<Vec<_>>().concat()
        };
        let text = format!("kind: List\nitems:\n{}{}---\n{LIVE}", item(LIVE), item(LIVE));
        let Cleaned { text, told, is_kept } = cleaned(&text);
        assert_eq!((told.len(), is_kept), (3, true), "{text}");
        for key in ["uid", "resourceVersion", "status:", "managedFields", "Timestamp"] {
            assert!(!text.contains(key), "{key} in\n{text}");
        }
        assert_eq!(text.matches("replicas: 2").count(), 3);
    }

    #[test]
    fn what_cannot_be_followed_is_written_anew() {
        let text = "{\"kind\": \"Deployment\", \"metadata\": {\"name\": \"d\", \"uid\": \"1\"}, \"status\": {}}\n";
        let Cleaned { text, is_kept, .. } = cleaned(text);
        assert_eq!((text.as_str(), is_kept), ("kind: Deployment\nmetadata:\n  name: d\n", false));
    }

    #[test]
    fn a_file_that_never_was_on_a_server_is_left_alone() {
        for text in [
            "kind: CustomResourceDefinition\nmetadata:\n  creationTimestamp: null\n  name: c\nstatus: {}",
            "kind: Deployment\nmetadata:\n  name: d\n  uid: null\n  annotations:\n    deployment.kubernetes.io/revision: \"1\"\n",
        ] {
            let untouched = Cleaned { text: text.to_owned(), told: vec![], is_kept: true };
            assert_eq!(cleaned(text), untouched);
        }
    }
}

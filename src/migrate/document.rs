//! The manifest: its documents, and the workloads in them, also those in a `List`. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_yaml::Value;

use super::outline::Step;
use super::rollout::Rollout;
use crate::process::yaml;

/// One document of a file.
#[derive(Debug, Clone)]
pub(super) struct Document {
    /// Its lines in the file, without the separators.
    pub(super) lines: Range<usize>,
    /// What it says.
    pub(super) value: Value,
    /// The keys that stand twice in a mapping, each with the line in the file, from 1, of the one that counts.
    pub(super) repeated: Vec<(usize, String)>,
}

/// A text that is no YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Syntax {
    /// The line, from 1.
    pub(super) line: usize,
    /// What the parser says.
    pub(super) text: String,
}

/// A `Deployment`, `StatefulSet` or `DaemonSet`.
#[derive(Debug, Clone)]
pub(super) struct Workload {
    /// Which document.
    pub(super) document: usize,
    /// Its place in the list, if the document is one.
    pub(super) item: Option<usize>,
    /// Its kind.
    pub(super) kind: String,
    /// Its name.
    pub(super) name: String,
    /// Its namespace, if it says one.
    pub(super) namespace: Option<String>,
    /// Whether it says how many pods there are.
    pub(super) counts_pods: bool,
    /// `spec.template.spec`.
    pub(super) pod: Value,
    /// Whether an update ends each old pod before it makes a new one, and there is only one at a time.
    pub(super) ends_before_it_begins: bool,
    /// Whether an update begins a new pod beside an old one.
    pub(super) surges: bool,
    /// The labels of its pods.
    pub(super) labels: BTreeMap<String, String>,
    /// How its pods follow when its template changes.
    pub(super) rollout: Rollout,
    /// What of its metadata is no text for kubectl, and what it is instead: `namespace: no` is a switch.
    pub(super) misread: Vec<(&'static str, String)>,
    /// The annotations of its pods.
    pub(super) annotations: BTreeMap<String, String>,
    /// Who keeps it as it is, if its metadata say so.
    pub(super) owner: Option<String>,
    /// The labels that select its pods, as `kubectl` writes them; none if they cannot be written so.
    pub(super) selector: Option<String>,
}

/// Reads all documents, or tells every one that can't be read.
pub(super) fn read(text: &str) -> Result<Vec<Document>, Vec<Syntax>> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut documents, mut faults) = (Vec::new(), Vec::new());
    let mut start = 0;
    for at in 0..=lines.len() {
        let Some(line) = lines.get(at) else {
            // A text of several lines at the end of the file may lack its line end.
            let end = if text.ends_with('\n') { "\n" } else { "" };
            take(&lines, start..at, end, &mut documents, &mut faults);
            break;
        };
        if is_separator(line) {
            take(&lines, start..at, "\n", &mut documents, &mut faults);
            start = at + 1;
        }
    }
    if faults.is_empty() { Ok(documents) } else { Err(faults) }
}

/// `---` at the beginning of a line, or `...`: no scalar can hold either.
fn is_separator(line: &str) -> bool {
    ["---", "..."].iter().any(|mark| {
        line.strip_prefix(mark).is_some_and(|rest| {
            let rest = rest.trim();
            rest.is_empty() || rest.starts_with('#')
        })
    })
}

fn take(lines: &[&str], range: Range<usize>, end: &str, documents: &mut Vec<Document>, faults: &mut Vec<Syntax>) {
    let body = &lines[range.clone()];
    if body.iter().map(|line| line.trim()).all(|line| line.is_empty() || line.starts_with('#')) {
        return;
    }
    match yaml::read_document(&(body.join("\n") + end)) {
        Ok(yaml::Document { value, repeated }) => {
            let repeated = repeated.into_iter().map(|(line, key)| (range.start + line, key)).collect();
            documents.push(Document { lines: range, value, repeated });
        }
        Err(error) => faults.push(Syntax { line: range.start + error.line, text: error.text }),
    }
}

/// The workloads, in their order.
pub(super) fn workloads(documents: &[Document]) -> Vec<Workload> {
    let placed = |(index, document)| placed(document).into_iter().map(move |(item, value)| (index, item, value));
    let all = documents.iter().enumerate().flat_map(placed);
    all.filter_map(|(index, item, value)| workload(value, index, item)).collect()
}

/// The objects of a document, each with its place in it if the document is a list.
pub(super) fn placed(document: &Document) -> Vec<(Option<usize>, &Value)> {
    let is_list = string(&document.value, "kind").is_some_and(|kind| kind.ends_with("List"));
    match document.value.get("items").and_then(Value::as_sequence).filter(|_| is_list) {
        Some(items) => items.iter().enumerate().map(|(item, value)| (Some(item), value)).collect(),
        None => vec![(None, &document.value)],
    }
}

/// The objects of all documents.
pub(super) fn objects(documents: &[Document]) -> impl Iterator<Item = &Value> {
    documents.iter().flat_map(placed).map(|(_, object)| object)
}

fn workload(value: &Value, document: usize, item: Option<usize>) -> Option<Workload> {
    let kind = string(value, "kind").filter(|kind| ["Deployment", "StatefulSet", "DaemonSet"].contains(kind))?;
    let pod = value.get("spec")?.get("template")?.get("spec")?.clone();
    pod.get("containers").and_then(Value::as_sequence)?;
    let metadata = value.get("metadata")?;
    let text = |key| string(metadata, key).map(str::to_owned);
    Some(Workload {
        document,
        item,
        kind: kind.to_owned(),
        name: text("name").or_else(|| text("generateName")).unwrap_or_default(),
        namespace: text("namespace"),
        counts_pods: value.get("spec")?.get("replicas").is_some(),
        pod,
        ends_before_it_begins: ends_before_it_begins(kind, value.get("spec")?),
        surges: surges(kind, value.get("spec")?),
        rollout: Rollout::of(kind, value.get("spec")?),
        misread: ["name", "namespace"].into_iter().filter_map(|key| misread(metadata, key)).collect(),
        annotations: texts(value.get("spec")?.get("template")?, "annotations"),
        labels: texts(value.get("spec")?.get("template")?, "labels"),
        owner: owner(metadata),
        selector: selector(value.get("spec")?),
    })
}

/// The annotations or the labels of the pods. The API refuses values that are no texts.
fn texts(template: &Value, key: &str) -> BTreeMap<String, String> {
    let all = template.get("metadata").and_then(|metadata| metadata.get(key)).and_then(Value::as_mapping);
    let text = |(key, value): (&Value, &Value)| Some((key.as_str()?.to_owned(), value.as_str()?.to_owned()));
    all.into_iter().flatten().filter_map(text).collect()
}

/// The controller among its owners, else the release of Helm that it is of.
fn owner(metadata: &Value) -> Option<String> {
    let controller =
        list(metadata, "ownerReferences").find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true));
    let named = |owner: &Value| Some(format!("{} {}", string(owner, "kind")?, string(owner, "name")?));
    let release = || {
        let name = string(metadata.get("annotations")?, "meta.helm.sh/release-name")?;
        Some(format!("Helm's release {name}"))
    };
    controller.and_then(named).or_else(release)
}

/// What kubectl reads below `key`, if that is no text.
fn misread(metadata: &Value, key: &'static str) -> Option<(&'static str, String)> {
    let value = metadata.get(key).filter(|value| !value.is_null() && !value.is_string())?;
    Some((key, yaml::write(value).trim_end().to_owned()))
}

/// A Deployment does so with the strategy Recreate, a `StatefulSet` if it has one pod.
fn ends_before_it_begins(kind: &str, spec: &Value) -> bool {
    match kind {
        "StatefulSet" => spec.get("replicas").is_none_or(|count| count.as_u64().is_some_and(|count| count < 2)),
        "Deployment" => {
            spec.get("strategy").and_then(|strategy| string(strategy, "type")) == Some("Recreate")
                || spec.get("replicas").and_then(Value::as_u64) == Some(0)
        }
        _ => false,
    }
}

/// A rolling Deployment does so unless it says otherwise, a `DaemonSet` only if it says so.
fn surges(kind: &str, spec: &Value) -> bool {
    let strategy = spec.get(if kind == "Deployment" { "strategy" } else { "updateStrategy" });
    let surge = strategy.and_then(|strategy| strategy.get("rollingUpdate")?.get("maxSurge"));
    let is_zero =
        |value: &Value| value.as_u64() == Some(0) || value.as_str().is_some_and(|text| ["0", "0%"].contains(&text));
    match kind {
        "Deployment" => !ends_before_it_begins(kind, spec) && !surge.is_some_and(is_zero),
        "DaemonSet" => surge.is_some_and(|surge| !is_zero(surge)),
        _ => false,
    }
}

fn selector(spec: &Value) -> Option<String> {
    let selector = spec.get("selector")?;
    let labels = selector.get("matchLabels")?.as_mapping().filter(|labels| !labels.is_empty())?;
    let pair = |(key, value): (&Value, &Value)| Some(format!("{}={}", key.as_str()?, value.as_str()?));
    let pairs: Vec<String> = labels.iter().map(pair).collect::<Option<_>>()?;
    selector.get("matchExpressions").is_none().then(|| pairs.join(","))
}

/// The names of the `CSIDriver` objects.
pub(super) fn csi_drivers(documents: &[Document]) -> Vec<String> {
    let drivers = objects(documents).filter(|object| string(object, "kind") == Some("CSIDriver"));
    drivers.filter_map(name_of).map(str::to_owned).collect()
}

/// The drivers that classes name, and which kind of class does.
pub(super) fn class_drivers(documents: &[Document]) -> Vec<(String, String)> {
    objects(documents).filter_map(class_driver).collect()
}

/// The driver of a class, unless it is a plugin in Kubernetes' tree, whose name has a slash.
fn class_driver(object: &Value) -> Option<(String, String)> {
    let kind = string(object, "kind")?;
    let key = match kind {
        "StorageClass" => "provisioner",
        "VolumeSnapshotClass" | "VolumeGroupSnapshotClass" => "driver",
        "VolumeAttributesClass" => "driverName",
        _ => return None,
    };
    let name = string(object, key).filter(|name| !name.is_empty() && !name.contains(['/', '$', '{']))?;
    Some((name.to_owned(), format!("from the {kind}")))
}

impl Workload {
    /// Its containers.
    pub(super) fn containers(&self) -> &[Value] {
        self.pod.get("containers").and_then(Value::as_sequence).map_or(&[], Vec::as_slice)
    }

    /// Its init containers.
    pub(super) fn init_containers(&self) -> impl Iterator<Item = &Value> {
        list(&self.pod, "initContainers")
    }

    /// How people call it.
    pub(super) fn title(&self) -> String {
        let namespace = self.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
        format!("{} {namespace}{}", self.kind, self.name)
    }

    /// Its place in the manifests.
    pub(super) fn place(&self) -> (usize, Option<usize>) {
        (self.document, self.item)
    }

    /// Where its pod's template stands in its document.
    pub(super) fn template(&self) -> Vec<Step<'static>> {
        let item = self.item.map(|item| [Step::Key("items"), Step::Item(item)]);
        item.into_iter().flatten().chain([Step::Key("spec"), Step::Key("template")]).collect()
    }
}

/// The name of an object.
pub(super) fn name_of(object: &Value) -> Option<&str> {
    string(object.get("metadata")?, "name")
}

/// The items of the list below `key`.
pub(super) fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + Clone + use<'a> {
    value.get(key).and_then(Value::as_sequence).into_iter().flatten()
}

/// A text below `key`.
pub(super) fn string<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

/// Whether a word is one of those in a text.
pub(super) fn is_one_of(words: &str, word: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

/// Each item once, in their order.
pub(super) fn unique<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// What a value is, in words.
pub(super) fn shape(value: &Value) -> &'static str {
    match value {
        Value::Mapping(_) => "a mapping",
        Value::Sequence(_) => "a list with other entries",
        Value::String(_) => "one text",
        _ => "one value",
    }
}

/// A list of texts below `key`. A number that was not quoted is a text all the same: the API would refuse it, Go would not.
pub(super) fn strings(value: &Value, key: &str) -> Vec<String> {
    list(value, key)
        .filter_map(|item| match item {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(switch) => Some(switch.to_string()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_found_among_other_documents_and_in_lists() {
        let pod = "spec: {template: {spec: {containers: [{name: c}]}}}";
        let text = format!(
            "# head\n---\nkind: Service\n--- # next\nkind: Deployment\nmetadata: {{name: a, namespace: 'n'}}\n{pod}\n...\n---\n\
             kind: List\nitems:\n- kind: Secret\n- kind: StatefulSet\n  metadata: {{name: b}}\n  {pod}\n---\n\
             kind: Job\nmetadata: {{name: j}}\n{pod}\n"
        );
        let documents = read(&text).unwrap();
        let found: Vec<_> = workloads(&documents).iter().map(|one| (one.document, one.item, one.title())).collect();
        let expected = [(1, None, "Deployment n/a".to_owned()), (2, Some(1), "StatefulSet b".to_owned())];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_document_that_is_no_yaml_is_told_with_its_line() {
        let faults = read("a: 1\n---\nb: [\n---\nc: 1\nd: .inf\n").unwrap_err();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].line >= 3 && faults[1].line >= 5, "{faults:?}");
    }
}

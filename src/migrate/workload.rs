//! The patched manifest: without the sidecars, with the daemon, and with all other text unchanged. Pure.
//!
//! First the parsed value is patched, which defines the expected result. Then whole lines of the text are removed and
//! added. The text is used if it parses to the expected value; otherwise (flow style, JSON) the value is written out,
//! and the comments are lost.

use std::ops::Range;

use serde_yaml::Value;

use super::annotations::Edit;
use super::document::{Document, Workload};
use super::outline::{self, Outline, Step};
use crate::process::yaml;

/// What changes in a pod.
#[derive(Debug)]
pub(super) struct Change<'a> {
    /// The places of the containers that go, ascending and not empty. The new one comes where the first of them was.
    pub(super) remove: &'a [usize],
    /// The container that comes.
    pub(super) container: &'a Value,
    /// The volume that comes.
    pub(super) volume: &'a Value,
    /// What becomes of the pod's annotations.
    pub(super) annotations: &'a [Edit],
}

/// The whole file with one workload changed, and whether its comments are still there.
pub(super) fn patch(
    text: &str,
    documents: &[Document],
    workload: &Workload,
    change: &Change<'_>,
) -> Option<(String, bool)> {
    let document = documents.get(workload.document)?;
    let mut value = document.value.clone();
    apply(outline::descend(&mut value, &workload.template())?, change)?;
    let all: Vec<&str> = text.lines().collect();
    let old = all.get(document.lines.clone())?;
    let (lines, is_kept) = outline::meaning(&value, edit(old, &workload.template(), change));
    let before = all[..document.lines.start].iter().map(|&line| line.to_owned());
    let after = all[document.lines.end..].iter().map(|&line| line.to_owned());
    let mut result = before.chain(lines).chain(after).collect::<Vec<_>>().join("\n");
    result.push('\n');
    Some((result, is_kept))
}

fn apply(template: &mut Value, change: &Change<'_>) -> Option<()> {
    annotate(template, change.annotations)?;
    let pod = template.get_mut("spec")?;
    let containers = pod.get_mut("containers")?.as_sequence_mut()?;
    let at = *change.remove.first()?;
    for index in change.remove.iter().rev() {
        if *index < containers.len() {
            containers.remove(*index);
        }
    }
    containers.insert(at.min(containers.len()), change.container.clone());
    if let Some(volumes) = pod.get_mut("volumes").and_then(Value::as_sequence_mut) {
        volumes.push(change.volume.clone());
    } else {
        let volumes = Value::Sequence(vec![change.volume.clone()]);
        pod.as_mapping_mut()?.insert("volumes".into(), volumes);
    }
    Some(())
}

/// Changes the annotations. An empty list goes, too.
fn annotate(template: &mut Value, edits: &[Edit]) -> Option<()> {
    if edits.is_empty() {
        return Some(());
    }
    let metadata = template.get_mut("metadata")?.as_mapping_mut()?;
    let annotations = metadata.get_mut("annotations")?.as_mapping_mut()?;
    for Edit { key, new } in edits {
        annotations.remove(key.as_str());
        if let Some((key, value)) = new {
            annotations.insert(key.as_str().into(), value.as_str().into());
        }
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Some(())
}

/// The lines of the annotations with the change: those that go, each range with the lines that come in its place.
fn annotated(
    outline: &Outline,
    lines: &[&str],
    template: &[Step<'_>],
    edits: &[Edit],
) -> Option<Vec<(Range<usize>, Vec<String>)>> {
    let list = [template, &[Step::Key("metadata"), Step::Key("annotations")]].concat();
    let entry = |edit: &Edit| {
        let range = outline.entry(&[&list[..], &[Step::Key(&edit.key)]].concat())?;
        let first = lines.get(range.start)?;
        let indent = &first[..first.len() - first.trim_start().len()];
        let new = edit.new.as_ref().map(|(key, value)| format!("{indent}{}: {}", yaml::text(key), yaml::quoted(value)));
        Some((range, new.into_iter().collect::<Vec<_>>()))
    };
    let all: Vec<_> = edits.iter().map(entry).collect::<Option<_>>()?;
    if !all.is_empty() && all.iter().all(|(_, new)| new.is_empty()) {
        let (whole, is_gone) =
            (outline.entry(&list)?, |line: &usize| all.iter().any(|(range, _)| range.contains(line)));
        let is_content = |line: &usize| !lines[*line].trim().is_empty() && !lines[*line].trim().starts_with('#');
        if (whole.start + 1..whole.end).filter(is_content).all(|line| is_gone(&line)) {
            return Some(vec![(whole, Vec::new())]);
        }
    }
    Some(all)
}

/// The lines of the document with the change; `None` where the text can't be followed.
fn edit(lines: &[&str], template: &[Step<'_>], change: &Change<'_>) -> Option<Vec<String>> {
    let outline = Outline::of(lines.iter().copied());
    let below = |key| outline.find(&[template, &[Step::Key("spec"), Step::Key(key)]].concat());
    let annotations = annotated(&outline, lines, template, change.annotations)?;
    let containers = below("containers")?;
    let items = outline.items(&containers)?;
    let place = items.ranges.get(*change.remove.first()?)?.start;
    let volumes = below("volumes");
    let (volume_place, volume_lines) = if let Some(volumes) = &volumes {
        let items = outline.items(volumes)?;
        (items.ranges.last()?.end, item(change.volume, items.column))
    } else {
        let mut lines = vec![format!("{}volumes:", " ".repeat(containers.column))];
        lines.extend(item(change.volume, containers.column + 2));
        (containers.lines.end, lines)
    };
    let mut removed = Vec::new();
    for index in change.remove {
        removed.push(items.ranges.get(*index)?.clone());
    }
    removed.extend(annotations.iter().map(|(range, _)| range.clone()));
    let mut result = Vec::new();
    for at in 0..=lines.len() {
        for (_, new) in annotations.iter().filter(|(range, _)| range.start == at) {
            result.extend(new.iter().cloned());
        }
        if at == place {
            result.extend(item(change.container, items.column));
        }
        if at == volume_place {
            result.extend(volume_lines.iter().cloned());
        }
        if let Some(line) = lines.get(at).filter(|_| !removed.iter().any(|range| range.contains(&at))) {
            result.push((*line).to_owned());
        }
    }
    Some(result)
}

/// A value as an item of a sequence whose dashes stand in `column`.
fn item(value: &Value, column: usize) -> Vec<String> {
    let text = yaml::write(&Value::Sequence(vec![value.clone()]));
    text.lines().map(|line| format!("{}{line}", " ".repeat(column))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::document;
    use super::*;

    fn patched(text: &str) -> (String, bool) {
        let documents = document::read(text).unwrap();
        let workload = document::workloads(&documents).remove(0);
        let container: Value = serde_yaml::from_str("{name: new}").unwrap();
        let volume: Value = serde_yaml::from_str("{name: v}").unwrap();
        let change = Change { remove: &[0, 2], container: &container, volume: &volume, annotations: &[] };
        patch(text, &documents, &workload, &change).unwrap()
    }

    const HEAD: &str = "# licence\n---\nkind: Deployment\nmetadata: {name: d} # flow\nspec:\n  template:\n    spec:\n";

    #[test]
    fn everything_else_stays_as_it_was_written() {
        let text = format!(
            "{HEAD}      containers:\n      # the attacher\n      - name: a\n        image: x\n      - name: 'driver' # ours\n      \
             - name: b\n\n      # the host's\n      hostNetwork: true\n---\nkind: Service # next\n"
        );
        let expected = format!(
            "{HEAD}      containers:\n      - name: new\n      - name: 'driver' # ours\n      volumes:\n        - name: v\n\n      \
             # the host's\n      hostNetwork: true\n---\nkind: Service # next\n"
        );
        assert_eq!(patched(&text), (expected, true));
    }

    #[test]
    fn a_text_that_cannot_be_followed_is_written_anew_and_means_the_same() {
        let text = "{\"kind\": \"Deployment\", \"metadata\": {\"name\": \"d\"}, \"spec\": {\"template\": {\"spec\": \
                    {\"containers\": [{\"name\": \"a\"}, {\"name\": \"driver\"}, {\"name\": \"b\"}]}}}}";
        let (result, is_kept) = patched(text);
        assert!(!is_kept);
        let value: Value = serde_yaml::from_str(&result).unwrap();
        let pod = &value["spec"]["template"]["spec"];
        let expected: Value =
            serde_yaml::from_str("{containers: [{name: new}, {name: driver}], volumes: [{name: v}]}").unwrap();
        assert_eq!(*pod, expected);
    }
}

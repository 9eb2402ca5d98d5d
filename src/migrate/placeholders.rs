//! Placeholders of template engines: a manifest that is not rendered yet. Pure.
//!
//! `{{ … }}` has no place in a manifest. `${NAME}` has one in scripts, but not where this program reads a value: in a sidecar and in
//! the names of the workload, since the kubelet expands `$(NAME)` alone.

use std::collections::BTreeSet;

use serde_yaml::Value;

use super::document::{Document, Syntax, Workload, string};
use super::manifests::Stream;
use super::report::Fault;
use super::sidecars;

/// What to do with a template.
const RENDER: &str = "render it first (`helm template`, `kustomize build`, `envsubst`)";

/// The faults of a workload, one for each line with a placeholder.
pub(super) fn of_workload(stream: &Stream, documents: &[Document], workload: &Workload) -> Vec<Fault> {
    let lines: Vec<&str> = stream.text.lines().collect();
    let Some(document) = documents.get(workload.document) else { return Vec::new() };
    let mut texts = Vec::new();
    for container in workload.containers().iter().filter(|container| sidecars::recognise(container).is_some()) {
        strings_of(container, &mut texts);
    }
    texts.extend(["serviceAccountName", "serviceAccount"].iter().filter_map(|key| string(&workload.pod, key)));
    texts.extend([workload.name.as_str()].into_iter().chain(workload.namespace.as_deref()));
    texts.retain(|text| is_variable(text));
    let is_wrong =
        |line: &str| is_template(line) || (is_variable(line) && texts.iter().any(|text| line.contains(text)));
    let range = document.lines.clone();
    let wrong = range.filter(|at| lines.get(*at).is_some_and(|line| is_wrong(line)));
    wrong.map(|at| fault(stream, at, lines[at])).collect()
}

/// What is no YAML. A file with `{{ … }}` may be a template, which is told once, and not each of its lines that is no YAML.
pub(super) fn of_syntax(stream: &Stream, syntax: Vec<Syntax>) -> Vec<Fault> {
    let mut faults: Vec<Fault> = Vec::new();
    let mut templates = BTreeSet::new();
    for Syntax { line, text } in syntax {
        let file = stream.file(line);
        let mut lines = stream.text.lines().enumerate();
        let template = lines.find(|(at, line)| is_template(line) && stream.file(at + 1) == file);
        let expected = template.map_or_else(
            || "YAML".to_owned(),
            |(at, line)| {
                format!(
                    "YAML; {} has a placeholder, `{}`: if it is a template, {RENDER}",
                    stream.place(at + 1),
                    line.trim()
                )
            },
        );
        if template.is_none() || templates.insert(file) {
            faults.push(Fault::new(stream.place(line), text, expected));
        }
    }
    faults
}

fn fault(stream: &Stream, at: usize, line: &str) -> Fault {
    Fault::new(stream.place(at + 1), line.trim(), format!("a manifest without placeholders: {RENDER}"))
}

fn is_template(line: &str) -> bool {
    let is_comment = line.trim_start().starts_with('#');
    !is_comment && line.split_once("{{").is_some_and(|(_, rest)| rest.contains("}}"))
}

fn is_variable(text: &str) -> bool {
    let names = text.split("${").skip(1);
    names.filter_map(|rest| rest.split_once('}')).any(|(name, _)| {
        let name = name.split(':').next().unwrap_or_default();
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

fn strings_of<'a>(value: &'a Value, texts: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Sequence(items) => items.iter().for_each(|item| strings_of(item, texts)),
        Value::Mapping(entries) => entries.values().for_each(|value| strings_of(value, texts)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Manifest, Outcome, Wanted, migrate};

    fn faults(text: &str) -> Vec<(String, String)> {
        let manifests = vec![Manifest { name: "d.yaml".to_owned(), text: text.to_owned() }];
        let driver = Some("disk.example.com".to_owned());
        let Outcome { report, files } = migrate(&Wanted { manifests, driver, ..Wanted::default() });
        assert_eq!(files.is_some(), report.faults.is_empty());
        assert!(report.faults.is_empty() || report.next.is_empty());
        assert!(
            report.faults.iter().all(|fault| fault.expected.contains("render it first")),
            "{}",
            report.faults_text()
        );
        report.faults.into_iter().map(|fault| (fault.place, fault.found)).collect()
    }

    const TEXT: &str = "# of {{ somebody }}\nkind: Deployment\nmetadata:\n  name: d\n  namespace: ns\nspec:\n  template:\n    spec:\n      \
        containers:\n      - name: a\n        image: x/csi-attacher:v4.12.0\n        args:\n        - --csi-address=/csi/s\n        - --v=2\n      \
        - name: driver\n        image: x/driver\n        command: [sh, -c, 'exec ${PROGRAM}']\n---\nkind: ConfigMap\ndata:\n  dashboard: '{{ \
        pod }}'\n";

    #[test]
    fn a_manifest_that_is_not_rendered_is_refused_with_its_lines() {
        let place = |line: usize| format!("d.yaml:{line}");
        for (old, new, line) in [
            ("--v=2", "--v={{ .Values.verbosity }}", 14),
            ("- --v=2", "{{- if .Values.verbose }}\n        - --v=2\n        {{- end }}", 14),
            ("x/csi-attacher:v4.12.0", "{{ .Values.image }}", 11),
            ("x/csi-attacher:v4.12.0", "\"{{ .Values.registry }}/csi-attacher:v4\"", 11),
            ("x/csi-attacher:v4.12.0", "${REGISTRY}/csi-attacher:${TAG:-v4}", 11),
            ("--v=2", "--v=${VERBOSITY}", 14),
            ("namespace: ns", "namespace: ${NAMESPACE}", 5),
            ("name: d\n", "name: '{{ .Release.Name }}'\n", 4),
        ] {
            let found = faults(&TEXT.replacen(old, new, 1));
            assert_eq!(found.first().map(|(place, _)| place.clone()), Some(place(line)), "{new}: {found:?}");
        }
    }

    #[test]
    fn a_text_with_braces_does_not_hide_what_is_no_yaml() {
        let text = "kind: StorageClass\nparameters:\n  format: a:{{name}}\n---\nkind: Deployment\nmetadata:\n  name: d\n   labels: []\n";
        let manifests = ["a.yaml", "b.yaml"].map(|name| Manifest { name: name.to_owned(), text: text.to_owned() });
        let report = migrate(&Wanted { manifests: manifests.to_vec(), ..Wanted::default() }).report;
        let places: Vec<&str> = report.faults.iter().map(|fault| &*fault.place).collect();
        assert_eq!(places, ["a.yaml:8", "b.yaml:8"]);
        let expected = "YAML; b.yaml:3 has a placeholder, `format: a:{{name}}`: if it is a template, render it first";
        assert!(report.faults[1].expected.starts_with(expected), "{}", report.faults_text());
    }

    #[test]
    fn scripts_comments_and_other_objects_may_have_what_looks_like_a_placeholder() {
        assert_eq!(faults(TEXT), vec![]);
        assert_eq!(faults(&TEXT.replace("--v=2", "--v=$(LEVEL)").replace("        - --v", "        # - --v")), vec![]);
    }
}

//! What people and forges look for at the root of a project, and the forms in .github.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{files, read, root, shown};

/// A file, and what it must say.
const WANTED: [(&str, &[&str]); 8] = [
    ("GOVERNANCE.md", &["MAINTAINERS.md", "two thirds", "majority"]),
    ("MAINTAINERS.md", &["| who | for |", ".github/CODEOWNERS", "Emeriti"]),
    ("ADOPTERS.md", &["please add a line", "| who | driver | since |"]),
    ("SUPPORT.md", &["docs/operations.md", "docs/faq.md", "SECURITY.md"]),
    ("SECURITY.md", &["within 3 working days", "**Embargo**", "90 days"]),
    ("CONTRIBUTING.md", &["git commit --signoff", "Developer Certificate of Origin", "GOVERNANCE.md"]),
    ("CODE_OF_CONDUCT.md", &["CNCF Code of Conduct"]),
    (".github/pull_request_template.md", &["Signed-off-by", "CHANGELOG.md"]),
];

#[test]
fn each_file_that_people_look_for_is_there_and_says_what_they_look_for() {
    for (file, needed) in WANTED {
        let text = read(file);
        for one in needed {
            assert!(text.contains(one), "{file} does not say {one:?}");
        }
    }
    let paragraphs = read("GOVERNANCE.md").split("\n\n").filter(|part| !part.starts_with('#')).count();
    assert_eq!(paragraphs, 2, "GOVERNANCE.md is read before a first contribution: two paragraphs");
}

#[test]
fn each_page_of_the_root_is_in_the_index() {
    let index = read("docs/README.md");
    let pages = files(&["md"]).into_iter().filter(|path| path.parent() == Some(root()));
    let missing: Vec<String> =
        pages.map(|path| shown(&path)).filter(|name| !index.contains(&format!("](../{name}"))).collect();
    assert!(missing.is_empty(), "docs/README.md does not name {missing:?}");
}

/// The faults of an issue form, by the forge's schema: what of it is needed here.
fn faults(form: &Value) -> Vec<String> {
    let mut faults: Vec<String> = ["name", "description"]
        .into_iter()
        .filter(|key| form[*key].as_str().is_none_or(str::is_empty))
        .map(|key| format!("no {key}"))
        .collect();
    let mut ids = BTreeSet::new();
    for item in form["body"].as_array().into_iter().flatten() {
        let (kind, id) = (item["type"].as_str().unwrap_or_default(), item["id"].as_str().unwrap_or_default());
        match kind {
            "markdown" if item["attributes"]["value"].is_string() => {}
            "input" | "textarea" | "dropdown" | "checkboxes" if item["attributes"]["label"].is_string() => {
                if id.is_empty() || !ids.insert(id.to_owned()) {
                    faults.push(format!("the id {id:?} of a field is empty or there twice"));
                }
            }
            _ => faults.push(format!("a field of type {kind:?} without a text or a label")),
        }
    }
    if ids.is_empty() {
        faults.push("no field".to_owned());
    }
    faults
}

#[test]
fn the_issue_forms_are_valid_and_the_one_for_a_flaky_test_asks_for_seed_and_log() {
    let forms = files(&["yml"]).into_iter().filter(|path| path.starts_with(root().join(".github/ISSUE_TEMPLATE")));
    let mut names = BTreeSet::new();
    for path in forms.filter(|path| !path.ends_with("config.yml")) {
        let form: Value = serde_yaml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(faults(&form), [""; 0], "{}", shown(&path));
        assert!(names.insert(form["name"].as_str().unwrap().to_owned()), "two forms have the name {}", form["name"]);
        if path.ends_with("flaky.yml") {
            let fields = form["body"].as_array().unwrap();
            for id in ["seed", "log"] {
                let field = fields.iter().find(|field| field["id"] == id);
                assert!(
                    field.is_some_and(|field| field["validations"]["required"] == true),
                    "flaky.yml must ask for {id}"
                );
            }
        }
    }
    for name in &names {
        let is_told = read("SUPPORT.md").contains(&format!("*{name}*"));
        assert!(is_told || name.starts_with("Something "), "SUPPORT.md does not name {name}");
    }
    assert!(names.len() >= 4, "{names:?}");
}

#[test]
fn a_form_with_a_fault_is_noticed() {
    for (form, count) in [
        ("{name: a, description: b, body: [{type: input, id: c, attributes: {label: d}}]}", 0),
        ("{name: a, description: b, body: []}", 1),
        (
            "{description: b, body: [{type: input, id: c, attributes: {label: d}}, {type: input, id: c, attributes: {label: d}}]}",
            2,
        ),
        ("{name: a, description: b, body: [{type: input, id: c, attributes: {}}, {type: other}]}", 3),
    ] {
        let form: Value = serde_yaml::from_str(form).unwrap();
        assert_eq!(faults(&form).len(), count, "{form}: {:?}", faults(&form));
    }
}

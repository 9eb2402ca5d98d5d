//! What a release takes from the tree.

use std::process::{Command, Output};

use super::{files, read, root, shown};

fn release(arguments: &[&str]) -> Output {
    Command::new(root().join(".ci/release")).args(arguments).output().unwrap()
}

#[test]
fn the_notes_of_a_release_are_its_entry_of_the_changelog() {
    let output = release(&["notes", "Unreleased"]);
    let notes = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !notes.is_empty());
    assert!(read("CHANGELOG.md").contains(notes.trim_end()) && !notes.contains("\n## "), "{notes}");
    assert!(!notes.starts_with('\n') && !notes.ends_with("\n\n"), "{notes:?}");
    assert_eq!(release(&["notes", "9.9.9"]).status.code(), Some(1), "there is no such entry");
    assert_eq!(release(&[]).status.code(), Some(64));
}

#[test]
fn a_tag_of_another_version_is_refused_with_each_place_that_differs() {
    let output = release(&["check", "v9.9.9"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    for place in ["Cargo.toml", "Chart.yaml: version", "Chart.yaml: appVersion", "Dockerfile", "CHANGELOG.md"] {
        assert!(said.contains(place), "{place}: {said}");
    }
}

#[test]
fn the_tree_has_one_version() {
    let version = env!("CARGO_PKG_VERSION");
    let output = release(&["check", &format!("v{version}")]);
    let said = String::from_utf8(output.stderr).unwrap();
    // Between releases the changelog's entry is still called Unreleased.
    let differs: Vec<&str> = said.lines().filter(|line| !line.contains("CHANGELOG.md")).collect();
    assert!(differs.is_empty(), "{differs:#?}");
}

/// The address of the repository stands in Cargo.toml. Examples and addresses with a name to fill in are others.
#[test]
fn documents_and_chart_name_the_repository_of_the_manifest() {
    let repository = env!("CARGO_PKG_REPOSITORY");
    assert!(repository.starts_with("https://") && repository.ends_with("/csi-control-plane"), "{repository}");
    let mut count = 0;
    let mut others = Vec::new();
    let mut named = files(&["md", "yml"]);
    named.push(root().join("charts/csi-control-plane/Chart.yaml"));
    for path in named {
        let text = std::fs::read_to_string(&path).unwrap();
        for piece in text.split("https://").skip(1) {
            let address =
                piece.split(|end: char| end.is_whitespace() || ")>\"'`".contains(end)).next().unwrap_or_default();
            let is_ours = address.split('/').any(|part| part == "csi-control-plane");
            if is_ours && !address.contains("/OWNER/") && !address.contains("example.com/") {
                count += 1;
                // Its files alone have a host of their own.
                let address = address.replacen("raw.githubusercontent.com", "github.com", 1);
                if !format!("https://{address}").starts_with(repository) {
                    others.push(format!("{}: https://{address}", shown(&path)));
                }
            }
        }
    }
    assert!(others.is_empty(), "Cargo.toml says {repository}: {others:#?}");
    assert!(count >= 3, "README, quickstart and the issue templates name it, not {count}");
}

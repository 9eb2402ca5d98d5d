//! The documents: they are short enough, agree with each other and with the roles, their links lead somewhere, and their commands work.
//!
//! ```text
//! links      each relative link names a file, and each anchor a heading
//! commands   each command of the README and of the quickstart is played here, or its files are there
//! pins       actions, base images and Rust are named exactly, and renewed
//! release    the notes of a release, and the address of the repository
//! community  the files that people and forges look for, and the forms
//! counts     how many roles and sidecars there are, and which of these were tested
//! samples    values that people copy have the probe of the driver's container
//! gates      what `.ci/run` and `just prove` name is there, and CONTRIBUTING says which stage is whose
//! ```

mod commands;
mod community;
mod counts;
mod gates;
mod links;
mod pins;
mod release;
mod samples;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use csi_control_plane::roles::ROLES;

/// The length of the README, which a visitor reads before deciding anything.
const MOST_WORDS: usize = 1_200;
/// A reader of the runbook has a problem now. Other texts stand in docs/maintenance.md, messages.md or journal.md.
const MOST_WORDS_OF_THE_RUNBOOK: usize = 5_500;
/// A cell of a comparison that is longer hides its point.
const MOST_WORDS_OF_A_CELL: usize = 20;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The files below the root with one of these endings, and those that the forge shows. Not built, vendored or otherwise hidden files.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut folders = vec![root().to_path_buf()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                if name == ".github" || !(name.starts_with('.') || name == "target" || name == "vendor") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|ending| endings.iter().any(|one| ending == *one)) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// A file's path from the root, for people.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

#[test]
fn the_readme_is_read_in_a_few_minutes() {
    let words = read("README.md").split_whitespace().count();
    assert!(words <= MOST_WORDS, "README.md has {words} words, and may have {MOST_WORDS}: move some to docs/");
}

#[test]
fn the_runbook_is_searched_quickly() {
    let words = read("docs/operations.md").split_whitespace().count();
    let most = MOST_WORDS_OF_THE_RUNBOOK;
    assert!(
        words <= most,
        "docs/operations.md has {words} words, and may have {most}: move some to docs/maintenance.md"
    );
}

#[test]
fn a_cell_of_the_comparison_says_its_point() {
    let text = read("docs/features.md");
    let cells = text.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split(" | "));
    let long: Vec<&str> = cells.filter(|cell| cell.split_whitespace().count() > MOST_WORDS_OF_A_CELL + 1).collect();
    assert!(long.is_empty(), "docs/features.md: cells of more than {MOST_WORDS_OF_A_CELL} words: {long:#?}");
}

#[test]
fn the_roadmap_names_what_is_absent_and_the_features_name_each_role() {
    let (features, roadmap) = (read("docs/features.md"), read("ROADMAP.md"));
    let table = features.split_once("\n## Which sidecars\n").unwrap().1.split_once("\n## ").unwrap().0;
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (sidecar, here) = (cells[1], cells[2]);
        if here == "absent" {
            assert!(roadmap.contains(sidecar), "ROADMAP.md does not say what becomes of {sidecar}");
        } else {
            assert!(!roadmap.contains(&format!("**{sidecar}**")), "ROADMAP.md still plans {sidecar}");
            told.extend(here.split('`').skip(1).step_by(2).filter(|word| !word.starts_with("--")));
        }
    }
    let hosted: BTreeSet<&str> = ROLES.iter().map(|role| role.name).collect();
    assert_eq!(told, hosted, "docs/features.md names other roles than `check` accepts");
    let readme = read("README.md");
    for role in hosted {
        assert!(readme.contains(&format!("\n| `{role}` | ")), "the table of README.md lacks {role}");
    }
}

#[test]
fn every_document_is_in_the_index() {
    let index = read("docs/README.md");
    let missing: Vec<String> = files(&["md"])
        .iter()
        .filter(|path| path.parent() == Some(&root().join("docs")))
        .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
        .filter(|name| name != "README.md" && !index.contains(&format!("]({name})")))
        .collect();
    assert!(missing.is_empty(), "docs/README.md does not name {missing:?}");
}

//! What documents count and claim, held against its source: how many roles do the work of how many sidecars, beside which of these the
//! daemon was tested, how many inputs are drawn, and what the compiler and clippy refuse.

use std::collections::BTreeSet;

use csi_control_plane::roles::{ROLES, sidecars};

use super::{files, read, root};

const NUMBERS: [&str; 11] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];

/// Each number of roles or sidecars that a text tells, such as `6 sidecars`.
fn counts(text: &str) -> Vec<(usize, &'static str)> {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_ascii_lowercase())
        .filter(|word| !word.is_empty())
        .collect();
    let number = |word: &String| NUMBERS.iter().position(|one| one == word).or_else(|| word.parse().ok());
    let of = |word: &String| ["roles", "sidecars"].into_iter().find(|one| one == word);
    // "four sidecars", "four Go sidecars", "four of the sidecars".
    let what = |at: usize| words.iter().skip(at + 1).take(3).find_map(of);
    words
        .iter()
        .enumerate()
        .filter_map(|(at, word)| Some((number(word)?, what(at)?)))
        .filter(|(count, _)| *count > 1)
        .collect()
}

#[test]
fn the_readme_counts_roles_and_sidecars_once() {
    let expected = [(ROLES.len(), "roles"), (sidecars::hosted().len(), "sidecars")];
    assert_eq!(counts(&read("README.md")), expected, "one sentence has these numbers, and no other has any");
    for picture in files(&["svg"]).iter().filter(|path| path.starts_with(root().join("docs"))) {
        let text = std::fs::read_to_string(picture).unwrap();
        let told = text.split_once("<desc").and_then(|(_, rest)| rest.split_once("</desc>"));
        assert_eq!(counts(told.map_or("", |(told, _)| told)), [], "{}", picture.display());
    }
}

#[test]
fn a_number_is_found_in_each_of_its_forms() {
    for (text, found) in [
        ("beside the four sidecars, and", vec![(4, "sidecars")]),
        ("Before: four Go sidecars. After: one process with six roles.", vec![(4, "sidecars"), (6, "roles")]),
        ("7 roles of the 6 sidecars", vec![(7, "roles"), (6, "sidecars")]),
        ("one sidecar, the roles, two processes", Vec::new()),
    ] {
        assert_eq!(counts(text), found, "{text}");
    }
}

/// The sidecars of a text's words.
fn named(text: &str) -> BTreeSet<&'static str> {
    let is_in = |name: &&str| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|word| word == *name);
    sidecars::hosted().into_iter().map(|sidecar| sidecar.name).filter(is_in).collect()
}

/// The versions themselves are held by tests/cluster/versions.rs.
#[test]
fn both_pages_name_the_same_sidecars_as_tested() {
    let page = read("docs/compatibility.md");
    let table = page.split_once("\n## Go sidecars\n").unwrap().1.split_once("\n\nOther versions").unwrap().0;
    let (mut tested, mut others) = (BTreeSet::new(), BTreeSet::new());
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split(" | ").collect();
        if cells[1].starts_with('v') { &mut tested } else { &mut others }.extend(named(cells[0]));
    }
    let all: BTreeSet<&str> = sidecars::hosted().into_iter().map(|sidecar| sidecar.name).collect();
    assert_eq!(&tested | &others, all, "docs/compatibility.md has a row for each");
    let page = read("docs/versions.md");
    let promise = page.lines().find_map(|line| line.strip_prefix("| Go sidecars | ")).unwrap();
    let mut told = (BTreeSet::new(), BTreeSet::new());
    for sentence in promise.split(". ") {
        let into = if sentence.contains("not tested") { &mut told.1 } else { &mut told.0 };
        into.extend(named(sentence));
    }
    assert_eq!(told, (tested, others), "docs/versions.md, tested and not");
}

/// Each sentence of docs/trust.md that a file decides, and what that file has then.
#[test]
fn the_page_on_trust_claims_what_the_checks_do() {
    let page = read("docs/trust.md");
    for (claim, file, source) in [
        ("2 000 drawn inputs of each kind", "tests/translation/mod.rs", "given.map_or(2_000, "),
        ("the same ones in each run", "tests/translation/mod.rs", "TestRunner::deterministic()"),
        ("`unsafe` is forbidden by the compiler", "Cargo.toml", "unsafe_code = \"forbid\""),
        ("clippy refuses `unwrap` in the gate", "Cargo.toml", "unwrap_used = \"warn\""),
        (
            "clippy refuses `unwrap` in the gate",
            "justfile",
            "cargo clippy --locked --workspace --all-features --all-targets -- -D warnings",
        ),
        ("Nobody runs it in production: there is no release", "CHANGELOG.md", "This will be the first release"),
    ] {
        assert!(page.contains(claim), "docs/trust.md does not say {claim:?}");
        assert!(read(file).contains(source), "docs/trust.md says {claim:?}, and {file} has no {source:?}");
    }
}

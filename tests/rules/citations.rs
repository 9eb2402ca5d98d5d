//! Comments and tests cite `docs/spec`. Each citation names a file, and a section or a row of it, that exist; and each
//! regression row of a hosted role has tests. `docs/spec/README.md` says how to cite.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fmt, fs};

use csi_control_plane::roles::ROLES;

use crate::{
    attach_detach_rows, health_rows, node_rows, provision_rows, resize_rows, rows, snapshot_holes, snapshot_rows,
};

/// A role that this daemon hosts.
struct Hosted {
    /// Its name in `ROLES`.
    role: &'static str,
    /// The file below `docs/spec` that holds its rules.
    spec: &'static str,
    /// The letter of its regression rows there.
    letter: char,
    /// The table that names the tests for each of these rows.
    proofs: Proofs,
}

/// A table of rows and the tests that prove them.
type Proofs = &'static [rows::Row];

/// The other rows of a specification whose tests are named, too: the file, the letter, the table.
const ALSO_PROVEN: &[(&str, char, Proofs)] =
    &[("snapshotter", 'I', snapshot_holes::INVARIANTS), ("snapshotter", 'L', snapshot_holes::HOLES)];

/// Every role of `ROLES`. The reconciler is the attacher's loop, and has its specification.
const HOSTED: &[Hosted] = &[
    Hosted { role: "attachDetach", spec: "attach-detach", letter: 'D', proofs: attach_detach_rows::ROWS },
    Hosted { role: "attacher", spec: "attacher", letter: 'R', proofs: rows::ROWS },
    Hosted { role: "healthMonitor", spec: "node-and-health", letter: 'H', proofs: health_rows::ROWS },
    Hosted { role: "liveness", spec: "node-and-health", letter: 'L', proofs: node_rows::LIVENESS },
    Hosted { role: "provisioner", spec: "provisioner", letter: 'R', proofs: provision_rows::ROWS },
    Hosted { role: "reconciler", spec: "attacher", letter: 'R', proofs: rows::ROWS },
    Hosted { role: "registrar", spec: "node-and-health", letter: 'N', proofs: node_rows::REGISTRAR },
    Hosted { role: "resizer", spec: "resizer", letter: 'Z', proofs: resize_rows::ROWS },
    Hosted { role: "snapshotter", spec: "snapshotter", letter: 'S', proofs: snapshot_rows::ROWS },
];

/// Folders besides those of the roles whose citations need no name: the first file that has the letter is meant.
const UNNAMED: &[(&str, &[&str])] = &[
    ("src/translation/", &["migration"]),
    // A folder of Rust is not spelled as the role is.
    ("src/roles/attach_detach/", &["attach-detach"]),
    ("src/roles/health_monitor/", &["node-and-health"]),
    ("tests/simulation/changes/", &["resizer"]),
    ("tests/simulation/health/", &["node-and-health"]),
    ("tests/simulation/snapshots/", &["snapshotter"]),
    ("tests/simulation/", &["attacher", "provisioner"]),
];

/// The files whose tables name tests in their last column, and how many at least.
const PROVEN_TABLES: &[(&str, usize)] = &[
    ("docs/spec/newest.md", 90),
    ("docs/spec/remembered.md", 31),
    ("docs/spec/writes.md", 15),
    ("docs/spec/values.md", 15),
];

/// How many rows `docs/spec/newest.md` has for each letter, in its order.
const NEWEST: &[(char, u32)] =
    &[('A', 3), ('P', 14), ('Z', 7), ('S', 21), ('L', 1), ('R', 1), ('H', 3), ('U', 3), ('M', 1), ('C', 6), ('K', 10)];

/// What is searched for citations, and in which files of it.
const SEARCHED: &[&str] =
    &["src", "crates", "tests", "benches", "docs", "charts", "config", "README.md", "CONTRIBUTING.md"];
const EXTENSIONS: &[&str] = &["rs", "md", "yaml", "tpl"];
/// What shows how to cite, and so cites what does not exist.
const EXAMPLES: &[&str] = &["docs/spec/README.md", "tests/rules/citations.rs"];

/// A section by its number, or a row by its letter and number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Section(String),
    Row(char, u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Section(number) => write!(f, "spec {number}"),
            Self::Row(letter, number) => write!(f, "{letter}{number}"),
        }
    }
}

/// A citation: its line, the file that it names itself, and the place there.
type Citation = (usize, Option<String>, Place);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// `2`, `2.14`, `B4`.
fn section(word: &str) -> Option<Place> {
    let number = word.strip_prefix(['A', 'B', 'C']).unwrap_or(word);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    number.split('.').all(is_number).then(|| Place::Section(word.to_owned()))
}

/// `R48`.
fn row(word: &str) -> Option<Place> {
    let letter = word.chars().next().filter(char::is_ascii_uppercase)?;
    let digits = word.strip_prefix(letter)?;
    let is_number = (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !digits.starts_with('0')).then(|| Place::Row(letter, digits.parse().unwrap()))
}

/// `R48`, or both ends of `I11-I13`.
fn row_or_range(word: &str) -> Vec<Place> {
    word.split(['-', '–']).map(row).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Every section and row of a file of `docs/spec`, in its order: numbered headings, and rows of tables that begin with a letter
/// and a number.
fn places(text: &str) -> Vec<Place> {
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("##") {
            let number = title.trim_start_matches('#').split_whitespace().next().unwrap_or_default();
            found.extend(section(number.trim_end_matches('.')));
        } else if let Some(cells) = line.strip_prefix("| ") {
            found.extend(row(cells.split(" |").next().unwrap_or_default()));
        }
    }
    found
}

/// Every citation in `text`. `specs`: the names that a citation may give.
fn citations(text: &str, specs: &Specs) -> Vec<Citation> {
    let lines = text.lines().enumerate();
    let words: Vec<(usize, &str)> = lines
        .flat_map(|(number, line)| line.split_whitespace().map(move |word| (number + 1, word)))
        .filter(|(_, word)| !matches!(*word, "//" | "///" | "//!"))
        .collect();
    // `#553` is an issue's number.
    let is_mark = |c: char| !c.is_alphanumeric() && c != '§' && c != '#';
    let clean = |at: usize| {
        let word = words.get(at).map_or("", |(_, word)| word.trim_matches(is_mark));
        word.strip_suffix("'s").unwrap_or(word)
    };
    let (mut found, mut named, mut in_list) = (Vec::new(), None, false);
    for (at, (line, raw)) in words.iter().enumerate() {
        // A name holds to the end of its sentence, bracket or cell.
        if raw.starts_with(['(', '|']) {
            (named, in_list) = (None, false);
        }
        let (word, before) = (clean(at), if at == 0 { "" } else { clean(at - 1) });
        let follows_comma = at > 0 && words[at - 1].1.ends_with(',');
        if specs.contains_key(word) && (clean(at + 1) == "spec" || !row_or_range(clean(at + 1)).is_empty()) {
            named = Some(word.to_owned());
        }
        let of_csi = at > 1 && clean(at - 2).eq_ignore_ascii_case("csi");
        let begins = before == "spec" && !of_csi;
        // `spec 3.4 and 3.5`, `spec 4.2 to 4.4`, `spec 2.5, 2.6`, but not `spec 2.5, 3 times`.
        let goes_on = in_list && (matches!(before, "and" | "to") || (follows_comma && word.contains('.')));
        let number = word.strip_prefix('§').or_else(|| (begins || goes_on).then_some(word));
        let cited = number.and_then(section).map_or_else(|| row_or_range(word), |place| vec![place]);
        in_list = cited.iter().any(|it| matches!(it, Place::Section(_))) || (in_list && matches!(word, "and" | "to"));
        found.extend(cited.into_iter().map(|place| (*line, named.clone(), place)));
        if raw.rsplit(char::is_alphanumeric).next().is_some_and(|end| end.contains(['.', ')', '"'])) {
            (named, in_list) = (None, false);
        }
    }
    found
}

/// The files of `docs/spec`, each with its sections and rows.
type Specs = BTreeMap<String, BTreeSet<Place>>;

fn specs() -> Specs {
    let mut specs = Specs::new();
    for path in files_below(&root().join("docs/spec"), &["md"]) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name != "README" {
            specs.insert(name, places(&fs::read_to_string(&path).unwrap()).into_iter().collect());
        }
    }
    specs
}

pub(crate) fn files_below(path: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    if path.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        entries.sort();
        return entries.iter().flat_map(|entry| files_below(entry, extensions)).collect();
    }
    let is_wanted = path.extension().is_some_and(|it| extensions.iter().any(|extension| it == *extension));
    if is_wanted { vec![path.to_owned()] } else { Vec::new() }
}

fn has_letter(spec: &BTreeSet<Place>, letter: char) -> bool {
    spec.iter().any(|place| matches!(place, Place::Row(it, _) if *it == letter))
}

/// The files that a citation without a name may mean, by the file that it stands in.
fn unnamed(path: &str) -> Vec<&str> {
    if let Some(spec) = path.strip_prefix("docs/spec/") {
        return vec![spec.trim_end_matches(".md")];
    }
    let role = HOSTED.iter().find(|it| path.starts_with(&format!("src/roles/{}/", it.role)));
    let folder = UNNAMED.iter().find(|(folder, _)| path.starts_with(folder));
    role.map(|it| vec![it.spec]).or_else(|| folder.map(|(_, specs)| specs.to_vec())).unwrap_or_default()
}

/// The fault of a citation in the file at `path`, if it has one.
fn fault(specs: &Specs, path: &str, named: Option<&str>, place: &Place) -> Option<String> {
    let candidates = named.map_or_else(|| unnamed(path), |name| vec![name]);
    let spec = match place {
        Place::Section(_) => candidates.first(),
        Place::Row(letter, _) => candidates.iter().find(|name| has_letter(&specs[**name], *letter)),
    };
    match (spec, place) {
        (Some(name), _) if specs[*name].contains(place) => None,
        (Some(name), _) => Some(format!("docs/spec/{name}.md has no {place}")),
        (None, Place::Section(_)) => Some(format!("\"{place}\" names no file, as \"attacher {place}\" does")),
        // A letter that no hosted role has is no citation, nor is a word of documents: only code has rows without a name.
        (None, Place::Row(letter, _)) => {
            let is_hosted = HOSTED.iter().any(|it| has_letter(&specs[it.spec], *letter));
            let is_citation =
                named.is_some() || (is_hosted && Path::new(path).extension().is_some_and(|it| it == "rs"));
            is_citation.then(|| format!("{place} names no file that has it, as \"attacher {place}\" does"))
        }
    }
}

/// The rows that a test's name cites: those of the regression lists, and others that it begins with (`i3_...`).
fn cited_in_name(name: &str) -> BTreeSet<Place> {
    let first = name.split('_').map_while(|word| row(&word.to_ascii_uppercase()));
    let is_type = |place: &Place| matches!(place, Place::Row('I', 16 | 32 | 64));
    let listed = rows::cited_in(name).into_iter().map(|number| Place::Row('R', number));
    first.filter(|place| !is_type(place)).chain(listed).collect()
}

#[test]
fn each_citation_names_a_file_and_a_place_that_exist() {
    let (specs, mut faults) = (specs(), Vec::new());
    let mut count = 0;
    for path in SEARCHED.iter().flat_map(|it| files_below(&root().join(it), EXTENSIONS)) {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        if EXAMPLES.contains(&name) {
            continue;
        }
        for (line, named, place) in citations(&fs::read_to_string(&path).unwrap(), &specs) {
            count += 1;
            faults.extend(fault(&specs, name, named.as_deref(), &place).map(|why| format!("{name}:{line}: {why}")));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 500, "only {count} citations are found: the search is broken");
}

#[test]
fn each_row_in_a_tests_name_exists() {
    let (specs, mut faults) = (specs(), Vec::new());
    let hosted: BTreeSet<&str> = HOSTED.iter().map(|it| it.spec).collect();
    for path in ["src", "crates", "tests"].iter().flat_map(|it| files_below(&root().join(it), &["rs"])) {
        let file = path.strip_prefix(root()).unwrap().to_str().unwrap();
        let meant = Some(unnamed(file)).filter(|it| !it.is_empty()).unwrap_or_else(|| Vec::from_iter(hosted.clone()));
        for name in rows::tests_in(&fs::read_to_string(&path).unwrap()) {
            for place in cited_in_name(&name) {
                let Place::Row(letter, _) = place else { continue };
                let is_row = hosted.iter().any(|it| has_letter(&specs[*it], letter));
                if is_row && !meant.iter().any(|it| specs[*it].contains(&place)) {
                    faults.push(format!("{file}: {name}: docs/spec has no {place} in {}", meant.join(", ")));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn each_regression_row_of_a_hosted_role_has_its_proof() {
    let specs = specs();
    for role in ROLES {
        let hosted = HOSTED.iter().find(|it| it.role == role.name);
        let Some(Hosted { spec, letter, proofs, .. }) = hosted else {
            panic!("the role {} has no specification in HOSTED", role.name);
        };
        assert_each_has_its_proof(&specs, spec, *letter, proofs);
    }
    for (spec, letter, proofs) in ALSO_PROVEN {
        assert_each_has_its_proof(&specs, spec, *letter, proofs);
    }
}

fn assert_each_has_its_proof(specs: &Specs, spec: &str, letter: char, proofs: &[(u32, &str, rows::Proof)]) {
    let proven: BTreeSet<Place> = proofs.iter().map(|(number, ..)| Place::Row(letter, *number)).collect();
    let is_of_letter = |place: &&Place| matches!(place, Place::Row(it, _) if *it == letter);
    let listed: BTreeSet<Place> = specs[spec].iter().filter(is_of_letter).cloned().collect();
    let differ: Vec<String> = proven.symmetric_difference(&listed).map(Place::to_string).collect();
    assert!(differ.is_empty(), "{letter}: only in docs/spec/{spec}.md, or only with a proof: {differ:?}");
    assert!(!listed.is_empty(), "docs/spec/{spec}.md has no rows {letter}");
}

#[test]
fn rows_are_numbered_without_a_gap_and_the_readme_tells_how_many_there_are() {
    let readme = fs::read_to_string(root().join("docs/spec/README.md")).unwrap();
    for name in specs().keys() {
        let text = fs::read_to_string(root().join(format!("docs/spec/{name}.md"))).unwrap();
        let (all, mut lists) = (places(&text), BTreeMap::<char, Vec<u32>>::new());
        let line = readme.lines().find(|line| line.contains(&format!("({name}.md)"))).unwrap();
        for (at, place) in all.iter().enumerate() {
            assert!(!all[..at].contains(place), "docs/spec/{name}.md has {place} twice");
            if let Place::Row(letter, number) = place {
                lists.entry(*letter).or_default().push(*number);
            }
        }
        for (letter, numbers) in lists {
            let last = *numbers.last().unwrap();
            assert_eq!(numbers, (1..=last).collect::<Vec<_>>(), "docs/spec/{name}.md, {letter}");
            let range = format!("{letter}1–{letter}{last}");
            assert!(line.contains(&range), "docs/spec/README.md does not say that {name}.md has {range}");
        }
    }
}

#[test]
fn each_test_that_the_tables_of_all_roles_name_exists() {
    let files = ["src", "crates", "tests"].iter().flat_map(|it| files_below(&root().join(it), &["rs"]));
    let existing: BTreeSet<String> = files.flat_map(|it| rows::tests_in(&fs::read_to_string(it).unwrap())).collect();
    for (file, fewest) in PROVEN_TABLES {
        let text = fs::read_to_string(root().join(file)).unwrap();
        let cells = text.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.rsplit('|').nth(1));
        let named: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        let missing: Vec<_> = named.iter().filter(|name| !existing.contains(**name)).collect();
        assert!(missing.is_empty(), "{file} names no tests: {missing:#?}");
        assert!(named.len() >= *fewest, "{file}: only {} tests are named: the search is broken", named.len());
    }
}

#[test]
fn each_change_of_the_newest_releases_has_a_test_or_a_row_of_the_features() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    let (newest, features) = (read("docs/spec/newest.md"), read("docs/features.md"));
    let features: BTreeSet<&str> =
        features.lines().filter_map(|it| it.strip_prefix("| ")?.split(" |").next()).collect();
    let mut rows = Vec::new();
    for line in newest.lines().filter(|line| line.starts_with("| N-")) {
        let cells: Vec<&str> = line.trim_matches(['|', ' ']).split(" | ").collect();
        let [row, _, _, proof] = cells[..] else { panic!("{line} has other columns") };
        let is_answered = proof.strip_prefix("features: ").is_some_and(|row| features.contains(row));
        assert!(
            proof.starts_with('`') || is_answered,
            "{row} has neither a test nor a row of docs/features.md: {proof}"
        );
        rows.push(row.to_owned());
    }
    let all = NEWEST.iter().flat_map(|(letter, last)| (1..=*last).map(move |number| format!("N-{letter}{number}")));
    assert_eq!(rows, all.collect::<Vec<_>>());
}

#[test]
fn sections_and_rows_of_a_file_are_its_numbered_headings_and_first_cells() {
    let text = "# 1. Title\n## 2. Queues\n### 2.1 What\n### B4. Ours\n## Open\n| R | Ref |\n|---|---|\n| R1 | 2.2 | R9 |\n| 7 | x |\n";
    let sections = ["2", "2.1", "B4"].map(|number| Place::Section(number.to_owned()));
    assert_eq!(places(text), [&sections[..], &[Place::Row('R', 1)]].concat());
}

#[test]
fn what_is_a_citation_and_what_is_not() {
    let shown = |text: &str| -> Vec<String> {
        let show = |(_, named, place): Citation| match named {
            Some(name) => format!("{name} {place}"),
            None => place.to_string(),
        };
        citations(text, &specs()).into_iter().map(show).collect()
    };
    for (text, expected) in [
        ("/// Whether it goes (spec 2.11): ours (I4).", &["spec 2.11", "I4"][..]),
        ("(spec 3.4 and 3.5: the Go", &["spec 3.4", "spec 3.5"]),
        ("(spec 4.2 to 4.4). 7 and 8", &["spec 4.2", "spec 4.4"]),
        ("(spec 7, issues 215 and 697)", &["spec 7"]),
        ("(spec 2.5, step 15), 2.6", &["spec 2.5"]),
        ("the attacher spec 2.7, I7. And R8", &["attacher spec 2.7", "attacher I7", "R8"]),
        ("attacher spec 2.9 (§12 has it)", &["attacher spec 2.9", "spec 12"]),
        ("| names our attacher |\n| M24 | provisioner |", &["M24"]),
        ("// as the provisioner\n    // spec 5.4 says", &["provisioner spec 5.4"]),
        ("node-and-health spec B4; resizer Z12", &["node-and-health spec B4", "resizer Z12"]),
        ("§2.3 and \"I11-I13\" `R48` and I1's half", &["spec 2.3", "I11", "I13", "R48", "I1"]),
        ("the CSI spec 1.12, spec.attacher, a spec of 3, k/k 141541, issue 706, spec #553", &[]),
        ("Invariant::I8 HTTP/1.1 I32x R007 R123 RW2 f::<P1>() 2.14", &[]),
    ] {
        assert_eq!(shown(text), expected, "{text}");
    }
}

#[test]
fn a_citation_means_the_file_of_its_folder_or_the_one_that_it_names() {
    let specs = specs();
    let is_wrong = |path: &str, named: Option<&str>, place: Place| fault(&specs, path, named, &place).is_some();
    let section = |number: &str| Place::Section(number.to_owned());
    assert!(!is_wrong("src/roles/attacher/policy.rs", None, Place::Row('R', 53)));
    assert!(is_wrong("src/roles/attacher/policy.rs", None, Place::Row('R', 99)));
    assert!(!is_wrong("src/roles/attacher/policy.rs", Some("provisioner"), Place::Row('R', 63)));
    assert!(!is_wrong("src/roles/provisioner/decide.rs", None, section("2.14")));
    assert!(is_wrong("src/roles/reconciler/mod.rs", None, section("2.14")));
    assert!(is_wrong("src/queue/state.rs", None, section("2.1")), "it names no file");
    assert!(is_wrong("src/queue/state.rs", None, Place::Row('I', 1)), "it names no file");
    assert!(!is_wrong("src/queue/state.rs", Some("attacher"), Place::Row('I', 1)));
    assert!(!is_wrong("src/queue/state.rs", None, Place::Row('K', 8)), "no row of a hosted role");
    assert!(!is_wrong("tests/simulation/calls.rs", None, Place::Row('P', 10)));
    assert!(is_wrong("tests/simulation/calls.rs", None, Place::Row('R', 99)), "the attacher's come first");
    assert_eq!(cited_in_name("i3_r7_an_i5_is"), [Place::Row('I', 3), Place::Row('R', 7)].into());
    assert_eq!(cited_in_name("i64_is_a_type_r28"), [Place::Row('R', 28)].into());
}

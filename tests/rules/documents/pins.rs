//! What comes from elsewhere is named exactly: actions by commit, base images by digest, Rust by one version in one place; and
//! Dependabot renews each kind of it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use super::{files, read, root, shown};

/// The first major version of each action that runs on the forge's present Node or on none. Runners have no Node 20 since 2026-09.
const LEAST: [(&str, u64); 8] = [
    ("actions/attest-build-provenance", 3),
    ("actions/cache", 5),
    ("actions/checkout", 5),
    ("actions/setup-go", 6),
    ("github/codeql-action", 4),
    ("ossf/scorecard-action", 2),
    // It installs cosign 3.
    ("sigstore/cosign-installer", 4),
    ("actions/upload-artifact", 6),
];

/// A workflow's name and its text.
fn workflows() -> Vec<(String, String)> {
    let all = files(&["yaml"]).into_iter().filter(|path| path.starts_with(root().join(".github/workflows")));
    all.map(|path| (shown(&path), std::fs::read_to_string(&path).unwrap())).collect()
}

/// The faults of the actions that a workflow uses. `seen` has the pin of each repository.
fn faults(text: &str, seen: &mut BTreeMap<String, String>) -> Vec<String> {
    let mut faults = Vec::new();
    for line in text.lines() {
        let Some((_, used)) = line.split_once("uses: ") else { continue };
        if used.starts_with("./") {
            continue;
        }
        let parts = used.split_once('@').and_then(|(action, pin)| Some((action, pin.split_once(" # v")?)));
        let Some((action, (commit, version))) = parts else {
            faults.push(format!("{used}: not by ACTION@COMMIT # vVERSION"));
            continue;
        };
        if commit.len() != 40 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            faults.push(format!("{used}: {commit} is no commit"));
        }
        let repository = action.split('/').take(2).collect::<Vec<_>>().join("/");
        let pin = format!("{commit} v{version}");
        let first = seen.entry(repository.clone()).or_insert_with(|| pin.clone());
        if *first != pin {
            faults.push(format!("{used}: elsewhere it is {first}"));
        }
        let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
        match LEAST.iter().find(|(name, _)| *name == repository) {
            Some((_, least)) if major.is_some_and(|major| major >= *least) => {}
            Some((_, least)) => {
                faults.push(format!("{used}: before v{least} it needs a Node that runners no longer have"));
            }
            None => {
                faults
                    .push(format!("{used}: add {repository} to LEAST, with the version that runs on today's runners"));
            }
        }
    }
    faults
}

#[test]
fn each_action_is_named_by_its_commit_and_runs_on_todays_runners() {
    let (mut seen, mut found) = (BTreeMap::new(), Vec::new());
    let workflows = workflows();
    for (name, text) in &workflows {
        found.extend(faults(text, &mut seen).into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(found.is_empty(), "{found:#?}");
    assert!(workflows.len() >= 6 && seen.len() >= 6, "{seen:#?}");
}

#[test]
fn an_action_that_is_old_or_named_by_a_tag_is_noticed() {
    let commit = "a".repeat(40);
    for (used, count) in [
        (format!("actions/checkout@{commit} # v7.0.1"), 0),
        (format!("actions/checkout@{commit} # v4.2.2"), 1),
        ("actions/checkout@v7".to_owned(), 1),
        ("actions/checkout@main # v7".to_owned(), 1),
        (format!("somebody/something@{commit} # v1"), 1),
        ("./.github/workflows/ci.yaml".to_owned(), 0),
    ] {
        let faults = faults(&format!("      - uses: {used}\n"), &mut BTreeMap::new());
        assert_eq!(faults.len(), count, "{used}: {faults:?}");
    }
    let two =
        format!("- uses: actions/cache@{commit} # v5.0.5\n- uses: actions/cache/restore@{} # v5.0.5\n", "b".repeat(40));
    assert_eq!(faults(&two, &mut BTreeMap::new()).len(), 1, "two pins of one action");
}

#[test]
fn the_base_images_are_named_by_digest_and_the_toolchains_is_the_one_rust_version() {
    let dockerfile = read("Dockerfile");
    let stages: BTreeSet<&str> =
        dockerfile.lines().filter_map(|line| line.split_once(" AS ").map(|(_, stage)| stage)).collect();
    let images = dockerfile.lines().filter_map(|line| line.strip_prefix("FROM "));
    let images: Vec<&str> = images
        .filter_map(|image| image.split_whitespace().find(|word| !word.starts_with("--")))
        .filter(|image| !stages.contains(image))
        .collect();
    assert_eq!(images.len(), 2, "{images:?}");
    for image in &images {
        let digest = image.split_once("@sha256:").map(|(_, digest)| digest);
        let is_one = digest.is_some_and(|it| it.len() == 64 && it.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(is_one, "{image} has no digest");
    }
    let output = Command::new(root().join(".ci/release")).arg("rust").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let version = String::from_utf8(output.stdout).unwrap();
    let parts: Vec<u64> = version.trim().split('.').map(|part| part.parse().unwrap()).collect();
    assert!(images[0].contains(&format!("rust:{}-", version.trim())), "{images:?}");
    let least = env!("CARGO_PKG_RUST_VERSION").split('.').map(|part| part.parse::<u64>().unwrap());
    assert!(parts.iter().copied().ge(least), "{version} is older than the rust-version of Cargo.toml");
    // Everywhere else it is read from there.
    for (name, text) in workflows() {
        if text.contains("cargo") || text.contains(".ci/run") || text.contains(".ci/prove") {
            assert!(text.contains("$(.ci/release rust)"), "{name} uses the runner's own Rust");
        }
        assert!(!text.contains(version.trim()), "{name} names the version of Rust itself");
    }
    assert!(!read("docs/rebuild.md").contains("rust:1."), "docs/rebuild.md reads it, too");
}

#[test]
fn dependabot_renews_each_kind_of_what_comes_from_elsewhere() {
    let config: Value = serde_yaml::from_str(&read(".github/dependabot.yml")).unwrap();
    assert_eq!(config["version"], 2);
    let updates = config["updates"].as_array().unwrap();
    let kinds: BTreeSet<&str> = updates.iter().filter_map(|update| update["package-ecosystem"].as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["cargo", "docker", "github-actions", "gomod"]));
    for update in updates {
        assert_eq!(update["schedule"]["interval"], "weekly", "{update}");
        assert!(update["directory"] == "/" || update["directories"][0] == "/tests/cluster/go/*", "{update}");
    }
    // Each module of Go is where that pattern looks.
    let modules = files(&["mod"]);
    assert!(modules.len() > 10, "{modules:?}");
    for module in modules {
        let place = module.parent().and_then(|folder| folder.parent());
        assert_eq!(place, Some(root().join("tests/cluster/go").as_path()), "{}", shown(&module));
    }
}

/// When the workflow of this name runs.
fn occasions(name: &str) -> BTreeSet<String> {
    let workflow: Value = serde_yaml::from_str(&read(&format!(".github/workflows/{name}.yaml"))).unwrap();
    // YAML 1.1 reads the key as true.
    let on = workflow.get("on").or_else(|| workflow.get("true")).unwrap();
    on.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn advisories_codeql_and_scorecard_look_at_changes_and_at_main() {
    for (name, needed) in [
        ("advisories", &["schedule", "push", "pull_request"][..]),
        ("codeql", &["schedule", "push", "pull_request"]),
        ("scorecard", &["schedule", "push"]),
    ] {
        let found = occasions(name);
        assert!(needed.iter().all(|one| found.contains(*one)), "{name}: {found:?}");
    }
}

/// The workflow and its rehearsal make the files of a release by the same commands.
#[test]
fn what_a_release_makes_is_rehearsed() {
    let (workflow, rehearsal) = (read(".github/workflows/release.yaml"), read(".ci/rehearse"));
    for command in ["check", "notes", "pack", "chart", "sums"] {
        let call = format!(".ci/release {command} ");
        assert!(workflow.contains(&call), "the workflow has no {call}");
        assert!(rehearsal.contains(&call), ".ci/rehearse has no {call}");
    }
    for signature in ["cosign sign ", "cosign sign-blob "] {
        assert!(workflow.contains(signature) && rehearsal.contains(signature), "{signature}");
    }
    assert!(read("justfile").contains("\nrelease-rehearsal"), "`just release-rehearsal` plays it");
}

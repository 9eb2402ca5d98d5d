//! The commands of the README and of the quickstart: those of this program are played, of the others the files must be there.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::{read, root};

const PAGES: [&str; 2] = ["README.md", "docs/quickstart-kind.md"];

/// Programs that need a container engine, a cluster, the network or a build. The sandbox is played by tests/process, as
/// `a_build_runs_what_tests_play` makes sure.
const ELSEWHERE: [&str; 7] = ["git", "cd", "cargo", "docker", "kind", "kubectl", "helm"];

/// The blocks of a page in one language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = read(page);
    let fence = format!("```{language}\n");
    text.split(&fence).skip(1).filter_map(|piece| piece.split("\n```").next().map(str::to_owned)).collect()
}

/// The commands of a page, each on one line and without its comment.
fn commands(page: &str) -> Vec<String> {
    let text = blocks(page, "console").join("\n").replace("\\\n", " ");
    let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
    lines.map(|line| line.split("  #").next().unwrap_or(line).trim().to_owned()).collect()
}

/// Plays a command of this program in a folder.
fn play(command: &str, folder: &Path) -> Output {
    let mut words = command.split_whitespace();
    assert_eq!(words.next(), Some("csi-control-plane"));
    let mut program = Command::new(env!("CARGO_BIN_EXE_csi-control-plane"));
    program.args(words).current_dir(folder).env_clear().output().unwrap()
}

#[test]
fn every_command_of_this_program_works_as_written() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("config")).unwrap();
    std::fs::copy(root().join("config/minimal.yaml"), folder.path().join("config/minimal.yaml")).unwrap();
    std::fs::copy(root().join("tests/migrate/hostpath.yaml"), folder.path().join("controller.yaml")).unwrap();
    let ours: Vec<String> =
        PAGES.iter().flat_map(|page| commands(page)).filter(|line| line.starts_with("csi-control-plane ")).collect();
    for command in &ours {
        let output = play(command, folder.path());
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
    for verb in ["check", "migrate"] {
        assert!(ours.iter().any(|command| command.split(' ').nth(1) == Some(verb)), "{verb} is not played: {ours:#?}");
    }
    assert!(folder.path().join("moved/workload.yaml").exists(), "migrate has written nothing");
}

#[test]
fn every_other_command_is_of_a_known_program_and_names_files_that_exist() {
    for page in PAGES {
        for command in commands(page) {
            let mut words = command.split_whitespace();
            let program = words.next().unwrap_or_default();
            assert!(program == "csi-control-plane" || ELSEWHERE.contains(&program), "{page}: who plays {command:?}?");
            for word in words.filter(|word| ["deploy/", "charts/", "config/"].iter().any(|one| word.starts_with(one))) {
                assert!(root().join(word).exists(), "{page}: {command:?}: there is no {word}");
            }
        }
    }
}

#[test]
fn a_build_runs_what_tests_play() {
    let cargo: Vec<String> =
        PAGES.iter().flat_map(|page| commands(page)).filter(|command| command.starts_with("cargo ")).collect();
    let expected =
        ["cargo run -- sandbox", "cargo test --workspace", "cargo build --release --locked --no-default-features"];
    assert_eq!(cargo, expected);
    let is_fetched = |command: &String| command.starts_with("git ") || command.starts_with("cd ");
    let first: Vec<String> = commands("README.md").into_iter().filter(|command| !is_fetched(command)).take(2).collect();
    assert_eq!(first, expected[..2], "what plays the main job, and what passes the tests, are the first to copy");
    assert!(read("tests/process/sandbox.rs").contains("run(&[\"sandbox\"]"), "nobody plays the sandbox");
    let justfile = read("justfile");
    for recipe in ["cargo test --locked --workspace {{ args }}", "cargo build --locked --release --no-default-features"]
    {
        assert!(justfile.contains(&format!("    {recipe}\n")), "nobody plays {recipe}");
    }
}

#[test]
fn the_readmes_configurations_are_valid_and_those_that_we_ship() {
    let yaml = blocks("README.md", "yaml");
    let parsed = |text: &str| serde_yaml::from_str::<Value>(text).unwrap();
    let minimal = yaml.iter().find(|block| block.starts_with("# config/minimal.yaml\n")).unwrap();
    assert_eq!(parsed(minimal), parsed(&read("config/minimal.yaml")));

    let values = yaml.iter().find(|block| block.starts_with("# values.yaml\n")).unwrap();
    let config = &parsed(values)["config"];
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.yaml"), config.to_string()).unwrap();
    let output =
        play("csi-control-plane check --config config.yaml --driver-name your.driver.example.com", folder.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(config["roles"].as_object().is_some_and(|roles| roles.len() == 6), "{config}");
}

#[test]
fn the_quickstart_names_what_its_manifests_hold() {
    let manifests = read("deploy/csi-driver-host-path/manifests.yaml");
    let example = read("deploy/csi-driver-host-path/example.yaml");
    let all = commands("docs/quickstart-kind.md").join("\n");
    let [deployment, image] = ["csi-driver-host-path-csi-control-plane", "csi-control-plane:0.1.0"];
    assert!(
        all.contains(&format!("deployment/{deployment}")) && manifests.contains(&format!("name: {deployment:?}\n"))
    );
    assert!(all.contains(&format!("--tag {image}")) && manifests.contains(&format!("\"{image}\"")));
    assert!(all.contains("-n csi-hostpath ") && manifests.contains("namespace: \"csi-hostpath\"\n"));
    assert!(all.contains("pod/hostpath-example ") && example.contains("name: hostpath-example\n"));
    for container in ["csi-control-plane", "hostpath"] {
        assert!(manifests.contains(&format!("name: {container}\n")), "{container}");
    }
}

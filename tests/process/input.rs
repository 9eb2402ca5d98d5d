//! Invalid configurations: all errors at once, with their place and the allowed values, and exit code 78.

use serde_json::Value;

use super::program::run;

const WRONG: &str = "\
csi:
  timeout: 15
  sockt: /csi.sock
kubernetes:
  maxInFlight: many
leaderElection:
  leaseDuration: 10s
  renewDeadline: 15s
  retryPeriod: 20s
diagnostics:
  listen: everywhere
roles:
  attacher:
    workers: 0
  painter:
";

/// Key, line, and the message for the user.
const FAULTS: &[(&str, usize, &str)] = &[
    ("csi.timeout", 2, "15s"),
    ("csi.sockt", 3, "unknown key"),
    ("kubernetes.maxInFlight", 5, "1 to 10000"),
    ("leaderElection.renewDeadline", 8, "shorter than leaseDuration, which is 10s"),
    ("leaderElection.retryPeriod", 9, "shorter than renewDeadline, which is 15s"),
    ("diagnostics.listen", 11, "everywhere"),
    ("roles.attacher.workers", 14, "1 to 10000"),
    ("roles.painter", 15, "attacher"),
];

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[tokio::test]
async fn every_fault_is_told_at_once_with_its_line_by_run_and_by_check() {
    let (_folder, path) = file(WRONG);
    for verb in ["run", "check"] {
        let ended = run(&[verb, "--config", &path], &[]).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(78), ""), "{verb}: {}", ended.stderr);
        assert!(ended.stderr.contains(&format!("the configuration has {} faults", FAULTS.len())), "{}", ended.stderr);
        for (key, line, says) in FAULTS {
            let start = format!("  {key}  ({path}:{line})\n");
            let told = ended.stderr.split("\n\n").find(|fault| fault.contains(start.trim_end()));
            let told = told.unwrap_or_else(|| panic!("{verb}: {start:?} in\n{}", ended.stderr));
            assert!(told.contains(says), "{verb}: {says:?} in\n{told}");
        }
    }
}

#[tokio::test]
async fn check_for_programs_lists_the_same_faults() {
    let (_folder, path) = file(WRONG);
    let ended = run(&["check", "--config", &path, "--output", "json"], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(78), ""));
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    let mut keys: Vec<&str> =
        document["faults"].as_array().unwrap().iter().map(|fault| fault["key"].as_str().unwrap()).collect();
    let mut expected: Vec<&str> = FAULTS.iter().map(|(key, ..)| *key).collect();
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn a_file_that_is_not_there_or_not_yaml_is_exit_code_78_and_named() {
    let (folder, broken) = file("csi: [\n");
    let directory = folder.path().to_str().unwrap();
    let missing = format!("{directory}/nothing.yaml");
    for path in [missing.as_str(), &broken, directory] {
        for verb in ["run", "check"] {
            let ended = run(&[verb, "--config", path], &[]).await;
            assert_eq!(ended.code, Some(78), "{verb} {path}: {}", ended.stderr);
            assert!(ended.stderr.contains(path), "{verb}: {}", ended.stderr);
        }
    }
}

#[tokio::test]
async fn a_variable_with_a_fault_is_named_as_the_origin() {
    let (_folder, path) = file("roles: {attacher: }\n");
    let variables = [("CSI_CONTROL_PLANE_CSI__TIMEOUT", "soon"), ("CSI_CONTROL_PLANE_CSI__TIMEOU", "15s")];
    let ended = run(&["run", "--config", &path], &variables).await;
    assert_eq!(ended.code, Some(78), "{}", ended.stderr);
    for (variable, _) in variables {
        assert!(ended.stderr.contains(&format!("(environment variable {variable})")), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn the_file_may_be_named_by_the_environment() {
    let ended = run(&["check"], &[("CSI_CONTROL_PLANE_CONFIG", "config/minimal.yaml")]).await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

//! Invalid configurations: all errors at once, with their place and the allowed values, and exit code 78.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::Value;

use super::program::{run, run_reading, run_with_variable};

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
async fn check_reads_the_standard_input_as_migrate_does() {
    let (_folder, path) = file("roles: {attacher: {}}\n");
    for arguments in [&["check", "-"][..], &["check", "--config", "-"]] {
        let ended = run_reading(arguments, path.as_ref()).await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert!(ended.stdout.starts_with("standard input: valid\n"), "{}", ended.stdout);
    }
    let (_folder, path) = file("roles: {attacher: {workers: 0}}\n");
    let ended = run_reading(&["check", "-"], path.as_ref()).await;
    assert_eq!(ended.code, Some(78));
    assert!(ended.stderr.contains("  roles.attacher.workers  (standard input:1)\n"), "{}", ended.stderr);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_refused_with_their_place_in_a_file_and_by_name_in_the_environment() {
    let (_folder, path) = file("");
    std::fs::write(&path, b"csi:\n  timeout: 15s\nroles: {att\xffacher: {}}\n").unwrap();
    let says = format!(
        "error: cannot read the configuration file {path}: line 3, column 12: the byte 0xff is no UTF-8: save it as UTF-8\n"
    );
    for verb in ["run", "check"] {
        let ended = run(&[verb, "--config", &path], &[]).await;
        assert_eq!((ended.code, ended.stderr), (Some(78), says.clone()), "{verb}");
    }
    let value = OsStr::from_bytes(b"\xff");
    let ours = run_with_variable(&["check", "--role", "attacher"], "CSI_CONTROL_PLANE_CSI__TIMEOUT", value).await;
    let says = "error: the variable CSI_CONTROL_PLANE_CSI__TIMEOUT is no UTF-8: \u{fffd}\n";
    assert_eq!((ours.code, ours.stderr.as_str()), (Some(78), says));
    let anothers = run_with_variable(&["check", "--role", "attacher"], "LESSOPEN", value).await;
    assert_eq!(anothers.code, Some(0), "{}", anothers.stderr);
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

/// Keys that need a variable: the section, the key, its line, the value, the variable.
const NEEDS: [(&str, &str, &str, &str); 4] = [
    ("provisioner: {nodeDeployment: {enabled: true}}", "roles.provisioner.nodeDeployment.enabled", "true", "NODE_NAME"),
    ("snapshotter: {nodeDeployment: {enabled: true}}", "roles.snapshotter.nodeDeployment.enabled", "true", "NODE_NAME"),
    ("registrar: {csiNodeInterval: 1m}", "roles.registrar.csiNodeInterval", "\"1m\"", "NODE_NAME"),
    ("provisioner: {capacity: {enabled: true}}", "roles.provisioner.capacity.ownerLevel", "1", "POD_NAME"),
];

#[tokio::test]
async fn what_the_environment_can_never_serve_ends_run_with_78_and_the_key_and_is_a_warning_of_check() {
    for (section, key, value, variable) in NEEDS {
        let (_folder, path) = file(&format!("roles:\n  {section}\n"));
        for set in [&[][..], &[(variable, "")]] {
            let ended = run(&["run", "--config", &path], set).await;
            assert_eq!((ended.code, ended.stdout.as_str()), (Some(78), ""), "{key}: {}", ended.stderr);
            let found = format!("found:   {value}, and the variable {variable} is not set");
            for says in [key, &found, &format!("only where the pod sets {variable} from its field ")] {
                assert!(ended.stderr.contains(says), "{says:?} in {}", ended.stderr);
            }
        }
        // A pipeline does not know where the daemon will run.
        let checked = run(&["check", "--config", &path], &[]).await;
        assert_eq!(checked.code, Some(0), "{key}: {}", checked.stderr);
        let warning = format!("warning: {key}: {value}, and the variable {variable} is not set here; ");
        assert!(checked.stderr.contains(&warning), "{warning:?} in {}", checked.stderr);
        let checked = run(&["check", "--config", &path, "--output", "json"], &[]).await;
        let document: Value = serde_json::from_str(&checked.stdout).unwrap();
        let is_told = |it: &Value| it.as_str().is_some_and(|it| it.starts_with(key));
        assert!(document["warnings"].as_array().unwrap().iter().any(is_told), "{document:#}");
        let known = run(&["check", "--config", &path], &[(variable, "here")]).await;
        assert!(!known.stderr.contains(variable), "{}", known.stderr);
    }
}

#[tokio::test]
async fn an_address_that_the_daemon_takes_from_itself_is_refused_by_run_and_by_check() {
    let (_folder, path) = file("diagnostics: {listen: 127.0.0.1:1}\nroles:\n  registrar: {healthListen: 0.0.0.0:1}\n");
    for verb in ["run", "check"] {
        let ended = run(&[verb, "--config", &path], &[]).await;
        assert_eq!(ended.code, Some(78), "{verb}: {}", ended.stderr);
        assert!(ended.stderr.contains(&format!("roles.registrar.healthListen  ({path}:3)")), "{}", ended.stderr);
        assert!(ended.stderr.contains("beside that of diagnostics.listen, which is 127.0.0.1:1"), "{}", ended.stderr);
    }
}

//! Checks the Dockerfile with the rules of `docker build --check`, for both platforms.

use std::process::Command;

use crate::chart::helm::root;
use crate::programs;

fn lint(file: &std::path::Path) -> (bool, String) {
    let mut command = Command::new(programs::find("dockerfile-lint"));
    let output = command.arg(file).args(["linux/amd64", "linux/arm64"]).output().unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

#[test]
fn buildkit_finds_nothing_in_the_dockerfile() {
    let (is_fine, told) = lint(&root().join("Dockerfile"));
    assert!(is_fine && told.is_empty(), "{told}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("Dockerfile");
    std::fs::write(&file, "FROM scratch as one\nMAINTAINER nobody\nCOPY --from=two /a /a\n").unwrap();
    let (is_fine, told) = lint(&file);
    assert!(!is_fine && told.contains("FromAsCasing") && told.contains("MaintainerDeprecated"), "{told}");
}

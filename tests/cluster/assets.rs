//! The user's own etcd, kube-apiserver and kubectl (`KUBEBUILDER_ASSETS`): what `build.sh` then builds, and what it
//! prints.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use crate::programs::find;
use crate::world::bounded;

/// The programs that such a folder never has, and that are built in any case.
const BUILT: [&str; 2] = ["kube-controller-manager", "kube-scheduler"];

/// Stands for the go command: whatever were built would end with it.
const NO_GO: &str = "#!/bin/sh\necho 'nothing is to be built here' >&2\nexit 1\n";

fn names(folder: &Path) -> BTreeSet<String> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn what_somebody_brings_is_not_built_and_comes_first() {
    let scratch = tempfile::tempdir().unwrap();
    let (bin, cache) = (scratch.path().join("bin"), scratch.path().join("cache"));
    let manager = find(BUILT[0]);
    let part = cache.join("cluster").join(manager.parent().unwrap().file_name().unwrap());
    for folder in [&bin, &part] {
        std::fs::create_dir_all(folder).unwrap();
    }
    for program in BUILT {
        symlink(find(program), part.join(program)).unwrap();
    }
    let go = bin.join("go");
    std::fs::write(&go, NO_GO).unwrap();
    std::fs::set_permissions(&go, PermissionsExt::from_mode(0o755)).unwrap();
    let server = find("kube-apiserver");
    let assets = server.parent().unwrap();

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/build.sh");
    let mut command = Command::new(script);
    command.arg("kubernetes").env_clear().stdin(Stdio::null()).kill_on_drop(true);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display())).env("CSI_CONTROL_PLANE_CACHE", &cache);
    let done = bounded("build.sh", command.env("KUBEBUILDER_ASSETS", assets).output()).await.unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    let path = String::from_utf8(done.stdout).unwrap();
    assert_eq!(path.trim_end(), format!("{}:{}", assets.display(), part.display()));
    assert_eq!(told, "");
    assert_eq!(names(&part), BUILT.into_iter().chain([".lock"]).map(str::to_owned).collect());

    // The same without assets: then the rest is wanted.
    let done = bounded("build.sh", command.env_remove("KUBEBUILDER_ASSETS").output()).await.unwrap();
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && told.contains("building etcd"), "{told}");
}

//! Images as OCI archives, made of files of this machine: there is no registry.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::program::THIS;
use crate::programs;

/// The daemon.
pub(crate) const DAEMON: &str = "csi-control-plane.invalid/csi-control-plane:1";

/// An earlier daemon.
pub(crate) const OLDER_DAEMON: &str = "csi-control-plane.invalid/csi-control-plane:older";

/// The registry of every image here: no node would find one there.
const REGISTRY: &str = "csi-control-plane.invalid";
/// A shell and its tools: what pods run, and what holds their network.
pub(crate) const BUSYBOX: &str = "csi-control-plane.invalid/busybox:1";
/// The sandbox's driver.
pub(crate) const DRIVER: &str = "csi-control-plane.invalid/demo-driver:1";

/// The daemon's image as the chart's values name it.
pub(crate) fn daemon() -> Value {
    json!({"registry": REGISTRY, "repository": "csi-control-plane", "tag": "1", "pullPolicy": "Never"})
}

/// The user of the Dockerfile.
const USER: &str = "65532:65532";
const PASSWD: &str = "root:x:0:0:root:/:/bin/sh\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n";

/// Where an image finds its programs.
const PATH: &str = "PATH=/bin";

/// Makes all images in a folder.
pub(crate) fn make(folder: &Path) -> Vec<PathBuf> {
    let busybox = root(folder, "busybox");
    put_busybox(&busybox);
    // As the Dockerfile has it, but for the libraries that a binary of `cargo test` needs: this machine's.
    let daemon = root(folder, "daemon");
    put_daemon(&daemon, Path::new(THIS));
    let driver = root(folder, "driver");
    put_busybox(&driver);
    put_daemon(&driver, Path::new(THIS));
    let driver_config = json!({"Env": [PATH], "Entrypoint": ["/csi-control-plane", "demo-driver"]});
    vec![
        archive(&[BUSYBOX], &busybox, &busybox_config()),
        archive(&[DAEMON], &daemon, &daemon_config()),
        archive(&[DRIVER], &driver, &driver_config),
    ]
}

/// Makes the image of the daemon of the commit that `tests/cluster/older` names.
pub(crate) fn make_older(folder: &Path) -> PathBuf {
    let daemon = root(folder, "older");
    put_daemon(&daemon, &programs::find("csi-control-plane-older"));
    archive(&[OLDER_DAEMON], &daemon, &daemon_config())
}

/// Makes an image of busybox and this static program, at the root, in a folder. It has all these names.
pub(crate) fn make_with_busybox(folder: &Path, program: Option<&str>, names: &[&str]) -> PathBuf {
    let root = root(folder, program.unwrap_or("shell"));
    put_busybox(&root);
    let Some(program) = program else { return archive(names, &root, &busybox_config()) };
    let at = format!("/{program}");
    fs::copy(programs::find(program), root.join(program)).unwrap();
    archive(names, &root, &json!({"Env": [PATH], "Entrypoint": [at], "Cmd": ["pause"]}))
}

/// Makes an image of busybox whose shell and `dd` are those of this machine: that `dd` knows more flags, and the shell of busybox would
/// not take it. It has all these names.
pub(crate) fn make_with_dd(folder: &Path, names: &[&str]) -> PathBuf {
    let root = root(folder, "dd");
    put_busybox(&root);
    put_tools_of_this_machine(&root, &["sh", "dd"]);
    archive(names, &root, &busybox_config())
}

/// Makes an image of a driver: its program, which is static, and the tools of this machine that it runs.
pub(crate) fn make_with_tools(folder: &Path, program: &Path, tools: &[&str], name: &str) -> PathBuf {
    let file = program.file_name().expect("a program").to_str().expect("a name in UTF-8");
    let root = root(folder, file);
    put_busybox(&root);
    put_tools_of_this_machine(&root, tools);
    fs::copy(program, root.join(file)).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    archive(&[name], &root, &json!({"Env": [PATH], "Entrypoint": [format!("/{file}")]}))
}

/// The root folder of an image.
fn root(folder: &Path, name: &str) -> PathBuf {
    let root = folder.join(name);
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/passwd"), PASSWD).unwrap();
    fs::create_dir(root.join("tmp")).unwrap();
    // For all users.
    fs::set_permissions(root.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    root
}

fn daemon_config() -> Value {
    json!({"User": USER, "Entrypoint": ["/csi-control-plane"], "Cmd": ["--help"], "ExposedPorts": {"8080/tcp": {}}})
}

fn busybox_config() -> Value {
    json!({"Env": [PATH], "Cmd": ["sleep", "1000000"]})
}

/// A static busybox, under the name of each of its tools.
fn put_busybox(root: &Path) {
    let program = programs::find("busybox");
    let bin = root.join("bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy(&program, bin.join("busybox")).unwrap();
    let tools = Command::new(program).arg("--list").output().unwrap();
    for tool in String::from_utf8(tools.stdout).unwrap().lines().filter(|tool| *tool != "busybox") {
        symlink("busybox", bin.join(tool)).unwrap();
    }
    // Scripts name `/usr/bin/env`.
    fs::create_dir(root.join("usr")).unwrap();
    symlink("../bin", root.join("usr/bin")).unwrap();
}

/// A daemon's binary, and the libraries that it names. The image's own names none.
fn put_daemon(root: &Path, program: &Path) {
    put_with_libraries(root, program, "csi-control-plane");
    // Without what debuggers read, it is a third as large. Who has no `strip` has a larger image.
    let _ = Command::new("strip").arg("--strip-debug").arg(root.join("csi-control-plane")).status();
}

/// Tools of this machine in the place of busybox's, which know fewer options.
fn put_tools_of_this_machine(root: &Path, tools: &[&str]) {
    for tool in tools {
        let folders = ["/bin", "/usr/bin", "/sbin", "/usr/sbin"].map(|folder| Path::new(folder).join(tool));
        let there = folders.iter().find(|path| path.exists()).unwrap_or_else(|| panic!("this machine has no {tool}"));
        let into = format!("bin/{tool}");
        let _ = fs::remove_file(root.join(&into));
        put_with_libraries(root, there, &into);
    }
}

/// A program of this machine under a path in the image, and the libraries that it names.
fn put_with_libraries(root: &Path, program: &Path, into: &str) {
    fs::copy(program, root.join(into)).unwrap();
    let told = Command::new("ldd").arg(program).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    for library in told.split_whitespace().filter(|word| word.starts_with('/')) {
        let into = root.join(&library[1..]);
        fs::create_dir_all(into.parent().unwrap()).unwrap();
        fs::copy(library, into).unwrap();
    }
}

/// Packs a folder as an image of these names: an archive beside the folder.
fn archive(names: &[&str], root: &Path, config: &Value) -> PathBuf {
    let layout = root.with_extension("image");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let layer = layout.join("layer");
    tar(root, &layer);
    let bytes = fs::read(&layer).unwrap();
    let (layer_digest, layer_size) = (digest(&bytes), bytes.len());
    fs::rename(layer, blobs.join(&layer_digest)).unwrap();
    let put = |value: &Value| {
        let bytes = value.to_string().into_bytes();
        let digest = digest(&bytes);
        fs::write(blobs.join(&digest), &bytes).unwrap();
        (digest, bytes.len())
    };
    let described = |kind: &str, digest: &str, size: usize| {
        let (media, digest) = (format!("application/vnd.oci.image.{kind}"), format!("sha256:{digest}"));
        json!({"mediaType": media, "digest": digest, "size": size})
    };
    let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    let (digest, size) = put(&json!({
        "architecture": architecture, "os": "linux", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
    }));
    let (digest, size) = put(&json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("config.v1+json", &digest, size),
        "layers": [described("layer.v1.tar", &layer_digest, layer_size)],
    }));
    let manifest_as = |name: &&str| {
        let mut manifest = described("manifest.v1+json", &digest, size);
        manifest["annotations"] = json!({"io.containerd.image.name": name});
        manifest
    };
    let manifests: Vec<Value> = names.iter().map(manifest_as).collect();
    let write = |name: &str, value: &Value| fs::write(layout.join(name), value.to_string()).unwrap();
    write("oci-layout", &json!({"imageLayoutVersion": "1.0.0"}));
    write("index.json", &json!({"schemaVersion": 2, "manifests": manifests}));
    let archive = root.with_extension("tar");
    tar(&layout, &archive);
    archive
}

/// As root's files, whoever's they are.
fn tar(folder: &Path, archive: &Path) {
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "-C"]).arg(folder).arg("-cf").arg(archive).arg(".");
    assert!(tar.status().unwrap().success(), "{tar:?}");
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

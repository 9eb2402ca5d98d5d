//! What the image holds, without an engine: its one file in an otherwise empty root, started as its own user. `just image`
//! builds that file as the Dockerfile does.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and so may its helpers; the binary is the suite's own input"
)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// What an image may weigh, before it is compressed.
const LIMIT: u64 = 25 << 20;
/// distroless/static: certificates, time zones, a passwd file.
const BASE: u64 = 3 << 20;
/// How long anything may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(30);

fn binary() -> PathBuf {
    std::env::var_os("IMAGE_BINARY").expect("IMAGE_BINARY is what `just image` has built: run that").into()
}

/// The last stage of the Dockerfile, as lines without what they continue.
fn last_stage() -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile")).unwrap();
    let text = text.replace("\\\n", " ");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#')).collect();
    let start = lines.iter().rposition(|line| line.starts_with("FROM ")).unwrap();
    lines[start..].iter().map(|&line| line.to_owned()).collect()
}

fn instruction(name: &str) -> String {
    let stage = last_stage();
    let found: Vec<&String> = stage.iter().filter(|line| line.starts_with(&format!("{name} "))).collect();
    assert_eq!(found.len(), 1, "{name} in the last stage: {found:?}");
    found[0][name.len()..].trim().to_owned()
}

/// An otherwise empty root with the binary where the Dockerfile puts it.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = TempDir::new().unwrap();
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let place = root.path().join(instruction("COPY").rsplit(' ').next().unwrap().trim_start_matches('/'));
        std::fs::copy(binary(), &place).unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self(root)
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    }

    /// The image's entry point with these arguments. As the image's user where we may change to it, else in a user
    /// namespace of our own.
    fn command(&self, arguments: &[&str]) -> Command {
        let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
        let mut command = Command::new(if is_root { "chroot" } else { "unshare" });
        if is_root {
            command.arg(format!("--userspec={}", instruction("USER")));
        } else {
            command.args(["--map-root-user", "chroot"]);
        }
        let entry: Vec<String> = serde_json::from_str(&instruction("ENTRYPOINT")).expect("no shell starts it");
        command.arg(self.0.path()).args(entry).args(arguments).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_image_is_one_small_static_file_for_a_user_that_is_not_root() {
    let size = binary().metadata().unwrap().len();
    println!("the binary: {size} bytes");
    assert!(size + BASE <= LIMIT, "{size}");
    let bytes = std::fs::read(binary()).unwrap();
    assert!(bytes.starts_with(b"\x7fELF"));
    assert!(!bytes.windows(8).any(|it| it == b"/lib/ld-" || it == b"/lib64/l"), "it wants a dynamic linker");
    let stage = last_stage();
    assert!(stage[0].starts_with("FROM gcr.io/distroless/static-"), "{}", stage[0]);
    assert!(!stage.iter().any(|line| line.starts_with("RUN ") || line.starts_with("ADD ")), "{stage:#?}");
    assert_eq!(instruction("USER"), "65532:65532");
    for label in ["title", "description", "version", "licenses", "revision", "source"] {
        assert!(instruction("LABEL").contains(&format!("org.opencontainers.image.{label}=")), "{label}");
    }
    let arguments = instruction("ARG");
    assert!(arguments.starts_with(&format!("VERSION={} ", env!("CARGO_PKG_VERSION"))), "{arguments}");
    for argument in ["REVISION", "SOURCE"] {
        assert!(arguments.contains(&format!("{argument}=\"\"")), "only who builds knows {argument}");
        assert!(instruction("LABEL").contains(&format!("\"${{{argument}}}\"")), "{argument} is on the image");
    }
}

#[test]
fn the_file_under_test_is_built_like_the_images() {
    let read = |name: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let flags = |text: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.contains("cargo auditable build ")).unwrap().to_owned();
        let words = line.split_once("cargo auditable build ").unwrap().1.split(' ').map(str::to_owned);
        // The Dockerfile names the target in a variable.
        words.take_while(|word| word != "--target" && word != "\\").collect()
    };
    assert_eq!(flags(&read("justfile")), flags(&read("Dockerfile")));
    assert!(flags(&read("Dockerfile")).contains(&"--no-default-features".to_owned()));
}

#[test]
fn the_binary_tells_which_crates_it_is_made_of() {
    let bytes = std::fs::read(binary()).unwrap();
    let name = b".dep-v0\0";
    assert!(bytes.windows(name.len()).any(|it| it == name), "built without cargo-auditable");
}

#[test]
fn it_starts_from_an_empty_root() {
    let root = Root::new();
    let version = root.run(&["--version"]);
    assert_eq!(text(&version.stdout), format!("csi-control-plane {}\n", env!("CARGO_PKG_VERSION")), "{version:?}");
    root.file("config.yaml", "roles:\n  attacher:\n  reconciler:\n");
    let check = root.run(&["check", "--config", "/config.yaml", "--driver-name", "demo.csi.example.com"]);
    assert!(check.status.success(), "{check:?}");
    assert!(text(&check.stdout).contains("lease external-attacher-leader-demo-csi-example-com"), "{check:?}");
    root.file("config.yaml", "roles:\n  attacher: {worker: 3}\n");
    assert_eq!(root.run(&["check", "--config", "/config.yaml"]).status.code(), Some(78));
    let sandbox = root.run(&["sandbox"]);
    assert!(text(&sandbox.stderr).contains("this build has no sandbox"), "{sandbox:?}");
}

/// Ends it when the test does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_runs_until_it_says_that_the_driver_cannot_be_reached() {
    use base64::Engine as _;
    use std::io::BufRead as _;
    let root = Root::new();
    // Its own authority, as the pod's service account has: the root holds no certificates of a system.
    let authority = rcgen::generate_simple_self_signed(Vec::new()).unwrap().cert.pem();
    let cluster = serde_json::json!({"server": "https://127.0.0.1:1",
        "certificate-authority-data": base64::engine::general_purpose::STANDARD.encode(authority)});
    let kubeconfig = serde_json::json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "c", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]});
    root.file("kubeconfig", &kubeconfig.to_string());
    root.file(
        "config.yaml",
        "kubernetes: {kubeconfig: /kubeconfig}\ndiagnostics: {listen: \"127.0.0.1:0\"}\nroles: {attacher: }\n",
    );
    let mut child = root.command(&["run", "--config", "/config.yaml"]).spawn().unwrap();
    let log = child.stderr.take().unwrap();
    let mut running = Running(child);
    let (lines, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::BufReader::new(log).lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    let mut told = Vec::new();
    while !told.last().is_some_and(|line: &String| line.contains("cannot connect to the driver's socket")) {
        let line = seen.recv_timeout(PATIENCE);
        told.push(line.unwrap_or_else(|error| panic!("it never said so ({error}): {told:#?}")));
    }
    assert!(running.0.try_wait().unwrap().is_none(), "it goes on trying: {told:#?}");
    println!("{}", told.last().unwrap());
}

//! The content of the image, without a container engine, for each platform: its one file in an otherwise empty root,
//! started as its own user. `just image` builds that file as the Dockerfile does. A file of another platform runs in
//! QEMU's user-space emulation, the only other file in its root.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use object::{Architecture, Object as _, ObjectKind, ObjectSection as _};
use tempfile::TempDir;

/// The largest size of an image, before it is compressed.
const LIMIT: u64 = 25 << 20;
/// distroless/static: certificates, time zones, a passwd file.
const BASE: u64 = 3 << 20;
/// How many bytes of functions a section of `.cargo/order.ld` has at least. It has fewer once many functions have other names.
const ORDERED: [(&str, u64); 3] = [(".text.node", 1_700_000), (".text.cluster", 1_900_000), (".text.work", 1_200_000)];
/// How long anything may take before it counts as never.
const PATIENCE: Duration = Duration::from_secs(30);

/// One that the image is built for.
struct Platform {
    /// As container engines call it, behind `linux/`.
    name: &'static str,
    /// As Rust and the kernel call it, and QEMU.
    machine: &'static str,
    architecture: Architecture,
    /// Position-independent where Rust's target can link that and be static at once: then the kernel chooses its place.
    kind: ObjectKind,
}

const PLATFORMS: [Platform; 2] = [
    Platform { name: "amd64", machine: "x86_64", architecture: Architecture::X86_64, kind: ObjectKind::Dynamic },
    Platform { name: "arm64", machine: "aarch64", architecture: Architecture::Aarch64, kind: ObjectKind::Executable },
];

/// The binary of one platform.
struct Binary {
    platform: &'static Platform,
    path: PathBuf,
}

/// Those to be tested: lines of `PLATFORM=PATH` in `IMAGE_BINARIES`.
fn binaries() -> Vec<Binary> {
    let lines = std::env::var("IMAGE_BINARIES").expect("IMAGE_BINARIES are what `just image` has built: run that");
    let binaries: Vec<Binary> = lines
        .lines()
        .map(|line| {
            let (name, path) = line.split_once('=').expect("PLATFORM=PATH");
            let platform = PLATFORMS.iter().find(|it| it.name == name).unwrap_or_else(|| panic!("no image for {name}"));
            Binary { platform, path: path.into() }
        })
        .collect();
    assert!(!binaries.is_empty(), "IMAGE_BINARIES is empty");
    binaries
}

impl Binary {
    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }

    /// What runs it where the machine is another: Debian's and Fedora's package qemu-user-static, Arch's of the same name.
    fn emulator(&self) -> Option<PathBuf> {
        if self.platform.machine == std::env::consts::ARCH {
            return None;
        }
        let name = format!("qemu-{}-static", self.platform.machine);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join(&name)).find(|it| it.is_file());
        Some(found.unwrap_or_else(|| panic!("{name} is not on PATH: install the package qemu-user-static")))
    }
}

/// The last testbed of the Dockerfile, as lines without what they continue.
fn last_stage() -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile")).unwrap();
    let text = text.replace("\\\n", " ");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#')).collect();
    let start = lines.iter().rposition(|line| line.starts_with("FROM ")).unwrap();
    lines[start..].iter().map(|&line| line.to_owned()).collect()
}

fn instruction(name: &str) -> String {
    let testbed = last_stage();
    let found: Vec<&String> = testbed.iter().filter(|line| line.starts_with(&format!("{name} "))).collect();
    assert_eq!(found.len(), 1, "{name} in the last testbed: {found:?}");
    found[0][name.len()..].trim().to_owned()
}

/// An otherwise empty root with the binary where the Dockerfile puts it, and with its emulator if it needs one.
struct Root {
    folder: TempDir,
    /// In the root, in front of the entry point.
    emulator: Option<&'static str>,
}

impl Root {
    fn new(binary: &Binary) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut root = Self { folder, emulator: None };
        root.program(&binary.path, instruction("COPY").rsplit(' ').next().unwrap());
        if let Some(emulator) = binary.emulator() {
            root.program(&emulator, "/emulator");
            root.emulator = Some("/emulator");
        }
        root
    }

    fn program(&self, from: &Path, to: &str) {
        let place = self.folder.path().join(to.trim_start_matches('/'));
        std::fs::copy(from, &place).unwrap();
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
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
        command.arg(self.folder.path()).args(self.emulator).args(entry).args(arguments);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
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
fn each_is_one_small_static_file_of_its_platform() {
    for binary in binaries() {
        let name = binary.platform.name;
        let bytes = binary.bytes();
        let size = u64::try_from(bytes.len()).unwrap();
        println!("{name}: {size} bytes");
        assert!(size + BASE <= LIMIT, "{name}: {size}");
        let file = object::File::parse(&*bytes).unwrap();
        assert_eq!(file.architecture(), binary.platform.architecture, "{name}");
        assert_eq!(file.kind(), binary.platform.kind, "{name}");
        assert!(file.section_by_name(".interp").is_none(), "{name}: it wants a dynamic linker");
        assert!(file.imports().unwrap().is_empty(), "{name}: it wants libraries");
        assert_eq!(file.symbols().count(), 0, "{name}: it is not stripped");
        assert!(!file.has_debug_symbols(), "{name}: it is not stripped");
    }
}

/// A node's sidecar takes twice the memory where what runs is spread over all of the binary.
#[test]
fn what_runs_lies_first_in_each() {
    for binary in binaries() {
        let bytes = binary.bytes();
        let file = object::File::parse(&*bytes).unwrap();
        let name = binary.platform.name;
        for (section, least) in ORDERED {
            let ordered = file.section_by_name(section).map_or(0, |it| it.size());
            println!("{name}: {ordered} bytes in {section}");
            assert!(ordered >= least, "{name}: {ordered} bytes in {section}: `just order` makes .cargo/order.ld anew");
        }
    }
}

#[test]
fn each_tells_which_crates_it_is_made_of() {
    for binary in binaries() {
        let bytes = binary.bytes();
        let file = object::File::parse(&*bytes).unwrap();
        let section = file.section_by_name(".dep-v0");
        let list = section.unwrap_or_else(|| panic!("{}: built without cargo-auditable", binary.platform.name));
        // JSON, compressed by zlib.
        assert!(list.data().unwrap().starts_with(&[0x78]) && list.size() > 1000, "{}", list.size());
    }
}

#[test]
fn the_image_is_that_file_for_a_user_that_is_not_root() {
    let testbed = last_stage();
    assert!(testbed[0].starts_with("FROM gcr.io/distroless/static-"), "{}", testbed[0]);
    assert!(!testbed.iter().any(|line| line.starts_with("RUN ") || line.starts_with("ADD ")), "{testbed:#?}");
    assert_eq!(instruction("USER"), "65532:65532");
    for label in ["title", "description", "version", "licenses", "revision", "source"] {
        assert!(instruction("LABEL").contains(&format!("org.opencontainers.image.{label}=")), "{label}");
    }
    let build = "CSI_CONTROL_PLANE_COMMIT=\"$REVISION\" cargo auditable build ";
    assert!(read("Dockerfile").contains(build), "the binary knows its commit");
    let arguments = instruction("ARG");
    assert!(arguments.starts_with(&format!("VERSION={} ", env!("CARGO_PKG_VERSION"))), "{arguments}");
    for argument in ["REVISION", "SOURCE"] {
        assert!(arguments.contains(&format!("{argument}=\"\"")), "only who builds knows {argument}");
        assert!(instruction("LABEL").contains(&format!("\"${{{argument}}}\"")), "{argument} is on the image");
    }
}

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

#[test]
fn the_files_under_test_are_built_like_the_images() {
    let (justfile, dockerfile) = (read("justfile"), read("Dockerfile"));
    let flags = |text: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.contains("cargo auditable build ")).unwrap().to_owned();
        let words = line.split_once("cargo auditable build ").unwrap().1.split(' ').map(str::to_owned);
        // The Dockerfile names the target in a variable.
        words.take_while(|word| word != "--target" && word != "\\").collect()
    };
    assert_eq!(flags(&justfile), flags(&dockerfile));
    assert!(flags(&dockerfile).contains(&"--no-default-features".to_owned()));
    // The target and the compiler.
    for platform in &PLATFORMS {
        let case = |text: &str| -> String {
            let line = text.lines().map(str::trim).find(|line| line.starts_with(&format!("{}) ", platform.name)));
            line.unwrap_or_else(|| panic!("no case for {}", platform.name)).to_owned()
        };
        assert_eq!(case(&justfile), case(&dockerfile));
        assert!(case(&dockerfile).contains(&format!("target={}-unknown-linux-musl ", platform.machine)));
    }
}

#[test]
fn each_starts_from_an_empty_root() {
    for binary in binaries() {
        println!("{}", binary.platform.name);
        let root = Root::new(&binary);
        let version = root.run(&["--version"]);
        let expected = format!("csi-control-plane {} (commit ", env!("CARGO_PKG_VERSION"));
        assert!(text(&version.stdout).starts_with(&expected), "{version:?}");
        root.file("config.yaml", "roles:\n  attacher:\n  reconciler:\n");
        let check = root.run(&["check", "--config", "/config.yaml", "--driver-name", "demo.csi.example.com"]);
        assert!(check.status.success(), "{check:?}");
        assert!(text(&check.stdout).contains("lease external-attacher-leader-demo-csi-example-com"), "{check:?}");
        root.file("config.yaml", "roles:\n  attacher: {worker: 3}\n");
        assert_eq!(root.run(&["check", "--config", "/config.yaml"]).status.code(), Some(78));
        let help = root.run(&["--help"]);
        for verb in ["completions", "man", "sandbox", "demo-driver"] {
            assert!(!text(&help.stdout).contains(&format!("\n  {verb} ")), "{verb}: {help:?}");
        }
        let sandbox = root.run(&["sandbox"]);
        assert!(text(&sandbox.stderr).contains("this build has no sandbox"), "{sandbox:?}");
    }
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
fn each_runs_until_it_says_that_the_driver_cannot_be_reached() {
    for binary in binaries() {
        println!("{}", binary.platform.name);
        run_without_a_driver(&Root::new(&binary));
    }
}

fn run_without_a_driver(root: &Root) {
    use base64::Engine as _;
    use std::io::BufRead as _;
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

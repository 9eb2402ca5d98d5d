//! Checks the table of `src/lib.rs`: the allowed imports between folders, that pure files have no I/O, that files do
//! not import each other in a cycle, and that every file is covered.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

mod circles;
mod roles;

/// What each folder may import of ours. A folder that is not listed here fails the test: decide where it belongs first.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("build", &[]),
    ("telemetry", &["process", "testing"]),
    ("queue", &["process", "telemetry"]),
    ("csi", &["process", "telemetry", "proto"]),
    ("cluster", &["process", "telemetry"]),
    // The types of objects, their names and the word for an unknown part of an id alone.
    (
        "translation",
        &[
            "cluster::names",
            "cluster::AwsDisk",
            "cluster::AzureDisk",
            "cluster::AzureFile",
            "cluster::CsiSource",
            "cluster::GceDisk",
            "cluster::InTree",
            "cluster::InTreeSource",
            "cluster::Meta",
            "cluster::NodeRequirement",
            "cluster::PackedMap",
            "cluster::PersistentVolume",
            "cluster::Reach",
            "cluster::SecretRef",
            "cluster::SmolStr",
            "cluster::StorageClass",
            "cluster::TopologyExpression",
            "cluster::TopologySelectorTerm",
            "cluster::UNSPECIFIED",
            "cluster::VolumeById",
            "cluster::VolumeSpec",
            "cluster::VsphereVolume",
        ],
    ),
    ("diagnostics", &["process", "telemetry"]),
    ("election", &["process", "telemetry", "cluster", "testing"]),
    ("journal", &["process", "telemetry", "cluster", "election"]),
    // Composition of the sections that the folders own, and nothing else of theirs.
    (
        "config",
        &[
            "process",
            "csi::CsiSection",
            "cluster::KubernetesSection",
            "diagnostics::DiagnosticsSection",
            "election::LeaderElectionSection",
            "telemetry::TelemetrySection",
        ],
    ),
    ("cli", &["config", "build", "process::duration"]),
    // `role.rs`, `wiring.rs` and the list itself.
    (
        "roles",
        &[
            "process",
            "telemetry",
            "queue",
            "csi",
            "cluster",
            "translation",
            "diagnostics",
            "election",
            "journal",
            "config",
            "proto",
            "testing",
        ],
    ),
    (
        "app",
        &["build", "process", "telemetry", "queue", "csi", "cluster", "diagnostics", "election", "config", "roles"],
    ),
    ("migrate", &["process", "config", "roles::sections", "roles::sidecars", "app::Plan", "app::UNKNOWN_DRIVER"]),
    (
        "sandbox",
        &[
            "process",
            "telemetry",
            "csi",
            "cluster",
            "diagnostics",
            "election",
            "config",
            "roles",
            "app",
            "proto",
            "cli",
        ],
    ),
];

/// Words that a pure file never contains.
const IMPURE: &[&str] = &[
    "tokio::",
    "async fn",
    ".await",
    "kube::Client",
    "tonic::transport",
    "Instant::now",
    "Timestamp::now",
    "SystemTime",
    "Rng",
    "rand::",
    "Clock",
    "std::fs",
    "std::env",
];

pub(super) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Our crates: what stands before the names of their files, and their folders. Which crate needs which, the compiler holds.
pub(super) fn crates() -> [(&'static str, PathBuf); 3] {
    let of = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("crates").join(name).join("src");
    [("", source()), ("base/", of("base")), ("sandbox/", of("sandbox"))]
}

/// Every file of our crates that is no test, with its name.
pub(super) fn files() -> Vec<(String, PathBuf)> {
    let of = |(before, folder): (&str, PathBuf)| {
        let paths = rust_files(&folder).into_iter().filter(|path| !is_test_file(path));
        paths
            .map(|path| (format!("{before}{}", path.strip_prefix(&folder).unwrap().display()), path))
            .collect::<Vec<_>>()
    };
    crates().into_iter().flat_map(of).collect()
}

pub(super) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The code of a file without comments and without its tests: the items behind `#[cfg(test)]`, wherever they stand.
pub(super) fn code(path: &Path) -> String {
    without_tests(&fs::read_to_string(path).unwrap())
}

fn without_tests(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let text = lines.join("\n") + "\n";
    let mut parts = text.split("#[cfg(test)]");
    let mut code = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find([';', '{']).unwrap_or(part.len());
        let end = if part[end..].starts_with('{') { end + block(&part[end..]) } else { (end + 1).min(part.len()) };
        code.push_str(&part[end..]);
    }
    code
}

/// The length of the block that begins here. rustfmt puts its closing brace where its first line begins.
fn block(text: &str) -> usize {
    text.find("\n}").or_else(|| text.find("\n    }")).map_or(text.len(), |at| at + 2)
}

pub(super) fn is_test_file(path: &Path) -> bool {
    let name = path.file_stem().unwrap().to_str().unwrap();
    let is_of_tests =
        |part: std::path::Component<'_>| ["tests", "testing"].iter().any(|name| part.as_os_str() == *name);
    name == "tests" || name.ends_with("_tests") || path.components().any(is_of_tests)
}

/// Every path of ours that a file names, from the crate's root: `crate::…` and `super::…`, groups taken apart.
fn imports(file: &Path, code: &str) -> BTreeSet<String> {
    let mut module: Vec<&str> = file.iter().map(|part| part.to_str().unwrap().trim_end_matches(".rs")).collect();
    module.retain(|part| *part != "mod");
    let mut found = BTreeSet::new();
    for (word, is_super) in [("crate::", false), ("super::", true)] {
        for (at, _) in code.match_indices(word) {
            if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut rest = &code[at + word.len()..];
            let mut base = if is_super { module[..module.len() - 1].to_vec() } else { Vec::new() };
            while let Some(above) = rest.strip_prefix("super::").filter(|_| is_super) {
                base.pop();
                rest = above;
            }
            // What stands at the crate's root is no folder of ours.
            if !is_super || !base.is_empty() || rest.starts_with(char::is_lowercase) {
                tree(&base.join("::"), rest, &mut found);
            }
        }
    }
    found
}

/// Takes a use tree apart and returns where it ends.
fn tree(base: &str, text: &str, found: &mut BTreeSet<String>) -> usize {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(text.len());
    let path =
        [base, text[..end].trim_matches(':')].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>();
    let path = path.join("::");
    if !text[..end].ends_with("::") && end > 0 || !text[end..].starts_with('{') {
        found.insert(path);
        return end;
    }
    let mut at = end + 1;
    loop {
        at += text[at..].find(|c: char| !c.is_whitespace() && c != ',').unwrap_or(text.len() - at);
        if at >= text.len() || text[at..].starts_with('}') {
            return (at + 1).min(text.len());
        }
        let length = tree(&path, &text[at..], found);
        at += length.max(1);
    }
}

#[test]
fn the_reader_of_imports_sees_every_way_to_write_one() {
    let of = |file: &str, code: &str| imports(Path::new(file), &without_tests(code)).into_iter().collect::<Vec<_>>();
    assert_eq!(of("queue/state.rs", "use crate::csi::Client;"), ["csi::Client"]);
    assert_eq!(
        of("queue/state.rs", "use crate::{csi::{Client, error::{Fate, RpcError}}, app};"),
        ["app", "csi::Client", "csi::error::Fate", "csi::error::RpcError"]
    );
    assert_eq!(of("queue/state.rs", "use super::super::csi::Client;"), ["csi::Client"]);
    assert_eq!(of("queue/mod.rs", "use super::csi::Client;"), ["csi::Client"]);
    assert_eq!(of("roles/reconciler/serve.rs", "use super::super::attacher::Desk;"), ["roles::attacher::Desk"]);
    assert_eq!(of("queue/mod.rs", "fn f() { crate::app::serve() }"), ["app::serve"]);
    let behind = "#[cfg(test)]\nmod tests;\nmod watch;\nuse crate::app::Plan;\n#[cfg(test)]\nmod more {\n    use crate::cli;\n}\n";
    assert_eq!(of("queue/mod.rs", behind), ["app::Plan"], "code behind a test module counts, the tests do not");
}

#[test]
fn folders_import_only_what_the_table_allows() {
    let table: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    let mut faults = Vec::new();
    for path in rust_files(&source()).iter().filter(|path| !is_test_file(path)) {
        let relative = path.strip_prefix(source()).unwrap();
        let name = relative.to_str().unwrap();
        if matches!(name, "lib.rs" | "main.rs") {
            continue;
        }
        let folder = relative.components().next().unwrap().as_os_str().to_str().unwrap().trim_end_matches(".rs");
        let Some(allowed) = table.get(folder) else {
            faults.push(format!("{name}: folder `{folder}` is not in the table"));
            continue;
        };
        for import in imports(relative, &code(path)) {
            let within = |prefix: &str| import == prefix || import.starts_with(&format!("{prefix}::"));
            if !within(folder) && !allowed.iter().any(|prefix| within(prefix)) {
                faults.push(format!("{name} imports crate::{import}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The clients that write, as the daemon gives them to a role. Only the kit's scope names one, to tie it to the term; what it makes of
/// them is private to the kit.
const WRITERS: &[&str] = &["role.api", "context.api", "driver.client"];

#[test]
fn a_role_reaches_a_client_that_writes_only_through_its_terms_scope() {
    let mut faults = Vec::new();
    let is_asked = |path: &&PathBuf| !is_test_file(path) && !path.ends_with("kit/scope.rs");
    for path in rust_files(&source().join("roles")).iter().filter(is_asked) {
        faults.extend(unfenced(&code(path)).into_iter().map(|line| format!("{}: {line}", path.display())));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for line in [
        "    role.api.patch(&name, &patch).await",
        "    let api = role.api.clone();",
        "    cx.driver.client.controller_publish_volume(request).await",
        "    let client = &driver.client;",
        "    let RoleContext { api, driver, .. } = cx;",
    ] {
        assert_eq!(unfenced(line).len(), 1, "{line}");
    }
    assert!(unfenced("    let scope = TermScope::new(role, &term);").is_empty());
}

fn unfenced(code: &str) -> Vec<String> {
    let is_unpacked = |line: &str| line.contains("RoleContext {") && line.contains('=');
    let is_fault = |line: &&str| is_unpacked(line) || WRITERS.iter().any(|writer| line.contains(writer));
    code.lines().filter(is_fault).map(|line| line.trim().to_owned()).collect()
}

/// Whether a file says of itself, in its header, that its decisions depend on their arguments alone.
fn is_pure(text: &str) -> bool {
    let header = text.lines().take_while(|line| line.starts_with("//!")).collect::<Vec<_>>().join(" ");
    ["Pure.", "Pure:", "Pure,"].iter().any(|word| header.contains(word))
}

#[test]
fn pure_files_do_no_io_and_know_no_time() {
    let mut faults = Vec::new();
    for (name, path) in files() {
        if !is_pure(&fs::read_to_string(&path).unwrap()) {
            // What a role decides is pure, wherever it stands.
            if name.ends_with("decide.rs") || name.ends_with("policy.rs") {
                faults.push(format!("{name} does not call itself pure"));
            }
            continue;
        }
        // A moment is a value; only asking for the present one is not pure.
        let code = code(&path).replace("tokio::time::Instant", "");
        faults.extend(IMPURE.iter().filter(|word| code.contains(**word)).map(|word| format!("{name} names `{word}`")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(is_pure("//! What to do. Pure: total.\n") && !is_pure("//! What to do.\n\n// Pure.\n"));
}

#[test]
fn every_file_is_reached_by_a_mod() {
    let mut faults = Vec::new();
    for path in crates().iter().flat_map(|(_, folder)| rust_files(folder)) {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let folder = path.parent().unwrap();
        if matches!(stem, "lib" | "main") {
            continue;
        }
        let (name, parents) = if stem == "mod" {
            let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
            let above = folder.parent().unwrap();
            (name.clone(), vec![above.join("mod.rs"), above.join("lib.rs")])
        } else {
            (stem.to_owned(), vec![folder.join("mod.rs"), folder.join("lib.rs"), folder.with_extension("rs")])
        };
        let by_path = format!("\"{}\"", path.file_name().unwrap().to_str().unwrap());
        let is_reached = parents
            .iter()
            .filter_map(|parent| fs::read_to_string(parent).ok())
            .chain(rust_files(folder).iter().map(|sibling| fs::read_to_string(sibling).unwrap()))
            .any(|text| {
                text.lines().map(str::trim).any(|line| {
                    line.ends_with(&format!("mod {name};")) || (line.starts_with("#[path") && line.contains(&by_path))
                })
            });
        if !is_reached {
            faults.push(path.display().to_string());
        }
    }
    assert!(faults.is_empty(), "not reached by any mod:\n{}", faults.join("\n"));
}

#[test]
fn what_a_real_control_plane_does_not_play_of_the_scenarios_is_what_cannot_be_played_there() {
    let justfile = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("justfile")).unwrap();
    let elsewhere = justfile.split_once("\nelsewhere := \"").unwrap().1.split_once("\"\n").unwrap().0;
    let left_out: Vec<&str> =
        elsewhere.split("--skip ").skip(1).filter_map(|it| it.split_whitespace().next()).collect();
    // The others in the executable have recipes of their own.
    let main = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/main.rs")).unwrap();
    let others = main.lines().filter_map(|line| line.strip_prefix("//! | [`")?.split_once('`'));
    let others = others.map(|(name, _)| format!("{name}::")).filter(|name| name != "cluster::");
    let expected: Vec<String> = ["process::", "sandbox_only::"].map(str::to_owned).into_iter().chain(others).collect();
    assert_eq!(left_out, expected);
}

#[test]
fn no_file_runs_away() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let long: Vec<String> = ["src", "crates", "tests", "benches"]
        .iter()
        .flat_map(|folder| rust_files(&root.join(folder)))
        .map(|path| (fs::read_to_string(&path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > 450)
        .map(|(lines, path)| format!("{} has {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn the_protocol_is_the_published_one_byte_for_byte() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let digest = Sha256::digest(fs::read(root.join("csi.proto")).unwrap());
    let hex = digest.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    assert!(readme.contains(&hex), "proto/csi.proto was edited: its checksum is {hex}");
}

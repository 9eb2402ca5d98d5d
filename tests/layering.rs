//! Who may import whom, which files are pure, and that every file is reached: the table of `src/lib.rs`, held by a test.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// What each folder may import of ours. A folder that is not listed here fails the test: decide where it belongs first.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("process", &[]),
    ("proto", &["csi::redact"]),
    ("telemetry", &["process"]),
    ("queue", &["process", "telemetry"]),
    ("csi", &["process", "telemetry", "proto"]),
    ("cluster", &["process", "telemetry"]),
    ("diagnostics", &["process", "telemetry"]),
    ("election", &["process", "telemetry", "cluster"]),
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
    ("cli", &["config"]),
    // `role.rs`, `wiring.rs` and the list itself.
    ("roles", &["process", "telemetry", "queue", "csi", "cluster", "diagnostics", "election", "config", "proto"]),
    ("app", &["process", "telemetry", "queue", "csi", "cluster", "diagnostics", "election", "config", "roles"]),
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

/// Files whose decisions depend on their arguments alone.
const PURE: &[&str] = &[
    "cluster/error.rs",
    "cluster/fanout.rs",
    "cluster/names.rs",
    "cluster/objects.rs",
    "cluster/patch.rs",
    "cluster/rbac.rs",
    "csi/capabilities.rs",
    "csi/error.rs",
    "csi/redact.rs",
    "csi/volume.rs",
    "diagnostics/health.rs",
    "diagnostics/report.rs",
    "election/decide.rs",
    "election/record.rs",
    "queue/backoff.rs",
    "queue/cause.rs",
    "queue/state.rs",
    "roles/attacher/attachment.rs",
    "roles/attacher/decide.rs",
    "roles/attacher/drift.rs",
    "roles/attacher/interest.rs",
    "roles/attacher/migration.rs",
    "roles/reconciler/listing.rs",
];

/// What a pure file never names.
const IMPURE: &[&str] = &[
    "tokio::",
    "async fn",
    ".await",
    "kube::Client",
    "tonic::transport",
    "Instant::now",
    "Timestamp::now",
    "SystemTime",
    "Entropy",
    "rand::",
    "Clock",
    "std::fs",
    "std::env",
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
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

/// The code of a file without comments and without what follows `#[cfg(test)]`.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]").next().unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test_file(path: &Path) -> bool {
    let name = path.file_stem().unwrap().to_str().unwrap();
    name == "tests" || name.ends_with("_tests") || path.components().any(|part| part.as_os_str() == "tests")
}

/// Every `crate::…` path that a file names, with `use crate::{a, b}` taken apart.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let group = &group[..group.find('}').unwrap_or(group.len())];
            found.extend(group.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()));
            continue;
        }
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches(':');
        match rest[end..].strip_prefix('{') {
            Some(group) => {
                let group = &group[..group.find('}').unwrap_or(group.len())];
                found.extend(
                    group
                        .split(',')
                        .map(str::trim)
                        .filter(|part| !part.is_empty())
                        .map(|part| format!("{path}::{part}")),
                );
            }
            None => {
                found.insert(path.to_owned());
            }
        }
    }
    found
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
        for import in imports(&code(path)) {
            let within = |prefix: &str| import == prefix || import.starts_with(&format!("{prefix}::"));
            if !within(folder) && !allowed.iter().any(|prefix| within(prefix)) {
                faults.push(format!("{name} imports crate::{import}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_role_imports_another() {
    let mut faults = Vec::new();
    for path in rust_files(&source().join("roles")).iter().filter(|path| !is_test_file(path)) {
        let relative = path.strip_prefix(source().join("roles")).unwrap();
        let Some(own) = relative.parent().and_then(|parent| parent.iter().next()) else { continue };
        let own = own.to_str().unwrap();
        for import in imports(&code(path)) {
            if let Some(rest) = import.strip_prefix("roles::") {
                let other = rest.split("::").next().unwrap();
                if other != own && source().join("roles").join(other).is_dir() {
                    faults.push(format!("{} imports crate::{import}", relative.display()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn pure_files_do_no_io_and_know_no_time() {
    let mut faults = Vec::new();
    for name in PURE {
        let code = code(&source().join(name));
        faults.extend(IMPURE.iter().filter(|word| code.contains(**word)).map(|word| format!("{name} names `{word}`")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_file_is_reached_by_a_mod() {
    let mut faults = Vec::new();
    for path in rust_files(&source()) {
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
fn no_file_runs_away() {
    let long: Vec<String> = rust_files(&source())
        .into_iter()
        .map(|path| (fs::read_to_string(&path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > 600)
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

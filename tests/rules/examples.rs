//! Every YAML file that we ship loads and validates, the reference is the defaults, and the tables in `docs/` are true.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use csi_control_plane::cli::{self, Command};
use csi_control_plane::config::{Config, File, Loaded, PREFIX, Rejected, RoleSection, Sources, flags, load, sidecar};
use csi_control_plane::process::Section;
use csi_control_plane::roles::attacher::AttacherSection;
use csi_control_plane::roles::provisioner::ProvisionerSection;
use csi_control_plane::roles::reconciler::ReconcilerSection;
use csi_control_plane::roles::{ROLES, Registration, sections, sidecars};

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn loaded(text: &str) -> Result<Loaded, Rejected> {
    let file = File { name: "config.yaml".to_owned(), text: text.to_owned() };
    load(&Sources { file: Some(file), ..Sources::default() }, &sections())
}

fn shipped() -> Vec<PathBuf> {
    let files = std::fs::read_dir(root().join("config")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect()
}

#[test]
fn every_shipped_file_is_valid_and_enables_a_role() {
    let files = shipped();
    assert!(files.len() >= 2, "{files:?}");
    for path in files {
        let sources = Sources { file: Some(File::read(&path).unwrap()), ..Sources::default() };
        let loaded = load(&sources, &sections()).unwrap_or_else(|rejected| panic!("{}: {rejected}", path.display()));
        assert_eq!(loaded.warnings, Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn no_shipped_file_may_hold_an_unknown_key() {
    for path in shipped() {
        let text = format!("{}\nsurprise: 1\n", std::fs::read_to_string(&path).unwrap());
        let rejected = loaded(&text).unwrap_err();
        assert_eq!(rejected.faults.len(), 1, "{rejected}");
        assert_eq!(rejected.faults[0].key, "surprise");
    }
}

#[test]
fn the_reference_is_the_defaults() {
    let reference = loaded(&text("config/reference.yaml")).unwrap();
    assert_eq!(reference.config, Config::default());
    assert_eq!(
        reference.roles.keys().copied().collect::<Vec<_>>(),
        sections().iter().map(|s| s.name).collect::<Vec<_>>()
    );
    assert_eq!(RoleSection::read::<AttacherSection>(&reference.roles["attacher"]).unwrap(), AttacherSection::default());
    assert_eq!(
        RoleSection::read::<ProvisionerSection>(&reference.roles["provisioner"]).unwrap(),
        ProvisionerSection::default()
    );
    assert_eq!(
        RoleSection::read::<ReconcilerSection>(&reference.roles["reconciler"]).unwrap(),
        ReconcilerSection::default()
    );
}

#[test]
fn the_minimal_file_is_the_reference_in_short() {
    let effective = |file: &str| loaded(&text(file)).unwrap().effective();
    let (mut reference, minimal) = (effective("config/reference.yaml"), effective("config/minimal.yaml"));
    // It is a driver's controller's: the roles of a node, and those for all drivers, have a daemon of their own. Few drivers tell the
    // health of their volumes.
    let is_elsewhere =
        |role: &&Registration| role.cluster().is_none_or(|role| !role.needs_driver) || role.name == "healthMonitor";
    for role in ROLES.iter().filter(is_elsewhere) {
        reference["roles"].as_object_mut().unwrap().remove(role.name);
    }
    assert_eq!(minimal, reference);
}

#[test]
fn the_reference_holds_every_key_with_a_comment_above_it() {
    let text = text("config/reference.yaml");
    let tree: Value = serde_yaml::from_str(&text).unwrap();
    let keys = keys(&Config::schema(&sections()));
    assert!(keys.len() >= 30, "{keys:?}");
    for key in keys {
        let mut pointer = String::new();
        key.split('.').for_each(|segment| pointer.extend(["/", segment]));
        assert!(tree.pointer(&pointer).is_some(), "config/reference.yaml lacks {key}");
    }
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for pair in lines.windows(2) {
        let is_leaf = pair[1].split_once(": ").is_some() && !pair[1].starts_with('#');
        assert!(!is_leaf || pair[0].starts_with('#'), "no comment above `{}`", pair[1]);
    }
}

#[test]
fn the_defaults_are_without_a_fault() {
    fn check<T: Section>() {
        let mut faults = csi_control_plane::process::Faults::below("");
        T::default().check(&mut faults);
        assert!(faults.is_empty(), "{faults:?}");
    }
    check::<AttacherSection>();
    check::<ProvisionerSection>();
    check::<ReconcilerSection>();
    assert!(load(&Sources::default(), &sections()).is_ok());
}

#[test]
fn zero_workers_are_refused_in_the_file_r33() {
    let rejected = loaded("roles:\n  attacher:\n    workers: 0\n    detachWorkers: 0\n").unwrap_err();
    let found: Vec<_> = rejected.faults.iter().map(|f| (f.key.as_str(), f.origin.as_deref())).collect();
    let expected =
        [("roles.attacher.detachWorkers", Some("config.yaml:4")), ("roles.attacher.workers", Some("config.yaml:3"))];
    assert_eq!(found, expected, "{rejected}");
}

/// The paths of all keys that hold a value and no further keys of ours.
fn keys(schema: &Value) -> Vec<String> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties
        .flat_map(|(name, child)| match keys(child) {
            below if below.is_empty() => vec![name.clone()],
            below => below.into_iter().map(|key| format!("{name}.{key}")).collect(),
        })
        .collect()
}

#[test]
fn every_key_can_be_set_by_a_variable() {
    for key in keys(&Config::schema(&sections())) {
        let mut variable = PREFIX.to_owned();
        for c in key.chars() {
            match c {
                '.' => variable.push_str("__"),
                c if c.is_uppercase() => variable.extend(['_', c]),
                c => variable.push(c.to_ascii_uppercase()),
            }
        }
        let sources = Sources { environment: [(variable.clone(), "[]".to_owned())].into(), ..Sources::default() };
        // A list fits no key but as a text: either it was taken, or it was refused under the key's own name.
        let refused = load(&sources, &sections()).map_or_else(|rejected| rejected.faults, |_| Vec::new());
        assert!(
            refused.iter().all(|fault| fault.key == key && fault.found != "an unknown key"),
            "{variable}: {refused:?}"
        );
    }
}

#[test]
fn the_table_of_flags_is_true_and_complete() {
    let document = text("docs/flags.md");
    let rows: Vec<&str> = document.lines().filter(|line| line.starts_with("| `--")).collect();
    assert_eq!(rows, sidecar::rows(&sidecars::hosted()).collect::<Vec<_>>(), "docs/flags.md must hold these rows");
    let keys = keys(&Config::schema(&sections()));
    // Blocks of roles that this build does not host yet; their keys are told, and `migrate` leaves their sidecars alone.
    let awaited = ["roles.provisioner.capacity.", "roles.provisioner."];
    let hosted = |block: &str| keys.iter().any(|known| known.starts_with(block));
    for flag in sidecar::all(&sidecars::hosted()) {
        match flag.now {
            flags::Now::Key(key) => {
                let is_awaited = awaited.iter().any(|block| key.starts_with(block) && !hosted(block));
                assert!(is_awaited || keys.iter().any(|known| known == key), "--{}: no key {key}", flag.name);
            }
            flags::Now::Verb(verb) => {
                let line = vec!["csi-control-plane".into(), verb.into()];
                assert_eq!(cli::parse(line, &BTreeMap::new(), &sidecars::hosted()), Ok(Command::Version));
            }
            flags::Now::Gone => assert!(!flag.note.is_empty(), "--{}: no reason", flag.name),
        }
    }
}

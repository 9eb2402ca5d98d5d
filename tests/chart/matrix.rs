//! The sets of values for all chart tests: the chart's `ci` folder, which other tools for charts read, too.

use std::path::PathBuf;

use csi_control_plane::roles::ROLES;
use serde_json::Value;

use crate::chart::helm::{self, Rendered};

/// How the name of each file in that folder ends, by convention of `ct`, the tool that lints charts.
const END: &str = "-values.yaml";

/// One set.
pub(crate) struct Case {
    /// The file's name, without its end.
    pub(crate) name: String,
    /// Its path.
    pub(crate) path: PathBuf,
    /// Its values.
    pub(crate) values: Value,
    /// Whether this daemon has the roles that it enables.
    pub(crate) is_known: bool,
}

impl Case {
    /// Its rendering. The chart may be ahead of the daemon: then its schema, which is the daemon's, is left out.
    pub(crate) fn rendered(&self) -> Rendered {
        let more: &[&str] = if self.is_known { &[] } else { &["--skip-schema-validation"] };
        helm::render(&helm::chart(), Some(&self.path), more).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// A value of it.
    pub(crate) fn at(&self, pointer: &str) -> &Value {
        self.values.pointer(pointer).unwrap_or(&Value::Null)
    }
}

/// Every set, those of roles that this daemon does not have too.
pub(crate) fn all() -> Vec<Case> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(helm::chart().join("ci")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let file = path.file_name().unwrap().to_str().unwrap();
            let name = file.strip_suffix(END).unwrap_or_else(|| panic!("{file} does not end in {END}")).to_owned();
            let values: Value = serde_yaml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            let roles = values["config"]["roles"].as_object().unwrap();
            let is_known = roles.keys().all(|role| ROLES.iter().any(|known| known.name == role));
            Case { name, path, values, is_known }
        })
        .collect()
}

/// Every set whose roles this daemon has.
pub(crate) fn known() -> Vec<Case> {
    let known: Vec<Case> = all().into_iter().filter(|case| case.is_known).collect();
    let is_covered = |role: &str| known.iter().any(|case| !case.at(&format!("/config/roles/{role}")).is_null());
    for role in ROLES.iter().filter(|role| role.cluster().is_some()) {
        assert!(is_covered(role.name), "no set of values enables {}", role.name);
    }
    known
}

/// The set of this name.
pub(crate) fn case(name: &str) -> Case {
    all().into_iter().find(|case| case.name == name).unwrap_or_else(|| panic!("ci/{name}{END}"))
}

//! Checks of keys that the sections of several roles have. Pure.

use std::time::Duration;

use crate::process::{Faults, duration};

/// How many keys are worked on at once.
pub fn workers(key: &str, workers: usize, faults: &mut Faults) {
    if workers == 0 {
        faults.add(key, 0, "at least 1");
    }
}

/// The same for a part of the work. `None`: as many as for the rest.
pub fn own_workers(key: &str, workers: Option<usize>, faults: &mut Faults) {
    if workers == Some(0) {
        faults.add(key, 0, "at least 1, or null");
    }
}

/// A pause between two looks at everything. Zero: never.
pub fn pause(key: &str, pause: Duration, faults: &mut Faults) {
    if !pause.is_zero() && pause < Duration::from_secs(1) {
        faults.add(key, duration::format(pause), "at least 1s, or 0s for never");
    }
}

/// The file system of volumes that name none. Empty: the driver decides.
pub fn default_fs_type(name: &str, faults: &mut Faults) {
    if name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        faults.add("defaultFsType", format_args!("{name:?}"), "a file system's name, such as ext4, or \"\"");
    }
}

/// How many of a uid's 32 digits a name contains. `None`: the whole uid.
pub fn uid_digits(key: &str, digits: Option<usize>, faults: &mut Faults) {
    if let Some(digits) = digits.filter(|digits| !(1..=32).contains(digits)) {
        faults.add(key, digits, "1 to 32, or null for the whole uid with its dashes");
    }
}

/// The namespaces that deletion secrets may be in. Empty: any.
pub fn secret_namespaces(namespaces: &[String], faults: &mut Faults) {
    if namespaces.iter().any(String::is_empty) {
        faults.add("deletionSecretNamespaces", "\"\"", "names of namespaces");
    }
}

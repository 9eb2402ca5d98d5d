//! The report: what was found, and the result for each flag, for people and for programs. Pure.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// The report of one migration.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The workload that was changed.
    pub workload: Option<String>,
    /// The driver's name, and where it was found.
    pub driver: Option<Driver>,
    /// The sidecars, in the order of the manifest.
    pub containers: Vec<Container>,
    /// The other containers of the workload, which stay.
    pub beside: Vec<Beside>,
    /// What else should be known.
    pub notes: Vec<String>,
    /// What to do with the files, in order, and how to go back.
    pub next: Vec<String>,
    /// What must be fixed or decided first.
    pub faults: Vec<Fault>,
}

/// The driver's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Driver {
    /// As it answers `GetPluginInfo`.
    pub name: String,
    /// Where that was found.
    pub from: String,
}

/// One sidecar.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// The workload it is in.
    pub workload: String,
    /// Its name.
    pub name: String,
    /// Upstream's name of the sidecar.
    pub sidecar: &'static str,
    /// By what it was recognised.
    pub recognised_by: &'static str,
    /// The roles that replace it; none: it stays.
    pub roles: Vec<&'static str>,
    /// Why it stays.
    pub kept: Option<String>,
    /// Its flags, in their order.
    pub flags: Vec<FlagLine>,
    /// Flags that were not given, and whose default is another one here.
    pub defaults: Vec<String>,
}

/// A container that is no sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Beside {
    /// The workload it is in.
    pub workload: String,
    /// Its name.
    pub name: String,
    /// Why it stays.
    pub why: String,
}

/// What became of a flag.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlagLine {
    /// As written.
    pub given: String,
    /// What became of it.
    pub fate: FlagFate,
    /// What differs, or why it was dropped.
    pub note: String,
}

/// What became of a flag.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FlagFate {
    /// It is a key.
    Mapped {
        /// The key.
        key: String,
        /// Its value, before the sidecars were agreed with each other.
        value: Value,
    },
    /// It has no counterpart.
    Dropped,
    /// It is unknown, or its value cannot be used.
    Undecided,
}

/// Something that must be put right first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fault {
    /// Which container, which flag.
    pub place: String,
    /// What stands there.
    pub found: String,
    /// What would do.
    pub expected: String,
    /// Whether `--lenient` goes on without it.
    pub can_be_left_out: bool,
}

impl Report {
    /// Whether nothing is in the way.
    pub fn is_clean(&self, lenient: bool) -> bool {
        self.faults.iter().all(|fault| lenient && fault.can_be_left_out)
    }

    /// The faults for a terminal; empty if there are none.
    pub fn faults_text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        if self.faults.is_empty() {
            return text;
        }
        let count = self.faults.len();
        // Writing into a String cannot fail.
        let _ = writeln!(text, "the workload has {count} fault{}", if count == 1 { "" } else { "s" });
        for Fault { place, found, expected, can_be_left_out } in &self.faults {
            let lenient = if *can_be_left_out { "; --lenient goes on without" } else { "" };
            let _ = write!(text, "\n  {place}\n    found:    {found}\n    expected: {expected}{lenient}\n");
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(workload) = &self.workload {
            write!(f, "{workload}")?;
            if let Some(Driver { name, from }) = &self.driver {
                write!(f, ", driver {name} ({from})")?;
            }
            writeln!(f)?;
        }
        for container in &self.containers {
            write!(f, "\n{container}")?;
        }
        if !self.beside.is_empty() {
            writeln!(f)?;
        }
        for Beside { workload, name, why } in &self.beside {
            writeln!(f, "container {name} of {workload}: stays: {why}")?;
        }
        if !self.notes.is_empty() {
            writeln!(f, "\nnotes")?;
        }
        for note in &self.notes {
            writeln!(f, "  - {note}")?;
        }
        if !self.next.is_empty() {
            writeln!(f, "\nnext")?;
        }
        for step in &self.next {
            writeln!(f, "  {step}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, name, sidecar, recognised_by, .. } = self;
        write!(f, "container {name} of {workload}: {sidecar} by {recognised_by}, ")?;
        match &self.kept {
            None => writeln!(f, "replaced by {}", self.roles.join(" and "))?,
            Some(why) => writeln!(f, "kept: {why}")?,
        }
        for FlagLine { given, fate, note } in &self.flags {
            let note = if note.is_empty() { String::new() } else { format!("  ({note})") };
            match fate {
                FlagFate::Mapped { key, value } => writeln!(f, "  mapped     {given:<44} {key}: {value}{note}")?,
                FlagFate::Dropped => writeln!(f, "  dropped    {given:<44} {}", note.trim_start())?,
                FlagFate::Undecided => writeln!(f, "  undecided  {given:<44} {}", note.trim_start())?,
            }
        }
        for default in &self.defaults {
            writeln!(f, "  default    {default}")?;
        }
        Ok(())
    }
}

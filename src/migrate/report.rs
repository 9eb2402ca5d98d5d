//! The report: what was found, and the result for each flag, for people and for programs. Pure.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

pub use super::notes::{Note, Notes, Weight};

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
    /// What else should be known, each with what it asks of the reader.
    pub notes: Notes,
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
    /// The name by which `--lenient` leaves it out; none: it cannot be left out.
    pub leave_out: Option<String>,
}

impl Fault {
    /// One that cannot be left out.
    pub(super) fn new(place: impl Into<String>, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self { place: place.into(), found: found.into(), expected: expected.into(), leave_out: None }
    }

    /// The same, and `--lenient=name` leaves it out.
    pub(super) fn left_out_as(self, name: impl Into<String>) -> Self {
        Self { leave_out: Some(name.into()), ..self }
    }
}

/// Which of the undecided is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Lenient {
    /// Nothing: it is a fault.
    #[default]
    Nothing,
    /// Everything that can be.
    Everything,
    /// What has these names.
    Named(Vec<String>),
}

impl Lenient {
    /// Whether a fault is left out.
    pub fn leaves_out(&self, fault: &Fault) -> bool {
        let Some(name) = &fault.leave_out else { return false };
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::Named(names) => names.iter().any(|named| named.trim_start_matches('-') == name),
        }
    }
}

/// Names that the user leaves out, and nothing undecided has them: a mistyped one would leave nothing out.
pub(super) fn unheeded(lenient: &Lenient, faults: &[Fault]) -> Option<Fault> {
    let Lenient::Named(names) = lenient else { return None };
    let known: Vec<&str> = faults.iter().filter_map(|fault| fault.leave_out.as_deref()).collect();
    let unknown: Vec<&str> =
        names.iter().map(|name| name.trim_start_matches('-')).filter(|name| !known.contains(name)).collect();
    let found = || format!("{}, and nothing that is undecided has this name", listed(&unknown, "and"));
    let expected = if known.is_empty() { "no --lenient".to_owned() } else { format!("names of {}", known.join(", ")) };
    (!unknown.is_empty()).then(|| Fault::new("--lenient", found(), expected))
}

/// `a`, `b` and `c`.
pub(super) fn listed<T: AsRef<str>>(names: &[T], word: &str) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.as_slice() {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} {word} {last}", first.join(", ")),
    }
}

impl Report {
    /// Whether nothing is in the way.
    pub fn is_clean(&self, lenient: &Lenient) -> bool {
        self.faults.iter().all(|fault| lenient.leaves_out(fault))
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
        for Fault { place, found, expected, leave_out } in &self.faults {
            let lenient = leave_out.as_ref().map(|name| format!("; --lenient={name} goes on without"));
            let lenient = lenient.unwrap_or_default();
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
        for weight in Weight::ALL {
            let mut notes = self.notes.of(weight).peekable();
            if notes.peek().is_some() {
                writeln!(f, "\n{}", weight.title())?;
            }
            for note in notes {
                writeln!(f, "  - {note}")?;
            }
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
            None => writeln!(f, "replaced by {}", listed(&self.roles, "and"))?,
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

//! The defaults of the Go sidecars, by version, where they are not the daemon's. A workload that does not set such a
//! flag depends on the default of its sidecar's version: `migrate` writes this default into the configuration.
//!
//! Each row cites where upstream says so. A test compares `docs/compatibility.md` with the rows.

use serde_json::{Value, json};

/// A flag whose default was once another one than the daemon's, or still is.
#[derive(Debug)]
pub struct OldDefault {
    /// As a command line sets it: `--worker-threads`, or `--feature-gates=Topology`.
    pub flag: &'static str,
    /// What the flag is in the daemon.
    pub kept: Kept,
    /// The defaults, the oldest first. The first row is of version 0.0.
    pub values: &'static [Since],
}

/// What an old default is in the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// This key keeps it.
    Key(&'static str),
    /// The daemon always works in the newest way. The text says what differs.
    Never(&'static str),
}

/// A default and the first version that has it.
#[derive(Debug)]
pub struct Since {
    /// The first version.
    pub version: Version,
    /// The default.
    pub value: DefaultValue,
    /// Where upstream says so.
    pub source: &'static str,
}

/// The major and the minor number of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

/// The value of a default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// Of a switch or a feature gate.
    Switch(bool),
    /// Of a number.
    Count(u32),
    /// Of a text.
    Text(&'static str),
}

/// A table of defaults, a row a flag: the flag, what keeps it, and its defaults, each with its first version and its source.
macro_rules! defaults {
    ($($flag:literal, $kept:ident($what:literal), $([$major:literal, $minor:literal, $kind:ident($value:literal), $source:literal]),+;)+) => {
        &[$($crate::config::defaults::OldDefault {
            flag: $flag,
            kept: $crate::config::defaults::Kept::$kept($what),
            values: &[$($crate::config::defaults::Since {
                version: $crate::config::defaults::Version($major, $minor),
                value: $crate::config::defaults::DefaultValue::$kind($value),
                source: $source,
            }),+],
        }),+]
    };
}
pub(crate) use defaults;

impl DefaultValue {
    /// As the configuration has it.
    pub fn json(self) -> Value {
        match self {
            Self::Switch(switch) => json!(switch),
            Self::Count(number) => json!(number),
            Self::Text(text) => json!(text),
        }
    }
}

impl std::fmt::Display for DefaultValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Switch(true) => f.write_str("on"),
            Self::Switch(false) => f.write_str("off"),
            Self::Count(number) => write!(f, "{number}"),
            Self::Text("") => f.write_str("empty"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "v{}.{}", self.0, self.1)
    }
}

impl OldDefault {
    /// The row that a version has.
    pub fn at(&self, version: Version) -> Option<&'static Since> {
        self.values.iter().rev().find(|since| since.version <= version)
    }

    /// The first version after this one that has another default.
    pub fn changed_after(&self, version: Version) -> Option<Version> {
        self.values.iter().map(|since| since.version).find(|next| *next > version)
    }

    /// All rows in words: `off before v5.0, then on`.
    pub fn history(&self) -> String {
        let next = |at: usize| self.values.get(at + 1).map(|next| format!(" before {}", next.version));
        let told = |(at, since): (usize, &Since)| format!("{}{}", since.value, next(at).unwrap_or_default());
        self.values.iter().enumerate().map(told).collect::<Vec<_>>().join(", then ")
    }
}

/// The tables as Markdown rows, for the sidecar of that name.
pub fn rows<'a>(sidecar: &'a str, defaults: &'a [OldDefault]) -> impl Iterator<Item = String> + 'a {
    defaults.iter().map(move |old| {
        let kept = match old.kept {
            Kept::Key(key) => format!("`{key}`"),
            Kept::Never(what) => format!("always on: {what}"),
        };
        let mut sources: Vec<&str> = old.values.iter().map(|since| since.source).collect();
        sources.dedup();
        format!("| {sidecar} | `{}` | {} | {kept} | {} |", old.flag, old.history(), sources.join("; "))
    })
}

#[cfg(test)]
mod tests {
    use super::DefaultValue::Switch;
    use super::*;

    const GATE: &[OldDefault] = defaults! {
        "--feature-gates=G", Key("k"), [0, 0, Switch(false), "old notes"], [5, 0, Switch(true), "new notes"];
    };

    #[test]
    fn the_row_of_a_version_is_the_last_that_began_before_it() {
        for (version, value) in [
            (Version(0, 4), false),
            (Version(4, 99), false),
            (Version(5, 0), true),
            (Version(5, 1), true),
            (Version(6, 0), true),
        ] {
            assert_eq!(GATE[0].at(version).map(|since| since.value), Some(Switch(value)), "{version}");
        }
        assert_eq!(GATE[0].changed_after(Version(4, 0)), Some(Version(5, 0)));
        assert_eq!(GATE[0].changed_after(Version(5, 0)), None);
    }

    #[test]
    fn a_row_of_the_table_has_history_key_and_sources() {
        let row = rows("s", GATE).next().unwrap();
        assert_eq!(row, "| s | `--feature-gates=G` | off before v5.0, then on | `k` | old notes; new notes |");
    }
}

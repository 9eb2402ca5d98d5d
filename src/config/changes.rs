//! Flags and feature gates that came and went with the versions of a Go sidecar. Pure.
//!
//! A sidecar ends at its start if its command line has a flag or a gate that its version does not know. So such a command
//! line says that another version runs than the image's tag names, or that the container never ran.

use std::fmt;

use super::defaults::Version;

/// What a version brought, and what it no longer knows.
#[derive(Debug)]
pub struct Change {
    /// The first version of it.
    pub version: Version,
    /// Flags, without dashes, and feature gates that it knows and the version before did not.
    pub came: &'static [&'static str],
    /// Flags and feature gates that it no longer knows.
    pub went: &'static [&'static str],
}

/// A table of changes, a row a version: its major and minor number, what came and what went.
macro_rules! changes {
    ($($major:literal, $minor:literal, $came:expr, $went:expr;)+) => {
        &[$($crate::config::changes::Change {
            version: $crate::config::defaults::Version($major, $minor),
            came: $came,
            went: $went,
        }),+]
    };
}
pub(crate) use changes;

/// The flags that pace the leader election, which came together.
pub const LEASE_TIMES: &[&str] =
    &["leader-election-lease-duration", "leader-election-renew-deadline", "leader-election-retry-period"];

/// The flags of klog, which all sidecars had until one of their versions.
pub const KLOG: &[&str] = &[
    "logtostderr",
    "alsologtostderr",
    "stderrthreshold",
    "log_dir",
    "log_file",
    "log_file_max_size",
    "log_backtrace_at",
    "add_dir_header",
    "skip_headers",
    "skip_log_headers",
    "one_output",
];

/// Gates of the API server's library, which each sidecar takes and ignores, until it is built with the library of Kubernetes 1.37: that has
/// them no more.
pub const GATES_UNTIL_1_36: &[&str] = &[
    "APIServerTracing",
    "AnonymousAuthConfigurableEndpoints",
    "AuthorizeWithSelectors",
    "BtreeWatchCache",
    "ResilientWatchCacheInitialization",
    "RetryGenerateName",
    "StreamingCollectionEncodingToJSON",
    "StreamingCollectionEncodingToProtobuf",
];

/// Why a version does not know a flag or a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// A later version brought it.
    CameWith(Version),
    /// This version, or an earlier one, took it away; with version 0.0, none ever had it.
    WentWith(Version),
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WentWith(Version(0, 0)) => f.write_str("no version has it"),
            Self::CameWith(Version(major, minor)) => write!(f, "it came with {major}.{minor}"),
            Self::WentWith(Version(major, minor)) => write!(f, "it went with {major}.{minor}"),
        }
    }
}

/// Why no version from the earliest to the latest knows a name; `None`: one of them does. A name that no row has was always known.
pub fn absence(changes: &[Change], name: &str, [earliest, latest]: [Version; 2]) -> Option<Absence> {
    let rows = changes.iter().flat_map(|change| {
        let went = change.went.contains(&name).then_some((change.version, false));
        went.into_iter().chain(change.came.contains(&name).then_some((change.version, true)))
    });
    let mut rows = rows.peekable();
    // Before its first row a name is the opposite of what that row makes of it.
    let mut absence = rows.peek().filter(|(_, came)| *came).map(|(version, _)| Absence::CameWith(*version));
    for (version, came) in rows {
        if version <= earliest {
            absence = (!came).then_some(Absence::WentWith(version));
        } else if came && version <= latest {
            return None;
        }
    }
    absence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_from_its_row_to_the_row_that_takes_it_away() {
        let changes: &[Change] = changes! {
            2, 0, &["young"], &["old"];
            3, 1, &["again", "short"], &[];
            4, 0, &[], &["again", "short"];
            5, 0, &["again"], &[];
        };
        let at = |major, minor| [Version(major, minor), Version(major, minor)];
        let (came, went) = (Absence::CameWith, Absence::WentWith);
        for (name, versions, expected) in [
            ("always", at(1, 0), None),
            ("young", at(1, 9), Some(came(Version(2, 0)))),
            ("young", at(2, 0), None),
            ("young", at(9, 0), None),
            ("old", at(1, 9), None),
            ("old", at(2, 0), Some(went(Version(2, 0)))),
            ("again", at(3, 0), Some(came(Version(3, 1)))),
            ("again", at(3, 1), None),
            ("again", at(4, 5), Some(went(Version(4, 0)))),
            ("again", at(5, 0), None),
            ("short", at(4, 0), Some(went(Version(4, 0)))),
            ("short", at(3, 9), None),
            // A tag such as v3 may be each of its minor versions.
            ("short", [Version(3, 0), Version(3, 9)], None),
            ("again", [Version(4, 0), Version(5, 9)], None),
        ] {
            assert_eq!(absence(changes, name, versions), expected, "{name} {versions:?}");
        }
        assert_eq!(came(Version(3, 5)).to_string(), "it came with 3.5");
        assert_eq!(went(Version(2, 0)).to_string(), "it went with 2.0");
        assert_eq!(went(Version(0, 0)).to_string(), "no version has it");
    }
}

//! The description of a Go sidecar by the role that replaces it: how `migrate` recognises it, and which keys replace
//! its flags.

use std::time::Duration;

use serde_json::Value;

use super::changes::Change;
use super::defaults::{OldDefault, Version};
use super::flags::{Flag, Now, SHARED};
use super::suggest;

/// A Go sidecar that roles replace.
#[derive(Debug)]
pub struct Sidecar {
    /// Its name, as upstream spells it.
    pub name: &'static str,
    /// How a container of it is recognised.
    pub signs: Signs,
    /// The roles that do its work, first the one whose table this is.
    pub roles: &'static [&'static str],
    /// Its own flags, and flags that have another meaning for it.
    pub flags: &'static [Flag],
    /// Its feature gates that keys replace. All others have no effect.
    pub gates: &'static [Gate],
    /// Its feature gates that cannot be switched off here.
    pub locked_gates: &'static [LockedGate],
    /// Its deadline of one RPC where `--timeout` is not given. Zero: it has none.
    pub timeout: Duration,
    /// Its flags whose default is or was another one than here, by version.
    pub defaults: &'static [OldDefault],
    /// Its flags and feature gates that came and went with a version.
    pub changes: &'static [Change],
    /// The first version whose leader election uses the Lease of the role. Older versions hold another object, so
    /// that they and the daemon could lead at the same time.
    pub lease_since: Version,
    /// The key for one sidecar per node, without leader election.
    pub per_node: Option<&'static str>,
    /// Why nothing has to be done when its container ends, where manifests run a command then; `None`: nothing is known.
    pub at_end: Option<&'static str>,
    /// Where it answers probes, besides its metrics.
    pub probes: &'static [ProbePort],
    /// Its flags that have no effect if another flag stands on the command line, each with that flag.
    pub overruled: &'static [(&'static str, &'static str)],
    /// What a user does around the way back to it.
    pub returns: &'static [Return],
    /// Advice for users who migrate this workload.
    pub advice: fn(&Moved<'_>) -> Option<Advice>,
}

/// A port on which a sidecar answers probes, and its role here.
#[derive(Debug)]
pub struct ProbePort {
    /// The key of its address.
    pub key: &'static str,
    /// The port where no flag names one; `None`: there is none then.
    pub usual: Option<u16>,
    /// Whether the diagnostics may have the same address.
    pub is_shared: bool,
}

/// How a container is recognised.
#[derive(Debug)]
pub struct Signs {
    /// The words by which its image and its binary are called.
    pub words: &'static [&'static str],
    /// Flags that no other program has.
    pub flags: &'static [&'static str],
}

/// A feature gate that is a key here.
#[derive(Debug)]
pub struct Gate {
    /// The gate.
    pub name: &'static str,
    /// The key, on where the gate is on.
    pub key: &'static str,
}

/// A feature gate that is always on here, though somebody may have switched it off there.
#[derive(Debug)]
pub struct LockedGate {
    /// The gate.
    pub name: &'static str,
    /// Why what it switches off is not done here, or why nobody misses it.
    pub why: &'static str,
    /// Whether somebody who has switched it off must decide: otherwise nothing depends on it.
    pub matters: bool,
}

/// The gate of every sidecar with a Lease that makes it release the Lease when it ends.
pub const RELEASED_AT_EXIT: LockedGate = LockedGate {
    name: "ReleaseLeaderElectionOnExit",
    why: "always on here: the daemon ends its calls and then releases its Lease, so that the next one leads at once, where it would have \
          waited for the end of the Lease; no two lead at the same time either way",
    matters: false,
};

/// A workload with the sidecar, as it will be.
#[derive(Debug)]
pub struct Moved<'a> {
    /// The workload's kind.
    pub kind: &'a str,
    /// The section of the sidecar's first role, complete.
    pub section: &'a Value,
    /// The liveness probes of the containers that stay.
    pub probes: &'a [HttpProbe],
}

/// A liveness probe over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpProbe {
    /// The container.
    pub container: String,
    /// The port that it asks.
    pub port: u16,
    /// How long the kubelet waits for the answer.
    pub timeout: Duration,
}

/// Advice for users who migrate a workload.
#[derive(Debug)]
pub struct Advice {
    /// For the report.
    pub note: String,
    /// Objects of the driver that must be deleted after going back, so that the sidecar creates them again.
    pub made_anew: Option<MadeAnew>,
}

/// What a user does around the way back to a sidecar. In the commands `{place}` is the option of the namespace, and `{driver}` the
/// driver's name.
#[derive(Debug)]
pub struct Return {
    /// The first version that does not need it; `None`: every version needs it.
    pub before: Option<Version>,
    /// A key of the role without which nothing needs it; `None`: it does not depend on one.
    pub unless_off: Option<&'static str>,
    /// Why: the comment above the commands.
    pub why: &'static str,
    /// A command before the old pods come back.
    pub first: Option<&'static str>,
    /// A command after they have come back.
    pub last: Option<&'static str>,
}

/// Objects that a sidecar creates again if they are missing.
#[derive(Debug)]
pub struct MadeAnew {
    /// What `kubectl delete` calls them.
    pub resource: &'static str,
    /// The label with the driver's name.
    pub label: &'static str,
}

/// A Go sidecar that is known, and stays beside the daemon.
#[derive(Debug)]
pub struct Unhosted {
    /// Its name, as upstream spells it.
    pub name: &'static str,
    /// How a container of it is recognised.
    pub signs: Signs,
    /// Why it stays.
    pub why: &'static str,
    /// Its flag that lists what it does, if it has one.
    pub does: Option<&'static str>,
}

impl Sidecar {
    /// The fields that most tables leave as they are: no deadline, gates, older defaults, probes or notes, and never another leader
    /// election than by the role's Lease.
    pub const PLAIN: Self = Self {
        name: "",
        signs: Signs { words: &[], flags: &[] },
        roles: &[],
        flags: &[],
        gates: &[],
        locked_gates: &[],
        timeout: Duration::ZERO,
        defaults: &[],
        changes: &[],
        lease_since: Version(0, 0),
        per_node: None,
        at_end: None,
        probes: &[],
        overruled: &[],
        returns: &[],
        advice: |_| None,
    };

    /// Its flag of that name, without dashes.
    pub fn flag(&self, name: &str) -> Option<&'static Flag> {
        self.flags.iter().chain(SHARED).find(|flag| flag.name == name)
    }

    /// Its flag that is spelled most like this unknown one, if one is near enough.
    pub fn nearest_flag(&self, name: &str) -> Option<&'static str> {
        suggest::nearest(name, self.flags.iter().chain(SHARED).map(|flag| flag.name))
    }

    /// The flag, of those that are given, because of which this one has no effect.
    pub fn overruling(&self, name: &str, is_given: impl Fn(&str) -> bool) -> Option<&'static str> {
        self.overruled.iter().find(|(flag, by)| *flag == name && is_given(by)).map(|(_, by)| *by)
    }

    /// Why a feature gate cannot be switched off here, if it cannot.
    pub fn locked_gate(&self, name: &str) -> Option<&'static LockedGate> {
        self.locked_gates.iter().find(|gate| gate.name == name)
    }

    /// The key that a feature gate is here.
    pub fn gate(&self, name: &str) -> Option<&'static str> {
        self.gates.iter().find(|gate| gate.name == name).map(|gate| gate.key)
    }
}

/// The flags that an argument such as `-csi-address=/x` or `--timeout` sets, by the sidecar that has them.
pub fn find(sidecars: &[&'static Sidecar], argument: &str) -> Vec<(&'static str, &'static Flag)> {
    let Some(name) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else { return Vec::new() };
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    sidecars.iter().filter_map(|sidecar| Some((sidecar.name, sidecar.flag(name)?))).collect()
}

/// Every flag: the shared ones, then each sidecar's own.
pub fn all(sidecars: &[&'static Sidecar]) -> impl Iterator<Item = &'static Flag> {
    SHARED.iter().chain(sidecars.iter().flat_map(|sidecar| sidecar.flags))
}

/// The tables as Markdown rows.
pub fn rows(sidecars: &[&'static Sidecar]) -> impl Iterator<Item = String> {
    all(sidecars).map(|Flag { name, now, note, .. }| {
        let now = match now {
            Now::Key(key) => format!("`{key}`"),
            Now::Verb(verb) => format!("command `{verb}`"),
            Now::Gone => "—".to_owned(),
        };
        format!("| `--{name}` | {now} | {note} |")
    })
}

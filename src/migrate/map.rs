//! One sidecar's flags as settings of the configuration. Pure. The sidecar's table has the key of each flag; this file
//! converts the flag's value to the key's value.

use serde_json::{Value, json};

use crate::config::flags::{Flag, Now, Takes, level_of};
use crate::config::sidecar::{LockedGate, Sidecar};
use crate::process::duration;

use super::expand::Variables;
use super::flags::{Given, parse};
use super::listen;
use super::report::{Fault, FlagFate, FlagLine};

/// A key and the value that a flag gives it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    /// The key.
    pub(super) key: String,
    /// Its value.
    pub(super) value: Value,
    /// The container.
    pub(super) container: String,
    /// The flag as written.
    pub(super) given: String,
}

/// The setting of a key that counts: the last.
pub(super) fn last<'a>(settings: &'a [Setting], key: &str) -> Option<&'a Setting> {
    settings.iter().rev().find(|setting| setting.key == key)
}

/// What a sidecar's flags amount to.
#[derive(Debug, Clone, Default)]
pub(super) struct Read {
    pub(super) lines: Vec<FlagLine>,
    pub(super) settings: Vec<Setting>,
    pub(super) faults: Vec<Fault>,
}

/// Where a flag stands, for messages and settings.
struct Reader<'a> {
    place: String,
    container: &'a str,
    known: &'a dyn Fn(&str) -> bool,
    read: Read,
}

/// What a value amounts to.
enum Meaning {
    Key(Value),
    /// The default, or nothing: it need not be said.
    Nothing(String),
    Wrong(String),
}

/// The socket of a sidecar whose command line names none: the daemon's default is another path.
pub(super) fn default_endpoint(container: &str) -> Setting {
    let given = "--csi-address=/run/csi/socket, the default".to_owned();
    Setting { key: "csi.endpoint".to_owned(), value: json!("/run/csi/socket"), container: container.to_owned(), given }
}

/// Reads the flags of a container. `known` tells whether this build has a key.
pub(super) fn read(
    place: &str,
    container: &str,
    sidecar: &Sidecar,
    arguments: &[String],
    variables: &Variables,
    known: &dyn Fn(&str) -> bool,
) -> Read {
    let mut reader = Reader { place: place.to_owned(), container, known, read: Read::default() };
    let mut expanded = Vec::new();
    for argument in arguments {
        match variables.expand(argument) {
            Ok(text) => expanded.push(text),
            Err(missing) => {
                let found = format!("$({}), which is {}", missing.name, missing.from);
                reader.undecided(argument, &found, "a value that is written in the manifest", &found);
            }
        }
    }
    let (given, odd) = parse(&expanded, |name| sidecar.flag(name).map(|flag| flag.takes));
    for odd in odd {
        reader.undecided(&odd.found, &format!("{:?}", odd.found), odd.expected, odd.expected);
    }
    let overruling = |one: &Given| sidecar.overruling(&one.name, |name| given.iter().any(|other| other.name == name));
    for (at, one) in given.iter().enumerate() {
        let again = given[at + 1..].iter().any(|later| later.name == one.name) && one.name != "feature-gates";
        match sidecar.flag(&one.name) {
            None => {
                let expected = "a flag that csi-control-plane knows; decide whether you need it";
                let meant = sidecar.nearest_flag(&one.name).map(|flag| format!("did you mean --{flag}?"));
                let (found, note) = match &meant {
                    Some(meant) => (format!("an unknown flag: {meant}"), format!("unknown, {meant}")),
                    None => ("an unknown flag".to_owned(), "unknown, decide".to_owned()),
                };
                reader.undecided(&one.written, &found, expected, &note);
            }
            Some(_) if again => {
                reader.dropped(&one.written, "given again later, and the last one counts");
            }
            Some(_) if overruling(one).is_some() => {
                let by = overruling(one).unwrap_or_default();
                reader.dropped(&one.written, &format!("without effect there: --{by} overrules it"));
            }
            Some(_) if one.name == "feature-gates" => reader.gates(sidecar, one),
            Some(flag) => reader.flag(flag, one),
        }
    }
    reader.read
}

impl Reader<'_> {
    fn line(&mut self, given: &str, fate: FlagFate, note: &str) {
        self.read.lines.push(FlagLine { given: given.to_owned(), fate, note: note.to_owned() });
    }

    fn dropped(&mut self, given: &str, why: &str) {
        self.line(given, FlagFate::Dropped, why);
    }

    /// Something that is undecided: it can be left out by the name of its flag, or of its gate.
    fn undecided(&mut self, given: &str, found: &str, expected: &str, note: &str) {
        self.line(given, FlagFate::Undecided, note);
        let name = given.split(['=', ' ']).next().unwrap_or(given);
        let place = format!("{}, {name}", self.place);
        let gate = given.split_once("feature-gates=").map(|(_, gate)| gate.split('=').next().unwrap_or(gate));
        let fault = Fault::new(place, found, expected);
        self.read.faults.push(fault.left_out_as(gate.unwrap_or(name).trim_start_matches('-')));
    }

    fn flag(&mut self, flag: &Flag, given: &Given) {
        match flag.now {
            // Dropped, it would lead to another cluster.
            Now::Gone if flag.name == "master" && !given.value.is_empty() => {
                let expected = "a kubeconfig that names this server (`--kubeconfig`): without one the daemon serves the cluster of its pod";
                self.undecided(&given.written, &given.written, expected, expected);
            }
            Now::Gone => self.dropped(&given.written, flag.note),
            Now::Verb(verb) => {
                self.dropped(&given.written, &format!("it is the command `{verb}`, not an option of `run`"));
            }
            Now::Key(key) => self.meant(key, flag.difference(), given, meaning(flag, &given.value)),
        }
    }

    fn meant(&mut self, key: &str, note: &str, given: &Given, meaning: Meaning) {
        match meaning {
            Meaning::Nothing(why) => self.dropped(&given.written, &why),
            Meaning::Wrong(expected) => {
                let (found, note) = (format!("{:?}", given.value), format!("expected {expected}"));
                self.undecided(&given.written, &found, &expected, &note);
            }
            Meaning::Key(value) if !(self.known)(key) => {
                // Off is what a build without the key does anyway.
                if value == json!(false) || value == json!(0) {
                    self.dropped(&given.written, &format!("this version has no {key}, and the flag is off"));
                } else {
                    let found = format!("{}, for which this version has no key ({key})", given.written);
                    let expected = "a version that has it, or a decision to do without";
                    self.undecided(&given.written, &found, expected, &format!("this version has no {key}"));
                }
            }
            Meaning::Key(value) => {
                let fate = FlagFate::Mapped { key: key.to_owned(), value: value.clone() };
                self.line(&given.written, fate, note);
                let (container, given) = (self.container.to_owned(), given.written.clone());
                self.read.settings.push(Setting { key: key.to_owned(), value, container, given });
            }
        }
    }

    fn gates(&mut self, sidecar: &Sidecar, given: &Given) {
        for gate in given.value.split(',').map(str::trim).filter(|gate| !gate.is_empty()) {
            let one = Given { written: format!("--feature-gates={gate}"), value: gate.to_owned(), ..given.clone() };
            let Some((name, value)) = gate.split_once('=') else {
                self.meant("", "", &one, Meaning::Wrong("Gate=true or Gate=false".to_owned()));
                continue;
            };
            if let (Some(locked), Meaning::Key(value)) = (sidecar.locked_gate(name.trim()), switch(value)) {
                self.locked(locked, &one, &value);
                continue;
            }
            match sidecar.gate(name.trim()) {
                Some(key) => self.meant(key, "", &one, switch(value)),
                None if matches!(name.trim(), "AllAlpha" | "AllBeta") => {
                    let expected = "the gates that you want, by their names";
                    let found = "a switch for gates that depend on the version";
                    self.undecided(&one.written, found, expected, expected);
                }
                None if !is_known_gate(sidecar, name.trim()) => {
                    let note =
                        format!("no gate of {}: it has no effect there, or the sidecar does not start", sidecar.name);
                    self.dropped(&one.written, &note);
                }
                None => {
                    self.dropped(&one.written, &format!("the daemon has nothing that {} switches", name.trim()));
                }
            }
        }
    }

    /// A gate that is always on here.
    fn locked(&mut self, gate: &LockedGate, given: &Given, value: &Value) {
        let is_off = *value == json!(false);
        if is_off && gate.matters {
            let expected = format!("{}=true, or the gate left out: {}", gate.name, gate.why);
            self.undecided(&given.written, &given.written, &expected, gate.why);
        } else {
            self.dropped(&given.written, if is_off { gate.why } else { "always on here" });
        }
    }
}

/// Whether any version of the sidecar has the gate.
fn is_known_gate(sidecar: &Sidecar, name: &str) -> bool {
    sidecar.locked_gate(name).is_some() || sidecar.changes.iter().any(|change| change.came.contains(&name))
}

/// The key's value. What a flag's kind does not say is told by its name.
fn meaning(flag: &Flag, value: &str) -> Meaning {
    // A field of the pod: only some values can be said without it.
    let is_field = value.contains('{') && value.contains('}');
    match flag.name {
        "leader-election-namespace" if matches!(value, "" | "{metadata.namespace}") => {
            return Meaning::Nothing("the pod's own namespace, which is the default".to_owned());
        }
        "http-endpoint" | "metrics-address" => return listening(value),
        // Of csi-provisioner 2.0.
        "capacity-controller-deployment-mode" => {
            return match value {
                "central" => Meaning::Key(json!(true)),
                "" => Meaning::Nothing("empty: off, which is the default".to_owned()),
                _ => Meaning::Wrong("central".to_owned()),
            };
        }
        "logging-format" if !matches!(value, "text" | "json") => return Meaning::Wrong("text or json".to_owned()),
        "kubeconfig" if value.is_empty() => return Meaning::Nothing("empty: the pod's account, as here".to_owned()),
        "leader-election-labels" => return labels(value),
        "vmodule" => {
            return Meaning::Nothing(
                "it names files of the Go program; here `telemetry.logs.level` names modules".to_owned(),
            );
        }
        "automaxprocs" => return Meaning::Nothing("always so: `runtime.workerThreads` is null by default".to_owned()),
        _ if is_field => return Meaning::Wrong("a value that is known before the pod exists".to_owned()),
        _ => {}
    }
    match flag.takes {
        Takes::Switch => switch(value),
        Takes::Time if value.trim_start_matches(['+', '-']) == "0" => Meaning::Key(json!("0s")),
        Takes::Time => match duration::parse(value) {
            Some(time) => Meaning::Key(json!(duration::format(time))),
            None => Meaning::Wrong(duration::ALLOWED.to_owned()),
        },
        Takes::Text if flag.name == "csi-address" && value.is_empty() => {
            Meaning::Wrong("a unix socket's path".to_owned())
        }
        Takes::Text => Meaning::Key(json!(value)),
        Takes::Count => match (value.parse::<i64>(), flag.name) {
            (Err(_), _) => Meaning::Wrong("a whole number".to_owned()),
            (Ok(level), "v") => Meaning::Key(json!(level_of(level))),
            // Nothing, or less: no limit, in every sidecar that has it.
            (Ok(..=0), "max-grpc-log-length") | (Ok(-1), "volume-name-uuid-length" | "snapshot-name-uuid-length") => {
                Meaning::Key(Value::Null)
            }
            (Ok(0), "health-port") => Meaning::Nothing("0: off, which is the default".to_owned()),
            (Ok(port), "health-port") => listening(&format!("[::]:{port}")),
            (Ok(number), _) => Meaning::Key(json!(number)),
        },
    }
}

/// As Go's `strconv.ParseBool` reads it.
fn switch(value: &str) -> Meaning {
    match value.trim() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Meaning::Key(json!(true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Meaning::Key(json!(false)),
        _ => Meaning::Wrong("true or false".to_owned()),
    }
}

fn listening(value: &str) -> Meaning {
    if value.is_empty() {
        return Meaning::Nothing("empty: off there; here the default stays on".to_owned());
    }
    match listen::address(value) {
        Ok(address) => Meaning::Key(json!(address.to_string())),
        Err(expected) => Meaning::Wrong(expected),
    }
}

fn labels(value: &str) -> Meaning {
    let mut labels = serde_json::Map::new();
    for pair in value.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once([':', '=']) else {
            return Meaning::Wrong("key:value,key:value".to_owned());
        };
        labels.insert(key.trim().to_owned(), json!(value.trim()));
    }
    if labels.is_empty() { Meaning::Nothing("empty".to_owned()) } else { Meaning::Key(Value::Object(labels)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::sidecars::hosted;

    #[test]
    fn a_mistyped_flag_is_told_with_the_flag_that_was_meant() {
        let attacher = hosted().into_iter().find(|sidecar| sidecar.name == "csi-attacher").unwrap();
        for (given, told) in [
            ("--worker-treads=5", Some("did you mean --worker-threads?")),
            ("--worker_threads=5", Some("did you mean --worker-threads?")),
            ("--timout=5s", Some("did you mean --timeout?")),
            ("--leader-elect", Some("did you mean --leader-election?")),
            // Of csi-resizer.
            ("--workers=5", None),
            ("--speed=9", None),
            ("--x", None),
        ] {
            let read = read("d", "c", attacher, &[given.to_owned()], &Variables::default(), &|_| true);
            let (fault, line) = (&read.faults[0], &read.lines[0]);
            let found = told.map_or_else(|| "an unknown flag".to_owned(), |told| format!("an unknown flag: {told}"));
            assert_eq!((&fault.found, fault.leave_out.is_some()), (&found, true), "{given}");
            assert_eq!(
                (&line.fate, &line.note),
                (&FlagFate::Undecided, &format!("unknown, {}", told.unwrap_or("decide")))
            );
        }
    }
}

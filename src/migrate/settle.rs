//! Several sidecars become one daemon: merges their settings, and reports differences. Pure.
//! | setting | the value that is used |
//! |---|---|
//! | `csi.endpoint` | must be one socket, seen through whichever mount |
//! | `leaderElection.{leaseDuration,renewDeadline,retryPeriod}` | the whole set of the one with the shortest lease: parts of two sets need not fit |
//! | `leaderElection.enabled` | on if one had it on |
//! | `leaderElection.namespace`, `kubernetes.kubeconfig` | must be one |
//! | `telemetry.logs.level`, `csi.maxLogLength` | the most verbose one |
//! | `diagnostics.listen` | the first; the other ports are closed |
//! | everything else | belongs to one sidecar |

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::sidecar::Sidecar;
use crate::process::duration;
use crate::roles::sidecars::leads;

use super::map::{self, Setting};
use super::notes::Notes;
use super::report::{Fault, listed};
use super::version::Release;

/// The settings of one sidecar that is replaced.
#[derive(Debug, Clone)]
pub(super) struct Source {
    /// What it is.
    pub(super) sidecar: &'static Sidecar,
    /// The container.
    pub(super) container: String,
    /// Its settings, in the order of its flags.
    pub(super) settings: Vec<Setting>,
    /// The volume and the path in it of its socket, if a mount holds it.
    pub(super) socket: Option<(String, String)>,
    /// Its version.
    pub(super) release: Release,
}

impl Source {
    /// The setting of a key that counts.
    pub(super) fn setting(&self, key: &str) -> Option<&Setting> {
        map::last(&self.settings, key)
    }

    /// Whether a switch is on.
    pub(super) fn is_on(&self, key: &str) -> bool {
        self.setting(key).is_some_and(|setting| setting.value == json!(true))
    }

    /// Whether each node has one, which nobody leads.
    pub(super) fn is_per_node(&self) -> bool {
        self.sidecar.per_node.is_some_and(|key| self.is_on(key))
    }
}

/// A key of the configuration and why it has its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Chosen {
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) because: String,
}

/// What all sidecars together amount to.
#[derive(Debug, Clone, Default)]
pub(super) struct Settled {
    pub(super) chosen: Vec<Chosen>,
    pub(super) notes: Notes,
    pub(super) faults: Vec<Fault>,
}

const ELECTION: [(&str, u64); 3] =
    [("leaderElection.leaseDuration", 15), ("leaderElection.renewDeadline", 10), ("leaderElection.retryPeriod", 5)];

/// Brings the settings to agree.
pub(super) fn settle(sources: &[Source]) -> Settled {
    let mut settled = Settled::default();
    let mut by_key: BTreeMap<&str, Vec<(&Source, &Setting)>> = BTreeMap::new();
    for source in sources {
        for setting in &source.settings {
            by_key.entry(&setting.key).or_default().push((source, setting));
        }
    }
    settled.timing(sources);
    for (key, given) in by_key {
        match key {
            "leaderElection.leaseDuration" | "leaderElection.renewDeadline" | "leaderElection.retryPeriod" => {}
            "leaderElection.enabled" => settled.enabled(sources, &given),
            "leaderElection.labels" => settled.labels(&given),
            "csi.endpoint" => settled.endpoint(&given),
            "telemetry.logs.level" | "csi.maxLogLength" => settled.most(key, &given),
            "leaderElection.namespace" | "kubernetes.kubeconfig" => {
                settled.first(key, &given, Some("the same value for all: one daemon has one"));
            }
            _ => settled.first(key, &given, None),
        }
    }
    settled
}

fn said(source: &Source, setting: &Setting) -> String {
    format!("{} {}", source.container, setting.given)
}

impl Settled {
    fn choose(&mut self, key: &str, value: Value, because: String) {
        self.chosen.push(Chosen { key: key.to_owned(), value, because });
    }

    /// The first; `must_agree` says what is expected where others are a fault.
    fn first(&mut self, key: &str, given: &[(&Source, &Setting)], must_agree: Option<&str>) {
        let Some((first, setting)) = given.first() else { return };
        for (other, theirs) in given.iter().skip(1).filter(|(_, theirs)| theirs.value != setting.value) {
            let both = format!("{} and {}", said(first, setting), said(other, theirs));
            match must_agree {
                Some(expected) => self.fault(key, both, expected),
                None if key == "diagnostics.listen" => {}
                None => self.notes.check(format!("{key}: {both}; the first one is used")),
            }
        }
        self.choose(key, setting.value.clone(), said(first, setting));
    }

    fn fault(&mut self, place: &str, found: String, expected: &str) {
        self.faults.push(Fault::new(place, found, expected).left_out_as(place));
    }

    fn endpoint(&mut self, given: &[(&Source, &Setting)]) {
        let Some((first, setting)) = given.first() else { return };
        let same = |(other, theirs): &&(&Source, &Setting)| match (&first.socket, &other.socket) {
            (Some(one), Some(two)) => one == two,
            _ => theirs.value.as_str().map(path_of) == setting.value.as_str().map(path_of),
        };
        let others: Vec<_> = given.iter().skip(1).filter(|other| !same(other)).collect();
        for (other, theirs) in others {
            let found = format!("{} and {}", said(first, setting), said(other, theirs));
            let expected = "one socket: a daemon serves one driver; choose the sidecars of one with --socket PATH or --container NAME; a \
                            second run, on the workload.yaml of the first, moves those of the next driver";
            self.faults.push(Fault::new("csi.endpoint", found, expected));
        }
        self.choose("csi.endpoint", setting.value.clone(), said(first, setting));
    }

    fn enabled(&mut self, sources: &[Source], given: &[(&Source, &Setting)]) {
        let Some((source, on)) =
            given.iter().find(|(_, setting)| setting.value == json!(true)).or_else(|| given.first())
        else {
            return;
        };
        let without = sources.iter().filter(|it| leads(it.sidecar) && !it.is_on("leaderElection.enabled"));
        let without: Vec<&str> = without.map(|source| source.container.as_str()).collect();
        if on.value == json!(true) && !without.is_empty() {
            self.notes.check(format!(
                "leaderElection.enabled: {} had it off; it is on, the stricter, for all roles",
                listed(&without, "and")
            ));
        }
        self.choose("leaderElection.enabled", on.value.clone(), said(source, on));
    }

    /// The three durations belong together: each must be shorter than the one before.
    fn timing(&mut self, sources: &[Source]) {
        // A sidecar that never leads has no say.
        let sources: Vec<&Source> = sources.iter().filter(|source| leads(source.sidecar)).collect();
        let set = |source: &Source| {
            ELECTION.map(|(key, usual)| {
                source.setting(key).map_or_else(|| Duration::from_secs(usual), |setting| time(&setting.value))
            })
        };
        let is_told = |source: &&Source| ELECTION.iter().any(|(key, _)| source.setting(key).is_some());
        if !sources.iter().any(is_told) {
            return;
        }
        let Some(strictest) = sources.iter().min_by_key(|source| set(source)) else { return };
        let chosen = set(strictest);
        if sources.iter().any(|source| set(source) != chosen) {
            let told: Vec<String> = sources
                .iter()
                .map(|source| format!("{} {}", source.container, set(source).map(duration::format).join("/")))
                .collect();
            self.notes.know(format!(
                "leaderElection.leaseDuration/renewDeadline/retryPeriod: {}; the strictest, of {}, counts",
                told.join(", "),
                strictest.container
            ));
        }
        for ((key, _), time) in ELECTION.into_iter().zip(chosen) {
            self.choose(key, json!(duration::format(time)), strictest.container.clone());
        }
    }

    fn labels(&mut self, given: &[(&Source, &Setting)]) {
        let mut labels = serde_json::Map::new();
        for (source, setting) in given {
            for (key, value) in setting.value.as_object().into_iter().flatten() {
                let there = labels.entry(key.clone()).or_insert_with(|| value.clone());
                if there != value {
                    self.notes.check(format!(
                        "leaderElection.labels: {} says {key}: {value}, another sidecar {there}; the latter is used",
                        source.container
                    ));
                }
            }
        }
        let because = given.iter().map(|(source, setting)| said(source, setting)).collect::<Vec<_>>().join(", ");
        self.choose("leaderElection.labels", Value::Object(labels), because);
    }

    /// The most verbose value: no limit, else the larger number; among the levels, the longer name is more verbose.
    fn most(&mut self, key: &str, given: &[(&Source, &Setting)]) {
        let rank = |value: &Value| match value {
            Value::Null => u64::MAX,
            Value::String(level) if level.ends_with("trace") => 2,
            Value::String(level) if level.ends_with("debug") => 1,
            value => value.as_u64().unwrap_or_default(),
        };
        let Some((source, setting)) = given.iter().rev().max_by_key(|(_, setting)| rank(&setting.value)) else {
            return;
        };
        if given.iter().any(|(_, other)| other.value != setting.value) {
            let all = given.iter().map(|(source, setting)| said(source, setting)).collect::<Vec<_>>().join(", ");
            self.notes.know(format!("{key}: {all}; the most verbose is used"));
        }
        self.choose(key, setting.value.clone(), said(source, setting));
    }
}

/// Sidecars whose Leases are in two namespaces: `own` is the namespace of those that name none. The daemon has all of them in one, so that it
/// and a sidecar of the other could lead at the same time.
pub(super) fn two_namespaces(sources: &[Source], own: Option<&str>) -> Option<Fault> {
    let leading = || sources.iter().filter(|it| leads(it.sidecar) && it.is_on("leaderElection.enabled"));
    let key = "leaderElection.namespace";
    let (with, place) = leading().find_map(|source| Some((source, &source.setting(key)?.value)))?;
    let without = leading().find(|source| source.setting(key).is_none())?;
    let found =
        format!("{} has its Lease in {place}, and {} in the pod's own namespace", with.container, without.container);
    let expected = "one namespace for all Leases: set --leader-election-namespace of all to the same, and let it roll out, before the move";
    (place.as_str() != own).then(|| Fault::new(key, found, expected).left_out_as(key))
}

/// An endpoint's path, however it is spelled.
pub(super) fn path_of(endpoint: &str) -> &str {
    endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:")).unwrap_or(endpoint)
}

fn time(value: &Value) -> Duration {
    value.as_str().and_then(duration::parse).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(container: &str, sidecar: &'static str, settings: &[(&str, Value)]) -> Source {
        let settings = settings
            .iter()
            .map(|(key, value)| Setting {
                key: (*key).to_owned(),
                value: value.clone(),
                container: container.to_owned(),
                given: format!("--{key}"),
            })
            .collect();
        let sidecar = crate::roles::sidecars::hosted().into_iter().find(|known| known.name == sidecar).unwrap();
        Source {
            sidecar,
            container: container.to_owned(),
            settings,
            socket: None,
            release: Release::Unknown(String::new()),
        }
    }

    fn both(one: &[(&str, Value)], two: &[(&str, Value)]) -> Settled {
        settle(&[source("attacher", "csi-attacher", one), source("provisioner", "csi-provisioner", two)])
    }

    fn value(settled: &Settled, key: &str) -> Option<Value> {
        settled.chosen.iter().find(|chosen| chosen.key == key).map(|chosen| chosen.value.clone())
    }

    #[test]
    fn a_sidecar_that_never_leads_has_no_say_about_leading() {
        let slow = [("leaderElection.leaseDuration", json!("137s")), ("leaderElection.renewDeadline", json!("107s"))];
        let settled = settle(&[
            source("a", "csi-attacher", &slow),
            source("l", "livenessprobe", &[]),
            source("r", "node-driver-registrar", &[]),
        ]);
        assert_eq!(value(&settled, "leaderElection.leaseDuration"), Some(json!("2m17s")));
        assert_eq!(settled.notes, Notes::default());
    }

    #[test]
    fn the_strictest_leader_election_is_taken_whole() {
        let slow = [
            ("leaderElection.leaseDuration", json!("137s")),
            ("leaderElection.renewDeadline", json!("107s")),
            ("leaderElection.retryPeriod", json!("26s")),
        ];
        let settled = both(&slow, &[]);
        assert_eq!(ELECTION.map(|(key, _)| value(&settled, key)), ["15s", "10s", "5s"].map(|time| Some(json!(time))));
        assert!(settled.notes.texts().any(|note| note.contains("of provisioner")), "{:?}", settled.notes);
        let settled = both(&slow, &slow);
        assert_eq!(value(&settled, "leaderElection.leaseDuration"), Some(json!("2m17s")));
        assert_eq!(settled.notes, Notes::default());
    }

    #[test]
    fn leader_election_is_on_if_one_had_it_on() {
        let enabled = |on: bool| [("leaderElection.enabled", json!(on))];
        let settled = both(&enabled(false), &enabled(true));
        assert_eq!(value(&settled, "leaderElection.enabled"), Some(json!(true)));
        assert!(settled.notes.texts().any(|note| note.contains("attacher had it off")), "{:?}", settled.notes);
        assert_eq!(value(&both(&enabled(false), &enabled(false)), "leaderElection.enabled"), Some(json!(false)));
        assert_eq!(value(&both(&[], &[]), "leaderElection.enabled"), None, "the default is on");
    }

    #[test]
    fn what_must_be_one_is_a_fault_where_it_is_two() {
        for (key, one, two, can_be_left_out) in [
            ("csi.endpoint", "/a/csi.sock", "/b/csi.sock", false),
            ("leaderElection.namespace", "a", "b", true),
            ("kubernetes.kubeconfig", "/a", "/b", true),
        ] {
            let settled = both(&[(key, json!(one))], &[(key, json!(two))]);
            let faults: Vec<_> = settled.faults.iter().map(|f| (f.place.as_str(), f.leave_out.is_some())).collect();
            assert_eq!(faults, [(key, can_be_left_out)]);
            assert_eq!(both(&[(key, json!(one))], &[(key, json!(one))]).faults, vec![]);
        }
    }

    #[test]
    fn leases_in_two_namespaces_are_a_fault() {
        let on = ("leaderElection.enabled", json!(true));
        let elsewhere = ("leaderElection.namespace", json!("elsewhere"));
        let pair = |one: &[(&str, Value)], two: &[(&str, Value)]| {
            [source("attacher", "csi-attacher", one), source("provisioner", "csi-provisioner", two)]
        };
        let (both, led) = ([on.clone(), elsewhere], [on]);
        for (sources, own, is_fault) in [
            (pair(&both, &led), Some("own"), true),
            (pair(&led, &both), None, true),
            (pair(&both, &led), Some("elsewhere"), false),
            (pair(&both, &both), Some("own"), false),
            (pair(&both, &[]), Some("own"), false),
            (pair(&led, &led), Some("own"), false),
        ] {
            assert_eq!(two_namespaces(&sources, own).is_some(), is_fault, "{sources:?} {own:?}");
        }
    }

    #[test]
    fn one_socket_behind_two_mounts_is_one_socket() {
        let endpoint = |path: &str| [("csi.endpoint", json!(path))];
        let mut sources = [
            source("a", "csi-attacher", &endpoint("/csi/csi.sock")),
            source("p", "csi-provisioner", &endpoint("unix:///run/csi.sock")),
        ];
        assert_eq!(settle(&sources).faults.len(), 1);
        for source in &mut sources {
            source.socket = Some(("socket-dir".to_owned(), "csi.sock".to_owned()));
        }
        assert_eq!(settle(&sources).faults, vec![]);
        let spelled = both(&endpoint("/csi/csi.sock"), &endpoint("unix:///csi/csi.sock"));
        assert_eq!(spelled.faults, vec![]);
    }

    #[test]
    fn what_tells_most_counts() {
        let level = |level: &str| [("telemetry.logs.level", json!(level))];
        let settled = both(&level("info,csi_control_plane=trace"), &level("info"));
        assert_eq!(value(&settled, "telemetry.logs.level"), Some(json!("info,csi_control_plane=trace")));
        let length = |length: Value| [("csi.maxLogLength", length)];
        assert_eq!(value(&both(&length(json!(10)), &length(Value::Null)), "csi.maxLogLength"), Some(Value::Null));
    }
}

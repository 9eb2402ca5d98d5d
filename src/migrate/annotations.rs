//! The annotations of the pods that name a container or a port which goes. Pure.
//!
//! | annotation | what becomes of it |
//! |---|---|
//! | `container.apparmor.security.beta.kubernetes.io/NAME` | the daemon's, with the profile that confines least: the API refuses one of a container that is not there |
//! | `kubectl.kubernetes.io/default-container`, `…/default-logs-container` | the daemon |
//! | `prometheus.io/port`, and `prometheus.io/path` beside it | the daemon's |
//! | any other with the name of a container that goes | it stays, and the report names it |

use serde_yaml::Value;

use super::document::Workload;
use super::notes::Notes;
use super::ports::Ports;
use super::replaced::Old;
use super::report::{Fault, listed};

/// What becomes of one annotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edit {
    /// Its key.
    pub(super) key: String,
    /// The key and the value that come in its place; none: it goes.
    pub(super) new: Option<(String, String)>,
}

/// The profile of a container, in the API's first form.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// The container that kubectl takes where none is named.
const DEFAULT: [&str; 2] = ["kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container"];
/// The port that a Prometheus asks which finds its targets by annotations, and the path.
pub(super) const SCRAPED: [&str; 2] = ["prometheus.io/port", "prometheus.io/path"];

/// What becomes of the annotations when these containers become `daemon`.
pub(super) fn edits(
    old: &[Old<'_>],
    daemon: &str,
    workload: &Workload,
    ports: &Ports,
    notes: &mut Notes,
    faults: &mut Vec<Fault>,
) -> Vec<Edit> {
    let all = &workload.annotations;
    let goes = |name: &str| old.iter().any(|one| one.name == name);
    let mut edits = apparmor(old, daemon, workload, notes, faults);
    let mut becomes = |key: &str, value: &str, new: String, why: &str| {
        notes.know(format!("annotation {key}: {value} is now {new}{why}"));
        edits.push(Edit { key: key.to_owned(), new: Some((key.to_owned(), new)) });
    };
    for key in DEFAULT {
        if let Some(name) = all.get(key).filter(|name| goes(name)) {
            becomes(key, name, daemon.to_owned(), "");
        }
    }
    let [port, path] = SCRAPED;
    let closes = |value: &&String| value.parse().is_ok_and(|port: u16| ports.closed.iter().any(|one| one.port == port));
    if let Some(value) = all.get(port).filter(closes) {
        becomes(port, value, ports.listen.port().to_string(), ", where the daemon has the metrics of all");
        if let Some(value) = all.get(path).filter(|value| *value != "/metrics") {
            becomes(path, value, "/metrics".to_owned(), "");
        }
    }
    for (key, value) in all.iter().filter(|(key, _)| !edits.iter().any(|edit| edit.key == **key)) {
        for one in old.iter().filter(|one| names(key, one.name) || names(value, one.name)) {
            notes.check(format!(
                "annotation {key} names the container {}, which is gone: let it name {daemon} if it is still to be about that work",
                one.name
            ));
        }
    }
    edits
}

/// Whether a text has the name of a container as a word.
fn names(text: &str, container: &str) -> bool {
    !container.is_empty()
        && text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).any(|word| word == container)
}

/// How much a profile confines a container. One that is privileged is not confined, whatever it says.
fn confines(profile: Option<&String>, container: &Value) -> u8 {
    let is_privileged = container.get("securityContext").and_then(|it| it.get("privileged")?.as_bool()) == Some(true);
    match profile.map(String::as_str) {
        _ if is_privileged => 0,
        Some("unconfined") => 0,
        None => 1,
        Some("runtime/default") => 2,
        Some(_) => 3,
    }
}

fn apparmor(
    old: &[Old<'_>],
    daemon: &str,
    workload: &Workload,
    notes: &mut Notes,
    faults: &mut Vec<Fault>,
) -> Vec<Edit> {
    let key = |name: &str| format!("{APPARMOR}{name}");
    let own = |one: &Old<'_>| workload.annotations.get(&key(one.name));
    let there: Vec<&Old<'_>> = old.iter().filter(|one| own(one).is_some()).collect();
    if there.is_empty() {
        return Vec::new();
    }
    let rank = |one: &Old<'_>| confines(own(one), one.value);
    let least = old.iter().map(rank).min().unwrap_or_default();
    let taken = old.iter().find(|one| rank(one) == least).and_then(own).cloned();
    if least > 1
        && let Some(other) = old.iter().find(|one| own(one) != taken.as_ref())
    {
        let found = [taken.as_ref(), own(other)].into_iter().flatten().cloned().collect::<Vec<_>>();
        let found = format!("{} for containers that become one", listed(&found, "and"));
        let expected = "one profile that suits all, since what a profile of the node allows is not known here";
        let place = format!("{}, annotation {APPARMOR}…", workload.title());
        faults.push(Fault::new(place, found, expected).left_out_as("apparmor"));
    }
    let names: Vec<&str> = there.iter().map(|one| one.name).collect();
    let told = taken.as_ref().map_or_else(
        || "the daemon has none, as one of those that it replaces had none".to_owned(),
        |profile| format!("the daemon has {profile}, which confines least"),
    );
    notes.know(format!("annotation {APPARMOR}… of {}: {told}", listed(&names, "and")));
    let edit = |(at, one): (usize, &&Old<'_>)| {
        let new = taken.clone().filter(|_| at == 0).map(|profile| (key(daemon), profile));
        Edit { key: key(one.name), new }
    };
    there.iter().enumerate().map(edit).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::super::tests::wanted;
    use super::super::{Outcome, migrate};

    /// An attacher with a metrics port and a resizer, in pods with these annotations.
    fn moved(annotations: &str, flow: bool) -> Outcome {
        let text = format!(
            "kind: Deployment\nmetadata: {{name: d, namespace: 'n'}}\nspec:\n  template:\n    metadata:\n      labels: {{app: d}}\n      \
             annotations:\n{annotations}    spec:\n      containers:\n      - {{name: a, image: \"x/csi-attacher:v4.12.0\", args: \
             [--csi-address=/csi/s, --leader-election, '--http-endpoint=:8090']}}\n      - {{name: r, image: \"x/csi-resizer:v2.0.0\", args: \
             [--csi-address=/csi/s, --leader-election, '--http-endpoint=:8091']}}\n      - {{name: driver, image: x/driver}}\n"
        );
        let text =
            if flow { serde_json::to_string(&crate::process::yaml::read(&text).unwrap()).unwrap() } else { text };
        migrate(&wanted(&text))
    }

    fn annotations(outcome: &Outcome) -> Json {
        let files = outcome.files.as_ref().unwrap_or_else(|| panic!("{}", outcome.report.faults_text()));
        let workload: Json = serde_yaml::from_str(&files.workload).unwrap();
        workload.pointer("/spec/template/metadata/annotations").cloned().unwrap_or_default()
    }

    const PROFILE: &str = "container.apparmor.security.beta.kubernetes.io";

    #[test]
    fn annotations_of_what_goes_are_the_daemons() {
        for (given, expected, told) in [
            (
                format!("{PROFILE}/a: unconfined"),
                json!({(format!("{PROFILE}/csi-control-plane")): "unconfined"}),
                "of a: the daemon has unconfined, which confines least",
            ),
            (
                format!("{PROFILE}/a: runtime/default\n        {PROFILE}/r: runtime/default"),
                json!({(format!("{PROFILE}/csi-control-plane")): "runtime/default"}),
                "of a and r: the daemon has runtime/default",
            ),
            (format!("{PROFILE}/r: localhost/x"), json!({}), "of r: the daemon has none, as one of those"),
            (
                "kubectl.kubernetes.io/default-container: r".to_owned(),
                json!({"kubectl.kubernetes.io/default-container": "csi-control-plane"}),
                "default-container: r is now csi-control-plane",
            ),
            (
                "prometheus.io/port: \"8091\"\n        prometheus.io/path: /m".to_owned(),
                json!({"prometheus.io/port": "8090", "prometheus.io/path": "/metrics"}),
                "prometheus.io/port: 8091 is now 8090",
            ),
            ("prometheus.io/port: \"9000\"".to_owned(), json!({"prometheus.io/port": "9000"}), ""),
            (
                "ad.example.com/r.logs: '[]'".to_owned(),
                json!({"ad.example.com/r.logs": "[]"}),
                "annotation ad.example.com/r.logs names the container r, which is gone",
            ),
            (
                "kubectl.kubernetes.io/default-container: driver".to_owned(),
                json!({"kubectl.kubernetes.io/default-container": "driver"}),
                "",
            ),
        ] {
            for flow in [false, true] {
                let outcome = moved(&format!("        keep: me # ours\n        {given}\n"), flow);
                let mut expected = expected.clone();
                expected["keep"] = "me".into();
                assert_eq!(annotations(&outcome), expected, "{given}");
                let notes: Vec<_> =
                    outcome.report.notes.texts().filter(|note| note.starts_with("annotation")).collect();
                assert_eq!(notes.is_empty(), told.is_empty(), "{given}: {notes:?}");
                assert!(told.is_empty() || notes.iter().any(|note| note.contains(told)), "{given}: {notes:?}");
                let is_kept = outcome.files.unwrap().workload.contains("keep: me # ours");
                assert_eq!(is_kept, !flow, "{given}");
            }
        }
        let alone = moved(&format!("        {PROFILE}/r: localhost/x\n"), false);
        assert_eq!(annotations(&alone), json!(null), "the last one takes the list with it");
    }

    #[test]
    fn two_profiles_of_the_node_are_refused() {
        let report =
            moved(&format!("        {PROFILE}/a: localhost/x\n        {PROFILE}/r: localhost/y\n"), false).report;
        let [fault] = report.faults.as_slice() else { panic!("{}", report.faults_text()) };
        assert_eq!(fault.found, "localhost/x and localhost/y for containers that become one");
        assert_eq!(fault.leave_out.as_deref(), Some("apparmor"));
    }
}

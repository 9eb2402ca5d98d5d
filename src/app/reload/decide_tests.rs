//! Every key of `config/reference.yaml`, changed alone; then what comes together.

use serde_json::{Value, json};

use super::*;
use crate::config::{File, Sources, load};
use crate::roles::sections;

const ALL: &str = include_str!("../../../config/reference.yaml");

fn loaded(tree: &Value) -> Loaded {
    let file = File { name: "config.yaml".to_owned(), text: tree.to_string() };
    load(&Sources { file: Some(file), ..Sources::default() }, &sections())
        .unwrap_or_else(|rejected| panic!("{rejected}"))
}

fn reference() -> Value {
    serde_yaml::from_str(ALL).unwrap()
}

/// What the provisioner asks when it is loaded.
fn depends_on() -> Dependencies {
    Dependencies::from([("provisioner", BTreeSet::from(["attacher"])), ("attacher", BTreeSet::new())])
}

/// The reference with these values in the place of its own. `null` takes a block out.
fn with(changes: &[(&str, Value)]) -> Value {
    let mut tree = reference();
    for (key, value) in changes {
        let (above, last) = key.rsplit_once('.').unwrap();
        let pointer = format!("/{}", above.replace('.', "/"));
        let block = tree.pointer_mut(&pointer).unwrap_or_else(|| panic!("{key}")).as_object_mut().unwrap();
        if key.matches('.').count() == 1 && above == "roles" && value.is_null() {
            block.remove(last);
        } else {
            block.insert(last.to_owned(), value.clone());
        }
    }
    tree
}

fn verdict(old: &[(&str, Value)], new: &[(&str, Value)]) -> Verdict {
    decide(&loaded(&with(old)), &loaded(&with(new)), &depends_on())
}

/// What one word of the table below means.
fn expected(key: &str, word: &str) -> Verdict {
    let mut change = Change { keys: [key.to_owned()].into(), ..Change::default() };
    match word {
        "process" => return Verdict::Refuse(Refusal::NeedsRestart(change.keys)),
        "log" => change.log = true,
        "calls" => change.calls = true,
        "leases" => {}
        role => {
            let role = crate::roles::ROLES.iter().find(|it| it.name == role).unwrap();
            change.restarted = [role.name].into();
        }
    }
    Verdict::Apply(change)
}

/// Each key, another value than its default, and what begins anew.
#[expect(clippy::too_many_lines, reason = "one line for each key")]
fn table() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("csi.endpoint", json!("unix:///other"), "process"),
        ("csi.timeout", json!("16s"), "calls"),
        ("csi.maxMessageBytes", json!(65_536), "calls"),
        ("csi.maxLogLength", json!(null), "calls"),
        ("csi.concurrency.adaptive", json!(false), "calls"),
        ("csi.concurrency.min", json!(2), "calls"),
        ("csi.concurrency.max", json!(5), "calls"),
        ("kubernetes.kubeconfig", json!("/file"), "process"),
        ("kubernetes.maxInFlight", json!(5), "process"),
        ("kubernetes.requestTimeout", json!("1m"), "process"),
        ("leaderElection.enabled", json!(false), "leases"),
        ("leaderElection.namespace", json!("storage"), "leases"),
        ("leaderElection.leaseDuration", json!("20s"), "leases"),
        ("leaderElection.renewDeadline", json!("11s"), "leases"),
        ("leaderElection.retryPeriod", json!("2s"), "leases"),
        ("leaderElection.watchHolderPod", json!(false), "leases"),
        ("leaderElection.labels", json!({"team": "storage"}), "leases"),
        ("diagnostics.listen", json!("127.0.0.1:1"), "process"),
        ("telemetry.logs.level", json!("debug"), "log"),
        ("telemetry.logs.format", json!("text"), "process"),
        ("telemetry.traces.endpoint", json!("http://collector:4317"), "process"),
        ("telemetry.traces.sampleRatio", json!(0.5), "process"),
        ("runtime.workerThreads", json!(4), "process"),
        ("roles.attachDetach.workers", json!(5), "attachDetach"),
        ("roles.attachDetach.retry.initial", json!("1s"), "attachDetach"),
        ("roles.attachDetach.retry.max", json!("6m"), "attachDetach"),
        ("roles.attachDetach.resync", json!("2m"), "attachDetach"),
        ("roles.attachDetach.maxWaitForUnmount", json!("7m"), "attachDetach"),
        ("roles.attachDetach.forceDetachOnTimeout", json!(false), "attachDetach"),
        ("roles.attachDetach.multiAttach", json!("confirmed"), "attachDetach"),
        ("roles.attachDetach.manageAllNodes", json!(true), "attachDetach"),
        ("roles.attachDetach.writeNodeStatus", json!(false), "attachDetach"),
        ("roles.attachDetach.orphanGrace", json!("5m"), "attachDetach"),
        ("roles.attachDetach.driverGrace", json!("5m"), "attachDetach"),
        ("roles.attachDetach.settle", json!("5s"), "attachDetach"),
        ("roles.attachDetach.exclusiveCheck", json!("warn"), "attachDetach"),
        ("roles.attachDetach.events", json!(false), "attachDetach"),
        ("roles.attacher.timeout", json!("2m"), "attacher"),
        ("roles.attacher.workers", json!(5), "attacher"),
        ("roles.attacher.detachWorkers", json!(5), "attacher"),
        ("roles.attacher.retry.initial", json!("2s"), "attacher"),
        ("roles.attacher.retry.max", json!("6m"), "attacher"),
        ("roles.attacher.resync", json!("0s"), "attacher"),
        ("roles.attacher.defaultFsType", json!("ext4"), "attacher"),
        ("roles.attacher.events", json!("all"), "attacher"),
        ("roles.attacher.errorCodes", json!(false), "attacher"),
        ("roles.healthMonitor.timeout", json!("2m"), "healthMonitor"),
        ("roles.healthMonitor.interval", json!("2m"), "healthMonitor"),
        ("roles.healthMonitor.listInterval", json!("2m"), "healthMonitor"),
        ("roles.healthMonitor.pageSize", json!(10), "healthMonitor"),
        ("roles.healthMonitor.pageTimeout", json!("2m"), "healthMonitor"),
        ("roles.healthMonitor.workers", json!(5), "healthMonitor"),
        ("roles.healthMonitor.report", json!("both"), "healthMonitor"),
        ("roles.healthMonitor.nodeWatch", json!(true), "healthMonitor"),
        ("roles.healthMonitor.nodeDownAfter", json!("2m"), "healthMonitor"),
        ("roles.liveness.listen", json!("[::]:1"), "liveness"),
        ("roles.liveness.path", json!("/driver"), "liveness"),
        ("roles.liveness.probeTimeout", json!("5s"), "liveness"),
        ("roles.registrar.kubeletRegistrationPath", json!("/plugins/socket"), "registrar"),
        ("roles.registrar.directory", json!("/plugins_registry"), "registrar"),
        ("roles.registrar.withdrawAfter", json!("1m"), "registrar"),
        ("roles.registrar.onShutdown", json!("keep"), "registrar"),
        ("roles.registrar.csiNodeInterval", json!("1m"), "registrar"),
        ("roles.registrar.healthListen", json!("[::]:1"), "registrar"),
        ("roles.provisioner.timeout", json!("2m"), "provisioner"),
        ("roles.provisioner.workers", json!(5), "provisioner"),
        ("roles.provisioner.deleteWorkers", json!(5), "provisioner"),
        ("roles.provisioner.retry.initial", json!("2s"), "provisioner"),
        ("roles.provisioner.retry.max", json!("6m"), "provisioner"),
        ("roles.provisioner.retry.infeasible", json!("6m"), "provisioner"),
        ("roles.provisioner.resync", json!("0s"), "provisioner"),
        ("roles.provisioner.volumeNamePrefix", json!("vol"), "provisioner"),
        ("roles.provisioner.volumeNameUuidLength", json!(8), "provisioner"),
        ("roles.provisioner.topology", json!(false), "provisioner"),
        ("roles.provisioner.strictTopology", json!(true), "provisioner"),
        ("roles.provisioner.immediateTopology", json!(false), "provisioner"),
        ("roles.provisioner.extraCreateMetadata", json!(true), "provisioner"),
        ("roles.provisioner.defaultFsType", json!("xfs"), "provisioner"),
        ("roles.provisioner.publishReadonly", json!(true), "provisioner"),
        ("roles.provisioner.attributesClasses", json!(false), "provisioner"),
        ("roles.provisioner.honorReclaimPolicy", json!(false), "provisioner"),
        ("roles.provisioner.preventVolumeModeConversion", json!(false), "provisioner"),
        ("roles.provisioner.crossNamespaceSources", json!(true), "provisioner"),
        ("roles.provisioner.events", json!("all"), "provisioner"),
        ("roles.provisioner.durableIntent", json!(false), "provisioner"),
        ("roles.provisioner.snapshotSweepInterval", json!("1m"), "provisioner"),
        ("roles.provisioner.deleteWithoutSecret", json!(true), "provisioner"),
        ("roles.provisioner.deletionSecretNamespaces", json!(["storage"]), "provisioner"),
        ("roles.provisioner.capacity.enabled", json!(true), "provisioner"),
        ("roles.provisioner.capacity.immediateBinding", json!(true), "provisioner"),
        ("roles.provisioner.capacity.pollInterval", json!("2m"), "provisioner"),
        ("roles.provisioner.capacity.ownerLevel", json!(0), "provisioner"),
        ("roles.provisioner.capacity.workers", json!(1), "provisioner"),
        ("roles.provisioner.nodeDeployment.enabled", json!(true), "process"),
        ("roles.provisioner.nodeDeployment.immediateBinding", json!(false), "provisioner"),
        ("roles.provisioner.nodeDeployment.baseDelay", json!("10s"), "provisioner"),
        ("roles.provisioner.nodeDeployment.maxDelay", json!("2m"), "provisioner"),
        ("roles.reconciler.interval", json!("2m"), "reconciler"),
        ("roles.reconciler.pageSize", json!(10), "reconciler"),
        ("roles.reconciler.pageTimeout", json!("2m"), "reconciler"),
        ("roles.reconciler.orphans", json!(true), "reconciler"),
        ("roles.resizer.timeout", json!("2m"), "resizer"),
        ("roles.resizer.resizeTimeout", json!("3m"), "resizer"),
        ("roles.resizer.modifyTimeout", json!("3m"), "resizer"),
        ("roles.resizer.workers", json!(5), "resizer"),
        ("roles.resizer.retry.initial", json!("2s"), "resizer"),
        ("roles.resizer.retry.max", json!("6m"), "resizer"),
        ("roles.resizer.retry.infeasible", json!("6m"), "resizer"),
        ("roles.resizer.resync", json!("0s"), "resizer"),
        ("roles.resizer.inUseCheck", json!(false), "resizer"),
        ("roles.resizer.modify", json!(false), "resizer"),
        ("roles.resizer.extraModifyMetadata", json!(true), "resizer"),
        ("roles.resizer.annotatePreResize", json!(false), "resizer"),
        ("roles.resizer.events", json!("all"), "resizer"),
        ("roles.resizer.pairCalls", json!("never"), "resizer"),
        ("roles.snapshotter.timeout", json!("2m"), "snapshotter"),
        ("roles.snapshotter.workers", json!(5), "snapshotter"),
        ("roles.snapshotter.deleteWorkers", json!(5), "snapshotter"),
        ("roles.snapshotter.groupWorkers", json!(5), "snapshotter"),
        ("roles.snapshotter.callTimeout", json!("2m"), "snapshotter"),
        ("roles.snapshotter.retry.initial", json!("2s"), "snapshotter"),
        ("roles.snapshotter.retry.max", json!("6m"), "snapshotter"),
        ("roles.snapshotter.retry.infeasible", json!("6m"), "snapshotter"),
        ("roles.snapshotter.readyCheck.initial", json!("2s"), "snapshotter"),
        ("roles.snapshotter.readyCheck.max", json!("1m"), "snapshotter"),
        ("roles.snapshotter.resync", json!("0s"), "snapshotter"),
        ("roles.snapshotter.snapshotNamePrefix", json!("snap"), "snapshotter"),
        ("roles.snapshotter.snapshotNameUuidLength", json!(8), "snapshotter"),
        ("roles.snapshotter.groupSnapshots", json!(false), "snapshotter"),
        ("roles.snapshotter.groupSnapshotNamePrefix", json!("group"), "snapshotter"),
        ("roles.snapshotter.groupSnapshotNameUuidLength", json!(8), "snapshotter"),
        ("roles.snapshotter.extraCreateMetadata", json!(true), "snapshotter"),
        ("roles.snapshotter.events", json!("all"), "snapshotter"),
        ("roles.snapshotter.deleteWithoutSecret", json!(true), "snapshotter"),
        ("roles.snapshotter.deletionSecretNamespaces", json!(["storage"]), "snapshotter"),
        ("roles.snapshotter.nodeDeployment.enabled", json!(true), "process"),
    ]
}

/// The paths of the reference's leaves.
fn leaves(tree: &Value, path: &str, found: &mut BTreeSet<String>) {
    match tree {
        Value::Object(block) if !block.is_empty() => {
            for (key, value) in block {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                leaves(value, &path, found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn each_key_of_the_reference_touches_what_the_table_says_and_nothing_else() {
    let mut untold = BTreeSet::new();
    leaves(&reference(), "", &mut untold);
    for (key, value, word) in table() {
        let change = [(key, value)];
        let mut expected = expected(key, word);
        if let (Verdict::Apply(change), "leaderElection.labels") = (&mut expected, key) {
            change.keys = ["leaderElection.labels.team".to_owned()].into();
        }
        assert_eq!(verdict(&[], &change), expected, "{key}");
        assert!(untold.remove(key), "{key} is told twice, or is no key");
    }
    assert!(untold.is_empty(), "say in the table what these touch: {untold:?}");
}

#[test]
fn other_words_for_the_same_are_no_change() {
    assert_eq!(
        verdict(&[], &[("csi.timeout", json!("15000ms")), ("roles.attacher.retry.max", json!("300s"))]),
        Verdict::Same
    );
    let roles = json!({
        "attachDetach": {}, "attacher": {}, "healthMonitor": null, "liveness": {}, "provisioner": null, "reconciler": {}, "registrar": null, "resizer": {},
        "snapshotter": {},
    });
    let (all, short) = (reference(), json!({ "roles": roles }));
    assert_eq!(decide(&loaded(&all), &loaded(&short), &depends_on()), Verdict::Same);
}

#[test]
fn what_comes_together_is_applied_together() {
    let change = [
        ("telemetry.logs.level", json!("warn")),
        ("csi.timeout", json!("1m")),
        ("roles.attacher.workers", json!(7)),
        ("roles.reconciler", Value::Null),
    ];
    let Verdict::Apply(change) = verdict(&[], &change) else { panic!("refused") };
    assert!(change.log && change.calls);
    assert_eq!(change.restarted, ["attacher"].into());
    assert_eq!(change.removed, ["reconciler"].into());
    assert!(change.added.is_empty());
    let keys: Vec<&str> = change.keys.iter().map(String::as_str).collect();
    assert_eq!(keys, ["csi.timeout", "roles.attacher.workers", "roles.reconciler", "telemetry.logs.level"]);
}

#[test]
fn one_key_that_needs_a_restart_refuses_the_whole_file_and_is_named() {
    let change = [
        ("csi.endpoint", json!("/x")),
        ("diagnostics.listen", Value::Null),
        ("telemetry.logs.level", json!("debug")),
        ("roles.reconciler", Value::Null),
    ];
    let Verdict::Refuse(refusal) = verdict(&[], &change) else { panic!("applied") };
    assert_eq!(
        refusal.to_string(),
        "a change of csi.endpoint, diagnostics.listen needs a restart of the process; nothing of the file was applied"
    );
}

#[test]
fn a_role_that_minds_another_begins_anew_when_that_one_comes_or_goes() {
    let without = [("roles.attacher", Value::Null)];
    let Verdict::Apply(gone) = verdict(&[], &without) else { panic!("refused") };
    assert_eq!((gone.removed, gone.restarted), (["attacher"].into(), ["provisioner"].into()));
    let Verdict::Apply(back) = verdict(&without, &[]) else { panic!("refused") };
    assert_eq!((back.added, back.restarted), (["attacher"].into(), ["provisioner"].into()));
    let Verdict::Apply(other) = verdict(&[], &[("roles.reconciler", Value::Null)]) else { panic!("refused") };
    assert_eq!((other.removed, other.restarted), (["reconciler"].into(), BTreeSet::new()));
    let Verdict::Apply(changed) = verdict(&[], &[("roles.attacher.workers", json!(1))]) else { panic!("refused") };
    assert_eq!(changed.restarted, ["attacher"].into(), "it did not come or go");
}

#[test]
fn a_file_without_any_role_is_refused() {
    for text in ["", "# nothing\n", "csi: {timeout: 16s}\n", "roles:\n"] {
        let file = File { name: "config.yaml".to_owned(), text: text.to_owned() };
        let new = load(&Sources { file: Some(file), ..Sources::default() }, &sections()).unwrap();
        // An emptied file also takes back what needs a restart, and that restart would serve nothing.
        let elsewhere = with(&[("csi.endpoint", json!("/run/other.sock")), ("diagnostics.listen", json!("[::]:9090"))]);
        for old in [reference(), elsewhere] {
            let verdict = decide(&loaded(&old), &new, &depends_on());
            assert_eq!(verdict, Verdict::Refuse(Refusal::NoRole), "{text:?}");
        }
    }
}

#[test]
fn the_first_role_of_the_cluster_needs_a_restart_and_later_ones_do_not() {
    let every: Vec<&str> = crate::roles::ROLES.iter().map(|role| role.name).collect();
    let only = |kept: &[&str]| -> Vec<(String, Value)> {
        let gone = every.iter().filter(|role| !kept.contains(role));
        gone.map(|role| (format!("roles.{role}"), Value::Null)).collect()
    };
    let verdict = |old: &[&str], new: &[&str]| {
        let (old, new) = (only(old), only(new));
        let keys =
            |of: &[(String, Value)]| with(&of.iter().map(|(key, value)| (&**key, value.clone())).collect::<Vec<_>>());
        decide(&loaded(&keys(&old)), &loaded(&keys(&new)), &depends_on())
    };
    let refused = Verdict::Refuse(Refusal::NeedsRestart(["roles.attacher".to_owned()].into()));
    assert_eq!(verdict(&["liveness"], &["liveness", "attacher"]), refused);
    let both = with(&[("csi.endpoint", json!("/x"))]);
    let old = with(&only(&["liveness"]).iter().map(|(key, value)| (&**key, value.clone())).collect::<Vec<_>>());
    let Verdict::Refuse(Refusal::NeedsRestart(keys)) = decide(&loaded(&old), &loaded(&both), &depends_on()) else {
        panic!("applied")
    };
    assert!(keys.contains("csi.endpoint") && keys.contains("roles.attacher"), "all of them are named: {keys:?}");
    // A daemon without a driver has no connection to one.
    assert_eq!(verdict(&["attachDetach"], &["attachDetach", "attacher"]), refused);
    for (old, new) in [
        (&["attacher"][..], &["attacher", "attachDetach"][..]),
        (&["attacher", "attachDetach"], &["attachDetach"]),
        (&["liveness"], &["liveness", "registrar"]),
        (&["attacher"], &["attacher", "liveness"]),
        (&["attacher", "liveness"], &["liveness"]),
    ] {
        assert!(matches!(verdict(old, new), Verdict::Apply(_)), "{old:?} {new:?}");
    }
}

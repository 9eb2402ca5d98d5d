use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::*;
use crate::diagnostics::overall::judge;
use crate::diagnostics::{Cell, Column, FaultReport, RefusedBecause, RefusedReport, Table, table};

/// A table with a column of each type.
pub(in crate::diagnostics) const CAPACITY: Table = table! {
    "capacity", "Capacity by segment":
        text("class", "class"), text("segment", "segment"), bytes("capacityBytes", "capacity"), count("asked", "asked"),
        seconds("askedSeconds", "asked before"), error("lastError", "last error")
};

/// A report of a daemon in the middle of some trouble: everything that can be shown is there.
#[expect(clippy::too_many_lines, reason = "one literal that shows every field")]
pub(in crate::diagnostics) fn demo() -> StatusReport {
    let age = |seconds| Age(Duration::from_millis(seconds));
    let text = |text: &str| Some(text.to_owned());
    let work = |key: &str,
                subject: Option<&str>,
                lane: &str,
                millis,
                attempts,
                next: Option<u64>,
                running,
                error: Option<&str>| WorkReport {
        role: "attacher".to_owned(),
        queue: "csi-attacher-va".to_owned(),
        key: key.to_owned(),
        subject: subject.map(str::to_owned),
        lane: lane.to_owned(),
        age: age(millis),
        attempts,
        next_try: next.map(age),
        running,
        last_error: error.map(str::to_owned),
    };
    let mut report = StatusReport {
        format_version: FORMAT_VERSION,
        version: "0.1.0".to_owned(),
        overall: Overall::Healthy,
        started: "2026-11-21T03:12:44.120Z".parse().unwrap(),
        now: "2026-11-21T06:04:10.512Z".parse().unwrap(),
        uptime: age(10_286_392),
        driver: Some(DriverReport {
            state: DriverStatus::Ready,
            name: text("demo.csi.example.com"),
            vendor_version: text("v2.4.1"),
            endpoint: "unix:///run/csi/socket".to_owned(),
            since: age(5_112_000),
            last_error: None,
            capabilities: [
                "CONTROLLER_SERVICE",
                "PUBLISH_UNPUBLISH_VOLUME",
                "PUBLISH_READONLY",
                "LIST_VOLUMES",
                "LIST_VOLUMES_PUBLISHED_NODES",
                "SINGLE_NODE_MULTI_WRITER",
                "UNKNOWN(42)",
            ]
            .map(str::to_owned)
            .to_vec(),
            generation: 2,
            connections: 3,
        }),
        api: Some(ApiReport {
            lost: Some(age(4_000)),
            failures: 2,
            last_error: text("GET /api: no answer within 10s"),
        }),
        readiness: vec![
            ConditionReport { name: "driver".to_owned(), failure: None },
            ConditionReport { name: "caches".to_owned(), failure: None },
        ],
        roles: vec![
            RoleReport {
                lease: text("storage/external-attacher-leader-demo-csi-example-com"),
                leader: text("csi-control-plane-6f7c9d_1f0a9c3e"),
                term: Some(4),
                term_age: Some(age(5_104_000)),
                restarts: 1,
                ..RoleReport::serving("attacher", RoleScope::Cluster)
            },
            RoleReport {
                state: RoleStatus::Standby,
                lease: text("storage/external-attacher-leader-demo-csi-example-com"),
                leader: text("csi-control-plane-58b4dd_77e01b42"),
                last_error: text(
                    "cannot update lease \"external-attacher-leader-demo-csi-example-com\": no answer within 10s",
                ),
                facts: vec![Fact::new("a fact", "that no role tells yet")],
                ..RoleReport::serving("reconciler", RoleScope::Cluster)
            },
        ],
        caches: vec![
            CacheReport {
                kind: "CSINode".to_owned(),
                objects: 48,
                synced: true,
                last_event: Some(age(41_000)),
                relists: 1,
                last_error: None,
            },
            CacheReport {
                kind: "PersistentVolume".to_owned(),
                objects: 1284,
                synced: true,
                last_event: Some(age(1_300)),
                relists: 2,
                last_error: None,
            },
            CacheReport {
                kind: "VolumeAttachment".to_owned(),
                objects: 1279,
                synced: false,
                last_event: Some(age(420)),
                relists: 2,
                last_error: text(
                    "cannot list volumeattachments: forbidden: User \"system:serviceaccount:storage:csi\" cannot list resource",
                ),
            },
        ],
        queues: vec![
            QueueReport {
                name: "csi-attacher-va".to_owned(),
                title: "Volumes to attach and detach".to_owned(),
                depth: 1,
                running: 3,
                delayed: 1,
                failing: 2,
                found: 0,
                oldest_age: Some(age(744_000)),
            },
            QueueReport {
                name: "csi-attacher-pv".to_owned(),
                title: "Volumes to look after".to_owned(),
                depth: 0,
                running: 0,
                delayed: 0,
                failing: 0,
                found: 0,
                oldest_age: None,
            },
        ],
        find: None,
        objects: vec![ObjectReport {
            kind: "VolumeAttachment".to_owned(),
            name: "csi-0c44e1aa97".to_owned(),
            state: text("pvc-1f7e40aa-c2d8 is attached to node-a, claim shop/orders"),
            handle: None,
            last_error: None,
        }],
        objects_total: 1,
        done: vec![DoneReport {
            role: "attacher".to_owned(),
            queue: "csi-attacher-va".to_owned(),
            key: "csi-4d1e".to_owned(),
            subject: text("pvc-5a77 on node-c"),
            what: "attached".to_owned(),
            at: "2026-11-21T06:01:58Z".parse().unwrap(),
            took: age(1_240),
            attempts: 1,
        }],
        work: Vec::new(),
        work_total: 0,
        work_failing: 0,
        work_states: WorkCounts::default(),
        tasks: ["app.csi", "app.diagnostics", "app.upkeep", "attacher.drift", "attacher.resync"]
            .map(str::to_owned)
            .to_vec(),
        task_failures: vec![TaskFailureReport {
            at: "2026-11-21T04:38:55Z".parse().unwrap(),
            task: "attacher.drift".to_owned(),
            fate: "panicked: index out of bounds".to_owned(),
        }],
        task_failures_total: 1,
        configuration: Some(ConfigurationReport {
            source: "/etc/csi-control-plane/config.yaml".to_owned(),
            since: age(3_600_000),
            changes: 1,
            last_changed: vec!["telemetry.logs.level".to_owned()],
            refused: Some(RefusedReport {
                because: RefusedBecause::Faults,
                summary: "it has 1 fault".to_owned(),
                since: age(65_000),
                faults: vec![FaultReport {
                    key: "csi.timeout".to_owned(),
                    found: "15".to_owned(),
                    allowed: "a number with its unit".to_owned(),
                    origin: text("/etc/csi-control-plane/config.yaml:3"),
                }],
            }),
        }),
        warnings: vec!["OTEL_PROPAGATORS: b3 is not supported (tracecontext, baggage, none)".to_owned()],
        tables: vec![TableReport::new(
            "provisioner",
            &CAPACITY,
            vec![
                vec!["fast".into(), "zone=a".into(), 5_368_709_120_usize.into(), 3_usize.into(), age(21_000).0.into()],
                vec!["fast".into(), "zone=b".into()],
            ],
            1,
        )],
    };
    let items = vec![
        work(
            "csi-2f1b0cbb1e6c0a7a2c9d41d7a8b1fe6f2d9f61b6f5f1e4c3a2b1d0e9f8a7b6c5",
            Some("pvc-0b1c9e7d-53a1 on node-a"),
            "attach",
            740_200,
            7,
            Some(38_400),
            false,
            Some(
                "rpc error: code = Internal desc = volume vol-0b1c9e7d is still attached to node ip-10-0-3-77.eu-west-1.compute.internal; wait for the detach to complete",
            ),
        ),
        work(
            "csi-9a3d77e0c1",
            Some("pvc-88f02c11-a9e4 on node-b"),
            "detach",
            61_000,
            2,
            None,
            true,
            Some("rpc error: code = DeadlineExceeded desc = context deadline exceeded"),
        ),
        work("csi-0c44e1aa97", Some("pvc-1f7e40aa-c2d8 on node-a"), "attach", 4_310, 0, None, true, None),
        work("csi-51be03d2f8", Some("pvc-6a3b90ce-77b1 on node-c"), "attach", 2_050, 0, None, true, None),
        work("csi-77aa10c3ee", None, "attach", 310, 0, None, false, None),
    ];
    report.take_work(items, None, 200);
    report.overall = judge(&report);
    report
}

#[test]
fn json_uses_camel_case_and_seconds() {
    let json = serde_json::to_value(demo()).unwrap();
    assert_eq!(json["overall"], "degraded");
    assert_eq!(json["uptimeSeconds"], 10286.392);
    assert_eq!(json["driver"]["vendorVersion"], "v2.4.1");
    assert_eq!(json["roles"][0]["termAgeSeconds"], 5104.0);
    assert_eq!(json["work"][0]["nextTrySeconds"], 38.4);
    assert_eq!((&json["formatVersion"], &json["workTotal"]), (&2.into(), &5.into()));
    let states = serde_json::json!({"running": 3, "waiting": 1, "backingOff": 1, "delayed": 0});
    assert_eq!(json["workStates"], states, "they add up to the total");
    let row = serde_json::json!({
        "class": "fast", "segment": "zone=a", "capacityBytes": 5_368_709_120_u64, "asked": 3, "askedSeconds": 21.0, "lastError": null,
    });
    assert_eq!(json["tables"][0]["rows"][0], row, "typed, and under the columns' names");
    assert_eq!(serde_json::from_value::<StatusReport>(json).unwrap(), demo());
}

#[test]
fn ages_are_written_as_kubectl_writes_them() {
    let cases: [(u64, &str); 8] = [
        (0, "0s"),
        (999, "999ms"),
        (9_960, "9.9s"),
        (59_999, "59s"),
        (61_000, "1m1s"),
        (3_600_000, "1h0m"),
        (86_399_000, "23h59m"),
        (90_000_000, "1d1h"),
    ];
    for (millis, words) in cases {
        assert_eq!(Age(Duration::from_millis(millis)).to_string(), words);
    }
}

#[test]
fn rows_with_an_error_come_first() {
    const TABLE: Table =
        Table { name: "t", title: "t", columns: &[Column::count("n", "n"), Column::error("lastError", "last error")] };
    let rows =
        [None, Some("no"), None].into_iter().enumerate().map(|(n, error)| vec![n.into(), error.into()]).collect();
    let table = TableReport::new("r", &TABLE, rows, 2);
    let first: Vec<&Cell> = table.rows.iter().map(|row| &row["n"]).collect();
    assert_eq!((first, table.rows_total), (vec![&Cell::Number(1), &Cell::Number(0)], 3));
}

/// The path of each field below `value`, with the names of its types: `work[].ageSeconds`, `number`. The cells of a table have
/// names and types that its columns tell.
fn shape(value: &serde_json::Value, path: &str, found: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    use serde_json::Value as Json;
    let kind = match value {
        Json::Null => "null",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "number",
        Json::String(text) if text.parse::<jiff::Timestamp>().is_ok() => "time",
        Json::String(_) => "text",
        Json::Array(_) => "list",
        Json::Object(_) => "object",
    };
    found.entry(path.to_owned()).or_default().insert(kind);
    if let Json::Array(items) = value {
        for item in items {
            shape(item, &format!("{path}[]"), found);
        }
    } else if let (Json::Object(fields), true) = (value, path != "tables[].rows[]") {
        let of = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for (name, value) in fields {
            shape(value, &of(name), found);
        }
    }
}

/// What programs may rely on. Who changes a field's name or type raises [`FORMAT_VERSION`] and says so there.
#[test]
fn the_documented_fields_of_status_json_are_all_there_with_their_types_and_no_others() {
    let (mut found, mut bare) = (BTreeMap::new(), demo());
    bare.driver = None;
    bare.api = None;
    bare.roles[0].failure = Some("no answer".to_owned());
    bare.configuration = None;
    bare.find = Some("x".to_owned());
    let mut accepted = demo();
    accepted.api = Some(ApiReport::default());
    accepted.configuration.as_mut().unwrap().refused = None;
    for report in [demo(), bare, accepted] {
        shape(&serde_json::to_value(report).unwrap(), "", &mut found);
    }
    // The lists themselves, and the objects in them, are in the paths of their fields.
    found.retain(|path, types| !path.is_empty() && *types != BTreeSet::from(["object"]) && !types.contains("list"));
    let documents = include_str!("../../docs/status.md");
    assert!(
        documents.contains(&format!("`formatVersion` is {FORMAT_VERSION}.")),
        "docs/status.md names another version"
    );
    let fields = documents.split_once("## Fields").unwrap().1.split("\n## ").next().unwrap();
    let rows = fields.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|line| line.split_once("` | "));
    let documented: BTreeMap<&str, &str> =
        rows.map(|(path, rest)| (path, rest.split(" | ").next().unwrap_or_default())).collect();
    for (path, types) in &found {
        let told =
            documented.get(path.as_str()).unwrap_or_else(|| panic!("docs/status.md does not name {path}: {types:?}"));
        let is_told =
            |kind: &&str| told.split(" or null").next() == Some(kind) || told.ends_with(&format!(" or {kind}"));
        assert!(types.iter().all(is_told), "docs/status.md says that {path} is {told}: it is {types:?}");
    }
    let gone: Vec<_> = documented.keys().filter(|path| !found.contains_key(**path)).collect();
    assert!(gone.is_empty(), "docs/status.md names what /status.json does not have: {gone:?}");
}

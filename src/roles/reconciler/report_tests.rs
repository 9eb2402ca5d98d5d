//! What the status page and the metrics tell of orphans.

use super::*;
use crate::cluster::IdKind;
use crate::roles::reconciler::orphans::{HOUR, Item, Unknown};

const DRIVER: &str = "demo.csi.example.com";

/// Findings whose volumes and snapshots were unknown for the given time.
fn findings(volumes: &[Item], snapshots: &[Item], begun: Instant, after: Duration) -> Findings {
    let mut findings = Findings::default();
    for at in [begun, begun + after] {
        let volumes = Unknown::all(IdKind::Volume, DRIVER, volumes.to_vec());
        let snapshots = Unknown::all(IdKind::Snapshot, DRIVER, snapshots.to_vec());
        findings.volumes.compare(at, 7, volumes);
        findings.snapshots.compare(at, 3, snapshots);
    }
    findings
}

fn sized(handle: &str, bytes: u64) -> Item {
    Item { bytes: Some(bytes), ..Item::of(handle.to_owned()) }
}

#[test]
fn the_table_has_the_oldest_first_and_a_snapshot_is_as_old_as_the_driver_says() {
    let (begun, wall): (Instant, Timestamp) = (Instant::now(), "2026-01-03T00:00:00Z".parse().unwrap());
    let volume = Item { name: Some("pvc-1".to_owned()), ..sized("v", 1 << 30) };
    let snapshot = |handle: &str, created: &str| Item { created: Some(created.parse().unwrap()), ..sized(handle, 1) };
    let snapshots = vec![snapshot("old", "2026-01-01T00:00:00Z"), snapshot("future", "2027-01-01T00:00:00Z")];
    let findings = findings(&[volume, Item::of("w".to_owned())], &snapshots, begun, HOUR);
    let now = begun + 2 * HOUR;
    let row = |kind: &str, handle: &str, name: Option<&str>, bytes: Option<u64>, age: Duration| {
        vec![kind.into(), handle.into(), name.into(), bytes.map_or(Cell::Nothing, Cell::Number), age.into()]
    };
    let expected = [
        row("snapshot", "old", None, Some(1), 48 * HOUR),
        row("volume", "v", Some("pvc-1"), Some(1 << 30), 2 * HOUR),
        row("volume", "w", None, None, 2 * HOUR),
        row("snapshot", "future", None, Some(1), 2 * HOUR),
    ];
    assert_eq!(findings.rows(now, wall), expected);
}

#[test]
fn a_line_for_each_kind_says_how_many_there_are_or_why_that_is_not_told() {
    let begun = Instant::now();
    let told =
        |findings: &Findings| findings.facts().into_iter().map(|fact| (fact.name, fact.value)).collect::<Vec<_>>();
    let lines = |volumes: &str, snapshots: &str| {
        vec![
            ("orphaned volumes".to_owned(), volumes.to_owned()),
            ("orphaned snapshots".to_owned(), snapshots.to_owned()),
        ]
    };
    assert_eq!(told(&Findings::default()), lines("not listed yet", "not listed yet"));
    let mut findings = findings(&[sized("v", 1)], &[sized("s", 1)], begun, HOUR);
    assert_eq!(told(&findings), lines("1 of 7", "1 of 3"));
    let unknown = |handles: &[&str]| {
        Unknown::all(IdKind::Volume, DRIVER, handles.iter().map(|handle| Item::of((*handle).to_owned())))
    };
    findings.volumes.compare(begun + HOUR, 7, unknown(&["v", "w"]));
    let mut open = unknown(&["v", "w", "x"]);
    open.claim("uid", true);
    findings.volumes.compare(begun + HOUR + Duration::from_secs(1), 7, open);
    findings.snapshots.cannot_tell("no right".to_owned());
    findings.snapshots.failed("no luck".to_owned());
    let volumes =
        "1 of 7; 1 more are unknown for less than an hour; 1 may be of a request in the journal, and do not count yet";
    assert_eq!(told(&findings), lines(volumes, "not told: no right; the last listing failed: no luck"));
}

#[test]
fn the_metrics_count_each_kind_and_its_bytes_and_are_zero_when_the_term_has_ended() {
    let meter = crate::roles::metrics::meter();
    let gauges = Gauges { meter: meter.clone(), driver: DRIVER.to_owned() };
    let findings =
        findings(&[sized("v", 5), sized("w", 6), Item::of("x".to_owned())], &[sized("s", 7)], Instant::now(), HOUR);
    assert_eq!(gauges.show(&findings, [0, 0]), [3, 1]);
    let figures = |expected: [(&str, &str, u64); 4]| {
        let text = meter.render();
        for (name, kind, value) in expected {
            let line = format!("{name}{{driver_name=\"{DRIVER}\",kind=\"{kind}\"}} {value}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
    };
    let (count, bytes) = ("csi_control_plane_orphans", "csi_control_plane_orphan_bytes");
    figures([(count, VOLUME, 3), (bytes, VOLUME, 11), (count, SNAPSHOT, 1), (bytes, SNAPSHOT, 7)]);
    drop(gauges);
    figures([(count, VOLUME, 0), (bytes, VOLUME, 0), (count, SNAPSHOT, 0), (bytes, SNAPSHOT, 0)]);
}

#[test]
fn what_the_driver_does_not_list_is_said() {
    let told = |published, volumes| {
        let lists = Lists { published, volumes, snapshots: false };
        facts(lists, None, &Failing::default(), Instant::now()).into_iter().map(|fact| fact.name).collect::<Vec<_>>()
    };
    assert_eq!(told(true, true), [""; 0]);
    assert_eq!(told(false, true), ["drift"]);
    assert_eq!(told(false, false), ["idle"]);
}

//! `docs/metrics.md` is generated from the catalogue of metrics: `just docs-update` writes it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use csi_control_plane::roles::metrics::{catalogue, not_here};
use csi_control_plane::roles::resizer;
use csi_control_plane::telemetry::names::{Foreign, Kind, Metric};
use csi_control_plane::telemetry::{Meter, exposition};

/// Asks for the file to be written instead of compared.
const UPDATE: &str = "DOCS_UPDATE";

const HEAD: &str = "\
# Metrics

Made from `src/telemetry/names.rs` and the roles' `metrics.rs`, and kept in step by a test; `just docs-update` writes it.

All are at `/metrics` of `diagnostics.listen`, in the Prometheus text format. Where a Go sidecar or kube-controller-manager has a metric of
the same meaning, ours has its name, labels and buckets, so that dashboards and alerts go on working; the column *Go sidecars* says
which have it. Names that begin with `csi_control_plane_` are ours alone.

A series appears with the first event that it counts: a daemon without claims has no series of claims. Where the driver has taken
an in-tree plugin over, `csi_sidecar_operations_seconds` has one more label, `migrated`: whether the call was for an object of the plugin.
";

/// A counter of Kubernetes that does not end as others do.
const NO_TOTAL: &str = "attach_detach_controller_attachdetach_controller_forced_detaches";

const NOT_HERE: &str = "
## Not here

Metrics of csi-attacher v4.13, csi-provisioner v6.4, csi-resizer v2.3 and csi-snapshotter v8.7 that the daemon does not have. `just cluster parity`
scrapes all four after real work: it compares type, labels and buckets of the metrics that are theirs, and fails if this list
lacks one.

| metric | Go sidecars | why not, or what instead |
|---|---|---|
";

fn row(out: &mut String, name: &str, kind: &str, labels: &str, unit: &str, go: &str, help: &str) {
    let help = help.trim_start_matches("[ALPHA] ").replace('|', "\\|");
    writeln!(out, "| `{name}` | {kind} | {labels} | {unit} | {go} | {help} |").unwrap();
}

fn described(metric: &Metric, out: &mut String) {
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram(_) => "histogram",
    };
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    row(out, metric.name, kind, &labels.join(", "), metric.unit(), metric.of_go_sidecars().unwrap_or(""), metric.help);
}

fn page() -> String {
    const COLUMNS: &str = "\n| metric | type | labels | unit | Go sidecars | meaning |\n|---|---|---|---|---|---|\n";
    let mut text = HEAD.to_owned();
    let (theirs, ours): (Vec<&Metric>, Vec<&Metric>) =
        catalogue().partition(|metric| metric.of_go_sidecars().is_some());
    for (title, metrics) in [("As the Go sidecars have them", theirs), ("Ours", ours)] {
        write!(text, "\n## {title}\n{COLUMNS}").unwrap();
        for metric in metrics {
            described(metric, &mut text);
        }
    }
    write!(text, "\n## The process\n\nAs every Prometheus client library has them; read at each scrape, where there is a `/proc`.\n{COLUMNS}").unwrap();
    let exposed = exposition(&Meter::new());
    let mut help = "";
    for line in exposed.lines() {
        if let Some(told) = line.strip_prefix("# HELP process_") {
            help = told.split_once(' ').unwrap().1;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE process_").and_then(|rest| rest.split_once(' ')) {
            let unit = ["seconds", "bytes"].into_iter().find(|unit| name.contains(unit)).unwrap_or("");
            row(&mut text, &format!("process_{name}"), kind, "", unit, "all (client_golang)", help);
        }
    }
    text.push_str(NOT_HERE);
    for (Foreign { name, why }, sidecars) in not_here() {
        writeln!(text, "| `{name}` | {} | {why} |", sidecars.join(", ")).unwrap();
    }
    text.push_str("\n## Buckets\n\nUpper bounds of the histograms, in their units; each has `+Inf` besides.\n\n| histogram | buckets |\n|---|---|\n");
    for metric in catalogue() {
        if let Kind::Histogram(bounds) = metric.kind {
            let bounds: Vec<String> = bounds.iter().map(ToString::to_string).collect();
            writeln!(text, "| `{}` | {} |", metric.name, bounds.join(", ")).unwrap();
        }
    }
    text
}

#[test]
fn the_page_of_metrics_is_what_the_catalogue_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let wanted = page();
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = wanted.lines().zip(found.lines().chain(std::iter::repeat("(nothing)"))).find(|(a, b)| a != b);
    assert!(found == wanted, "docs/metrics.md is not up to date, {UPDATE}=1 writes it; first difference: {differs:#?}");
}

#[test]
fn every_metric_of_the_page_says_what_it_means() {
    for metric in catalogue() {
        assert!(metric.help.len() > 15, "{}", metric.name);
        let is_total = metric.name.ends_with("_total");
        let is_counter = matches!(metric.kind, Kind::Counter) && metric.name != NO_TOTAL;
        assert_eq!(is_total, is_counter, "{}: counters, and they alone, end so", metric.name);
        if matches!(metric.kind, Kind::Histogram(_)) {
            let is_count = metric.name.ends_with("_entries");
            assert_eq!(metric.unit(), if is_count { "entries" } else { "seconds" }, "{}", metric.name);
        }
        let is_ours = metric.name.starts_with("csi_control_plane_");
        assert_ne!(is_ours, metric.of_go_sidecars().is_some(), "{}: whose is it?", metric.name);
    }
}

/// The name of each work queue, as the metric label `name` has it: the constants of the roles' `names.rs` that are called a queue, and
/// the resizer's, which follows from the driver's name. Also each constant of this kind that stands elsewhere.
fn queues() -> (BTreeSet<String>, Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut queues, mut elsewhere) = (BTreeSet::from([resizer::names::queue("DRIVER")]), Vec::new());
    let mut folders = vec![root.join("src/roles")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let Some((constant, value)) = line.split_once(": &str = ") else { continue };
                if constant.contains("const ") && constant.split([' ', '_']).any(|word| word == "QUEUE") {
                    queues.insert(value.trim_matches(['"', ';']).to_owned());
                    if !path.ends_with("names.rs") {
                        elsewhere.push(format!("{}: {line}", path.display()));
                    }
                }
            }
        }
    }
    (queues, elsewhere)
}

#[test]
fn the_runbook_says_what_each_queue_works_on() {
    let runbook = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md")).unwrap();
    let backlog = runbook.split_once("\n### CsiControlPlaneBacklog\n").unwrap().1.split_once("\n### ").unwrap().0;
    let rows = backlog.lines().filter(|line| line.starts_with("| `"));
    let told: BTreeSet<String> =
        rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    let (queues, elsewhere) = queues();
    assert!(elsewhere.is_empty(), "names of queues stand in the role's names.rs: {elsewhere:#?}");
    assert_eq!(told, queues, "docs/operations.md, the table under CsiControlPlaneBacklog; the queues of names.rs");
}

//! The parts of `benches/compare` that need no cluster: its arithmetic, the sender of each request, and its table.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::arithmetic::{order, percentile, phase, steady_rate};
use crate::counted::{self, Requests};
use crate::report::line::{Target, Unit};
use crate::report::lines::lines;
use crate::report::spread::Spread;
use crate::report::{self, Document};
use crate::run::{Occasion, Run};

fn run(scenario: &str, contender: &str, round: usize, occasion: &str, figures: &[(&str, f64)]) -> Run {
    let figures = figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let [scenario, contender, occasion] = [scenario, contender, occasion].map(str::to_owned);
    Run { scenario, contender, round, occasion, load: Some(0.5), figures }
}

fn is_about(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn a_percentile_of_few_is_the_largest() {
    let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
    assert!(is_about(percentile(&hundred, 50), 51.0));
    assert!(is_about(percentile(&hundred, 99), 100.0));
    assert!(is_about(percentile(&hundred, 100), 100.0));
    assert!(is_about(percentile(&hundred[..5], 50), 3.0));
    assert!(is_about(percentile(&hundred[..30], 99), 30.0));
    assert!(percentile(&[], 50).is_nan());
}

#[test]
fn what_a_throttle_has_saved_up_is_no_part_of_its_rate() {
    // Ten at once, and then two a second.
    let mut ends = vec![1.0; 10];
    ends.extend((1..=40).map(|number| 1.0 + f64::from(number) / 2.0));
    assert!(is_about(steady_rate(&ends).unwrap(), 2.0));
    // A late first one, as all workers begin at once, doesn't count either.
    let ends: Vec<f64> = (0..30).map(|number| 5.0 + f64::from(number) / 1.5).collect();
    assert!(is_about(steady_rate(&ends).unwrap(), 1.5));
    assert_eq!(steady_rate(&[1.0, 2.0, 3.0, 4.0]), None, "four have no fifth");
    assert_eq!(steady_rate(&[1.0; 10]), None, "all at once is no rate");
}

#[test]
fn each_contender_is_the_first_once_in_as_many_rounds_as_there_are_contenders() {
    for count in 1..6 {
        let rounds: Vec<Vec<usize>> = (1..=count).map(|round| order(count, round)).collect();
        let all: BTreeSet<usize> = (0..count).collect();
        assert_eq!(rounds.iter().map(|round| round[0]).collect::<BTreeSet<_>>(), all);
        for round in rounds {
            assert_eq!(round.into_iter().collect::<BTreeSet<_>>(), all);
        }
    }
    assert_eq!([order(3, 1), order(3, 2), order(3, 3)], [[0, 1, 2], [1, 0, 2], [2, 0, 1]]);
}

#[test]
fn leaders_go_in_every_part_of_the_period_and_at_the_same_moments_by_the_same_seed() {
    let period = Duration::from_secs(6);
    let phases: Vec<Duration> = (0..6).map(|number| phase(7, number, 3, period)).collect();
    for (number, phase) in phases.iter().enumerate() {
        let part = Duration::from_secs(2) * u32::try_from(number % 3).unwrap();
        assert!((part..part + Duration::from_secs(2)).contains(phase), "{number}: {phase:?}");
    }
    assert_ne!(phases[0], phases[3]);
    assert_eq!(phases[4], phase(7, 4, 3, period));
    assert_ne!(phases[4], phase(8, 4, 3, period));
}

const METRICS: &str = r#"# HELP apiserver_request_total Counter of apiserver requests
# TYPE apiserver_request_total counter
apiserver_request_total{code="201",component="apiserver",group="",resource="persistentvolumes",scope="resource",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="200",group="",resource="persistentvolumes",subresource="",verb="DELETE"} 5
apiserver_request_total{code="404",group="",resource="persistentvolumes",subresource="",verb="DELETE"} 3
apiserver_request_total{code="200",group="storage.k8s.io",resource="volumeattachments",subresource="status",verb="PATCH"} 1e+01
apiserver_request_total{code="200",group="storage.k8s.io",resource="volumeattachments",subresource="",verb="PATCH"} 4
apiserver_request_total{code="201",group="storage.k8s.io",resource="volumeattachments",subresource="",verb="PATCH"} 2
apiserver_request_total{code="0",group="",resource="persistentvolumes",subresource="",verb="WATCH"} 9
apiserver_request_total{code="200",group="coordination.k8s.io",resource="leases",subresource="",verb="PUT"} 100
apiserver_longrunning_requests{resource="persistentvolumes",verb="WATCH"} 3
apiserver_longrunning_requests{resource="volumeattachments",verb="WATCH"} 2
apiserver_longrunning_requests{resource="pods",verb="CONNECT"} 1
"#;

fn requests(pairs: &[(&str, f64)]) -> Requests {
    pairs.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect()
}

#[test]
fn requests_are_counted_by_verb_resource_and_failure() {
    let expected = requests(&[
        ("DELETE persistentvolumes", 5.0),
        ("DELETE persistentvolumes → 404", 3.0),
        ("PATCH volumeattachments", 6.0),
        ("PATCH volumeattachments/status", 10.0),
        ("POST persistentvolumes", 7.0),
    ]);
    assert_eq!(counted::requests(METRICS, &["persistentvolumes", "volumeattachments"]), expected);
    assert!(is_about(counted::watches(METRICS), 5.0));
}

#[test]
fn our_own_request_that_failed_is_taken_from_those_that_failed() {
    let key = counted::key("DELETE", "/api/v1/persistentvolumes", "");
    let own = Requests::from([(key.clone(), 1.0), (counted::failed(&key, 404), 3.0)]);
    let others = counted::others(counted::requests(METRICS, &["persistentvolumes"]), &own);
    assert!(is_about(others["DELETE persistentvolumes"], 4.0));
    assert!(is_about(others["DELETE persistentvolumes → 404"], 0.0));
    assert!(is_about(others["POST persistentvolumes"], 7.0));
}

#[test]
fn writes_are_told_from_reads_and_events_and_conflicts_from_other_failures() {
    for (request, is_write, is_conflict) in [
        ("PATCH persistentvolumeclaims/status", true, false),
        ("PATCH persistentvolumeclaims/status → 409", true, true),
        ("DELETE persistentvolumes → 404", true, false),
        ("GET persistentvolumeclaims", false, false),
        ("LIST persistentvolumeclaims", false, false),
        ("POST events", false, false),
        ("PATCH events", false, false),
    ] {
        assert_eq!((counted::is_write(request), counted::is_conflict(request)), (is_write, is_conflict), "{request}");
    }
}

#[test]
fn a_collection_and_its_subresource_have_the_metrics_names() {
    let collection = "/apis/storage.k8s.io/v1/namespaces/kube-system/csistoragecapacities";
    assert_eq!(counted::key("LIST", collection, ""), "LIST csistoragecapacities");
    assert_eq!(
        counted::key("PATCH", "/apis/storage.k8s.io/v1/volumeattachments", "/status"),
        "PATCH volumeattachments/status"
    );
}

#[test]
fn only_what_came_since_counts() {
    let (before, now) =
        (requests(&[("GET a", 2.0), ("GET b", 1.0)]), requests(&[("GET a", 5.0), ("GET b", 1.0), ("GET c", 4.0)]));
    assert_eq!(counted::since(now, &before), requests(&[("GET a", 3.0), ("GET c", 4.0)]));
}

#[test]
fn a_spread_is_median_and_range() {
    let spread = |values: &[f64]| Spread::of(values.iter().copied());
    let of = |median, least, most, count| Spread { median, least, most, count };
    assert_eq!(spread(&[]), None);
    assert_eq!(spread(&[3.0, 1.0, 2.0]), Some(of(2.0, 1.0, 3.0, 3)));
    assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some(of(2.5, 1.0, 4.0, 4)));
    let (a, b) = (of(5.0, 4.0, 6.0, 3), of(2.0, 1.0, 3.0, 2));
    assert_eq!(a.plus(b), of(7.0, 5.0, 9.0, 2));
    assert_eq!(a.minus(b), of(3.0, 1.0, 5.0, 2), "least of one less most of the other");
}

#[test]
fn a_target_is_met_by_the_ratio_by_ours_or_by_the_worst_of_ours() {
    let ours = Spread { median: 2.0, least: 1.0, most: 4.0, count: 3 };
    for (target, met, told) in [
        (Target::AtLeast(1.5), Some(true), "≥ 1.5×"),
        (Target::AtLeast(1.6), Some(false), "≥ 1.6×"),
        (Target::AtMost(1.5), Some(true), "≤ 1.5×"),
        (Target::AtMost(1.4), Some(false), "≤ 1.4×"),
        (Target::Ours(2.0), Some(true), "≤ 2 s"),
        (Target::Worst(0.0), Some(false), "0, each"),
        (Target::Worst(4.0), Some(true), "≤ 4 s, each"),
        (Target::Worst(3.9), Some(false), "≤ 3.9 s, each"),
        (Target::None, None, ""),
    ] {
        assert_eq!(target.is_met(ours, 1.5), met, "{target:?}");
        assert_eq!(target.told(Unit::Seconds), told);
        assert_eq!(target.is_one(), met.is_some());
    }
}

fn document() -> Document {
    let occasion = |command: &str| Occasion { command: command.to_owned(), ..Occasion::default() };
    let occasions = BTreeMap::from([
        ("2026-01-01 10:00:00".to_owned(), occasion("just compare --one")),
        ("2026-01-02 10:00:00".to_owned(), occasion("just compare --two")),
    ]);
    let theirs = [("attach.rate", 2.0), ("attach.cut_after_s", 20.0), ("detach.rate", 3.0), ("detach.wanted", 50.0)];
    let ours = |rate| [("attach.rate", rate), ("detach.rate", 300.0), ("detach.wanted", 500.0)];
    let kill = |contender, took| run("failover-kill", contender, 1, "2026-01-02 10:00:00", &[("took_s", took)]);
    let runs = vec![
        run("burst-500-0ms", "csi-attacher", 1, "2026-01-01 10:00:00", &theirs),
        run("burst-500-0ms", "csi-control-plane", 1, "2026-01-01 10:00:00", &ours(310.0)),
        run("burst-500-0ms", "csi-control-plane", 2, "2026-01-01 10:00:00", &ours(290.0)),
        kill("csi-attacher-tuned", 14.0),
        kill("csi-control-plane", 12.0),
        kill("csi-control-plane", 17.0),
    ];
    Document { occasions, runs }
}

#[test]
fn a_line_says_what_it_is_of() {
    let document = document();
    let table = report::table::figures(&document, &lines(&document.runs));
    let has = |line: &str| assert!(table.lines().any(|one| one == line), "no {line:?} in\n{table}");
    has("| attach of 500, defaults | 2/s, cut after 20 s | 300/s (290/s – 310/s) | 150× | ≥ 150× | met | 1 / 2 a |");
    has("| detach of 500, defaults | 3/s, 50 of them | 300/s | 100× | ≥ 150× | **missed** | 1 / 2 a |");
    has(
        "| fail-over, SIGKILL of the leader | 14.0 s | 14.5 s (12.0 s – 17.0 s) | 1.04× | ≤ 16.0 s, each | **missed** | 1 / 2 b |",
    );
    let told = report::table::occasions(&document);
    assert!(told.contains("**a**: 2026-01-01 10:00:00 UTC") && told.contains("`just compare --two`"), "{told}");
}

#[test]
fn the_resizers_burst_and_what_it_adds_to_the_other_roles_have_their_lines() {
    const OCCASION: &str = "2026-01-01 10:00:00";
    let burst = |contender, rate, conflicts| {
        let figures = [("expand.rate", rate), ("expand.writes_each", 3.0), ("expand.conflicts", conflicts)];
        run("resize-burst-500-0ms", contender, 1, OCCASION, &figures)
    };
    let idle = |scenario, contender, rss, watches| {
        run(scenario, contender, 1, OCCASION, &[("rss_bytes", rss), ("watches", watches)])
    };
    let runs = vec![
        burst("csi-resizer", 1.6, 0.0),
        burst("csi-resizer-tuned", 200.0, 24.0),
        burst("csi-control-plane", 240.0, 0.0),
        idle("resize-idle-1000", "csi-resizer-tuned", 60e6, 4.0),
        idle("both-idle-1000", "csi-control-plane", 20e6, 6.0),
        idle("both-idle-1000", "csi-control-plane-with-resizer", 21e6, 7.0),
    ];
    let document = Document { occasions: BTreeMap::from([(OCCASION.to_owned(), Occasion::default())]), runs };
    let table = report::table::figures(&document, &lines(&document.runs));
    for line in [
        "| expand of 500, defaults | 1.6/s | 240/s | 150× | ≥ 40× | met | 1 a |",
        "| expand of 500, tuned | 200/s | 240/s | 1.20× | ≥ 1× | met | 1 a |",
        "| writes per expansion, Events aside, burst of 500, tuned | 3 | 3 | 1.00× | ≤ 3, each | met | 1 a |",
        "| conflicts of a burst of expansions of 500, tuned | 24 | 0 | 0.00× | 0, each | met | 1 a |",
        "| RSS of a further role, the resizer beside the three, idle with 1000 volumes | 60.0 MB | 1 MB | 0.02× | ≤ 2 MB | met | 1 a |",
        "| watch streams of a further role, the resizer beside the three, idle with 1000 volumes | 4 | 1 | 0.25× | ≤ 1 | met | 1 a |",
    ] {
        assert!(table.lines().any(|one| one == line), "no {line:?} in\n{table}");
    }
}

#[test]
fn the_sidecar_of_a_nodes_pod_has_its_lines_and_a_quoted_figure_counts_as_measured_no_time() {
    const OCCASION: &str = "2026-01-01 10:00:00";
    let figures = [("rss_bytes", 12.4e6), ("anonymous_bytes", 1.2e6), ("first_ms", 19.5), ("binary_bytes", 23.2e6)];
    let runs = vec![run("node", "csi-control-plane", 1, OCCASION, &figures)];
    let document = Document { occasions: BTreeMap::from([(OCCASION.to_owned(), Occasion::default())]), runs };
    let table = report::table::figures(&document, &lines(&document.runs));
    for line in [
        "| RSS of the sidecar of a node's pod; theirs: livenessprobe v2.19 alone, quoted and not measured | 19.0 MB | 12.4 MB | 0.65× | ≤ 8 MB | **missed** | 1 a |",
        "| RSS of the sidecar of a node's pod, without what is mapped from its binary | – | 1.2 MB | – |  |  | 1 a |",
        "| start of the sidecar of a node's pod to its registration socket | – | 19.5 ms | – | ≤ 100 ms | met | 1 a |",
        "| binary of the sidecar of a node's pod | – | 23.2 MB | – |  |  | 1 a |",
    ] {
        assert!(table.lines().any(|one| one == line), "no {line:?} in\n{table}");
    }
}

#[test]
fn a_scenario_that_is_measured_anew_takes_the_old_ones_place_and_forgets_its_occasion() {
    let mut document = document();
    document.occasions.insert("2026-01-03 10:00:00".to_owned(), Occasion::default());
    let new = |contender| run("failover-kill", contender, 1, "2026-01-03 10:00:00", &[("took_s", 13.0)]);
    document.put(vec![new("csi-attacher-tuned"), new("csi-control-plane")]);
    let names: Vec<&str> = document.occasions.keys().map(String::as_str).collect();
    assert_eq!(names, ["2026-01-01 10:00:00", "2026-01-03 10:00:00"]);
    assert_eq!(document.runs.len(), 5);
}

#[test]
fn results_of_before_there_were_occasions_can_be_read() {
    let text = r#"{"machine": {"cores": 2, "processor": "x", "memory_bytes": 1, "kernel": "6", "programs": [], "load": 14.5},
        "command": "just compare", "runs": [{"scenario": "start", "contender": "csi-attacher", "round": 1, "figures": {"first_ms": 160.0}}]}"#;
    let document: Document = serde_json::from_str(text).unwrap();
    assert!(is_about(document.runs[0].figures["first_ms"], 160.0));
    assert!(document.occasions.is_empty() && document.runs[0].load.is_none());
}

#[test]
fn a_table_goes_between_its_marks() {
    let text = "before\n<!-- compare: begin -->\nold\n<!-- compare: end -->\nafter\n";
    let put = report::readme::between(text, "new\n").unwrap();
    assert_eq!(put, "before\n<!-- compare: begin -->\nnew\n\n<!-- compare: end -->\nafter\n");
    assert_eq!(report::readme::between("no marks", "new\n"), None);
}

#[test]
fn the_published_results_can_be_read_and_every_run_has_its_occasion() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/compare/results");
    let document = Document::read(&folder);
    assert!(!document.runs.is_empty());
    for run in &document.runs {
        assert!(document.occasions.contains_key(&run.occasion), "{} of {} has none", run.scenario, run.contender);
    }
    let table = std::fs::read_to_string(folder.join("table.md")).unwrap();
    let (occasions, figures) =
        (report::table::occasions(&document), report::table::figures(&document, &lines(&document.runs)));
    assert!(table.starts_with(&(occasions + &figures)), "`just compare --report` writes it");
}

/// Both documents have what `just compare` would write into them: every row of the front page was measured.
#[test]
fn the_documents_hold_the_published_results() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = Document::read(&root.join("benches/compare/results"));
    let all = lines(&document.runs);
    let front = report::front::front(&document, &all);
    assert_eq!(front.lines().filter(|line| line.starts_with("| ")).count(), 1 + 9, "{front}");
    assert!(!front.contains("not measured"), "{front}");
    let aimed: Vec<_> = all.into_iter().filter(|line| line.target.is_one()).collect();
    for (file, figures) in
        [(report::readme::FRONT, front), (report::readme::BENCHES, report::table::figures(&document, &aimed))]
    {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let wanted = report::readme::between(&text, &figures);
        assert!(wanted.as_ref() == Some(&text), "{file}: `just compare --report` writes it");
    }
}

#[test]
fn the_front_page_prefers_the_comparison_with_all_four_sidecars() {
    const OCCASION: &str = "2026-01-01 10:00:00";
    let idle = |scenario: &str, contender: &str, rss: f64| run(scenario, contender, 1, OCCASION, &[("rss_bytes", rss)]);
    let two = vec![
        idle("both-idle-1000", "csi-attacher-tuned", 50e6),
        idle("both-idle-1000", "csi-provisioner-tuned", 60e6),
        idle("both-idle-1000", "csi-control-plane", 14e6),
    ];
    let four = ["attacher", "provisioner", "resizer", "snapshotter"].map(|name| format!("csi-{name}-tuned"));
    let four = four.iter().map(|name| idle("all-idle-1000", name, 55e6));
    let all = [two.clone(), four.collect(), vec![idle("all-idle-1000", "csi-control-plane", 20e6)]].concat();
    for (runs, row) in [
        (two, "| memory, idle, 1000 volumes | attacher, provisioner | 110 MB | 14.0 MB | 1 | 2026-01-01 |"),
        (all, "| memory, idle, 1000 volumes | all four | 220 MB | 20.0 MB | 1 | 2026-01-01 |"),
        (Vec::new(), "| memory, idle, 1000 volumes | – | not measured | not measured | – | – |"),
    ] {
        let all = lines(&runs);
        let document = Document { occasions: BTreeMap::from([(OCCASION.to_owned(), Occasion::default())]), runs };
        let front = report::front::front(&document, &all);
        // Whether a row is too old today is another test's.
        assert!(front.replace('†', "").lines().any(|line| line == row), "no {row:?} in\n{front}");
    }
}

/// What the benches' table must have: a line for each target, and in the whole table each figure that has none.
#[test]
fn every_target_has_its_line_in_the_benches_readme_and_every_figure_one_in_the_table() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let (readme, table) = (read("benches/README.md"), read("benches/compare/results/table.md"));
    let columns = |line: &str| line.split('|').map(|column| column.trim().to_owned()).collect::<Vec<_>>();
    for (figure, target) in [
        ("attach of 500, defaults", "≥ 150×"),
        ("detach of 500, defaults", "≥ 150×"),
        ("attach of 500, tuned", "≥ 1×"),
        ("attach of 500, tuned, the finalizer is there; theirs without", "≥ 1.35×"),
        ("detach of 500, tuned", "≥ 1.6×"),
        ("one attach on an idle server: p50", "≤ 0.7×"),
        ("duplicate publish calls, burst of 500, tuned", "0, each"),
        ("CPU per attach, burst of 500, tuned", "≤ 0.4×"),
        ("RSS, idle with 0 volumes, defaults", "≤ 0.3×"),
        ("RSS, idle with 1000 volumes, defaults", "≤ 0.3×"),
        ("RSS of a further role, the reconciler beside the attacher, idle with 1000 volumes", "≤ 2 MB"),
        ("RSS of a further role, the provisioner beside both, idle with 1000 volumes", "≤ 2 MB"),
        ("watch streams, both roles beside both sidecars, idle with 1000 volumes", "≤ 8"),
        ("binary", "≤ 0.25×"),
        ("start to first attach", "≤ 0.5×"),
        ("fail-over, SIGTERM of the leader", "≤ 1 s, each"),
        ("fail-over, SIGKILL of the leader", "≤ 16.0 s, each"),
        ("connections cut in a burst: attaches lost", "0, each"),
        ("connections cut in a burst: detaches lost", "0, each"),
    ] {
        let line = readme.lines().map(columns).find(|line| line.get(1).is_some_and(|it| it == figure));
        let line = line.unwrap_or_else(|| panic!("benches/README.md has no line of {figure:?}"));
        assert_eq!(line[5], target, "{figure}");
        assert!(["met", "**missed**"].contains(&line[6].as_str()), "{line:?}");
    }
    let figures: BTreeSet<String> = table.lines().map(columns).filter_map(|line| line.get(1).cloned()).collect();
    for burst in ["500", "5000", "500, driver takes 200ms", "5000, driver takes 200ms"] {
        for figure in [
            format!("attach of {burst}, defaults"),
            format!("attach of {burst}, tuned: p50"),
            format!("attach of {burst}, tuned: p99"),
            format!("detach of {burst}, tuned"),
            format!("CPU per attach, burst of {burst}, tuned"),
            format!("peak RSS, burst of {burst}, tuned"),
        ] {
            assert!(figures.contains(&figure), "the table has no line of {figure:?}");
        }
    }
    for count in [0, 1_000, 10_000] {
        for figure in
            [format!("RSS, idle with {count} volumes, tuned"), format!("open watches, idle with {count} volumes")]
        {
            assert!(figures.contains(&figure), "the table has no line of {figure:?}");
        }
    }
    for request in ["PATCH persistentvolumes", "PATCH volumeattachments", "PATCH volumeattachments/status"] {
        let counted = |line: Vec<String>| line.len() > 4 && line[1] == "attach" && line[2] == request;
        assert!(table.lines().map(columns).any(counted), "nobody has counted {request}");
    }
    assert!(root.join("benches/compare/results/chart.svg").exists());
}

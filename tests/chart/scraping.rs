//! A real Prometheus scrapes a running daemon: the scrape succeeds, and queries have results.
//!
//! ```text
//! sandbox --keep (daemon, API, driver) <── scrape ── prometheus with the chart's rules <── queries ── this test
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use csi_control_plane::process::Dial;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{interval, timeout};

use crate::chart::watching;
use crate::http;
use crate::programs;

/// The bound of any single wait on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);

/// Looks until `look` finds something.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        let mut ticks = interval(LOOK);
        loop {
            ticks.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("waited in vain: {what}"))
}

/// Reads lines until one has this in front of an address, and goes on reading: nobody's pipe may fill up.
async fn address(output: impl AsyncBufRead + Unpin + Send + 'static, before: &str) -> SocketAddr {
    let mut lines = output.lines();
    let found = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some((_, rest)) = line.split_once(before) {
                let end = rest.find([' ', '/']).unwrap_or(rest.len());
                return rest[..end].parse().unwrap();
            }
        }
        panic!("it ended without an address");
    };
    let address = timeout(PATIENCE, found).await.expect("an address");
    #[expect(clippy::disallowed_methods, reason = "ends with the process that writes")]
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    address
}

/// The sandbox, whose daemon attaches, fails, recovers and goes on; and where its diagnostics are.
async fn daemon() -> (Child, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_csi-control-plane"));
    command.args(["sandbox", "--keep"]).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let address = address(output, "status page      http://").await;
    (child, address)
}

/// Has the sandbox end in order: it takes its folder with it.
async fn stop(mut sandbox: Child) {
    let id = sandbox.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &id]).status().await.unwrap().success());
    assert!(timeout(PATIENCE, sandbox.wait()).await.expect("it stops").unwrap().success());
}

/// A Prometheus that scrapes this target every second as the chart's `PodMonitor` has it labelled, with the chart's rules.
async fn prometheus(folder: &TempDir, target: SocketAddr) -> (Child, SocketAddr) {
    let labels = json!({"namespace": "storage", "pod": "storage-0", "container": "csi-control-plane"});
    let config = json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [watching::rule_file(folder)],
        "scrape_configs": [{"job_name": "csi-control-plane",
            "static_configs": [{"targets": [target.to_string()], "labels": labels}]}],
    });
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, config.to_string()).unwrap();
    let argument = |name: &str, path: &Path| format!("--{name}={}", path.display());
    let mut command = Command::new(programs::find("prometheus"));
    command
        .args([argument("config.file", &file), argument("storage.tsdb.path", &folder.path().join("data"))])
        .args(["--web.listen-address=127.0.0.1:0", "--log.format=logfmt"])
        .env_clear()
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let output = BufReader::new(child.stderr.take().unwrap());
    let address = address(output, "msg=\"Listening on\" component=web address=").await;
    (child, address)
}

/// The present result of an expression, or Prometheus's error.
async fn ask(prometheus: SocketAddr, expression: &str) -> Result<Vec<Value>, String> {
    let mut query = String::new();
    for byte in expression.bytes() {
        // Writing to a String cannot fail.
        let _ = write!(query, "%{byte:02X}");
    }
    let text = http::get(&Dial::tcp(prometheus), &format!("/api/v1/query?query={query}")).await;
    let answer: Value = serde_json::from_str(&text).map_err(|_| text.clone())?;
    if answer["status"] == "success" && answer["warnings"].is_null() {
        Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default())
    } else {
        Err(format!("{expression}: {text}"))
    }
}

/// What public dashboards for the Go sidecars ask: the names and labels of csi-lib-utils, client-go and `client_golang`.
const OF_GO_DASHBOARDS: [&str; 12] = [
    "histogram_quantile(0.99, sum by (le, method_name) (rate(csi_sidecar_operations_seconds_bucket{driver_name=\"demo.csi.example.com\"}[1m])))",
    "sum by (method_name, grpc_status_code) (csi_sidecar_operations_seconds_count{driver_name=\"demo.csi.example.com\"})",
    "csi_sidecar_operations_seconds_sum{method_name=\"/csi.v1.Controller/ControllerPublishVolume\",grpc_status_code=\"OK\"}",
    "csi_sidecar_operations_seconds_count{grpc_status_code!=\"OK\"}",
    "workqueue_depth{name=\"csi-attacher-va\"}",
    "sum by (name) (workqueue_adds_total)",
    "sum by (name) (workqueue_retries_total)",
    "histogram_quantile(0.5, sum by (le, name) (workqueue_queue_duration_seconds_bucket))",
    "histogram_quantile(0.5, sum by (le, name) (workqueue_work_duration_seconds_bucket))",
    "workqueue_unfinished_work_seconds + workqueue_longest_running_processor_seconds",
    "leader_election_master_status{name=\"external-attacher-leader-demo-csi-example-com\"} == 1",
    "process_resident_memory_bytes and process_cpu_seconds_total and process_start_time_seconds and process_open_fds",
];

/// The expressions with these texts have nothing to show of the sandbox, and why.
const SILENT: [(&str, &str); 20] = [
    ("csi_control_plane_role_restarts_total", "only a fault of ours would make it appear"),
    ("csi_control_plane_volumes_resumed_total", "no leader before this one had begun anything"),
    ("csi_control_plane_volumes_reclaimed_total", "no claim goes while its volume is being made"),
    ("controller_persistentvolume_delete_failed_total", "every deletion succeeds"),
    (
        "(Create|Delete)Volume\",grpc_status_code!=\"OK\"",
        "and so does every call; what fails in the story fails before one",
    ),
    ("csi_control_plane_claim_change_errors_total", "every expansion and modification of the demo succeeds"),
    ("csi_control_plane_snapshot_errors_total", "every snapshot of the demo succeeds"),
    ("csi_control_plane_registrar_refusals_total", "the kubelet of the demo registers the driver at once"),
    ("csi_control_plane_snapshots_resumed_total", "no leader before this one had asked for a snapshot"),
    ("csi_control_plane_snapshots_orphaned_total", "nobody removes a content by force"),
    ("csi_control_plane_config_reloads_total", "the sandbox has no file"),
    ("csi_control_plane_trace_spans_total", "nor a collector"),
    ("csi_control_plane_cache_unreadable", "every kind can be read"),
    ("csi_control_plane_driver_object_misfit", "and the demo's CSIDriver object fits"),
    ("csi_volume_health_status_writes_dropped_total", "the sandbox's API stores the health of claims"),
    ("csi_volume_health_unknown_condition_total", "the demo driver knows no other kinds of faults than we do"),
    ("csi_control_plane_rpc_concurrency_limit", "the demo's driver takes all calls that it gets"),
    ("attachdetach_controller", "the demo plays the attach/detach controller itself"),
    ("storage_count_attachable_volumes_in_use", "the same"),
    ("csi_control_plane_attach_detach_", "the same"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_scrapes_the_daemon_and_every_rule_and_panel_evaluates() {
    let folder = TempDir::new().unwrap();
    let (sandbox, target) = daemon().await;
    let (_prometheus, prometheus) = prometheus(&folder, target).await;
    let up = async || ask(prometheus, "up == 1").await.ok().filter(|found| found.len() == 1);
    eventually("the target is up", up).await;

    // As the scrape goes on, all that such dashboards ask for is there.
    for expression in OF_GO_DASHBOARDS {
        let asked = async || ask(prometheus, expression).await.unwrap();
        eventually(expression, async || Some(asked().await).filter(|found| !found.is_empty())).await;
    }
    let labels = ask(prometheus, "csi_sidecar_operations_seconds_count").await.unwrap();
    let own = ["__name__", "driver_name", "method_name", "grpc_status_code"];
    let of_target = ["namespace", "pod", "container", "job", "instance"];
    let expected: BTreeSet<&str> = own.into_iter().chain(of_target).collect();
    for series in &labels {
        let found: BTreeSet<&str> = series["metric"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, expected);
    }

    let rules =
        async || -> Value { serde_json::from_str(&http::get(&Dial::tcp(prometheus), "/api/v1/rules").await).unwrap() };
    let judged = async || {
        let groups = rules().await["data"]["groups"].as_array().cloned().unwrap();
        let all: Vec<Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
        let is_judged = all.iter().all(|rule| rule["health"] != "unknown");
        (!all.is_empty() && is_judged).then_some(all)
    };
    let judged = eventually("every rule is evaluated", judged).await;
    assert!(judged.len() >= 10, "{judged:#?}");
    for rule in &judged {
        assert_eq!(rule["health"], "ok", "{rule:#}");
    }

    // Panels about the sandbox's acts take a while to have data, panels about other faults stay empty, all others must have data.
    let told = async |panel: &str| {
        let everything = panel.replace("$__rate_interval", "1m").replace("$namespace", ".*").replace("$pod", ".*");
        Some(ask(prometheus, &everything).await.unwrap()).filter(|found| !found.is_empty())
    };
    let is_silent = |panel: &&String| SILENT.iter().any(|(text, _)| panel.contains(text));
    let (silent, speaking): (Vec<String>, Vec<String>) = watching::shown().into_iter().partition(|it| is_silent(&it));
    for panel in &speaking {
        eventually(panel, async || told(panel).await).await;
    }
    for panel in &silent {
        assert_eq!(told(panel).await, None, "no longer silent: {panel}");
    }
    for (text, _) in SILENT {
        assert!(silent.iter().any(|panel| panel.contains(text)), "no panel has {text}");
    }
    stop(sandbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promtool_has_nothing_to_say_against_a_real_scrape() {
    let (sandbox, target) = daemon().await;
    let led = "leader_election_master_status{name=\"external-attacher-leader-demo-csi-example-com\"} 1";
    let scrape = eventually("a scrape of a daemon that leads and has attached", async || {
        let text = http::get(&Dial::tcp(target), "/metrics").await;
        (text.contains(led) && text.contains("/csi.v1.Controller/ControllerPublishVolume")).then_some(text)
    });
    let scrape = scrape.await;
    let mut child = std::process::Command::new(programs::find("promtool"))
        .args(["check", "metrics"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(scrape.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success() && told.is_empty(), "{told}");
    stop(sandbox).await;
}

//! Kubernetes' own External Storage suite, the one that drivers are certified with, on the nodes of `tests/node`: `just kubernetes-suite`.
//!
//! ```text
//! ginkgo ── e2e.test, several processes ── claims, pods, snapshots ──> API server, three nodes in two zones
//!    └── report.json ──> report.md          the chart: our daemon, with --sidecars the Go sidecars, or both in turn, beside the demo driver
//! ```
//!
//! - `options` is what the caller wants: which specs, with which controllers.
//! - `setting` describes the driver to the suite, and the cluster to the lab; `host_path` does so for csi-driver-host-path, if the caller
//!   has it.
//! - `turns` kills the daemon while specs run, and puts the Go sidecars in its place, and back.
//! - `report` counts what the suite says: which specs apply, pass and fail, and why the others are not run.
//!
//! Report and result are in `kubernetes-suite` of the target folder. When the specs are over, nothing may be left at the driver, and no
//! mount and no device on a node. The records are judged if the controllers are ours, and shown if some are the Go sidecars.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::node::lab::Lab;
use crate::programs;
use options::{Controllers, Options};
use report::Report;
use setting::Driver;

mod host_path;
mod options;
mod report;
mod setting;
mod turns;

#[tokio::test]
async fn every_spec_of_kubernetes_own_suite_that_applies_passes() {
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    let wanted = std::env::var("KUBERNETES_SUITE").unwrap_or_default();
    let options = Options::parse(&wanted).unwrap_or_else(|told| panic!("just kubernetes-suite {wanted}: {told}"));
    let results = results();
    // A report of an earlier run is none of this one.
    let _ = std::fs::remove_dir_all(&results);
    std::fs::create_dir_all(&results).unwrap();

    let driver = Driver::given();
    let mut lab = Lab::start_as(|folder| driver.plan(folder, &options)).await;
    setting::complete(&lab, &driver, &options).await;
    let begun = Instant::now();
    let specs = async {
        let mut report = ginkgo(&lab, &driver, &options, &results, false).await;
        if driver.waits_for_pods()
            && options.focus.as_ref().is_none_or(|focus| setting::AT_ONCE.contains(focus.as_str()))
        {
            report = report.and(ginkgo(&lab, &driver, &options, &results, true).await);
        }
        report
    };
    let report =
        if options.controllers == Controllers::Turns { turns::during(&lab, &driver, specs).await } else { specs.await };
    let mut told = format!("{}\nThat took {} s.\n", report.text(), begun.elapsed().as_secs());
    if options.controllers != Controllers::Daemon {
        let broken = lab.broken_rules_of_others();
        let _ = writeln!(told, "\nThe records break {} rules:\n{}", broken.len(), broken.join("\n"));
    }
    std::fs::write(results.join("report.md"), &told).unwrap();
    println!("{told}");

    driver.nothing_is_left(&lab).await;
    assert!(report.applied() > 0, "no spec was run: {wanted}");
    assert_eq!(report.failed(), 0, "specs failed");
}

/// Where the results are, which stay.
fn results() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("kubernetes-suite")
}

/// Runs the specs whose classes may wait for a pod, or those whose class binds at once.
async fn ginkgo(lab: &Lab, driver: &Driver, options: &Options, results: &Path, at_once: bool) -> Report {
    let name = if at_once { "at-once" } else { "report" };
    let description = results.join(format!("{name}-driver.json"));
    std::fs::write(&description, driver.description(at_once).to_string()).unwrap();
    let mut command = Command::new(programs::find("ginkgo"));
    command.current_dir(results);
    command.args(["--no-color", "--timeout=4h", "--output-dir=."]).arg(format!("--json-report={name}.json"));
    command.args([format!("--procs={}", options.processes), format!("--label-filter={}", options.labels)]);
    // Its program has specs for other things than drivers, too.
    let every = format!(r"\[Driver: {}\]", driver.name());
    if at_once {
        command.arg(format!("--focus={every}.*{}", setting::AT_ONCE));
    } else {
        let focus = options.focus.as_ref().map(|focus| format!(".*{focus}")).unwrap_or_default();
        command.arg(format!("--focus={every}{focus}"));
        command.arg(format!("--skip={}", setting::LEFT_OUT.0));
        if driver.waits_for_pods() {
            command.arg(format!("--skip={}", setting::AT_ONCE));
        }
    }
    command.arg(programs::find("e2e.test")).arg("--");
    command.args(["--provider=skeleton".to_owned(), format!("--num-nodes={}", lab.machines.len())]);
    command.arg(format!("--kubeconfig={}", lab.cluster.admin_kubeconfig().display()));
    command.arg(format!("--kubectl-path={}", programs::find("kubectl").display()));
    command.arg(format!("--storage.testdriver={}", description.display()));
    let succeeded = tokio::process::Command::from(command).status().await.unwrap().success();
    let text = std::fs::read_to_string(results.join(format!("{name}.json"))).expect("ginkgo's report");
    let report = Report::of(&serde_json::from_str(&text).unwrap(), setting::LEFT_OUT);
    assert!(succeeded || report.failed() > 0, "ginkgo failed, and no spec did");
    report
}

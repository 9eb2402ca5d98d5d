//! The daemon beside the Go sidecars: same server, same driver, same run. `just compare`.
//!
//! ```text
//! arguments   what to run                      stage      a real control plane, and whose requests are whose
//! contender   who is measured                  timeline   when each object began, was done and was gone
//! workload    what is to be done               kernel     CPU time and memory of a process
//! scenarios   how it is measured               report     results.json, table.md, chart.svg
//! plan        how long it will take
//! ```
//!
//! A contender, a workload and a scenario know nothing of each other's kinds: another sidecar is one more
//! [`contender::Contender`], its work one more [`workload::Workload`].

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench fails by panicking, reports by printing, and counts far below 2^52"
)]

#[path = "../../tests/cluster/accounts.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests")]
mod accounts;
mod arguments;
mod bare;
mod contender;
#[path = "../../tests/cluster/control_plane.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests")]
mod control_plane;
mod kernel;
mod plan;
#[path = "../../tests/cluster/programs.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests")]
mod programs;
mod report;
mod scenarios;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod timeline;
#[path = "../../tests/cluster/tls.rs"]
mod tls;
#[path = "../../tests/cluster/wire.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests")]
mod wire;
mod workload;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use arguments::Arguments;
use contender::Contender;
use scenarios::Scenario;
use stage::Stage;
use workload::Workload;

/// Figures by name, such as `attach.rate`. Units: seconds are `_s`, milliseconds `_ms`, bytes `_bytes`.
pub(crate) type Figures = BTreeMap<String, f64>;

/// What one contender did in one scenario, once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) scenario: String,
    pub(crate) contender: String,
    pub(crate) round: usize,
    pub(crate) figures: Figures,
}

fn main() {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("{text}");
            std::process::exit(64);
        }
    };
    if arguments.only_plan {
        return println!("{}", plan::told(&arguments));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let runs =
        if arguments.only_report { report::read_runs(&arguments) } else { runtime.block_on(compare(&arguments)) };
    println!("{}", report::write(&arguments, &runs));
}

async fn compare(arguments: &Arguments) -> Vec<Run> {
    let contenders = contender::all(arguments);
    let mut runs = if arguments.add { report::read_runs(arguments) } else { Vec::new() };
    for workload in workload::chosen(arguments) {
        for scenario in scenarios::chosen(arguments, workload.as_ref()) {
            let name = format!("{}{}", workload.prefix(), scenario.name());
            runs.retain(|run| run.scenario != name);
            runs.extend(play(arguments, &name, scenario.as_ref(), workload.as_ref(), &contenders).await);
            report::write(arguments, &runs);
        }
    }
    runs
}

/// Those who have something to do in a scenario of a workload.
fn taking<'a>(
    scenario: &dyn Scenario,
    workload: &dyn Workload,
    contenders: &'a [Box<dyn Contender>],
) -> Vec<&'a dyn Contender> {
    contenders.iter().map(AsRef::as_ref).filter(|one| one.does(workload) && scenario.takes(*one)).collect()
}

/// Plays every round of a scenario on one control plane, the contenders in turn.
async fn play(
    arguments: &Arguments,
    name: &str,
    scenario: &dyn Scenario,
    workload: &dyn Workload,
    contenders: &[Box<dyn Contender>],
) -> Vec<Run> {
    let taking = taking(scenario, workload, contenders);
    if taking.is_empty() {
        return Vec::new();
    }
    let stage = Stage::set(workload).await;
    scenario.prepare(&stage, workload).await;
    let mut runs = Vec::new();
    for round in 1..=arguments.rounds {
        let mut order = taking.clone();
        // Whoever comes second finds the server's caches warm.
        if round % 2 == 0 {
            order.reverse();
        }
        for contender in order {
            let mut figures = scenario.run(&stage, workload, contender).await;
            // What was never done has no latency and no cost each, and JSON no word for that.
            figures.retain(|_, value| value.is_finite());
            let told: Vec<String> = figures.iter().map(|(name, value)| format!("{name}={value:.2}")).collect();
            eprintln!("{name} {round} {}: {}", contender.name(), told.join(" "));
            let (scenario, contender) = (name.to_owned(), contender.name().to_owned());
            runs.push(Run { scenario, contender, round, figures });
        }
    }
    runs
}

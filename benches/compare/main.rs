//! The daemon beside the Go sidecars: same server, same driver, same run. `just compare`.
//!
//! ```text
//! arguments   what to run                      stage      a real control plane, and our own requests to it
//! contender   who is measured                  counted    who has sent which request
//! bare        a client that only writes        timeline   when each object began, was done and was gone
//! workload    what is to be done               kernel     CPU time and memory of a process
//! scenarios   how it is measured               machine    what it runs on
//! plan        how long it will take            arithmetic what is computed of moments
//! run         what was measured                report     results.json, table.md, chart.svg
//! write       a write of the bench's own       node       the sidecar of a node's pod, without a control plane
//! trace       which functions ours executes    order      the linker script that puts them first
//! attacher    the bench's own, for who has none
//! ```
//!
//! A contender, a workload and a scenario know nothing of each other's kinds: another sidecar is one more
//! [`contender::Contender`], its work one more [`workload::Workload`]. What is computed without a cluster is tested by
//! `tests/rules/comparison.rs`.

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
mod arithmetic;
mod attacher;
mod bare;
mod contender;
#[path = "../../tests/cluster/control_plane.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests")]
mod control_plane;
mod counted;
mod kernel;
#[path = "../../tests/cluster/kinds.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests")]
mod kinds;
mod machine;
mod node;
mod order;
mod plan;
#[path = "../../tests/cluster/programs.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests")]
mod programs;
mod report;
mod run;
mod scenarios;
mod stage;
#[path = "../support/mod.rs"]
mod support;
mod timeline;
#[path = "../../tests/cluster/tls.rs"]
mod tls;
mod trace;
#[path = "../../tests/cluster/wire.rs"]
#[allow(dead_code, reason = "some of its powers are for the tests")]
mod wire;
mod workload;
mod write;

use csi_control_plane::process::Clock;

use arguments::Arguments;
use contender::Contender;
use report::Document;
use run::{Figures, Occasion, Run};
use scenarios::{Scenario, Scene};
use stage::Stage;
use trace::Traced;
use workload::Workload;

/// The largest burst that a control plane is warmed by.
const WARM: usize = 500;

fn main() {
    let mut arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("{text}");
            std::process::exit(64);
        }
    };
    if arguments.only_plan {
        return println!("{}", plan::told(&arguments));
    }
    let traced = arguments.order.is_some().then(|| Traced::new(&arguments.binary));
    if let Some(traced) = &traced {
        // What it measures is of the emulation.
        (arguments.binary, arguments.results) = (traced.program(), traced.folder().to_owned());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let document = if arguments.only_report {
        Document::read(&arguments.results)
    } else {
        runtime.block_on(compare(&arguments, traced.as_ref()))
    };
    match traced.zip(arguments.order.as_ref()) {
        Some((traced, script)) => traced.write(script),
        None => println!("{}", document.write(&arguments.results, arguments.is_published())),
    }
}

/// Measures all that was asked for, and writes what there is after each scenario.
async fn compare(arguments: &Arguments, traced: Option<&Traced>) -> Document {
    let begin = |scenario: &str| traced.into_iter().for_each(|it| it.begin(scenario));
    let contenders = contender::all(arguments);
    let mut document = if arguments.add { Document::read(&arguments.results) } else { Document::default() };
    let (now, command) = (Clock::system().wall(), arguments.command.clone());
    let binary = machine::digest(&arguments.binary);
    let occasion = Occasion { command, binary, commit: machine::commit(), machine: machine::this() };
    let moment = now.strftime("%Y-%m-%d %H:%M:%S").to_string();
    document.occasions.insert(moment.clone(), occasion);
    eprintln!("seed {}", arguments.seed);
    for workload in workload::chosen(arguments) {
        for scenario in scenarios::chosen(arguments, workload.as_ref()) {
            let taking = taking(scenario.as_ref(), workload.as_ref(), &contenders);
            if !taking.is_empty() {
                begin(&name(scenario.as_ref(), workload.as_ref()));
                document.put(play(arguments, &moment, scenario.as_ref(), workload.as_ref(), &taking).await);
                document.write(&arguments.results, arguments.is_published());
            }
        }
    }
    if node::is_wanted(arguments) {
        begin(node::NAME);
        document.put(node::play(arguments, &moment).await);
        document.write(&arguments.results, arguments.is_published());
    }
    document
}

/// Those who have something to do in a scenario of a workload.
fn taking<'a>(
    scenario: &dyn Scenario,
    workload: &dyn Workload,
    contenders: &'a [Box<dyn Contender>],
) -> Vec<&'a dyn Contender> {
    let takes = |one: &&dyn Contender| {
        one.does(workload)
            && scenario.takes(workload, *one)
            && (scenario.takes_bare() || one.writes(workload).is_none())
    };
    contenders.iter().map(AsRef::as_ref).filter(takes).collect()
}

/// The name of a scenario of a workload.
fn name(scenario: &dyn Scenario, workload: &dyn Workload) -> String {
    format!("{}{}", workload.prefix(), scenario.name())
}

/// Plays every round of a scenario on one control plane, the contenders in turn: whoever comes first finds another server than
/// whoever comes last.
async fn play(
    arguments: &Arguments,
    occasion: &str,
    scenario: &dyn Scenario,
    workload: &dyn Workload,
    taking: &[&dyn Contender],
) -> Vec<Run> {
    let name = name(scenario, workload);
    let stage = Stage::set(workload).await;
    let most = arguments.counts.iter().max().copied().unwrap_or_default();
    bare::warm(&stage, workload, most.min(WARM)).await;
    scenario.prepare(&stage, workload).await;
    let mut runs = Vec::new();
    for round in 1..=arguments.rounds {
        for contender in arithmetic::order(taking.len(), round).into_iter().map(|place| taking[place]) {
            for time in 0..scenario.times() {
                let load = machine::load();
                let nth = (round - 1) * scenario.times() + time;
                let mut figures = scenario.run(Scene { stage: &stage, workload, contender, nth }).await;
                // What was never done has no latency and no cost each, and JSON no word for that.
                figures.retain(|_, value| value.is_finite());
                let told: Vec<String> = figures.iter().map(|(name, value)| format!("{name}={value:.2}")).collect();
                eprintln!("{name} {round} {}: {}", contender.name(), told.join(" "));
                let (scenario, contender) = (name.clone(), contender.name().to_owned());
                runs.push(Run { scenario, contender, round, occasion: occasion.to_owned(), load, figures });
            }
        }
    }
    runs
}

//! How long a comparison will take, before anybody waits for it.

use std::fmt::Write as _;

use crate::arguments::Arguments;
use crate::{contender, name, node, scenarios, taking, workload};

/// A control plane's start and stop, in seconds, for each scenario.
const STAGE: f64 = 12.0;

/// The discarded burst on it.
const WARMING: f64 = 6.0;

/// What would be measured, and how long each of it takes, about: on two quiet cores.
pub(crate) fn told(arguments: &Arguments) -> String {
    let contenders = contender::all(arguments);
    let (mut text, mut all) = (String::new(), 0.0);
    for workload in workload::chosen(arguments) {
        for scenario in scenarios::chosen(arguments, workload.as_ref()) {
            let taking = taking(scenario.as_ref(), workload.as_ref(), &contenders);
            if taking.is_empty() {
                continue;
            }
            let round: f64 = taking.iter().map(|contender| scenario.estimate(*contender)).sum();
            let ready = STAGE + WARMING + scenario.readying() + workload.ground().len() as f64 / 300.0;
            let takes = ready + round * arguments.rounds as f64;
            all += takes;
            let who: Vec<&str> = taking.iter().map(|contender| contender.name()).collect();
            let name = name(scenario.as_ref(), workload.as_ref());
            writeln!(text, "{:>7.1} min  {name}: {}", takes / 60.0, who.join(", ")).unwrap();
        }
    }
    if node::is_wanted(arguments) {
        let takes = node::estimate(arguments);
        all += takes;
        let who: Vec<&str> = node::contenders(arguments).into_iter().map(|(name, _)| name).collect();
        writeln!(text, "{:>7.1} min  {}: {}", takes / 60.0, node::NAME, who.join(", ")).unwrap();
    }
    let _ = write!(text, "{:>7.1} min  in all, {} round(s), about", all / 60.0, arguments.rounds);
    text
}

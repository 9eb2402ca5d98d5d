//! The health of volumes, in simulated time: volumes become unhealthy and heal, claims are deleted and made anew, others write to them,
//! the driver and the API fail, daemons die. Two seeds of three are rough besides: networks are cut, watches are late, the driver is
//! replaced by one of another generation of CSI. The reconciler is beside it in a part of the seeds, and then they share their passes.
//! The invariants are those of node-and-health spec C7.
//!
//! ```text
//! seed ─> Setting ─> Play: TestBed (API, driver, one or two daemons) on sandbox::network, time paused
//!            every commit ─> checks ┐
//!            every call   ─> checks ├─> Checks
//!            the end      ─> unrest ┘
//! ```
//!
//! | invariant | checked at | against |
//! |---|---|---|
//! | I1 | a daemon's write that clears, the Event of a recovery | the driver's answers to that daemon in that term; an answer that may have been lost does not count as the last bad one |
//! | I2 | each call | calls of the same daemon that still run, and whose deadline has not passed |
//! | I3 | each write, Event and question | the claims that a volume of ours names, or did when a late watch was last right |
//! | I4 | each write; half a minute after the end | the claim before; all requests |
//! | I5 | each call, each write | who holds the Lease |
//! | I6 | each write, each Event | the driver's answers to that daemon |
//! | Own | each write | the claim before |
//! | End | the end, within a time that follows from the intervals | what is wrong with the driver's volumes now |
//!
//! What the driver says is true at the moment when it decides; it may be late, lost, on several pages, or not there. `mutants` are
//! daemons that break an invariant, one for each.

mod checks;
mod happening;
mod invariants;
mod mutants;
mod objects;
mod play;

use invariants::Rule;
use mutants::Mutant;
use play::{Report, Setting, play};

use crate::logs::Listen;
use crate::smaller::{expect_none, one_seed, play_each, played, seeds};

/// Seeds that found something once, and what.
const FOUND: &[(u64, &str)] = &[(
    18,
    "a leader that could not read the Events of the one before, because the API server had too many requests, never reported the \
     recovery (End)",
)];

/// How many seeds a mutant may outlive.
const LIVES: u64 = 4;

fn play_one(seed: u64, setting: Setting, mutant: Option<Mutant>, listen: Listen) -> (Report, Vec<String>) {
    played(listen, |trace| play(seed, setting, mutant, trace))
}

#[test]
fn claims_say_how_their_volumes_are_and_no_invariant_is_broken_on_the_way() {
    let seeds: Vec<u64> = FOUND.iter().map(|(seed, _)| *seed).chain(seeds()).collect();
    let ([ill, well, events, calls], broken) = play_each("health", &seeds, |seed, listen| {
        let Report { counts: [ill, well, events], calls, broken } = play_one(seed, Setting::of(seed), None, listen).0;
        ([ill, well, events, calls], broken)
    });
    println!(
        "{} seeds of health: written {ill} times that a volume is not healthy, {well} times that it is again; {events} Events, {calls} calls",
        seeds.len()
    );
    expect_none(&broken);
    assert!([ill, well, events].iter().all(|count| *count > 0), "nothing was ever wrong");
}

#[test]
fn each_invariant_of_health_has_a_mutant_that_is_found_out() {
    let broken: Vec<Rule> = Mutant::ALL.iter().map(|mutant| mutant.breaks()).collect();
    let untested: Vec<_> = Rule::ALL.iter().filter(|(rule, _)| !broken.contains(rule)).collect();
    assert!(untested.is_empty(), "nothing shows that these can fail: {untested:?}");
    for mutant in Mutant::ALL {
        let found = (0..LIVES).find_map(|seed| {
            let all = play_one(seed, mutant.setting(), Some(mutant), Listen::No).0.broken;
            all.into_iter().find(|(rule, _)| *rule == mutant.breaks()).map(|(_, what)| (seed, what))
        });
        let (seed, what) = found.unwrap_or_else(|| panic!("{mutant:?} was not found out in {LIVES} seeds"));
        println!("{mutant:?}, seed {seed}: {what:.300}");
    }
}

/// One seed with the daemons' own log: `SIMULATION_SEED=7 cargo test --test simulation -- --nocapture --ignored one_seed_of_health`.
#[test]
#[ignore = "it plays the seed that SIMULATION_SEED names"]
fn one_seed_of_health() {
    let seed = one_seed();
    let (report, lines) = play_one(seed, Setting::of(seed), None, Listen::Aloud);
    println!("{}", lines.join("\n"));
    assert!(report.broken.is_empty(), "seed {seed}, {:?}: {:#?}", Setting::of(seed), report.broken);
}

//! The deterministic simulation: two daemons, an API and a driver in one runtime, one network and one clock; random events
//! and faults; the invariants of the attacher's specification (section 10) checked at every step.
//!
//! ```text
//! seed ─> World, schedule (drawn before anything runs)
//!           └─> Play: Stage (API, driver, two daemons) on sandbox::network, time paused
//!                 every commit ─> commits (I3 I4 I5 I6 I7 I8 I10) ┐
//!                 every call   ─> calls   (I1 I2 I8 I9)           ├─> Trace
//!                 faults end   ─> ending  (I11 I12 I13, R37)      ┘
//! ```
//!
//! One seed is one trace. `just simulate 10000` plays many seeds, `just replay SEED` tells one step by step.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and tells by printing"
)]

mod acts;
mod calls;
mod commits;
mod ending;
mod happening;
mod logs;
mod model;
mod play;
mod seeds;
mod trace;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use logs::Listen;
use play::{Report, play};

/// How many seeds an ordinary test run plays.
const FEW: u64 = 24;
/// How many violations are told before the rest is only counted.
const TOLD: usize = 3;
/// Runtimes at once, each on its own thread.
const THREADS: usize = 2;

#[expect(clippy::disallowed_methods, reason = "the number of seeds is an input of the test run")]
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// Plays seeds side by side, and returns those that broke an invariant.
fn play_all(seeds: &[u64]) -> Vec<Report> {
    let next = AtomicU64::new(0);
    let broken = Mutex::new(Vec::new());
    let (simulated, calls, writes) = (Mutex::new(Duration::ZERO), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(seed) =
                    seeds.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX))
                {
                    let listen = if seed % 8 == 0 { Listen::ForSecrets } else { Listen::No };
                    let report = play(*seed, listen);
                    *simulated.lock().unwrap() += report.simulated;
                    calls.fetch_add(report.calls as u64, Ordering::Relaxed);
                    writes.fetch_add(report.writes, Ordering::Relaxed);
                    if !report.violations.is_empty() {
                        println!("seed {seed}: {}", report.violations[0]);
                        broken.lock().unwrap().push(report);
                    }
                }
            });
        }
    });
    let hours = simulated.into_inner().unwrap().as_secs_f64() / 3600.0;
    println!("{} seeds: {hours:.1} simulated hours, {calls:?} calls, {writes:?} writes", seeds.len());
    let mut broken = broken.into_inner().unwrap();
    broken.sort_by_key(|report| report.seed);
    broken
}

/// Fails with the traces of what broke an invariant.
fn expect_unbroken(broken: &[Report]) {
    for report in broken.iter().take(TOLD) {
        tell(report);
    }
    let seeds: Vec<u64> = broken.iter().map(|report| report.seed).collect();
    assert!(broken.is_empty(), "{} seeds broke an invariant: {seeds:?}; `just replay SEED` tells a trace", seeds.len());
}

fn tell(report: &Report) {
    println!("──── seed {}: the end of its trace", report.seed);
    let from = report.lines.len().saturating_sub(60);
    for line in &report.lines[from..] {
        println!("{line}");
    }
    println!("──── seed {} broke:", report.seed);
    for violation in &report.violations {
        println!("{violation}");
    }
}

#[test]
fn the_invariants_hold_for_every_seed() {
    let (count, from) = (number("SIMULATION_SEEDS").unwrap_or(FEW), number("SIMULATION_FROM").unwrap_or(0));
    let seeds: Vec<u64> = (from..from + count).collect();
    expect_unbroken(&play_all(&seeds));
}

#[test]
fn seeds_that_found_something_once_find_nothing_any_more() {
    let seeds: Vec<u64> = seeds::FOUND.iter().map(|(seed, _)| *seed).collect();
    expect_unbroken(&play_all(&seeds));
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [1, 2, 3] {
        let (one, two) = (play(seed, Listen::No), play(seed, Listen::No));
        let parted = one.lines.iter().zip(&two.lines).find(|(one, two)| one != two);
        assert_eq!(
            (one.fingerprint, one.lines.len()),
            (two.fingerprint, two.lines.len()),
            "seed {seed} parted at {parted:#?}"
        );
    }
}

/// `just replay SEED`: with the daemons' own log.
#[test]
fn one_seed() {
    let Some(seed) = number("SIMULATION_SEED") else { return };
    let report = play(seed, Listen::Aloud);
    for line in &report.lines {
        println!("{line}");
    }
    assert!(report.violations.is_empty(), "seed {seed} broke: {:#?}", report.violations);
}

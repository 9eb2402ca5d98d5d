//! Volumes that follow pods, in simulated time: pods come, move and go, a kubelet on each node mounts what it may, nodes are lost, come
//! back and are set up anew, people and other controllers write, the API fails, daemons die. The attacher is a role of the daemons in a
//! part of the seeds, and the play's own in the others. Two seeds of three are rough besides: networks are cut, and watches are late. The
//! invariants are those of attach-detach spec 18, and the two for which they are made: what is mounted is attached, and what is for one
//! node is mounted on one node.
//!
//! ```text
//! seed ─> Setting ─> Play: TestBed (API, driver, one or two daemons) on sandbox::network, time paused
//!            happening: what people, nodes and the API do
//!            kubelet, attacher: a step now and then ─> mounts ┐
//!            every commit ─> facts (what there is, and since when) ─> checks ├─> Checks
//!            the end      ─> rest                             ┘
//! ```
//!
//! | invariant | checked at | against |
//! |---|---|---|
//! | I1 | each deletion of an attachment | the list of its node at that moment |
//! | I2, I3 | each deletion | what the kubelet said when the daemon last read or wrote the node after the name was out of the list; taints, conditions, and since when no pod wants the volume |
//! | I4 | each attachment that is made | the others of the volume |
//! | I5 | each attachment that is made or deleted, each write of a node | pods, claims and volumes, as a late watch may show them |
//! | I6, Own | each write of a node | the node before; what was attached a late watch ago |
//! | I7 | each attachment that is made; all deletions | the volume; the bodies of requests |
//! | I8 | the end | the order of all requests |
//! | I9 | each write of an attachment | its finalizers before |
//! | I11 | each write | who holds the Lease; what the other controller has made |
//! | I12, End | the end, within a stated time; then half a minute without a request | what pods want now |
//! | Mounted | each write of an attachment, each mount | the attachment; what was taken by force or by hand is not counted |
//! | Alone | each mount | the other mounts |
//!
//! A request that a daemon has sent is done when it arrives, or never; its answer may be late, lost, or an error. A kubelet is as
//! `kubelet` says, and may be slow, begin anew, or not work for minutes. `mutants` are daemons that break an invariant, at least one for
//! each.

mod attacher;
pub(crate) mod checks;
mod facts;
mod happening;
mod invariants;
pub(crate) mod kubelet;
mod mutants;
pub(crate) mod objects;
pub(crate) mod play;
mod rest;

use invariants::Rule;
use mutants::Mutant;
use play::{Report, Setting, play};

use crate::logs::Listen;
use crate::smaller::{expect_none, one_seed, play_each, played, seeds};

/// Seeds that found something once, and what.
const FOUND: &[(u64, &str)] = &[];

/// How many seeds a mutant may outlive.
const LIVES: u64 = 6;

fn play_one(seed: u64, setting: Setting, mutant: Option<Mutant>, listen: Listen) -> (Report, Vec<String>) {
    played(listen, |trace| play(seed, setting, mutant, trace))
}

#[test]
fn volumes_follow_their_pods_and_no_invariant_is_broken_on_the_way() {
    let seeds: Vec<u64> = FOUND.iter().map(|(seed, _)| *seed).chain(seeds()).collect();
    let (counts, broken) = play_each("attachments", &seeds, |seed, listen| {
        let Report { counts, broken } = play_one(seed, Setting::of(seed), None, listen).0;
        (counts, broken)
    });
    let [made, deleted, forced, mounted] = counts;
    println!(
        "{} seeds of attachments: {made} are made and {deleted} deleted, {forced} by force; {mounted} mounts",
        seeds.len()
    );
    expect_none(&broken);
    assert!(counts.iter().all(|count| *count > 0), "nothing ever moved: {counts:?}");
}

#[test]
fn each_invariant_of_attachments_has_a_mutant_that_is_found_out() {
    let broken: Vec<Rule> = Mutant::ALL.iter().flat_map(|mutant| mutant.breaks().iter().copied()).collect();
    let untested: Vec<_> = Rule::ALL.iter().filter(|(rule, _)| !broken.contains(rule)).collect();
    assert!(untested.is_empty(), "nothing shows that these can fail: {untested:?}");
    for mutant in Mutant::ALL {
        let mut missing: Vec<Rule> = mutant.breaks().to_vec();
        for seed in 0..LIVES {
            let all = play_one(seed, mutant.setting(), Some(mutant), Listen::No).0.broken;
            for (rule, what) in all {
                if missing.contains(&rule) {
                    println!("{mutant:?}, seed {seed}: {rule:?}: {what:.300}");
                    missing.retain(|it| *it != rule);
                }
            }
            if missing.is_empty() {
                break;
            }
        }
        assert!(missing.is_empty(), "{mutant:?} was not found out in {LIVES} seeds: {missing:?}");
    }
}

/// One seed with the daemons' own log: `SIMULATION_SEED=7 cargo test --test simulation -- --nocapture --ignored one_seed_of_attachments`.
#[test]
#[ignore = "it plays the seed that SIMULATION_SEED names"]
fn one_seed_of_attachments() {
    let seed = one_seed();
    let (report, lines) = play_one(seed, Setting::of(seed), None, Listen::Aloud);
    println!("{}", lines.join("\n"));
    assert!(report.broken.is_empty(), "seed {seed}, {:?}: {:#?}", Setting::of(seed), report.broken);
}

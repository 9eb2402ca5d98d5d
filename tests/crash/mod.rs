//! Tests that nothing leaks: the daemon is killed at every exchange with the API and with the driver, and the result of
//! its successor is compared with the driver's volumes.
//!
//! ```text
//! scenario ─> play undisturbed ─> every exchange (boundary) ─> before, during, done, after (moment)
//!                                                                   │
//!             for each moment and each way to die: play ─> die ─> people do things ─> successor ─> rest ─> verdict
//! ```
//!
//! Scenarios of pods (`attachments`) have kubelets besides, and are judged by the checks of the simulation, too.
//!
//! All of it runs on a simulated network and clock. So a run that dies at an instant equals the recorded run up to that
//! instant, which is checked, too. `just crash` plays everything, `just crash-one 'SCENARIO' 'MILLISECONDS DEATH'`
//! prints one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test fails by panicking and tells by printing; it measures real time and has inputs of its own"
)]

mod attachments;
mod boundary;
mod broken;
mod cuts;
mod play;
mod scenario;
mod snapshots;
mod verdict;
mod world;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::logs::Listen;
use boundary::{Boundary, Moment, distinct, moments};
use play::{Death, Outcome, play};
use scenario::Scenario;

/// The number of violations that are printed; the rest is only counted.
const TOLD: usize = 3;
/// Runtimes at once, each on its own thread.
const THREADS: usize = 2;
const DEATHS: [Death; 3] = [Death::Killed, Death::Frozen, Death::CutOff];

/// One run to be played.
#[derive(Debug, Clone)]
struct Case {
    scenario: Scenario,
    how: Death,
    deaths: Vec<Moment>,
    /// The exchanges of the recorded run before the last death.
    recorded: Vec<Boundary>,
}

impl Case {
    fn label(&self) -> String {
        let deaths: Vec<String> =
            self.deaths.iter().map(|it| format!("{} ({} ms)", it.label, it.at.as_millis())).collect();
        format!("{}: {:?} at {}", self.scenario.name, self.how, deaths.join(", then at "))
    }

    fn play(&self) -> Outcome {
        let deaths: Vec<Duration> = self.deaths.iter().map(|it| it.at).collect();
        let mut outcome = play(&self.scenario, &deaths, self.how, listen(&self.scenario));
        let last = deaths[deaths.len() - 1];
        let whole = |all: &[Boundary]| all.iter().filter(|it| it.answered < last).cloned().collect::<Vec<_>>();
        let seen = whole(&outcome.boundaries[deaths.len() - 1]);
        if seen != whole(&self.recorded) {
            outcome.wrong.push(format!("not the run that was recorded: {seen:#?}"));
        }
        outcome
    }
}

/// Plays cases side by side, and returns those that broke something.
fn play_all(cases: &[Case]) -> Vec<(Case, Outcome)> {
    let next = AtomicUsize::new(0);
    let broken = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = case.play();
                    if !outcome.wrong.is_empty() {
                        broken.lock().unwrap().push((case.clone(), outcome));
                    }
                }
            });
        }
    });
    let mut broken = broken.into_inner().unwrap();
    broken.sort_by_key(|(case, _)| case.label());
    broken
}

/// Plays a scenario to its end without a death, and returns what the first daemon exchanged.
fn record(scenario: &Scenario, how: Death) -> Vec<Boundary> {
    let mut outcome = play(scenario, &[], how, listen(scenario));
    assert!(outcome.wrong.is_empty(), "{} undisturbed: {:#?}\n{:#?}", scenario.name, outcome.wrong, outcome.lines);
    outcome.boundaries.remove(0)
}

/// Listening to the daemons' log takes half of a run's time.
fn listen(scenario: &Scenario) -> Listen {
    if scenario.has_secret() { Listen::ForSecrets } else { Listen::No }
}

/// The moments at which daemons are to die in this test run.
fn chosen(boundaries: &[Boundary]) -> Vec<Moment> {
    if is_thorough() { moments(boundaries) } else { distinct(boundaries) }
}

/// A death at every moment of a scenario.
fn one_death(scenario: &Scenario, how: Death, recorded: &[Boundary], at: Vec<Moment>) -> Vec<Case> {
    let case = |moment| Case { scenario: scenario.clone(), how, deaths: vec![moment], recorded: recorded.to_vec() };
    at.into_iter().map(case).collect()
}

/// A death at every step of a scenario, and another at every later step of the recovery from it.
fn two_deaths(scenario: &Scenario) -> (usize, Vec<Case>) {
    let steps = |all: &[Boundary]| all.iter().filter(|it| it.is_step()).cloned().collect::<Vec<_>>();
    let (mut boundaries, mut cases) = (0, Vec::new());
    for first in chosen(&steps(&record(scenario, Death::Killed))) {
        let mut outcome = play(scenario, &[first.at], Death::Killed, Listen::No);
        let recorded = outcome.boundaries.remove(1);
        boundaries += steps(&recorded).len();
        for second in chosen(&steps(&recorded)) {
            let deaths = vec![first.clone(), second];
            cases.push(Case { scenario: scenario.clone(), how: Death::Killed, deaths, recorded: recorded.clone() });
        }
    }
    (boundaries, cases)
}

/// Plays the cases and fails with the traces of what was broken.
fn expect_unbroken(what: &str, boundaries: usize, cases: &[Case]) {
    let begun = Instant::now();
    let broken = play_all(cases);
    let took = begun.elapsed();
    let scenarios: BTreeSet<&str> = cases.iter().map(|case| case.scenario.name.as_str()).collect();
    println!(
        "{what}: {} scenarios, {boundaries} boundaries, {} deaths, {} held, in {:.1} s",
        scenarios.len(),
        cases.len(),
        cases.len() - broken.len(),
        took.as_secs_f64()
    );
    for (case, outcome) in broken.iter().take(TOLD) {
        println!("──── {}", case.label());
        println!("{}", outcome.lines.join("\n"));
        println!("──── broke: {:#?}", outcome.wrong);
    }
    let labels: Vec<String> =
        broken.iter().map(|(case, outcome)| format!("{}: {:?}", case.label(), outcome.wrong)).collect();
    assert!(broken.is_empty(), "{} of {} deaths broke something: {labels:#?}", broken.len(), cases.len());
}

/// Whether everything is to be played, as `just crash` does; otherwise what an ordinary test run has time for.
fn is_thorough() -> bool {
    std::env::var_os("CRASH_EVERYTHING").is_some()
}

#[test]
fn a_provision_is_two_writes_one_call_and_a_write_that_tidies_and_a_deletion_two_and_one() {
    let whats = |scenario: &Scenario| -> Vec<String> {
        record(scenario, Death::Killed).into_iter().map(|it| it.what).collect()
    };
    assert_eq!(
        whats(&scenario::immediate()),
        [
            // The first request of a term: a late watch must not show what an earlier one has done.
            "list persistentvolumes",
            "list volumeattachments",
            "list persistentvolumeclaims",
            // The first entry of all.
            "create configmaps",
            "patch configmaps",
            "CreateVolume",
            "create persistentvolumes",
            "create events",
            "patch configmaps"
        ]
    );
    assert_eq!(
        whats(&scenario::deletion()),
        [
            "DeleteVolume",
            // The write of the journal that removes the volume's entry: it comes before the object can go (J8).
            "patch configmaps",
            "delete persistentvolumes",
            "patch persistentvolumes"
        ]
    );
}

#[test]
fn a_snapshot_is_three_writes_and_one_call_and_a_terms_first_deletion_a_list_a_read_a_call_and_a_write() {
    let whats = |scenario: &Scenario| -> Vec<String> {
        record(scenario, Death::Killed).into_iter().map(|it| it.what).collect()
    };
    let write = "patch volumesnapshotcontents";
    assert_eq!(whats(&snapshots::snapshot()), [write, "CreateSnapshot", write, write]);
    // The list is once per term: another content may need the snapshot, and the cache of a new leader may not have it yet.
    let (list, get) = ("list volumesnapshotcontents", "get volumesnapshotcontents");
    assert_eq!(whats(&snapshots::snapshot_deletion()), [list, get, "DeleteSnapshot", write]);
}

#[test]
fn a_pod_costs_attachments_and_a_write_of_its_node_and_its_end_a_look_at_the_node_before_each_deletion() {
    let whats = |scenario: &Scenario| -> Vec<String> {
        let is_own = |what: &String| {
            ["create volumeattachments", "delete volumeattachments"].contains(&what.as_str())
                || what.ends_with(" nodes")
        };
        record(scenario, Death::Killed).into_iter().map(|it| it.what).filter(is_own).collect()
    };
    let (create, delete) = ("create volumeattachments", "delete volumeattachments");
    let (write, read) = ("patch nodes", "get nodes");
    assert_eq!(whats(&attachments::coming()), [create, create, write]);
    // The answer to the write that takes the name out shows what the kubelet uses, and where there is none to take out, a read does.
    assert_eq!(whats(&attachments::going()), [write, delete, write, delete]);
    assert_eq!(whats(&attachments::failing()), [read, delete, delete]);
}

#[test]
fn nothing_leaks_wherever_the_daemon_dies() {
    let deaths = if is_thorough() { &DEATHS[..] } else { &DEATHS[..1] };
    let (mut boundaries, mut cases) = (0, Vec::new());
    for scenario in scenario::all() {
        for how in deaths.iter().filter(|how| scenario.can_die(**how)) {
            let recorded = record(&scenario, *how);
            boundaries += recorded.len();
            cases.extend(one_death(&scenario, *how, &recorded, chosen(&recorded)));
        }
    }
    expect_unbroken("one death", boundaries, &cases);
}

#[test]
fn nothing_leaks_when_the_successor_dies_too() {
    let (mut boundaries, mut cases) = two_deaths(&scenario::immediate_deleted());
    if is_thorough() {
        let cuts =
            [snapshots::snapshot(), snapshots::snapshot_deletion(), snapshots::group(), snapshots::group_deletion()];
        let base = [scenario::immediate(), scenario::deletion(), attachments::coming(), attachments::going()];
        for scenario in base.into_iter().chain(cuts) {
            let (more, deaths) = two_deaths(&scenario);
            boundaries += more;
            cases.extend(deaths);
        }
    }
    expect_unbroken("two deaths", boundaries, &cases);
}

/// The moments at which the death of a daemon leaks something; it breaks nothing else.
fn leaks_of(scenario: &Scenario) -> Vec<String> {
    let recorded = record(scenario, Death::Killed);
    let broken = play_all(&one_death(scenario, Death::Killed, &recorded, moments(&recorded)));
    let mut leaks: Vec<Moment> = Vec::new();
    for (case, outcome) in broken {
        assert!(outcome.wrong.iter().all(|it| it.starts_with("leak:")), "{}: {:#?}", case.label(), outcome.wrong);
        leaks.extend(case.deaths);
    }
    leaks.sort();
    leaks.into_iter().map(|it| it.label).collect()
}

/// From when the driver has done it to when an object says so.
fn from_call_to_write(call: &str, write: &str) -> [String; 3] {
    [format!("{call}/done"), format!("{call}/after"), format!("{write}/before")]
}

/// The test can fail: without the journal, nobody knows of the volume from the moment that it exists to the moment that its
/// object does, and there alone. The Go sidecar always works like this.
#[test]
fn without_durable_intent_a_volume_leaks_between_its_creation_and_its_object() {
    for scenario in [scenario::immediate_deleted(), scenario::on_a_node_deleted()] {
        let scenario = scenario.without_intent();
        let expected = from_call_to_write("CreateVolume", "create persistentvolumes");
        assert_eq!(leaks_of(&scenario), expected, "{}", scenario.name);
    }
}

/// The same of snapshots: without mark and request on the content, nobody knows of what the driver cuts until its handle is stored.
#[test]
fn without_durable_intent_a_snapshot_or_a_group_leaks_between_its_cut_and_its_handle() {
    let exchanges = [
        ("CreateSnapshot", "patch volumesnapshotcontents"),
        ("CreateVolumeGroupSnapshot", "patch volumegroupsnapshotcontents"),
    ];
    for (scenario, (call, write)) in snapshots::unmarked().iter().zip(exchanges) {
        assert_eq!(leaks_of(scenario), from_call_to_write(call, write), "{}", scenario.name);
    }
}

/// `just crash-one`: one death, step by step, with the daemons' own log.
#[test]
#[ignore = "it plays the scenario that CRASH_SCENARIO names: `just crash-one 'SCENARIO' 'MILLISECONDS DEATH'`"]
fn one_crash() {
    let wanted = std::env::var("CRASH_SCENARIO").unwrap_or_else(|_| panic!("which one? `just crash-one 'SCENARIO'`"));
    let at = std::env::var("CRASH_AT").unwrap_or_default();
    let (mut deaths, mut how) = (Vec::new(), Death::Killed);
    for word in at.split_whitespace() {
        match (word.parse(), DEATHS.iter().find(|it| format!("{it:?}") == word)) {
            (Ok(millis), _) => deaths.push(Duration::from_millis(millis)),
            (_, Some(found)) => how = *found,
            _ => panic!("CRASH_AT holds times in milliseconds and a way to die, not {word}"),
        }
    }
    let leaking = [scenario::immediate_deleted(), scenario::on_a_node_deleted()].map(|it| it.without_intent());
    let base = [scenario::all(), leaking.to_vec(), snapshots::unmarked().to_vec()].concat();
    let scenario = base.into_iter().find(|it| it.name == wanted).unwrap_or_else(|| panic!("no scenario {wanted}"));
    let outcome = play(&scenario, &deaths, how, Listen::Aloud);
    println!("{}", outcome.lines.join("\n"));
    println!("{:#?}", outcome.boundaries);
    assert!(outcome.wrong.is_empty(), "{:#?}", outcome.wrong);
}

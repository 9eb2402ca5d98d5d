//! How many writes a burst of claims costs: workers that each record an entry, work, remove it and begin with the next
//! claim, on a simulated clock.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;

use super::*;
use crate::process::Rng;

/// The size of an entry's text.
const ENTRY: usize = 1500;

#[derive(Debug, Clone, Copy)]
struct Burst {
    claims: u32,
    workers: u32,
    /// One request to the API.
    request: Duration,
    /// What a worker does with a durable entry; up to twice as long at random.
    work: Duration,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Cost {
    /// Writes with entries.
    commits: u32,
    /// Writes without.
    tidying: u32,
    reads: u32,
    /// The bytes of keys and texts in writes.
    bytes: usize,
    /// When the last claim was done.
    done: Duration,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Written(usize),
    Shown(usize),
    Worked(u32),
}

fn play(burst: Burst) -> Cost {
    let mut rig = Rig::new();
    let rng = Rng::seeded(1);
    let (mut cost, mut events, mut writes) = (Cost::default(), BinaryHeap::new(), BTreeMap::new());
    let (mut claims, mut owners, mut done) = (0, BTreeMap::new(), 0);
    let mut order = 0_u32;
    let mut begin = |rig: &mut Rig, owners: &mut BTreeMap<u32, u32>| {
        if claims < burst.claims {
            claims += 1;
            let waiter = rig.record(&format!("claim-{claims:05}"), &"x".repeat(ENTRY)).unwrap();
            owners.insert(waiter, claims);
        }
    };
    for _ in 0..burst.workers {
        begin(&mut rig, &mut owners);
    }
    loop {
        let mut timer = None;
        loop {
            let (event, after) = match rig.ledger.next(rig.now) {
                Next::Write(commit) => {
                    let n = commit.segment;
                    cost.commits += u32::from(!commit.set.is_empty());
                    cost.tidying += u32::from(commit.set.is_empty());
                    cost.bytes += commit.set.iter().map(|(key, text)| key.len() + text.len()).sum::<usize>();
                    cost.bytes += commit.remove.iter().map(|key| key.len()).sum::<usize>();
                    assert!(writes.insert(n, commit).is_none(), "two writes to one segment");
                    (Event::Written(n), burst.request)
                }
                Next::Read(n) => {
                    cost.reads += 1;
                    (Event::Shown(n), burst.request)
                }
                Next::WaitUntil(at) => {
                    timer = Some(at);
                    break;
                }
                Next::Idle => break,
            };
            order += 1;
            events.push(Reverse((rig.now + after, order, event)));
        }
        for (waiter, outcome) in rig.ledger.take_settled() {
            outcome.unwrap();
            order += 1;
            let work = burst.work + burst.work.mul_f64(rng.fraction());
            events.push(Reverse((rig.now + work, order, Event::Worked(owners.remove(&waiter).unwrap()))));
        }
        let next = events.peek().map(|Reverse((at, ..))| *at);
        match (next, timer) {
            (Some(next), timer) if timer.is_none_or(|timer| next <= timer) => {}
            (_, Some(timer)) => {
                rig.now = timer;
                continue;
            }
            (_, None) => break,
        }
        let Reverse((at, _, event)) = events.pop().unwrap();
        rig.now = at;
        match event {
            Event::Written(n) => {
                let commit = writes.remove(&n).unwrap();
                rig.store(&commit);
            }
            Event::Shown(n) => drop(rig.show(n)),
            Event::Worked(claim) => {
                rig.remove(&format!("claim-{claim:05}"));
                begin(&mut rig, &mut owners);
                done += 1;
                cost.done = rig.now;
            }
        }
    }
    assert_eq!((done, rig.server.all().len(), rig.ledger.len()), (burst.claims, 0, 0));
    cost
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_burst_of_500_claims_takes_few_writes_whatever_the_speed_of_api_and_driver() {
    let mut table = String::new();
    for (request, work) in
        [(1, 5), (2, 20), (5, 50), (5, 200), (5, 2_000), (5, 10_000), (20, 100), (100, 100), (400, 1_000)]
    {
        let burst = Burst { claims: 500, workers: 100, request: millis(request), work: millis(work) };
        let cost = play(burst);
        let writes = cost.commits + cost.tidying;
        writeln!(table, "request {request} ms, work {work} ms: {cost:?}").unwrap();
        // Journal J5: 1.3 requests per claim, the one that stores the volume included.
        assert!(writes + cost.reads <= 150, "{table}");
        // Journal J6.
        assert!(cost.bytes <= 3 * 500 * ENTRY, "{table}");
        // Workers do not wait for the journal much longer than for its requests: each claim waits for the commit before
        // its own, and for the pace.
        let rounds = 5;
        let ideal = rounds * (2 * burst.work + 2 * burst.request);
        assert!(cost.done <= ideal + rounds * burst.work.max(millis(320)) / 4, "{table}");
    }
}

#[test]
fn a_burst_of_5000_claims_takes_a_tenth_of_a_write_per_claim() {
    for (request, work) in [(5, 50), (5, 500), (5, 2_000)] {
        let cost = play(Burst { claims: 5000, workers: 100, request: millis(request), work: millis(work) });
        assert!(cost.commits + cost.tidying + cost.reads <= 500, "request {request} ms, work {work} ms: {cost:?}");
    }
}

#[test]
fn a_lone_claim_takes_two_writes() {
    let cost = play(Burst { claims: 1, workers: 1, request: millis(5), work: millis(20) });
    assert_eq!((cost.commits, cost.tidying, cost.reads), (1, 1, 0));
    let cost = play(Burst { claims: 20, workers: 1, request: millis(5), work: millis(200) });
    assert_eq!((cost.commits, cost.tidying, cost.reads), (20, 1, 0), "one after the other never wait");
}

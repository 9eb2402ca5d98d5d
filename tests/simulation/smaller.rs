//! What the smaller plays have alike beside their stage: how many seeds they play, and how; and what names their invariants.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Builder;

use crate::logs::{self, Listen};
use crate::trace::Trace;

/// The number of seeds in an ordinary test run.
const SEEDS: u64 = 8;
/// These plays take one in so many of the requested seeds: the play of all roles takes the larger part of the time.
const SHARE: u64 = 4;
/// The number of violations of a seed that are printed.
const TOLD: usize = 4;

/// Names the invariants, each with what holds as far as it is seen in the play.
macro_rules! rules {
    ($($name:ident $holds:literal,)*) => {
        /// Something that must hold.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Rule {
            $(#[doc = $holds] $name,)*
        }

        impl Rule {
            /// All of them.
            pub(super) const ALL: &[(Self, &str)] = &[$((Self::$name, $holds),)*];
        }
    };
}
pub(crate) use rules;

/// The invariants that seeds broke, and how.
pub(crate) type Broken<R> = BTreeMap<u64, Vec<(R, String)>>;

/// The seeds of this test run.
pub(crate) fn seeds() -> Vec<u64> {
    let from = crate::number("SIMULATION_FROM").unwrap_or_default();
    let count = crate::number("SIMULATION_SEEDS").map_or(SEEDS, |seeds| (seeds / SHARE).max(SEEDS));
    (from..from + count).collect()
}

/// The seed that is to be played with the daemons' own log.
pub(crate) fn one_seed() -> u64 {
    crate::number("SIMULATION_SEED").unwrap_or_else(|| panic!("which one? SIMULATION_SEED"))
}

/// Plays one seed on this thread, under paused time. Returns what it has come to, and the lines of its trace.
pub(crate) fn played<R, F: Future<Output = R>>(listen: Listen, play: impl FnOnce(Trace) -> F) -> (R, Vec<String>) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let trace = Trace::new();
        let _listening = logs::listen(listen, &trace);
        (play(trace.clone()).await, trace.all())
    })
}

/// Plays seeds side by side. `play` returns what it has counted and what was broken. Returns the sums of the counts.
pub(crate) fn play_each<R: Debug + Send, const N: usize>(
    what: &str,
    seeds: &[u64],
    play: impl Fn(u64, Listen) -> ([usize; N], Vec<(R, String)>) + Sync,
) -> ([u64; N], Broken<R>) {
    let (next, broken) = (AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    let counts = [const { AtomicU64::new(0) }; N];
    std::thread::scope(|scope| {
        for _ in 0..crate::THREADS {
            scope.spawn(|| {
                let index = || usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
                while let Some(seed) = seeds.get(index()) {
                    let listen = if seed.is_multiple_of(4) { Listen::ForSecrets } else { Listen::No };
                    let (counted, found) = play(*seed, listen);
                    for (count, more) in counts.iter().zip(counted) {
                        count.fetch_add(more as u64, Ordering::Relaxed);
                    }
                    if !found.is_empty() {
                        let told: Vec<(R, String)> = found.into_iter().take(TOLD).collect();
                        println!("{what}, seed {seed}: {:.600}", format!("{told:?}"));
                        broken.lock().unwrap().insert(*seed, told);
                    }
                }
            });
        }
    });
    (counts.map(AtomicU64::into_inner), broken.into_inner().unwrap())
}

/// Fails with what was broken.
pub(crate) fn expect_none<R: Debug>(broken: &Broken<R>) {
    let seeds: Vec<&u64> = broken.keys().collect();
    assert!(broken.is_empty(), "{} seeds broke an invariant: {seeds:?}: {broken:#?}", broken.len());
}

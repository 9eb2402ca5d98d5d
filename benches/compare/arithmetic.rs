//! What is computed of moments: no clock, no randomness but from a seed.

use std::time::Duration;

use csi_control_plane::process::Rng;

/// The value below which `percent` of the sorted values are; the largest where there are too few to tell.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The rate at which a throttle lets objects come to their end, by the sorted seconds at which each did: from the first fifth's last
/// to the last. The first fifth was paid for by what the throttle had saved up, and came late, as every worker began with nothing
/// under way. `None`: too few, or all at once.
pub(crate) fn steady_rate(sorted: &[f64]) -> Option<f64> {
    let (from, to) = (*sorted.get((sorted.len() / 5).checked_sub(1)?)?, *sorted.last()?);
    let count = sorted.len() - sorted.len() / 5;
    (to > from).then(|| count as f64 / (to - from))
}

/// In which order `count` contenders come in a round, which are counted from 1: each is the first once in `count` rounds, and
/// every other round goes the other way round, so that nobody always comes after the same one.
pub(crate) fn order(count: usize, round: usize) -> Vec<usize> {
    let first = round.wrapping_sub(1) % count.max(1);
    let step = |place: usize| if round.is_multiple_of(2) { count - place } else { place };
    (0..count).map(|place| (first + step(place)) % count).collect()
}

/// When in `period` the measurement of this number is begun. `of` in a row share the period out among them, each at random in its
/// part; the same seed gives the same ones to every contender.
pub(crate) fn phase(seed: u64, number: usize, of: usize, period: Duration) -> Duration {
    let fraction = Rng::seeded(seed.wrapping_add(number as u64)).fraction();
    period.mul_f64(((number % of) as f64 + fraction) / of as f64)
}

//! Median and range of a figure over the rounds.

use crate::Run;

/// Median and range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// Of these values. `None`: there are none.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Self { median, least, most })
    }

    /// Both together: at least the least of each, at most the most.
    pub(super) fn plus(self, other: Self) -> Self {
        let (median, least, most) = (self.median + other.median, self.least + other.least, self.most + other.most);
        Self { median, least, most }
    }

    /// What is more than in the other: at least what is certain, at most what may be.
    pub(super) fn minus(self, other: Self) -> Self {
        let (median, least, most) = (self.median - other.median, self.least - other.most, self.most - other.least);
        Self { median, least, most }
    }

    /// Nothing that could be compared.
    pub(super) const NONE: Self = Self { median: f64::NAN, least: f64::NAN, most: f64::NAN };

    /// Of one figure of one contender in one scenario.
    pub(super) fn figure(runs: &[Run], scenario: &str, contender: &str, figure: &str) -> Option<Self> {
        let ours = runs.iter().filter(|run| run.scenario == scenario && run.contender == contender);
        Self::of(ours.filter_map(|run| run.figures.get(figure).copied()))
    }
}

//! Median and range of a figure over the rounds.

use crate::run::Run;

/// Median and range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// Of so many values.
    pub(crate) count: usize,
}

impl Spread {
    /// Of these values. `None`: there are none.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Self { median, least, most, count: values.len() })
    }

    /// Both together: at least the least of each, at most the most.
    pub(crate) fn plus(self, other: Self) -> Self {
        let (median, least, most) = (self.median + other.median, self.least + other.least, self.most + other.most);
        Self { median, least, most, count: self.count.min(other.count) }
    }

    /// What is more than in the other: at least what is certain, at most what may be.
    pub(crate) fn minus(self, other: Self) -> Self {
        let (median, least, most) = (self.median - other.median, self.least - other.most, self.most - other.least);
        Self { median, least, most, count: self.count.min(other.count) }
    }

    /// Nothing that could be compared.
    pub(crate) const NONE: Self = Self { median: f64::NAN, least: f64::NAN, most: f64::NAN, count: 0 };

    /// Of one figure of one contender in one scenario.
    pub(crate) fn figure(runs: &[Run], scenario: &str, contender: &str, figure: &str) -> Option<Self> {
        let ours = runs.iter().filter(|run| run.scenario == scenario && run.contender == contender);
        Self::of(ours.filter_map(|run| run.figures.get(figure).copied()))
    }
}

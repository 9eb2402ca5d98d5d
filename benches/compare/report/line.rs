//! A line of the comparison: a figure of ours beside theirs, its unit, and what is aimed at.

use super::spread::Spread;
use crate::run::Run;

/// A unit, and how a value of it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    Milliseconds,
    Seconds,
    Megabytes,
    Percent,
    Count,
}

impl Unit {
    /// A value, for people.
    pub(crate) fn told(self, value: f64) -> String {
        let number = |value: f64| match value.abs() {
            large if large >= 100.0 => format!("{value:.0}"),
            middle if middle >= 10.0 => format!("{value:.1}"),
            _ => format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
        };
        match self {
            Self::PerSecond => format!("{}/s", number(value)),
            Self::Milliseconds => format!("{} ms", number(value)),
            Self::Seconds => format!("{} s", number(value)),
            Self::Megabytes => format!("{} MB", number(value / 1e6)),
            Self::Percent => format!("{} %", number(value)),
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count => number(value),
        }
    }
}

/// What is aimed at, as our value divided by theirs, or as our value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    Ours(f64),
    /// The same for the worst of ours.
    Worst(f64),
    None,
}

impl Target {
    /// Whether anything is aimed at.
    pub(crate) fn is_one(self) -> bool {
        self != Self::None
    }

    /// Whether it is reached; `None` where nothing is aimed at.
    pub(crate) fn is_met(self, ours: Spread, ratio: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(ratio >= least),
            Self::AtMost(most) => Some(ratio <= most),
            Self::Ours(most) => Some(ours.median <= most),
            Self::Worst(most) => Some(ours.most <= most),
            Self::None => None,
        }
    }

    /// For people.
    pub(crate) fn told(self, unit: Unit) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {least}×"),
            Self::AtMost(most) => format!("≤ {most}×"),
            Self::Ours(most) => format!("≤ {}", unit.told(most)),
            Self::Worst(most) if most <= 0.0 => "0, each".to_owned(),
            Self::Worst(most) => format!("≤ {}, each", unit.told(most)),
            Self::None => String::new(),
        }
    }
}

/// A line of the comparison.
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) scenario: String,
    pub(crate) unit: Unit,
    pub(crate) theirs: Spread,
    pub(crate) ours: Spread,
    pub(crate) target: Target,
    /// Theirs was cut: an object that was never done took longer than its figures say.
    pub(crate) cut: Option<f64>,
    /// They were given fewer objects than we: so many.
    pub(crate) fewer: Option<f64>,
}

impl Line {
    /// Ours divided by theirs.
    pub(crate) fn ratio(&self) -> f64 {
        self.ours.median / self.theirs.median
    }
}

/// A line before its figures are looked up: name, scenario, their contender and figure, our contender and figure, unit, target.
/// Several contenders, with a `+` between them, are summed up.
pub(crate) struct Wanted<'a>(
    pub(crate) String,
    pub(crate) &'a str,
    pub(crate) &'a str,
    pub(crate) &'a str,
    pub(crate) &'a str,
    pub(crate) &'a str,
    pub(crate) Unit,
    pub(crate) Target,
);

/// The line of what is wanted, if both sides were measured.
pub(super) fn looked_up(runs: &[Run], wanted: Wanted<'_>) -> Option<Line> {
    let Wanted(what, scenario, them, theirs, us, ours, unit, target) = wanted;
    let verb = theirs.split('.').next().unwrap_or_default();
    let of = |contender, what: &str| {
        Spread::figure(runs, scenario, contender, &format!("{verb}.{what}")).map(|spread| spread.median)
    };
    let fewer = of(them, "wanted").zip(of(us, "wanted")).filter(|(theirs, ours)| theirs < ours);
    Some(Line {
        what,
        scenario: scenario.to_owned(),
        unit,
        theirs: them
            .split('+')
            .map(|one| Spread::figure(runs, scenario, one, theirs))
            .reduce(|sum, one| Some(sum?.plus(one?)))
            .flatten()?,
        ours: Spread::figure(runs, scenario, us, ours)?,
        target,
        cut: of(them, "cut_after_s"),
        fewer: fewer.map(|(theirs, _)| theirs),
    })
}

//! The catalogue of all metrics that `/metrics` can show.

use super::ROLES;
use crate::telemetry::Meter;
use crate::telemetry::names::{self, Foreign, Metric};

/// Every metric: those of what all roles share, then each role's.
pub fn catalogue() -> impl Iterator<Item = &'static Metric> {
    names::ALL.iter().chain(of_roles())
}

/// A recorder that knows every metric of the catalogue.
pub fn meter() -> Meter {
    Meter::with(of_roles())
}

/// Metrics that only the Go sidecars have, each with those sidecars.
pub fn not_here() -> Vec<(&'static Foreign, Vec<&'static str>)> {
    let mut found: Vec<(&'static Foreign, Vec<&'static str>)> = Vec::new();
    for role in ROLES {
        let Some(sidecar) = role.sidecar else { continue };
        for foreign in role.foreign_metrics.iter().copied().flatten() {
            match found.iter_mut().find(|(known, _)| known.name == foreign.name) {
                Some((_, sidecars)) => sidecars.push(sidecar.name),
                None => found.push((foreign, vec![sidecar.name])),
            }
        }
    }
    found
}

fn of_roles() -> impl Iterator<Item = &'static Metric> + Clone {
    ROLES.iter().flat_map(|role| role.metrics)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::telemetry::names::Kind;

    #[test]
    fn names_are_unique_and_histograms_have_rising_buckets() {
        let names: BTreeSet<_> = catalogue().map(|metric| metric.name).collect();
        assert_eq!(names.len(), catalogue().count());
        for metric in catalogue() {
            if let Kind::Histogram(buckets) = metric.kind {
                assert!(!buckets.is_empty() && buckets.windows(2).all(|w| w[0] < w[1]), "{}", metric.name);
            }
        }
    }

    #[test]
    fn a_histogram_of_a_role_has_its_buckets() {
        let meter = meter();
        for metric in ROLES.iter().flat_map(|role| role.metrics) {
            if let Kind::Histogram(buckets) = metric.kind {
                let labels: Vec<(&'static str, &str)> = metric.labels.iter().map(|label| (*label, "x")).collect();
                meter.histogram(metric, &labels).record(0.2);
                let count = meter.render().matches(&format!("{}_bucket{{", metric.name)).count();
                assert_eq!(count, buckets.len() + 1, "{}", metric.name);
            }
        }
    }
}

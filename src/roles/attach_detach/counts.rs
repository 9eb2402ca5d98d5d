//! How many volumes metrics show: wanted and attached ones by driver, used ones by node. A series that was shown once stays, at zero.

use std::collections::BTreeMap;

use crate::telemetry::names::Metric;

use super::context::Context;
use super::metrics::{IN_USE, TOTAL_VOLUMES};
use super::volume_id::VolumeId;

/// What is shown.
#[derive(Debug, Default)]
pub(super) struct Counts {
    totals: Series,
    in_use: Series,
}

/// By the values of the metric's labels.
type Series = BTreeMap<[String; 2], u32>;

impl Counts {
    /// Counts, and shows it.
    pub(super) fn show(&mut self, cx: &Context) {
        for series in [&mut self.totals, &mut self.in_use] {
            for count in series.values_mut() {
                *count = 0;
            }
        }
        let total = |driver: &str, state: &str| [format!("kubernetes.io/csi:{driver}"), state.to_owned()];
        for id in cx.wanted() {
            *self.totals.entry(total(id.driver(), "desired_state_of_world")).or_default() += 1;
        }
        for held in cx.stores.attachments.all().iter().filter(|held| held.status.attached) {
            *self.totals.entry(total(&held.spec.attacher, "actual_state_of_world")).or_default() += 1;
        }
        for node in cx.stores.nodes.all() {
            for id in node.volumes_in_use.iter().filter_map(|name| VolumeId::of_name(name)) {
                let labels = [node.metadata.name.to_string(), format!("kubernetes.io/csi:{}", id.driver())];
                *self.in_use.entry(labels).or_default() += 1;
            }
        }
        show(cx, &TOTAL_VOLUMES, &self.totals);
        show(cx, &IN_USE, &self.in_use);
    }
}

fn show(cx: &Context, metric: &Metric, series: &Series) {
    for ([one, other], count) in series {
        let labels = [(metric.labels[0], one.as_str()), (metric.labels[1], other.as_str())];
        cx.scope.meter.gauge(metric, &labels).set(f64::from(*count));
    }
}

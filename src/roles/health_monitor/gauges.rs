//! Which claims' volumes metrics show as not healthy. A series that was shown once stays, at zero.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

use crate::cluster::ObjectName;
use crate::telemetry::Meter;

use super::condition::Abnormal;
use super::metrics::HEALTH_STATUS;

/// What is shown of each claim whose volume is not healthy.
#[derive(Debug)]
pub struct Gauges {
    meter: Meter,
    shown: Mutex<BTreeMap<ObjectName, BTreeSet<String>>>,
}

impl Gauges {
    /// Nothing is shown.
    pub fn new(meter: Meter) -> Self {
        Self { meter, shown: Mutex::default() }
    }

    /// Shows how the volume of a claim is. `None`: nothing is wrong with it, or it is gone.
    pub fn show(&self, claim: &ObjectName, abnormal: Option<&Abnormal>) {
        let statuses = abnormal.map(statuses).unwrap_or_default();
        let mut shown = self.shown.lock();
        let before = shown.remove(claim).unwrap_or_default();
        before.difference(&statuses).for_each(|status| self.set(claim, status, 0.0));
        statuses.difference(&before).for_each(|status| self.set(claim, status, 1.0));
        if !statuses.is_empty() {
            shown.insert(claim.clone(), statuses);
        }
    }

    /// The term has ended: the next leader shows it.
    pub fn end(&self) {
        let claims: Vec<_> = self.shown.lock().keys().cloned().collect();
        for claim in &claims {
            self.show(claim, None);
        }
    }

    fn set(&self, claim: &ObjectName, status: &str, value: f64) {
        let namespace = claim.namespace().unwrap_or_default();
        let labels = [("namespace", namespace), ("persistentvolumeclaim", claim.name()), ("status", status)];
        self.meter.gauge(&HEALTH_STATUS, &labels).set(value);
    }
}

fn statuses(abnormal: &Abnormal) -> BTreeSet<String> {
    let mut statuses: BTreeSet<String> = abnormal.kinds.iter().map(|kind| kind.status.to_string()).collect();
    if !abnormal.unknown.is_empty() {
        statuses.insert("Unknown".to_owned());
    } else if statuses.is_empty() {
        statuses.insert("Abnormal".to_owned());
    }
    statuses
}

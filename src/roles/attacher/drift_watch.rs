//! Compares each listing of the driver with the recorded state, and forces the operation for each confirmed drift.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::time::Instant;
use tracing::{debug, warn};

use crate::cluster::VolumeAttachment;
use crate::csi::VolumeListing;
use crate::process::watch;
use crate::queue::Cause;
use crate::roles::kit::look_at_each;

use super::attachment::Attachment;
use super::context::Context;
use super::drift::{Drift, DriftDetector, Record, Reported, mismatch};
use super::progress::Listed;
use super::triggers::Queues;
use super::{metrics, migration};

/// Follows the driver's listings for one term.
pub(super) struct DriftWatch {
    pub(super) cx: Arc<Context>,
    pub(super) queues: Queues,
    /// When the term began.
    pub(super) begun: Instant,
}

impl DriftWatch {
    /// Runs for as long as the term does.
    pub(super) async fn run(self, mut listings: watch::Receiver<Option<Arc<VolumeListing>>>) {
        let mut detector = DriftDetector::of_term(self.begun);
        loop {
            let latest = listings.borrow_and_update().clone();
            if let Some(listing) = latest {
                self.compare(&mut detector, &listing).await;
            }
            if listings.changed().await.is_err() {
                // There will be no more listings. Runs on, because the end of a task counts as a failure.
                std::future::pending::<()>().await;
            }
        }
    }

    /// There may be a hundred thousand records: of those that agree with the listing nothing is kept.
    pub(super) async fn compare(&self, detector: &mut DriftDetector, listing: &VolumeListing) {
        let active = self.active();
        let (mut attachments, mut missing, mut drifts) = (0_usize, BTreeMap::new(), Vec::new());
        let mut comparison = detector.begin(listing);
        look_at_each(self.cx.stores.attachments.own(), |object| {
            let Some(record) = self.record(object, listing, &active) else { return };
            attachments += 1;
            let Some(reported) = mismatch(&record, listing) else { return };
            drifts.extend(comparison.see(&record, reported));
            if reported == Reported::NotPublished {
                missing.insert(record.version.0.clone(), record);
            }
        })
        .await;
        self.note_lost(listing, &missing, &drifts);
        for drift in drifts {
            warn!(
                volume_attachment = drift.name,
                operation = drift.direction.label(),
                driver_says = ?drift.reported,
                "the driver and the recorded state disagree: repeating the operation"
            );
            let labels = [("driver_name", self.cx.rules.driver.as_str()), ("direction", drift.direction.label())];
            self.cx.scope.meter.counter(&metrics::DRIFT, &labels).increment(1);
            if let Some(objects) = self.cx.find(&drift.name) {
                self.queues.wake(&objects.object, Cause::Drift);
            }
        }
        debug!(attachments, suspects = detector.len(), "compared");
    }

    /// Notes the attachments whose volume the driver lists as not published, and forgets those for which this has
    /// changed. `missing`: the records of the former, by uid.
    fn note_lost(&self, listing: &VolumeListing, missing: &BTreeMap<String, Record>, drifts: &[Drift]) {
        let memory = &self.cx.memory;
        memory.change_all(|uid, memory| {
            if memory.listed == Listed::Lost && !missing.contains_key(uid) {
                memory.listed = Listed::Fine;
            }
        });
        let confirmed: BTreeSet<&str> = drifts
            .iter()
            .filter(|drift| drift.reported == Reported::NotPublished)
            .map(|drift| drift.name.as_str())
            .collect();
        for (uid, record) in missing.iter().filter(|(_, record)| confirmed.contains(record.name.as_str())) {
            // A call that began after the records were read is later than the listing. It may begin now, but not before what it intends
            // is remembered, which waits for this.
            let is_later = || self.cx.scope.volume_locks.touched_since(&record.volume_handle, listing.started);
            memory.change(uid, |memory| {
                if !is_later() {
                    memory.listed = Listed::Lost;
                }
            });
        }
    }

    /// The attachments that run or wait for a worker, without those that wait for their back-off.
    fn active(&self) -> BTreeSet<String> {
        self.queues
            .attachments
            .snapshot()
            .into_iter()
            .filter(|item| item.next_run_in.is_none())
            .map(|item| item.key)
            .collect()
    }

    fn record(
        &self,
        object: Arc<VolumeAttachment>,
        listing: &VolumeListing,
        active: &BTreeSet<String>,
    ) -> Option<Record> {
        let objects = self.cx.about(object)?;
        let (volume_handle, node_id) = objects.published_as(&self.cx.rules.driver)?;
        let Attachment { name, uid, direction, attached, .. } = objects.attachment;
        let busy = active.contains(&name) || self.cx.scope.volume_locks.touched_since(&volume_handle, listing.started);
        // Only the listing has the parts of a handle that an in-tree volume lacks.
        let volume_handle = migration::listed_handle(&self.cx.rules.driver, volume_handle, &node_id);
        let version = (uid, objects.object.metadata.resource_version.as_deref().unwrap_or_default().to_owned());
        Some(Record { name, version, direction, volume_handle, node_id, attached, busy })
    }
}

//! One term of the attacher: queues, what feeds them, and the workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::process::watch;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{debug, info, info_span, warn};

use crate::cluster::{BY_NODE, BY_VOLUME, Subscription};
use crate::cluster::{PersistentVolume, VolumeAttachment};
use crate::csi::{Driver, Snapshot};
use crate::election::Term;
use crate::process::{Chain, Tasks};
use crate::queue::{Activation, Cause, Ticket, WorkQueue};
use crate::roles::attacher::names;
use crate::roles::role::{Role, RoleContext, RoleError};
use crate::roles::term::finish;
use crate::roles::{Uids, queues};

use super::attachment::{Attachment, direction_of, epoch_of};
use super::config::AttacherSection;
use super::decide::{Progress, Rules, Step, next_step};
use super::desk::{Desk, Known};
use super::drift::{Drift, Record, Says, Suspects, mismatch};
use super::interest::{self, Wake};
use super::outset::Outset;
use super::report::Reporter;
use super::{NAME, csi, trivial, volumes};

/// Between two tries to learn when the term began: it saves reads, and nothing waits for it.
const OUTSET_PAUSE: Duration = Duration::from_secs(5);

/// The only lane of the volume queue.
const ONLY_LANE: usize = 0;

/// The role.
#[derive(Debug)]
pub(super) struct Attacher {
    pub(super) section: AttacherSection,
    pub(super) known: Known,
}

impl Role for Attacher {
    fn serve<'a>(&'a self, cx: &'a RoleContext, term: Term) -> BoxFuture<'a, Result<(), RoleError>> {
        self.serve_term(cx, term).boxed()
    }
}

/// What a term works with.
#[derive(Clone)]
struct Shift {
    desk: Arc<Desk>,
    attachments: WorkQueue<String>,
    volumes: WorkQueue<String>,
}

impl Attacher {
    async fn serve_term(&self, cx: &RoleContext, term: Term) -> Result<(), RoleError> {
        let begun = cx.clock.now();
        let synced = async {
            self.known.attachments.synced().await;
            self.known.volumes.synced().await;
            self.known.nodes.synced().await;
        };
        if term.unless_over(synced).await.is_err() {
            return Ok(());
        }
        let (tasks, mut ends) = Tasks::new(NAME);
        let shift = self.shift(cx, &term);
        let publishes = cx.driver.capabilities.controller_service() && cx.driver.capabilities.publish_unpublish();
        info!(handler = if publishes { "csi" } else { "trivial" }, "serving attachments");

        let stop = term.stopping();
        let attachments = shift.attachments.run(stop.clone(), {
            let desk = shift.desk.clone();
            move |ticket: Ticket<String>| {
                if publishes {
                    csi::handle(desk.clone(), ticket).boxed()
                } else {
                    trivial::handle(desk.clone(), ticket).boxed()
                }
            }
        });
        let volumes = shift.volumes.run(stop, {
            let desk = shift.desk.clone();
            move |ticket: Ticket<String>| volumes::handle(desk.clone(), ticket).boxed()
        });
        let shown = [
            queues::show(&cx.board, NAME, &shift.attachments, "Volumes to attach and detach", {
                let desk = shift.desk.clone();
                move |name| desk.find(name).map(|objects| objects.subject())
            }),
            queues::show(&cx.board, NAME, &shift.volumes, "Volumes to look after", |_| None),
            cx.board.tasks(tasks.view()),
        ];
        let subscriptions = shift.subscribe(&self.known);
        tasks.spawn("resync", shift.clone().resync());
        if publishes {
            tasks.spawn("outset", shift.clone().find_outset());
        }
        tasks.spawn("drift", shift.clone().watch_drift(cx.driver.clone(), begun));

        let result = finish(futures::future::join(attachments, volumes), &term, &mut ends).await;
        drop(subscriptions);
        drop(shown);
        tasks.abort_all();
        shift.desk.reporter.retire();
        result
    }

    fn shift(&self, cx: &RoleContext, term: &Term) -> Shift {
        let desk = Arc::new(self.desk(cx, term));
        let (section, backoff) = (&self.section, self.section.retry.backoff());
        let lanes = [("attach", section.workers), ("detach", section.detach_workers())];
        let attachments = queues::make(
            cx,
            names::QUEUE_ATTACHMENTS,
            &lanes,
            backoff,
            |key: &String| info_span!(parent: None, "attachment", role = NAME, volume_attachment = %key, operation = Empty),
        );
        let lanes = [("release", section.workers)];
        let volumes = queues::make(
            cx,
            names::QUEUE_VOLUMES,
            &lanes,
            backoff,
            |key: &String| info_span!(parent: None, "volume", role = NAME, persistent_volume = %key),
        );
        Shift { desk, attachments, volumes }
    }

    pub(super) fn desk(&self, cx: &RoleContext, term: &Term) -> Desk {
        let capabilities = &cx.driver.capabilities;
        let rules = Rules {
            driver: cx.driver.name.clone(),
            finalizer: names::finalizer(&cx.driver.name),
            publish_readonly: capabilities.publish_readonly(),
            multi_writer: capabilities.single_node_multi_writer(),
            default_fs_type: self.section.default_fs_type.clone(),
        };
        Desk {
            rules,
            section: self.section.clone(),
            known: self.known.clone(),
            term: term.clone(),
            api: term.fence(cx.api.clone()),
            driver: term.fence(cx.driver.client.clone()),
            operations: cx.driver.operations.clone(),
            events: cx.events.clone(),
            reporter: Reporter::new(cx.meter.clone(), cx.driver.name.clone()),
            clock: cx.clock,
            relisted: tokio::sync::OnceCell::new(),
            confirmed: Uids::default(),
            outset: Outset::default(),
            lost: Uids::default(),
        }
    }
}

impl Shift {
    /// Feeds the queues from the caches. What the caches hold already is replayed first.
    fn subscribe(&self, known: &Known) -> [Subscription; 3] {
        let attachments = known.attachments.subscribe({
            let shift = self.clone();
            move |change| {
                if let Some(object) = change.new.as_deref().or(change.old.as_deref()) {
                    let name = object.metadata.name.as_deref().unwrap_or_default().to_owned();
                    match interest::attachment_wake(change, &shift.desk.rules.driver) {
                        Wake::Now => shift.wake(object, Cause::Changed),
                        Wake::Forget => {
                            shift.attachments.forget(&name);
                            shift.desk.reporter.forget(&name);
                        }
                        Wake::No => {}
                    }
                }
                if let Some(volume) = interest::volume_to_release(change) {
                    shift.wake_volume(volume.to_owned(), Cause::Changed);
                }
            }
        });
        let volumes = known.volumes.subscribe({
            let (shift, attachments) = (self.clone(), known.attachments.clone());
            move |change| {
                let Some(object) = change.new.as_deref().or(change.old.as_deref()) else { return };
                let name = object.metadata.name.as_deref().unwrap_or_default().to_owned();
                match interest::volume_wake(change, &shift.desk.rules) {
                    Wake::Now => shift.wake_volume(name.clone(), Cause::Changed),
                    Wake::Forget => shift.volumes.forget(&name),
                    Wake::No => {}
                }
                if interest::volume_unblocks(change) {
                    shift.wake_unsettled(&attachments.find(BY_VOLUME, &name));
                }
            }
        });
        let nodes = known.nodes.subscribe({
            let (shift, attachments) = (self.clone(), known.attachments.clone());
            move |change| {
                let Some(node) = change.new.as_deref().and_then(|node| node.metadata.name.as_deref()) else { return };
                if interest::node_unblocks(change, &shift.desk.rules.driver) {
                    shift.wake_unsettled(&attachments.find(BY_NODE, node));
                }
            }
        });
        [attachments, volumes, nodes]
    }

    fn wake(&self, object: &VolumeAttachment, cause: Cause) {
        let activation = Activation { cause, lane: direction_of(object).lane(), epoch: epoch_of(object) };
        self.attachments.add(object.metadata.name.as_deref().unwrap_or_default().to_owned(), activation);
    }

    fn wake_volume(&self, name: String, cause: Cause) {
        self.volumes.add(name, Activation { cause, lane: ONLY_LANE, epoch: 0 });
    }

    /// Wakes those of our attachments that are not yet what is wanted.
    fn wake_unsettled(&self, objects: &[Arc<VolumeAttachment>]) {
        for object in objects.iter().filter(|object| object.spec.attacher == self.desk.rules.driver) {
            let attached = object.status.attached;
            if object.metadata.deletion_timestamp.is_some() || !attached {
                self.wake(object, Cause::Changed);
            }
        }
    }

    /// Finds out which version the volumes are at now that the term has begun. Until then, each is read before it is published.
    async fn find_outset(self) {
        while let Ok(api) = self.desk.api.use_now() {
            match api.latest_version::<PersistentVolume>().await {
                Ok(Some(version)) => self.desk.outset.at(version),
                Ok(None) => {}
                Err(error) => {
                    debug!(error = %Chain(&error), "cannot tell yet which volumes are written during the term");
                    tokio::time::sleep(OUTSET_PAUSE).await;
                    continue;
                }
            }
            break;
        }
        // Stays, so that its end is not taken for a failure.
        std::future::pending::<()>().await;
    }

    /// Looks at everything once per interval, in case a wake-up was ever missed. Never cuts a back-off short.
    async fn resync(self) {
        if self.desk.section.resync.is_zero() {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(self.desk.section.resync).await;
            let attachments = self.desk.known.attachments.all();
            debug!(attachments = attachments.len(), "resync");
            for object in attachments.iter().filter(|object| object.spec.attacher == self.desk.rules.driver) {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                let unsettled = self.desk.find(name).is_some_and(|objects| {
                    let done = Progress::default();
                    next_step(&objects.view(&self.desk.rules, false, &done)) != Step::Settled
                });
                if unsettled {
                    self.wake(object, Cause::Resync);
                }
            }
            for volume in self.desk.known.volumes.all() {
                if super::decide::wants_release(&volume, &self.desk.rules) {
                    self.wake_volume(volume.metadata.name.as_deref().unwrap_or_default().to_owned(), Cause::Resync);
                }
            }
        }
    }

    /// Compares each listing of the driver with the record, and forces what is confirmed to have drifted.
    async fn watch_drift(self, driver: Arc<Driver>, begun: Instant) {
        let mut listings: watch::Receiver<Option<Arc<Snapshot>>> = driver.published.subscribe();
        let mut suspects = Suspects::of_term(begun);
        loop {
            let latest = listings.borrow_and_update().clone();
            if let Some(snapshot) = latest {
                let records = self.records(&snapshot);
                let drifts = suspects.compare(&snapshot, &records);
                self.note_lost(&snapshot, &records, &drifts);
                for drift in drifts {
                    warn!(
                        volume_attachment = drift.name,
                        operation = drift.direction.label(),
                        driver_says = ?drift.says,
                        "the driver and the record disagree: doing it again"
                    );
                    self.desk.reporter.drifted(drift.direction);
                    if let Some(objects) = self.desk.find(&drift.name) {
                        self.wake(&objects.object, Cause::Drift);
                    }
                }
                debug!(attachments = records.len(), suspects = suspects.len(), "compared");
            }
            if listings.changed().await.is_err() {
                // No one lists any more; stay, so that the end of this task is not taken for a failure.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Notes which attachments the driver itself says are not there, and forgets those of which it says so no longer.
    fn note_lost(&self, snapshot: &Snapshot, records: &[Record], drifts: &[Drift]) {
        let lost = &self.desk.lost;
        let missing: BTreeMap<&str, &Record> = records
            .iter()
            .filter(|record| mismatch(record, snapshot) == Some(Says::NotPublished))
            .map(|record| (record.version.0.as_str(), record))
            .collect();
        lost.retain(|uid| missing.contains_key(uid.as_str()));
        let confirmed: BTreeSet<&str> =
            drifts.iter().filter(|drift| drift.says == Says::NotPublished).map(|drift| drift.name.as_str()).collect();
        for (uid, record) in missing.into_iter().filter(|(_, record)| confirmed.contains(record.name.as_str())) {
            lost.note(uid);
            // In this order: a call that begins now, or has begun since the records were read, is later than the listing.
            if self.desk.operations.touched_since(&record.volume_handle, snapshot.started) {
                lost.forget(uid);
            }
        }
    }

    /// By name, as the cache has them.
    fn records(&self, snapshot: &Snapshot) -> Vec<Record> {
        let active = self.active();
        let attachments = self.desk.known.attachments.all();
        attachments.into_iter().filter_map(|object| self.record(object, snapshot, &active)).collect()
    }

    /// The attachments that are being worked on or wait for a worker. One that waits for its back-off is not.
    fn active(&self) -> BTreeSet<String> {
        self.attachments.snapshot().into_iter().filter(|item| item.next_run_in.is_none()).map(|item| item.key).collect()
    }

    fn record(&self, object: Arc<VolumeAttachment>, snapshot: &Snapshot, active: &BTreeSet<String>) -> Option<Record> {
        let objects = self.desk.about(object)?;
        let (volume_handle, node_id) = objects.published_as(&self.desk.rules.driver)?;
        let Attachment { name, uid, direction, attached, .. } = objects.attachment;
        let busy = active.contains(&name) || self.desk.operations.touched_since(&volume_handle, snapshot.started);
        let version = (uid, objects.object.metadata.resource_version.as_deref().unwrap_or_default().to_owned());
        Some(Record { name, version, direction, volume_handle, node_id, attached, busy })
    }
}

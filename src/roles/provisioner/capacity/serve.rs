//! One term of the capacity loop: what feeds the queue, and the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, info_span, warn};

use super::book::Book;
use super::desired::{ClassFilter, Item};
use super::desk::{CapacityDesk, Places, Shared};
use super::diff::Style;
use super::hints::{CapacityHintReceiver, Hint};
use super::{labels, owner, refresh};
use crate::cluster::{Change, Object, Subscription};
use crate::diagnostics::Registered;
use crate::process::chain;
use crate::queue::{Activation, Cause, LaneSettings, QueueSettings, Ticket, WorkQueue, epoch_of};
use crate::roles::provisioner::metrics;
use crate::roles::provisioner::names;
use crate::roles::queues;

/// Each poll comes up to this share later than asked for, so that the nodes of a cluster don't ask all at once.
const POLL_JITTER: f64 = 0.1;
/// Between two looks because of volumes made or deleted: a thousand claims of one class ask once a second.
const HINT_PAUSE: Duration = Duration::from_secs(1);
/// Between two looks at the figures.
const COUNT_PAUSE: Duration = Duration::from_secs(1);

const TITLE: &str = "Capacity by segment";
const COLUMNS: &[&str] = &["class", "segment", "#capacity", "#largest volume", "#asked", "!last error"];

/// Keeps the `CSIStorageCapacity` objects of a term until `stop`, and then until what is in flight has ended.
///
/// The caller drops the future when the term is lost. Does nothing but say so if the driver cannot tell its capacity.
///
/// What a driver told that could do so before is left as it is. To the scheduler, a missing object is a place without room
/// (<https://kubernetes.io/docs/concepts/storage/storage-capacity/#scheduling>): without any, no pod of a driver that asks for
/// the check would find a node, while an old figure is at worst refused by the driver and the pod sent elsewhere.
pub async fn run(desk: CapacityDesk, hints: CapacityHintReceiver, stop: CancellationToken) {
    if !desk.has_get_capacity {
        warn!("capacity is enabled, but the driver has no GET_CAPACITY: the scheduler is not told of any");
        let capacities = desk.known.capacities.clone();
        let _shown = show_reason(&desk, move || {
            let off = "off: the driver does not have the capability GET_CAPACITY";
            match capacities.len() {
                0 => off.to_owned(),
                left => format!("{off}; old CSIStorageCapacity objects that are left as they are: {left}"),
            }
        });
        return stop.cancelled().await;
    }
    let synced = async {
        desk.known.classes.synced().await;
        desk.places.synced().await;
        // The watch of a new leader may be behind: what the last one made must be known, or it is made a second time.
        desk.known.capacities.relisted().await;
        find_owner(&desk).await
    };
    let owner = tokio::select! {
        biased;
        () = stop.cancelled() => return,
        owner = synced => owner,
    };
    Shift::new(desk, owner).serve(hints, stop).await;
}

/// The owner of our objects, as soon as the API tells.
async fn find_owner(desk: &CapacityDesk) -> Option<OwnerReference> {
    let (namespace, pod) = (desk.instance.namespace.as_deref(), desk.instance.pod.as_deref());
    let mut shown = None;
    for failures in 1.. {
        // The term is over: nothing will be written.
        let Ok(api) = desk.api.use_now() else { return std::future::pending().await };
        match owner::find(api, namespace, pod, desk.section.owner_level).await {
            Ok(owner) => return owner,
            Err(error) => {
                let text = chain(&error);
                warn!(error = text, "capacity is not told yet: the owner of its objects is not known");
                drop(shown.replace(show_reason(desk, move || text.clone())));
                tokio::time::sleep(desk.backoff.delay(failures, None, desk.entropy.fraction())).await;
            }
        }
    }
    None
}

fn show_reason(desk: &CapacityDesk, reason: impl Fn() -> String + Send + Sync + 'static) -> Registered {
    desk.board.table(desk.role, TITLE, COLUMNS, move || {
        vec![vec!["-".to_owned(), "-".to_owned(), String::new(), String::new(), String::new(), reason()]]
    })
}

/// What a term works with.
#[derive(Clone)]
struct Shift {
    shared: Arc<Shared>,
    queue: WorkQueue<Item>,
    /// Wakes whoever counts.
    changed: Arc<Notify>,
    retired: Arc<AtomicBool>,
}

impl Shift {
    fn new(desk: CapacityDesk, owner: Option<OwnerReference>) -> Self {
        let filter = ClassFilter { driver: desk.driver.clone(), immediate: desk.section.immediate_binding };
        let style = Style {
            namespace: desk.instance.namespace.clone().unwrap_or_default(),
            labels: labels::labels(&desk.driver, desk.places.own_node()),
            owner,
        };
        let role = desk.role;
        let queue = WorkQueue::new(
            QueueSettings {
                name: names::QUEUE_CAPACITY.to_owned(),
                lanes: vec![LaneSettings { name: "capacity".to_owned(), workers: desk.section.workers }],
                backoff: desk.backoff,
                span: Some(Arc::new(
                    move |item: &Item| info_span!(parent: None, "capacity", role, class = %item.class, segment = %item.segment),
                )),
            },
            &desk.meter,
            desk.clock,
            desk.entropy.clone(),
        );
        let shared = Shared::new(desk, Book::new(filter, style));
        Self { shared, queue, changed: Arc::default(), retired: Arc::default() }
    }

    async fn serve(self, hints: CapacityHintReceiver, stop: CancellationToken) {
        let desk = &self.shared.desk;
        let subscriptions = self.subscribe();
        let shown = [
            queues::show(&desk.board, desk.role, &self.queue, "Capacity to ask for", |item| {
                Some(item.segment.to_string())
            }),
            desk.board.table(desk.role, TITLE, COLUMNS, {
                let shared = Arc::clone(&self.shared);
                move || shared.book().rows(shared.desk.clock.now()).into_iter().map(Vec::from).collect()
            }),
        ];
        let items = self.shared.book().desired.len();
        info!(items, "serving capacity");
        let work = self.queue.run(stop, {
            let shift = self.clone();
            move |ticket: Ticket<Item>| {
                let shift = shift.clone();
                async move {
                    let outcome = refresh::handle(Arc::clone(&shift.shared), ticket).await;
                    shift.changed.notify_one();
                    outcome
                }
                .boxed()
            }
        });
        tokio::select! {
            biased;
            () = work => {}
            () = self.poll() => {}
            () = self.hear(hints) => {}
            () = self.count() => {}
        }
        self.retired.store(true, Ordering::Release);
        drop(subscriptions);
        drop(shown);
        // What there is to do now is told by whoever leads.
        self.show([0, 0, 0]);
    }

    /// Feeds the book and the queue from the caches. What they hold already is replayed first, the objects last: until
    /// then nobody can tell which of them are wanted.
    fn subscribe(&self) -> Vec<Subscription> {
        let known = &self.shared.desk.known;
        let classes = known.classes.subscribe({
            let shift = self.clone();
            move |change| {
                let items = shift.shared.book().tell_class(change);
                shift.wake(items, Cause::Changed);
            }
        });
        let mut subscriptions = vec![classes];
        match &self.shared.desk.places {
            Places::Cluster { nodes, csi_nodes } => {
                let shift = self.clone();
                subscriptions.push(nodes.subscribe(move |change| shift.tell_node(change)));
                let shift = self.clone();
                subscriptions.push(csi_nodes.subscribe(move |change| shift.tell_node(change)));
            }
            Places::Local { node, place } => {
                let items = self.shared.book().desired.tell_node(node, Some(place.clone()));
                self.wake(items, Cause::Changed);
            }
        }
        subscriptions.push(known.capacities.subscribe({
            let shift = self.clone();
            move |change| {
                let items = shift.shared.book().tell_object(change);
                shift.wake(items, Cause::Changed);
            }
        }));
        subscriptions
    }

    /// A node or what it says of drivers has changed: the two are looked up together, under the book, so that of two
    /// changes at once the later look sees both.
    fn tell_node<K: Object>(&self, change: &Change<K>) {
        let object = change.new.as_ref().or(change.old.as_ref());
        let Some(node) = object.and_then(|object| object.meta().name.as_deref()) else { return };
        let items = {
            let mut book = self.shared.book();
            let place = self.shared.desk.places.place_of(&self.shared.desk.driver, node);
            book.desired.tell_node(node, place)
        };
        self.wake(items, Cause::Changed);
    }

    fn wake(&self, items: impl IntoIterator<Item = Item>, cause: Cause) {
        if self.retired.load(Ordering::Acquire) {
            return;
        }
        for item in items {
            let epoch = self.epoch_of(&item);
            self.queue.add(item, Activation { cause, lane: 0, epoch });
        }
        self.changed.notify_one();
    }

    /// Another class of the same name has nothing to do with the failures of the one before.
    fn epoch_of(&self, item: &Item) -> u64 {
        epoch_of(self.shared.book().desired.wants(item).and_then(|class| class.metadata.uid.as_deref()))
    }

    /// Looks at everything now and then: capacity changes without anybody telling.
    async fn poll(&self) {
        loop {
            let desk = &self.shared.desk;
            tokio::time::sleep(desk.entropy.jittered(desk.section.poll_interval, POLL_JITTER)).await;
            let items: Vec<Item> = {
                let book = self.shared.book();
                book.desired.all().chain(book.obsolete()).collect()
            };
            self.wake(items, Cause::Resync);
        }
    }

    /// Looks where volumes were made, refused or deleted.
    async fn hear(&self, hints: CapacityHintReceiver) {
        loop {
            let heard = hints.next().await;
            let mut items: Vec<Item> = {
                let book = self.shared.book();
                let of = |hint: &Hint| match hint {
                    Hint::Class(class) => book.desired.of_class(class),
                    Hint::Places(places) => book.desired.touched_by(places),
                };
                heard.iter().flat_map(of).filter(|item| book.desired.wants(item).is_some()).collect()
            };
            items.sort_unstable();
            items.dedup();
            self.wake(items, Cause::Changed);
            tokio::time::sleep(HINT_PAUSE).await;
        }
    }

    /// Shows the figures whenever they may have changed, but not more often than anybody looks.
    async fn count(&self) {
        loop {
            let counts = self.shared.book().counts();
            self.show([counts.goal, counts.current, counts.obsolete]);
            tokio::time::sleep(COUNT_PAUSE).await;
            self.changed.notified().await;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no cluster has 2^52 objects")]
    fn show(&self, counts: [usize; 3]) {
        let gauges = [&metrics::CAPACITY_GOAL, &metrics::CAPACITY_CURRENT, &metrics::CAPACITY_OBSOLETE];
        for (gauge, count) in gauges.into_iter().zip(counts) {
            self.shared.desk.meter.gauge(gauge, &[]).set(count as f64);
        }
    }
}

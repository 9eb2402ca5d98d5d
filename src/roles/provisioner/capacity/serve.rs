//! One term of the capacity loop: what feeds the queue, and the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, info_span, warn};

use super::context::{CapacityContext, Places, Shared};
use super::desired::{ClassFilter, Slot};
use super::diff::ObjectTemplate;
use super::hints::{CapacityHintReceiver, Hint};
use super::index::Index;
use super::{labels, owner, refresh};
use crate::cluster::{Change, Object, Subscription};
use crate::diagnostics::Registered;
use crate::process::error_chain;
use crate::queue::{Activation, Cause, LaneSettings, QueueSettings, Ticket, WorkQueue, epoch_of};
use crate::roles::RoleError;
use crate::roles::kit::queues;
use crate::roles::provisioner::{metrics, names};
use crate::roles::term::panicked;

/// Each poll comes up to this share later than asked for, so that the nodes of a cluster don't ask all at once.
const POLL_JITTER: f64 = 0.1;
/// Between two looks because of volumes made or deleted: a thousand claims of one class ask once a second.
const HINT_PAUSE: Duration = Duration::from_secs(1);
/// Between two looks at the figures.
const COUNT_PAUSE: Duration = Duration::from_secs(1);

const TITLE: &str = "Capacity by segment";
const COLUMNS: &[&str] = &["class", "segment", "#capacity", "#largest volume", "#asked", "!last error"];

/// Keeps the `CSIStorageCapacity` objects of a term until `stop`, and then until what is in flight has ended. `Err`: a subscriber
/// has panicked.
///
/// The caller drops the future when the term is lost. Does nothing but say so if the driver cannot tell its capacity.
///
/// What a driver told that could do so before is left as it is. To the scheduler, a missing object is a place without room
/// (<https://kubernetes.io/docs/concepts/storage/storage-capacity/#scheduling>): without any, no pod of a driver that asks for
/// the check would find a node, while an old figure is at worst refused by the driver and the pod sent elsewhere.
pub async fn run(cx: CapacityContext, hints: CapacityHintReceiver, stop: CancellationToken) -> Result<(), RoleError> {
    if !cx.has_get_capacity {
        warn!("capacity is enabled, but the driver has no GET_CAPACITY: the scheduler is not told of any");
        let capacities = cx.stores.capacities.clone();
        let _shown = show_reason(&cx, move || {
            let off = "off: the driver does not have the capability GET_CAPACITY";
            match capacities.len() {
                0 => off.to_owned(),
                left => format!("{off}; old CSIStorageCapacity objects that are left as they are: {left}"),
            }
        });
        stop.cancelled().await;
        return Ok(());
    }
    let synced = async {
        cx.stores.classes.synced().await;
        cx.places.synced().await;
        // The watch of a new leader may be behind: what the last one made must be known, or it is made a second time.
        cx.stores.capacities.relisted().await;
        find_owner(&cx).await
    };
    let owner = tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        owner = synced => owner,
    };
    Shift::new(cx, owner).serve(hints, stop).await
}

/// The owner of our objects, as soon as the API tells.
async fn find_owner(cx: &CapacityContext) -> Option<OwnerReference> {
    let (namespace, pod) = (cx.instance.namespace.as_deref(), cx.instance.pod.as_deref());
    let mut shown = None;
    for failures in 1.. {
        // The term is over: nothing will be written.
        let Ok(api) = cx.api.use_now() else { return std::future::pending().await };
        match owner::find(api, namespace, pod, cx.section.owner_level).await {
            Ok(owner) => return owner,
            Err(error) => {
                let text = error_chain(&error);
                warn!(error = text, "capacity is not told yet: the owner of its objects is not known");
                drop(shown.replace(show_reason(cx, move || text.clone())));
                tokio::time::sleep(cx.backoff.delay(failures, None, cx.rng.fraction())).await;
            }
        }
    }
    None
}

fn show_reason(cx: &CapacityContext, reason: impl Fn() -> String + Send + Sync + 'static) -> Registered {
    cx.board.table(cx.role, TITLE, COLUMNS, move || {
        vec![vec!["-".to_owned(), "-".to_owned(), String::new(), String::new(), String::new(), reason()]]
    })
}

/// What a term works with.
#[derive(Clone)]
struct Shift {
    shared: Arc<Shared>,
    queue: WorkQueue<Slot>,
    /// Wakes whoever counts.
    changed: Arc<Notify>,
    retired: Arc<AtomicBool>,
}

impl Shift {
    fn new(cx: CapacityContext, owner: Option<OwnerReference>) -> Self {
        let filter = ClassFilter { driver: cx.driver.clone(), immediate: cx.section.immediate_binding };
        let template = ObjectTemplate {
            namespace: cx.instance.namespace.clone().unwrap_or_default(),
            labels: labels::labels(&cx.driver, cx.places.own_node()),
            owner,
        };
        let role = cx.role;
        let queue = WorkQueue::new(
            QueueSettings {
                name: names::QUEUE_CAPACITY.to_owned(),
                lanes: vec![LaneSettings { name: "capacity".to_owned(), workers: cx.section.workers }],
                backoff: cx.backoff,
                span: Some(Arc::new(
                    move |slot: &Slot| info_span!(parent: None, "capacity", role, class = %slot.class, segment = %slot.segment),
                )),
            },
            &cx.meter,
            cx.clock,
            cx.rng.clone(),
        );
        let shared = Shared::new(cx, Index::new(filter, template));
        Self { shared, queue, changed: Arc::default(), retired: Arc::default() }
    }

    async fn serve(self, hints: CapacityHintReceiver, stop: CancellationToken) -> Result<(), RoleError> {
        let cx = &self.shared.cx;
        let subscriptions = self.subscribe();
        let shown = [
            queues::show(&cx.board, cx.role, &self.queue, "Capacity to ask for", |slot| Some(slot.segment.to_string())),
            cx.board.table(cx.role, TITLE, COLUMNS, {
                let shared = Arc::clone(&self.shared);
                move || shared.index().rows(shared.cx.clock.now()).into_iter().map(Vec::from).collect()
            }),
        ];
        let slots = self.shared.index().desired.len();
        info!(slots, "serving capacity");
        let work = self.queue.run(stop, {
            let shift = self.clone();
            move |ticket: Ticket<Slot>| {
                let shift = shift.clone();
                async move {
                    let outcome = refresh::handle(Arc::clone(&shift.shared), ticket).await;
                    shift.changed.notify_one();
                    outcome
                }
                .boxed()
            }
        });
        let result = tokio::select! {
            biased;
            () = work => Ok(()),
            () = self.poll() => Ok(()),
            () = self.hear(hints) => Ok(()),
            () = self.count() => Ok(()),
            error = panicked(&subscriptions) => Err(error),
        };
        self.retired.store(true, Ordering::Release);
        drop(subscriptions);
        drop(shown);
        // What there is to do now is told by whoever leads.
        self.show([0, 0, 0]);
        result
    }

    /// Feeds the book and the queue from the caches. What they hold already is replayed first, the objects last: until
    /// then nobody can tell which of them are wanted.
    fn subscribe(&self) -> Vec<Subscription> {
        let known = &self.shared.cx.stores;
        let classes = known.classes.subscribe({
            let shift = self.clone();
            move |change| {
                let slots = shift.shared.index().tell_class(change);
                shift.wake(slots, Cause::Changed);
            }
        });
        let mut subscriptions = vec![classes];
        match &self.shared.cx.places {
            Places::Cluster { nodes, csi_nodes } => {
                let shift = self.clone();
                subscriptions.push(nodes.subscribe(move |change| shift.tell_node(change)));
                let shift = self.clone();
                subscriptions.push(csi_nodes.subscribe(move |change| shift.tell_node(change)));
            }
            Places::Local { node, place } => {
                let slots = self.shared.index().desired.tell_node(node, Some(place.clone()));
                self.wake(slots, Cause::Changed);
            }
        }
        subscriptions.push(known.capacities.subscribe({
            let shift = self.clone();
            move |change| {
                let slots = shift.shared.index().tell_object(change);
                shift.wake(slots, Cause::Changed);
            }
        }));
        subscriptions
    }

    /// A node or what it says of drivers has changed: the two are looked up together, under the book, so that of two
    /// changes at once the later look sees both.
    fn tell_node<K: Object>(&self, change: &Change<K>) {
        let object = change.new.as_ref().or(change.old.as_ref());
        let Some(node) = object.and_then(|object| object.meta().name.as_deref()) else { return };
        let slots = {
            let mut index = self.shared.index();
            let place = self.shared.cx.places.place_of(&self.shared.cx.driver, node);
            index.desired.tell_node(node, place)
        };
        self.wake(slots, Cause::Changed);
    }

    fn wake(&self, slots: impl IntoIterator<Item = Slot>, cause: Cause) {
        if self.retired.load(Ordering::Acquire) {
            return;
        }
        for slot in slots {
            let epoch = self.epoch_of(&slot);
            self.queue.add(slot, Activation { cause, lane: 0, epoch });
        }
        self.changed.notify_one();
    }

    /// Another class of the same name has nothing to do with the failures of the one before.
    fn epoch_of(&self, slot: &Slot) -> u64 {
        epoch_of(self.shared.index().desired.wants(slot).and_then(|class| class.metadata.uid.as_deref()))
    }

    /// Looks at everything now and then: capacity changes without anybody telling.
    async fn poll(&self) {
        loop {
            let cx = &self.shared.cx;
            tokio::time::sleep(cx.rng.jittered(cx.section.poll_interval, POLL_JITTER)).await;
            let slots: Vec<Slot> = {
                let index = self.shared.index();
                index.desired.all().chain(index.obsolete()).collect()
            };
            self.wake(slots, Cause::Resync);
        }
    }

    /// Looks where volumes were made, refused or deleted.
    async fn hear(&self, hints: CapacityHintReceiver) {
        loop {
            let heard = hints.next().await;
            let mut slots: Vec<Slot> = {
                let index = self.shared.index();
                let of = |hint: &Hint| match hint {
                    Hint::Class(class) => index.desired.of_class(class),
                    Hint::Places(places) => index.desired.touched_by(places),
                };
                heard.iter().flat_map(of).filter(|slot| index.desired.wants(slot).is_some()).collect()
            };
            slots.sort_unstable();
            slots.dedup();
            self.wake(slots, Cause::Changed);
            tokio::time::sleep(HINT_PAUSE).await;
        }
    }

    /// Shows the figures whenever they may have changed, but not more often than anybody looks.
    async fn count(&self) {
        loop {
            let counts = self.shared.index().counts();
            self.show([counts.goal, counts.current, counts.obsolete]);
            tokio::time::sleep(COUNT_PAUSE).await;
            self.changed.notified().await;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge is a float, and no cluster has 2^52 objects")]
    fn show(&self, counts: [usize; 3]) {
        let gauges = [&metrics::CAPACITY_GOAL, &metrics::CAPACITY_CURRENT, &metrics::CAPACITY_OBSOLETE];
        for (gauge, count) in gauges.into_iter().zip(counts) {
            self.shared.cx.meter.gauge(gauge, &[]).set(count as f64);
        }
    }
}

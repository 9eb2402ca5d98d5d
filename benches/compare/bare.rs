//! A client that only writes: the bench's own, in the place of a contender. It is told of each object that is there, watches nothing,
//! asks no driver and decides nothing.

use std::ops::Range;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use http::Request;
use serde_json::{Value, json};

use crate::stage::Stage;
use crate::workload::{Placed, Workload};

/// As many objects on their way at once as the daemon has workers.
const AT_ONCE: usize = 100;

/// A write.
pub(crate) enum Write {
    /// An object is created.
    Create(Placed),
    /// This is merged into an object or into its status: collection, name, subresource, patch.
    Merge(&'static str, String, &'static str, Value),
}

/// What is written for the object of a number, in this order.
pub(crate) type Writes = fn(usize) -> Vec<Write>;

/// The client, with a connection of its own, like a contender: what it sends counts as a contender's.
pub(crate) struct Writer {
    client: kube::Client,
    writes: Writes,
}

impl Writer {
    /// With the contenders' account.
    pub(crate) async fn new(stage: &Stage, writes: Writes) -> Self {
        let client = stage.client_of_contenders().await;
        // Connected before the clock runs, like whoever was warmed up.
        client.apiserver_version().await.unwrap();
        Self { client, writes }
    }

    /// Has the objects of these numbers created as for everyone, and writes for each, once it is there, what has to be written until it
    /// is done.
    pub(crate) async fn burst(&self, stage: &Stage, workload: &dyn Workload, numbers: Range<usize>) {
        let (there, told) = unbounded();
        let begin = async move {
            stage.begin(workload, numbers, |number| drop(there.unbounded_send(number))).await;
            // Nobody waits for more of them.
            drop(there);
        };
        futures::join!(begin, self.follow(told));
    }

    async fn follow(&self, told: UnboundedReceiver<usize>) {
        told.map(|number| self.write(number)).buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
    }

    async fn write(&self, number: usize) {
        for write in (self.writes)(number) {
            let request = match write {
                Write::Create(placed) => placed.request(),
                Write::Merge(collection, name, sub, patch) => merge(collection, &name, sub, &patch),
            };
            self.client.request::<Value>(request).await.unwrap();
        }
    }
}

/// Before anybody is measured on a fresh control plane: the heaps of API server and etcd grow in the first burst, whoever's it is.
/// Leaves the stage as it was.
pub(crate) async fn warm(stage: &Stage, workload: &dyn Workload, count: usize) {
    let Some((_, writes)) = workload.bare().first() else { return };
    stage.before(workload, 0..count).await;
    Writer::new(stage, *writes).await.burst(stage, workload, 0..count).await;
    stage.clear(workload).await;
}

/// A merge patch of an object or of its subresource.
pub(crate) fn merge(collection: &str, name: &str, sub: &str, patch: &Value) -> Request<Vec<u8>> {
    let request = Request::patch(format!("{collection}/{name}{sub}"));
    request.header("content-type", "application/merge-patch+json").body(patch.to_string().into_bytes()).unwrap()
}

/// A finalizer and an annotation, merged into an object that has none.
pub(crate) fn mark(finalizer: &str, annotation: &str, text: &str) -> Value {
    json!({ "metadata": { "finalizers": [finalizer], "annotations": { (annotation): text } } })
}

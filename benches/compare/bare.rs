//! What the API server lets through: a client that only writes. It watches nothing, asks no driver and decides nothing, so
//! nobody who writes the same is quicker, on this machine.

use futures::StreamExt as _;
use futures::stream::iter;
use serde_json::{Value, json};
use tokio::time::Instant;

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

/// Makes the objects of these numbers, and for each then writes what has to be written until it is done. Objects per second.
pub(crate) async fn rate(stage: &Stage, workload: &dyn Workload, count: usize, writes: Writes) -> f64 {
    stage.before(workload, 0..count).await;
    let begun = Instant::now();
    iter(0..count)
        .map(|number| async move {
            stage.begin(workload, number..number + 1).await;
            for write in writes(number) {
                match write {
                    Write::Create(placed) => stage.create(placed).await,
                    Write::Merge(collection, name, sub, patch) => stage.merge(collection, &name, sub, &patch).await,
                }
            }
        })
        .buffer_unordered(AT_ONCE)
        .for_each(|()| async {})
        .await;
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    stage.clear(workload).await;
    rate
}

/// A finalizer and an annotation, merged into an object that has none.
pub(crate) fn mark(finalizer: &str, annotation: &str, text: &str) -> Value {
    json!({ "metadata": { "finalizers": [finalizer], "annotations": { (annotation): text } } })
}

//! A client that only writes: the bench's own, in the place of a contender. It is told of each object that is there, watches nothing,
//! asks no driver and decides nothing.

use std::ops::Range;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use serde_json::Value;

use crate::stage::Stage;
use crate::workload::Workload;
use crate::write::{Write, Writes, merge};

/// As many objects on their way at once as the daemon has workers.
const AT_ONCE: usize = 100;

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

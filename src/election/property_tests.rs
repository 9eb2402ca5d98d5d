//! Properties of elections, over all orders of faults.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::pods::{ended, running, status};
use super::*;

const WALLS: [&str; 3] = ["2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z", "2025-12-20T00:00:00Z"];

/// A pod that a controller wants, and its kubelet.
struct Place {
    name: String,
    pod_uid: u64,
    processes: u64,
    node: Option<Node>,
    /// The true state of the container, which the kubelet may not have reported yet.
    state: Value,
    last: Value,
}

impl Place {
    fn new(api: &FakeApi, number: usize, seed: u64) -> Self {
        let name = format!("pod-{number}");
        let mut place = Self { name, pod_uid: 0, processes: 0, node: None, state: json!({}), last: json!({}) };
        place.start(api, number, seed);
        place.report(api);
        place
    }

    /// Unique among all pods.
    fn uid(&self) -> String {
        format!("uid-{}-{}", self.name, self.pod_uid)
    }

    fn identity(&self) -> String {
        format!("{}_{}_daemon_{:08}", self.name, self.uid(), self.processes)
    }

    fn kill(&mut self) {
        if let Some(mut node) = self.node.take() {
            node.crash();
            self.state = ended(&self.identity());
        }
    }

    /// The kubelet starts the container: never before the last one has ended.
    fn start(&mut self, api: &FakeApi, number: usize, seed: u64) {
        self.kill();
        self.processes += 1;
        self.last = std::mem::replace(&mut self.state, running());
        let seed = seed ^ (self.pod_uid << 32) ^ self.processes ^ ((number as u64) << 48);
        self.node = Some(Node::join_with(api, &self.identity(), clock(WALLS[number]), seed));
    }

    fn report(&self, api: &FakeApi) {
        api.report(&self.name, &self.uid(), &status(&self.state, &self.last));
    }

    /// A pod of the same name in place of one that was deleted by force: its process lives on, and nobody reports it any more.
    fn replace(&mut self, api: &FakeApi, number: usize, seed: u64) -> Option<Node> {
        api.force_delete(&self.name);
        let left = self.node.take();
        self.pod_uid += 1;
        (self.state, self.last) = (json!({}), json!({}));
        self.start(api, number, seed);
        left
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// attacher I8, with wall clocks that are wrong by days, networks and processes that fail in every way, kubelets that report
    /// late or never, watches that are behind, and pods that are deleted by force while their processes live.
    #[test]
    fn electors_with_skewed_clocks_never_hold_overlapping_terms(
        seed in any::<u64>(),
        events in prop::collection::vec((0usize..3, 0u8..18, 0u64..12_000), 5..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let api = FakeApi::start();
            let mut places: Vec<Place> = (0..WALLS.len()).map(|number| Place::new(&api, number, seed)).collect();
            let mut left: Vec<Node> = Vec::new();
            for (at, kind, pause) in events {
                let place = &mut places[at];
                match (kind, &place.node) {
                    (0, Some(node)) => node.site.cut(true),
                    (1 | 2, Some(node)) => node.site.cut(false),
                    (3, Some(node)) => node.site.faults(Faults { latency: 3 * S, lose: 0.3 }),
                    (4, Some(node)) => node.site.faults(Faults::default()),
                    (5, Some(node)) => node.frozen.store(true, Ordering::SeqCst),
                    (6 | 7, Some(node)) => node.frozen.store(false, Ordering::SeqCst),
                    (8, Some(node)) => node.stop.cancel(),
                    (9 | 10, _) => place.kill(),
                    (11 | 12, _) => place.start(&api, at, seed),
                    (13, _) => api.force_delete(&place.name),
                    (14, _) => left.extend(place.replace(&api, at, seed)),
                    (15, _) => api.pods_lag(Duration::from_millis(pause / 3)),
                    (16 | 17, _) => place.report(&api),
                    _ => {}
                }
                for _ in 0..=(pause / 50) {
                    let living = places.iter().filter_map(|place| place.node.as_ref()).chain(&left);
                    let writers = living.filter(|node| node.may_write()).count();
                    assert!(writers <= 1, "{writers} may write at once");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            // What was deleted by force ends sometime, and what has stopped is started again.
            drop(left);
            for (at, place) in places.iter_mut().enumerate() {
                if place.node.as_ref().is_none_or(|node| node.stop.is_cancelled()) {
                    place.start(&api, at, seed);
                }
                let node = place.node.as_ref().unwrap();
                node.site.cut(false);
                node.site.faults(Faults::default());
                node.frozen.store(false, Ordering::SeqCst);
            }
            tokio::time::sleep(LEASE + 10 * S).await;
            let leaders = places.iter().filter(|place| place.node.as_ref().is_some_and(Node::may_write)).count();
            assert_eq!(leaders, 1, "one leads once faults have stopped");
        });
    }
}

//! Properties of elections, over all orders of faults.

use proptest::prelude::*;

use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// attacher I8, with wall clocks that are wrong by days, and networks and processes that fail in every way.
    #[test]
    fn electors_with_skewed_clocks_never_hold_overlapping_terms(
        seed in any::<u64>(),
        events in prop::collection::vec((0usize..3, 0u8..9, 0u64..12_000), 5..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let api = FakeApi::start();
            let walls = ["2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z", "2025-12-20T00:00:00Z"];
            let mut nodes: Vec<Node> = walls
                .iter()
                .enumerate()
                .map(|(n, wall)| Node::join_with(&api, &format!("node_{n}"), clock(wall), seed.wrapping_add(n as u64)))
                .collect();
            for (at, kind, pause) in events {
                let node = &mut nodes[at];
                match kind {
                    0 => node.site.cut(true),
                    1 | 2 => node.site.cut(false),
                    3 => node.site.faults(Faults { latency: 3 * S, lose: 0.3 }),
                    4 => node.site.faults(Faults::default()),
                    5 => node.frozen.store(true, Ordering::SeqCst),
                    6 | 7 => node.frozen.store(false, Ordering::SeqCst),
                    _ => {
                        node.stop.cancel();
                        let wall = clock(walls[at]);
                        // The identity is the process's, so a restarted one has another.
                        let identity = format!("node_{at}_{pause}");
                        let old = std::mem::replace(node, Node::join_with(&api, &identity, wall, seed ^ pause));
                        drop(old.tasks);
                    }
                }
                for _ in 0..=(pause / 50) {
                    let writers = nodes.iter().filter(|node| node.may_write()).count();
                    assert!(writers <= 1, "{writers} may write at once");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
            for node in &nodes {
                node.site.cut(false);
                node.site.faults(Faults::default());
                node.frozen.store(false, Ordering::SeqCst);
            }
            tokio::time::sleep(LEASE + 10 * S).await;
            assert_eq!(nodes.iter().filter(|node| node.may_write()).count(), 1, "one leads once faults have stopped");
        });
    }
}

//! 10 000 keys through the queue: through its rules alone, and through the real queue with a handler that does nothing.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

// The rules are private to the queue; they are pure, so they can be built here from the same text.
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the bench uses a part of it")]
#[path = "../src/queue/backoff.rs"]
mod backoff;
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the bench uses a part of it")]
#[path = "../src/queue/cause.rs"]
mod cause;
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the bench uses a part of it")]
#[path = "../src/queue/next.rs"]
mod next;
#[allow(dead_code, unused_imports, unreachable_pub, reason = "the bench uses a part of it")]
#[path = "../src/queue/state.rs"]
mod state;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::queue::{self, LaneSettings, QueueSettings, Ticket, WorkQueue};
use csi_control_plane::telemetry::Meter;
use futures::FutureExt as _;
use state::State;
use tokio_util::sync::CancellationToken;

const KEYS: usize = 10_000;
const WORKERS: usize = 100;
const MILLISECOND: Duration = Duration::from_millis(1);

fn keys() -> Vec<String> {
    (0..KEYS).map(support::attachment_name).collect()
}

/// Adds every key, fails each once, runs it again after its delay, and settles it.
fn rules_alone(keys: Vec<String>) -> usize {
    let backoff = backoff::Backoff { initial: MILLISECOND, max: Duration::from_secs(300) };
    let mut state: State<String, ()> = State::new([WORKERS, WORKERS], backoff);
    let mut now = Duration::ZERO;
    for key in keys {
        state.add(now, key, cause::Activation { cause: cause::Cause::Changed, lane: 0, epoch: 1 }, || ());
    }
    let mut runs = 0;
    while !state.is_empty() {
        while let Some(start) = state.start(now) {
            runs += 1;
            let outcome =
                if start.failures == 0 { cause::Outcome::Retry { cap: None } } else { cause::Outcome::Settled };
            state.finish(now, &start.key, start.run, outcome, 0.5, || ());
        }
        now += MILLISECOND;
    }
    runs
}

/// The same through tasks, locks and metrics.
async fn real_queue(keys: Vec<String>, retries: bool) -> usize {
    let lane = |name: &str| LaneSettings { name: name.to_owned(), workers: WORKERS };
    let settings = QueueSettings {
        name: "bench".to_owned(),
        lanes: vec![lane("attach"), lane("detach")],
        backoff: queue::Backoff { initial: MILLISECOND, max: Duration::from_secs(300) },
        span: Some(Arc::new(|key: &String| tracing::info_span!("attachment", volume_attachment = %key))),
    };
    let queue = WorkQueue::new(settings, &Meter::new(), Clock::system(), Rng::seeded(1));
    let (stop, runs, settled) =
        (CancellationToken::new(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = keys.len();
    for key in keys {
        queue.add(key, queue::Activation { cause: queue::Cause::Changed, lane: 0, epoch: 1 });
    }
    let handler = {
        let (stop, runs) = (stop.clone(), Arc::clone(&runs));
        move |ticket: Ticket<String>| {
            let (stop, runs, settled) = (stop.clone(), Arc::clone(&runs), Arc::clone(&settled));
            async move {
                runs.fetch_add(1, Ordering::Relaxed);
                if retries && ticket.attempt() == 0 {
                    return queue::Outcome::Retry { cap: None };
                }
                if settled.fetch_add(1, Ordering::Relaxed) + 1 == count {
                    stop.cancel();
                }
                queue::Outcome::Settled
            }
            .boxed()
        }
    };
    queue.run(stop, handler).await;
    runs.load(Ordering::Relaxed)
}

fn queues(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut group = criterion.benchmark_group("queue");
    group.sample_size(20).throughput(Throughput::Elements(KEYS as u64));
    group.bench_function("rules: add, fail, retry, settle", |bencher| {
        bencher.iter_batched(keys, |keys| assert_eq!(rules_alone(keys), 2 * KEYS), BatchSize::PerIteration);
    });
    group.bench_function("queue: add, run, settle", |bencher| {
        bencher.iter_batched(
            keys,
            |keys| assert_eq!(runtime.block_on(real_queue(keys, false)), KEYS),
            BatchSize::PerIteration,
        );
    });
    group.bench_function("queue: add, fail, retry, settle", |bencher| {
        bencher.iter_batched(
            keys,
            |keys| assert_eq!(runtime.block_on(real_queue(keys, true)), 2 * KEYS),
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, queues);
criterion_main!(benches);

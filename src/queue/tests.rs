//! The queue with its workers, in paused time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::process::{Clock, Rng, Tasks};
use crate::telemetry::Meter;

const S: Duration = Duration::from_secs(1);
const RETRY: Outcome = Outcome::Retry { cap: None };
const NOW: Activation = Activation { cause: Cause::Changed, lane: 0, epoch: 1 };

fn queue(workers: &[usize], meter: &Meter) -> WorkQueue<String> {
    let lanes = workers.iter().enumerate().map(|(n, &workers)| LaneSettings { name: format!("lane-{n}"), workers });
    let settings = QueueSettings {
        name: "csi-attacher-va".to_owned(),
        lanes: lanes.collect(),
        backoff: Backoff { initial: S, max: 300 * S },
        span: None,
    };
    WorkQueue::new(settings, meter, Clock::system(), Rng::seeded(1))
}

/// Runs the queue in a task; the receiver hears when it has drained.
fn serve<H>(queue: &WorkQueue<String>, handler: H) -> (Tasks, CancellationToken, mpsc::Receiver<()>)
where
    H: Fn(Ticket<String>) -> futures::future::BoxFuture<'static, Outcome> + Send + Sync + 'static,
{
    let (tasks, _ends) = Tasks::new("test");
    let (stop, (done, drained)) = (CancellationToken::new(), mpsc::channel(1));
    let (queue, token) = (queue.clone(), stop.clone());
    tasks.spawn("queue", async move {
        queue.run(token, handler).await;
        let _ = done.send(()).await;
    });
    (tasks, stop, drained)
}

async fn soon() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_is_retried_with_growing_gaps_until_it_settles() {
    let queue = queue(&[2], &Meter::new());
    let runs = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&runs);
    let begin = tokio::time::Instant::now();
    let (_tasks, _stop, _) = serve(&queue, move |ticket| {
        seen.lock().unwrap().push(begin.elapsed());
        ticket.note("not yet");
        async move { if ticket.attempt() < 4 { RETRY } else { Outcome::Settled } }.boxed()
    });
    queue.add("a".into(), NOW);
    tokio::time::sleep(S / 2).await;
    let item = queue.snapshot().remove(0);
    assert_eq!((item.attempts, item.note.as_deref(), item.lane.as_str()), (1, Some("not yet"), "lane-0"));
    assert!(item.running_for.is_none() && item.next_run_in.is_some());
    tokio::time::sleep(60 * S).await;
    let gaps: Vec<Duration> = runs.lock().unwrap().windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    assert_eq!(gaps.len(), 4);
    for (gap, base) in gaps.into_iter().zip([1, 2, 4, 8]) {
        assert!(gap >= base * S && gap <= base * S * 6 / 5 + Duration::from_millis(2), "{gap:?}");
    }
    assert_eq!(queue.snapshot(), []);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_retry_and_is_counted() {
    let meter = Meter::new();
    let queue = queue(&[1], &meter);
    let (ran, mut runs) = mpsc::unbounded_channel();
    let (_tasks, _stop, _) = serve(&queue, move |ticket| {
        let _ = ran.send(ticket.causes());
        async move {
            assert!(ticket.attempt() > 0, "the first run must fail");
            Outcome::Settled
        }
        .boxed()
    });
    queue.add("a".into(), Activation { cause: Cause::Drift, ..NOW });
    tokio::time::sleep(S / 2).await;
    assert_eq!(queue.snapshot()[0].note.as_deref(), Some("the last run panicked"));
    tokio::time::sleep(2 * S).await;
    assert_eq!(queue.snapshot(), []);
    assert_eq!(runs.recv().await, Some(Cause::Drift.into()));
    assert_eq!(runs.recv().await, Some(Cause::Drift.into()), "a cause outlives the run that lost it");
    assert!(meter.render().contains("csi_control_plane_task_failures_total{task=\"csi-attacher-va\"} 1"));
}

/// Adds two keys to a queue with one worker, and stops it while the first one runs.
async fn stop_before_the_second(queue: &WorkQueue<String>, stop: &CancellationToken) {
    queue.add("a".into(), NOW);
    queue.add("b".into(), NOW);
    soon().await;
    stop.cancel();
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_runs_and_starts_no_more() {
    let queue = queue(&[1], &Meter::new());
    let runs = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&runs);
    let (_tasks, stop, mut drained) = serve(&queue, move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(5 * S).await;
            Outcome::Settled
        }
        .boxed()
    });
    stop_before_the_second(&queue, &stop).await;
    let begin = tokio::time::Instant::now();
    drained.recv().await;
    assert!(begin.elapsed() > 4 * S);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(queue.snapshot().len(), 1, "what did not run is still there");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_aborts_its_tickets_and_keeps_their_keys() {
    let queue = queue(&[1], &Meter::new());
    let (tasks, _stop, _) = serve(&queue, |_| futures::future::pending().boxed());
    queue.add("a".into(), NOW);
    soon().await;
    assert!(queue.snapshot()[0].running_for.is_some());
    drop(tasks);
    soon().await;
    let item = queue.snapshot().remove(0);
    assert_eq!((item.running_for, item.attempts, item.note.as_deref()), (None, 1, Some("the last run was cancelled")));
    let (_tasks, _stop, _) = serve(&queue, |_| async { Outcome::Settled }.boxed());
    tokio::time::sleep(2 * S).await;
    assert_eq!(queue.snapshot(), []);
}

#[tokio::test(start_paused = true)]
async fn runs_parked_on_a_lock_do_not_occupy_the_lane() {
    let queue = queue(&[1], &Meter::new());
    let lock = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&lock);
    let (_tasks, _stop, _) = serve(&queue, move |mut ticket| {
        let gate = Arc::clone(&gate);
        async move {
            if ticket.key().starts_with("locked") {
                let permit = ticket.park(gate.acquire()).await;
                tokio::time::sleep(S).await;
                drop(permit);
            }
            Outcome::Settled
        }
        .boxed()
    });
    for key in ["locked-1", "locked-2", "locked-3", "free"] {
        queue.add(key.into(), NOW);
    }
    soon().await;
    let left = queue.snapshot();
    assert_eq!(left.len(), 3, "the free key has passed the parked ones");
    assert!(left.iter().all(|item| item.parked));
    lock.add_permits(3);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(queue.snapshot().len(), 1, "one worker: one second each");
    tokio::time::sleep(S).await;
    assert_eq!(queue.snapshot(), []);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_park_goes_on_and_leaves_the_lane_sound() {
    let queue = queue(&[1], &Meter::new());
    let (_tasks, _stop, _) = serve(&queue, |mut ticket| {
        async move {
            let parked = ticket.park(futures::future::pending::<()>());
            if tokio::time::timeout(S, parked).await.is_err() {
                tokio::time::sleep(S).await;
            }
            Outcome::Settled
        }
        .boxed()
    });
    for key in ["a", "b", "c"] {
        queue.add(key.into(), NOW);
    }
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(queue.snapshot(), []);
}

#[tokio::test(start_paused = true)]
async fn a_drain_lets_parked_runs_come_back() {
    let queue = queue(&[1], &Meter::new());
    let (_tasks, stop, mut drained) = serve(&queue, |mut ticket| {
        async move {
            ticket.park(tokio::time::sleep(S)).await;
            Outcome::Settled
        }
        .boxed()
    });
    stop_before_the_second(&queue, &stop).await;
    assert_eq!(tokio::time::timeout(5 * S, drained.recv()).await, Ok(Some(())));
    assert_eq!(queue.snapshot(), []);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_for_a_worker_waits_for_no_back_off() {
    let queue = queue(&[1], &Meter::new());
    let (_tasks, _stop, _) = serve(&queue, |ticket| {
        async move {
            tokio::time::sleep(10 * S).await;
            if ticket.key() == "b" { RETRY } else { Outcome::Settled }
        }
        .boxed()
    });
    queue.add("a".into(), NOW);
    queue.add("b".into(), NOW);
    let waits = |queue: &WorkQueue<String>| -> Vec<(bool, bool)> {
        queue.snapshot().iter().map(|item| (item.running_for.is_some(), item.next_run_in.is_some())).collect()
    };
    tokio::time::sleep(S).await;
    assert_eq!(waits(&queue), [(true, false), (false, false)]);
    tokio::time::sleep(19 * S + S / 2).await;
    assert_eq!(waits(&queue), [(false, true)], "b has failed");
}

#[tokio::test(start_paused = true)]
async fn slow_detaches_do_not_starve_attaches() {
    let queue = queue(&[2, 2], &Meter::new());
    let (_tasks, _stop, _) = serve(&queue, |ticket| {
        async move {
            tokio::time::sleep(if ticket.lane() == 1 { 1000 * S } else { S }).await;
            Outcome::Settled
        }
        .boxed()
    });
    for n in 0..50 {
        queue.add(format!("detach-{n}"), Activation { lane: 1, ..NOW });
    }
    queue.add("attach".into(), NOW);
    tokio::time::sleep(2 * S).await;
    assert!(queue.snapshot().iter().all(|item| item.lane == "lane-1"));
}

#[tokio::test(start_paused = true)]
async fn metrics_have_client_go_names_and_an_oldest_age() {
    let meter = Meter::new();
    let queue = queue(&[1], &meter);
    let (_tasks, _stop, _) = serve(&queue, |ticket| {
        async move {
            if ticket.key() == "slow" {
                tokio::time::sleep(100 * S).await;
            }
            if ticket.attempt() == 0 { RETRY } else { Outcome::Settled }
        }
        .boxed()
    });
    queue.add("quick".into(), NOW);
    queue.add("slow".into(), NOW);
    queue.add("waiting".into(), NOW);
    tokio::time::sleep(10 * S + Duration::from_millis(5)).await;
    let text = meter.render();
    for line in [
        "workqueue_depth{name=\"csi-attacher-va\"} 2",
        "workqueue_adds_total{name=\"csi-attacher-va\"} 3",
        "workqueue_retries_total{name=\"csi-attacher-va\"} 1",
        "workqueue_unfinished_work_seconds{name=\"csi-attacher-va\"} 10",
        "workqueue_longest_running_processor_seconds{name=\"csi-attacher-va\"} 10",
        "csi_control_plane_workqueue_oldest_age_seconds{name=\"csi-attacher-va\"} 10",
        "workqueue_work_duration_seconds_count{name=\"csi-attacher-va\"} 1",
        "workqueue_queue_duration_seconds_count{name=\"csi-attacher-va\"} 2",
    ] {
        assert!(text.contains(line), "no {line} in\n{text}");
    }
    tokio::time::sleep(400 * S).await;
    assert_eq!(queue.snapshot(), vec![]);
    let text = meter.render();
    assert!(text.contains("csi_control_plane_workqueue_oldest_age_seconds{name=\"csi-attacher-va\"} 0"), "{text}");
    assert!(text.contains("workqueue_depth{name=\"csi-attacher-va\"} 0"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waits_for_a_worker_is_neither_delayed_nor_running() {
    let queue = queue(&[1], &Meter::new());
    queue.add("a".into(), NOW);
    let item = queue.snapshot().remove(0);
    assert!(item.running_for.is_none() && item.next_run_in.is_none(), "{item:?}");
}

#[tokio::test]
async fn a_queue_that_is_gone_shows_nothing_any_more() {
    let meter = Meter::new();
    let queue = queue(&[1], &meter);
    queue.add("left behind".into(), NOW);
    assert!(meter.render().contains("workqueue_depth{name=\"csi-attacher-va\"} 1"));
    drop(queue);
    assert!(meter.render().contains("workqueue_depth{name=\"csi-attacher-va\"} 0"));
}

//! What a list and a re-list of 50 000 attachments cost, in the cache's own logic and through its watch.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use csi_control_plane::cluster::{
    BY_VOLUME, Caches, ClientOptions, Clients, ClusterAccess, Fanout, News, ObjectName, Viewpoint, VolumeAttachment,
};
use csi_control_plane::process::{Clock, Dial, Rng, Tasks};
use csi_control_plane::sandbox::api::{self, Api, ApiOptions};
use csi_control_plane::telemetry::Meter;
use futures::StreamExt as _;
use tokio_util::sync::CancellationToken;

const COUNT: usize = 50_000;
/// Through a server, which has to list them too.
const SERVED: usize = 10_000;

fn relist(fanout: &mut Fanout<VolumeAttachment>, objects: Vec<VolumeAttachment>) -> usize {
    let mut changes = fanout.apply(News::RestartList).len();
    for object in objects {
        changes += fanout.apply(News::Listed(object)).len();
    }
    changes + fanout.apply(News::ListDone).len()
}

fn full() -> Fanout<VolumeAttachment> {
    let mut fanout = Fanout::default();
    relist(&mut fanout, support::attachments(COUNT, |_| false));
    fanout
}

fn lists(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fanout");
    group.sample_size(10).throughput(Throughput::Elements(COUNT as u64));
    group.bench_function("first list", |bencher| {
        let objects = support::attachments(COUNT, |_| false);
        bencher.iter_batched(
            || (Fanout::default(), objects.clone()),
            |(mut fanout, objects)| {
                assert_eq!(relist(&mut fanout, objects), COUNT);
                fanout
            },
            BatchSize::PerIteration,
        );
    });
    let cases = [
        ("list again, nothing changed", support::attachments(COUNT, |_| false), 0),
        ("list again, 1 % changed", support::attachments(COUNT, |number| number % 100 == 0), COUNT / 100),
        ("list again, 1 % gone", support::attachments(COUNT - COUNT / 100, |_| false), COUNT / 100),
    ];
    for (name, objects, changes) in cases {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || (full(), objects.clone()),
                |(mut fanout, objects)| {
                    assert_eq!(relist(&mut fanout, objects), changes);
                    fanout
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("look-up among 50 000");
    let fanout = full();
    let name = ObjectName::cluster(support::attachment_name(COUNT / 2));
    group.bench_function("by name", |bencher| bencher.iter(|| fanout.get(&name).unwrap()));
    let volume = support::volume_name(COUNT / 2);
    group.bench_function("by volume", |bencher| bencher.iter(|| fanout.find(BY_VOLUME, &volume).len()));
    group.finish();
}

/// Serves `count` attachments over loopback and fills a cache with one subscriber from them.
async fn list_over_http(dial: Dial, count: usize) {
    let (tasks, _ends) = Tasks::new("bench");
    let access = ClusterAccess::Endpoint { dial, token: None };
    let clients = Clients::connect(&access, &ClientOptions::default()).await.unwrap();
    let caches = Caches::new();
    let cache = caches.want::<VolumeAttachment>();
    let told = Arc::new(AtomicUsize::new(0));
    let _subscription = cache.subscribe({
        let told = Arc::clone(&told);
        move |_| {
            told.fetch_add(1, Ordering::Relaxed);
        }
    });
    caches.start(&clients, &Viewpoint::of(support::DRIVER), &tasks, &Meter::new(), Clock::system(), Rng::seeded(1));
    cache.synced().await;
    assert_eq!((cache.len(), told.load(Ordering::Relaxed)), (count, count));
}

fn served(criterion: &mut Criterion) {
    let count = if support::only_once() { 600 } else { SERVED };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (tasks, _ends) = Tasks::new("bench");
    let dial = runtime.block_on(async {
        let api = Api::new(ApiOptions::new(Clock::system(), Rng::seeded(1)));
        for number in 0..count {
            api.create_value(support::new_attachment(number)).unwrap();
        }
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let dial = Dial::tcp(listener.local_addr().unwrap());
        let incoming = api::tcp_connections(listener).boxed();
        tasks.spawn("api", api::serve(api, incoming, api::Connections::default(), CancellationToken::new()));
        dial
    });
    let mut group = criterion.benchmark_group("cache");
    group.sample_size(10).throughput(Throughput::Elements(count as u64));
    group.bench_function("first list over HTTP, the server's share included", |bencher| {
        bencher.iter(|| runtime.block_on(list_over_http(dial.clone(), count)));
    });
    group.finish();
}

criterion_group!(benches, lists, served);
criterion_main!(benches);

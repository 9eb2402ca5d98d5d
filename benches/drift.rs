//! The comparison of 10 000 attachments with a listing of the driver.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

mod support;

use std::collections::BTreeMap;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use csi_control_plane::csi::{PublishedOn, VolumeListing};
use csi_control_plane::process::Clock;
use csi_control_plane::proto::{ListVolumesResponse, Volume, list_volumes_response};
use csi_control_plane::roles::attacher::attachment::Direction;
use csi_control_plane::roles::attacher::drift::{DriftDetector, Record};
use csi_control_plane::roles::kit::listing::{Listing, Next};
use csi_control_plane::roles::reconciler::entries;

const COUNT: usize = 10_000;
const PAGE: usize = 500;

fn entry(number: usize) -> list_volumes_response::Entry {
    list_volumes_response::Entry {
        volume: Some(Volume { volume_id: support::handle(number), ..Volume::default() }),
        status: Some(list_volumes_response::VolumeStatus {
            published_node_ids: vec![support::node_id(number)],
            ..list_volumes_response::VolumeStatus::default()
        }),
    }
}

fn pages() -> Vec<ListVolumesResponse> {
    (0..COUNT)
        .step_by(PAGE)
        .map(|from| ListVolumesResponse {
            entries: (from..(from + PAGE).min(COUNT)).map(entry).collect(),
            next_token: if from + PAGE < COUNT { (from + PAGE).to_string() } else { String::new() },
        })
        .collect()
}

fn listed(pages: Vec<ListVolumesResponse>) -> BTreeMap<String, PublishedOn> {
    let mut listing = Listing::of("ListVolumes");
    for page in pages {
        if listing.take(entries::volumes(page)).unwrap() == Next::Complete {
            break;
        }
    }
    entries::published(&listing.into_entries())
}

/// As recorded; every `drifted`th (0: none) says detached though the driver lists it.
fn records(drifted: usize) -> Vec<Record> {
    (0..COUNT)
        .map(|number| Record {
            name: support::attachment_name(number),
            version: (format!("uid-{number}"), "1".to_owned()),
            direction: Direction::Attach,
            volume_handle: support::handle(number),
            node_id: support::node_id(number),
            attached: drifted == 0 || number % drifted != 0,
            busy: false,
        })
        .collect()
}

fn comparisons(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("drift");
    group.throughput(Throughput::Elements(COUNT as u64));
    group.bench_function("take 20 pages", |bencher| bencher.iter_batched(pages, listed, BatchSize::PerIteration));
    let now = Clock::system().now();
    let snapshot = VolumeListing { started: now, finished: now, volumes: listed(pages()) };
    assert_eq!(snapshot.volumes.len(), COUNT);
    for (name, drifted) in [("compare, nothing drifted", 0), ("compare, 1 % drifted", 100)] {
        let records = records(drifted);
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || DriftDetector::of_term(now),
                |mut suspects| {
                    let first = suspects.compare(&snapshot, &records).len();
                    (first, suspects)
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, comparisons);
criterion_main!(benches);

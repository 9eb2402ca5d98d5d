//! The comparison of 10 000 attachments, and of 10 000 volumes that nothing may know, with a listing of the driver.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking and reports by printing")]

mod support;

use std::collections::BTreeMap;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use csi_control_plane::cluster::IdKind;
use csi_control_plane::csi::listing::{Listing, Next};
use csi_control_plane::csi::{ListedVolume, PublishedOn, VolumeListing};
use csi_control_plane::process::Clock;
use csi_control_plane::proto::{ListVolumesResponse, Volume, list_volumes_response};
use csi_control_plane::roles::attacher::attachment::Direction;
use csi_control_plane::roles::attacher::drift::{DriftDetector, Record};
use csi_control_plane::roles::reconciler::entries;
use csi_control_plane::roles::reconciler::orphans::{Item, Orphans, Unknown};

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
        if listing.take(ListedVolume::page(page)).unwrap() == Next::Complete {
            break;
        }
    }
    let mut volumes = BTreeMap::new();
    listing.entries().iter().for_each(|(id, volume)| entries::publish(&mut volumes, id, &volume.on));
    volumes
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

/// What is unknown of a listing of which all but every `known`th volume (0: none) has a `PersistentVolume`, beside a thousand claims in
/// progress.
fn unknown(known: usize) -> Unknown<'static> {
    let items = (0..COUNT).map(|number| Item { bytes: Some(1 << 30), ..Item::of(support::handle(number)) });
    let mut unknown = Unknown::all(IdKind::Volume, support::DRIVER, items);
    for number in (0..COUNT).filter(|number| known > 0 && number % known != 0) {
        unknown.know(&support::handle(number));
    }
    let uids: Vec<String> = (0..1_000).map(|number| format!("0f0e0d0c-0b0a-0908-0706-{number:012}")).collect();
    unknown.know_named(&uids.iter().map(String::as_str).collect::<Vec<_>>());
    for uid in &uids {
        unknown.claim(uid, true);
    }
    unknown
}

fn orphans(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("orphans");
    group.throughput(Throughput::Elements(COUNT as u64));
    let now = Clock::system().now();
    for (name, known) in [("compare, 1 % unknown", 100), ("compare, all unknown", 0)] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                Orphans::default,
                |mut orphans| {
                    orphans.compare(now, COUNT, unknown(known));
                    orphans
                },
                BatchSize::PerIteration,
            );
        });
    }
    let before = support::resident("self");
    let mut all = Box::<Orphans>::default();
    all.compare(now, COUNT, unknown(0));
    assert_eq!(all.undecided(), COUNT);
    let each = support::resident("self").saturating_sub(before) / COUNT;
    println!("orphans: {each} bytes for each volume that nothing knows");
    Box::leak(all);
    group.finish();
}

criterion_group!(benches, comparisons, orphans);
criterion_main!(benches);

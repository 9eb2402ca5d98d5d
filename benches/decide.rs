//! One decision: what to do next for a typical attachment.

mod support;

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use csi_control_plane::cluster::{PersistentVolume, VolumeAttachment};
use csi_control_plane::roles::attacher::attachment::Attachment;
use csi_control_plane::roles::attacher::decide::{Node, Progress, Rules, Step, View, next_step};

fn decisions(criterion: &mut Criterion) {
    let rules = Rules {
        driver: support::DRIVER.to_owned(),
        finalizer: support::FINALIZER.to_owned(),
        publish_readonly: true,
        multi_writer: true,
        publishes: true,
        default_fs_type: String::new(),
    };
    let object: VolumeAttachment = support::trimmed(support::attachment(1, 1));
    let volume: PersistentVolume = support::trimmed(support::volume(1));
    let node = support::node_id(1);
    let attachment = Attachment::parse(&object, &rules.finalizer);
    let view = |forced, done| View {
        attachment: &attachment,
        volume: Some(&volume),
        node: Node::Id(&node),
        rules: &rules,
        others: &[],
        forced,
        done,
    };
    let nothing = Progress::default();
    let published =
        Progress { published: Some(BTreeMap::from([("device".into(), "/dev/x".into())])), ..Progress::default() };
    assert_eq!(next_step(&view(false, &nothing)), Step::Settled);
    assert!(matches!(next_step(&view(true, &nothing)), Step::Publish(_)));
    assert!(matches!(next_step(&view(true, &published)), Step::RecordAttached(_)));

    let mut group = criterion.benchmark_group("decide");
    group.bench_function("parse", |bencher| bencher.iter(|| Attachment::parse(black_box(&object), &rules.finalizer)));
    group.bench_function("settled", |bencher| bencher.iter(|| next_step(black_box(&view(false, &nothing)))));
    group.bench_function("publish", |bencher| bencher.iter(|| next_step(black_box(&view(true, &nothing)))));
    group.bench_function("record", |bencher| bencher.iter(|| next_step(black_box(&view(true, &published)))));
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);

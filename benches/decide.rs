//! One decision: what to do next for a typical attachment.

mod support;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use csi_control_plane::cluster::{PersistentVolume, VolumeAttachment};
use csi_control_plane::roles::attacher::attachment::Attachment;
use csi_control_plane::roles::attacher::failure::TellingRules;
use csi_control_plane::roles::attacher::policy::{Node, Rules, Shown, Step, View, next_step};
use csi_control_plane::roles::attacher::progress::{Progress, Wanted};
use csi_control_plane::roles::kit::EventsMode;
use csi_control_plane::roles::kit::drive::Next;

fn decisions(criterion: &mut Criterion) {
    let rules = Rules {
        driver: support::DRIVER.to_owned(),
        finalizer: support::FINALIZER.to_owned(),
        publish_readonly: true,
        multi_writer: true,
        publishes: true,
        default_fs_type: String::new(),
        telling: TellingRules { error_codes: true, events: EventsMode::All },
        longest_pause: Duration::from_secs(300),
    };
    let object: VolumeAttachment = support::trimmed(support::attachment(1, 1));
    let volume: PersistentVolume = support::trimmed(support::volume(1));
    let node = support::node_id(1);
    let attachment = Attachment::parse(&object, &rules.finalizer);
    let view = |done| View {
        attachment: &attachment,
        volume: Some(&volume),
        node: Node::Id(&node),
        rules: &rules,
        others: &[],
        shown: Shown { list: true, attachment: true, volume: true },
        is_lost: false,
        done,
    };
    let (settled, wanted) = (Progress::default(), Wanted { forced: true, ..Wanted::default() });
    let nothing = Progress { wanted, ..Progress::default() };
    let context = BTreeMap::from([("device".into(), "/dev/x".into())]);
    let published = Progress { wanted, published: Some(context), ..Progress::default() };
    assert_eq!(next_step(&view(&settled)), Next::Done);
    assert!(matches!(next_step(&view(&nothing)), Next::Do(Step::Publish(_))));
    assert!(matches!(next_step(&view(&published)), Next::Do(Step::RecordAttached(_))));

    let mut group = criterion.benchmark_group("decide");
    group.bench_function("parse", |bencher| bencher.iter(|| Attachment::parse(black_box(&object), &rules.finalizer)));
    group.bench_function("settled", |bencher| bencher.iter(|| next_step(black_box(&view(&settled)))));
    group.bench_function("publish", |bencher| bencher.iter(|| next_step(black_box(&view(&nothing)))));
    group.bench_function("record", |bencher| bencher.iter(|| next_step(black_box(&view(&published)))));
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);

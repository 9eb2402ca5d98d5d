//! What an object costs in a cache: the growth of the process while the fan-out takes in many. Prints a table.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking and reports by printing")]

mod support;

use csi_control_plane::cluster::{
    Cached, CsiNode, Fanout, Fields, News, Node, PersistentVolume, PersistentVolumeClaim, StorageClass,
    VolumeAttachment,
};
use serde_json::{Value, json};

/// Fills a fan-out from the wire, as a watch would, and returns the growth for each object. What is held is leaked, so that
/// the next kind cannot move into its place.
fn measure<K: Cached>(count: usize, object: impl Fn(usize) -> Value) -> usize {
    let mut fanout: Box<Fanout<K>> = Box::default();
    let before = support::resident("self");
    fanout.apply(News::RestartList);
    for number in 0..count {
        // Through text, so that strings have the capacity that the parser gives them.
        let text = object(number).to_string();
        let mut parsed: K = serde_json::from_str(&text).unwrap();
        parsed.trim(support::DRIVER, Fields::NONE);
        fanout.apply(News::Listed(parsed));
    }
    fanout.apply(News::ListDone);
    assert_eq!(fanout.len(), count);
    let after = support::resident("self");
    Box::leak(fanout);
    after.saturating_sub(before) / count
}

fn foreign(mut object: Value) -> Value {
    let driver = ["spec", "csi"].iter().fold(&mut object, |value, key| &mut value[*key]);
    driver["driver"] = json!("other.csi.example.com");
    object
}

fn main() {
    let count = if support::only_once() { 1_000 } else { 50_000 };
    println!("| {count} objects in the cache | bytes each |");
    println!("| --- | ---: |");
    let table = [
        ("our VolumeAttachment", measure::<VolumeAttachment>(count, |number| support::attachment(number, 1))),
        (
            "another driver's VolumeAttachment",
            measure::<VolumeAttachment>(count, |number| {
                let mut object = support::attachment(number, 1);
                object["spec"]["attacher"] = json!("other.csi.example.com");
                object
            }),
        ),
        ("our PersistentVolume", measure::<PersistentVolume>(count, support::volume)),
        (
            "another driver's PersistentVolume",
            measure::<PersistentVolume>(count, |number| foreign(support::volume(number))),
        ),
        ("our PersistentVolumeClaim", measure::<PersistentVolumeClaim>(count, support::claim)),
        (
            "another driver's PersistentVolumeClaim",
            measure::<PersistentVolumeClaim>(count, |number| {
                let mut object = support::claim(number);
                for key in ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"]
                {
                    object["metadata"]["annotations"][key] = json!("other.csi.example.com");
                }
                object
            }),
        ),
        ("our StorageClass", measure::<StorageClass>(count, support::class)),
        ("Node, of which only metadata is watched", measure::<Node>(count, support::node_metadata)),
        (
            "CSINode",
            measure::<CsiNode>(count, |number| {
                let mut object = support::node(number);
                object["metadata"]["name"] = json!(format!("node-{number}.example.com"));
                object
            }),
        ),
    ];
    for (kind, bytes) in table {
        println!("| {kind} | {bytes} |");
    }
    println!(
        "\n`size_of`, without what it points to: VolumeAttachment {}, PersistentVolume {}, PersistentVolumeClaim {}, CSINode {}",
        size_of::<VolumeAttachment>(),
        size_of::<PersistentVolume>(),
        size_of::<PersistentVolumeClaim>(),
        size_of::<CsiNode>()
    );
}

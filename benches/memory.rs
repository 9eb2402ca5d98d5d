//! What an object costs in a cache: the growth of the process while the fan-out takes in many. Prints a table, and fails if a kind costs
//! more than it may.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking and reports by printing")]

mod support;

use csi_control_plane::cluster::{
    Cached, CsiNode, Fanout, Fields, News, Node, PersistentVolume, PersistentVolumeClaim, Pod, StorageClass,
    VolumeAttachment,
};
use serde_json::{Value, json};

const OTHER: &str = "other.csi.example.com";

/// What an object of a kind may cost, in bytes. A tenth more than was measured: what grows beyond it needs its reason in the change that
/// raises the number.
struct Row(&'static str, usize, usize);

/// Fills a fan-out from the wire, as a watch would, and returns the growth for each object. What is held is leaked, so that
/// the next kind cannot move into its place.
fn measure<K: Cached>(count: usize, object: impl Fn(usize) -> Value) -> usize {
    measure_with::<K>(Fields::NONE, count, object)
}

/// The same of a cache that holds these groups of fields, too.
fn measure_with<K: Cached>(fields: Fields, count: usize, object: impl Fn(usize) -> Value) -> usize {
    let mut fanout: Box<Fanout<K>> = Box::default();
    fanout.serve(support::DRIVER);
    let before = support::resident("self");
    fanout.apply(News::RestartList);
    for number in 0..count {
        // Through text, so that strings have the capacity that the parser gives them.
        let text = object(number).to_string();
        let mut parsed: K = serde_json::from_str(&text).unwrap();
        parsed.trim(support::DRIVER, fields);
        fanout.apply(News::Listed(parsed));
    }
    fanout.apply(News::ListDone);
    assert_eq!(fanout.len(), count);
    let after = support::resident("self");
    Box::leak(fanout);
    after.saturating_sub(before) / count
}

fn foreign_attachment(number: usize) -> Value {
    let mut object = support::attachment(number, 1);
    object["spec"]["attacher"] = json!(OTHER);
    object
}

fn foreign_volume(number: usize) -> Value {
    let mut object = support::volume(number);
    object["spec"]["csi"]["driver"] = json!(OTHER);
    object["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"] = json!(OTHER);
    object["metadata"]["finalizers"] =
        json!(["kubernetes.io/pv-protection", "external-attacher/other-csi-example-com"]);
    object
}

fn foreign_claim(number: usize) -> Value {
    let mut object = support::claim(number);
    for key in ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"] {
        object["metadata"]["annotations"][key] = json!(OTHER);
    }
    object
}

fn csi_node(number: usize) -> Value {
    let mut object = support::node(number);
    object["metadata"]["name"] = json!(format!("node-{number}.example.com"));
    object
}

fn main() {
    // Enough that a few pages of the allocator make no difference.
    let count = if support::only_once() { 20_000 } else { 50_000 };
    println!("| {count} objects in the cache | bytes each | at most |");
    println!("| --- | ---: | ---: |");
    let table = [
        Row("our VolumeAttachment", measure::<VolumeAttachment>(count, |number| support::attachment(number, 1)), 1_330),
        Row("another driver's VolumeAttachment", measure::<VolumeAttachment>(count, foreign_attachment), 250),
        Row("our PersistentVolume", measure::<PersistentVolume>(count, support::volume), 1_630),
        Row("another driver's PersistentVolume", measure::<PersistentVolume>(count, foreign_volume), 215),
        Row("our PersistentVolumeClaim", measure::<PersistentVolumeClaim>(count, support::claim), 950),
        Row("another driver's PersistentVolumeClaim", measure::<PersistentVolumeClaim>(count, foreign_claim), 200),
        Row("our StorageClass", measure::<StorageClass>(count, support::class), 1_930),
        Row("Node, of which only metadata is watched", measure::<Node>(count, support::node_metadata), 1_700),
        // 10 000 pods may take 15 MB.
        Row(
            "pod that an attach/detach controller reads",
            measure_with::<Pod>(Fields::ATTACH, count, support::pod),
            1_500,
        ),
        Row("CSINode", measure::<CsiNode>(count, csi_node), 580),
    ];
    for Row(kind, bytes, most) in &table {
        println!("| {kind} | {bytes} | {most} |");
    }
    println!(
        "\n`size_of`, without what it points to: VolumeAttachment {}, PersistentVolume {}, PersistentVolumeClaim {}, CSINode {}",
        size_of::<VolumeAttachment>(),
        size_of::<PersistentVolume>(),
        size_of::<PersistentVolumeClaim>(),
        size_of::<CsiNode>()
    );
    let grown: Vec<&str> = table.iter().filter(|Row(_, bytes, most)| bytes > most).map(|row| row.0).collect();
    assert!(grown.is_empty(), "more bytes than they may have: {grown:?}");
}

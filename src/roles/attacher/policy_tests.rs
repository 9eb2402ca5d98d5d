//! The decision, case by case. Rows of docs/spec/attacher.md are cited by their number.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::cluster::{Cached as _, Fields, VolumeAttachment};
use crate::csi::volume::AccessModeError;
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use crate::roles::kit::{EventsMode, Secret};

const DRIVER: &str = "demo.csi.example.com";
const FINALIZER: &str = "external-attacher/demo-csi-example-com";

type Change = Box<dyn Fn(&mut World)>;

fn rules() -> Rules {
    Rules {
        driver: DRIVER.into(),
        finalizer: FINALIZER.into(),
        publish_readonly: true,
        multi_writer: false,
        publishes: true,
        default_fs_type: String::new(),
        telling: TellingRules { error_codes: true, events: EventsMode::All },
        longest_pause: Duration::from_secs(300),
    }
}

/// A world with one attachment, its volume and its node, as a plain attach begins.
struct World {
    attachment: serde_json::Value,
    volume: Option<serde_json::Value>,
    node: Node<'static>,
    rules: Rules,
    shown: Shown,
    is_lost: bool,
    done: Progress,
    others: Vec<Unpublish>,
}

impl World {
    fn new() -> Self {
        Self {
            attachment: json!({
                "metadata": { "name": "csi-1", "uid": "u1" },
                "spec": { "attacher": DRIVER, "nodeName": "node-1", "source": { "persistentVolumeName": "pv-1" } },
            }),
            volume: Some(json!({
                "metadata": { "name": "pv-1", "uid": "v1" },
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "csi": { "driver": DRIVER, "volumeHandle": "vol-1", "volumeAttributes": { "tier": "fast" } },
                },
            })),
            node: Node::Id("id-1"),
            rules: rules(),
            shown: Shown { list: true, attachment: true, volume: true },
            is_lost: false,
            done: Progress::default(),
            others: Vec::new(),
        }
    }

    /// The same, with everything prepared for the publish call.
    fn prepared() -> Self {
        let mut world = Self::new();
        world.set_volume("/metadata/finalizers", json!([FINALIZER]));
        world.mark();
        world
    }

    /// The same, attached, and now being deleted.
    fn detaching() -> Self {
        let mut world = Self::prepared();
        world.set("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        world.set("/status", json!({ "attached": true, "attachmentMetadata": { "path": "/dev/a" } }));
        world
    }

    fn mark(&mut self) {
        self.set("/metadata/finalizers", json!([FINALIZER]));
        self.set("/metadata/annotations", json!({ "csi.alpha.kubernetes.io/node-id": "id-1" }));
    }

    fn set(&mut self, pointer: &str, value: serde_json::Value) {
        set(&mut self.attachment, pointer, value);
    }

    fn set_volume(&mut self, pointer: &str, value: serde_json::Value) {
        set(self.volume.as_mut().unwrap(), pointer, value);
    }

    /// The only step.
    fn step(&self) -> Step {
        let steps = self.steps();
        let [step] = &steps[..] else { panic!("expected one step, got {steps:?}") };
        step.clone()
    }

    /// The steps that are done side by side; none, if nothing is to be done.
    fn steps(&self) -> Vec<Step> {
        let object: VolumeAttachment = serde_json::from_value(self.attachment.clone()).unwrap();
        let attachment = Attachment::parse(&object, FINALIZER);
        let volume = self.volume.clone().map(|volume| {
            let mut volume: PersistentVolume = serde_json::from_value(volume).unwrap();
            volume.trim(&self.rules.driver, Fields::MIGRATION);
            volume
        });
        let next = next_step(&View {
            attachment: &attachment,
            volume: volume.as_ref(),
            node: self.node,
            rules: &self.rules,
            shown: self.shown,
            is_lost: self.is_lost,
            done: &self.done,
            others: &self.others,
        });
        match next {
            Next::Do(step) => vec![step],
            Next::Together(steps) => steps,
            Next::Done => Vec::new(),
        }
    }
}

fn set(object: &mut serde_json::Value, pointer: &str, value: serde_json::Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(key.replace("~1", "/"), value);
}

fn intent() -> Intent {
    Intent { node_id: "id-1".into(), volume_handle: "vol-1".into(), secret: None }
}

fn published(world: &World) -> Publish {
    match world.step() {
        Step::Publish(publish) => *publish,
        step => panic!("expected a publish, got {step:?}"),
    }
}

#[test]
fn an_attach_first_makes_its_finalizers_durable_side_by_side() {
    assert_eq!(World::new().steps(), [Step::ProtectVolume, Step::SaveIntent(intent())]);
}

#[test]
fn what_was_saved_on_another_attachment_is_not_believed_by_an_attach() {
    let mut world = World::prepared();
    world.set(
        "/metadata/annotations",
        json!({
            "csi.alpha.kubernetes.io/node-id": "id-elsewhere",
            "csi-control-plane.io/volume-handle": "vol-elsewhere",
            "csi-control-plane.io/recorded-for": "u0",
        }),
    );
    assert_eq!(world.steps(), [Step::SaveIntent(intent())], "nothing is detached elsewhere");
    world.set("/metadata/annotations/csi.alpha.kubernetes.io~1node-id", json!("id-1"));
    world.set("/metadata/annotations/csi-control-plane.io~1volume-handle", json!("vol-1"));
    assert_eq!(world.steps(), [Step::SaveIntent(intent())], "it is saved anew");
    world.set("/metadata/annotations/csi-control-plane.io~1recorded-for", json!("u1"));
    assert!(matches!(world.step(), Step::Publish(_)), "it was saved here");
}

#[test]
fn what_is_durable_already_is_not_written_again() {
    let mut world = World::new();
    world.set_volume("/metadata/finalizers", json!(["kubernetes.io/pv-protection", FINALIZER]));
    assert_eq!(world.steps(), [Step::SaveIntent(intent())]);
    world.mark();
    assert!(matches!(world.step(), Step::Publish(_)));
}

#[test]
fn a_publish_carries_the_volume_as_it_is_specified() {
    let publish = published(&World::prepared());
    let mount = MountVolume { fs_type: String::new(), mount_flags: vec![], volume_mount_group: String::new() };
    assert_eq!(
        publish,
        Publish {
            volume_id: "vol-1".into(),
            node_id: "id-1".into(),
            capability: VolumeCapability {
                access_type: Some(AccessType::Mount(mount)),
                access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
            },
            readonly: false,
            volume_context: BTreeMap::from([("tier".into(), "fast".into())]),
        }
    );
}

#[test]
fn i3_a_changed_node_id_is_saved_only_after_the_volume_is_unpublished_from_the_old_one() {
    let mut world = World::prepared();
    world.node = Node::Id("id-2");
    let left = Unpublish { volume_id: "vol-1".into(), node_id: "id-1".into() };
    assert_eq!(world.step(), Step::Unpublish(Box::new(left)));
    world.done.unpublished = true;
    let intent = Intent { node_id: "id-2".into(), ..intent() };
    assert_eq!(world.steps(), [Step::SaveIntent(intent)]);
}

#[test]
fn i3_a_volume_replaced_under_its_name_is_published_only_after_the_one_before_it_is_unpublished() {
    let mut world = World::prepared();
    world.set(
        "/metadata/annotations",
        json!({
            "csi.alpha.kubernetes.io/node-id": "id-1",
            "csi-control-plane.io/volume-handle": "vol-0",
            "csi-control-plane.io/publish-secret": "ns/old-keys",
        }),
    );
    world.set_volume("/spec/csi/controllerPublishSecretRef", json!({ "namespace": "ns", "name": "new-keys" }));
    let keys = |name: &str| vec![Step::ReadSecret(SecretRef { namespace: "ns".into(), name: name.into() })];
    // With the secret of the one that it is about.
    assert_eq!(world.steps(), keys("old-keys"));
    world.done.secret = Some(Secret::default());
    let left = Unpublish { volume_id: "vol-0".into(), node_id: "id-1".into() };
    assert_eq!(world.step(), Step::Unpublish(Box::new(left)));
    (world.done.unpublished, world.done.secret) = (true, None);
    assert_eq!(world.steps(), keys("new-keys"));
    world.done.secret = Some(Secret::default());
    let secret = Some(SecretRef { namespace: "ns".into(), name: "new-keys".into() });
    assert_eq!(world.steps(), [Step::SaveIntent(Intent { secret, ..intent() })]);
}

#[test]
fn an_attached_volume_is_settled_unless_the_driver_disagrees() {
    let mut world = World::prepared();
    world.set("/status", json!({ "attached": true }));
    assert_eq!(world.steps(), []);
    world.done.wanted.forced = true;
    assert!(matches!(world.step(), Step::Publish(_)));
}

#[test]
fn the_publish_context_is_recorded_once() {
    let mut world = World::prepared();
    let context = BTreeMap::from([("path".to_owned(), "/dev/a".to_owned())]);
    world.done.published = Some(context.clone());
    assert_eq!(world.step(), Step::RecordAttached(context));
    world.set("/status", json!({ "attached": true, "attachmentMetadata": { "path": "/dev/a" } }));
    assert_eq!(world.steps(), []);
}

#[test]
fn r48_a_success_clears_the_attach_error() {
    let mut world = World::prepared();
    world.done.published = Some(BTreeMap::new());
    world.set("/status", json!({ "attached": true, "attachError": { "message": "no" } }));
    assert_eq!(world.step(), Step::RecordAttached(BTreeMap::new()));
}

#[test]
fn r14_readonly_needs_the_capability() {
    let mut world = World::prepared();
    world.set_volume("/spec/csi/readOnly", json!(true));
    assert!(published(&world).readonly);
    world.rules.publish_readonly = false;
    assert!(!published(&world).readonly);
}

#[test]
fn r13_a_raw_block_volume_gets_the_block_access_type() {
    let mut world = World::prepared();
    world.set_volume("/spec/volumeMode", json!("Block"));
    assert_eq!(published(&world).capability.access_type, Some(AccessType::Block(BlockVolume {})));
}

#[test]
fn r27_the_volumes_own_file_system_wins_over_the_default() {
    let fs_type = |world: &World| match published(world).capability.access_type {
        Some(AccessType::Mount(mount)) => mount.fs_type,
        other => panic!("{other:?}"),
    };
    let mut world = World::prepared();
    assert_eq!(fs_type(&world), "");
    world.rules.default_fs_type = "ext4".into();
    assert_eq!(fs_type(&world), "ext4");
    world.set_volume("/spec/csi/fsType", json!("xfs"));
    assert_eq!(fs_type(&world), "xfs");
}

#[test]
fn hopeless_attachments_are_refused_before_anything_is_written() {
    let in_tree = json!({ "metadata": { "name": "pv-1" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "awsElasticBlockStore": { "volumeID": "vol-1" } } });
    let nfs = json!({ "metadata": { "name": "pv-1" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "nfs": { "server": "s", "path": "/" } } });
    let cases: Vec<(&str, Change, InvalidAttachment)> = vec![
        ("no source", Box::new(|w| w.set("/spec/source", json!({}))), InvalidAttachment::NoSource),
        (
            "both sources",
            Box::new(|w| {
                w.set("/spec/source", json!({ "persistentVolumeName": "pv-1", "inlineVolumeSpec": {} }));
            }),
            InvalidAttachment::BothSources,
        ),
        ("volume missing", Box::new(|w| w.volume = None), InvalidAttachment::VolumeMissing("pv-1".into())),
        (
            "R47: volume deleting",
            Box::new(|w| w.set_volume("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))),
            InvalidAttachment::VolumeDeleting("pv-1".into()),
        ),
        (
            "M23: in-tree, of another driver",
            Box::new(move |w| w.volume = Some(in_tree.clone())),
            InvalidAttachment::Foreign { volume: "pv-1".into(), driver: "ebs.csi.aws.com".into() },
        ),
        ("not CSI", Box::new(move |w| w.volume = Some(nfs.clone())), InvalidAttachment::NotCsi("pv-1".into())),
        (
            "another driver's volume",
            Box::new(|w| w.set_volume("/spec/csi/driver", json!("other.csi.example.com"))),
            InvalidAttachment::Foreign { volume: "pv-1".into(), driver: "other.csi.example.com".into() },
        ),
        (
            "inline, not CSI",
            Box::new(|w| w.set("/spec/source", json!({ "inlineVolumeSpec": { "accessModes": ["ReadWriteOnce"] } }))),
            InvalidAttachment::InlineNotCsi,
        ),
        (
            "access modes",
            Box::new(|w| w.set_volume("/spec/accessModes", json!(["ReadOnlyMany", "ReadWriteOnce"]))),
            InvalidAttachment::AccessModes(AccessModeError::ReadersAndWriter),
        ),
        ("no CSINode", Box::new(|w| w.node = Node::Missing), InvalidAttachment::NodeMissing("node-1".into())),
        (
            "driver not on the node",
            Box::new(|w| w.node = Node::WithoutDriver),
            InvalidAttachment::DriverNotOnNode { node: "node-1".into(), driver: DRIVER.into() },
        ),
    ];
    for (what, change, refusal) in cases {
        let mut world = World::new();
        change(&mut world);
        assert_eq!(world.step(), Step::Refuse(refusal), "{what}");
    }
}

/// A world whose volume is an in-tree one that our driver has taken over.
fn migrated(driver: &str, spec: serde_json::Value) -> World {
    let mut world = World::prepared();
    world.rules.driver = driver.into();
    world.set_volume("/spec", spec);
    world
}

#[test]
fn r11_m1_an_in_tree_volume_is_published_with_the_access_modes_of_its_csi_form() {
    let world = migrated(
        "pd.csi.storage.gke.io",
        json!({ "accessModes": ["ReadWriteMany"], "gcePersistentDisk": { "pdName": "d", "fsType": "xfs", "readOnly": true } }),
    );
    let publish = published(&world);
    assert_eq!(publish.volume_id, "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d");
    assert_eq!((publish.readonly, publish.volume_context.len()), (true, 1));
    let mount = MountVolume { fs_type: "xfs".into(), ..MountVolume::default() };
    assert_eq!(publish.capability.access_type, Some(AccessType::Mount(mount)));
    // Google's driver attaches no volume for many writers, and the in-tree plugin did not look.
    assert_eq!(publish.capability.access_mode, Some(AccessMode { mode: Mode::SingleNodeWriter.into() }));
}

#[test]
fn the_secret_of_a_migrated_volume_is_read_before_the_attachment_is_marked() {
    let mut world = migrated(
        "pxd.portworx.com",
        json!({ "accessModes": ["ReadWriteOnce"], "portworxVolume": { "volumeID": "v" } }),
    );
    let annotations = json!({ "openstorage.io/auth-secret-name": "s", "openstorage.io/auth-secret-namespace": "ns" });
    world.set_volume("/metadata/annotations", annotations);
    let reference = SecretRef { name: "s".into(), namespace: "ns".into() };
    assert_eq!(world.steps(), [Step::ReadSecret(reference)]);
}

#[test]
fn m2_an_inline_volume_arrives_translated() {
    let mut world = World::prepared();
    let spec = |source: serde_json::Value| json!({ "inlineVolumeSpec": source });
    world.volume = None;
    world.rules.driver = "ebs.csi.aws.com".into();
    world.set(
        "/spec/source",
        spec(json!({ "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
        "csi": { "driver": "ebs.csi.aws.com", "volumeHandle": "vol-1" } })),
    );
    assert_eq!(published(&world).volume_id, "vol-1");
    world.set("/spec/source", spec(json!({ "awsElasticBlockStore": { "volumeID": "vol-1" } })));
    let kind = crate::cluster::InTree::AwsElasticBlockStore;
    assert_eq!(world.step(), Step::Refuse(InvalidAttachment::InlineInTree(kind)));
}

#[test]
fn an_in_tree_volume_without_a_csi_form_is_refused_with_what_to_write() {
    let world = migrated(
        "disk.csi.azure.com",
        json!({ "accessModes": ["ReadWriteOnce"], "azureDisk": { "diskURI": "u", "kind": "Shared" } }),
    );
    let Step::Refuse(why) = world.step() else { panic!("it is refused") };
    assert!(why.to_string().contains("kind: Managed"), "{why}");
}

#[test]
fn r18_an_attach_never_takes_the_node_id_from_an_annotation() {
    let mut world = World::prepared();
    world.node = Node::Missing;
    assert_eq!(world.step(), Step::Refuse(InvalidAttachment::NodeMissing("node-1".into())));
}

/// What is detached, and what is let go of.
#[path = "policy_detach_tests.rs"]
mod detach;

/// What is found out first, and what is recorded of a failure.
#[path = "policy_failure_tests.rs"]
mod failures;

/// Secrets of volumes, and volumes without an object.
#[path = "policy_secret_tests.rs"]
mod secrets;

#[test]
fn the_resync_misses_no_finalizer_by_leaving_packed_volumes_out() {
    let packed = crate::roles::kit::fixtures::packed_volumes(DRIVER, FINALIZER);
    assert!(packed.iter().all(|volume| has_finalizer(volume, FINALIZER) && !wants_release(volume, &rules())));
}

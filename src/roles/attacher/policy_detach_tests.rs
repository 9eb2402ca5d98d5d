//! The table of cases of detaching, and of letting volumes go.

use super::*;

#[test]
fn a_detach_unpublishes_and_then_releases_with_one_write() {
    let mut world = World::detaching();
    let unpublish = Unpublish { volume_id: "vol-1".into(), node_id: "id-1".into() };
    assert_eq!(world.step(), Step::Unpublish(Box::new(unpublish)));
    world.done.unpublished = true;
    assert_eq!(world.step(), Step::Release);
    world.set("/metadata/finalizers", json!([]));
    assert_eq!(world.steps(), []);
}

#[test]
fn a_driver_that_does_not_publish_any_more_is_asked_to_unpublish_what_it_has_published() {
    let mut world = World::detaching();
    world.rules.publishes = false;
    let unpublish = Unpublish { volume_id: "vol-1".into(), node_id: "id-1".into() };
    assert_eq!(world.step(), Step::Unpublish(Box::new(unpublish)));
    for answered in [Progress { unpublished: true, ..Progress::default() }, skipped(Skip::NotOffered)] {
        world.done = answered;
        world.set("/metadata/finalizers", json!([FINALIZER, "example.com/keep"]));
        assert_eq!(world.step(), Step::Release);
        world.set("/metadata/finalizers", json!(["example.com/keep"]));
        assert_eq!(world.step(), Step::RecordDetached);
    }
    world.done = Progress::default();
    world.done.wanted.forced = true;
    assert_eq!(world.steps(), [], "an attachment without our finalizer was never published by a call");
}

fn skipped(skip: Skip) -> Progress {
    Progress { skipped: Some(skip), ..Progress::default() }
}

#[test]
fn r5_the_status_is_written_only_if_another_finalizer_keeps_the_object() {
    let mut world = World::detaching();
    world.done.unpublished = true;
    world.set("/metadata/finalizers", json!(["example.com/keep"]));
    assert_eq!(world.step(), Step::RecordDetached);
    world.done.gone = true;
    assert_eq!(world.steps(), [], "an object that is gone has no status to write");
    world.done.gone = false;
    world.set("/status", json!({ "attached": false }));
    assert_eq!(world.steps(), []);
}

#[test]
fn r45_the_recorded_node_id_wins_over_a_recreated_node() {
    let mut world = World::detaching();
    world.node = Node::Id("id-of-the-new-machine");
    let unpublish = Unpublish { volume_id: "vol-1".into(), node_id: "id-1".into() };
    assert_eq!(world.step(), Step::Unpublish(Box::new(unpublish)));
}

#[test]
fn r15_and_r16_a_gone_node_is_detached_by_its_recorded_id() {
    for node in [Node::Missing, Node::WithoutDriver] {
        let mut world = World::detaching();
        world.node = node;
        assert!(matches!(world.step(), Step::Unpublish(unpublish) if unpublish.node_id == "id-1"));
    }
}

#[test]
fn r17_without_a_recorded_id_the_cluster_is_asked() {
    let mut world = World::detaching();
    world.set("/metadata/annotations", json!({}));
    assert!(matches!(world.step(), Step::Unpublish(unpublish) if unpublish.node_id == "id-1"));
    world.node = Node::Missing;
    assert_eq!(world.step(), Step::Refuse(InvalidAttachment::NodeMissing("node-1".into())));
}

#[test]
fn a_volume_object_replaced_under_its_name_does_not_redirect_the_detach() {
    let mut world = World::detaching();
    world.set("/metadata/annotations/csi-control-plane.io~1volume-handle", json!("published"));
    assert!(matches!(world.step(), Step::Unpublish(unpublish) if unpublish.volume_id == "published"));
}

#[test]
fn a_volume_removed_by_force_is_detached_by_what_the_attach_wrote_down() {
    let mut world = World::detaching();
    world.volume = None;
    assert_eq!(world.step(), Step::Refuse(InvalidAttachment::VolumeMissing("pv-1".into())));
    world.set(
        "/metadata/annotations",
        json!({
            "csi.alpha.kubernetes.io/node-id": "id-1",
            "csi-control-plane.io/volume-handle": "vol-1",
            "csi-control-plane.io/publish-secret": "ns/keys",
        }),
    );
    let reference = SecretRef { name: "keys".into(), namespace: "ns".into() };
    assert_eq!(world.steps(), [Step::ReadSecret(reference)]);
    world.done.secret = Some(Secret::default());
    assert!(matches!(world.step(), Step::Unpublish(unpublish) if unpublish.volume_id == "vol-1"));
}

#[test]
fn a_volume_that_another_attachment_needs_on_the_node_is_not_detached() {
    let target = |volume: &str, node: &str| Unpublish { volume_id: volume.into(), node_id: node.into() };
    for (others, expected, what) in [
        (vec![target("vol-1", "id-1")], Step::SkipUnpublish(Skip::Shared), "the same volume on the same machine"),
        (vec![target("VOL-1", "ID-1")], Step::SkipUnpublish(Skip::Shared), "the same, spelled in other letters"),
        (vec![target("vol-1", "id-2")], Step::Unpublish(Box::new(target("vol-1", "id-1"))), "on another machine"),
        (vec![target("vol-2", "id-1")], Step::Unpublish(Box::new(target("vol-1", "id-1"))), "another volume"),
        (vec![], Step::Unpublish(Box::new(target("vol-1", "id-1"))), "nobody else wants it, or both go"),
    ] {
        let mut world = World::detaching();
        world.others = others;
        assert_eq!(world.step(), expected, "{what}");
    }
    let mut world = World::detaching();
    world.others = vec![target("vol-1", "id-1")];
    world.set_volume("/spec/csi/controllerPublishSecretRef", json!({ "name": "keys", "namespace": "ns" }));
    assert_eq!(world.step(), Step::SkipUnpublish(Skip::Shared), "no secret is needed for that");
    world.done.skipped = Some(Skip::Shared);
    assert_eq!(world.step(), Step::Release);
    world.set("/metadata/finalizers", json!(["example.com/keep"]));
    assert_eq!(world.step(), Step::RecordDetached);
}

#[test]
fn a_copied_attachment_detaches_nothing_that_only_its_original_knows() {
    let copied = |of: &str| {
        let mut world = World::detaching();
        world.set(
            "/metadata/annotations",
            json!({
                "csi.alpha.kubernetes.io/node-id": "id-elsewhere",
                "csi-control-plane.io/volume-handle": "vol-elsewhere",
                "csi-control-plane.io/publish-secret": "ns/keys",
                "csi-control-plane.io/recorded-for": of,
            }),
        );
        world
    };
    let unpublished = |volume: &str, node: &str| {
        Step::Unpublish(Box::new(Unpublish { volume_id: volume.into(), node_id: node.into() }))
    };
    assert_eq!(copied("u0").step(), unpublished("vol-1", "id-1"), "as the cluster says");
    for node in [Node::Missing, Node::WithoutDriver] {
        let mut world = copied("u0");
        world.node = node;
        assert_eq!(world.step(), Step::SkipUnpublish(Skip::Copied), "{node:?}");
    }
    let mut world = copied("u0");
    world.volume = None;
    assert_eq!(world.step(), Step::SkipUnpublish(Skip::Copied), "not the handle of the original");
    world.done.skipped = Some(Skip::Copied);
    assert_eq!(world.step(), Step::Release);
    let mut own = copied("u1");
    (own.volume, own.node, own.done.secret) = (None, Node::Missing, Some(Secret::default()));
    assert_eq!(own.step(), unpublished("vol-elsewhere", "id-elsewhere"), "saved on this very object");
}

#[test]
fn what_an_earlier_attach_left_stays_if_another_attachment_needs_it_there() {
    let mut world = World::prepared();
    world.node = Node::Id("id-of-the-new-machine");
    let left = Unpublish { volume_id: "vol-1".into(), node_id: "id-1".into() };
    assert_eq!(world.step(), Step::Unpublish(Box::new(left.clone())));
    world.others = vec![left];
    let intent = Intent { node_id: "id-of-the-new-machine".into(), ..intent() };
    assert_eq!(world.steps(), [Step::SaveIntent(intent)]);
}

#[test]
fn what_may_be_published_is_unpublished_whatever_volume_and_status_say() {
    let mut world = World::detaching();
    world.set_volume("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    world.set("/status", json!({ "attached": false }));
    assert!(matches!(world.step(), Step::Unpublish(_)));
}

#[test]
fn detaching_without_finalizer_is_settled() {
    let mut world = World::detaching();
    world.set("/metadata/finalizers", json!(["example.com/keep"]));
    assert_eq!(world.steps(), []);
    world.done.wanted.forced = true;
    assert!(matches!(world.step(), Step::Unpublish(_)));
}

#[test]
fn a_volume_is_released_when_it_goes_and_nothing_names_it() {
    let volume = |deleting: bool, finalizers: &[&str]| -> PersistentVolume {
        let mut volume = json!({ "metadata": { "name": "pv-1", "finalizers": finalizers },
            "spec": { "csi": { "driver": DRIVER, "volumeHandle": "vol-1" } } });
        if deleting {
            set(&mut volume, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        }
        serde_json::from_value(volume).unwrap()
    };
    let cases = [
        (true, &[FINALIZER][..], false, true, "R8: deleting, ours, unused"),
        (true, &["kubernetes.io/pv-protection", FINALIZER], false, true, "others' finalizers do not matter"),
        (true, &[FINALIZER], true, false, "I4: an attachment names it"),
        (true, &["kubernetes.io/pv-protection"], false, false, "not ours"),
        (false, &[FINALIZER], false, false, "not deleting"),
    ];
    for (deleting, finalizers, used, expected, what) in cases {
        assert_eq!(is_releasable(&volume(deleting, finalizers), used, &rules()), expected, "{what}");
    }
}

#[test]
fn r9_and_r10_an_in_tree_volume_is_released_when_it_goes_or_its_migration_was_rolled_back() {
    let volume = |deleting: bool, migrated_to: Option<&str>| -> PersistentVolume {
        let mut volume = json!({ "metadata": { "name": "pv-1", "finalizers": [FINALIZER] },
            "spec": { "awsElasticBlockStore": { "volumeID": "vol-1" } } });
        if deleting {
            set(&mut volume, "/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        }
        if let Some(driver) = migrated_to {
            set(&mut volume, "/metadata/annotations", json!({ "pv.kubernetes.io/migrated-to": driver }));
        }
        serde_json::from_value(volume).unwrap()
    };
    assert!(is_releasable(&volume(true, Some(DRIVER)), false, &rules()), "R9");
    assert!(is_releasable(&volume(false, None), false, &rules()), "R10: rolled back");
    assert!(is_releasable(&volume(false, Some("other.csi")), false, &rules()), "R10: migrated to another driver");
    assert!(!is_releasable(&volume(false, Some(DRIVER)), false, &rules()), "still migrated to us");
}

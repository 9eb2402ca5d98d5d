//! Secrets of volumes, and volumes without an object.

use super::*;

#[test]
fn r25_a_secret_is_read_before_the_attachment_is_marked() {
    let reference = SecretRef { name: "keys".into(), namespace: "ns".into() };
    let mut world = World::new();
    world.set_volume("/spec/csi/controllerPublishSecretRef", json!({ "name": "keys", "namespace": "ns" }));
    let expected = vec![Step::ProtectVolume, Step::ReadSecret(reference.clone())];
    assert_eq!(world.steps(), expected);
    world.done.secret = Some(Secret::default());
    let marked = Intent { secret: Some(reference), ..intent() };
    let expected = vec![Step::ProtectVolume, Step::SaveIntent(marked)];
    assert_eq!(world.steps(), expected);
}

#[test]
fn r12_an_inline_volume_is_attached_without_a_volume_finalizer() {
    let mut world = World::new();
    world.volume = None;
    world.set(
        "/spec/source",
        json!({ "inlineVolumeSpec": {
            "accessModes": ["ReadWriteMany"], "csi": { "driver": DRIVER, "volumeHandle": "vol-1" } } }),
    );
    assert_eq!(world.steps(), [Step::SaveIntent(intent())]);
    world.mark();
    assert_eq!(published(&world).capability.access_mode, Some(AccessMode { mode: Mode::MultiNodeMultiWriter.into() }));
}

//! Attach and detach as users see them.

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn r5_r6_an_attach_is_one_publish_and_a_detach_one_unpublish() {
    let world = World::new().await;
    let daemon = world.daemon(json!({})).await;
    let (node, volume) = (world.node("node").await, world.volume("pv").await);
    let attachment = world.attach(&volume, &node).await;

    let object = world.attached(&attachment).await;
    assert!(world.is_published(&volume, &node));
    assert_eq!(object.metadata.finalizers, Some(vec![world.finalizer()]));
    assert_eq!(object.metadata.annotations.unwrap()["csi.alpha.kubernetes.io/node-id"], world.node_id(&node));
    assert_eq!(world.publishes(&volume).len(), 1);

    world.detached(&attachment).await;
    assert!(!world.is_published(&volume, &node));
    assert_eq!((world.publishes(&volume).len(), world.unpublishes(&volume).len()), (1, 1));
    assert_eq!(world.driver().violations(), []);
    daemon.stop().await.unwrap();
}

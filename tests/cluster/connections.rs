//! How the daemon's clients use their connections to a server that speaks HTTP/2.

use csi_control_plane::cluster::{ClientOptions, Clients, ClusterAccess};
use futures::future::try_join_all;

use crate::wire::Wire;

#[tokio::test]
async fn requests_side_by_side_share_one_connection() {
    let control_plane = crate::shared::api().await;
    let wire = Wire::to(control_plane.address()).await;
    let path = control_plane.through(&control_plane.admin_kubeconfig(), wire.address);
    let clients = Clients::connect(&ClusterAccess::Kubeconfig(path), &ClientOptions::default()).await.unwrap();
    let get = || clients.work.request_text(http::Request::get("/version").body(Vec::new()).unwrap());
    // While there is no connection yet, each request may begin one.
    get().await.unwrap();
    try_join_all((0..50).map(|_| get())).await.unwrap();
    assert_eq!(wire.connections(), 1);
}

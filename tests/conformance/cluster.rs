//! A real API server for the conformance list.

use std::sync::Arc;

use futures::FutureExt as _;

use crate::conformance::dialogue::Server;
use crate::control_plane::{ControlPlane, Extent};
use crate::{accounts, kinds, shared};

/// For cases that only talk.
pub(super) async fn talking() -> Server {
    server(shared::api().await).await
}

/// For a case about what the server itself puts on what is in use.
pub(super) async fn protecting() -> Server {
    server(shared::protecting().await).await
}

/// For a case that makes its server forget or learn.
pub(super) async fn forgetting() -> Server {
    server(Arc::new(ControlPlane::start(Extent::Api).await)).await
}

async fn server(control_plane: Arc<ControlPlane>) -> Server {
    let client = control_plane.client().await;
    let stranger = control_plane.stranger().await;
    let gatekeeper = client.clone();
    let admit = Arc::new(move |namespace: String, name: String, manifests: String| {
        let client = gatekeeper.clone();
        async move { accounts::token(&client, &namespace, &name, &manifests).await }.boxed()
    });
    let installer = client.clone();
    let install = Arc::new(move || {
        let client = installer.clone();
        async move {
            kinds::install(&client).await;
            kinds::install_groups(&client).await;
        }
        .boxed()
    });
    let forget = Arc::new(move || {
        let control_plane = Arc::clone(&control_plane);
        async move {
            control_plane.compact().await;
            // Its memory of old versions outlives etcd's.
            control_plane.restart_api(|| {}).await;
        }
        .boxed()
    });
    Server { client, stranger, admit, forget, install }
}

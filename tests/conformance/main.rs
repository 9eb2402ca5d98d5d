//! The conformance list on the sandbox's API. `tests/cluster` runs the same list on a real one.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, and so may its helpers"
)]

#[path = "mod.rs"]
mod conformance;

use std::sync::Arc;

use conformance::dialogue::Server;
use csi_control_plane::process::{Clock, Entropy, Tasks};
use csi_control_plane::sandbox::api::{Api, ApiOptions, Connections, serve, tcp_connections};
use futures::FutureExt as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// An API in this process, for one case.
struct Standing {
    server: Server,
    _tasks: Tasks,
}

async fn sandbox() -> Standing {
    standing(Api::new(ApiOptions::new(Clock::system(), Entropy::system()))).await
}

async fn protecting() -> Standing {
    let api = Api::new(ApiOptions::new(Clock::system(), Entropy::system()));
    api.protect_storage_in_use();
    standing(api).await
}

async fn standing(api: Api) -> Standing {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.default_retry = false;
    let (tasks, _) = Tasks::new("conformance");
    let (incoming, stop) = (tcp_connections(listener), CancellationToken::new());
    tasks.spawn("api", serve(api.clone(), incoming, Connections::default(), stop));
    let installed = api.clone();
    let install = Arc::new(move || {
        for group in ["snapshot.storage.k8s.io", "gateway.networking.k8s.io"] {
            installed.install(group);
        }
        std::future::ready(()).boxed()
    });
    let forget = Arc::new(move || {
        api.compact();
        std::future::ready(()).boxed()
    });
    let server = Server { client: kube::Client::try_from(config).unwrap(), forget, install };
    Standing { server, _tasks: tasks }
}

conformance::conformance_on!(crate::sandbox, crate::sandbox, crate::protecting);

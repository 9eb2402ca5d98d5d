//! The sandbox's API for the conformance list.

use std::sync::Arc;

use csi_control_plane::process::{Clock, Rng, Tasks};
use csi_control_plane::sandbox::api::{Api, ApiOptions, Connections, Grant, Identity, serve, tcp_connections};
use futures::FutureExt as _;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::conformance::dialogue::Server;

/// The administrator's token.
const ADMINISTRATOR: &str = "administrator";

fn api() -> Api {
    let tokens = [(ADMINISTRATOR.into(), Identity::admin("system:admin"))].into();
    Api::new(ApiOptions { tokens, ..ApiOptions::new(Clock::system(), Rng::system()) })
}

/// For one case, with the tasks that serve it.
pub(super) async fn usual() -> (Server, Tasks) {
    serving(api()).await
}

/// For a case about what the server itself puts on what is in use.
pub(super) async fn protecting() -> (Server, Tasks) {
    let api = api();
    api.protect_storage_in_use();
    serving(api).await
}

async fn serving(api: Api) -> (Server, Tasks) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.default_retry = false;
    let stranger = kube::Client::try_from(config.clone()).unwrap();
    config.auth_info.token = Some(ADMINISTRATOR.to_owned().into());
    let (tasks, _) = Tasks::new("conformance");
    let (incoming, stop) = (tcp_connections(listener), CancellationToken::new());
    tasks.spawn("api", serve(api.clone(), incoming, Connections::default(), stop));
    let installed = api.clone();
    let install = Arc::new(move || {
        for group in ["snapshot.storage.k8s.io", "groupsnapshot.storage.k8s.io/v1", "gateway.networking.k8s.io"] {
            installed.install(group);
        }
        std::future::ready(()).boxed()
    });
    let gate = api.clone();
    let admit = Arc::new(move |namespace: String, name: String, manifests: String| {
        let roles = serde_yaml::Deserializer::from_str(&manifests).map(|it| Value::deserialize(it).unwrap());
        let grants = roles.flat_map(|role| Grant::of_role(&role).unwrap()).collect();
        let (user, token) = (format!("system:serviceaccount:{namespace}:{name}"), format!("{namespace}.{name}"));
        gate.admit(token.as_str(), Identity::limited(user, grants));
        std::future::ready(token).boxed()
    });
    let forget = Arc::new(move || {
        api.compact();
        std::future::ready(()).boxed()
    });
    let client = kube::Client::try_from(config).unwrap();
    (Server { client, stranger, admit, forget, install }, tasks)
}

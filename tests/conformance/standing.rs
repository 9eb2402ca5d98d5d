//! A server for each case of the list, on the ground that is chosen: see [`crate::ground`].

use csi_control_plane::process::Tasks;

use super::dialogue::Server;
use super::{cluster, sandbox};
use crate::ground;

/// A server, and what serves it if that is of this process.
pub(super) struct Standing {
    pub(super) server: Server,
    _tasks: Option<Tasks>,
}

impl From<Server> for Standing {
    fn from(server: Server) -> Self {
        Self { server, _tasks: None }
    }
}

impl From<(Server, Tasks)> for Standing {
    fn from((server, tasks): (Server, Tasks)) -> Self {
        Self { server, _tasks: Some(tasks) }
    }
}

/// For cases that only talk.
pub(super) async fn talking() -> Standing {
    if ground::is_a_cluster() { cluster::talking().await.into() } else { sandbox::usual().await.into() }
}

/// For a case that makes its server forget or learn: one that no other has.
pub(super) async fn forgetting() -> Standing {
    if ground::is_a_cluster() { cluster::forgetting().await.into() } else { sandbox::usual().await.into() }
}

/// For a case about what the server itself puts on what is in use.
pub(super) async fn protecting() -> Standing {
    if ground::is_a_cluster() { cluster::protecting().await.into() } else { sandbox::protecting().await.into() }
}

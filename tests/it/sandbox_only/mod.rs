//! Scenarios that need control over the API, which only the sandbox has.

mod attacher_edges;
mod audit;
mod faults;
mod groups;
mod health_at_large;
mod journal;
mod orphans;
mod orphans_at_large;
mod provision;
mod provision_kept;
mod resize_writes;
mod resizes;
mod rights;
mod snapshot_habits;
mod snapshots;
mod snapshots_kept;
mod sources;
mod terms;
mod told;
mod traces;
mod twins;
mod unreadable;
mod watches;

use csi_control_plane::sandbox::api::Api;
use csi_control_plane::sandbox::api::audit::Entry;
use csi_control_plane::sandbox::api::faults::Matching;

use crate::world::World;

/// The API behind the sockets.
fn api(world: &World) -> &Api {
    &world.sandbox().testbed.api
}

/// The user that `world.daemon()` is.
fn user(world: &World) -> String {
    world.name("daemon")
}

/// The daemon's requests only.
fn by_daemon(world: &World) -> Matching {
    Matching::any().user(user(world))
}

/// The daemon's writes without Leases, in the order of the answers.
fn writes(world: &World) -> Vec<Entry> {
    let user = user(world);
    api(world)
        .audit()
        .matching(|it| it.user == user && it.resource != "leases" && !["get", "list", "watch"].contains(&it.verb))
}

/// The same as words.
fn written(world: &World) -> Vec<String> {
    let full = |it: &Entry| {
        let slash = if it.subresource.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{} {}", it.verb, it.resource, it.subresource, it.code)
    };
    writes(world).iter().map(full).collect()
}

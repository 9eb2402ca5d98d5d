//! The Go sidecars beside our daemons: the same driver, the same Leases, as an administrator.

use std::path::Path;

use crate::ground::cluster::NAMESPACE;
use crate::programs::{Program, find};
use crate::world::World;

/// What every sidecar is told in every scenario: whose driver, and the Lease's timing of our daemons. On a busy machine a call
/// takes long, and is not to be given up for that.
pub(crate) fn flags(world: &World) -> Vec<String> {
    let address = format!("--csi-address={}", world.real().socket().display());
    let namespace = format!("--leader-election-namespace={NAMESPACE}");
    let timing = [
        "--leader-election",
        "--leader-election-lease-duration=15s",
        "--leader-election-renew-deadline=10s",
        "--leader-election-retry-period=2s",
        "--timeout=15s",
    ];
    [address, namespace].into_iter().chain(timing.map(str::to_owned)).collect()
}

/// Starts a sidecar with these flags.
pub(crate) fn start(world: &World, program: &str, flags: &[String]) -> Program {
    start_in(world, "", program, flags)
}

/// The same in this pod.
pub(crate) fn start_in(world: &World, pod: &str, program: &str, flags: &[String]) -> Program {
    let ground = world.real();
    let told = [
        // Where csi-provisioner's capacity objects are, and whose owner is theirs.
        format!("NAMESPACE={NAMESPACE}"),
        format!("POD_NAME={pod}"),
        find(program).display().to_string(),
        format!("--kubeconfig={}", ground.admin_kubeconfig().display()),
    ];
    Program::run(ground.folder(), program, Path::new("env"), &[&told, flags].concat())
}

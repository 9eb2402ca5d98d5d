//! The command `sandbox`: with the demo driver, with another driver, and with a driver that fails.

use std::time::Duration;

use csi_control_plane::proto::controller_service_capability::rpc::Type as Rpc;
use csi_control_plane::sandbox::driver::{Action, Fault, GIB, Method, Node, Pool, Profile};

use super::program::{Program, run};
use super::theatre::{AT_ONCE, Theatre};

#[tokio::test]
async fn the_story_with_the_demo_driver_comes_to_its_end() {
    let ended = run(&["sandbox"], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    for step in [
        "driver demo.csi.example.com discovered",
        "lease external-attacher-leader-demo-csi-example-com won by",
        "lease external-health-monitor-leader-demo-csi-example-com won by",
        "lease demo-csi-example-com won by",
        "lease external-resizer-demo-csi-example-com won by",
        "lease external-snapshotter-leader-demo-csi-example-com won by",
        "the capacity for the scheduler is published: 200Gi in zone-a, 120Gi in zone-b",
        "the kubelet registered demo.csi.example.com at /",
        "/healthz, is answered: ok",
        "claim orders provisioned for its pod on node-a: pvc-",
        "orders attached to node-a",
        "invoices attached to node-b",
        "orders detached from node-a outside Kubernetes",
        "is attached again",
        "claim orders asked for 2Gi, and has it: pvc-",
        "claim orders asked for the class faster, and pvc-",
        "claim orders says that its volume is Degraded (DiskLost): one disk of two is lost",
        "claim orders says that its volume is healthy again",
        "snapshot before-the-upgrade of claim orders is taken, and ready to use: snapshot-",
        "claim restored provisioned from the snapshot: pvc-",
        "the restored volume and the snapshot are deleted",
        "group before-the-sale of all claims is taken: 2 snapshots of one moment",
        "the group and its snapshots are deleted",
        "claim archive provisioned at once: pvc-",
        "attaching archive failed, and its status says why: rpc error: code = ResourceExhausted",
        "event VolumeAttachRecovered on claim archive",
        "archive detached from node-",
        "the claims are deleted, and so are their volumes at the driver",
        "the daemon withdrew the driver, and the kubelet unregistered it",
        "the daemon stopped cleanly and released its leases",
        "37 steps observed in",
    ] {
        assert!(ended.stdout.contains(step), "{step:?} in\n{}", ended.stdout);
    }
}

#[tokio::test]
async fn a_story_that_waits_in_vain_ends_at_ctrl_c() {
    let folder = tempfile::tempdir().unwrap();
    let overlay = folder.path().join("overlay.yaml");
    std::fs::write(&overlay, "roles: { attacher: { retry: { initial: 1h, max: 1h } } }").unwrap();
    let mut program = Program::start(&["sandbox", "--config", overlay.to_str().unwrap()], &[]);
    program.printed("waiting: archive is attached").await;
    program.signal("INT").await;
    assert_eq!(program.exit().await, Some(0), "{}", program.stderr());
}

#[tokio::test]
async fn a_fault_in_the_users_configuration_ends_the_sandbox_with_exit_code_78_and_points_at_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let overlay = folder.path().join("overlay.yaml");
    std::fs::write(&overlay, "roles:\n  attacher:\n    wrkers: 3\n").unwrap();
    let ended = run(&["sandbox", "--config", overlay.to_str().unwrap()], &[]).await;
    assert_eq!(ended.code, Some(78), "{}", ended.stdout);
    let says = format!(
        "the configuration has 1 fault\n\n  roles.attacher.wrkers  ({}:3)\n    found:   an unknown key\n    allowed: did you mean \
         `workers`?\n",
        overlay.display()
    );
    assert_eq!(ended.stderr, says);
}

#[tokio::test]
async fn a_step_that_is_never_seen_ends_the_sandbox_with_exit_code_1_and_says_what_was_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let overlay = folder.path().join("overlay.yaml");
    std::fs::write(&overlay, "leaderElection: { namespace: elsewhere }").unwrap();
    let ended = run(&["sandbox", "--step-timeout", "300ms", "--config", overlay.to_str().unwrap()], &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    let says = "error: the demo did not finish: step 2 was not observed within 0.3s: \
        lease external-attacher-leader-demo-csi-example-com is taken; last seen: there is none in kube-system; \
        the cluster has no claim, volume, pod or attachment\n";
    assert_eq!(ended.stderr, says);
}

#[tokio::test]
async fn a_story_whose_volumes_are_made_anywhere_ends_with_exit_code_1_tells_of_the_cluster_and_keeps_no_core_busy() {
    let folder = tempfile::tempdir().unwrap();
    let overlay = folder.path().join("overlay.yaml");
    std::fs::write(&overlay, "roles: { provisioner: { topology: false } }").unwrap();
    let arguments = ["sandbox", "--step-timeout", "5s", "--config", overlay.to_str().unwrap()];
    let mut program = Program::start(&arguments, &[]);
    // A sign of life every two seconds.
    program.printed("waiting: invoices is attached to node-b").await;
    let before = program.cpu_time();
    program.printed("waiting: invoices is attached to node-b").await;
    let used = program.cpu_time().saturating_sub(before);
    assert!(used < Duration::from_secs(1), "{used:?} of two seconds");
    assert_eq!(program.exit().await, Some(1), "{}", program.stderr());
    let said = program.stderr();
    for part in [
        "step 14 was not observed within 5s: invoices is attached to node-b; last seen: rpc error: code = FailedPrecondition",
        "; in the cluster: claim invoices is Bound; claim orders is Bound; volume pvc-",
        "; event VolumeAttachFailed on claim invoices: ",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
}

#[tokio::test]
async fn a_second_ctrl_c_ends_the_sandbox_at_once_although_a_call_is_in_flight() {
    let theatre = Theatre::open_with(Profile::with_nodes(["my-node"])).await;
    theatre.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hang));
    let endpoint = format!("unix://{}", theatre.path("csi.sock").display());
    let mut program = Program::start(&["sandbox", "--csi-endpoint", &endpoint, "--node-id", "my-node"], &[]);
    program.printed("waiting: orders is attached").await;
    program.signal("INT").await;
    program.printed("Stopping. A second Ctrl-C ends it at once.").await;
    assert!(program.is_alive(), "it waits for the call in flight");
    let asked = theatre.driver().age();
    program.signal("INT").await;
    assert_eq!(program.exit().await, Some(1), "{}", program.stderr());
    assert!(theatre.driver().age().saturating_sub(asked) < AT_ONCE);
    let says = "error: interrupted before the daemon had stopped and released its leases\n";
    assert_eq!(program.stderr(), says);
}

#[tokio::test]
async fn the_story_drives_the_users_own_driver_and_leaves_nothing_behind() {
    let theatre = Theatre::open_with(Profile::with_nodes(["my-node"])).await;
    let endpoint = format!("unix://{}", theatre.path("csi.sock").display());
    let ended = run(&["sandbox", "--csi-endpoint", &endpoint, "--node-id", "my-node"], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    assert!(ended.stdout.contains("attaching archive failed, and its status says why: CSINode"), "{}", ended.stdout);
    assert!(ended.stdout.contains("31 steps observed, 4 skipped in"), "{}", ended.stdout);
    assert!(theatre.driver().state().volumes().is_empty(), "{:?}", theatre.driver().state());
}

/// The path alone names the socket, too.
#[tokio::test]
async fn a_driver_with_a_node_service_is_asked_for_its_node() {
    let theatre = Theatre::open_with(Profile::with_nodes(["my-node"])).await;
    let endpoint = theatre.path("csi.sock").display().to_string();
    let ended = run(&["sandbox", "--csi-endpoint", &endpoint], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    assert!(theatre.driver().state().volumes().is_empty(), "{:?}", theatre.driver().state());
}

#[tokio::test]
async fn an_endpoint_without_a_driver_ends_the_sandbox_and_names_the_socket_beside_it() {
    let theatre = Theatre::open_with(Profile::with_nodes(["my-node"])).await;
    let socket = theatre.path("socket");
    let ended = run(&["sandbox", "--csi-endpoint", socket.to_str().unwrap()], &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    let says = format!(
        "error: cannot use this driver in the sandbox: no CSI driver at {socket}: expected a driver that listens on this unix socket; \
         start it, or give the path of its socket to --csi-endpoint: cannot connect to the driver's socket: {socket}: No such file or \
         directory (os error 2); there is csi.sock in that folder: name it as the endpoint\n",
        socket = socket.display()
    );
    assert_eq!(ended.stderr, says);
}

/// What the sandbox says of a driver that it cannot use.
async fn refused(profile: Profile) -> String {
    let theatre = Theatre::open_with(profile).await;
    let endpoint = format!("unix://{}", theatre.path("csi.sock").display());
    let ended = run(&["sandbox", "--csi-endpoint", &endpoint], &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    ended.stderr
}

#[tokio::test]
async fn a_driver_without_a_node_service_needs_a_node_by_name() {
    let told = refused(Profile { node_service: false, ..Profile::with_nodes(["my-node"]) }).await;
    assert!(told.contains("--node-id"), "{told}");
}

#[tokio::test]
async fn a_driver_that_makes_no_volumes_is_told_apart() {
    let told = refused(Profile::with_nodes(["my-node"]).without(Rpc::CreateDeleteVolume)).await;
    assert!(told.contains("CREATE_DELETE_VOLUME"), "{told}");
}

#[tokio::test]
async fn a_driver_with_a_place_has_its_volumes_made_there_and_its_room_told() {
    let zone = [("example.com/zone", "here")];
    let mut profile = Profile::default().in_pools([Pool::at(zone, 40 * GIB)]);
    let segments = zone.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    profile.nodes.insert("my-node".to_owned(), Node { segments, ..Node::default() });
    let theatre = Theatre::open_with(profile).await;
    let endpoint = format!("unix://{}", theatre.path("csi.sock").display());
    let ended = run(&["sandbox", "--csi-endpoint", &endpoint], &[]).await;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}", ended.stdout);
    assert!(ended.stdout.contains("the capacity for the scheduler is published: 40Gi in here"), "{}", ended.stdout);
    assert!(theatre.driver().state().volumes().is_empty(), "{:?}", theatre.driver().state());
}

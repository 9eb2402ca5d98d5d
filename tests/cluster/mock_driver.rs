//! The daemon with a driver that others have written, with another language and another gRPC library: the mock driver of Kubernetes' own
//! end-to-end tests.

use std::collections::BTreeSet;

use crate::program::{eventually, run};
use crate::programs::Program;

/// What it is asked.
const CALLS: [&str; 7] = [
    "CreateVolume",
    "ControllerPublishVolume",
    "ControllerExpandVolume",
    "CreateSnapshot",
    "DeleteSnapshot",
    "ControllerUnpublishVolume",
    "DeleteVolume",
];

#[tokio::test]
async fn the_mock_driver_of_kubernetes_goes_through_the_demo() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let driver = Program::start(folder.path(), "mock-driver", &["csi.sock".to_owned()]);
    eventually("the mock driver listens", async || socket.exists().then_some(())).await;
    let ended = run(&["sandbox", "--csi-endpoint", socket.to_str().unwrap()], &[]).await;
    driver.stop().await;
    let log = std::fs::read_to_string(folder.path().join("mock-driver.log")).unwrap();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{}\n{log}", ended.stdout);
    // It tells nothing of places, of published nodes and of classes of attributes, and takes no groups of snapshots.
    assert!(ended.stdout.contains("28 steps observed, 5 skipped in"), "{}", ended.stdout);
    // A method, and the error if it failed. The demo has looked whether the driver still has volumes.
    let calls: BTreeSet<&str> = log.lines().collect();
    for call in CALLS {
        assert!(calls.contains(format!("/csi.v1.Controller/{call}").as_str()), "{call}: {calls:#?}");
    }
    // It offers the call, and does not implement it.
    let is_expected = |call: &&&str| call.contains("ControllerGetVolumeHealth rpc error: code = Unimplemented");
    let failed: Vec<_> = calls.iter().filter(|call| call.contains(' ') && !is_expected(call)).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

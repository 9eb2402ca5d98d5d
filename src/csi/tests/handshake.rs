use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{Instant, sleep};
use tonic::{Code, Status};

use super::fixture::Bench;
use crate::csi::{ControllerRpc, CsiOptions, DriverState};
use crate::proto;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_first_probe_is_immediate_and_a_ready_driver_is_known_at_once_r41() {
    let bench = Bench::started();
    let begin = Instant::now();
    let driver = bench.ready().await;
    assert!(begin.elapsed() < 100 * MS, "{:?}", begin.elapsed());
    assert_eq!(driver.name, "demo.csi.example.com");
    assert_eq!(driver.vendor_version(), "1.0");
    assert_eq!(driver.generation, 1);
    assert!(driver.capabilities.controller_service() && driver.capabilities.publish_unpublish());
    assert_eq!(bench.calls("Probe"), 1);
    sleep(60 * SECOND).await;
    assert_eq!(bench.calls("Probe"), 1, "a ready driver is not probed again");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_not_ready_is_probed_every_second_r28() {
    let mut bench = Bench::new(CsiOptions::default());
    bench.script().probes = [Ok(Some(false)), Ok(Some(false)), Err(Status::deadline_exceeded("slow")), Ok(None)].into();
    bench.start_driver();
    bench.run();
    let begin = Instant::now();
    assert_eq!(bench.error_containing("not ready").await, "the driver is not ready yet");
    bench.error_containing("DeadlineExceeded").await;
    bench.ready().await;
    let elapsed = begin.elapsed();
    assert!(elapsed >= 3 * SECOND && elapsed < 3 * SECOND + 100 * MS, "{elapsed:?}");
    assert_eq!(bench.dials(), 1, "all over one connection");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_is_given_up_at_its_deadline_and_repeated_r28() {
    let mut bench = Bench::new(CsiOptions { timeout: 5 * SECOND, ..CsiOptions::default() });
    bench.script().delay.insert("Probe", 3600 * SECOND);
    bench.start_driver();
    bench.run();
    let error = bench.error_containing("DeadlineExceeded").await;
    assert_eq!(error, "cannot probe the driver: rpc error: code = DeadlineExceeded desc = context deadline exceeded");
    bench.script().delay.clear();
    bench.ready().await;
}

#[tokio::test(start_paused = true)]
async fn each_call_of_the_handshake_has_its_own_deadline_r28() {
    let mut bench = Bench::new(CsiOptions { timeout: 5 * SECOND, ..CsiOptions::default() });
    for rpc in ["Probe", "GetPluginInfo", "GetPluginCapabilities", "ControllerGetCapabilities"] {
        bench.script().delay.insert(rpc, 4 * SECOND);
    }
    bench.start_driver();
    bench.run();
    bench.ready().await;
    assert_eq!(bench.calls("Probe"), 1, "nothing had to be repeated");
}

#[tokio::test(start_paused = true)]
async fn an_odd_code_is_shown_and_asked_again_for_each_of_the_four_calls() {
    let bench = Bench::started();
    for (rpc, what) in [
        ("Probe", "cannot probe the driver"),
        ("GetPluginInfo", "cannot get the driver's name"),
        ("GetPluginCapabilities", "cannot get the driver's services"),
        ("ControllerGetCapabilities", "cannot get the driver's controller capabilities"),
    ] {
        bench.script().refuse.clear();
        bench.script().refuse.insert(rpc, (Code::Unimplemented, "not here".into()));
        let error = bench.error_containing(what).await;
        assert_eq!(error, format!("{what}: rpc error: code = Unimplemented desc = not here"));
    }
    bench.script().refuse.clear();
    bench.ready().await;
}

#[tokio::test(start_paused = true)]
async fn garbage_instead_of_a_name_is_explained_and_asked_again() {
    let bench = Bench::started();
    for (name, why) in [
        ("", "the name is empty"),
        ("demo/csi", "contains '/'"),
        ("-demo", "begin and end with a letter or digit"),
        (&"d".repeat(64), "64 characters, at most 63"),
    ] {
        name.clone_into(&mut bench.script().name);
        let error = bench.error_containing(why).await;
        assert!(error.starts_with("the driver gives no valid name: "), "{error}");
    }
    "good.example.com".clone_into(&mut bench.script().name);
    assert_eq!(bench.ready().await.name, "good.example.com");
}

#[tokio::test(start_paused = true)]
async fn nobody_at_the_socket_is_said_and_waited_for() {
    let mut bench = Bench::new(CsiOptions::default());
    bench.run();
    let error = bench.error_containing("socket").await;
    assert_eq!(error, "cannot connect to the driver's socket: no such socket");
    sleep(60 * SECOND).await;
    assert!((60..90).contains(&bench.dials()), "about once a second: {}", bench.dials());
    bench.start_driver();
    let begin = Instant::now();
    bench.ready().await;
    assert!(begin.elapsed() <= SECOND, "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_driver_without_a_controller_is_not_asked_for_its_capabilities() {
    let mut bench = Bench::new(CsiOptions::default());
    bench.script().services = vec![2];
    bench.start_driver();
    bench.run();
    let driver = bench.ready().await;
    assert!(!driver.capabilities.controller_service() && !driver.capabilities.publish_unpublish());
    assert_eq!(bench.calls("ControllerGetCapabilities"), 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_idle_connection_is_noticed_r29() {
    let mut bench = Bench::started();
    let driver = bench.ready().await;
    sleep(3600 * SECOND).await;
    assert_eq!(bench.dials(), 1, "an idle connection stays");
    bench.kill_driver();
    let begin = Instant::now();
    let state = bench.until(|s| matches!(s, DriverState::Lost { .. })).await;
    assert!(begin.elapsed() < 10 * MS, "{:?}", begin.elapsed());
    let DriverState::Lost { driver: lost, .. } = state else { unreachable!() };
    assert!(Arc::ptr_eq(&driver, &lost));
    assert!(bench.meter.render().contains("csi_control_plane_driver_ready{driver_name=\"demo.csi.example.com\"} 0"));
    assert!(bench.error_containing("no such socket").await.contains("cannot connect"), "why it is not back is told");
}

#[tokio::test(start_paused = true)]
async fn an_unchanged_driver_comes_back_as_the_same_arc_and_its_client_works_again() {
    let mut bench = Bench::started();
    let driver = bench.ready().await;
    sleep(10 * SECOND).await;
    bench.kill_driver();
    bench.until(|s| matches!(s, DriverState::Lost { .. })).await;
    let refused = driver.client.list_volumes(proto::ListVolumesRequest::default()).await.unwrap_err();
    assert_eq!(refused.to_string(), "rpc error: code = Unavailable desc = not connected to the driver");
    "1.1".clone_into(&mut bench.script().version);
    bench.start_driver();
    let back = bench.ready().await;
    assert!(Arc::ptr_eq(&driver, &back));
    assert_eq!(driver.vendor_version(), "1.1");
    driver.client.list_volumes(proto::ListVolumesRequest::default()).await.unwrap();
    assert!(bench.meter.render().contains("csi_control_plane_driver_connections_total 2"));
}

#[tokio::test(start_paused = true)]
async fn a_restart_between_two_calls_is_noticed_and_the_driver_asked_again() {
    let mut bench = Bench::started();
    let driver = bench.ready().await;
    sleep(10 * SECOND).await;
    let mut states = bench.csi.state();
    bench.restart_driver();
    // Whoever calls before the new driver was asked for its name gets no answer from it.
    let early = driver.client.list_volumes(proto::ListVolumesRequest::default()).await.unwrap_err();
    assert_eq!(early.code, Code::Unavailable);
    assert_eq!(bench.calls("ListVolumes"), 0);
    sleep(10 * MS).await;
    assert_eq!(states.changed().now_or_never(), Some(Ok(())));
    bench.ready().await;
    assert_eq!(bench.calls("GetPluginInfo"), 2);
    assert_eq!(bench.calls("ControllerGetCapabilities"), 2);
}

#[tokio::test(start_paused = true)]
async fn changed_capabilities_begin_a_generation_that_shares_operations_and_retires_the_old_client() {
    let mut bench = Bench::started();
    let old = bench.ready().await;
    let turn = old.operations.acquire("vol-1").await;
    sleep(10 * SECOND).await;
    bench.script().rpcs = vec![2, ControllerRpc::ListVolumes as i32, 4711];
    bench.restart_driver();
    bench.until(|s| matches!(s, DriverState::Lost { .. })).await;
    let new = bench.ready().await;
    assert!(!Arc::ptr_eq(&old, &new));
    assert_eq!((old.generation, new.generation), (1, 2));
    assert!(new.capabilities.list_volumes() && !old.capabilities.list_volumes());
    assert_eq!(new.operations.snapshot().len(), 1, "operations outlive the restart");
    drop(turn);
    assert!(new.operations.snapshot().is_empty());
    let void = old.client.list_volumes(proto::ListVolumesRequest::default()).await.unwrap_err();
    assert_eq!(void.code, Code::Unavailable);
    assert!(void.message.contains("other capabilities"), "{void}");
    new.client.list_volumes(proto::ListVolumesRequest::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn another_name_is_fatal_and_nothing_is_sent_to_that_driver() {
    let mut bench = Bench::started();
    let driver = bench.ready().await;
    sleep(10 * SECOND).await;
    "other.csi.example.com".clone_into(&mut bench.script().name);
    bench.restart_driver();
    let DriverState::Fatal(error) = bench.until(|s| matches!(s, DriverState::Fatal(_))).await else { unreachable!() };
    assert!(error.contains("\"demo.csi.example.com\"") && error.contains("\"other.csi.example.com\""), "{error}");
    assert!(driver.client.list_volumes(proto::ListVolumesRequest::default()).await.is_err());
    sleep(60 * SECOND).await;
    assert_eq!(bench.calls("ListVolumes"), 0);
    assert_eq!(bench.dials(), 2, "nobody knocks again");
}

#[tokio::test(start_paused = true)]
async fn a_name_given_before_the_driver_was_ready_binds_nobody() {
    let bench = Bench::started();
    bench.script().refuse.insert("GetPluginCapabilities", (Code::Internal, "half up".into()));
    bench.error_containing("half up").await;
    "late.example.com".clone_into(&mut bench.script().name);
    bench.script().refuse.clear();
    let driver = bench.ready().await;
    driver.client.list_volumes(proto::ListVolumesRequest::default()).await.unwrap();
    assert_eq!(driver.name, "late.example.com");
    assert!(
        bench
            .meter
            .render()
            .contains("driver_name=\"late.example.com\",method_name=\"/csi.v1.Controller/ListVolumes\"")
    );
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_keeps_falling_over_is_not_hammered() {
    let mut bench = Bench::started();
    bench.ready().await;
    let (begin, dials) = (Instant::now(), bench.dials());
    for _ in 0..20 {
        bench.restart_driver();
        bench.until(|s| matches!(s, DriverState::Lost { .. })).await;
        bench.ready().await;
    }
    assert!(begin.elapsed() > 10 * SECOND, "{:?}", begin.elapsed());
    assert!(bench.dials() - dials <= 25);
}

#[tokio::test(start_paused = true)]
async fn an_orderly_stop_lets_the_running_call_end_and_the_next_one_finds_the_new_driver() {
    let mut bench = Bench::started();
    let driver = bench.ready().await;
    sleep(10 * SECOND).await;
    bench.script().delay.insert("ControllerPublishVolume", 10 * SECOND);
    let running = driver.client.controller_publish_volume(proto::ControllerPublishVolumeRequest::default());
    let meanwhile = async {
        sleep(SECOND).await;
        bench.drain_driver();
        bench.start_driver();
        sleep(SECOND).await;
        // The old connection takes no more calls: that is when its end shows, and the new driver is met.
        let refused = driver.client.list_volumes(proto::ListVolumesRequest::default()).await.unwrap_err();
        assert_eq!(refused.code, Code::Unavailable, "{refused}");
        bench.until(|s| matches!(s, DriverState::Lost { .. })).await;
        bench.ready().await;
        driver.client.list_volumes(proto::ListVolumesRequest::default()).await.unwrap();
    };
    let (outcome, ()) = tokio::join!(running, meanwhile);
    outcome.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stranger_at_the_socket_is_told_and_outwaited() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b""] {
        let mut bench = Bench::new(CsiOptions::default());
        bench.start_stranger(answer);
        bench.run();
        let error = bench.error_containing("Unavailable").await;
        assert!(
            error.starts_with("cannot probe the driver: rpc error: code = Unavailable desc = call broken off: "),
            "{error}"
        );
        sleep(10 * SECOND).await;
        assert!(bench.dials() < 20, "{}", bench.dials());
        bench.restart_driver();
        bench.ready().await;
    }
}

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt as _;

use super::super::{BackendError, Own};
use super::*;
use crate::process::{BoxedIo, Clock, Dial, Rng, error_chain};
use crate::sandbox::driver::{Action, Fault, Method, Profile};
use crate::sandbox::network::Network;
use crate::sandbox::testbed::{TestBed, Transport};

/// The result of a meeting with whatever is there, the words for the user, and how long it took.
async fn meet(dial: Dial) -> (Result<Own, BackendError>, Vec<String>, Duration) {
    let (begun, mut said) = (Instant::now(), Vec::new());
    let say = |text: &str| said.push(text.to_owned());
    let node = Some("node-1".to_owned());
    let met = Own::meet("unix:///run/csi.sock", dial, node, Clock::system(), Rng::seeded(1), say).await;
    (met, said, begun.elapsed())
}

fn refused() -> io::Result<BoxedIo> {
    Err(io::Error::new(io::ErrorKind::ConnectionRefused, "/run/csi.sock: Connection refused"))
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_without_a_driver_is_told_within_two_seconds_with_what_to_do() {
    let (met, said, took) = meet(Dial::new(|| async { refused() })).await;
    let expected = "no CSI driver at unix:///run/csi.sock: expected a driver that listens on this unix socket; start it, or give the \
        path of its socket to --csi-endpoint: cannot connect to the driver's socket: /run/csi.sock: Connection refused";
    assert_eq!(error_chain(&met.unwrap_err()), expected);
    assert!(took < Duration::from_secs(2) && said.is_empty(), "{took:?} {said:?}");
}

/// A busy machine looks for the socket, and for what is beside it, until the time is over.
#[tokio::test(start_paused = true)]
async fn a_socket_that_is_looked_for_slowly_accepts_no_connection() {
    for (each, reason) in
        [(600, "/run/csi.sock: Connection refused"), (60_000, "cannot connect to the driver's socket within 1.5s")]
    {
        let slow = Dial::new(move || async move {
            sleep(Duration::from_millis(each)).await;
            refused()
        });
        let (met, said, took) = meet(slow).await;
        let told = error_chain(&met.unwrap_err());
        assert!(told.starts_with("no CSI driver at unix:///run/csi.sock: ") && told.ends_with(reason), "{told}");
        assert!(took < Duration::from_secs(2) && said.is_empty(), "{took:?} {said:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_is_no_driver_is_told_within_two_seconds() {
    let http_1 = Dial::new(|| async {
        let (ours, mut theirs) = tokio::io::duplex(4096);
        theirs.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await?;
        Ok(Box::new(ours) as BoxedIo)
    });
    let (met, _, took) = meet(http_1).await;
    let told = error_chain(&met.unwrap_err());
    assert!(told.starts_with("no CSI driver at unix:///run/csi.sock: "), "{told}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_never_answers_is_told_at_once_and_gets_the_patience_of_a_slow_driver() {
    // The far ends are there for as long as the test, and read nothing.
    let kept = Arc::new(Mutex::new(Vec::new()));
    let silent = Dial::new(move || {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        kept.lock().unwrap().push(theirs);
        async { Ok(Box::new(ours) as BoxedIo) }
    });
    let (met, said, took) = meet(silent).await;
    assert_eq!(said, ["waiting up to 30s for the driver: it accepts connections and has not answered Probe yet"]);
    let told = error_chain(&met.unwrap_err());
    assert!(
        told.starts_with("the driver at unix:///run/csi.sock did not become ready within 30s: look at its log; "),
        "{told}"
    );
    assert!(took > Duration::from_secs(30), "{took:?}");
}

async fn testbed() -> TestBed {
    let network = Transport::Network(Network::new());
    TestBed::set_up(network, Profile::with_nodes(["node-1"]), Clock::system(), Rng::seeded(1)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_starts_at_the_same_time_is_met_without_a_word() {
    let testbed = testbed().await;
    let (attempts, driver) = (Arc::new(AtomicUsize::new(0)), testbed.driver_dial("sandbox"));
    let dial = Dial::new(move || {
        let (first, driver) = (attempts.fetch_add(1, Ordering::Relaxed) < 3, driver.clone());
        async move { if first { refused() } else { driver.dial().await } }
    });
    let (met, said, _) = meet(dial).await;
    assert!(met.is_ok() && said.is_empty(), "{met:?} {said:?}");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_not_ready_yet_is_waited_for_and_the_user_knows_why() {
    let testbed = testbed().await;
    testbed
        .driver
        .inject(Fault::on(Method::Probe, Action::fail(tonic::Code::Unavailable, "the array starts")).times(4));
    let (met, said, took) = meet(testbed.driver_dial("sandbox")).await;
    assert!(met.is_ok() && took < Duration::from_secs(10), "{met:?} {took:?}");
    let words = "waiting up to 30s for the driver: it answers Probe with an error: rpc error: code = Unavailable desc = the array starts";
    assert_eq!(said, [words]);
}

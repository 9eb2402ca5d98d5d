use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;
use tracing::Instrument as _;
use tracing_subscriber::layer::SubscriberExt as _;

use super::fixture::Bench;
use crate::csi::{Client, CsiOptions, Driver, RpcError, code_name};
use crate::process::Permitted as _;
use crate::proto;
use crate::telemetry::Propagation;
use crate::telemetry::fixtures::logged;
use crate::testing::listen;

const SECOND: Duration = Duration::from_secs(1);
const SECRET: &str = "correct-horse-battery-staple";

fn publish_request() -> proto::ControllerPublishVolumeRequest {
    proto::ControllerPublishVolumeRequest {
        volume_id: "vol-1".into(),
        node_id: "node-1".into(),
        secrets: [("password".to_owned(), SECRET.to_owned())].into(),
        ..Default::default()
    }
}

async fn publish(driver: &Driver) -> Result<proto::ControllerPublishVolumeResponse, RpcError> {
    driver.client.controller_publish_volume(publish_request()).await
}

#[tokio::test(start_paused = true)]
async fn all_seventeen_codes_arrive_with_message_label_and_metric() {
    let bench = Bench::started();
    let driver = bench.ready().await;
    publish(&driver).await.unwrap();
    for number in 1..17 {
        let code = Code::from_i32(number);
        bench.script().refuse.insert("ControllerPublishVolume", (code, "disk\nis gone".into()));
        let error = publish(&driver).await.unwrap_err();
        assert_eq!(error.code, code);
        assert_eq!(error.method, Client::PUBLISH);
        assert_eq!(error.to_string(), format!("rpc error: code = {} desc = disk\nis gone", code_name(code)));
    }
    let metrics = bench.meter.render();
    for number in 0..17 {
        let line = format!(
            "csi_sidecar_operations_seconds_count{{driver_name=\"demo.csi.example.com\",\
             method_name=\"/csi.v1.Controller/ControllerPublishVolume\",grpc_status_code=\"{}\"}} 1",
            code_name(Code::from_i32(number))
        );
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_before_the_name_is_known_count_for_the_unknown_driver() {
    let bench = Bench::started();
    bench.ready().await;
    let metrics = bench.meter.render();
    for (driver, method) in [
        ("unknown-driver", "/csi.v1.Identity/Probe"),
        ("unknown-driver", "/csi.v1.Identity/GetPluginInfo"),
        ("demo.csi.example.com", "/csi.v1.Identity/GetPluginCapabilities"),
        ("demo.csi.example.com", "/csi.v1.Controller/ControllerGetCapabilities"),
    ] {
        let labels = format!("{{driver_name=\"{driver}\",method_name=\"{method}\",grpc_status_code=\"OK\"}} 1");
        assert!(metrics.contains(&labels), "{labels}\n{metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn migration_m6_only_the_successor_of_a_plugin_has_the_label_that_says_whether_the_object_was_translated() {
    for is_successor in [true, false] {
        let bench = Bench::started();
        bench.csi.know_successors(if is_successor { |name| name == "demo.csi.example.com" } else { |_| false });
        let driver = bench.ready().await;
        driver.client.for_migrated(true).probe(proto::ProbeRequest {}).await.unwrap();
        let metrics = bench.meter.render();
        let counted = |driver: &str, method: &str, migrated: &str| {
            let labels = format!("{{driver_name=\"{driver}\",method_name=\"/csi.v1.{method}\",grpc_status_code=\"OK\"");
            metrics.contains(&format!("{labels}{migrated}}} 1"))
        };
        let ours = "demo.csi.example.com";
        assert_eq!(counted(ours, "Identity/Probe", ",migrated=\"true\""), is_successor, "{metrics}");
        assert_eq!(counted(ours, "Identity/GetPluginCapabilities", ",migrated=\"false\""), is_successor, "{metrics}");
        assert_eq!(metrics.contains("migrated="), is_successor, "{metrics}");
        assert!(counted("unknown-driver", "Identity/GetPluginInfo", ""), "its name was not known: {metrics}");
    }
}

#[tokio::test(start_paused = true)]
async fn r32_a_call_ends_at_its_deadline_and_tells_it_to_the_driver() {
    let bench = Bench::started();
    let driver = bench.ready().await;
    bench.script().delay.insert("ControllerPublishVolume", 3600 * SECOND);
    for (client, limit, header) in
        [(driver.client.clone(), 15, "15000000u"), (driver.client.with_timeout(2 * SECOND), 2, "2000000u")]
    {
        let begin = Instant::now();
        let error = client.controller_publish_volume(publish_request()).await.unwrap_err();
        assert_eq!(error.to_string(), "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
        let late = begin.elapsed().saturating_sub(limit * SECOND);
        assert!(begin.elapsed() >= limit * SECOND && late < Duration::from_millis(10), "{:?}", begin.elapsed());
        let script = bench.script();
        assert_eq!(script.calls.last().unwrap().1.get("grpc-timeout").unwrap(), header);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_connection_breaks_is_unavailable_and_not_final() {
    let mut bench = Bench::started();
    let driver = bench.ready().await;
    bench.script().delay.insert("ControllerPublishVolume", 3600 * SECOND);
    let (outcome, ()) = tokio::join!(publish(&driver), async {
        sleep(SECOND).await;
        bench.kill_driver();
    });
    let error = outcome.unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "{error}");
    assert_eq!(error.message, "call broken off: stream closed because of a broken pipe");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_its_caller_drops_counts_as_canceled() {
    let bench = Bench::started();
    let driver = bench.ready().await;
    bench.script().delay.insert("ControllerPublishVolume", 10 * SECOND);
    assert!(timeout(SECOND, publish(&driver)).await.is_err());
    assert!(bench.meter.render().contains("/ControllerPublishVolume\",grpc_status_code=\"Canceled\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_response_beyond_the_limit_is_refused_and_one_below_gos_limit_too_is_taken() {
    let mut bench = Bench::new(CsiOptions { max_message_bytes: 5 << 20, ..CsiOptions::default() });
    bench.start_driver();
    bench.run();
    let driver = bench.ready().await;
    bench.script().publish_context = vec![("k".into(), "x".repeat(9 << 19))];
    publish(&driver).await.expect("4.5 MiB, more than gRPC's usual 4");
    bench.script().publish_context = vec![("k".into(), "x".repeat(6 << 20))];
    let error = publish(&driver).await.unwrap_err();
    assert!(error.message.contains("too large"), "{error}");
    assert_eq!(error.code, Code::Unavailable, "it is not the driver that says so");
}

/// One message of gRPC: not compressed, so long, these bytes.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat()
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_is_not_the_drivers_last_word() {
    let bench = Bench::started();
    let driver = bench.ready().await;
    // Field 1, text of two bytes that are no UTF-8.
    let not_text = [0x0a, 0x06, 0x0a, 0x01, b'k', 0x12, 0x01, 0xff];
    for (what, bytes, status) in [
        ("text that is no UTF-8", framed(&not_text), Some(Code::Ok)),
        ("a message that ends too early", framed(&[0x0a, 0x7f, b'x']), Some(Code::Ok)),
        ("half a frame", framed(b"0123456789")[..9].to_vec(), Some(Code::Ok)),
        ("no frame at all", b"<html>hello</html>".to_vec(), Some(Code::Ok)),
        ("nothing", Vec::new(), Some(Code::Ok)),
        ("neither message nor status", Vec::new(), None),
        ("no status after a message", framed(&[]), None),
    ] {
        bench.script().raw.insert("ControllerPublishVolume", (bytes, status));
        let error = publish(&driver).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable, "{what}: {error}");
        assert!(!error.message.is_empty(), "{what}");
    }
    // A status that it sends is its word, whatever came before.
    for bytes in [Vec::new(), framed(&[])] {
        bench.script().raw.insert("ControllerPublishVolume", (bytes, Some(Code::OutOfRange)));
        assert_eq!(publish(&driver).await.unwrap_err().code, Code::OutOfRange);
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_whose_details_are_garbage_is_still_the_drivers() {
    let bench = Bench::started();
    let driver = bench.ready().await;
    bench.script().spoil = Some(b"disk is gone");
    for code in [Code::Aborted, Code::NotFound] {
        bench.script().refuse.insert("ControllerPublishVolume", (code, String::new()));
        let error = publish(&driver).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (code, "disk is gone"));
    }
}

/// A driver's text, as its header has it, and what users read.
const TEXTS: [(&[u8], &str); 10] = [
    (b"no room", "no room"),
    (b"", ""),
    (b"100%25 full", "100% full"),
    (b"100% full, %zz", "100% full, %zz"),
    (b"%E7%A3%81%E7%9B%98", "\u{78c1}\u{76d8}"),
    // The same in GBK, encoded and as it is.
    (b"%B4%C5%C5%CC is full", "\u{fffd}\u{fffd}\u{fffd}\u{fffd} is full"),
    (b"\xB4\xC5\xC5\xCC is full", "\u{fffd}\u{fffd}\u{fffd}\u{fffd} is full"),
    // Cut inside a letter, and inside a letter's last number.
    (b"pool %E7%A3%81%E7%9B", "pool \u{78c1}\u{fffd}"),
    (b"pool %E7%A3%81%E7%9B%9", "pool \u{78c1}\u{fffd}%9"),
    // A line break and a percent sign stay what they are beside a bad byte.
    (b"90%25 full%0A%ff", "90% full\n\u{fffd}"),
];

#[tokio::test(start_paused = true)]
async fn a_text_that_is_not_utf_8_keeps_its_code_and_whatever_can_be_read() {
    let bench = Bench::started();
    let driver = bench.ready().await;
    for (header, message) in TEXTS {
        bench.script().spoil = Some(header);
        bench.script().refuse.insert("ControllerPublishVolume", (Code::ResourceExhausted, String::new()));
        let error = publish(&driver).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (Code::ResourceExhausted, message));
        // The same in trailers, after a response has begun.
        bench.script().raw.insert("ControllerPublishVolume", (Vec::new(), Some(Code::ResourceExhausted)));
        let error = publish(&driver).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (Code::ResourceExhausted, message));
        bench.script().raw.clear();
    }
}

/// attacher R52: whoever may no longer write sends nothing, though it was allowed to begin.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_no_longer_permitted_once_it_could_be_sent_is_not_sent() {
    let bench = Bench::started();
    let driver = bench.ready().await;
    let client = driver.client.clone().permitted(Arc::new(|| false));
    let error = client.controller_publish_volume(publish_request()).await.unwrap_err();
    assert_eq!((error.code, bench.calls("ControllerPublishVolume")), (Code::Cancelled, 0), "{error}");
    let client = driver.client.clone().permitted(Arc::new(|| true));
    client.controller_publish_volume(publish_request()).await.unwrap();
    assert_eq!(bench.calls("ControllerPublishVolume"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_error_message_arrives_whole_r46() {
    let bench = Bench::started();
    let driver = bench.ready().await;
    let message = "é".repeat(20_000);
    bench.script().refuse.insert("ControllerPublishVolume", (Code::Internal, message.clone()));
    assert_eq!(publish(&driver).await.unwrap_err().message, message);
}

/// Spans are traced until the guard is dropped.
fn traced() -> impl Sized {
    let tracer = opentelemetry_sdk::trace::SdkTracerProvider::builder().build().tracer("test");
    listen(tracing_subscriber::registry().with(tracing_opentelemetry::layer().with_tracer(tracer)))
}

#[tokio::test(start_paused = true)]
async fn the_trace_goes_on_in_the_driver() {
    let _guard = traced();
    let bench = Bench::started();
    let driver = bench.ready().await;
    let parent = tracing::info_span!("attach");
    let trace = {
        use opentelemetry::trace::TraceContextExt as _;
        use tracing_opentelemetry::OpenTelemetrySpanExt as _;
        parent.context().span().span_context().trace_id().to_string()
    };
    publish(&driver).instrument(parent).await.unwrap();
    let script = bench.script();
    let header = script.calls.last().unwrap().1.get("traceparent").unwrap().to_str().unwrap();
    assert!(header.starts_with(&format!("00-{trace}-")) && header.ends_with("-01"), "{header} of {trace}");
}

/// `OTEL_PROPAGATORS=none`.
#[tokio::test(start_paused = true)]
async fn a_driver_that_is_to_be_told_nothing_of_traces_gets_no_traceparent() {
    let _guard = traced();
    let mut bench = Bench::new(CsiOptions { propagation: Propagation::NONE, ..CsiOptions::default() });
    bench.start_driver();
    bench.run();
    let driver = bench.ready().await;
    publish(&driver).instrument(tracing::info_span!("attach")).await.unwrap();
    assert!(bench.script().calls.last().unwrap().1.get("traceparent").is_none());
}

#[tokio::test(start_paused = true)]
async fn without_tracing_no_traceparent_is_sent() {
    let bench = Bench::started();
    publish(&*bench.ready().await).await.unwrap();
    assert!(bench.script().calls.last().unwrap().1.get("traceparent").is_none());
}

#[tokio::test(start_paused = true)]
async fn requests_and_responses_are_logged_on_one_line_each_without_secrets() {
    let (paper, _guard) = logged(tracing::Level::TRACE);
    let bench = Bench::started();
    let driver = bench.ready().await;
    bench.script().publish_context = vec![("device".into(), "/dev/\nxvda".into())];
    publish(&driver).await.unwrap();
    // A driver that repeats the secret in its error must not bring it into statuses and events.
    bench.script().refuse.insert("ControllerPublishVolume", (Code::Internal, format!("bad password {SECRET}!")));
    let error = publish(&driver).await.unwrap_err();
    assert_eq!(error.message, "bad password ***stripped***!");
    let text = paper.text();
    let lines: Vec<&str> = text
        .lines()
        .filter(|l| l.contains("rpc re") && l.contains("method=\"/csi.v1.Controller/ControllerPublish"))
        .collect();
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(lines[0].contains("volume_id: \"vol-1\"") && lines[0].contains("secrets: ***stripped***"), "{}", lines[0]);
    assert!(lines[1].contains(r"/dev/\nxvda") && lines[1].contains("code=\"OK\""), "{}", lines[1]);
    assert!(lines[3].contains("code=\"Internal\"") && lines[3].contains("bad password"), "{}", lines[3]);
    assert!(!text.contains(SECRET), "a secret was logged");
    let debug = format!("{driver:?} {:?} {:?} {error:?} {:?}", driver.client, bench.csi, publish_request());
    assert!(!debug.contains(SECRET), "{debug}");
}

#[tokio::test(start_paused = true)]
async fn a_huge_response_is_cut_in_the_log_r34() {
    let (paper, _guard) = logged(tracing::Level::TRACE);
    let mut bench = Bench::new(CsiOptions { max_log_length: Some(100), ..CsiOptions::default() });
    bench.script().publish_context = vec![("k".into(), "y".repeat(100_000))];
    bench.start_driver();
    bench.run();
    publish(&*bench.ready().await).await.unwrap();
    let text = paper.text();
    assert!(text.contains("... (cut at 100 characters)"));
    assert!(!text.contains(&"y".repeat(100)));
}

#[tokio::test(start_paused = true)]
async fn spans_carry_the_names_that_opentelemetry_knows() {
    let (paper, _guard) = logged(tracing::Level::TRACE);
    let bench = Bench::started();
    let driver = bench.ready().await;
    bench.script().refuse.insert("ControllerPublishVolume", (Code::NotFound, "no node".into()));
    publish(&driver).await.unwrap_err();
    let text = paper.text();
    let line = text.lines().find(|l| l.contains("rpc response") && l.contains("NotFound")).unwrap();
    for field in [
        "otel.kind=\"client\"",
        "otel.name=\"csi.v1.Controller/ControllerPublishVolume\"",
        "rpc.system=\"grpc\"",
        "rpc.service=\"csi.v1.Controller\"",
        "rpc.method=\"ControllerPublishVolume\"",
    ] {
        assert!(line.contains(field), "{field} in {line}");
    }
}

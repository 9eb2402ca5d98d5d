//! Traces as a user sees them: the daemon as a process, a collector on a socket, and the driver between them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use csi_control_plane::cluster::names::{ANNOTATION_STORAGE_PROVISIONER, ANNOTATION_TRACEPARENT};
use csi_control_plane::sandbox::driver::Method;
use k8s_openapi::api::core::v1::PersistentVolume;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::collector::{Collector, Mood, Seen};
use super::exposition::parse;
use super::program::{Program, eventually};
use super::theatre::{DRIVER, NODE, Theatre};

/// Sends each span as soon as it may.
const EAGER: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "50");

/// Asks for a volume, and for it on the node once this attacher has heard of it; tells what was made.
async fn claimed_and_attached(theatre: &Theatre, attacher: &Program) -> PersistentVolume {
    theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gold"},
        "provisioner": DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}));
    theatre.put(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default", "annotations": {ANNOTATION_STORAGE_PROVISIONER: DRIVER}},
        "spec": {"storageClassName": "gold", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}));
    let volumes = async || theatre.testbed.api.list::<PersistentVolume>("").unwrap().pop();
    let volume = eventually("a volume for the claim", volumes).await;
    let name = volume.metadata.name.clone().unwrap();
    // Kinds are watched apart. In a cluster the claim is bound, its pod placed and its node chosen in between.
    let held = "csi_control_plane_cache_objects{kind=\"PersistentVolume\"} 1\n";
    let is_heard_of = async || attacher.get("/metrics").await.body.contains(held).then_some(());
    eventually("the attacher has heard of the volume", is_heard_of).await;
    theatre
        .put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "attachment"},
        "spec": {"attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": name}}}));
    theatre.attached("attachment").await;
    volume
}

fn annotation(volume: &PersistentVolume) -> Option<&str> {
    volume.metadata.annotations.as_ref()?.get(ANNOTATION_TRACEPARENT).map(String::as_str)
}

/// The trace context of the driver's last call of this method.
fn told(theatre: &Theatre, method: Method) -> Option<String> {
    theatre.driver().calls_of(method).pop().unwrap().traceparent.clone()
}

/// The claim's trace has all of it, each part below the one that caused it, and the driver was told.
async fn is_one_trace(theatre: &Theatre, collector: &Collector, volume: &PersistentVolume) -> Vec<Seen> {
    let of =
        |key: &'static str, value: &'static str| move |it: &Seen| it.attributes.get(key).is_some_and(|is| is == value);
    let claim = collector.span("the claim's span", of("persistent_volume_claim", "default/data")).await;
    let attachment = collector.span("the attachment's span", of("volume_attachment", "attachment")).await;
    assert_eq!((claim.name.as_str(), claim.parent.as_str()), ("claim", ""));
    assert_eq!(annotation(volume), Some(format!("00-{}-{}-01", claim.trace, claim.id).as_str()));
    assert_eq!(attachment.name, "attachment");
    assert_eq!((&attachment.trace, &attachment.parent), (&claim.trace, &claim.id), "the attach goes on with the trace");
    let trace: Vec<Seen> = collector.spans().into_iter().filter(|it| it.trace == claim.trace).collect();
    for (part, below, method) in [
        ("CreateVolume", &claim, Some(Method::CreateVolume)),
        ("persistentvolumes", &claim, None),
        ("ControllerPublishVolume", &attachment, Some(Method::ControllerPublishVolume)),
        ("volumeattachments", &attachment, None),
    ] {
        let found = trace.iter().find(|it| it.name.contains(part) && it.parent == below.id);
        let found = found.unwrap_or_else(|| panic!("{part} below {} in {trace:#?}", below.name));
        if let Some(method) = method {
            assert_eq!(told(theatre, method), Some(format!("00-{}-{}-01", claim.trace, found.id)), "{part}");
        }
    }
    trace
}

#[tokio::test]
async fn a_claim_its_volume_and_the_first_attach_are_one_trace_that_goes_on_in_the_driver() {
    let (theatre, collector) = (Theatre::open().await, Collector::open().await);
    let mut daemon = theatre.daemon_under("daemon", &[EAGER], |config| {
        config["roles"]["provisioner"] = json!({});
        config["telemetry"] = json!({"traces": {"endpoint": collector.endpoint()}});
    });
    let volume = claimed_and_attached(&theatre, &daemon).await;
    let trace = is_one_trace(&theatre, &collector, &volume).await;
    assert!(trace.iter().all(|it| it.resource["service.name"] == "csi-control-plane"));

    // Another day's work is a trace of its own, which points to the claim's.
    theatre.detach("attachment");
    theatre.gone("attachment").await;
    let is_detach = |it: &Seen| it.attributes.get("operation").is_some_and(|is| is == "detach");
    let detach = collector.span("the detach's span", is_detach).await;
    assert_ne!(detach.trace, trace[0].trace);
    assert_eq!(detach.links, [trace[0].trace.clone()]);
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0));
}

#[tokio::test]
async fn what_is_on_of_the_standard_variables_is_done_and_what_is_odd_is_on_the_status_page() {
    let (theatre, collector) = (Theatre::open().await, Collector::open().await);
    let variables = [EAGER, ("OTEL_PROPAGATORS", "none"), ("OTEL_TRACES_SAMPLER", "by-mood")];
    let daemon = theatre.daemon_under("daemon", &variables, |config| {
        config["roles"]["provisioner"] = json!({});
        config["telemetry"] = json!({"traces": {"endpoint": collector.endpoint()}});
    });
    claimed_and_attached(&theatre, &daemon).await;
    collector.span("the claim's span", |it: &Seen| it.attributes.contains_key("persistent_volume_claim")).await;
    for method in [Method::CreateVolume, Method::ControllerPublishVolume] {
        assert_eq!(told(&theatre, method), None, "{method:?}");
    }
    let warnings = daemon.status().await["warnings"].to_string();
    assert!(warnings.contains("OTEL_TRACES_SAMPLER=by-mood is not supported"), "{warnings}");
}

#[tokio::test]
async fn it_is_one_trace_also_where_two_processes_do_it() {
    let (theatre, collector) = (Theatre::open().await, Collector::open().await);
    let endpoint = collector.endpoint();
    let alone = |role: &str| {
        let attributes = format!("k8s.pod.name={role}-0");
        let variables =
            [EAGER, ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("OTEL_RESOURCE_ATTRIBUTES", &*attributes)];
        theatre.daemon_under(role, &variables, |config| config["roles"] = json!({ role: {} }))
    };
    let (_provisioner, attacher) = (alone("provisioner"), alone("attacher"));
    let volume = claimed_and_attached(&theatre, &attacher).await;
    let trace = is_one_trace(&theatre, &collector, &volume).await;
    let of = |name: &str| &trace.iter().find(|it| it.name == name).unwrap().resource["k8s.pod.name"];
    assert_eq!((of("claim").as_str(), of("attachment").as_str()), ("provisioner-0", "attacher-0"));
}

#[tokio::test]
async fn without_a_kept_trace_objects_and_calls_are_as_the_go_sidecars_make_them() {
    let off: &[(&str, &str)] = &[];
    let disabled = [("OTEL_SDK_DISABLED", "true")];
    let unsampled = [EAGER, ("OTEL_TRACES_SAMPLER", "always_off")];
    for (variables, sends) in [(off, false), (&disabled, true), (&unsampled, true)] {
        let (theatre, collector) = (Theatre::open().await, Collector::open().await);
        let mut daemon = theatre.daemon_under("daemon", variables, |config| {
            config["roles"]["provisioner"] = json!({});
            if sends {
                config["telemetry"] = json!({"traces": {"endpoint": collector.endpoint()}});
            }
        });
        let volume = claimed_and_attached(&theatre, &daemon).await;
        assert_eq!(annotation(&volume), None, "{variables:?}");
        daemon.signal("TERM").await;
        assert_eq!(daemon.exit().await, Some(0));
        assert_eq!(collector.requests(), 0, "{variables:?}");
        for method in [Method::CreateVolume, Method::ControllerPublishVolume] {
            let told = told(&theatre, method);
            // A trace that is not kept has a name all the same, and says so: the driver then keeps none of it either.
            let is_fit =
                if variables == unsampled { told.is_some_and(|it| it.ends_with("-00")) } else { told.is_none() };
            assert!(is_fit, "{variables:?} {method}");
        }
    }
}

#[tokio::test]
async fn the_standard_variables_say_where_what_and_as_whom_and_their_secrets_are_told_nobody_else() {
    const SECRET: &str = "hunter2-4711";
    let (theatre, collector, other) = (Theatre::open().await, Collector::open().await, Collector::open().await);
    let headers = format!("authorization=Bearer%20{SECRET},x-tenant=storage");
    let variables = [
        EAGER,
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*other.endpoint()),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*collector.endpoint()),
        ("OTEL_EXPORTER_OTLP_HEADERS", &*headers),
        ("OTEL_SERVICE_NAME", "storage"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,k8s.cluster.name=blue%20one"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "1"),
    ];
    let daemon = theatre.daemon_under("daemon", &variables, |config| {
        config["telemetry"] = json!({"logs": {"level": "trace"}, "traces": {"sampleRatio": 0.0}});
    });
    theatre.attach("volume");
    theatre.attached("volume").await;
    let publish = collector.span("the publish", |it| it.name.contains("ControllerPublishVolume")).await;
    assert_eq!(publish.resource["service.name"], "storage");
    assert_eq!(publish.resource["k8s.cluster.name"], "blue one");
    assert!(!publish.resource["service.version"].is_empty() && !publish.resource["service.instance.id"].is_empty());
    assert_eq!(other.requests(), 0);
    for (key, value) in [("authorization", format!("Bearer {SECRET}")), ("x-tenant", "storage".to_owned())] {
        let sent = collector.header(key);
        assert!(sent.iter().all(|it| it.as_ref() == Some(&value)), "{key}: {sent:?}");
    }
    let mut pages = String::new();
    for path in ["/", "/status.json", "/metrics"] {
        pages.push_str(&daemon.get(path).await.body);
    }
    let line = daemon.stderr().lines().find(|line| line.contains(SECRET)).map(str::to_owned);
    assert_eq!(line, None, "a secret in the log");
    assert!(!pages.contains(SECRET) && daemon.log().iter().any(|line| line["level"] == "TRACE"));
}

/// How many spans had this outcome so far, by the daemon's own count.
async fn spans(daemon: &Program, outcome: &str) -> f64 {
    let families = parse(&daemon.get("/metrics").await.body);
    let samples = &families["csi_control_plane_trace_spans_total"].samples;
    samples.iter().find(|it| it.label("outcome") == Some(outcome)).unwrap().value
}

fn lines(daemon: &Program, message: &str) -> usize {
    daemon.log().iter().filter(|line| line["message"].as_str().is_some_and(|it| it.contains(message))).count()
}

#[tokio::test]
async fn the_spans_of_the_last_work_arrive_when_the_daemon_is_told_to_stop() {
    let (theatre, collector) = (Theatre::open().await, Collector::open().await);
    // They wait for a minute, or for the end.
    let mut daemon = theatre.daemon_under("daemon", &[("OTEL_BSP_SCHEDULE_DELAY", "60000")], |config| {
        config["telemetry"] = json!({"traces": {"endpoint": collector.endpoint()}});
    });
    theatre.attach("volume");
    theatre.attached("volume").await;
    assert_eq!(collector.requests(), 0);
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0));
    let spans = collector.spans();
    let has = |key: &str, value: &str| spans.iter().any(|it| it.attributes.get(key).is_some_and(|is| is == value));
    assert!(has("volume_attachment", "volume") && has("rpc.method", "ControllerPublishVolume"), "{spans:#?}");
    assert!(spans.iter().any(|it| it.name == "election"), "what ends with the daemon is there as well");
}

#[tokio::test]
async fn a_collector_that_never_answers_costs_spans_and_neither_work_nor_the_stop() {
    const VOLUMES: u32 = 80;
    let (theatre, collector) = (Theatre::open().await, Collector::open().await);
    collector.becomes(Mood::Hangs);
    let variables = [
        EAGER,
        ("OTEL_BSP_MAX_QUEUE_SIZE", "64"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "32"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "300000"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "300000"),
    ];
    let mut daemon = theatre.daemon_under("daemon", &variables, |config| {
        config["telemetry"] = json!({"traces": {"endpoint": collector.endpoint()}});
    });
    let names: Vec<String> = (0..VOLUMES).map(|number| format!("volume-{number}")).collect();
    for name in &names {
        theatre.attach(name);
    }
    // Looked up, not searched among the commits: the API must not wait for an observer.
    let is_attached = |name: &str| {
        let attachment = theatre.attachment(name).unwrap();
        attachment.status.is_some_and(|status| status.attached).then_some(())
    };
    for name in &names {
        eventually(&format!("{name} is attached"), async || is_attached(name)).await;
    }
    // All of that while the first request waits for its answer.
    assert_eq!(collector.requests(), 1);
    let dropped = spans(&daemon, "dropped").await;
    // Each attach has a span of its own and one of its call at least; 64 wait, and 32 were sent.
    assert!(dropped >= f64::from(2 * VOLUMES - 64 - 32), "{dropped}");
    assert!(spans(&daemon, "exported").await == 0.0 && spans(&daemon, "failed").await == 0.0);
    assert_eq!(lines(&daemon, "the span queue is full: spans are lost"), 1);

    daemon.signal("TERM").await;
    // The collector would have had five minutes.
    assert_eq!(daemon.exit().await, Some(0));
    assert_eq!(lines(&daemon, "the last spans may not have reached the collector"), 1, "{}", daemon.stderr());
}

#[tokio::test]
async fn a_collector_that_refuses_is_told_of_once_and_so_is_its_recovery() {
    let (theatre, collector) = (Theatre::open().await, Collector::open().await);
    collector.becomes(Mood::Refuses);
    let daemon = theatre.daemon_under("daemon", &[EAGER, ("OTEL_EXPORTER_OTLP_TIMEOUT", "300")], |config| {
        config["telemetry"] = json!({"traces": {"endpoint": collector.endpoint()}});
    });
    let mut failed = 0.0;
    for name in ["one", "two", "three"] {
        theatre.attach(name);
        theatre.attached(name).await;
        failed = eventually("another batch is given up", async || {
            let now = spans(&daemon, "failed").await;
            (now > failed).then_some(now)
        })
        .await;
    }
    assert_eq!(lines(&daemon, "traces do not reach the collector"), 1);
    collector.becomes(Mood::Takes);
    theatre.attach("four");
    theatre.attached("four").await;
    daemon.logged("traces reach the collector again").await;
    assert!(spans(&daemon, "exported").await > 0.0);
    assert_eq!(lines(&daemon, "traces do not reach the collector"), 1, "{}", daemon.stderr());
}

/// An authority, its certificate in a file, and a server on loopback that it vouches for.
fn authority(theatre: &Theatre) -> (String, ServerTlsConfig) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let issue = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let (server, client) = (issue(&["127.0.0.1"]), issue(&["daemon"]));
    theatre.file("client.pem", &client.0);
    theatre.file("client.key", &client.1);
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(server.0, server.1))
        .client_ca_root(Certificate::from_pem(authority.pem()));
    (theatre.file("roots.pem", &authority.pem()), tls)
}

#[tokio::test]
async fn a_collector_behind_tls_is_trusted_by_its_authority_and_trusts_us_by_ours() {
    let theatre = Theatre::open().await;
    let (roots, tls) = authority(&theatre);
    let collector = Collector::open_with_tls(tls).await;
    let file = |name: &str| theatre.path(name).to_str().unwrap().to_owned();
    let (certificate, key) = (file("client.pem"), file("client.key"));
    let configured = |config: &mut Value| {
        config["telemetry"] = json!({"traces": {"endpoint": collector.endpoint()}});
    };
    // The public roots know nothing of this one.
    let stranger = theatre.daemon_under("stranger", &[EAGER], configured);
    stranger.logged("traces do not reach the collector: spans are lost").await;
    assert_eq!(collector.requests(), 0);
    drop(stranger);
    let variables = [
        EAGER,
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", &*roots),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", &*certificate),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", &*key),
    ];
    let _daemon = theatre.daemon_under("daemon", &variables, configured);
    collector.span("any span", |_| true).await;
    // A file that is not there keeps traces away, not the daemon.
    let nothing = theatre.daemon_under("nothing", &[("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such.pem")], configured);
    let line = nothing.logged("telemetry").await;
    assert!(line["warning"].as_str().unwrap().contains("cannot read /no/such.pem"), "{line}");
    nothing.address().await;
}

/// A proxy that connects to `server` whatever it is asked for. Returns its address and what it was asked for.
fn proxy(server: SocketAddr) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut client, server) = (BufReader::new(stream.unwrap()), TcpStream::connect(server).unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && client.read_line(&mut head).unwrap() > 0 {}
            sender.send(head.lines().next().unwrap_or_default().to_owned()).unwrap();
            let mut client = client.into_inner();
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || std::io::copy(&mut &server, &mut client));
        }
    });
    (address, asked)
}

#[tokio::test]
async fn spans_reach_a_collector_behind_a_proxy() {
    let (theatre, collector) = (Theatre::open().await, Collector::open().await);
    let (proxy, asked) = proxy(collector.endpoint().trim_start_matches("http://").parse().unwrap());
    let variables = [EAGER, ("HTTPS_PROXY", &*format!("http://{proxy}"))];
    let daemon = theatre.daemon_under("daemon", &variables, |config| {
        config["roles"]["provisioner"] = json!({});
        config["telemetry"] = json!({"traces": {"endpoint": "http://collector.example.test:4317"}});
    });
    claimed_and_attached(&theatre, &daemon).await;
    collector.span("the claim's span", |it: &Seen| it.attributes.contains_key("persistent_volume_claim")).await;
    assert_eq!(asked.recv().unwrap(), "CONNECT collector.example.test:4317 HTTP/1.1");
}

//! The driver over real gRPC: on a unix socket, and in the simulated network under paused time.

use std::io;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use serde_json::Value;

use super::state_tests::{create, publish};
use super::{Action, Chance, Driver, Fault, Lie, Listen, Method, Outcome, Profile, Server};
use crate::network::{Cut, Network};
use base::process::{Clock, Dial, Rng};
use base::proto::controller_client::ControllerClient;
use base::proto::identity_client::IdentityClient;
use base::proto::volume_capability::access_mode::Mode;
use base::proto::{
    ControllerGetCapabilitiesRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest,
    CreateVolumeRequest, GetPluginInfoRequest, ListVolumesRequest, ProbeRequest,
};

const PUBLISH: Method = Method::ControllerPublishVolume;
const SECOND: Duration = Duration::from_secs(1);

fn channel(dial: Dial) -> Channel {
    Endpoint::from_static("http://driver").connect_with_connector_lazy(tower::service_fn(move |_: http::Uri| {
        let dial = dial.clone();
        async move { Ok::<_, io::Error>(TokioIo::new(dial.dial().await?)) }
    }))
}

struct World {
    network: Network,
    driver: Driver,
    server: Server,
    controller: ControllerClient<Channel>,
}

/// A driver with volumes `v` and `w` on nodes `a` and `b`, served at `driver` of a network.
async fn world() -> World {
    let network = Network::new();
    let driver = Driver::new(Profile::with_nodes(["a", "b"]), Clock::system());
    driver.seed(["v", "w"]);
    let listen = Listen::network(network.clone(), "driver");
    let server = Server::start(&driver, listen).await.unwrap();
    let controller = ControllerClient::new(channel(network.dial("daemon", "driver")));
    World { network, driver, server, controller }
}

impl World {
    async fn publish(&self, volume: &str, node: &str) -> Result<(), Status> {
        let request = with_deadline(publish(volume, node, Mode::SingleNodeWriter, false), 15);
        self.controller.clone().controller_publish_volume(request).await.map(drop)
    }

    fn nodes(&self, volume: &str) -> Vec<String> {
        self.driver.published(volume).into_iter().collect()
    }
}

fn with_deadline<T>(message: T, seconds: u64) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(Duration::from_secs(seconds));
    request
}

fn code<T>(result: Result<T, Status>) -> Code {
    result.map_or_else(|status| status.code(), |_| Code::Ok)
}

#[tokio::test]
async fn a_unix_socket_serves_both_services() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("csi.sock");
    let driver = Driver::new(Profile::with_nodes(["a"]), Clock::system());
    driver.seed(["v"]);
    let server = Server::start(&driver, Listen::unix(path.clone(), 0o600)).await.unwrap();
    let channel = channel(Dial::unix(path.clone()));
    let mut identity = IdentityClient::new(channel.clone());
    let mut controller = ControllerClient::new(channel);
    let info = identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, "demo.csi.example.com");
    let listed = controller.list_volumes(ListVolumesRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.entries[0].volume.as_ref().unwrap().volume_id, "v");
    server.restart(Duration::ZERO).await;
    server.up().await;
    assert!(identity.probe(ProbeRequest {}).await.is_ok(), "the client dials again");
    assert_eq!((driver.connections(), driver.restarts()), (2, 1));
    server.stop().await;
    assert!(!path.exists());
}

#[tokio::test(start_paused = true)]
async fn calls_are_remembered_without_their_secrets() {
    let world = world().await;
    let message = ControllerPublishVolumeRequest {
        secrets: [("password".to_owned(), "hunter2".to_owned())].into(),
        ..publish("v", "a", Mode::SingleNodeWriter, false)
    };
    let mut request = with_deadline(message, 15);
    request.metadata_mut().insert("traceparent", "00-1-2-01".parse().unwrap());
    world.controller.clone().controller_publish_volume(request).await.unwrap();
    let calls = world.driver.calls();
    let call = &calls[0];
    assert_eq!((call.method, call.volume.as_deref(), call.node.as_deref()), (PUBLISH, Some("v"), Some("a")));
    assert_eq!((call.secrets, call.traceparent.as_deref()), (true, Some("00-1-2-01")));
    assert_eq!((&call.outcome, call.deadline), (&Outcome::Ok, Some(15 * SECOND)));
    assert!(call.applied.is_some() && call.publish.as_ref().unwrap().secrets.is_empty());
    assert_eq!(world.driver.counters()[&(PUBLISH, "OK")], 1);
}

#[tokio::test(start_paused = true)]
async fn every_code_can_be_scripted() {
    let world = world().await;
    for number in 1..17 {
        let action = Action::fail(Code::from(number), "as scripted");
        world.driver.inject(Fault::on(PUBLISH, action).volume("v").once());
    }
    for number in 1..17 {
        let status = world.publish("v", "a").await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::from(number), "as scripted"));
    }
    assert_eq!((world.publish("v", "a").await.is_ok(), world.nodes("v")), (true, vec!["a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_call_ends_with_its_caller_and_changes_nothing() {
    let world = world().await;
    world.driver.inject(Fault::on(PUBLISH, Action::Hang).once());
    let start = Instant::now();
    assert_ne!(code(world.publish("v", "a").await), Code::Ok);
    assert!(start.elapsed() >= 15 * SECOND && start.elapsed() < 16 * SECOND);
    assert!(world.publish("v", "a").await.is_ok());
    assert_eq!(world.driver.calls()[0].outcome, Outcome::Abandoned);
    assert_eq!(world.driver.violations(), []);
}

#[tokio::test(start_paused = true)]
async fn a_wedged_volume_is_busy_until_the_driver_restarts() {
    let world = world().await;
    world.driver.inject(Fault::on(PUBLISH, Action::Wedge).volume("v").once());
    assert_ne!(code(world.publish("v", "a").await), Code::Ok);
    assert_eq!(code(world.publish("v", "a").await), Code::Aborted);
    assert_eq!(code(world.publish("w", "a").await), Code::Ok);
    world.server.restart(SECOND).await;
    world.server.up().await;
    assert_eq!(code(world.publish("v", "a").await), Code::Ok);
}

#[tokio::test(start_paused = true)]
async fn late_success_comes_after_the_caller_gave_up() {
    let world = world().await;
    world.driver.inject(Fault::on(PUBLISH, Action::Late(20 * SECOND)).once());
    assert_ne!(code(world.publish("v", "a").await), Code::Ok);
    assert!(world.nodes("v").is_empty());
    assert_eq!(code(world.publish("v", "a").await), Code::Aborted, "the backend still works on it");
    world.server.restart(Duration::ZERO).await;
    world.driver.until(|driver| !driver.published("v").is_empty()).await;
    assert_eq!(world.driver.age(), 20 * SECOND);
    assert_eq!(code(world.publish("v", "a").await), Code::Ok);
    let first = &world.driver.calls()[0];
    assert_eq!((&first.outcome, first.applied), (&Outcome::Abandoned, Some(20 * SECOND)));
}

#[tokio::test(start_paused = true)]
async fn done_but_told_otherwise() {
    let world = world().await;
    let failed = Action::DoneButFail { code: Code::DeadlineExceeded, message: "too slow".to_owned() };
    world.driver.inject(Fault::on(PUBLISH, failed).volume("v"));
    world.driver.inject(Fault::on(PUBLISH, Action::DoneButHang).volume("w").once());
    assert_eq!(code(world.publish("v", "a").await), Code::DeadlineExceeded);
    assert_ne!(code(world.publish("w", "b").await), Code::Ok);
    assert_eq!((world.nodes("v"), world.nodes("w")), (vec!["a".to_owned()], vec!["b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn crashes_cut_the_connection_before_or_after_the_answer() {
    let down = 3 * SECOND;
    let cases = [
        (Action::Crash { down }, false, false),
        (Action::DoneButCrash { down }, false, true),
        (Action::AnswerThenCrash { down }, true, true),
    ];
    for (action, answered, done) in cases {
        let world = world().await;
        world.driver.inject(Fault::on(PUBLISH, action.clone()).once());
        assert_eq!(world.publish("v", "a").await.is_ok(), answered, "{action:?}");
        assert_eq!(!world.nodes("v").is_empty(), done, "{action:?}");
        sleep(SECOND).await;
        assert!(!world.server.is_up());
        assert_eq!(code(world.publish("v", "a").await), Code::Unavailable, "no one listens");
        world.server.up().await;
        assert_eq!(code(world.publish("v", "a").await), Code::Ok, "{action:?}");
        assert_eq!((world.driver.restarts(), world.nodes("v")), (1, vec!["a".to_owned()]));
    }
}

#[tokio::test(start_paused = true)]
async fn two_calls_for_one_volume_at_a_time_are_noticed_and_aborted() {
    let world = world().await;
    world.driver.inject(Fault::on(PUBLISH, Action::Delay(SECOND)).once());
    let detach = ControllerUnpublishVolumeRequest { volume_id: "v".to_owned(), ..Default::default() };
    let mut second = world.controller.clone();
    let (first, second) = tokio::join!(world.publish("v", "a"), async {
        sleep(SECOND / 2).await;
        second.controller_unpublish_volume(detach).await
    });
    assert_eq!((code(first), code(second)), (Code::Ok, Code::Aborted));
    assert_eq!(world.driver.violations().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_a_cut_link_is_no_overlap() {
    let world = world().await;
    assert!(world.publish("w", "a").await.is_ok());
    world.driver.inject(Fault::on(PUBLISH, Action::DoneButHang).once());
    let cut = async {
        sleep(SECOND).await;
        world.network.partition("daemon", "driver", Cut::Hang);
    };
    let (lost, ()) = tokio::join!(world.publish("v", "a"), cut);
    assert_ne!(code(lost), Code::Ok);
    // The driver does not know that its caller gave up, so the volume is busy for it. But the caller did nothing wrong.
    let mut successor = ControllerClient::new(channel(world.network.dial("daemon-2", "driver")));
    let retry = || publish("v", "a", Mode::SingleNodeWriter, false);
    assert_eq!(code(successor.controller_publish_volume(retry()).await), Code::Aborted);
    world.network.crash("daemon");
    world.network.heal("daemon", "driver");
    world.driver.until(|driver| driver.busy().is_empty()).await;
    assert_eq!(code(successor.controller_publish_volume(retry()).await), Code::Ok);
    assert_eq!((world.driver.violations(), world.driver.connections()), (vec![], 2));
}

#[tokio::test(start_paused = true)]
async fn lies_reach_the_caller() {
    let world = world().await;
    let channel = channel(world.network.dial("daemon", "driver"));
    let (mut identity, mut controller) = (IdentityClient::new(channel.clone()), ControllerClient::new(channel));
    world.driver.inject(Fault::on(Method::Probe, Action::Lie(Lie::NotReady)).times(2));
    for ready in [false, false, true] {
        assert_eq!(identity.probe(ProbeRequest {}).await.unwrap().into_inner().ready, Some(ready));
    }
    world.driver.inject(Fault::on(Method::GetPluginInfo, Action::Lie(Lie::EmptyName)));
    assert_eq!(identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner().name, "");
    world.driver.clear_faults();
    let request = ControllerGetCapabilitiesRequest {};
    let honest = controller.controller_get_capabilities(request).await.unwrap().into_inner().capabilities.len();
    world.driver.inject(Fault::anywhere(Action::Lie(Lie::BogusCapabilities)).once());
    let bogus = controller.controller_get_capabilities(request).await.unwrap().into_inner().capabilities.len();
    assert_eq!(bogus, honest + 4);
    world.driver.inject(Fault::on(Method::ListVolumes, Action::Lie(Lie::Huge(5 << 20))).once());
    let too_large = controller.list_volumes(ListVolumesRequest::default()).await;
    assert_eq!(code(too_large), Code::OutOfRange, "tonic's default limit is 4 MiB");
    world.driver.inject(Fault::on(Method::ListVolumes, Action::Lie(Lie::TokenLoop)));
    let mut token = String::new();
    for _ in 0..3 {
        let request = ListVolumesRequest { max_entries: 1, starting_token: token };
        token = controller.list_volumes(request).await.unwrap().into_inner().next_token;
    }
    assert!(!token.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_driver_can_come_back_as_another() {
    let world = world().await;
    assert!(world.publish("v", "a").await.is_ok());
    world.driver.change_profile(|profile| {
        profile.name = "other.csi.example.com".to_owned();
        profile.controller.clear();
    });
    world.server.restart(SECOND).await;
    world.server.up().await;
    let mut identity = IdentityClient::new(channel(world.network.dial("daemon", "driver")));
    let info = identity.get_plugin_info(GetPluginInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, "other.csi.example.com");
    assert_eq!(code(world.publish("v", "a").await), Code::Unimplemented);
    assert_eq!(world.nodes("v"), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_connections_turns_callers_away_while_the_driver_is_down() {
    let network = Network::new();
    let driver = Driver::new(Profile::default(), Clock::system());
    let incoming = network.listen("driver").unwrap();
    let server = Server::start(&driver, Listen::stream(incoming)).await.unwrap();
    let mut identity = IdentityClient::new(channel(network.dial("daemon", "driver")));
    assert!(identity.probe(ProbeRequest {}).await.is_ok());
    server.restart(SECOND).await;
    assert!(identity.probe(with_deadline(ProbeRequest {}, 5)).await.is_err());
    server.up().await;
    assert!(identity.probe(ProbeRequest {}).await.is_ok());
    drop(server);
    sleep(SECOND).await;
    assert_eq!(network.connections(), []);
}

#[tokio::test(start_paused = true)]
async fn a_record_has_each_call_with_what_it_made_and_without_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rpcs.log");
    let world = world().await;
    world.driver.change_profile(|profile| profile.record = Some(file.clone()));
    world.driver.inject(Fault::on(Method::CreateVolume, Action::DoneButHang).once());
    let request = || {
        let secrets = [("password".to_owned(), "hunter2".to_owned())].into();
        with_deadline(CreateVolumeRequest { secrets, ..create("pvc-1", 1) }, 15)
    };
    assert!(world.controller.clone().create_volume(request()).await.is_err());
    let id = world.controller.clone().create_volume(request()).await.unwrap().into_inner().volume.unwrap().volume_id;
    assert_eq!(code(world.publish("nothing", "a").await), Code::NotFound);

    let text = std::fs::read_to_string(file).unwrap();
    assert!(!text.contains("hunter2") && text.contains("secrets: "), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |line: &Value| match line["event"].as_str() {
        Some("begin") => {
            format!("{} begin {} {} {}", line["call"], line["method"], line["changes"], line["deadline"].is_string())
        }
        Some("made") => format!("{} made {}", line["call"], line["made"]),
        _ => format!("{} end {}", line["call"], line["code"]),
    };
    let expected = [
        r#"1 begin "CreateVolume" ["name/pvc-1"] true"#.to_owned(),
        format!(r#"1 made ["{id}"]"#),
        r#"1 end "Abandoned""#.to_owned(),
        r#"2 begin "CreateVolume" ["name/pvc-1"] true"#.to_owned(),
        format!(r#"2 made ["{id}"]"#),
        r#"2 end "OK""#.to_owned(),
        r#"3 begin "ControllerPublishVolume" ["nothing"] true"#.to_owned(),
        r#"3 end "NotFound""#.to_owned(),
    ];
    assert_eq!(lines.iter().map(told).collect::<Vec<_>>(), expected);
    let another = Driver::new(Profile::default(), Clock::system()).0.process.clone();
    assert!(lines.iter().all(|line| line["process"] == lines[0]["process"] && line["process"] != another.as_str()));
}

#[test]
fn one_seed_gives_one_run() {
    let run = |seed: u64| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async move {
            let world = world().await;
            world.network.set_latency("daemon", "driver", Duration::from_millis(3));
            world.driver.inject_chance(Chance::honest(Rng::seeded(seed), 0.4));
            for round in 0..20 {
                let volume = if round % 2 == 0 { "v" } else { "w" };
                // Whether it succeeds is the seed's choice.
                let _ = world.publish(volume, "a").await;
                sleep(SECOND).await;
            }
            world.driver.clear_faults();
            world.driver.until(|driver| driver.busy().is_empty()).await;
            world.server.up().await;
            assert!(world.publish("v", "a").await.is_ok() && world.publish("w", "a").await.is_ok());
            assert_eq!(world.driver.violations(), []);
            let calls = world.driver.calls();
            calls
                .iter()
                .map(|c| format!("{:?} {:?} {:?} {}", c.started, c.ended, c.applied, c.outcome.label()))
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

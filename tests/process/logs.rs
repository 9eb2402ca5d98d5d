//! The daemon's log: JSON, line by line, and no secret at any level.

use csi_control_plane::build::COMMIT;
use csi_control_plane::sandbox::api::kubeconfig;
use csi_control_plane::sandbox::driver::{Action, Fault, Method, Secrets};
use csi_control_plane::sandbox::testbed::TestBed;
use serde_json::{Value, json};
use tonic::Code;

use super::program::Program;
use super::theatre::{Theatre, attachment_object, volume_object};

/// In the volume's Secret.
const PASSWORD: &str = "open-sesame-4711";

fn put_secret(theatre: &Theatre, volume: &str) {
    theatre.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"},
        "stringData": {"password": PASSWORD}}));
    let reference = json!({"controllerPublishSecretRef": {"name": "keys", "namespace": "default"}});
    theatre.put(volume_object(volume, reference));
    theatre.put(attachment_object(volume));
}

#[tokio::test]
async fn i10_no_secret_and_no_token_is_told_anywhere_even_at_level_trace() {
    let theatre = Theatre::open().await;
    let secrets = Secrets([("password".to_owned(), PASSWORD.to_owned())].into());
    theatre.driver().change_profile(|profile| profile.required_secrets = secrets);
    let indiscreet = Action::fail(Code::Internal, &format!("login with password {PASSWORD} failed"));
    for method in [Method::ControllerPublishVolume, Method::ControllerUnpublishVolume] {
        theatre.driver().inject(Fault::on(method, indiscreet.clone()).once());
    }
    // Not the sandbox's usual file: that has the token in the address too, where no real cluster has it.
    let token = TestBed::token("daemon");
    let mut credentials = kubeconfig::render(&theatre.testbed.url().unwrap(), None);
    credentials["users"][0]["user"]["token"] = token.clone().into();
    let path = theatre.file("token.kubeconfig", &credentials.to_string());
    let mut daemon = theatre.daemon_with("daemon", |config| {
        config["kubernetes"]["kubeconfig"] = path.into();
        config["telemetry"] = json!({"logs": {"level": "trace"}});
    });
    put_secret(&theatre, "volume");
    theatre.attached("volume").await;
    let pages = pages(&daemon).await;
    theatre.detach("volume");
    theatre.gone("volume").await;
    daemon.signal("TERM").await;
    assert_eq!(daemon.exit().await, Some(0));

    let published = theatre.publishes("volume");
    assert_eq!(published.len(), 2, "one that failed, one that did not");
    assert!(published.iter().all(|call| call.secrets), "the driver was given the secrets");
    let written: String =
        theatre.commits.all().iter().filter(|it| it.user == "daemon").map(|it| it.new.to_string()).collect();
    assert!(written.contains("login with password"), "the driver's own words are passed on");
    for (place, text) in [("log", daemon.stderr()), ("diagnostics", pages), ("cluster", written)] {
        for (name, secret) in [("password", PASSWORD), ("token", token.as_str())] {
            let line = text.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "the {name} is in the {place}");
        }
    }
    assert!(daemon.log().iter().any(|line| line["level"] == "TRACE"), "this was level trace");
}

async fn pages(daemon: &Program) -> String {
    let mut text = String::new();
    for path in ["/", "/status.json", "/metrics", "/readyz?verbose"] {
        text.push_str(&daemon.get(path).await.body);
    }
    text
}

#[tokio::test]
async fn every_line_of_the_log_is_a_json_object_from_the_first_to_the_last() {
    let theatre = Theatre::open().await;
    let mut daemon = theatre.daemon("daemon");
    theatre.attach("volume");
    theatre.attached("volume").await;
    theatre.driver().change_profile(|profile| profile.name = "other.csi.example.com".to_owned());
    theatre.testbed.server.restart(std::time::Duration::ZERO).await;
    assert_eq!(daemon.exit().await, Some(1));
    let stderr = daemon.stderr();
    assert!(stderr.lines().count() > 5, "{stderr}");
    let first = &daemon.log()[0];
    assert_eq!(
        (&first["message"], &first["version"], &first["commit"]),
        (&"starting".into(), &env!("CARGO_PKG_VERSION").into(), &COMMIT.into()),
        "{first}"
    );
    assert!(first["roles"].as_str().unwrap().contains("attacher"), "{first}");
    for line in stderr.lines() {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["ts", "level", "target", "message"] {
            assert!(object[key].is_string(), "{key} in {line}");
        }
    }
}

/// A daemon with these logs that has ended because there is no such kubeconfig.
async fn ended(logs: Value) -> Program {
    let theatre = Theatre::open().await;
    let mut daemon = theatre.daemon_with("daemon", |config| {
        config["telemetry"] = json!({"logs": logs});
        config["kubernetes"]["kubeconfig"] = "/no/such/file".into();
    });
    assert_eq!(daemon.exit().await, Some(1));
    daemon
}

#[tokio::test]
async fn the_log_for_people_is_no_json_and_has_the_reason_of_the_end() {
    let daemon = ended(json!({"format": "text"})).await;
    assert!(daemon.log().is_empty(), "{}", daemon.stderr());
    assert_eq!(daemon.stderr().matches("cannot use the kubeconfig /no/such/file").count(), 1, "{}", daemon.stderr());
}

#[tokio::test]
async fn a_silent_log_still_tells_why_it_ended() {
    let daemon = ended(json!({"level": "off"})).await;
    assert!(daemon.stderr().contains("cannot use the kubeconfig /no/such/file"), "{}", daemon.stderr());
}

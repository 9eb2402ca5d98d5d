//! The rights that `check` prints are enough, and none of them is too much.

use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources;
use csi_control_plane::sandbox::api::{Grant, Identity};
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use csi_control_plane::sandbox::stage::Stage;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};
use tonic::Code;

use crate::program::{Program, eventually, run};
use crate::theatre::{DRIVER, LEASE, Theatre, attachment_object, volume_object};

const USER: &str = "daemon-limited";
/// How many daemons are tried at once.
const AT_ONCE: usize = 6;
/// An Event is counted up five minutes after it was written at the earliest.
const NOT_SEEN_HERE: (&str, &str) = ("events", "patch");

/// What `check` says is needed, as the API enforces it.
async fn grants(theatre: &Theatre) -> Vec<Grant> {
    let mut config = theatre.config(USER);
    config["leaderElection"]["namespace"] = "kube-system".into();
    let file = theatre.file("check.yaml", &config.to_string());
    let ended = run(&["check", "--config", &file, "--driver-name", DRIVER], &[]).await;
    let manifests = &ended.stdout[ended.stdout.find("apiVersion:").unwrap()..];
    let documents = manifests.split("---\n").map(|text| serde_yaml::from_str::<Value>(text).unwrap());
    documents.flat_map(|document| Grant::of_role(&document).unwrap()).collect()
}

fn without(grants: &[Grant], resource: &str, verb: Option<&str>) -> Vec<Grant> {
    let mut left = grants.to_vec();
    for grant in left.iter_mut().filter(|grant| grant.rule.resources == [resource]) {
        grant.rule.verbs.retain(|other| verb.is_some_and(|verb| other != verb));
    }
    left
}

/// Starts a daemon with these rights where every one of them is needed: a secret, a failure, a conflict, a deletion.
fn begin(theatre: &Theatre, grants: Vec<Grant>) -> Program {
    theatre.stage.api.admit(Stage::token(USER), Identity::limited(USER, grants));
    let fails = Fault::on(Method::ControllerPublishVolume, Action::fail(Code::Internal, "no luck"));
    theatre.driver().inject(fails.once());
    let conflict = |group, plural| {
        let resource = resources::find(group, "v1", plural).unwrap();
        let on = Matching::any().verb("patch").resource(plural).subresource("").user(USER);
        ApiFault::on(on, ApiAction::Refuse(Rejection::conflict(resource, "volume"))).nth(1)
    };
    theatre.stage.api.faults().add(conflict("", "persistentvolumes"));
    theatre.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"},
        "stringData": {"user": "me"}}));
    let reference = json!({"controllerPublishSecretRef": {"name": "keys", "namespace": "default"}});
    theatre.put(volume_object("volume", reference));
    theatre.put(attachment_object("volume"));
    theatre.program(USER, |config| config["roles"]["reconciler"]["interval"] = "100ms".into())
}

fn is_forbidden(text: &str) -> bool {
    text.contains(&format!("is forbidden: User \\\"{USER}\\\" cannot"))
        || text.contains(&format!("is forbidden: User \"{USER}\" cannot"))
}

/// Where a user who looks would see that a right is missing. The log is not enough.
async fn symptom(theatre: &Theatre, daemon: &Program) -> Option<&'static str> {
    let attachment = theatre.attachment("volume").map(|object| serde_json::to_string(&object).unwrap());
    if attachment.is_some_and(|text| is_forbidden(&text)) {
        return Some("the attachment's status");
    }
    if is_forbidden(&daemon.get("/readyz").await.body) {
        return Some("/readyz");
    }
    if is_forbidden(&daemon.get("/status.json").await.body) {
        return Some("/status.json");
    }
    let metrics = daemon.get("/metrics").await.body;
    let failed = |line: &str| line.starts_with("csi_control_plane_events_total") && line.contains("result=\"failed\"");
    metrics.lines().any(failed).then_some("/metrics")
}

#[tokio::test]
async fn the_rights_that_check_prints_are_enough_for_all_that_a_daemon_does() {
    let theatre = Theatre::open().await;
    let grants = grants(&theatre).await;
    assert_eq!(grants.len(), 7);
    let daemon = begin(&theatre, grants);
    theatre.attached("volume").await;
    theatre.committed("an event", |commit| commit.plural == "events" && commit.user == USER).await;
    eventually("a listing", async || (theatre.driver().calls_of(Method::ListVolumes).len() > 1).then_some(())).await;
    theatre.stage.api.delete::<PersistentVolume>("", "volume").unwrap();
    theatre.detach("volume");
    theatre.gone("volume").await;
    eventually("the volume is released", async || {
        theatre.stage.api.get::<PersistentVolume>("", "volume").is_err().then_some(())
    })
    .await;
    daemon.is("serving").await;
    let refused = theatre.stage.api.audit().matching(|entry| entry.code == 403);
    assert!(refused.is_empty(), "{refused:#?}");
    assert_eq!(symptom(&theatre, &daemon).await, None);
    theatre.commits.assert_one_leader(LEASE);
}

/// Starts a daemon without a right and waits for the symptom.
async fn missed(resource: String, verb: Option<String>) -> String {
    let theatre = Theatre::open().await;
    let grants = without(&grants(&theatre).await, &resource, verb.as_deref());
    let daemon = begin(&theatre, grants);
    let what = format!("{} {resource} is missed", verb.as_deref().unwrap_or("any"));
    let place = eventually(&what, async || symptom(&theatre, &daemon).await).await;
    format!("{what} in {place}")
}

#[tokio::test]
async fn every_rule_and_every_verb_of_it_is_missed_visibly() {
    let theatre = Theatre::open().await;
    let mut rights: Vec<(String, Option<String>)> = Vec::new();
    for rule in grants(&theatre).await.into_iter().map(|grant| grant.rule) {
        let resource = rule.resources.into_iter().next().unwrap();
        rights.push((resource.clone(), None));
        let verbs = rule.verbs.into_iter().filter(|verb| (resource.as_str(), verb.as_str()) != NOT_SEEN_HERE);
        rights.extend(verbs.map(|verb| (resource.clone(), Some(verb))));
    }
    assert!(rights.len() > 20, "{rights:?}");
    let told: Vec<String> =
        stream::iter(rights).map(|(resource, verb)| missed(resource, verb)).buffered(AT_ONCE).collect().await;
    println!("{}", told.join("\n"));
}

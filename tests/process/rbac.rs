//! The rights that `check` prints are enough for each role alone, and all of them are needed.

use std::panic::AssertUnwindSafe;

use csi_control_plane::roles::ROLES;
use csi_control_plane::sandbox::api::faults::{Action as ApiAction, Fault as ApiFault, Matching};
use csi_control_plane::sandbox::api::pure::rejection::Rejection;
use csi_control_plane::sandbox::api::pure::resources;
use csi_control_plane::sandbox::api::{Grant, Identity, PatchBody};
use csi_control_plane::sandbox::driver::{Action, Fault, Method};
use csi_control_plane::sandbox::testbed::TestBed;
use futures::future::LocalBoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::{Value, json};
use tonic::Code;

use super::for_all_drivers;
use super::program::{Program, eventually, run};
use super::rbac_claims;
use super::rbac_snapshots;
use super::theatre::{DRIVER, LEASE, Theatre, attachment_object, volume_object};

pub(crate) const USER: &str = "daemon-limited";
/// What this role may not do is tried on a real authorizer alone, one right after the other: `tests/cluster/rights.rs`.
const ON_A_REAL_AUTHORIZER: &str = "provisioner";
/// The number of daemons that are tried at once.
const AT_ONCE: usize = 6;
/// An Event is counted up five minutes after it was written at the earliest.
const NOT_SEEN_HERE: (&str, &str) = ("events", "patch");

/// A role, and work that needs every one of its rights.
struct Part {
    name: &'static str,
    section: fn() -> Value,
    open: fn() -> LocalBoxFuture<'static, Theatre>,
    /// The objects when the daemon starts.
    begin: fn(&Theatre),
    /// Waits until all of the work is done.
    done: for<'a> fn(&'a Theatre) -> LocalBoxFuture<'a, ()>,
}

/// One for each role: otherwise no test would notice a missing right of the role.
fn part(role: &str) -> Part {
    match role {
        "attachDetach" => Part {
            name: "attachDetach",
            section: for_all_drivers::section,
            open: || Theatre::open().boxed_local(),
            begin: for_all_drivers::begin,
            done: |theatre| for_all_drivers::done(theatre).boxed_local(),
        },
        "attacher" => Part {
            name: "attacher",
            section: || json!({"retry": {"initial": "100ms", "max": "1s"}}),
            open: || Theatre::open().boxed_local(),
            begin: begin_attacher,
            done: |theatre| attacher_done(theatre).boxed_local(),
        },
        "healthMonitor" => Part {
            name: "healthMonitor",
            section: || json!({"listInterval": "300ms", "interval": "300ms", "report": "both"}),
            open: || Theatre::open().boxed_local(),
            begin: begin_health_monitor,
            done: |theatre| health_monitor_done(theatre).boxed_local(),
        },
        "reconciler" => Part {
            name: "reconciler",
            section: || json!({"interval": "100ms", "orphans": true}),
            open: || rbac_snapshots::open().boxed_local(),
            // Otherwise nothing needs the journal.
            begin: |theatre| theatre.driver().seed(["orphan"]),
            done: |theatre| reconciler_done(theatre).boxed_local(),
        },
        "provisioner" => Part {
            name: "provisioner",
            section: rbac_claims::section,
            open: || rbac_claims::open().boxed_local(),
            begin: rbac_claims::begin,
            done: |theatre| rbac_claims::done(theatre).boxed_local(),
        },
        "resizer" => Part {
            name: "resizer",
            section: || json!({"retry": {"initial": "300ms", "max": "1s", "infeasible": "1s"}}),
            open: || Theatre::open().boxed_local(),
            begin: begin_resizer,
            done: |theatre| resizer_done(theatre).boxed_local(),
        },
        "snapshotter" => Part {
            name: "snapshotter",
            section: || json!({"retry": {"initial": "300ms", "max": "1s", "infeasible": "1s"}}),
            open: || rbac_snapshots::open().boxed_local(),
            begin: rbac_snapshots::begin,
            done: |theatre| rbac_snapshots::done(theatre).boxed_local(),
        },
        other => panic!("nobody has said what {other} needs its rights for"),
    }
}

impl Part {
    /// The configuration of a daemon with this role alone.
    fn config(&self, theatre: &Theatre) -> Value {
        let mut config = theatre.config(USER);
        config["roles"] = json!({ self.name: (self.section)() });
        // The right of a standby: `tests/it/taking_over.rs` shows what is without it.
        config["leaderElection"]["watchHolderPod"] = false.into();
        config
    }

    /// The rights that `check` prints, as the API enforces them.
    async fn grants(&self, theatre: &Theatre) -> Vec<Grant> {
        let mut config = self.config(theatre);
        config["leaderElection"]["namespace"] = "kube-system".into();
        let file = theatre.file("check.yaml", &config.to_string());
        let ended =
            run(&["check", "--config", &file, "--driver-name", DRIVER], &[("POD_NAMESPACE", "kube-system")]).await;
        let manifests = &ended.stdout[ended.stdout.find("apiVersion:").unwrap()..];
        let documents = manifests.split("---\n").map(|text| serde_yaml::from_str::<Value>(text).unwrap());
        documents.flat_map(|document| Grant::of_role(&document).unwrap()).collect()
    }

    /// Starts a daemon with these rights where every one of them is needed.
    fn start(&self, theatre: &Theatre, grants: Vec<Grant>) -> Program {
        theatre.testbed.api.admit(TestBed::token(USER), Identity::limited(USER, grants));
        (self.begin)(theatre);
        theatre.program(USER, |config| config["roles"] = json!({ self.name: (self.section)() }))
    }
}

fn without(grants: &[Grant], resource: &str, verb: Option<&str>) -> Vec<Grant> {
    let mut left = grants.to_vec();
    for grant in left.iter_mut().filter(|grant| grant.rule.resources == [resource]) {
        grant.rule.verbs.retain(|other| verb.is_some_and(|verb| other != verb));
    }
    left
}

/// A secret, a failure, conflicts, a node that is not there.
fn begin_attacher(theatre: &Theatre) {
    let fails = Fault::on(Method::ControllerPublishVolume, Action::fail(Code::Internal, "no luck"));
    theatre.driver().inject(fails.once());
    conflict(theatre, "", "persistentvolumes");
    conflict(theatre, "storage.k8s.io", "volumeattachments");
    theatre.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"},
        "stringData": {"user": "me"}}));
    let reference = json!({"controllerPublishSecretRef": {"name": "keys", "namespace": "default"}});
    theatre.put(volume_object("volume", reference));
    theatre.put(attachment_object("volume"));
    // A node that is not there is looked up.
    theatre.put(volume_object("stray", json!({})));
    let mut stray = attachment_object("stray");
    stray["spec"]["nodeName"] = "nowhere".into();
    theatre.put(stray);
}

/// The daemon's first patch of a resource meets another writer's.
pub(crate) fn conflict(theatre: &Theatre, group: &str, plural: &'static str) {
    let resource = resources::find(group, "v1", plural).unwrap();
    let on = Matching::any().verb("patch").resource(plural).subresource("").user(USER);
    theatre
        .testbed
        .api
        .faults()
        .add(ApiFault::on(on, ApiAction::Refuse(Rejection::conflict(resource, "volume"))).nth(1));
}

async fn attacher_done(theatre: &Theatre) {
    theatre.attached("volume").await;
    theatre.committed("an event", |commit| commit.plural == "events" && commit.user == USER).await;
    theatre.testbed.api.delete::<PersistentVolume>("", "volume").unwrap();
    theatre.detach("volume");
    theatre.gone("volume").await;
    eventually("the volume is released", async || {
        theatre.testbed.api.get::<PersistentVolume>("", "volume").is_err().then_some(())
    })
    .await;
}

/// Claims that want to grow, with a secret and conflicts; the volume of one is in use, and its class is not there yet.
fn begin_resizer(theatre: &Theatre) {
    let api = &theatre.testbed.api;
    theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "grows"},
        "provisioner": DRIVER, "allowVolumeExpansion": true}));
    theatre.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "default"},
        "stringData": {"user": "me"}}));
    theatre.driver().seed(["grown", "free"]);
    for name in ["grown", "free"] {
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"storageClassName": "grows", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}});
        let claim = api.create_value(claim).unwrap();
        theatre.put(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                "storageClassName": "grows", "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": "default", "name": name, "uid": claim["metadata"]["uid"]},
                "csi": {"driver": DRIVER, "volumeHandle": name,
                    "controllerExpandSecretRef": {"name": "keys", "namespace": "default"}}}}));
    }
    theatre.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "grown"}}]}}));
    let fails = Fault::on(Method::ControllerExpandVolume, Action::fail(Code::FailedPrecondition, "in use"));
    theatre.driver().inject(fails.volume("grown").once());
    // Again and again, so that what cannot be read after it is told for a while.
    let patches = || Matching::any().verb("patch").user(USER);
    for (plural, matching) in [
        ("persistentvolumeclaims", patches().resource("persistentvolumeclaims").subresource("status")),
        ("persistentvolumes", patches().resource("persistentvolumes")),
    ] {
        let conflict = Rejection::conflict(resources::find("", "v1", plural).unwrap(), "grown");
        api.faults().add(ApiFault::on(matching, ApiAction::Refuse(conflict)).times(6));
    }
    let wishes = [
        ("grown", json!({"resources": {"requests": {"storage": "2Gi"}}, "volumeAttributesClassName": "fast"})),
        ("free", json!({"resources": {"requests": {"storage": "2Gi"}}})),
    ];
    for (name, wish) in wishes {
        let bound = PatchBody::Merge(json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}));
        api.patch_status::<PersistentVolumeClaim>("default", name, bound).unwrap();
        api.patch::<PersistentVolumeClaim>("default", name, PatchBody::Merge(json!({ "spec": wish }))).unwrap();
    }
}

async fn resizer_done(theatre: &Theatre) {
    let api = &theatre.testbed.api;
    let status = || api.get::<PersistentVolumeClaim>("default", "grown").unwrap().status.unwrap_or_default();
    eventually("the class is waited for", async || {
        status().modify_volume_status.filter(|it| it.status == "Pending").map(drop)
    })
    .await;
    theatre
        .put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": "fast"},
        "driverName": DRIVER, "parameters": {"iops": "1"}}));
    eventually("the volume is modified", async || {
        (status().current_volume_attributes_class_name.as_deref() == Some("fast")).then_some(())
    })
    .await;
    theatre.committed("an event", |commit| commit.plural == "events" && commit.user == USER).await;
    eventually("it was refused", async || {
        (!theatre.driver().calls_of(Method::ControllerExpandVolume).is_empty()).then_some(())
    })
    .await;
    api.delete::<Pod>("default", "user").unwrap();
    eventually("the claim has grown", async || (status().capacity?.get("storage")?.0 == "2Gi").then_some(())).await;
}

/// A claim whose volume is not healthy, and conflicts.
fn begin_health_monitor(theatre: &Theatre) {
    let (api, driver) = (&theatre.testbed.api, theatre.driver());
    api.keep_volume_health();
    driver.change_profile(|profile| *profile = profile.clone().with_volume_health());
    driver.seed(["ill"]);
    driver.set_health("ill", [(1, "PathLost", "one path of two")]);
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "ill", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "ill", "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = api.create_value(claim).unwrap();
    let mut volume = volume_object("ill", json!({}));
    volume["spec"]["claimRef"] = json!({"namespace": "default", "name": "ill", "uid": claim["metadata"]["uid"]});
    theatre.put(volume);
    let bound = || PatchBody::Merge(json!({"status": {"phase": "Bound"}}));
    api.patch_status::<PersistentVolume>("", "ill", bound()).unwrap();
    api.patch_status::<PersistentVolumeClaim>("default", "ill", bound()).unwrap();
    // Again and again, so that what cannot be read after it is told for a while.
    let writes = Matching::any().verb("patch").user(USER).resource("persistentvolumeclaims").subresource("status");
    let conflict = Rejection::conflict(resources::find("", "v1", "persistentvolumeclaims").unwrap(), "ill");
    api.faults().add(ApiFault::on(writes, ApiAction::Refuse(conflict)).times(6));
}

async fn health_monitor_done(theatre: &Theatre) {
    eventually("the claim says what is wrong", async || {
        let claim: PersistentVolumeClaim = theatre.testbed.api.get("default", "ill").unwrap();
        claim.status?.health_status?.health_conditions.map(drop)
    })
    .await;
    theatre.committed("an event", |commit| commit.plural == "events" && commit.user == USER).await;
}

async fn reconciler_done(theatre: &Theatre) {
    eventually("a listing", async || (theatre.driver().calls_of(Method::ListVolumes).len() > 1).then_some(())).await;
}

/// Whether a text tells of this refusal: of anything, of any verb of a resource, or of the one verb.
fn tells(text: &str, resource: Option<&str>, verb: Option<&str>) -> bool {
    let text = text.replace('\\', "");
    let user = format!("is forbidden: User \"{USER}\" cannot ");
    let quoted = resource.map(|resource| format!("resource \"{resource}\""));
    text.split(&user).skip(1).any(|refusal| {
        verb.is_none_or(|verb| refusal.starts_with(&format!("{verb} ")))
            && quoted
                .as_ref()
                .is_none_or(|quoted| refusal.split(' ').skip(1).collect::<Vec<_>>().join(" ").starts_with(quoted))
    })
}

/// Where a user who looks would see that a right is missing. The log is not enough.
async fn symptom(
    theatre: &Theatre,
    daemon: &Program,
    resource: Option<&str>,
    verb: Option<&str>,
) -> Option<&'static str> {
    let attachment = theatre.attachment("volume").map(|object| serde_json::to_string(&object).unwrap());
    if attachment.is_some_and(|text| tells(&text, resource, verb)) {
        return Some("the attachment's status");
    }
    for page in ["/readyz", "/status.json"] {
        if tells(&daemon.get(page).await.body, resource, verb) {
            return Some(page);
        }
    }
    // A failed write of an Event is counted, and nothing else.
    if resource.is_some_and(|resource| resource != "events") {
        return None;
    }
    let metrics = daemon.get("/metrics").await.body;
    let failed = |line: &str| line.starts_with("csi_control_plane_events_total") && line.contains("result=\"failed\"");
    metrics.lines().any(failed).then_some("/metrics")
}

#[tokio::test]
async fn the_rights_that_check_prints_are_enough_for_all_that_each_role_does() {
    for role in ROLES.iter().filter(|role| role.cluster().is_some()) {
        let part = part(role.name);
        let theatre = (part.open)().await;
        let grants = part.grants(&theatre).await;
        let daemon = part.start(&theatre, grants);
        let done = AssertUnwindSafe((part.done)(&theatre)).catch_unwind().await;
        assert!(done.is_ok(), "{}: {}", part.name, daemon.stderr());
        daemon
            .shows("the role is served", |status| super::program::role(status, part.name)["state"] == "serving")
            .await;
        let refused = theatre.testbed.api.audit().matching(|entry| entry.code == 403);
        assert!(refused.is_empty(), "{}: {refused:#?}", part.name);
        assert_eq!(symptom(&theatre, &daemon, None, None).await, None, "{}", part.name);
        theatre.commits.assert_one_leader(LEASE);
    }
}

/// Starts a role without a right and waits for the symptom.
async fn missed(role: &'static str, resource: String, verb: Option<String>) -> String {
    let part = part(role);
    let theatre = (part.open)().await;
    let grants = without(&part.grants(&theatre).await, &resource, verb.as_deref());
    let daemon = part.start(&theatre, grants);
    let what = format!("{role}: {} {resource} is missed", verb.as_deref().unwrap_or("any"));
    let look = async || symptom(&theatre, &daemon, Some(&resource), verb.as_deref()).await;
    let place = eventually(&what, look).await;
    format!("{what} in {place}")
}

#[tokio::test]
async fn every_rule_and_every_verb_of_it_is_missed_visibly() {
    let mut rights: Vec<(&'static str, String, Option<String>)> = Vec::new();
    for role in ROLES.iter().filter(|role| role.cluster().is_some() && role.name != ON_A_REAL_AUTHORIZER) {
        let part = part(role.name);
        let theatre = (part.open)().await;
        for rule in part.grants(&theatre).await.into_iter().map(|grant| grant.rule) {
            let resource = rule.resources.into_iter().next().unwrap();
            let any = (role.name, resource.clone(), None);
            if !rights.contains(&any) {
                rights.push(any);
            }
            let verbs = rule.verbs.into_iter().filter(|verb| (resource.as_str(), verb.as_str()) != NOT_SEEN_HERE);
            rights.extend(verbs.map(|verb| (role.name, resource.clone(), Some(verb))));
        }
    }
    assert!(rights.len() > 20, "{rights:?}");
    let told: Vec<String> = stream::iter(rights)
        .map(|(role, resource, verb)| missed(role, resource, verb))
        .buffered(AT_ONCE)
        .collect()
        .await;
    println!("{}", told.join("\n"));
}

//! The leader stops or is killed while the driver creates and deletes volumes. The next leader finishes the work.

use std::collections::BTreeSet;
use std::sync::Arc;

use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method, Outcome};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt as _;
use serde_json::json;

use super::commits::{Commit, DAEMONS};
use super::program::{Program, eventually};
use super::theatre::{AT_ONCE, DRIVER, LEASE, Theatre};

/// How many volumes come, and how many go.
const EACH: usize = 6;

/// Claims and their volumes' names.
struct Burst(Vec<(String, String)>);

impl Burst {
    /// Asks for this many volumes.
    fn ask(theatre: &Theatre, name: &str, count: usize) -> Self {
        let claims = (0..count).map(|number| {
            let name = format!("{name}-{number}");
            theatre.put(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": name, "namespace": "default"}, "spec": {"storageClassName": "gold",
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}));
            let claim: PersistentVolumeClaim = theatre.testbed.api.get("default", &name).unwrap();
            (name, format!("pvc-{}", claim.uid().unwrap()))
        });
        Self(claims.collect())
    }

    /// Waits until each claim is bound to its volume.
    async fn provisioned(&self, theatre: &Theatre) {
        for (name, volume) in &self.0 {
            eventually(&format!("the volume of {name}"), async || {
                let claim: PersistentVolumeClaim = theatre.testbed.api.get("default", name).unwrap();
                let bound = claim.status.as_ref()?.phase.as_deref() == Some("Bound");
                (bound && claim.spec?.volume_name.as_ref() == Some(volume)).then_some(())
            })
            .await;
        }
    }

    fn delete(&self, theatre: &Theatre) {
        for (name, _) in &self.0 {
            theatre.testbed.api.delete::<PersistentVolumeClaim>("default", name).unwrap();
        }
    }

    async fn gone(&self, theatre: &Theatre) {
        let api = &theatre.testbed.api;
        for (name, volume) in &self.0 {
            eventually(&format!("{name} and its volume are gone"), async || {
                let is_there = api.get::<PersistentVolumeClaim>("default", name).is_ok();
                (!is_there && api.get::<PersistentVolume>("", volume).is_err()).then_some(())
            })
            .await;
        }
    }

    /// The claims' uids, which are in the volumes' names.
    fn uids(&self) -> BTreeSet<String> {
        self.0.iter().filter_map(|(_, volume)| volume.strip_prefix("pvc-").map(str::to_owned)).collect()
    }

    /// The commits that stored the volume objects.
    fn stored(&self, theatre: &Theatre) -> Vec<Commit> {
        let is_of = |name: &str, it: &Commit| {
            it.plural == "persistentvolumes" && it.name == name && it.user.starts_with(DAEMONS) && !it.new.is_null()
        };
        self.0.iter().map(|(_, volume)| theatre.commits.first(|it| is_of(volume, it)).unwrap()).collect()
    }

    /// The calls that asked for each volume.
    fn asked(&self, theatre: &Theatre) -> Vec<Vec<Arc<Call>>> {
        self.0.iter().map(|(_, volume)| theatre.driver().creates_of(volume)).collect()
    }
}

/// A daemon that does nothing but provision.
fn daemon(theatre: &Theatre, user: &str) -> Program {
    theatre.daemon_with(user, |config| {
        config["roles"] = json!({"provisioner": {"retry": {"initial": "100ms", "max": "1s"}, "resync": "0s"}});
    })
}

/// The leader, a standby, and what comes and goes: the driver was asked for all of it, and answers when it is released.
async fn at_work() -> (Theatre, Program, Program, Burst, Burst) {
    let theatre = Theatre::open().await;
    theatre.testbed.start_actors();
    theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gold"},
        "provisioner": DRIVER, "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}));
    let old = daemon(&theatre, "daemon-old");
    old.plays("provisioner", "serving").await;
    let new = daemon(&theatre, "daemon-new");
    new.plays("provisioner", "standby").await;
    let going = Burst::ask(&theatre, "going", EACH);
    going.provisioned(&theatre).await;
    for method in [Method::CreateVolume, Method::DeleteVolume] {
        theatre.driver().inject(Fault::on(method, Action::Hold).times(u32::try_from(EACH).unwrap()));
    }
    let coming = Burst::ask(&theatre, "coming", EACH);
    going.delete(&theatre);
    until_in_flight(&theatre, 2 * EACH).await;
    (theatre, old, new, coming, going)
}

/// Waits until this many calls have no answer yet.
async fn until_in_flight(theatre: &Theatre, count: usize) {
    let running = || theatre.driver().calls().iter().filter(|call| call.outcome == Outcome::Running).count();
    eventually(&format!("{count} calls in flight"), async || (running() == count).then_some(())).await;
}

/// The driver has the volumes that the API has, each once, no caller has met itself there, and the journal comes to be empty.
async fn assert_balanced(theatre: &Theatre) {
    let volumes: Vec<PersistentVolume> = theatre.testbed.api.list("").unwrap();
    let handles: Vec<String> =
        volumes.into_iter().map(|volume| volume.spec.unwrap().csi.unwrap().volume_handle).collect();
    let known: BTreeSet<&String> = handles.iter().collect();
    assert_eq!(known.len(), handles.len(), "{handles:?}");
    let state = theatre.driver().state();
    assert_eq!(state.volumes().keys().collect::<BTreeSet<_>>(), known);
    assert_eq!(theatre.driver().violations(), []);
    eventually("an empty journal", async || journal(theatre).is_empty().then_some(())).await;
}

/// The claims' uids in the journal.
fn journal(theatre: &Theatre) -> BTreeSet<String> {
    let all: Vec<ConfigMap> = theatre.testbed.api.list("kube-system").unwrap();
    let ours = all.into_iter().filter(|it| it.labels().contains_key("csi-control-plane.io/journal"));
    ours.flat_map(|it| it.data.unwrap_or_default().into_keys()).collect()
}

/// How often each volume was to be deleted, at most.
fn most_deletions(theatre: &Theatre) -> usize {
    let calls = theatre.driver().calls_of(Method::DeleteVolume);
    let like = |call: &Call| calls.iter().filter(|it| it.volume == call.volume).count();
    calls.iter().map(|call| like(call)).max().unwrap()
}

#[tokio::test]
async fn a_terminated_leader_stores_the_volumes_that_it_has_asked_for_and_its_successor_asks_for_none_of_them() {
    let (theatre, mut old, mut new, coming, going) = at_work().await;
    old.signal("TERM").await;
    old.logged("stopping: waiting for work in flight, then releasing the leases").await;
    let next = Burst::ask(&theatre, "next", 2);
    theatre.driver().release();
    assert_eq!(old.exit().await, Some(0), "{}", old.stderr());
    next.provisioned(&theatre).await;
    coming.provisioned(&theatre).await;
    going.gone(&theatre).await;

    let release = theatre.commits.first(Commit::is_release).expect("the lease was released");
    assert_eq!(release.user, "daemon-old");
    for stored in coming.stored(&theatre) {
        assert_eq!(stored.user, "daemon-old", "whoever asked for it stores it");
        assert!(stored.at <= release.at, "stored at {:?}, released at {:?}", stored.at, release.at);
    }
    assert!(coming.asked(&theatre).iter().all(|calls| calls.len() == 1));
    assert!(going.asked(&theatre).iter().all(|calls| calls.len() == 1), "what goes was created a second time");
    assert_eq!(most_deletions(&theatre), 1);
    for calls in next.asked(&theatre) {
        assert_eq!(calls.len(), 1);
        assert!(calls[0].started >= release.at, "nothing new is begun after SIGTERM");
    }
    assert!(next.stored(&theatre).iter().all(|it| it.user == "daemon-new" && it.at < release.at + AT_ONCE));
    theatre.commits.assert_one_leader(LEASE);
    assert_balanced(&theatre).await;
    assert!(new.is_alive());
}

#[tokio::test]
async fn a_killed_leaders_volumes_are_asked_for_once_more_and_stored_by_its_successor() {
    let (theatre, mut old, mut new, coming, going) = at_work().await;
    old.signal("KILL").await;
    assert_eq!(old.exit().await, None);
    // Finished work may still be on the objects, too.
    assert!(journal(&theatre).is_superset(&coming.uids()), "what it had begun");
    until_in_flight(&theatre, 0).await;
    theatre.driver().release();
    let next = Burst::ask(&theatre, "next", 2);
    next.provisioned(&theatre).await;
    coming.provisioned(&theatre).await;
    going.gone(&theatre).await;

    for calls in coming.asked(&theatre) {
        assert_eq!(calls.len(), 2, "once by each: {calls:#?}");
        assert_eq!(calls[0].create, calls[1].create, "the successor asks for the same");
        assert_eq!(calls[0].outcome, Outcome::Abandoned);
    }
    assert!(coming.stored(&theatre).iter().all(|it| it.user == "daemon-new"));
    assert!(next.asked(&theatre).iter().all(|calls| calls.len() == 1));
    assert!(going.asked(&theatre).iter().all(|calls| calls.len() == 1), "what goes was created a second time");
    assert_eq!(most_deletions(&theatre), 2);
    theatre.commits.assert_one_leader(LEASE);
    assert_balanced(&theatre).await;
    assert!(new.is_alive());
}

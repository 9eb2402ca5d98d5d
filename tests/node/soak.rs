//! Random work under random deaths, from a seed: volumes are made, written to, moved, grown, copied and deleted, while daemons and
//! drivers are killed, frozen and replaced. Each pod reads what was written; at the end nothing is left.
//!
//! `SOAK_MINUTES=30 SOAK_SEED=7 just node soak`. The order of what is drawn follows from the seed; what happens meanwhile does not.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};

use super::images;
use super::lab::{self, Lab, NAME, Plan, values_of_the_chart};
use super::machine::signal;
use super::workloads::{NAMESPACE, claim, custom, pod};

/// How many volumes are in use at once.
const WORKERS: u64 = 4;
/// How long a daemon is frozen: longer than its Lease is valid.
const FROZEN: Duration = Duration::from_secs(20);
/// A long soak ends with so much time without deaths: one daemon's memory is looked at.
const QUIET: Duration = Duration::from_secs(12 * 60);
/// What a daemon has after this time it has for good.
const SETTLED: Duration = Duration::from_secs(5 * 60);
/// The class of snapshots.
const SNAPSHOTS: &str = "soaked";

/// What kills.
#[derive(Debug, Clone, Copy)]
enum Death {
    LeaderKilled,
    LeaderFrozen,
    LeaderDeleted,
    DriverOfNodeKilled,
    /// A roll-out of the earlier daemon, or of this one again.
    OtherVersion,
}

const DEATHS: [Death; 5] =
    [Death::LeaderKilled, Death::LeaderFrozen, Death::LeaderDeleted, Death::DriverOfNodeKilled, Death::OtherVersion];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_read_what_was_written_while_daemons_and_drivers_die() {
    let minutes = super::given("SOAK_MINUTES").unwrap_or(3);
    let seed = super::given("SOAK_SEED").unwrap_or_else(|| rand::random_range(0..1_000_000));
    println!("{minutes} minutes from SOAK_SEED={seed}");
    let roles =
        json!({"attacher": {}, "provisioner": {}, "resizer": {}, "snapshotter": {}, "reconciler": {}, "liveness": {}});
    let lab = Lab::start_as(|folder| Plan {
        has_snapshots: true,
        has_attach_detach: true,
        nodes: 2,
        images: [images::make(folder), vec![images::make_older(folder)]].concat(),
        name: NAME,
        driver: json!({"attachRequired": true, "podInfoOnMount": false, "fsGroupPolicy": "File"}),
        profile: Some(json!({})),
        values: Some(values_of_the_chart(&roles, &[])),
    })
    .await;
    let class = json!({"driver": NAME, "deletionPolicy": "Delete"});
    let classes: Api<DynamicObject> = Api::all_with(lab.client.clone(), &snapshot_kind("VolumeSnapshotClass"));
    classes.create(&PostParams::default(), &object("VolumeSnapshotClass", SNAPSHOTS, class)).await.unwrap();

    let (begun, whole) = (Instant::now(), Duration::from_secs(60 * minutes));
    let is_long = minutes >= 20;
    let (end, end_of_deaths) = (begun + whole, begun + if is_long { whole.saturating_sub(QUIET) } else { whole });
    let lives = join_all((0..WORKERS).map(|worker| Worker::new(&lab, seed, worker).work(end)));
    let (done, deaths, ()) =
        tokio::join!(lives, kill(&lab, seed, end_of_deaths), memory_is_flat(&lab, end_of_deaths, end));
    println!("{} volumes lived and went, {:?}", done.iter().sum::<u32>(), deaths);
    assert!(done.iter().all(|done| *done > 0), "each worker has come to an end: {done:?}");

    lab.nothing_is_left().await;
    let left =
        lab.kubectl(&["get", "pv,pvc,volumeattachments,volumesnapshots,volumesnapshotcontents", "-A", "-o", "name"]);
    assert_eq!(left.unwrap(), "");
    let selector = "--selector=app.kubernetes.io/instance=demo";
    let logs = ["logs", "-n", lab::NAMESPACE, selector, "-c", "csi-control-plane", "--tail=-1", "--prefix"];
    let logs = lab.kubectl(&logs).unwrap();
    let errors: Vec<&str> = logs.lines().filter(|line| line.contains("\"level\":\"ERROR\"")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// Kills now and then, and waits until all is well again. How often each death came.
async fn kill(lab: &Lab, seed: u64, end: Instant) -> BTreeMap<String, u32> {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut deaths, mut is_older) = (BTreeMap::new(), false);
    loop {
        tokio::time::sleep(Duration::from_secs(rng.random_range(5..20))).await;
        if Instant::now() > end {
            roll_out(lab, images::DAEMON);
            lab.pods_are_ready().await;
            return deaths;
        }
        let death = DEATHS[rng.random_range(0..DEATHS.len())];
        *deaths.entry(format!("{death:?}")).or_default() += 1;
        match death {
            Death::LeaderKilled => signal("KILL", lab.leader("attacher").await.1),
            Death::LeaderFrozen => {
                let process = lab.leader("attacher").await.1;
                signal("STOP", process);
                tokio::time::sleep(FROZEN).await;
                // The kubelet may have replaced it meanwhile.
                let _ = std::process::Command::new("kill").args(["-s", "CONT", &process.to_string()]).status();
            }
            Death::LeaderDeleted => {
                let name = lab.leader("attacher").await.0.metadata.name.unwrap();
                lab.kubectl(&["delete", "pod", "-n", lab::NAMESPACE, &name, "--wait=false"]).unwrap();
            }
            Death::DriverOfNodeKilled => {
                let node = &lab.machines[rng.random_range(0..lab.machines.len())].name;
                signal("KILL", lab.plugin_on(node).await.1);
            }
            Death::OtherVersion => {
                is_older = !is_older;
                roll_out(lab, if is_older { images::OLDER_DAEMON } else { images::DAEMON });
            }
        }
        lab.pods_are_ready().await;
    }
}

/// The daemons of the controller get this image.
fn roll_out(lab: &Lab, image: &str) {
    let container = format!("csi-control-plane={image}");
    lab.kubectl(&["set", "image", "deployment", "--all", &container, "-n", lab::NAMESPACE]).unwrap();
}

/// Since five minutes after the last death, the daemons grow by no more than a tenth.
async fn memory_is_flat(lab: &Lab, end_of_deaths: Instant, end: Instant) {
    if end_of_deaths == end {
        return;
    }
    tokio::time::sleep_until((end_of_deaths + SETTLED).into()).await;
    let before: Vec<(u32, u64)> = lab.daemons().await.into_iter().map(|it| (it, resident(it))).collect();
    tokio::time::sleep_until(end.into()).await;
    for (process, before) in before {
        let now = resident(process);
        println!("a daemon's memory: {before} kB, then {now} kB");
        assert!(now.abs_diff(before) * 10 <= before, "{before} kB, then {now} kB");
    }
}

/// The resident memory of a process, in kB.
fn resident(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}

/// What uses one volume after the other.
struct Worker<'a> {
    lab: &'a Lab,
    rng: StdRng,
    number: u64,
    volumes: u32,
}

impl<'a> Worker<'a> {
    fn new(lab: &'a Lab, seed: u64, number: u64) -> Self {
        Self { lab, rng: StdRng::seed_from_u64(seed ^ (number + 1) << 32), number, volumes: 0 }
    }

    /// Works until the time is over. How many volumes lived and went.
    async fn work(mut self, end: Instant) -> u32 {
        while Instant::now() < end {
            self.volumes += 1;
            let name = format!("w{}-{}", self.number, self.volumes);
            self.lab.claim(&claim(&name, "Filesystem", "1Gi")).await;
            self.run(&name, &format!("echo {name} >/data/file && sync /data/file")).await;
            for act in 0..self.rng.random_range(0..4) {
                match self.rng.random_range(0..5) {
                    0 | 1 => self.reads(&name, &name).await,
                    2 => self.grows(&name, act + 2).await,
                    3 => self.is_cloned(&name).await,
                    _ => self.is_restored(&name).await,
                }
            }
            self.reads(&name, &name).await;
            self.lab.discard(&name).await;
        }
        self.volumes
    }

    /// Runs a pod with this claim on one of the nodes. What it printed.
    async fn run(&mut self, claim: &str, script: &str) -> String {
        let node = &self.lab.machines[self.rng.random_range(0..self.lab.machines.len())].name;
        self.lab.run(&pod(&format!("of-{claim}"), claim, node, script)).await
    }

    async fn reads(&mut self, claim: &str, written: &str) {
        let read = self.run(claim, "cat /data/file").await;
        assert_eq!(read.trim(), written, "{claim}");
    }

    /// The claim gets larger, with no pod; the next one brings the node's part.
    async fn grows(&mut self, name: &str, gibibytes: u32) {
        let claims = self.lab.claims();
        let size = format!("{gibibytes}Gi");
        let larger = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        claims.patch(name, &PatchParams::default(), &Patch::Merge(larger)).await.unwrap();
        self.reads(name, name).await;
        // A pod that is gone may have been too early for it.
        self.lab.start_pod(&pod(&format!("grower-{name}"), name, &self.lab.machines[0].name, "sleep 1000")).await;
        self.lab
            .until(&format!("{name} has grown"), async || {
                let status = claims.get(name).await.unwrap().status?;
                (status.capacity?.get("storage")?.0 == size).then_some(())
            })
            .await;
        self.lab.remove(&format!("grower-{name}")).await;
    }

    async fn is_cloned(&mut self, name: &str) {
        let source = json!({"kind": "PersistentVolumeClaim", "name": name});
        self.is_copied(name, "clone", source).await;
    }

    async fn is_restored(&mut self, name: &str) {
        let snapshots: Api<DynamicObject> =
            Api::namespaced_with(self.lab.client.clone(), NAMESPACE, &snapshot_kind("VolumeSnapshot"));
        let spec = json!({"volumeSnapshotClassName": SNAPSHOTS, "source": {"persistentVolumeClaimName": name}});
        let snapshot = object("VolumeSnapshot", name, json!({ "spec": spec }));
        snapshots.create(&PostParams::default(), &snapshot).await.unwrap();
        self.lab
            .until(&format!("the snapshot {name} is ready"), async || {
                (snapshots.get(name).await.unwrap().data["status"]["readyToUse"] == true).then_some(())
            })
            .await;
        let source = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name});
        self.is_copied(name, "restored", source).await;
        snapshots.delete(name, &DeleteParams::default()).await.unwrap();
        self.lab
            .until(&format!("the snapshot {name} is gone"), async || {
                snapshots.get_opt(name).await.unwrap().is_none().then_some(())
            })
            .await;
    }

    /// A claim from this source has what was written, and goes.
    async fn is_copied(&mut self, name: &str, what: &str, source: Value) {
        let copy = format!("{name}-{what}");
        let size = self.lab.claims().get(name).await.unwrap().spec.unwrap().resources.unwrap().requests.unwrap();
        let mut wanted = claim(&copy, "Filesystem", &size["storage"].0);
        wanted["spec"]["dataSource"] = source;
        self.lab.claim(&wanted).await;
        self.reads(&copy, name).await;
        self.lab.discard(&copy).await;
    }
}

fn snapshot_kind(kind: &str) -> ApiResource {
    custom("snapshot.storage.k8s.io", kind)
}

fn object(kind: &str, name: &str, data: Value) -> DynamicObject {
    DynamicObject::new(name, &snapshot_kind(kind)).data(data)
}

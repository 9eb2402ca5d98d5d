//! What the health monitor adds to the memory of a daemon that serves the other roles of a controller, among many volumes. Prints a table.
//!
//! API and driver are in this process; each daemon is a process of its own, and its resident memory is read when the driver has listed
//! its volumes a few times and everything that is wrong is reported. `cargo bench --bench health -- 2000` says among how many volumes.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking and reports by printing")]

mod support;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::sandbox::api::{Identity, PatchBody, kubeconfig};
use csi_control_plane::sandbox::driver::{Method, Profile};
use csi_control_plane::sandbox::testbed::{TestBed, Transport};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// What the role may add, in bytes, with ten thousand volumes of which three hundred are not healthy.
const BUDGET: usize = 1 << 20;
/// Of so many volumes one is not healthy.
const ONE_ILL_IN: usize = 33;
/// No daemon takes as long.
const PATIENCE: Duration = Duration::from_secs(300);
/// After the work: what is freed late is freed by then.
const SETTLES: Duration = Duration::from_secs(10);

/// API and driver, and claims that are bound to volumes.
struct Ground {
    testbed: TestBed,
    folder: TempDir,
    ill: usize,
}

/// A daemon, which ends with the bench.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself, which the bench has noticed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ground {
    async fn with(profile: Profile, count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let transport = Transport::Sockets { folder: folder.path().to_owned() };
        let testbed = TestBed::set_up(transport, profile, Clock::system(), Rng::seeded(1)).await.unwrap();
        testbed.api.keep_volume_health();
        let ill: Vec<usize> = (0..count).step_by(ONE_ILL_IN).collect();
        let ground = Self { testbed, folder, ill: ill.len() };
        (0..count).for_each(|number| ground.bind(number));
        for number in ill {
            assert!(ground.testbed.driver.set_health(&support::handle(number), [(1, "PathLost", "one path of two")]));
        }
        ground
    }

    /// A claim that is bound to a volume of the driver.
    fn bind(&self, number: usize) {
        let (mut claim, mut volume) = (support::claim(number), support::volume(number));
        for object in [&mut claim, &mut volume] {
            for member in ["uid", "resourceVersion", "creationTimestamp"] {
                object["metadata"].as_object_mut().unwrap().remove(member);
            }
        }
        let api = &self.testbed.api;
        let uid = api.create_value(claim).unwrap()["metadata"]["uid"].clone();
        volume["spec"]["claimRef"]["uid"] = uid;
        api.create_value(volume).unwrap();
        let bound = || PatchBody::Merge(json!({ "status": { "phase": "Bound" } }));
        api.patch_status::<PersistentVolume>("", &support::volume_name(number), bound()).unwrap();
        api.patch_status::<PersistentVolumeClaim>("default", &format!("data-{number}"), bound()).unwrap();
        self.testbed.driver.seed([support::handle(number).as_str()]);
    }

    fn start(&self, name: &str, roles: &Value) -> Daemon {
        self.testbed.api.admit(TestBed::token(name), Identity::admin(name));
        let (path, file) = (self.folder.path().join("kubeconfig"), self.folder.path().join("config.yaml"));
        kubeconfig::write(&path, &self.testbed.url().unwrap(), Some(&TestBed::token(name).into())).unwrap();
        let config = json!({
            "csi": { "endpoint": format!("unix://{}", self.folder.path().join("csi.sock").display()) },
            "kubernetes": { "kubeconfig": path }, "diagnostics": { "listen": "127.0.0.1:0" },
            "leaderElection": { "enabled": false }, "roles": roles,
        });
        std::fs::write(&file, config.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_csi-control-plane"));
        command.args(["run", "--config"]).arg(file).env_clear();
        command.env("POD_NAMESPACE", "kube-system").env("POD_NAME", name);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Daemon(command.spawn().unwrap())
    }

    /// How many claims, or Events on claims, say that a volume is not healthy.
    fn reported(&self) -> usize {
        let claims: Vec<PersistentVolumeClaim> = self.testbed.api.list("default").unwrap();
        let is_ill =
            |claim: &&PersistentVolumeClaim| claim.status.as_ref().is_some_and(|it| it.health_status.is_some());
        claims.iter().filter(is_ill).count().max(self.testbed.api.list::<Event>("default").unwrap().len())
    }

    /// The memory of a daemon with these roles, which has listed the volumes five times, and has reported so much.
    async fn measure(&self, name: &str, roles: &Value, reports: usize) -> usize {
        let listed =
            || self.testbed.driver.calls_of(Method::ListVolumes).iter().filter(|it| it.ended.is_some()).count();
        let (before, begun) = (listed(), Instant::now());
        let mut daemon = self.start(name, roles);
        while listed() < before + 5 || self.reported() < reports {
            assert!(
                begun.elapsed() < PATIENCE,
                "{name} has listed {} times and reported {}",
                listed(),
                self.reported()
            );
            assert_eq!(daemon.0.try_wait().unwrap(), None, "{name} has ended by itself");
            sleep(Duration::from_millis(500)).await;
        }
        sleep(SETTLES).await;
        support::resident(&daemon.0.id().to_string())
    }
}

fn median(mut figures: Vec<usize>) -> usize {
    figures.sort_unstable();
    figures[figures.len() / 2]
}

fn main() {
    let given = std::env::args().find_map(|argument| argument.parse().ok());
    let (count, rounds) = if support::only_once() { (1_000, 1) } else { (given.unwrap_or(10_000), 3) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    println!("| {count} volumes, one in {ONE_ILL_IN} not healthy | kB without | kB with | kB more |");
    println!("| --- | ---: | ---: | ---: |");
    let drivers = [("CSI 1.13", Profile::default().with_volume_health()), ("CSI 1.12", Profile::default())];
    for (driver, profile) in drivers {
        let more = runtime.block_on(measure(driver, &profile, count, rounds));
        if more > BUDGET {
            println!("That is more than the {} kB that the role may add.", BUDGET >> 10);
        }
    }
}

/// Prints a line, and returns how many bytes the role adds.
async fn measure(driver: &str, profile: &Profile, count: usize, rounds: usize) -> usize {
    let others = json!({ "attacher": {}, "reconciler": { "interval": "2s" }, "provisioner": {}, "resizer": {} });
    let mut with_health = others.clone();
    with_health["healthMonitor"] = json!({ "listInterval": "2s" });
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // What is reported stays, so each round has a ground of its own.
        let ground = Ground::with(profile.clone(), count).await;
        without.push(ground.measure(&format!("without-{round}"), &others, 0).await);
        with.push(ground.measure(&format!("with-{round}"), &with_health, ground.ill).await);
        ground.testbed.tear_down().await;
    }
    let (without, with) = (median(without), median(with));
    let more = with.saturating_sub(without);
    println!("| a driver of {driver} | {} | {} | {} |", without >> 10, with >> 10, more >> 10);
    more
}

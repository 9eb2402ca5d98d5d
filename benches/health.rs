//! What the health monitor adds to the memory of a daemon that serves the other roles of a controller, among many volumes. Prints a table.
//!
//! API and driver are in this process; each daemon is a process of its own: this program again, which counts what the daemon holds on
//! its heap. Both that and its resident memory are read when the driver has listed its volumes a few times and everything that is wrong is
//! reported. The budget is for the heap: in which of the allocator's arenas a list is read is chance, and makes a difference of
//! megabytes to the resident memory of one and the same daemon. `cargo bench --bench health -- 2000` says among how many volumes.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails by panicking and reports by printing")]

mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use csi_control_plane::cluster::ClusterAccess;
use csi_control_plane::process::{Clock, Dial, Rng};
use csi_control_plane::roles::Instance;
use csi_control_plane::sandbox::api::{Identity, PatchBody};
use csi_control_plane::sandbox::driver::{Method, Profile};
use csi_control_plane::sandbox::testbed::{Daemon, Surroundings, TestBed, Transport};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// What the role may add to the heap, in bytes, with ten thousand volumes of which three hundred are not healthy.
const BUDGET: usize = 1 << 20;
/// What the program is told to be one of the bench's daemons.
const DAEMON: &str = "--daemon";
/// Of so many volumes one is not healthy.
const ONE_ILL_IN: usize = 33;
/// No daemon takes as long.
const PATIENCE: Duration = Duration::from_secs(300);
/// After the work, the memory is read so often, a tenth of a second apart. The least is what the daemon keeps between two passes.
const LOOKS: u32 = 200;

/// API and driver, and claims that are bound to volumes.
struct Ground {
    testbed: TestBed,
    folder: TempDir,
    ill: usize,
}

/// What a daemon has, in bytes.
#[derive(Debug, Clone, Copy)]
struct Memory {
    heap: usize,
    resident: usize,
}

/// A process with a daemon, which ends with the bench.
struct Process(Child);

impl Drop for Process {
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

    fn start(&self, name: &str, roles: &Value) -> Process {
        self.testbed.api.admit(TestBed::token(name), Identity::admin(name));
        let config = json!({
            "csi": { "endpoint": format!("unix://{}", socket(self.folder.path()).display()) },
            "diagnostics": { "listen": "127.0.0.1:0" }, "leaderElection": { "enabled": false }, "roles": roles,
        });
        std::fs::write(self.folder.path().join(name), config.to_string()).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([DAEMON, name, &self.testbed.address().unwrap().to_string()]).arg(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Process(command.spawn().unwrap())
    }

    /// How many claims, or Events on claims, say that a volume is not healthy.
    fn reported(&self) -> usize {
        let claims: Vec<PersistentVolumeClaim> = self.testbed.api.list("default").unwrap();
        let is_ill =
            |claim: &&PersistentVolumeClaim| claim.status.as_ref().is_some_and(|it| it.health_status.is_some());
        claims.iter().filter(is_ill).count().max(self.testbed.api.list::<Event>("default").unwrap().len())
    }

    /// The memory of a daemon with these roles, which has listed the volumes five times, and has reported so much.
    async fn measure(&self, name: &str, roles: &Value, reports: usize) -> Memory {
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
        let (process, file) = (daemon.0.id().to_string(), self.folder.path().join(format!("{name}.heap")));
        let mut least = Memory { heap: usize::MAX, resident: usize::MAX };
        for _ in 0..LOOKS {
            sleep(Duration::from_millis(100)).await;
            // It may be written just now.
            let heap = std::fs::read_to_string(&file).ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
            let resident = support::resident(&process);
            least = Memory { heap: least.heap.min(heap), resident: least.resident.min(resident) };
        }
        assert_ne!(least.heap, usize::MAX, "{name} has said nothing of its heap");
        least
    }
}

/// The driver's socket.
fn socket(folder: &Path) -> PathBuf {
    folder.join("csi.sock")
}

/// The program as a daemon: serves until it is killed, and writes in a file what is on its heap.
fn serve(name: &str, api: &str, folder: &Path) {
    let yaml = std::fs::read_to_string(folder.join(name)).unwrap();
    let api = Dial::tcp(api.parse::<SocketAddr>().unwrap());
    let instance = Instance { host: name.to_owned(), namespace: Some("kube-system".to_owned()), ..Instance::default() };
    let surroundings = Surroundings {
        clock: Clock::system(),
        rng: Rng::seeded(1),
        cluster: ClusterAccess::Endpoint { dial: api, token: Some(TestBed::token(name)) },
        driver: Dial::unix(socket(folder)),
        diagnostics: None,
    };
    runtime().block_on(async {
        let daemon = Daemon::start(instance, &yaml, surroundings).unwrap();
        while !daemon.has_ended() {
            sleep(Duration::from_millis(100)).await;
            std::fs::write(folder.join(format!("{name}.heap")), HEAP.current_usage().to_string()).unwrap();
        }
        daemon.ended().await.unwrap();
    });
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, name, api, folder] = &arguments[..]
        && mode == DAEMON
    {
        return serve(name, api, Path::new(folder));
    }
    let given = arguments.iter().find_map(|argument| argument.parse().ok());
    let (count, rounds) = if support::only_once() { (1_000, 1) } else { (given.unwrap_or(10_000), 3) };
    println!(
        "| {count} volumes, one in {ONE_ILL_IN} not healthy | heap, kB without | with | more | resident, kB without | with |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let drivers = [("CSI 1.13", Profile::default().with_volume_health()), ("CSI 1.12", Profile::default())];
    for (driver, profile) in drivers {
        let more = runtime().block_on(measure(driver, &profile, count, rounds));
        assert!(more <= BUDGET, "that is more than the {} kB that the role may add", BUDGET >> 10);
    }
}

/// Prints a line, and returns how many bytes the role adds to the heap.
async fn measure(driver: &str, profile: &Profile, count: usize, rounds: usize) -> usize {
    let others = json!({ "attacher": {}, "reconciler": { "interval": "2s" }, "provisioner": {}, "resizer": {} });
    let mut with_health = others.clone();
    with_health["healthMonitor"] = json!({ "listInterval": "2s" });
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // What is reported stays, so each round has a ground of its own; what a first daemon writes to each volume, the two find there.
        let ground = Ground::with(profile.clone(), count).await;
        ground.measure(&format!("first-{round}"), &with_health, ground.ill).await;
        with.push(ground.measure(&format!("with-{round}"), &with_health, ground.ill).await);
        without.push(ground.measure(&format!("without-{round}"), &others, 0).await);
        ground.testbed.tear_down().await;
    }
    // Buffers of connections and what is on its way only add, so the least of the rounds is the nearest to what is kept.
    let least = |of: &[Memory], what: fn(&Memory) -> usize| of.iter().map(what).min().unwrap_or_default();
    let heap = |of: &[Memory]| least(of, |it| it.heap);
    let resident = |of: &[Memory]| least(of, |it| it.resident);
    let more = heap(&with).saturating_sub(heap(&without));
    let figures = [heap(&without), heap(&with), more, resident(&without), resident(&with)].map(|it| it >> 10);
    println!("| a driver of {driver} | {} |", figures.map(|it| it.to_string()).join(" | "));
    more
}

//! A daemon's diagnostics with example content. Names and texts are realistic, because the README shows pictures of the
//! page.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use csi_control_plane::diagnostics::{
    Age, Board, CacheReport, Cell, Column, ConfigurationReport, DoneReport, DriverReport, DriverStatus, QueueReport,
    RoleReport, RoleScope, RoleStatus, StatusReport, Table, WorkReport, serve,
};
use csi_control_plane::process::{Clock, Tasks};
use csi_control_plane::roles::provisioner::capacity;
use csi_control_plane::telemetry::Meter;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::sync::CancellationToken;

use crate::page::browser::{LOOK, PATIENCE};

/// What the scene shows of its queues; a test may change it.
pub(crate) type Work = Arc<Mutex<Vec<WorkReport>>>;

/// The diagnostics of a daemon.
pub(crate) struct Scene {
    pub(crate) work: Work,
    pub(crate) address: SocketAddr,
    board: Board,
    tasks: Tasks,
    stop: CancellationToken,
    /// Has the port as well, and never listens, so that nobody else gets it while the daemon is away.
    _kept: TcpSocket,
}

/// How long the daemon has run. Nothing on its page may be older: the README shows it.
const UPTIME: Duration = Duration::from_secs(5_123);

/// A table that has no rows now.
const DETACHING: Table = Table {
    name: "detachingVolumes",
    title: "Volumes waiting to be detached",
    columns: &[Column::text("volume", "volume"), Column::count("attachments", "attachments")],
};
/// The queues, and what is in them.
const TITLES: [(&str, &str); 6] = [
    ("claims", "Claims in progress"),
    ("volumes", "Volumes to delete"),
    ("sources", "Data sources to unprotect"),
    ("csi-attacher-va", "Volumes to attach and detach"),
    ("csi-attacher-pv", "Volumes to look after"),
    ("csistoragecapacity", "Capacity to ask for"),
];

impl Scene {
    /// A daemon in the middle of a working day, with some failures.
    pub(crate) async fn busy() -> Self {
        let board = Board::of_a_process_that_ran("0.1.0", Clock::system(), UPTIME);
        let work = Work::default();
        furnish(&board, &work);
        *work.lock().unwrap() = day();
        Self::of(board, work).await
    }

    /// A daemon that has only begun.
    pub(crate) async fn empty() -> Self {
        Self::of(Board::new("0.1.0", Clock::system()), Work::default()).await
    }

    async fn of(board: Board, work: Work) -> Self {
        let kept = TcpSocket::new_v4().unwrap();
        kept.set_reuseaddr(true).unwrap();
        kept.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = kept.local_addr().unwrap();
        let (tasks, _) = Tasks::new("scene");
        let mut scene = Self { work, address, board, tasks, stop: CancellationToken::new(), _kept: kept };
        scene.serve(TcpListener::bind(address).await.unwrap());
        scene
    }

    fn serve(&mut self, listener: TcpListener) {
        let serving = serve(listener, self.board.clone(), Meter::new(), self.stop.clone());
        self.tasks.spawn("diagnostics", serving);
    }

    /// The page's content.
    pub(crate) fn report(&self) -> StatusReport {
        self.board.report()
    }

    /// Where the page is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The daemon's process ends.
    pub(crate) fn go_away(&mut self) {
        self.stop.cancel();
        self.tasks.abort_all();
    }

    /// And is started again, at the same place.
    pub(crate) async fn come_back(&mut self) {
        self.stop = CancellationToken::new();
        let bound = async {
            loop {
                // The listener of the one before may not be closed yet.
                match TcpListener::bind(self.address).await {
                    Ok(listener) => return listener,
                    Err(_) => tokio::time::sleep(LOOK).await,
                }
            }
        };
        let listener = tokio::time::timeout(PATIENCE, bound).await.expect("the port is free again");
        self.serve(listener);
    }
}

fn age(seconds: f64) -> Age {
    Age(Duration::from_secs_f64(seconds))
}

/// One piece of work.
pub(crate) fn item(queue: &str, key: &str, subject: Option<&str>, seconds: f64) -> WorkReport {
    let (role, lane) = match queue {
        "claims" => ("provisioner", "provision"),
        "volumes" => ("provisioner", "delete"),
        "csistoragecapacity" => ("provisioner", "capacity"),
        _ => ("attacher", "attach"),
    };
    WorkReport {
        role: role.to_owned(),
        queue: queue.to_owned(),
        key: key.to_owned(),
        subject: subject.map(str::to_owned),
        lane: lane.to_owned(),
        age: age(seconds),
        attempts: 0,
        next_try: None,
        running: false,
        last_error: None,
    }
}

/// The same after some failures.
pub(crate) fn failing(mut item: WorkReport, attempts: u32, next: f64, error: &str) -> WorkReport {
    (item.attempts, item.next_try, item.last_error) = (attempts, Some(age(next)), Some(error.to_owned()));
    item
}

fn running(mut item: WorkReport) -> WorkReport {
    item.running = true;
    item
}

fn day() -> Vec<WorkReport> {
    vec![
        failing(
            item("claims", "db/data-postgres-2", Some("db/data-postgres-2: class fast"), 744.0),
            10,
            138.4,
            "rpc error: code = ResourceExhausted desc = pool \"fast\" in zone eu-west-1c has 12 GiB left, 100 GiB are asked for",
        ),
        failing(
            item("claims", "ci/cache-runner-17", Some("ci/cache-runner-17: class archive"), 98.0),
            8,
            29.2,
            "cannot load the provisioner's secret: cannot get secrets \"storage/csi-provisioner\": secrets \
             \"csi-provisioner\" not found (404 NotFound)",
        ),
        running(item("claims", "shop/orders-0", Some("shop/orders-0: class fast"), 1.4)),
        item("claims", "shop/orders-1", Some("shop/orders-1: class fast"), 0.31),
        failing(
            item(
                "csi-attacher-va",
                "csi-2f1b0cbb1e6c0a7a2c9d41d7a8b1fe6f2d9f61b6f5f1e4c3a2b1d0e9f8a7b6c5",
                Some("pvc-0b1c9e7d-53a1-4c0e-9a57-2f1de4c0b1aa on ip-10-0-3-77.eu-west-1.compute.internal"),
                312.0,
            ),
            9,
            202.0,
            "rpc error: code = FailedPrecondition desc = volume vol-0b1c9e7d is still attached to node \
             ip-10-0-1-14.eu-west-1.compute.internal; wait for the detach to complete",
        ),
        running(item(
            "csi-attacher-va",
            "csi-9a3d77e0c15dfe0a7b1e4c20d4b8f9c3a1d5e7f60718293a4b5c6d7e8f901234",
            Some("pvc-88f02c11-a9e4-4f7b-8b1c-3c5d7e9f0a1b on ip-10-0-1-14.eu-west-1.compute.internal"),
            2.3,
        )),
        running(item("volumes", "pvc-1f7e40aa-c2d8-4b0e-9d1f-0a2b4c6d8e0f", None, 0.8)),
    ]
}

fn queues(board: &Board, work: &Work) {
    for (name, title) in TITLES {
        let (counted, told) = (Arc::clone(work), Arc::clone(work));
        let of = move |work: &Work| -> Vec<WorkReport> {
            work.lock().unwrap().iter().filter(|item| item.queue == name).cloned().collect()
        };
        let summary = move || {
            let items = of(&counted);
            let count = |is: fn(&WorkReport) -> bool| items.iter().filter(|item| is(item)).count();
            let (running, delayed) = (count(|item| item.running), count(|item| item.next_try.is_some()));
            QueueReport {
                name: name.to_owned(),
                title: title.to_owned(),
                depth: items.len() - running - delayed,
                running,
                delayed,
                failing: count(|item| item.last_error.is_some()),
                found: items.len(),
                oldest_age: items.iter().map(|item| item.age).max(),
            }
        };
        board.queue(summary, move || of(&told)).forever();
    }
}

fn furnish(board: &Board, work: &Work) {
    let text = |text: &str| Some(text.to_owned());
    board
        .driver(move || DriverReport {
            state: DriverStatus::Ready,
            name: text("block.csi.example.com"),
            vendor_version: text("v2.4.1"),
            endpoint: "unix:///run/csi/socket".to_owned(),
            since: age(5_112.0),
            last_error: None,
            capabilities: [
                "CONTROLLER_SERVICE",
                "VOLUME_ACCESSIBILITY_CONSTRAINTS",
                "CREATE_DELETE_VOLUME",
                "PUBLISH_UNPUBLISH_VOLUME",
                "LIST_VOLUMES",
                "GET_CAPACITY",
                "CREATE_DELETE_SNAPSHOT",
                "CLONE_VOLUME",
                "LIST_VOLUMES_PUBLISHED_NODES",
                "SINGLE_NODE_MULTI_WRITER",
            ]
            .map(str::to_owned)
            .to_vec(),
            generation: 1,
            connections: 2,
        })
        .forever();
    for (name, lease) in [
        ("attacher", "storage/external-attacher-leader-block-csi-example-com"),
        ("provisioner", "storage/block-csi-example-com"),
        // Part of what csi-attacher does: the same Lease.
        ("reconciler", "storage/external-attacher-leader-block-csi-example-com"),
    ] {
        let report = RoleReport {
            name: name.to_owned(),
            scope: RoleScope::Cluster,
            state: RoleStatus::Serving,
            lease: text(lease),
            leader: text("csi-control-plane-6f7c9d-x2x4k_1f0a9c3e"),
            term: Some(4),
            term_age: Some(age(5_104.0)),
            restarts: 0,
            last_error: None,
            failure: None,
            facts: Vec::new(),
        };
        board.role(move || report.clone()).forever();
    }
    let caches = [
        ("VolumeAttachment", 1279),
        ("PersistentVolume", 1284),
        ("CSINode", 48),
        ("PersistentVolumeClaim", 1291),
        ("StorageClass", 3),
        ("VolumeSnapshot", 96),
        ("Node", 48),
        ("CSIStorageCapacity", 6),
    ];
    let cache = |(kind, objects): (&str, usize)| CacheReport {
        kind: kind.to_owned(),
        objects,
        synced: true,
        last_event: Some(age(0.42)),
        relists: 1,
        last_error: None,
    };
    board.caches(move || caches.map(cache).to_vec()).forever();
    queues(board, work);
    board.readiness("driver", || Ok(())).forever();
    board.readiness("caches", || Ok(())).forever();
    board
        .configuration(|| ConfigurationReport {
            source: "/etc/csi-control-plane/config.yaml".to_owned(),
            since: age(5_112.0),
            changes: 0,
            last_changed: Vec::new(),
            refused: None,
        })
        .forever();
    board.done(done).forever();
    board.table("provisioner", &DETACHING, Vec::new).forever();
    board.table("provisioner", &capacity::TABLE, room).forever();
}

/// What went well in the last minutes.
fn done() -> Vec<DoneReport> {
    let ago = |seconds: u64| Clock::system().wall() - Duration::from_secs(seconds);
    let item = |role: &str, queue: &str, key: &str, subject: Option<&str>, what: &str, seconds, took| DoneReport {
        role: role.to_owned(),
        queue: queue.to_owned(),
        key: key.to_owned(),
        subject: subject.map(str::to_owned),
        what: what.to_owned(),
        at: ago(seconds),
        took: age(took),
        attempts: 0,
    };
    vec![
        item("attacher", "csi-attacher-va", "csi-5d1e7a9c", Some("pvc-8c2d55f0 on ip-10-0-1-12"), "attached", 12, 1.4),
        item("attacher", "csi-attacher-va", "csi-77b0c3e1", Some("pvc-41aa9e37 on ip-10-0-2-40"), "detached", 47, 2.1),
        item("provisioner", "claims", "web/uploads-3", Some("web/uploads-3: pvc-8c2d55f0"), "provisioned", 14, 3.2),
        item("provisioner", "volumes", "pvc-0f6b1c22", None, "deleted", 131, 0.8),
    ]
}

fn room() -> Vec<Vec<Cell>> {
    const GIB: u64 = 1 << 30;
    let zones = ["eu-west-1a", "eu-west-1b", "eu-west-1c"];
    let mut rows = Vec::new();
    for (class, sizes) in [("fast", [812, 1204, 12]), ("archive", [98_304, 103_424, 0])] {
        for (zone, size) in zones.iter().zip(sizes) {
            let segment = format!("topology.block.csi.example.com/zone={zone}");
            let bytes = |size: u64| Cell::Number(size * GIB);
            let answer = match size {
                0 => [
                    Cell::Nothing,
                    Cell::Nothing,
                    Cell::Nothing,
                    "rpc error: code = DeadlineExceeded desc = the array did not answer within 10 s".into(),
                ],
                size => [bytes(size), bytes(size.min(500)), age(21.0).0.into(), Cell::Nothing],
            };
            rows.push([class.into(), segment.into()].into_iter().chain(answer).collect());
        }
    }
    rows
}

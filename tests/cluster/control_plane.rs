//! A Kubernetes control plane on loopback: etcd and kube-apiserver, and optionally the controllers.
//!
//! Real TLS everywhere, RBAC, service accounts. Ports are free ones, files are in a folder of its own below
//! `target/tmp`, where the logs stay until the next run. If another process takes a port first, the control plane
//! starts again with other ports.

#[path = "audit.rs"]
mod audit;

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::programs::{Janitor, Program};
use super::tls::{Authority, Pair, write_keys};

/// How long a program may take to be ready, on a busy machine.
const READY: Duration = Duration::from_secs(90);
/// The pause between two looks at something that cannot be awaited.
const LOOK: Duration = Duration::from_millis(100);

/// How much of a control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The API alone, without controllers.
    Api,
    /// The API alone, which puts finalizers on new claims and volumes that nobody takes off again.
    Protecting,
    /// The API alone, which stores the health of claims: the gate is one of Kubernetes 1.37.
    VolumeHealth,
    /// The API alone, which lets claims name sources in other namespaces.
    AcrossNamespaces,
    /// With kube-controller-manager and kube-scheduler.
    Controllers,
    /// The same, and claims may name sources in other namespaces.
    ControllersAcrossNamespaces,
    /// With kube-controller-manager and kube-scheduler, the kinds of snapshots, and snapshot-controller.
    ControllersWithSnapshots,
    /// With kube-controller-manager, but for its attach/detach controller, and kube-scheduler.
    WithoutAttachDetach,
    /// With kube-controller-manager and kube-scheduler, for nodes that have a kubelet: it answers pods where their accounts look for it.
    Nodes { has_attach_detach: bool },
}

impl Extent {
    fn has_controllers(self) -> bool {
        !matches!(self, Self::Api | Self::Protecting | Self::VolumeHealth | Self::AcrossNamespaces)
    }

    fn lets_sources_be_anywhere(self) -> bool {
        matches!(self, Self::AcrossNamespaces | Self::ControllersAcrossNamespaces)
    }
}

/// A control plane that runs.
pub(crate) struct ControlPlane {
    /// Its files.
    pub(crate) folder: PathBuf,
    extent: Extent,
    ports: Ports,
    authority: Authority,
    admin: Pair,
    running: Mutex<Running>,
    _janitor: Janitor,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    etcd: u16,
    peer: u16,
    api: u16,
}

struct Running {
    etcd: Program,
    api: Option<Program>,
    controllers: Vec<Program>,
}

impl ControlPlane {
    /// Starts one, ready for requests, with the records that tests are held to.
    pub(crate) async fn start(extent: Extent) -> Self {
        Self::start_with(extent, &audit::policy_with_records()).await
    }

    /// The same without these records, for measurements.
    pub(crate) async fn start_unrecorded(extent: Extent) -> Self {
        Self::start_with(extent, &audit::policy()).await
    }

    async fn start_with(extent: Extent, audit: &str) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        for _ in 0..5 {
            match Self::try_start(extent, audit).await {
                Ok(control_plane) => return control_plane,
                Err(trouble) if trouble.contains("address already in use") => {}
                Err(trouble) => panic!("the control plane does not start: {trouble}"),
            }
        }
        panic!("others take every port that we choose");
    }

    async fn try_start(extent: Extent, audit: &str) -> Result<Self, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cluster-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let janitor = Janitor::watch(&folder);
        let (authority, ports) = (Authority::new(), Ports::of(extent));
        let admin = authority.client("cluster-tests", Some("system:masters"));
        std::fs::write(folder.join("audit.json"), audit).unwrap();
        write_keys(&folder, &authority);
        let etcd = Program::start(&folder, "etcd", &etcd_arguments(ports));
        let running = Mutex::new(Running { etcd, api: None, controllers: Vec::new() });
        let this = Self { folder, extent, ports, authority, admin, running, _janitor: janitor };
        std::fs::write(this.admin_kubeconfig(), this.kubeconfig_with(&client_certificate(&this.admin)).to_string())
            .unwrap();
        this.start_api().await?;
        if extent.has_controllers() {
            this.start_controllers().await?;
        }
        if extent == Extent::ControllersWithSnapshots {
            this.start_snapshot_controller().await;
        }
        Ok(this)
    }

    /// The API's address.
    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.ports.api).into()
    }

    /// Its processes.
    pub(crate) async fn processes(&self) -> Vec<u32> {
        let running = self.running.lock().await;
        [&running.etcd].into_iter().chain(&running.api).chain(&running.controllers).map(Program::id).collect()
    }

    /// The API's URL.
    fn url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The administrator's kubeconfig.
    pub(crate) fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    /// A client of this runtime, as administrator.
    pub(crate) async fn client(&self) -> kube::Client {
        kube::Client::try_from(self.config(&client_certificate(&self.admin)).await).unwrap()
    }

    /// A client of this runtime that has no credentials.
    pub(crate) async fn stranger(&self) -> kube::Client {
        kube::Client::try_from(self.config(&json!({})).await).unwrap()
    }

    /// The configuration of a client with these credentials.
    async fn config(&self, user: &Value) -> kube::Config {
        let file: Kubeconfig = serde_yaml::from_str(&self.kubeconfig_with(user).to_string()).unwrap();
        let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        // The server's message is what the test compares.
        config.default_retry = false;
        config
    }

    /// A kubeconfig with this token, as a file of this name.
    pub(crate) fn kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        self.kubeconfig_through(name, token, self.address())
    }

    /// The same by way of another address.
    pub(crate) fn kubeconfig_through(&self, name: &str, token: &str, address: SocketAddr) -> PathBuf {
        let path = self.folder.join(format!("{name}.kubeconfig"));
        let mut file = self.kubeconfig_with(&json!({ "token": token }));
        file["clusters"][0]["cluster"]["server"] = format!("https://{address}").into();
        std::fs::write(&path, file.to_string()).unwrap();
        path
    }

    /// The same kubeconfig with another address.
    pub(crate) fn through(&self, kubeconfig: &Path, address: SocketAddr) -> PathBuf {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let path = self.folder.join(format!("through-{}.kubeconfig", address.port()));
        std::fs::write(&path, text.replace(&self.url(), &format!("https://{address}"))).unwrap();
        path
    }

    fn kubeconfig_with(&self, user: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {
                "server": self.url(), "certificate-authority-data": STANDARD.encode(&self.authority.certificate)}}],
            "users": [{"name": "it", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        })
    }

    async fn start_api(&self) -> Result<(), String> {
        let mut running = self.running.lock().await;
        running.etcd.check()?;
        let mut api = Program::start(&self.folder, "kube-apiserver", &api_arguments(self.ports, self.extent));
        let client = self.client().await;
        let ready = async {
            loop {
                api.check()?;
                running.etcd.check()?;
                let asked = http::Request::get("/readyz").body(Vec::new()).unwrap();
                if client.request_text(asked).await.is_ok() && has_namespaces(&client).await {
                    return Ok::<(), String>(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(READY, ready).await.map_err(|_| "kube-apiserver is not ready in time".to_owned())??;
        running.api = Some(api);
        Ok(())
    }

    /// Starts the controllers, and waits until they do something: no pod can be made before its namespace has an account.
    async fn start_controllers(&self) -> Result<(), String> {
        let common = ["--kubeconfig=admin.kubeconfig", "--leader-elect=false", "--secure-port=0"];
        let arguments = |more: &[&str]| [&common[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
        // Nodes without a kubelet have no heartbeat that it could miss: after its grace period it would make them all unready, and
        // taint them.
        let off = match self.extent {
            Extent::Nodes { has_attach_detach: true } => "",
            Extent::Nodes { has_attach_detach: false } => ",-persistentvolume-attach-detach-controller",
            Extent::WithoutAttachDetach => ",-node-lifecycle-controller,-persistentvolume-attach-detach-controller",
            _ => ",-node-lifecycle-controller",
        };
        let manager = arguments(&[
            "--service-account-private-key-file=service-accounts.key",
            "--root-ca-file=authority.crt",
            &format!("--controllers=*{off}"),
            "--attach-detach-reconcile-sync-period=5s",
            "--pvclaimbinder-sync-period=2s",
            // It binds the claims of all tests at once.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]);
        let mut running = self.running.lock().await;
        running.controllers = vec![
            Program::start(&self.folder, "kube-controller-manager", &manager),
            Program::start(&self.folder, "kube-scheduler", &arguments(&[])),
        ];
        let accounts: kube::Api<ServiceAccount> = kube::Api::default_namespaced(self.client().await);
        let working = async {
            while !matches!(accounts.get_opt("default").await, Ok(Some(_))) {
                for controller in &mut running.controllers {
                    controller.check()?;
                }
                tokio::time::sleep(LOOK).await;
            }
            Ok(())
        };
        tokio::time::timeout(READY, working).await.map_err(|_| "the controllers do nothing".to_owned())?
    }

    /// Starts the snapshot-controller: it ends where its kinds are not there, and looks for those of groups at its start alone.
    pub(crate) async fn start_snapshot_controller(&self) {
        let client = self.client().await;
        super::kinds::install(&client).await;
        super::kinds::install_groups(&client).await;
        let arguments = [
            "--kubeconfig=admin.kubeconfig",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--worker-threads=20",
            "--retry-interval-start=200ms",
        ];
        let controller = Program::start(&self.folder, "snapshot-controller", &arguments.map(str::to_owned));
        self.running.lock().await.controllers.push(controller);
    }

    /// What a service account has written so far, each as `verb resource/subresource name code`: no Leases, no Events.
    pub(crate) fn writes_of(&self, namespace: &str, account: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.join("audit.log")).unwrap_or_default();
        audit::writes(&log, &format!("system:serviceaccount:{namespace}:{account}"))
    }

    /// Stops the API server and starts it again, on the same port and data; `meanwhile` is called when there is none.
    pub(crate) async fn restart_api(&self, meanwhile: impl FnOnce()) {
        let api = self.running.lock().await.api.take();
        if let Some(api) = api {
            api.stop().await;
        }
        meanwhile();
        self.start_api().await.unwrap();
    }

    /// Restarts the API server with another authority: of its own certificate, of all users', and of the administrator's.
    pub(crate) async fn renew(&mut self) {
        self.authority = Authority::new();
        self.admin = self.authority.client("cluster-tests", Some("system:masters"));
        let api = self.authority.server("kube-apiserver");
        let admin = self.kubeconfig_with(&client_certificate(&self.admin)).to_string();
        let (folder, authority) = (self.folder.clone(), self.authority.certificate.clone());
        let renew = || {
            let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
            write("clients.crt", &authority);
            write("api.crt", &api.certificate);
            write("api.key", &api.key);
            write("admin.kubeconfig", &admin);
        };
        self.restart_api(renew).await;
    }

    /// A kubeconfig of an administrator of this name, which names files beside it: they are issued now.
    pub(crate) fn kubeconfig_of_files(&self, name: &str) -> PathBuf {
        let pair = self.authority.client(name, Some("system:masters"));
        let write = |end: &str, text: &str| std::fs::write(self.folder.join(format!("{name}.{end}")), text).unwrap();
        write("ca.crt", &self.authority.certificate);
        write("crt", &pair.certificate);
        write("key", &pair.key);
        let user = json!({ "client-certificate": format!("{name}.crt"), "client-key": format!("{name}.key") });
        let mut file = self.kubeconfig_with(&user);
        file["clusters"][0]["cluster"] =
            json!({ "server": self.url(), "certificate-authority": format!("{name}.ca.crt") });
        write("kubeconfig", &file.to_string());
        self.folder.join(format!("{name}.kubeconfig"))
    }

    /// Makes etcd forget every version but the latest.
    pub(crate) async fn compact(&self) {
        let mut config = self.config(&client_certificate(&self.admin)).await;
        config.cluster_url = format!("https://127.0.0.1:{}", self.ports.etcd).parse().unwrap();
        let etcd = kube::Client::try_from(config).unwrap();
        let any = json!({"key": STANDARD.encode("\0"), "limit": "1"});
        let now: Value = etcd.request(post("/v3/kv/range", &any)).await.unwrap();
        let revision = json!({"revision": now["header"]["revision"], "physical": true});
        etcd.request::<Value>(post("/v3/kv/compaction", &revision)).await.unwrap();
    }
}

impl Ports {
    /// Free ones, but for that of the service `kubernetes` where pods look for it.
    fn of(extent: Extent) -> Self {
        let listeners = [(); 3].map(|()| listener());
        let [etcd, peer, api] = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
        Self { etcd, peer, api: if matches!(extent, Extent::Nodes { .. }) { 443 } else { api } }
    }
}

/// A free port.
pub(crate) fn free_port() -> u16 {
    listener().local_addr().unwrap().port()
}

/// Below the ports that the kernel gives to whoever asks for any: while an API server restarts, nobody takes its port.
fn listener() -> TcpListener {
    const BELOW_EPHEMERAL: std::ops::Range<u16> = 20_000..32_000;
    let ports = std::iter::repeat_with(|| rand::random_range(BELOW_EPHEMERAL));
    ports.take(1_000).find_map(|port| TcpListener::bind(("127.0.0.1", port)).ok()).expect("a free port")
}

fn post(path: &str, body: &Value) -> http::Request<Vec<u8>> {
    http::Request::post(path).header("content-type", "application/json").body(body.to_string().into_bytes()).unwrap()
}

async fn has_namespaces(client: &kube::Client) -> bool {
    let namespaces: kube::Api<Namespace> = kube::Api::all(client.clone());
    let (default, system) = (namespaces.get_opt("default").await, namespaces.get_opt("kube-system").await);
    matches!((default, system), (Ok(Some(_)), Ok(Some(_))))
}

fn client_certificate(pair: &Pair) -> Value {
    json!({"client-certificate-data": STANDARD.encode(&pair.certificate), "client-key-data": STANDARD.encode(&pair.key)})
}

fn etcd_arguments(ports: Ports) -> Vec<String> {
    let Ports { etcd, peer, .. } = ports;
    vec![
        "--name=it".to_owned(),
        "--data-dir=etcd".to_owned(),
        format!("--listen-client-urls=https://127.0.0.1:{etcd}"),
        format!("--advertise-client-urls=https://127.0.0.1:{etcd}"),
        format!("--listen-peer-urls=https://127.0.0.1:{peer}"),
        format!("--initial-advertise-peer-urls=https://127.0.0.1:{peer}"),
        format!("--initial-cluster=it=https://127.0.0.1:{peer}"),
        "--cert-file=etcd.crt".to_owned(),
        "--key-file=etcd.key".to_owned(),
        "--trusted-ca-file=authority.crt".to_owned(),
        "--client-cert-auth".to_owned(),
        "--peer-cert-file=etcd.crt".to_owned(),
        "--peer-key-file=etcd.key".to_owned(),
        "--peer-trusted-ca-file=authority.crt".to_owned(),
        "--peer-client-cert-auth".to_owned(),
        // The tests delete this data soon, so a crash of the machine may lose it.
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn api_arguments(ports: Ports, extent: Extent) -> Vec<String> {
    let Ports { etcd, api, .. } = ports;
    let mut arguments: Vec<String> = [
        "--advertise-address=127.0.0.1",
        // No endpoints of the service `kubernetes`: since 1.37 a loopback address may not be one, and nothing here reads them.
        "--endpoint-reconciler-type=none",
        "--tls-cert-file=api.crt",
        "--tls-private-key-file=api.key",
        "--client-ca-file=clients.crt",
        "--etcd-cafile=authority.crt",
        "--etcd-certfile=api-etcd.crt",
        "--etcd-keyfile=api-etcd.key",
        "--authorization-mode=RBAC",
        // As clusters have it: drivers mount.
        "--allow-privileged=true",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-signing-key-file=service-accounts.key",
        "--service-account-key-file=service-accounts.pub",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--cert-dir=certificates",
        "--shutdown-delay-duration=0s",
        "--audit-policy-file=audit.json",
        "--audit-log-path=audit.log",
        // Whoever reads on in it finds all of it: in MB.
        "--audit-log-maxsize=100000",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.push(format!("--etcd-servers=https://127.0.0.1:{etcd}"));
    arguments.push(format!("--secure-port={api}"));
    let everywhere = matches!(extent, Extent::Nodes { .. });
    arguments.push(format!("--bind-address={}", if everywhere { "0.0.0.0" } else { "127.0.0.1" }));
    if extent.lets_sources_be_anywhere() {
        arguments.push("--feature-gates=CrossNamespaceVolumeDataSource=true".to_owned());
    }
    if extent == Extent::VolumeHealth {
        arguments.push("--feature-gates=CSIVolumeHealth=true".to_owned());
    }
    // Both wait for a controller: to make each namespace's account, and to take finalizers off again.
    let without = match extent {
        Extent::Api | Extent::VolumeHealth | Extent::AcrossNamespaces => "ServiceAccount,StorageObjectInUseProtection",
        Extent::Protecting => "ServiceAccount",
        _ => return arguments,
    };
    arguments.push(format!("--disable-admission-plugins={without}"));
    arguments
}

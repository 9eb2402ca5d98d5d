//! A test environment on real sockets: the API, the driver, and the daemons.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::sandbox::api::{Identity, kubeconfig};
use csi_control_plane::sandbox::driver::{Action, Call, Driver, Fault, Method, Profile};
use csi_control_plane::sandbox::testbed::{TestBed, Transport};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::Code;

use super::commits::{Commit, Commits};
use super::program::{Program, eventually};

/// The driver's name.
pub(crate) const DRIVER: &str = "demo.csi.example.com";
/// The one node.
pub(crate) const NODE: &str = "node-1";
/// The Lease's timing in these tests: no daemon loses it when a busy machine stops everything for a while.
pub(crate) const LEASE: Duration = Duration::from_secs(8);
/// What comes within this has waited neither for a Lease to expire nor for a call's deadline, which is longer.
pub(crate) const AT_ONCE: Duration = LEASE;

/// The test bed and its surroundings.
pub(crate) struct Theatre {
    /// API and driver.
    pub(crate) testbed: TestBed,
    /// The committed changes.
    pub(crate) commits: Commits,
    folder: TempDir,
}

impl Theatre {
    /// Sets up the test bed with one node and a driver that takes any volume.
    pub(crate) async fn open() -> Self {
        Self::open_with(profile()).await
    }

    /// The same, and a daemon that serves, as an administrator of this name.
    pub(crate) async fn serving(user: &str) -> (Self, Program) {
        let theatre = Self::open().await;
        let daemon = theatre.daemon(user);
        daemon.is("serving").await;
        (theatre, daemon)
    }

    /// Sets up the test bed with this driver.
    pub(crate) async fn open_with(profile: Profile) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ground = Transport::Sockets { folder: folder.path().to_owned() };
        let testbed = TestBed::set_up(ground, profile, Clock::system(), Rng::seeded(1)).await.unwrap();
        let commits = Commits::of(&testbed.api, &testbed.driver);
        let theatre = Self { testbed, commits, folder };
        theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": NODE},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": node_id(), "topologyKeys": []}]}}));
        theatre.put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER},
            "spec": {"attachRequired": true}}));
        theatre
    }

    /// The driver's backend.
    pub(crate) fn driver(&self) -> &Driver {
        &self.testbed.driver
    }

    /// A file in the test bed's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the test bed's folder.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The configuration of a daemon that comes as this user.
    pub(crate) fn config(&self, user: &str) -> Value {
        let path = self.path(&format!("{user}.kubeconfig"));
        kubeconfig::write(&path, &self.testbed.url().unwrap(), Some(&TestBed::token(user).into())).unwrap();
        json!({
            "csi": {"endpoint": format!("unix://{}", self.path("csi.sock").display()), "timeout": "30s"},
            "kubernetes": {"kubeconfig": path},
            "leaderElection": {"leaseDuration": "8s", "renewDeadline": "6s", "retryPeriod": "500ms"},
            "diagnostics": {"listen": "127.0.0.1:0"},
            "runtime": {"workerThreads": 2},
            "roles": {"attacher": {"retry": {"initial": "100ms", "max": "1s"}}, "reconciler": {"interval": "1m"}},
        })
    }

    /// Starts a daemon as a process, as an administrator of this name.
    pub(crate) fn daemon(&self, user: &str) -> Program {
        self.daemon_with(user, |_| {})
    }

    /// Starts a daemon as a process with something changed in its configuration.
    pub(crate) fn daemon_with(&self, user: &str, change: impl FnOnce(&mut Value)) -> Program {
        self.testbed.api.admit(TestBed::token(user), Identity::admin(user));
        self.program(user, change)
    }

    /// The same with variables in its environment.
    pub(crate) fn daemon_under(
        &self,
        user: &str,
        variables: &[(&str, &str)],
        change: impl FnOnce(&mut Value),
    ) -> Program {
        self.testbed.api.admit(TestBed::token(user), Identity::admin(user));
        self.program_under(user, variables, change)
    }

    /// Starts a daemon as a process; who it is and what it may do was said before.
    pub(crate) fn program(&self, user: &str, change: impl FnOnce(&mut Value)) -> Program {
        self.program_under(user, &[], change)
    }

    fn program_under(&self, user: &str, variables: &[(&str, &str)], change: impl FnOnce(&mut Value)) -> Program {
        let mut config = self.config(user);
        change(&mut config);
        let file = self.file(&format!("{user}.yaml"), &config.to_string());
        let variables = [&[("POD_NAMESPACE", "kube-system"), ("POD_NAME", user)], variables].concat();
        Program::start(&["run", "--config", &file], &variables)
    }

    /// Has a daemon before ask for the volume of the claim that is there, and ends it while it has no answer.
    pub(crate) async fn begin_provisioning(&self) {
        let slow = Action::DoneButFail { code: Code::DeadlineExceeded, message: "slow".to_owned() };
        self.driver().inject(Fault::on(Method::CreateVolume, slow));
        let config = json!({"roles": {"provisioner": {"retry": {"initial": "100ms", "max": "1s"}}}});
        let predecessor = self.testbed.start("predecessor", &config.to_string()).await.unwrap();
        let asked = async || (!self.driver().calls_of(Method::CreateVolume).is_empty()).then_some(());
        eventually("the volume is asked for", asked).await;
        predecessor.stop().await.unwrap();
        self.driver().clear_faults();
    }

    /// Stores an object.
    pub(crate) fn put(&self, object: Value) {
        self.testbed.api.create_value(object).unwrap();
    }

    /// Creates a volume and asks for it on the node.
    pub(crate) fn attach(&self, volume: &str) {
        self.put(volume_object(volume, json!({})));
        self.put(attachment_object(volume));
    }

    /// Asks for the volume to leave the node.
    pub(crate) fn detach(&self, volume: &str) {
        self.testbed.api.delete::<VolumeAttachment>("", volume).unwrap();
    }

    /// The attachment, if it is there.
    pub(crate) fn attachment(&self, volume: &str) -> Option<VolumeAttachment> {
        self.testbed.api.get("", volume).ok()
    }

    /// Waits for the first commit that passes.
    pub(crate) async fn committed(&self, what: &str, passes: impl Fn(&Commit) -> bool) -> Commit {
        eventually(what, async || self.commits.first(&passes)).await
    }

    /// Waits until the volume is attached; says by which commit.
    pub(crate) async fn attached(&self, volume: &str) -> Commit {
        self.committed(&format!("{volume} is attached"), |commit| commit.is_attached(volume)).await
    }

    /// Waits until the attachment is gone.
    pub(crate) async fn gone(&self, volume: &str) {
        eventually(&format!("{volume} is gone"), async || self.attachment(volume).is_none().then_some(())).await;
    }

    /// Waits until a publish of the volume is under way.
    pub(crate) async fn publishing(&self, volume: &str) -> Arc<Call> {
        eventually(&format!("{volume} is being published"), async || self.publishes(volume).pop()).await
    }

    /// Asks for a volume, whose publish the driver does not end.
    pub(crate) async fn holds(&self, volume: &str) {
        self.driver().inject(Fault::on(Method::ControllerPublishVolume, Action::Hold).volume(volume).once());
        self.attach(volume);
        self.publishing(volume).await;
    }

    /// The publishes of a volume so far.
    pub(crate) fn publishes(&self, volume: &str) -> Vec<Arc<Call>> {
        let calls = self.driver().calls_of(Method::ControllerPublishVolume);
        calls.into_iter().filter(|call| call.volume.as_deref() == Some(volume)).collect()
    }
}

/// A driver that knows the node and takes any volume.
pub(crate) fn profile() -> Profile {
    Profile { accept_unknown_volumes: true, ..Profile::with_nodes([node_id().as_str()]) }
}

/// The driver's name for the node.
pub(crate) fn node_id() -> String {
    format!("id-of-{NODE}")
}

/// A volume with its name as handle, and what else its CSI source has.
pub(crate) fn volume_object(name: &str, more: Value) -> Value {
    let mut source = json!({"driver": DRIVER, "volumeHandle": name});
    if let (Some(source), Value::Object(more)) = (source.as_object_mut(), more) {
        source.extend(more);
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": source}})
}

/// An attachment of a volume to the node, under the volume's name.
pub(crate) fn attachment_object(volume: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": volume},
        "spec": {"attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": volume}}})
}

//! The common parts of the snapshotter's scenarios, beside [`crate::supply`]: a daemon with the role, sources, classes,
//! snapshots, and looks at contents.
//!
//! The cluster has its snapshot-controller, so a scenario creates snapshots as users do. It creates contents by hand
//! where administrators do.

use std::collections::BTreeSet;
use std::sync::Arc;

use csi_control_plane::sandbox::driver::{Action, Call, Fault, Method, Profile, Violation};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::ground::{Daemon, Ground};
use crate::objects::merge;
use crate::supplier::says;
use crate::world::{PATIENCE, World, brief, settled};

pub(crate) const CONTENT: &str = "VolumeSnapshotContent";
pub(crate) const SNAPSHOT: &str = "VolumeSnapshot";
pub(crate) const CLASS: &str = "VolumeSnapshotClass";

/// Holds a content until the driver has no snapshot for it.
pub(crate) const BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// The annotation of a content for which the driver owes a final answer.
pub(crate) const BEGUN: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// On a content: its snapshot is deleted.
pub(crate) const DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
/// The annotation of a content that holds the request to the driver.
pub(crate) const INTENT: &str = "csi-control-plane.io/snapshotting";
/// On a content: the group that it is a member of.
pub(crate) const MEMBER: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
/// A finalizer or an annotation of another program.
pub(crate) const THEIRS: &str = "example.com/theirs";

/// The uid of a snapshot that never was.
pub(crate) const NOBODY: &str = "00000000-0000-0000-0000-000000000001";

/// The configuration of a daemon with the snapshotter alone and short times; `section` is merged into the role's.
pub(crate) fn snapshotter(section: Value) -> Value {
    let mut snapshotter = json!({"retry": {"initial": "50ms", "max": "400ms", "infeasible": "1s"},
        "readyCheck": {"initial": "50ms", "max": "200ms"}, "resync": "0s"});
    merge(&mut snapshotter, section);
    json!({"roles": {"attacher": null, "reconciler": null, "snapshotter": snapshotter}})
}

/// Back-offs and pauses are longer than any test waits, so a retry proves a wake-up.
pub(crate) fn slow() -> Value {
    json!({"retry": {"initial": "300s", "max": "300s", "infeasible": "300s"},
        "readyCheck": {"initial": "300s", "max": "300s"}})
}

/// Something goes wrong with each `CreateSnapshot`.
pub(crate) fn cutting(action: Action) -> Fault {
    Fault::on(Method::CreateSnapshot, action)
}

/// Something goes wrong with each `DeleteSnapshot`.
pub(crate) fn deleting(action: Action) -> Fault {
    Fault::on(Method::DeleteSnapshot, action)
}

/// The driver cuts the snapshot, and its answer does not come in time: the outcome is unknown.
pub(crate) fn unanswered() -> Fault {
    cutting(Action::DoneButFail { code: tonic::Code::DeadlineExceeded, message: "too slow".to_owned() })
}

/// A claim that has its volume.
pub(crate) struct Source {
    pub(crate) claim: String,
    pub(crate) volume: String,
    pub(crate) handle: String,
}

/// A snapshot that a user has requested.
pub(crate) struct Cut {
    /// The name of the `VolumeSnapshot`.
    pub(crate) snapshot: String,
    /// Its uid.
    pub(crate) uid: String,
    /// The name of its content.
    pub(crate) content: String,
    /// The name in the driver's call.
    pub(crate) name: String,
}

/// The value at this place of an object.
pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// Whether an object has this finalizer.
pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|it| it.iter().any(|it| it == finalizer))
}

/// Whether the driver still owes a final answer for a content.
pub(crate) fn is_begun(content: &Value) -> bool {
    annotation(content, BEGUN).is_some()
}

/// Whether an object is there and was deleted.
pub(crate) fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(crate) fn handle_in(content: &Value) -> Option<&str> {
    content["status"]["snapshotHandle"].as_str()
}

/// Whether contents name exactly what is there, each once, and no call is open for any of them; or else what they name.
pub(crate) fn name_all(
    contents: &[Value],
    handle_in: fn(&Value) -> Option<&str>,
    is_begun: fn(&Value) -> bool,
    there: &BTreeSet<String>,
) -> Result<(), String> {
    let handles: Vec<String> = contents.iter().filter_map(|it| handle_in(it).map(str::to_owned)).collect();
    let known: BTreeSet<String> = handles.iter().cloned().collect();
    let is_fine = known == *there && known.len() == handles.len() && !contents.iter().any(is_begun);
    if is_fine { Ok(()) } else { Err(format!("{known:?}, the driver has {there:?}")) }
}

pub(crate) fn error_in(object: &Value) -> &str {
    object["status"]["error"]["message"].as_str().unwrap_or_default()
}

/// Whether a content or a snapshot is reported ready to use.
pub(crate) fn is_ready(object: &Value) -> bool {
    object["status"]["readyToUse"] == true
}

/// Whether a content is ready, with nothing of its making on it.
pub(crate) fn is_done(content: &Value) -> bool {
    is_ready(content) && !is_begun(content) && annotation(content, INTENT).is_none()
}

impl World {
    /// A world whose cluster has its controllers, a snapshot-controller among them.
    pub(crate) async fn snapshotting(change: impl FnOnce(&mut Profile)) -> Self {
        Self::on(Ground::with_snapshots, change).await
    }

    /// A daemon with the snapshotter alone, its section changed like this.
    pub(crate) async fn snapshotter(&self, section: Value) -> Daemon {
        self.daemon(snapshotter(section)).await
    }

    /// [`World::snapshotting`], and a daemon in it with the snapshotter alone, its section changed like this.
    pub(crate) async fn with_snapshotter(section: Value) -> (Self, Daemon) {
        let world = Self::snapshotting(|_| {}).await;
        let daemon = world.snapshotter(section).await;
        (world, daemon)
    }

    /// A secret, and a class whose snapshots are taken with it.
    pub(crate) async fn secretive_class(&self) -> (String, String) {
        let secret = self.name("secret");
        self.secret(&secret, &[("password", b"hunter2")]).await;
        let parameters = json!({"csi.storage.k8s.io/snapshotter-secret-name": secret,
            "csi.storage.k8s.io/snapshotter-secret-namespace": "default"});
        let class = self.snapshot_class("class", json!({ "parameters": parameters })).await;
        (secret, class)
    }

    /// A claim of 1 GiB that is bound to a volume of its own.
    pub(crate) async fn source(&self, short: &str) -> Source {
        let class = self.class(&format!("{short}-class"), json!({})).await;
        let volume = self.volume_with(&format!("{short}-pv"), json!({"storageClassName": class})).await;
        let claim = self.claim(short, &class, json!({"spec": {"volumeName": volume}})).await;
        self.bound(&claim).await;
        let handle = self.handle(&volume);
        Source { claim, volume, handle }
    }

    /// A class of the driver whose snapshots go with their objects; `change` is merged into it. Returns its name.
    pub(crate) async fn snapshot_class(&self, short: &str, change: Value) -> String {
        let name = self.name(short);
        let mut class = json!({"metadata": {"name": name}, "driver": self.driver_name(), "deletionPolicy": "Delete"});
        merge(&mut class, change);
        self.installed(CLASS, class).await;
        name
    }

    /// A user asks for a snapshot of a claim.
    pub(crate) async fn cut(&self, short: &str, source: &Source, class: &str) -> Cut {
        let snapshot = self.name(short);
        let object = json!({"metadata": {"name": snapshot}, "spec": {"volumeSnapshotClassName": class,
            "source": {"persistentVolumeClaimName": source.claim}}});
        let uid = self.installed(SNAPSHOT, object).await.uid().unwrap();
        let (content, name) = (format!("snapcontent-{uid}"), format!("snapshot-{uid}"));
        Cut { snapshot, uid, content, name }
    }

    /// The same of a new source and by a new class, which the snapshot is named after.
    pub(crate) async fn cut_anew(&self, short: &str) -> Cut {
        let source = self.source(&format!("{short}-source")).await;
        let class = self.snapshot_class(&format!("{short}-class"), json!({})).await;
        self.cut(short, &source, &class).await
    }

    /// A content that an administrator makes of this source; `change` is merged into it. No snapshot has it. Returns its name.
    pub(crate) async fn content_by_hand(&self, short: &str, source: Value, change: Value) -> String {
        let name = self.name(short);
        let mut content = json!({"metadata": {"name": name}, "spec": {"driver": self.driver_name(),
            "deletionPolicy": "Delete", "source": source,
            "volumeSnapshotRef": {"namespace": "default", "name": format!("{name}-snapshot")}}});
        merge(&mut content, change);
        self.installed(CONTENT, content).await;
        name
    }

    /// A snapshot that the driver has and no object stands for. Returns its handle.
    pub(crate) fn cut_behind(&self, name: &str) -> String {
        self.driver().seed(["behind"]);
        self.driver().cut_snapshot(name, "behind").unwrap()
    }

    /// The object of an installed kind as it is; null if it is not there.
    pub(crate) async fn look(&self, kind: &str, name: &str) -> Value {
        json!(self.installed_kind(kind).get_opt(name).await.unwrap())
    }

    /// Waits until an object of an installed kind satisfies a condition, and returns it.
    pub(crate) async fn look_until(&self, kind: &str, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        settled(&format!("{name}: {what}"), PATIENCE, async || {
            let object = self.look(kind, name).await;
            if holds(&object) { Ok(object) } else { Err(format!("{object:#}; {:#?}", brief(&self.driver().calls()))) }
        })
        .await
    }

    /// Waits until a content satisfies a condition, and returns it.
    pub(crate) async fn content_until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.look_until(CONTENT, name, what, |it| !it.is_null() && holds(it)).await
    }

    /// Waits until an object of an installed kind is gone.
    pub(crate) async fn away(&self, kind: &str, name: &str) {
        self.look_until(kind, name, "gone", Value::is_null).await;
    }

    /// Waits until a snapshot is ready to use and nothing of its making is left on its content, which is returned.
    pub(crate) async fn ready(&self, cut: &Cut) -> Value {
        self.look_until(SNAPSHOT, &cut.snapshot, "ready", is_ready).await;
        self.content_until(&cut.content, "ready, with nothing of ours", is_done).await
    }

    /// A user deletes a snapshot.
    pub(crate) async fn delete_snapshot(&self, cut: &Cut) {
        self.delete_installed(SNAPSHOT, &cut.snapshot).await;
    }

    /// The same, and waits until its content is to be deleted.
    pub(crate) async fn delete_snapshot_and_see(&self, cut: &Cut) -> Value {
        self.delete_snapshot(cut).await;
        let is_asked = |it: &Value| is_going(it) && annotation(it, DELETED).is_some();
        self.content_until(&cut.content, "to be deleted", is_asked).await
    }

    /// Waits until snapshot and content are gone.
    pub(crate) async fn cut_gone(&self, cut: &Cut) {
        self.away(CONTENT, &cut.content).await;
        self.away(SNAPSHOT, &cut.snapshot).await;
    }

    /// A user deletes a snapshot, and waits until it and its content are gone.
    pub(crate) async fn delete_snapshot_and_wait(&self, cut: &Cut) {
        self.delete_snapshot(cut).await;
        self.cut_gone(cut).await;
    }

    pub(crate) async fn delete_installed(&self, kind: &str, name: &str) {
        self.installed_kind(kind).delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Applies a merge patch to an object of an installed kind.
    pub(crate) async fn edit(&self, kind: &str, name: &str, patch: Value) {
        self.installed_kind(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Applies a JSON patch to a content.
    pub(crate) async fn edit_exactly(&self, content: &str, operations: Value) {
        let patch = Patch::Json::<()>(serde_json::from_value(operations).unwrap());
        self.installed_kind(CONTENT).patch(content, &PatchParams::default(), &patch).await.unwrap();
    }

    /// The calls that were to cut this snapshot.
    pub(crate) fn cuts(&self, cut: &Cut) -> Vec<Arc<Call>> {
        self.driver().cuts_of(&cut.name)
    }

    /// Waits until the driver was called this often to cut a snapshot, and returns the calls.
    pub(crate) async fn cut_times(&self, cut: &Cut, times: usize) -> Vec<Arc<Call>> {
        let what = format!("{times} cuts of {}", cut.name);
        self.driver_until(&what, |driver| driver.cuts_of(&cut.name).len() >= times).await;
        self.cuts(cut)
    }

    /// The IDs in the calls to delete a snapshot, in their order.
    pub(crate) fn deletions(&self) -> Vec<String> {
        self.driver().calls_of(Method::DeleteSnapshot).into_iter().filter_map(|call| call.snapshot.clone()).collect()
    }

    /// Waits until the driver was called this often to delete a snapshot.
    pub(crate) async fn deleted_times(&self, times: usize) {
        let what = format!("{times} deletions");
        self.driver_until(&what, |driver| driver.calls_of(Method::DeleteSnapshot).len() >= times).await;
    }

    /// How often the driver was called to look a snapshot up.
    pub(crate) fn look_ups(&self) -> usize {
        self.driver().calls_of(Method::ListSnapshots).len() + self.driver().calls_of(Method::GetSnapshot).len()
    }

    /// Waits for an Event on an object of an installed kind that says so.
    pub(crate) async fn told_on(&self, kind: &str, name: &str, reason: &str, text: &str) {
        let uid = self.look(kind, name).await["metadata"]["uid"].as_str().unwrap().to_owned();
        let what = format!("{reason}: {text}");
        self.events_until(&uid, &what, |events| events.iter().any(|event| says(event, reason, text))).await;
    }

    /// The reasons of the daemon's Events on an object of an installed kind, each as often as it was told.
    pub(crate) async fn told_reasons(&self, kind: &str, name: &str) -> Vec<String> {
        let uid = self.look(kind, name).await["metadata"]["uid"].as_str().unwrap().to_owned();
        let ours = format!("csi-snapshotter {}", self.driver_name());
        let mut reasons = Vec::new();
        for event in self.events_on(&uid).await {
            if event.source.as_ref().and_then(|it| it.component.as_deref()) == Some(ours.as_str()) {
                let times = usize::try_from(event.count.unwrap_or(1)).unwrap();
                reasons.extend(std::iter::repeat_n(event.reason.unwrap_or_default(), times));
            }
        }
        reasons.sort();
        reasons
    }

    /// Waits until the daemon has done with one more snapshot: it has seen all that was before.
    pub(crate) async fn another_is_ready(&self, short: &str) {
        let other = self.cut_anew(short).await;
        self.ready(&other).await;
    }

    /// The contents of the driver.
    pub(crate) async fn contents(&self) -> Vec<Value> {
        self.contents_of(CONTENT).await
    }

    /// The contents of the driver of this kind.
    pub(crate) async fn contents_of(&self, kind: &str) -> Vec<Value> {
        let all = self.installed_kind(kind).list(&ListParams::default()).await.unwrap().items;
        all.iter().map(|it| json!(it)).filter(|it| it["spec"]["driver"] == self.driver_name()).collect()
    }

    /// Asserts that the driver comes to have exactly the snapshots that contents name, each once; that no content is marked; and
    /// that no call met another of the same caller for the same volume or snapshot.
    pub(crate) async fn assert_no_snapshot_leaked(&self) {
        settled("no snapshot that leaked", PATIENCE, async || {
            let contents = self.contents().await;
            let there = self.driver().state().snapshots().keys().cloned().collect();
            let named = name_all(&contents, handle_in, is_begun, &there);
            named.map_err(|what| format!("{what}; {:#?}", brief(&self.driver().calls())))
        })
        .await;
        let own = |violation: &Violation| !matches!(violation, Violation::Overlap { same_connection: false, .. });
        let violations: Vec<_> = self.driver().violations().into_iter().filter(own).collect();
        assert_eq!(violations, []);
    }

    /// Asserts the same, and that neither the driver nor the API has a snapshot left.
    pub(crate) async fn assert_no_snapshot_left(&self) {
        self.assert_no_snapshot_leaked().await;
        assert_eq!(self.contents().await, Vec::<Value>::new());
        assert!(self.driver().state().snapshots().is_empty());
    }
}

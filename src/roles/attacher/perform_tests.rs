//! What may not be written is said, not passed over: the caller would look again, see no change, and try for ever.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tonic::Code;

use super::*;
use crate::cluster::Api;
use crate::csi::CsiOptions;
use crate::election::Term;
use crate::process::{Clock, Tasks};
use crate::proto::VolumeCapability;
use crate::roles::attacher::AttacherSection;
use crate::roles::attacher::attachment::Attachment;
use crate::roles::attacher::context::Stores;
use crate::roles::attacher::serve::Attacher;
use crate::sandbox::driver::{Action, Fault, Method, Profile};
use crate::sandbox::testbed::TestBed;
use crate::sandbox::testbed::harness::RoleHarness;

/// A context over a sandbox.
struct Office {
    testbed: TestBed,
    api: Api,
    cx: Context,
    _tasks: Tasks,
}

impl Office {
    async fn new(term: impl FnOnce(Clock) -> Term) -> Self {
        let RoleHarness { testbed, context: role, caches, tasks, .. } = RoleHarness::with(Profile::default()).await;
        let stores = Stores { attachments: caches.want(), volumes: caches.want(), nodes: caches.want() };
        let cx = Attacher { section: AttacherSection::default(), stores }.context(&role, &term(role.clock));
        Self { testbed, api: role.api, cx, _tasks: tasks }
    }

    async fn of_permanent_term() -> Self {
        Self::new(|clock| Term::permanent(&tokio_util::sync::CancellationToken::new(), clock)).await
    }

    /// What a cache says of an attachment.
    fn seen(&self, uid: &str) -> Objects {
        let object: VolumeAttachment = serde_json::from_value(json!({
            "metadata": { "name": "csi-1", "uid": uid, "finalizers": [self.cx.rules.finalizer] },
            "spec": self.spec(),
        }))
        .unwrap();
        let attachment = Attachment::parse(&object, &self.cx.rules.finalizer);
        Objects { attachment, object: Arc::new(object), volume: None, node: None, others: Vec::new() }
    }

    fn spec(&self) -> Value {
        json!({
            "attacher": self.cx.rules.driver, "nodeName": "node-1", "source": { "persistentVolumeName": "pv-1" },
        })
    }
}

/// What is to be published.
fn wanted() -> Publish {
    Publish {
        volume_id: "vol-1".into(),
        node_id: "node-1".into(),
        capability: VolumeCapability::default(),
        readonly: false,
        volume_context: BTreeMap::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn r52_a_status_that_may_not_be_written_any_more_ends_the_attempt() {
    let office = Office::new(|clock| Term::unattended(clock, Duration::ZERO)).await;
    let (cx, now) = (&office.cx, office.seen("u1"));
    let context = BTreeMap::from([("path".to_owned(), "/dev/a".to_owned())]);
    assert!(matches!(record_attached(cx, &now, &context).await, Err(Stop::TermOver)));
    assert!(matches!(record_detached(cx, &now).await, Err(Stop::TermOver)));
    assert!(matches!(release(cx, &now).await, Err(Stop::TermOver)));
    assert_eq!(office.testbed.api.audit().entries().len(), 0);
    office.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_namesake_that_only_the_api_knows_is_waited_for_and_not_taken_for_what_the_cache_has() {
    let office = Office::of_permanent_term().await;
    let body = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": { "name": "csi-1" }, "spec": office.spec(),
    });
    let name = ObjectName::cluster("csi-1");
    let made: VolumeAttachment = office.api.create(&name, &body).await.unwrap();
    let uid = &made.metadata.uid;
    let (old, current) = (office.seen("of-its-former-life"), office.seen(uid));
    assert!(matches!(confirm(&office.cx, &old).await, Err(Stop::Behind(_))));
    assert!(!office.cx.confirmed.has(uid), "nobody has looked at that one");
    assert!(matches!(confirm(&office.cx, &current).await, Ok(Some(Done::Nothing))));
    assert!(matches!(confirm(&office.cx, &current).await, Ok(None)));
    office.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_driver_showed_is_worth_nothing_after_a_publish_that_it_did_not_refuse_for_good() {
    let office = Office::of_permanent_term().await;
    let now = office.seen("u1");
    for (code, still_lost) in [
        (Code::Internal, true),
        (Code::NotFound, true),
        (Code::Unavailable, false),
        (Code::DeadlineExceeded, false),
        (Code::Aborted, false),
        (Code::ResourceExhausted, false),
        (Code::Cancelled, false),
    ] {
        office.testbed.driver.clear_faults();
        office.testbed.driver.inject(Fault::on(Method::ControllerPublishVolume, Action::fail(code, "no")));
        office.cx.lost.note("u1");
        publish(&office.cx, &now, wanted(), None).await.unwrap_err();
        assert_eq!(office.cx.lost.has("u1"), still_lost, "{code:?}");
        office.cx.lost.forget("u1");
        publish(&office.cx, &now, wanted(), None).await.unwrap_err();
        assert!(!office.cx.lost.has("u1"), "a refusal alone says nothing of where it is");
    }
    office.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_after_the_term_is_no_failure_of_the_volume() {
    let lasts = CsiOptions::default().timeout / 2;
    for method in [Method::ControllerPublishVolume, Method::ControllerUnpublishVolume] {
        let office = Office::new(|clock| Term::unattended(clock, lasts)).await;
        office.testbed.driver.inject(Fault::on(method, Action::Hang));
        let ended = if method == Method::ControllerPublishVolume {
            publish(&office.cx, &office.seen("u1"), wanted(), None).await.map(drop)
        } else {
            let unpublished = Unpublish { volume_id: "vol-1".into(), node_id: "node-1".into() };
            unpublish(&office.cx, &office.seen("u1"), unpublished, None).await.map(drop)
        };
        assert!(matches!(ended, Err(Stop::TermOver)), "{method:?}: {ended:?}");
        assert_eq!(office.testbed.driver.calls_of(method).len(), 1);
        office.testbed.tear_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_read_before_it_is_published_unless_the_api_has_shown_it_in_this_term() {
    let office = Office::of_permanent_term().await;
    let cx = &office.cx;
    let made = async |name: &str| -> PersistentVolume {
        let body = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": name, "finalizers": [cx.rules.finalizer] },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                "csi": { "driver": cx.rules.driver, "volumeHandle": name } },
        });
        office.api.create(&ObjectName::cluster(name), &body).await.unwrap()
    };
    let reads = async |volume: &PersistentVolume| {
        let count = || office.testbed.api.audit().count("get", "persistentvolumes");
        let (before, now) = (count(), Objects { volume: Some(Arc::new(volume.clone())), ..office.seen("u1") });
        let looks_again = confirm_volume(cx, &now).await.unwrap();
        assert_eq!(looks_again.is_some(), count() > before, "what was read is looked at");
        count() - before
    };
    let (unknown, old) = (made("unknown").await, made("old").await);
    assert_eq!(reads(&unknown).await, 1, "nobody knows yet when the term began");
    assert_eq!(reads(&unknown).await, 0, "once a term");
    cx.term_start.at(office.api.latest_version::<PersistentVolume>().await.unwrap().unwrap());
    assert_eq!(reads(&old).await, 1, "it is older than the term: somebody else may have let go of it");
    let new = made("new").await;
    assert_eq!(reads(&new).await, 0, "made during the term");
    let label = json!({ "metadata": { "labels": { "touched": "yes" } } });
    cx.confirmed.retain(|_| false);
    let touched: PersistentVolume = office.api.patch(&ObjectName::of(&old), &patch::Patch::Merge(label)).await.unwrap();
    assert_eq!(reads(&touched).await, 0, "written during the term");
    assert_eq!(reads(&old).await, 1, "the same volume as a late watch shows it");
    office.testbed.tear_down().await;
}

#[tokio::test(start_paused = true)]
async fn an_error_is_written_to_no_attachment_that_has_changed_since_it_was_seen_unless_the_api_has_confirmed_it() {
    let office = Office::of_permanent_term().await;
    let cx = &office.cx;
    let name = ObjectName::cluster("csi-1");
    let body = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "csi-1" },
        "spec": office.spec() });
    let object: VolumeAttachment = office.api.create(&name, &body).await.unwrap();
    let attachment = Attachment::parse(&object, &cx.rules.finalizer);
    let seen = Objects { attachment, object: Arc::new(object), volume: None, node: None, others: Vec::new() };
    record_attached(cx, &seen, &BTreeMap::new()).await.unwrap();
    let error = json!({ "attachError": { "message": "CSINode not found" } });
    let message = async || {
        let now: VolumeAttachment = office.api.get(&name).await.unwrap();
        now.status.attach_error.and_then(|error| error.message)
    };
    let refused = record_error(cx, &seen, &error).await;
    assert!(
        matches!(&refused, Err(Stop::Failed(error)) if error.is_of(WRITE_ERROR) && error.is_stale()),
        "{refused:?}"
    );
    assert_eq!(message().await, None, "it is attached, and says so");
    cx.confirmed.note(&seen.attachment.uid);
    record_error(cx, &seen, &error).await.unwrap();
    assert_eq!(message().await.as_deref(), Some("CSINode not found"), "within a term nobody else records anything");
    office.testbed.tear_down().await;
}

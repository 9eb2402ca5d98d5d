//! A subscriber that panics ends the term of its role in an error, whichever loop of the role it feeds; and triggers are told of all that is
//! there before the role's tasks begin.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::{Value, json};

use crate::cluster::{Cached, CsiNode, CsiStorageCapacity, PersistentVolumeClaim, VolumeAttachment};
use crate::election::Term;
use crate::roles::kit::{Controllers, TermScope};
use crate::roles::{Registration, RoleError, Wiring, attacher, provisioner};
use crate::sandbox::driver::{Pool, Profile};
use crate::sandbox::testbed::harness::RoleHarness;

/// Longer than a role needs to begin its term or to end it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a term ends when the subscribers to a kind panic at a new object. The term serves once the board shows `table`.
async fn breaks_at<K: Cached>(registration: &Registration, section: &Value, table: &str, object: Value) -> String {
    let harness = RoleHarness::with(Profile::default().in_pools([Pool::at([("zone", "a")], 1 << 40)])).await;
    let mut wiring = Wiring::new(&harness.caches);
    let role = (registration.cluster().unwrap().load)(section, &mut wiring).unwrap();
    let _wired = wiring.into_wired();
    let cache = harness.caches.want::<K>();
    harness.watch();
    let cx = &harness.context;
    let breaks = async {
        while !cx.board.report().queues.iter().any(|queue| queue.title == table) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cache.break_subscribers("broken by a test");
        harness.testbed.api.create_value(object).unwrap();
        std::future::pending::<()>().await;
    };
    let served = async {
        tokio::select! {
            result = role.serve(cx, Term::unattended(cx.clock, 100 * PATIENCE)) => result,
            () = breaks => Ok(()),
        }
    };
    let error = tokio::time::timeout(PATIENCE, served).await.expect("the term goes on").unwrap_err();
    assert!(matches!(error, RoleError::SubscriberPanicked(_)), "{error:?}");
    assert!(cx.board.report().queues.is_empty(), "what the term showed has gone with it");
    harness.testbed.tear_down().await;
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_of_the_attacher_that_panics_fails_its_term() {
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "a" },
        "spec": { "attacher": "other", "nodeName": "n", "source": { "persistentVolumeName": "pv" } } });
    let title = "Volumes to attach and detach";
    let error = breaks_at::<VolumeAttachment>(&attacher::REGISTRATION, &json!({}), title, object).await;
    assert_eq!(error, "the subscriber to VolumeAttachment panicked: broken by a test");
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_of_the_provisioner_that_panics_fails_its_term() {
    let object = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "namespace": "default", "name": "claim" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    let title = "Claims in progress";
    let error = breaks_at::<PersistentVolumeClaim>(&provisioner::REGISTRATION, &json!({}), title, object).await;
    assert_eq!(error, "the subscriber to PersistentVolumeClaim panicked: broken by a test");
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_of_the_capacity_loop_that_panics_fails_the_provisioners_term() {
    let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": { "namespace": "kube-system", "name": "other" }, "storageClassName": "gold" });
    let section = json!({ "topology": true, "capacity": { "enabled": true, "ownerLevel": -1 } });
    let title = "Capacity to ask for";
    let error = breaks_at::<CsiStorageCapacity>(&provisioner::REGISTRATION, &section, title, object).await;
    assert_eq!(error, "the subscriber to CSIStorageCapacity panicked: broken by a test");
}

#[tokio::test(start_paused = true)]
async fn triggers_are_told_of_thousands_of_objects_in_portions_one_trigger_after_the_other_and_tasks_begin_then() {
    const COUNT: usize = 600;
    let harness = RoleHarness::with(Profile::default()).await;
    let (attachments, nodes) = (harness.caches.want::<VolumeAttachment>(), harness.caches.want::<CsiNode>());
    let api = &harness.testbed.api;
    for number in 0..COUNT {
        api.create_value(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": format!("a{number}") },
            "spec": { "attacher": "other", "nodeName": "n", "source": { "persistentVolumeName": "pv" } } }))
            .unwrap();
    }
    let node = |name: &str| {
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": name },
        "spec": { "drivers": null } })
    };
    api.create_value(node("n1")).unwrap();
    harness.watch();
    attachments.synced().await;
    nodes.synced().await;
    let (cx, told) = (&harness.context, Arc::new(Mutex::new(Vec::new())));
    let tell = |what: &'static str| {
        let told = Arc::clone(&told);
        move || told.lock().unwrap().push(what)
    };
    let scope = Arc::new(TermScope::new(cx, &Term::unattended(cx.clock, PATIENCE)));
    let mut controllers = Controllers::new("test", &cx.board, &scope);
    let (of_attachment, of_node, task) = (tell("attachment"), tell("node"), tell("task"));
    controllers.on(&attachments, move |_| of_attachment());
    controllers.on(&nodes, move |_| of_node());
    // As a queue, which has work until the term ends.
    controllers.also(pending());
    controllers.task("task", async move {
        task();
        pending::<()>().await;
    });
    let mut served = Box::pin(controllers.serve());
    assert!(served.as_mut().now_or_never().is_none());
    assert!((1..=COUNT / 2).contains(&told.lock().unwrap().len()), "others have their turn");
    // A change of what no trigger has been told of yet.
    api.create_value(node("n2")).unwrap();
    while nodes.len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let begun = async {
        while told.lock().unwrap().last() != Some(&"task") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        _ = served => panic!("the term goes on"),
        () = begun => {}
    }
    let expected = [vec!["attachment"; COUNT], vec!["node"; 2], vec!["task"]].concat();
    assert_eq!(*told.lock().unwrap(), expected);
    harness.testbed.tear_down().await;
}

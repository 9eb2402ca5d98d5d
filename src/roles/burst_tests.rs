//! A burst of one role's requests, and the work of another meanwhile: the real attacher on an API that takes its time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::attacher;
use crate::cluster::{ObjectName, PersistentVolume};
use crate::roles::kit::served::Served;
use crate::sandbox::api::faults::{Action, Fault, Matching};
use crate::sandbox::driver::Profile;

/// How long the API takes for each request.
const LATENCY: Duration = Duration::from_millis(100);
/// What the other role writes at once: a volume for each of so many claims.
const WRITES: usize = 5000;
/// How many volumes are attached meanwhile, and how soon after each other. All of them during the burst, which takes 5000 / 128
/// times as long as one request at least.
const ATTACHES: usize = 60;
const PAUSE: Duration = Duration::from_millis(50);
/// Longer than all of it.
const PATIENCE: Duration = Duration::from_secs(600);

fn volume(name: &str, driver: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "csi": { "driver": driver, "volumeHandle": name } } })
}

/// How long all but the slowest of a hundred volumes take to be attached.
async fn attach_p99(beside_a_burst: bool) -> Duration {
    let profile = Profile { accept_unknown_volumes: true, ..Profile::with_nodes(["node"]) };
    let mut served = Served::new(&attacher::REGISTRATION, &json!({}), profile).await;
    let driver = served.context.driver.name.clone();
    let other = served.context.api.share("provisioner");
    served.context.api = served.context.api.share("attacher");
    let api = served.testbed.api.clone();
    api.create_value(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": "node" },
        "spec": { "drivers": [{ "name": driver, "nodeID": "node", "topologyKeys": [] }] } }))
        .unwrap();
    for number in 0..ATTACHES {
        api.create_value(volume(&format!("attached-{number}"), &driver)).unwrap();
    }
    for verb in ["get", "create", "patch"] {
        api.faults().add(Fault::on(Matching::any().verb(verb), Action::DelayBefore(LATENCY)));
    }
    let ends: Arc<Mutex<BTreeMap<String, Instant>>> = Arc::default();
    let noted = Arc::clone(&ends);
    api.on_commit(move |committed| {
        let is_attached = |object: &&Value| object.pointer("/status/attached") == Some(&Value::Bool(true));
        if let Some(name) = committed.new.filter(is_attached).and_then(|it| it.pointer("/metadata/name")?.as_str()) {
            noted.lock().unwrap().entry(name.to_owned()).or_insert_with(Instant::now);
        }
    });
    served.lead();
    // The attacher has begun its term.
    sleep(10 * LATENCY).await;

    let burst = async {
        let writes: FuturesUnordered<_> = (0..if beside_a_burst { WRITES } else { 0 })
            .map(|number| {
                let (other, name, driver) = (other.clone(), format!("made-{number}"), &driver);
                async move {
                    let object = volume(&name, driver);
                    other.create::<PersistentVolume>(&ObjectName::cluster(&*name), &object).await.unwrap();
                }
            })
            .collect();
        writes.collect::<()>().await;
        Instant::now()
    };
    let attaches = async {
        let mut begun = Vec::new();
        for number in 0..ATTACHES {
            let name = format!("va-{number}");
            begun.push((name.clone(), Instant::now()));
            api.create_value(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
                "metadata": { "name": name }, "spec": { "attacher": driver, "nodeName": "node",
                    "source": { "persistentVolumeName": format!("attached-{number}") } } }))
                .unwrap();
            sleep(PAUSE).await;
        }
        while ends.lock().unwrap().len() < ATTACHES {
            sleep(PAUSE).await;
        }
        let ends = ends.lock().unwrap();
        let mut took: Vec<Duration> = begun.iter().map(|(name, begun)| ends[name] - *begun).collect();
        took.sort();
        (took[ATTACHES * 99 / 100], *ends.values().max().unwrap())
    };
    let both = timeout(PATIENCE, futures::future::join(burst, attaches)).await;
    let (burst_end, (p99, last_attach)) = both.expect("an end");
    assert!(!beside_a_burst || last_attach < burst_end, "the attaches were not beside the burst");
    served.testbed.tear_down().await;
    p99
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_five_thousand_writes_of_one_role_at_most_doubles_the_time_of_anothers_attaches() {
    let alone = attach_p99(false).await;
    let beside = attach_p99(true).await;
    assert!(alone >= 2 * LATENCY, "an attach is two requests one after the other at least: {alone:?}");
    assert!(beside <= 2 * alone, "{beside:?} beside the burst, {alone:?} alone");
}

//! 5 000 volumes to attach, and a thousand claims, in progress at a real daemon, whose driver answers none of them.

use csi_control_plane::process::{Clock, Rng};
use csi_control_plane::sandbox::driver::{Action, Fault, Method, Profile};
use csi_control_plane::sandbox::testbed::{TestBed, Transport};
use serde_json::{Value, json};

use crate::page::browser::{Browser, DESK, PHONE};

const VOLUMES: usize = 5000;
const CLAIMS: usize = 1000;

/// As small as a page that a telephone draws at once.
const MOST_BYTES: f64 = 500_000.0;
const MOST_ELEMENTS: f64 = 12_000.0;
/// The browser's own time for one look at the page, in seconds. A bound of last resort, for any machine: what keeps a page quick is
/// above.
const MOST_WORK: f64 = 15.0;
/// Between two pictures while somebody scrolls, in milliseconds; as above. Two cores with seven times their work took 101.
const LONGEST_PAUSE: f64 = 2000.0;

const CONFIGURATION: &str = "
csi: { endpoint: \"unix:///not/used\", timeout: 300s }
leaderElection: { leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 2s }
roles: { attacher: , provisioner: }
";

/// Scrolls from the top to the bottom, a screen a picture, and tells the longest pause between two pictures in milliseconds.
const SCROLL: &str = r"new Promise((done) => {
  let [last, longest] = [performance.now(), 0];
  const step = () => {
    const now = performance.now();
    [longest, last] = [Math.max(longest, now - last), now];
    const before = scrollY;
    scrollBy(0, innerHeight);
    if (scrollY === before) done(longest); else requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})";

fn volume(testbed: &TestBed, driver: &str, number: usize) {
    let name = format!("pv-{number:04}");
    let put = |object: Value| testbed.api.create_value(object).unwrap();
    put(json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": driver, "volumeHandle": name}}}));
    put(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": format!("csi-{number:064}")},
        "spec": {"attacher": driver, "nodeName": "node-1", "source": {"persistentVolumeName": name}}}),
    );
}

fn claim(testbed: &TestBed, driver: &str, number: usize) {
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("claim-{number:04}"), "namespace": "default", "annotations":
            {"volume.kubernetes.io/storage-provisioner": driver, "volume.beta.kubernetes.io/storage-provisioner": driver}},
        "spec": {"storageClassName": "gold", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    testbed.api.create_value(claim).unwrap();
}

/// The browser's counters, by name.
async fn figure(browser: &mut Browser, name: &str) -> f64 {
    let told = browser.call("Performance.getMetrics", json!({})).await;
    let found = told["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == name).cloned();
    found.unwrap()["value"].as_f64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_in_progress_do_not_stall_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let profile = Profile { accept_unknown_volumes: true, ..Profile::with_nodes(["id-1"]) };
    let driver = profile.name.clone();
    let ground = Transport::Sockets { folder: folder.path().to_owned() };
    let testbed = TestBed::set_up(ground, profile, Clock::system(), Rng::system()).await.unwrap();
    for method in [Method::ControllerPublishVolume, Method::CreateVolume] {
        testbed.driver.inject(Fault::on(method, Action::Hang));
    }
    let put = |object: Value| testbed.api.create_value(object).unwrap();
    put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}));
    put(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "node-1"},
        "spec": {"drivers": [{"name": driver, "nodeID": "id-1", "topologyKeys": []}]}}));
    put(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "gold"}, "provisioner": driver}),
    );
    (0..VOLUMES).for_each(|number| volume(&testbed, &driver, number));
    (0..CLAIMS).for_each(|number| claim(&testbed, &driver, number));

    let daemon = testbed.start("daemon", CONFIGURATION).await.unwrap();
    let url = format!("http://{}/", daemon.diagnostics.unwrap());
    let mut browser = Browser::start().await;
    browser.look_on(DESK, "light").await;
    browser.open(&url).await;
    let total = format!(
        "document.body.innerText.includes('the 100 most urgent of {VOLUMES}') && document.body.innerText.includes('the 100 most urgent of {CLAIMS}')"
    );
    browser.until("all are in progress", &total).await;

    for screen in [DESK, PHONE] {
        // Its figures begin with it.
        let mut browser = Browser::start().await;
        browser.look_on(screen, "light").await;
        browser.open(&url).await;
        let timing = browser.tell("performance.getEntriesByType('navigation')[0].toJSON()").await;
        let work = figure(&mut browser, "TaskDuration").await;
        let elements = browser.tell("document.getElementsByTagName('*').length").await.as_f64().unwrap();
        let bytes = timing["decodedBodySize"].as_f64().unwrap();
        let pause = browser.tell(SCROLL).await.as_f64().unwrap();
        println!(
            "{} wide: {bytes} bytes, {elements} elements, answered in {:.0} ms, loaded in {:.0} ms, {work:.3} s of work, \
             longest pause while scrolling {pause:.0} ms",
            screen.width,
            timing["responseEnd"].as_f64().unwrap() - timing["requestStart"].as_f64().unwrap(),
            timing["loadEventEnd"].as_f64().unwrap(),
        );
        assert!(bytes < MOST_BYTES && elements < MOST_ELEMENTS && work < MOST_WORK && pause < LONGEST_PAUSE);
    }

    // One of them that is not on the page.
    browser.open(&format!("{url}?find=claim-0777")).await;
    let text = browser.tell("document.getElementById('parts').innerText").await;
    let text = text.as_str().unwrap();
    assert!(text.contains("default/claim-0777") && text.contains(&format!("1 found among {CLAIMS}")), "{text}");
    assert_eq!(browser.complaints(&url), Vec::<String>::new());
    daemon.kill();
    testbed.tear_down().await;
}

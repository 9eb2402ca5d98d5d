//! The way from the Lease to the status page of its holder, over a server that has what a kube-apiserver would.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::{Value, json};

use super::*;
use crate::process::error_chain;

const DRIVER: &str = "demo.csi.example.com";
const POD: &str = "/api/v1/namespaces/storage/pods/driver-0";
const IDENTITY: &str = "driver-0_0b5c0f9e_daemon_1b2c";

fn lease(holder: &str) -> Value {
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": orphans_lease(DRIVER) },
        "spec": { "holderIdentity": holder } })
}

fn pod(ports: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "driver-0" },
        "spec": { "containers": [{ "name": "driver" }, { "name": "daemon", "ports": ports }] } })
}

/// A page with one orphan of two.
fn page() -> Value {
    json!({
        "roles": [
            { "name": "other", "facts": [{ "name": "orphaned volumes", "value": "of another" }] },
            { "name": "reconciler", "facts": [
                { "name": "last pass", "value": "now" }, { "name": "orphaned volumes", "value": "2 of 9" },
            ] },
        ],
        "tables": [
            { "role": "other", "name": "journal", "title": "t", "columns": [], "rows": [], "rowsTotal": 0 },
            { "role": "reconciler", "name": "orphans", "title": "t", "rowsTotal": 2,
                "columns": [
                    { "name": "handle", "title": "handle", "type": "text" },
                    { "name": "capacityBytes", "title": "size", "type": "bytes" },
                    { "name": "ageSeconds", "title": "age", "type": "seconds" },
                ],
                "rows": [{ "handle": "vol-1", "capacityBytes": 1_073_741_824, "ageSeconds": 3600.0 }] },
        ],
    })
}

/// Asks a server that has these answers.
async fn asked(answers: Vec<(String, Value)>) -> Result<OrphansReport, String> {
    let mut server = Router::new();
    for (path, answer) in answers {
        server = server.route(&path, get(move || async move { answer.to_string() }));
    }
    let status =
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound" });
    let server = server.fallback(move || async move { (StatusCode::NOT_FOUND, status.to_string()) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("config");
    let text = format!(
        "{{ current-context: c, users: [{{ name: u, user: {{ token: t }} }}], clusters: [{{ name: k, cluster: {{ server: \
         'http://{address}' }} }}], contexts: [{{ name: c, context: {{ cluster: k, user: u }} }}] }}"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let access = ClusterAccess::Kubeconfig(kubeconfig);
    tokio::select! {
        ended = axum::serve(listener, server) => panic!("{ended:?}"),
        report = orphans(&access, Proxies::default(), DRIVER, "storage") => report.map_err(|error| error_chain(&error)),
    }
}

fn path_of_lease() -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/storage/leases/{}", orphans_lease(DRIVER))
}

#[tokio::test]
async fn the_leaders_page_is_read_at_the_port_that_its_pod_names() {
    for (ports, port) in [
        (json!([{ "containerPort": 1 }, { "name": "diagnostics", "containerPort": 9000 }]), 9000),
        (json!([{ "name": "other", "containerPort": 1 }]), 8080),
    ] {
        let page = (format!("{POD}:{port}/proxy/status.json"), page());
        let report =
            asked(vec![(path_of_lease(), lease(IDENTITY)), (POD.to_owned(), pod(&ports)), page]).await.unwrap();
        let expected = "HANDLE  SIZE  AGE\nvol-1   1Gi   1h0m\nThe first 1 of 2.\n\norphaned volumes: 2 of 9\n";
        assert_eq!((report.pod.as_str(), report.to_string().as_str()), ("driver-0", expected));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["orphans"]["rowsTotal"], &json["facts"][0]["value"]), (&json!(2), &json!("2 of 9")));
    }
}

#[tokio::test]
async fn without_orphans_only_the_lines_are_printed() {
    let mut page = page();
    page["tables"][1]["rows"] = json!([]);
    page["tables"][1]["rowsTotal"] = json!(0);
    let answers = vec![
        (path_of_lease(), lease(IDENTITY)),
        (POD.to_owned(), pod(&json!([]))),
        (format!("{POD}:8080/proxy/status.json"), page),
    ];
    assert_eq!(asked(answers).await.unwrap().to_string(), "orphaned volumes: 2 of 9\n");
}

#[tokio::test]
async fn each_obstacle_on_the_way_is_named() {
    let at = |path: &str, answer: Value| (path.to_owned(), answer);
    let held = || at(&path_of_lease(), lease(IDENTITY));
    let there = || at(POD, pod(&json!([])));
    let shown = |page: Value| at(&format!("{POD}:8080/proxy/status.json"), page);
    for (answers, begins) in [
        (vec![], "there is no Lease \"external-attacher-leader-demo-csi-example-com\" in namespace \"storage\": give"),
        (
            vec![at(&path_of_lease(), lease(""))],
            "nothing leads: Lease \"external-attacher-leader-demo-csi-example-com\"",
        ),
        (
            vec![held()],
            "the holder of Lease \"external-attacher-leader-demo-csi-example-com\", \"driver-0_0b5c0f9e_daemon_1b2c\", is no pod",
        ),
        (
            vec![held(), there()],
            "cannot read the status page of pod \"driver-0\" at port 8080 through the API server: ",
        ),
        (vec![held(), there(), shown(json!({}))], "pod \"driver-0\" has no status page of this program: missing field"),
        (
            vec![held(), there(), shown(json!({ "roles": [], "tables": [] }))],
            "the daemon in pod \"driver-0\" does not look for orphans, or does not serve yet: set roles.reconciler.orphans: true",
        ),
    ] {
        let told = asked(answers).await.unwrap_err();
        assert!(told.starts_with(begins), "{told}");
    }
    let broken = vec![at(&path_of_lease(), json!("no Lease"))];
    let told = asked(broken).await.unwrap_err();
    assert!(
        told.starts_with("cannot read Lease \"external-attacher-leader-demo-csi-example-com\" in namespace"),
        "{told}"
    );
}

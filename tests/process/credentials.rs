//! Credentials: where the daemon finds them, and what they do not say.

use csi_control_plane::sandbox::api::{Identity, kubeconfig};
use csi_control_plane::sandbox::testbed::TestBed;

use super::program::role;
use super::theatre::Theatre;

#[tokio::test]
async fn the_leases_are_in_the_pods_namespace_or_in_default_and_never_in_that_of_the_kubeconfigs_context() {
    let theatre = Theatre::open().await;
    let mut file = kubeconfig::render(&theatre.testbed.url().unwrap(), Some(&TestBed::token("daemon").into()));
    file["contexts"][0]["context"]["namespace"] = "kube-system".into();
    let path = theatre.file("of-kube-system.kubeconfig", &file.to_string());
    for explicit in [true, false] {
        // As on a machine that is no pod. NAMESPACE is where csi-provisioner has its capacity objects, and no Lease.
        let variables = [("POD_NAMESPACE", ""), ("NAMESPACE", "kube-system"), ("KUBECONFIG", path.as_str())];
        let daemon = theatre.daemon_under("daemon", &variables, |config| {
            config["kubernetes"]["kubeconfig"] = if explicit { path.as_str().into() } else { serde_json::Value::Null };
        });
        let status = daemon.is("serving").await;
        let lease = role(&status, "attacher")["lease"].as_str().unwrap();
        assert!(lease.starts_with("default/"), "{lease}");
    }
}

#[tokio::test]
async fn a_renewed_kubeconfig_is_used_by_the_same_process_in_the_same_term() {
    let theatre = Theatre::open().await;
    let written = |token: &str| kubeconfig::render(&theatre.testbed.url().unwrap(), Some(&token.into())).to_string();
    theatre.testbed.api.admit("one", Identity::admin("daemon"));
    let path = theatre.file("renewed.kubeconfig", &written("one"));
    let daemon = theatre.daemon_with("daemon", |config| config["kubernetes"]["kubeconfig"] = path.as_str().into());
    let before = daemon.is("serving").await;

    // Half of the new file, while the old token holds.
    let whole = written("two");
    theatre.file("renewed.kubeconfig", &whole[..whole.len() / 2]);
    let warned =
        daemon.logged("cannot use the new credentials for the Kubernetes API: the last ones stay in use").await;
    assert_eq!(warned["files"], path, "{warned}");
    assert!(warned["error"].as_str().unwrap().starts_with("cannot use the kubeconfig"), "{warned}");
    assert_eq!(daemon.get("/livez").await.code, 200);
    let status = daemon.is("serving").await;
    assert!(
        status["warnings"][0].as_str().unwrap().contains("changed, but the credentials cannot be used"),
        "{status}"
    );

    // The whole one, and the old token is worth nothing any more.
    theatre.file("renewed.kubeconfig", &whole);
    theatre.testbed.api.admit("two", Identity::admin("daemon"));
    theatre.testbed.api.expel("one");
    daemon.logged("the credentials for the Kubernetes API were renewed: its connections are made anew").await;
    let after = daemon.shows("no warning", |status| status["warnings"].as_array().is_some_and(Vec::is_empty)).await;
    for field in ["state", "leader", "term", "restarts"] {
        assert_eq!(role(&after, "attacher")[field], role(&before, "attacher")[field], "{field}");
    }
    let log = daemon.stderr();
    assert!(!log.contains("\"two\"") && log.matches("cannot use the new credentials").count() == 1, "{log}");
}

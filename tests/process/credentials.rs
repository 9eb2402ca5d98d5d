//! Credentials: where the daemon finds them, and what they do not say.

use csi_control_plane::sandbox::api::kubeconfig;
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

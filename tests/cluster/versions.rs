//! The programs have the versions in `go.mod`, Kubernetes of two minor versions in a row, as the documents say.

use std::path::Path;
use std::process::Command;

use crate::programs::find;

fn read(file: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The version of a module that a part of the programs is built from.
fn version(part: &str, module: &str) -> String {
    let text = read(&format!("tests/cluster/go/{part}/go.mod"));
    let mut words = text.lines().map(|line| line.trim_start_matches("require ").split_whitespace().collect::<Vec<_>>());
    let line = words.find(|words| words.len() > 1 && words[0] == module).unwrap();
    line[1].to_owned()
}

/// What a sidecar says of itself.
fn told(program: &str) -> String {
    let done = Command::new(find(program)).arg("--version").output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().split_whitespace().last().unwrap().to_owned()
}

#[tokio::test]
async fn what_runs_is_what_is_built_and_what_the_documents_name() {
    let kubernetes = version("kubernetes", "k8s.io/kubernetes");
    let last = version("kubernetes-last", "k8s.io/kubernetes");
    let minor = |release: &str| release.split('.').nth(1).unwrap().parse::<u32>().unwrap();
    assert_eq!(minor(&last) + 1, minor(&kubernetes), "{last} is not of the minor version before {kubernetes}");
    assert_eq!(version("mockdriver", "k8s.io/kubernetes"), kubernetes, "of the same release");
    let parts =
        [("kubernetes", &kubernetes), ("kubelet", &kubernetes), ("e2e", &kubernetes), ("kubernetes-last", &last)];
    for (part, release) in parts {
        assert_eq!(&version(part, "k8s.io/kubernetes"), release, "{part}: of the same release");
        let staging = release.replacen("v1.", "v0.", 1);
        let text = read(&format!("tests/cluster/go/{part}/go.mod"));
        for line in text.lines().filter(|line| line.contains("=>")) {
            assert!(line.ends_with(&format!(" {staging}")), "not of {release}: {line}");
        }
    }

    let attacher = version("peers", "github.com/kubernetes-csi/external-attacher/v4");
    let sanity = version("peers", "github.com/kubernetes-csi/csi-test/v5");
    let provisioner = version("provisioner", "github.com/kubernetes-csi/external-provisioner/v6");
    assert_eq!([told("csi-attacher"), told("csi-provisioner")], [attacher.clone(), provisioner.clone()]);
    let resizer = version("resizer", "github.com/kubernetes-csi/external-resizer/v2");
    let snapshotter = version("snapshotter", "github.com/kubernetes-csi/external-snapshotter/v8");
    assert_eq!([told("csi-resizer"), told("csi-snapshotter")], [resizer.clone(), snapshotter.clone()]);
    // A user's own server may have any version.
    if find("kube-apiserver").parent() == find("kube-scheduler").parent() {
        let server = crate::shared::api().await.client().await.apiserver_version().await.unwrap();
        assert!([&kubernetes, &last].contains(&&server.git_version), "{}", server.git_version);
    }

    let names =
        |document: &str, what: &str| assert!(read(document).contains(what), "{document} does not tell {what:?}");
    let document = "docs/compatibility.md";
    names(document, &format!("kube-apiserver, kube-controller-manager and kube-scheduler {kubernetes} "));
    names(document, &format!("the same tests of the daemon on {last} "));
    names(document, &format!("with kubelet {kubernetes}, containerd "));
    names(document, &format!("| csi-attacher | {attacher} |"));
    names(document, &format!("| csi-provisioner | {provisioner} |"));
    names(document, &format!("| csi-resizer | {resizer} |"));
    names(document, &format!("| csi-snapshotter | {snapshotter} |"));
    names(document, &format!("| snapshot-controller | {snapshotter} |"));
    names(document, &format!("csi-sanity {sanity} "));
}

//! The running sandbox with the real `kubectl`, including its discovery, schema, table and watch requests. `just
//! kubectl`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// For anything that is waited for. Reached only by a test that fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where `kubectl diff` finds what compares.
const SEARCH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A sandbox that keeps running, and a user's terminal.
struct Sandbox {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    kubeconfig: PathBuf,
    page: String,
    home: TempDir,
}

/// kubectl, where `build.sh` put it.
fn kubectl() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the suite's own input")]
    let path = std::env::var_os("CLUSTER_PROGRAMS")
        .expect("CLUSTER_PROGRAMS is what tests/cluster/build.sh prints: run `just kubectl`");
    let found = std::env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|file| file.is_file());
    found.expect("kubectl is nowhere in CLUSTER_PROGRAMS")
}

impl Sandbox {
    async fn keep() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_csi-control-plane"));
        command.args(["sandbox", "--keep"]).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut kubeconfig, mut page) = (PathBuf::new(), String::new());
        loop {
            let line =
                timeout(PATIENCE, lines.next_line()).await.expect("a story").unwrap().expect("more of the story");
            if let Some(path) = line.strip_prefix("kubeconfig ") {
                kubeconfig = path.trim().into();
            }
            if let Some(url) = line.strip_prefix("status page ") {
                url.trim().clone_into(&mut page);
            }
            if line.contains("Ctrl-C stops it") {
                return Self { child, lines, kubeconfig, page, home: tempfile::tempdir().unwrap() };
            }
        }
    }

    /// What the sandbox offers to try.
    fn manifest(&self) -> String {
        self.kubeconfig.with_file_name("try.yaml").to_str().unwrap().to_owned()
    }

    /// Runs kubectl, which must succeed and warn of nothing.
    async fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(kubectl());
        command.args(arguments).env_clear().env("HOME", self.home.path()).env("PATH", SEARCH);
        command.env("KUBECONFIG", &self.kubeconfig);
        let output = timeout(PATIENCE, command.kill_on_drop(true).output()).await.expect("an end").unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (code, out, err) = (output.status.code(), text(output.stdout), text(output.stderr));
        assert_eq!((code, err.as_str()), (Some(0), ""), "kubectl {}\n{out}", arguments.join(" "));
        out
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.kubectl(&[arguments, &["-o", "json"]].concat()).await).unwrap()
    }

    /// Ctrl-C, and what the sandbox says at its end.
    async fn stop(mut self) -> String {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().await.unwrap().success());
        let mut rest = String::new();
        while let Some(line) = timeout(PATIENCE, self.lines.next_line()).await.expect("an end").unwrap() {
            rest.push_str(&line);
            rest.push('\n');
        }
        assert!(timeout(PATIENCE, self.child.wait()).await.expect("an end").unwrap().success(), "{rest}");
        rest
    }
}

/// Asserts that each text is there.
fn says(told: &str, texts: &[&str]) {
    for text in texts {
        assert!(told.contains(text), "{text:?} in\n{told}");
    }
}

#[tokio::test]
async fn a_class_and_a_claim_that_are_applied_are_bound_and_go_again() {
    let sandbox = Sandbox::keep().await;
    let file = sandbox.manifest();
    assert!(Path::new(&file).is_file());

    // A dry run changes nothing; the server checks the schema.
    let tried = sandbox.kubectl(&["apply", "--dry-run=server", "--validate=strict", "-f", &file]).await;
    says(&tried, &["storageclass.storage.k8s.io/try-at-once created (server dry run)"]);
    let applied = sandbox.kubectl(&["apply", "-f", &file]).await;
    says(&applied, &["persistentvolumeclaim/try-on-first-use created", "pod/try created"]);
    assert!(!sandbox.kubectl(&["apply", "-f", &file]).await.contains("configured"), "applied again, nothing changes");
    assert_eq!(sandbox.kubectl(&["diff", "-f", &file]).await, "");

    let claims = ["pvc/try-at-once", "pvc/try-on-first-use"];
    let bound = [&["wait", "--for=jsonpath={.status.phase}=Bound", "--timeout=60s"][..], &claims].concat();
    says(&sandbox.kubectl(&bound).await, &["try-at-once condition met", "try-on-first-use condition met"]);

    // The claim of the pod is where the pod is, and attached there.
    let pod = sandbox.json(&["get", "pod", "try"]).await;
    let claim = sandbox.json(&["get", "pvc", "try-on-first-use"]).await;
    let node = pod["spec"]["nodeName"].as_str().unwrap();
    assert_eq!(claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], node);
    let volume = claim["spec"]["volumeName"].as_str().unwrap();
    let attachments = sandbox.json(&["get", "volumeattachments"]).await;
    let items = attachments["items"].as_array().unwrap().iter();
    let mine = items.into_iter().find(|it| it["spec"]["source"]["persistentVolumeName"] == volume).unwrap();
    assert_eq!(mine["spec"]["nodeName"], node);
    let name = format!("volumeattachment/{}", mine["metadata"]["name"].as_str().unwrap());
    sandbox.kubectl(&["wait", "--for=jsonpath={.status.attached}=true", "--timeout=60s", &name]).await;

    // Now the pod runs.
    sandbox.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "pod/try"]).await;
    let pods = sandbox.kubectl(&["get", "pods"]).await;
    for name in ["try ", "orders ", "invoices "] {
        let row = pods.lines().find(|row| row.starts_with(name)).unwrap_or_default();
        says(row, &["1/1", "Running"]);
    }

    // Tables and descriptions, as people read them.
    let table = sandbox.kubectl(&["get", "pvc,pv,sc", "-o", "wide"]).await;
    says(
        &table,
        &[
            "STORAGECLASS",
            "VOLUMEMODE",
            "persistentvolumeclaim/try-at-once",
            "Bound",
            "2Gi",
            "RWO",
            "WaitForFirstConsumer",
        ],
    );
    let told = sandbox.kubectl(&["describe", "pvc", "try-on-first-use"]).await;
    says(&told, &["Status:        Bound", "Used By:       try", volume, "Capacity:      2Gi"]);
    says(
        &sandbox.kubectl(&["describe", "pv", volume]).await,
        &["VolumeHandle:", "zone in [", "external-attacher/demo-csi-example-com"],
    );
    // The kinds that a cluster gets with the snapshot-controller, by their short names, with the columns of their definitions.
    let table = sandbox.kubectl(&["get", "vs,vgs"]).await;
    says(
        &table,
        &[
            "READYTOUSE",
            "SOURCEPVC",
            "SOURCESNAPSHOTCONTENT",
            "RESTORESIZE",
            "SNAPSHOTCLASS",
            "SNAPSHOTCONTENT",
            "CREATIONTIME",
            "volumesnapshot.snapshot.storage.k8s.io/snapshot-",
            "true",
            "VOLUMEGROUPSNAPSHOTCLASS",
            "VOLUMEGROUPSNAPSHOTCONTENT",
            "volumegroupsnapshot.groupsnapshot.storage.k8s.io/before-the-sale",
            "true",
            "groupsnapcontent-",
        ],
    );

    // What fails says why, where its user looks.
    let told = sandbox.kubectl(&["describe", "pvc", "reports"]).await;
    says(&told, &["Pending", "ProvisioningFailed", "credentials-that-nobody-made"]);

    // Deleted in the order of the file: the pod last, which lets its claim go.
    let gone = sandbox.kubectl(&["delete", "-f", &file, "--timeout=60s"]).await;
    says(&gone, &["persistentvolumeclaim \"try-on-first-use\" deleted", "pod \"try\" deleted"]);
    sandbox.kubectl(&["wait", "--for=delete", "--timeout=60s", &format!("pv/{volume}")]).await;
    let rest = sandbox.kubectl(&["get", "pvc,pv,volumeattachments", "-o", "name"]).await;
    assert!(!rest.contains("try") && !rest.contains(volume), "{rest}");
    assert!(sandbox.page.starts_with("http://127.0.0.1:"), "{}", sandbox.page);

    let end = sandbox.stop().await;
    says(&end, &["released its leases", "steps observed"]);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_in_the_words_of_a_real_server() {
    let sandbox = Sandbox::keep().await;
    let file = sandbox.home.path().join("claim.yaml");
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: odd}\nspec:\n  storageClassName: at-once\n  \
                 accessModes: [Sometimes]\n  resources: {requests: {storage: 1Gi}}\n";
    let apply = async |manifest: &str| {
        std::fs::write(&file, manifest).unwrap();
        let mut command = Command::new(kubectl());
        command.args(["apply", "-f"]).arg(&file).env_clear();
        command.env("HOME", sandbox.home.path()).env("KUBECONFIG", &sandbox.kubeconfig);
        let output = timeout(PATIENCE, command.kill_on_drop(true).output()).await.expect("an end").unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        told
    };
    says(
        &apply(claim).await,
        &["The PersistentVolumeClaim \"odd\" is invalid", "spec.accessModes: Unsupported value: \"Sometimes\""],
    );
    let misspelled = claim.replace("Sometimes", "ReadWriteOnce").replace("storageClassName", "storageClass");
    says(
        &apply(&misspelled).await,
        &["Error from server (BadRequest)", "strict decoding error: unknown field \"spec.storageClass\""],
    );
    sandbox.stop().await;
}

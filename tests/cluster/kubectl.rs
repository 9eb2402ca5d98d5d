//! The real kubectl, as the administrator of a control plane.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use crate::control_plane::ControlPlane;
use crate::programs::find;
use crate::world::bounded;

/// A user's terminal.
pub(crate) struct Kubectl<'a> {
    cluster: &'a ControlPlane,
    /// Where it keeps what it has learned of the server.
    home: &'a Path,
}

impl<'a> Kubectl<'a> {
    /// A terminal whose files are in this folder.
    pub(crate) fn new(cluster: &'a ControlPlane, home: &'a Path) -> Self {
        Self { cluster, home }
    }

    /// Runs it: its standard output, or its standard error if it fails.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(find("kubectl"));
        command.args(arguments).env_clear().env("HOME", self.home).current_dir(self.home).stdin(Stdio::null());
        command.env("KUBECONFIG", self.cluster.admin_kubeconfig()).kill_on_drop(true);
        let done = bounded("the end of kubectl", command.output()).await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if done.status.success() { Ok(text(done.stdout)) } else { Err(text(done.stderr)) }
    }

    /// Runs it, and it must succeed.
    pub(crate) async fn done(&self, arguments: &[&str]) -> String {
        self.run(arguments).await.unwrap_or_else(|told| panic!("kubectl {}: {told}", arguments.join(" ")))
    }

    /// Runs it, and it must be refused.
    pub(crate) async fn refused(&self, arguments: &[&str]) -> String {
        let done = self.run(arguments).await;
        done.expect_err(&format!("kubectl {} should be refused", arguments.join(" ")))
    }

    /// An object.
    pub(crate) async fn object(&self, kind: &str, namespace: &str, name: &str) -> Value {
        let told = self.done(&["get", kind, name, "--namespace", namespace, "--output", "json"]).await;
        serde_json::from_str(&told).unwrap()
    }
}

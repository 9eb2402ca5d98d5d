//! Programs that a kubeconfig names for credentials: run here, so that an error names them, and so that what they give is renewed.
//!
//! As kubectl, but never with a terminal. kube would run them once for each client, keep a certificate beyond its expiry, and
//! write what a failed program has printed, credentials included, into its error.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use kube::config::{AuthInfo, ExecConfig};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use crate::process::yaml;

/// How long a program may run. They ask a cloud's API or an identity provider, so it is as long as a request may take.
const LIMIT: Duration = Duration::from_secs(60);
/// How much of a failed program's words an error repeats.
const WORDS: usize = 300;

/// Why a program gave no credentials.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The kubeconfig names none.
    #[error("the kubeconfig's user has `exec` without a `command`: name the program")]
    NoCommand,
    /// It cannot be started.
    #[error("cannot run {program:?}, the program of the kubeconfig's user{}", told_hint(.hint.as_deref()))]
    Start {
        /// The program.
        program: String,
        /// The kubeconfig's `installHint`.
        hint: Option<String>,
        /// Why not.
        source: std::io::Error,
    },
    /// It ended with an error.
    #[error("{program:?}, the program of the kubeconfig's user, failed with {status}{}", words(.says))]
    Failed {
        /// The program.
        program: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The last that it has written to its standard error.
        says: String,
    },
    /// It did not end.
    #[error("{program:?}, the program of the kubeconfig's user, did not end within {LIMIT:?}")]
    Slow {
        /// The program.
        program: String,
    },
    /// What it printed is no `ExecCredential` with credentials.
    #[error("{program:?}, the program of the kubeconfig's user, gave no credentials: {reason}")]
    Answer {
        /// The program.
        program: String,
        /// What is missing. Never what was printed.
        reason: &'static str,
    },
}

fn told_hint(hint: Option<&str>) -> String {
    hint.map(|hint| format!(" (its installHint: {})", hint.trim())).unwrap_or_default()
}

fn words(says: &str) -> String {
    if says.is_empty() { String::new() } else { format!(": {says}") }
}

#[derive(Deserialize)]
struct Credential {
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

/// Puts the credentials of a program in the place of `exec`, and returns when they expire. A user with other credentials needs
/// no program.
pub(super) async fn complete(user: &mut AuthInfo) -> Result<Option<Timestamp>, ExecError> {
    let Some(exec) = user.exec.take() else { return Ok(None) };
    if user.token.is_some() || user.username.is_some() || user.auth_provider.is_some() {
        return Ok(None);
    }
    let program = exec.command.clone().filter(|command| !command.is_empty()).ok_or(ExecError::NoCommand)?;
    let printed = run(&program, &exec).await?;
    let status = parse(&printed).map_err(|reason| ExecError::Answer { program: program.clone(), reason })?;
    let expires = match &status.expiration_timestamp {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| ExecError::Answer {
            program,
            reason: "its `status.expirationTimestamp` is no time, such as 2026-01-31T00:00:00Z",
        })?),
    };
    user.token = status.token.map(SecretString::from);
    if let (Some(certificate), Some(key)) = (status.client_certificate_data, status.client_key_data) {
        (user.client_certificate, user.client_key) = (None, None);
        user.client_certificate_data = Some(STANDARD.encode(certificate));
        user.client_key_data = Some(STANDARD.encode(key).into());
    }
    Ok(expires)
}

async fn run(program: &str, exec: &ExecConfig) -> Result<Vec<u8>, ExecError> {
    let mut spec = json!({ "interactive": false });
    if exec.provide_cluster_info {
        spec["cluster"] = serde_json::to_value(&exec.cluster).unwrap_or_default();
    }
    let info = json!({ "kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec });
    let named = |entry: &std::collections::HashMap<String, String>| {
        Some((entry.get("name")?.clone(), entry.get("value")?.clone()))
    };
    let mut command = Command::new(program);
    command.args(exec.args.iter().flatten());
    command.envs(exec.env.iter().flatten().filter_map(named)).env("KUBERNETES_EXEC_INFO", info.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let program = program.to_owned();
    let output = match timeout(LIMIT, command.output()).await {
        Err(_) => return Err(ExecError::Slow { program }),
        Ok(Err(source)) => return Err(ExecError::Start { program, hint: exec.install_hint.clone(), source }),
        Ok(Ok(output)) => output,
    };
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let says = last.trim().chars().filter(|letter| !letter.is_control()).take(WORDS).collect();
    Err(ExecError::Failed { program, status: output.status, says })
}

/// kubectl takes JSON and YAML.
fn parse(printed: &[u8]) -> Result<Status, &'static str> {
    let yaml = || serde_yaml::from_value(yaml::read(std::str::from_utf8(printed).ok()?).ok()?).ok();
    let credential: Option<Credential> = serde_json::from_slice(printed).ok().or_else(yaml);
    let credential = credential.ok_or("what it has printed is no ExecCredential")?;
    let mut status = credential.status.ok_or("what it has printed has no `status`")?;
    status.token.take_if(|token| token.is_empty());
    match (&status.token, &status.client_certificate_data, &status.client_key_data) {
        (_, Some(_), None) | (_, None, Some(_)) => {
            Err("its `status` has one of `clientCertificateData` and `clientKeyData` without the other")
        }
        (None, None, None) => Err("its `status` has neither `token` nor `clientCertificateData`"),
        _ => Ok(status),
    }
}

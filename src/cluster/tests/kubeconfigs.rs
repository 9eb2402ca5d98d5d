//! Forms of kubeconfigs that kubectl takes: all of them reach the server.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::wire::{NAME, api_server, data, self_signed};
use crate::cluster::{ClientOptions, Clients, ClusterAccess, ConnectError};
use crate::process::error_chain;

/// A folder of kubeconfigs, and the server that they name.
struct Scene {
    folder: TempDir,
    server: SocketAddr,
    authority: String,
    heads: Receiver<String>,
}

impl Scene {
    fn new() -> Self {
        let (authority, config) = self_signed();
        let (server, heads) = api_server(config);
        Self { folder: tempfile::tempdir().unwrap(), server, authority, heads }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn program(&self, name: &str, script: &str) {
        super::wire::program(&self.write(name, ""), &format!("#!/bin/sh\n{script}"));
    }

    fn cluster(&self) -> Value {
        json!({ "server": format!("https://{}", self.server), "certificate-authority-data": data(&self.authority) })
    }

    /// What the server is told of who asks, or why it is not asked.
    async fn asked(&self, access: &ClusterAccess) -> Result<String, String> {
        let clients = Clients::connect(access, &ClientOptions::default()).await;
        let clients = clients.map_err(|error: ConnectError| error_chain(&error))?;
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        clients.work.request_text(request).await.map_err(|error| error_chain(&error))?;
        let head = self.heads.recv().unwrap();
        let of_user =
            head.lines().filter(|line| line.starts_with("authorization: ") || line.starts_with("impersonate-"));
        Ok(of_user.collect::<Vec<_>>().join("; ").replace("authorization: ", ""))
    }
}

fn kubeconfig(cluster: &Value, user: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c", "preferences": {},
        "users": [{ "name": "u", "user": user }], "clusters": [{ "name": "k", "cluster": cluster }],
        "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }] })
}

/// `$KUBECONFIG` as a shell would have it.
fn inferred(list: &str) -> ClusterAccess {
    ClusterAccess::inferred(&BTreeMap::from([("KUBECONFIG".to_owned(), list.to_owned())]))
}

fn list(paths: &[&Path]) -> String {
    std::env::join_paths(paths).unwrap().into_string().unwrap()
}

#[tokio::test]
async fn each_form_of_a_cluster_and_a_user_is_taken_as_kubectl_takes_it() {
    let scene = Scene::new();
    scene.write("sub/ca.crt", &scene.authority);
    scene.write("sub/token", "of-file\n");
    scene.write("sub/wrong", "no certificate");
    scene.program("sub/bin/plugin", r#"echo "{\"status\":{\"token\":\"$NAME-$1\"}}""#);
    scene.program(
        "sub/bin/yaml",
        "printf 'apiVersion: client.authentication.k8s.io/v1\\nkind: ExecCredential\\nstatus:\\n  token: of-yaml\\n'",
    );
    scene.program(
        "sub/bin/informed",
        r#"case "$KUBERNETES_EXEC_INFO" in *'"interactive":false'*) echo '{"status":{"token":"informed"}}';; esac"#,
    );
    scene.program(
        "sub/bin/cluster",
        r#"case "$KUBERNETES_EXEC_INFO" in *'"server":"https://'*) echo '{"status":{"token":"cluster"}}';; esac"#,
    );
    let exec = |command: &str, more: Value| {
        let mut exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": command });
        exec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        json!({ "exec": exec })
    };
    let (url, inline) = (format!("https://{}", scene.server), scene.cluster());
    let with = |more: Value| {
        let mut cluster = inline.clone();
        cluster.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        cluster
    };
    let token = json!({ "token": "t" });
    let cases: Vec<(&str, Value, Value, &str)> = vec![
        (
            "authority beside its file",
            json!({ "server": url, "certificate-authority": "ca.crt" }),
            token.clone(),
            "Bearer t",
        ),
        ("data before the file", with(json!({ "certificate-authority": "wrong" })), token.clone(), "Bearer t"),
        (
            "empty data, and a file",
            json!({ "server": url, "certificate-authority": "ca.crt", "certificate-authority-data": "" }),
            token.clone(),
            "Bearer t",
        ),
        ("an empty file, and data", with(json!({ "certificate-authority": "" })), token.clone(), "Bearer t"),
        ("another name", with(json!({ "tls-server-name": NAME })), token.clone(), "Bearer t"),
        ("an empty name and proxy", with(json!({ "tls-server-name": "", "proxy-url": "" })), token.clone(), "Bearer t"),
        ("no verification", json!({ "server": url, "insecure-skip-tls-verify": true }), token.clone(), "Bearer t"),
        ("no scheme", with(json!({ "server": scene.server.to_string() })), token.clone(), "Bearer t"),
        ("a token's file", inline.clone(), json!({ "tokenFile": "token" }), "Bearer of-file"),
        ("the file before the token", inline.clone(), json!({ "token": "t", "tokenFile": "token" }), "Bearer of-file"),
        ("the token without the file", inline.clone(), json!({ "token": "t", "tokenFile": "gone" }), "Bearer t"),
        ("an empty token, and a file", inline.clone(), json!({ "token": "", "tokenFile": "token" }), "Bearer of-file"),
        ("user and password", inline.clone(), json!({ "username": "a", "password": "b" }), "Basic YTpi"),
        ("no password", inline.clone(), json!({ "username": "a" }), "Basic YTo="),
        ("somebody else", inline.clone(), json!({ "token": "t", "as": "jane" }), "Bearer t; impersonate-user: jane"),
        ("nobody", inline.clone(), json!({}), ""),
        (
            "a program and its folder",
            inline.clone(),
            exec("bin/plugin", json!({ "args": ["x"], "env": [{ "name": "NAME", "value": "n" }] })),
            "Bearer n-x",
        ),
        (
            "a program that prints YAML",
            inline.clone(),
            exec("./bin/yaml", json!({ "env": null, "args": null })),
            "Bearer of-yaml",
        ),
        (
            "a program is never interactive",
            inline.clone(),
            exec("bin/informed", json!({ "interactiveMode": "IfAvailable" })),
            "Bearer informed",
        ),
        (
            "a program and its cluster",
            inline.clone(),
            exec("bin/cluster", json!({ "provideClusterInfo": true })),
            "Bearer cluster",
        ),
    ];
    for (form, cluster, user, expected) in cases {
        let path = scene.write("sub/config", &kubeconfig(&cluster, &user).to_string());
        let found = scene.asked(&ClusterAccess::Kubeconfig(path.clone())).await;
        assert_eq!(found.as_deref(), Ok(expected), "{form}");
        assert_eq!(
            scene.asked(&inferred(path.to_str().unwrap())).await.as_deref(),
            Ok(expected),
            "{form}, in KUBECONFIG"
        );
    }
}

#[tokio::test]
async fn each_way_to_write_a_kubeconfig_is_read() {
    let scene = Scene::new();
    let value = kubeconfig(&scene.cluster(), &json!({ "token": "t" }));
    let pretty = serde_json::to_string_pretty(&value).unwrap();
    for (form, text) in [
        ("JSON", pretty.clone()),
        ("JSON with tabs", pretty.replace("  ", "\t")),
        ("YAML", serde_yaml::to_string(&value).unwrap()),
        ("a byte order mark", format!("\u{feff}{pretty}")),
        ("a line for the reader", format!("# ours\n---\n{}", serde_yaml::to_string(&value).unwrap())),
    ] {
        let path = scene.write("config", &text);
        assert_eq!(scene.asked(&ClusterAccess::Kubeconfig(path)).await.as_deref(), Ok("Bearer t"), "{form}");
    }
}

#[tokio::test]
async fn a_list_of_kubeconfigs_is_merged_as_kubectl_merges_it() {
    let scene = Scene::new();
    let whole = scene.write("whole", &kubeconfig(&scene.cluster(), &json!({ "token": "t" })).to_string());
    let part = |name: &str, text: Value| scene.write(name, &text.to_string());
    let user = part("user", json!({ "users": [{ "name": "u", "user": { "token": "first" } }] }));
    let empty = part("empty-context", json!({ "current-context": "", "kind": "Config", "apiVersion": "v1" }));
    let none = scene.write("none", "");
    let other = part("other", json!({ "current-context": "of-another" }));
    let (gone, folder) = (Path::new("/nope"), scene.folder.path());
    for (paths, expected) in [
        (vec![whole.as_path()], "Bearer t"),
        (vec![gone, &whole], "Bearer t"),
        (vec![&whole, gone], "Bearer t"),
        (vec![Path::new(""), &whole, Path::new("")], "Bearer t"),
        (vec![&user, &whole], "Bearer first"),
        (vec![&whole, &user], "Bearer t"),
        (vec![&empty, &whole], "Bearer t"),
        (vec![&none, &whole], "Bearer t"),
        (vec![&whole, &other], "Bearer t"),
    ] {
        assert_eq!(scene.asked(&inferred(&list(&paths))).await.as_deref(), Ok(expected), "{paths:?}");
    }
    let broken = scene.write("no-yaml", "{ half");
    for (paths, expected) in [
        (vec![other.as_path(), &whole], "of-another"),
        (vec![folder, &whole], "Is a directory"),
        (vec![&broken, &whole], "no-yaml: "),
        (vec![&empty], "empty-context: "),
        (
            vec![gone, Path::new("/neither")],
            "found neither a kubeconfig nor a pod's service account: no /nope, /neither is there",
        ),
    ] {
        let error = scene.asked(&inferred(&list(&paths))).await.unwrap_err();
        assert!(error.contains(expected), "{paths:?}: {error}");
    }
}

/// Variables of the environment and their values.
type Variables<'a> = Vec<(&'a str, &'a str)>;

#[tokio::test]
async fn the_usual_search_is_kubeconfig_then_the_home_folder_then_the_pod() {
    let scene = Scene::new();
    let text = |token: &str| kubeconfig(&scene.cluster(), &json!({ "token": token })).to_string();
    scene.write(".kube/config", &text("home"));
    let named = scene.write("named", &text("named"));
    let home = scene.folder.path().to_str().unwrap();
    let (host, port) = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT");
    let cases: [(Variables<'_>, &str); 5] = [
        (vec![("KUBECONFIG", named.to_str().unwrap()), ("HOME", home)], "Bearer named"),
        (vec![("HOME", home)], "Bearer home"),
        (vec![("KUBECONFIG", ""), ("HOME", home)], "Bearer home"),
        (vec![(host, "10.0.0.1"), (port, "443"), ("HOME", home)], "Bearer home"),
        (
            vec![(host, "10.0.0.1"), (port, "443"), ("KUBECONFIG", "/nope")],
            "cannot read /var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
        ),
    ];
    for (variables, expected) in cases {
        let map = variables.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let found = scene.asked(&ClusterAccess::inferred(&map)).await.unwrap_or_else(|error| error);
        assert!(found.starts_with(expected), "{variables:?}: {found}");
    }
}

#[tokio::test]
async fn a_program_that_gives_no_credentials_is_named_and_never_repeated() {
    let scene = Scene::new();
    scene.program("fails", "echo SECRET; echo 'first' >&2; echo 'not logged in' >&2; exit 3");
    scene.program("text", "echo SECRET");
    scene.program("empty", "echo '{\"status\":{}}'");
    scene.program("half", "echo '{\"status\":{\"clientCertificateData\":\"SECRET\"}}'");
    scene.program("time", "echo '{\"status\":{\"token\":\"SECRET\",\"expirationTimestamp\":\"soon\"}}'");
    let program = |name: &str| {
        let path = scene.folder.path().join(format!("./{name}"));
        format!("\"{}\", the program of the kubeconfig's user, ", path.display())
    };
    for (command, expected) in [
        (
            "no-such-program",
            "cannot run \"no-such-program\", the program of the kubeconfig's user (its installHint: get it from example.com): No such file or directory (os error 2)"
                .to_owned(),
        ),
        ("./fails", format!("{}failed with exit status: 3: not logged in", program("fails"))),
        ("./text", format!("{}gave no credentials: what it has printed is no ExecCredential", program("text"))),
        ("./empty", format!("{}gave no credentials: its `status` has neither `token` nor `clientCertificateData`", program("empty"))),
        ("./half", format!("{}gave no credentials: its `status` has one of", program("half"))),
        ("./time", format!("{}gave no credentials: its `status.expirationTimestamp` is no time", program("time"))),
        ("", "the kubeconfig's user has `exec` without a `command`".to_owned()),
    ] {
        let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": command, "installHint": "get it from example.com\n" });
        let path = scene.write("config", &kubeconfig(&scene.cluster(), &json!({ "exec": exec })).to_string());
        let error = scene.asked(&ClusterAccess::Kubeconfig(path)).await.unwrap_err();
        assert!(error.starts_with(&expected) && !error.contains("SECRET"), "{error}");
    }
}

//! A kubeconfig for a server on loopback.
//!
//! client-go, and so kubectl, sends no credentials over plain HTTP, but it keeps the path of the server's URL. So the token
//! stands there too: the server takes `/as/TOKEN/api/v1` for `/api/v1` with that bearer token.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use super::auth::Token;

/// The prefix of a path that carries a token.
pub(super) const TOKEN_PREFIX: &str = "/as/";

/// The configuration that kubectl and kube read; JSON is YAML too.
pub fn render(server: &str, token: Option<&Token>) -> Value {
    let server = match token {
        Some(token) => format!("{}{TOKEN_PREFIX}{}", server.trim_end_matches('/'), token.expose()),
        None => server.to_owned(),
    };
    let user = token.map_or_else(|| json!({}), |token| json!({"token": token.expose()}));
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": {"server": server}}],
        "users": [{"name": "sandbox", "user": user}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox", "namespace": "default"}}],
        "current-context": "sandbox",
    })
}

/// Writes it to `path`, readable by its owner only.
pub fn write(path: &Path, server: &str, token: Option<&Token>) -> io::Result<()> {
    let text = serde_yaml::to_string(&render(server, token)).map_err(io::Error::other)?;
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_written_kubeconfig_is_its_owners_alone_and_loads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubeconfig");
        write(&path, "http://127.0.0.1:1", Some(&Token::from("secret"))).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let loaded = kube::config::Kubeconfig::read_from(&path).unwrap();
        assert_eq!(loaded.current_context.as_deref(), Some("sandbox"));
    }
}

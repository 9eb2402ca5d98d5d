//! Reads kubeconfigs as kubectl does, where kube reads them otherwise.
//!
//! | | kubectl, and here |
//! |---|---|
//! | a file of the list in `$KUBECONFIG` that is not there | left out |
//! | a directory in it, or a file that is no kubeconfig | an error |
//! | the same name in several files | the first counts, as a whole |
//! | an empty text | as none, also for `current-context` |
//! | a relative path | from the folder of its own file |
//! | data and a file | the data count |
//! | `token` and `tokenFile` | the file counts while it can be read, without the white space around its text |
//! | `username` without `password` | basic authentication with an empty one |
//! | `server` without `http://` or `https://` | https with an authority, a client certificate or `insecure-skip-tls-verify`, else http |

use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError};
use secrecy::{ExposeSecret as _, SecretString};

/// A kubeconfig that was put together from its files.
pub(super) struct Found {
    /// Its content; without any file an empty one.
    pub(super) content: Kubeconfig,
    /// The files that were there.
    pub(super) files: Vec<PathBuf>,
}

/// Reads one file, which has to be there.
pub(super) fn read_file(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let unreadable = |error| KubeconfigError::ReadConfig(error, path.to_owned());
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    // JSON may be indented with tabs, YAML may not.
    let mut content = serde_json::from_str(text).map_or_else(|_| Kubeconfig::from_yaml(text), Ok)?;
    content.current_context = content.current_context.filter(|name| !name.is_empty());
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    for cluster in content.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        complete_cluster(cluster, folder);
    }
    for user in content.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        complete_user(user, folder);
    }
    Ok(content)
}

/// Reads the files of a list that are there. `Err`: with the file that cannot be used.
pub(super) fn read_list(list: &[PathBuf]) -> Result<Found, (PathBuf, KubeconfigError)> {
    let mut found = Found { content: Kubeconfig::default(), files: Vec::new() };
    for path in list {
        let failed = |error| (path.clone(), error);
        match read_file(path) {
            Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == std::io::ErrorKind::NotFound => {}
            content => {
                found.content = found.content.merge(content.map_err(failed)?).map_err(failed)?;
                found.files.push(path.clone());
            }
        }
    }
    Ok(found)
}

fn context(content: &Kubeconfig) -> Option<&Context> {
    let named = content.contexts.iter().find(|context| Some(&context.name) == content.current_context.as_ref())?;
    named.context.as_ref()
}

/// The cluster of the current context.
pub(super) fn cluster(content: &mut Kubeconfig) -> Option<&mut Cluster> {
    let name = context(content)?.cluster.clone();
    content.clusters.iter_mut().find(|cluster| cluster.name == name)?.cluster.as_mut()
}

/// The user of the current context.
fn user(content: &Kubeconfig) -> Option<&AuthInfo> {
    let name = context(content)?.user.as_ref()?;
    content.auth_infos.iter().find(|user| user.name == *name)?.auth_info.as_ref()
}

/// The files that the current context's cluster and user name, as far as they count.
pub(super) fn named_files(content: &Kubeconfig) -> Vec<PathBuf> {
    let name = context(content).map(|context| &context.cluster);
    let cluster = content.clusters.iter().find(|cluster| Some(&cluster.name) == name);
    let authority = cluster.and_then(|named| named.cluster.as_ref()).and_then(|cluster| {
        cluster.certificate_authority.as_ref().filter(|_| cluster.certificate_authority_data.is_none())
    });
    let of_user = user(content).into_iter().flat_map(|user| {
        [
            user.client_certificate.as_ref().filter(|_| user.client_certificate_data.is_none()),
            user.client_key.as_ref().filter(|_| user.client_key_data.is_none()),
            user.token_file.as_ref(),
        ]
    });
    of_user.chain([authority]).flatten().map(PathBuf::from).collect()
}

fn complete_cluster(cluster: &mut Cluster, folder: &Path) {
    let Cluster { server, certificate_authority, certificate_authority_data, proxy_url, tls_server_name, .. } = cluster;
    for text in [server, certificate_authority_data, proxy_url, tls_server_name] {
        text.take_if(|text| text.is_empty());
    }
    place(certificate_authority, folder);
}

fn complete_user(user: &mut AuthInfo, folder: &Path) {
    for text in [&mut user.username, &mut user.client_certificate_data] {
        text.take_if(|text| text.is_empty());
    }
    for secret in [&mut user.password, &mut user.token, &mut user.client_key_data] {
        secret.take_if(|secret| secret.expose_secret().is_empty());
    }
    for file in [&mut user.client_certificate, &mut user.client_key, &mut user.token_file] {
        place(file, folder);
    }
    if user.username.is_some() {
        user.password.get_or_insert_with(|| SecretString::from(""));
    }
    if let Some(exec) = &mut user.exec {
        // A bare name is looked up in `PATH`.
        let is_path = exec.command.as_ref().is_some_and(|command| command.contains('/'));
        if is_path {
            place(&mut exec.command, folder);
        }
    }
}

fn place(file: &mut Option<String>, folder: &Path) {
    file.take_if(|file| file.is_empty());
    if let Some(file) = file
        && let Some(placed) = folder.join(&*file).to_str()
    {
        placed.clone_into(file);
    }
}

/// Writes out the scheme of the server's address that client-go adds.
pub(super) fn complete_address(content: &mut Kubeconfig) {
    let has_certificate =
        user(content).is_some_and(|user| user.client_certificate.is_some() || user.client_certificate_data.is_some());
    let Some(cluster) = cluster(content) else { return };
    let is_secure = has_certificate
        || cluster.certificate_authority.is_some()
        || cluster.certificate_authority_data.is_some()
        || cluster.insecure_skip_tls_verify == Some(true);
    if let Some(server) = cluster.server.as_mut().filter(|server| !server.contains("://")) {
        *server = format!("{}://{server}", if is_secure { "https" } else { "http" });
    }
}

/// Puts the text of `tokenFile` in the place of `token`. `Err`: there is no token at all.
pub(super) fn read_token(user: &mut AuthInfo) -> Result<(), (PathBuf, std::io::Error)> {
    let Some(path) = user.token_file.take().map(PathBuf::from) else { return Ok(()) };
    let token = std::fs::read_to_string(&path).and_then(|text| match text.trim() {
        "" => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "the file is empty")),
        token => Ok(SecretString::from(token)),
    });
    match token {
        Ok(token) => user.token = Some(token),
        Err(_) if user.token.is_some() => {}
        Err(error) => return Err((path, error)),
    }
    Ok(())
}

//! Where the API is and who we are: kubeconfigs, programs, and the pod's service account, with the files that they are made of.
//!
//! A [`Look`] reads all of them anew. It tells by their content whether anything has changed, so that it does not matter how a file
//! was replaced: written in place, renamed, or by another target of a symbolic link as the kubelet and cert-manager do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, KubeconfigError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use super::exec::{self, ExecError};
use super::kubeconfig as files;
use super::tls::TlsError;
use crate::process::{Dial, ProxyError};

/// The API's address and our credentials.
#[derive(Clone)]
pub enum ClusterAccess {
    /// The usual search: `$KUBECONFIG`, the user's kubeconfig, then the pod's service account.
    Inferred {
        /// The kubeconfigs. One that is not there is left out.
        kubeconfigs: Vec<PathBuf>,
        /// The service account, if we run in a pod.
        account: Option<ServiceAccount>,
    },
    /// This kubeconfig's current context.
    Kubeconfig(PathBuf),
    /// Plain HTTP over a byte stream.
    Endpoint {
        /// Opens a byte stream.
        dial: Dial,
        /// The bearer token, if the server wants one.
        token: Option<String>,
    },
}

/// The service account of a pod.
#[derive(Debug, Clone)]
pub struct ServiceAccount {
    /// The API server's address.
    pub server: String,
    /// The folder with `ca.crt` and `token`.
    pub folder: PathBuf,
}

impl ClusterAccess {
    /// The usual search in a process with these variables.
    pub fn inferred(variables: &BTreeMap<String, String>) -> Self {
        let told = |key: &str| variables.get(key).filter(|value| !value.is_empty());
        let list = told("KUBECONFIG").into_iter().flat_map(std::env::split_paths);
        let mut kubeconfigs: Vec<PathBuf> = list.filter(|path| !path.as_os_str().is_empty()).collect();
        if kubeconfigs.is_empty() {
            kubeconfigs.extend(told("HOME").map(|home| Path::new(home).join(".kube/config")));
        }
        let account = told("KUBERNETES_SERVICE_HOST").zip(told("KUBERNETES_SERVICE_PORT")).map(|(host, port)| {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            let folder = PathBuf::from("/var/run/secrets/kubernetes.io/serviceaccount");
            ServiceAccount { server: format!("https://{host}:{port}"), folder }
        });
        Self::Inferred { kubeconfigs, account }
    }
}

impl std::fmt::Debug for ClusterAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inferred { kubeconfigs, account } => {
                f.debug_struct("Inferred").field("kubeconfigs", kubeconfigs).field("account", account).finish()
            }
            Self::Kubeconfig(path) => f.debug_tuple("Kubeconfig").field(path).finish(),
            Self::Endpoint { token, .. } => {
                f.debug_struct("Endpoint").field("token", &token.as_ref().map(|_| "…")).finish_non_exhaustive()
            }
        }
    }
}

/// Why there are no clients.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {path}")]
    Kubeconfig {
        /// Which one, or which ones.
        path: String,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[error(
        "found neither a kubeconfig nor a pod's service account: {looked}, and KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
    )]
    Nothing {
        /// Where kubeconfigs were looked for.
        looked: String,
    },
    /// A file of the credentials cannot be read.
    #[error("cannot read {path}, the {what}", path = .path.display())]
    File {
        /// What it has.
        what: &'static str,
        /// Which one.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The program that the kubeconfig names gives no credentials.
    #[error(transparent)]
    Program(#[from] ExecError),
    /// What is configured is no proxy.
    #[error("cannot reach the Kubernetes API through a proxy")]
    Proxy(#[source] ProxyError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The credentials cannot be used.
    #[error("cannot use the credentials for the Kubernetes API")]
    Credentials(#[source] Box<kube::Error>),
    /// The token has characters that no HTTP header may have.
    #[error("the bearer token is not fit for an HTTP header")]
    Token,
}

/// Files by their content. `None`: a file cannot be read.
pub(super) type Files = BTreeMap<PathBuf, Option<[u8; 32]>>;

/// What is found when everything is read anew.
pub(super) struct Look {
    /// All files that count, read before anything is made of them: one that changes meanwhile differs at the next look.
    pub(super) files: Files,
    found: Result<Source, ConnectError>,
}

enum Source {
    Kubeconfig { content: Box<Kubeconfig>, path: String },
    Account(ServiceAccount),
}

/// The API's address and credentials.
pub(super) struct Access {
    pub(super) config: kube::Config,
    /// The proxy that the kubeconfig itself names.
    pub(super) proxy_url: Option<String>,
    /// Whether a program has given the credentials.
    pub(super) is_of_program: bool,
    /// When they expire, if the program says so.
    pub(super) expires: Option<Timestamp>,
}

impl Access {
    /// Whether there are no credentials at all.
    pub(super) fn is_anonymous(&self) -> bool {
        let user = &self.config.auth_info;
        user.token.is_none()
            && user.username.is_none()
            && user.auth_provider.is_none()
            && user.client_certificate.is_none()
            && user.client_certificate_data.is_none()
    }
}

impl Look {
    /// Reads what this access is made of.
    pub(super) fn at(access: &ClusterAccess) -> Self {
        let (mut paths, found) = match access {
            ClusterAccess::Endpoint { .. } => {
                (Vec::new(), Err(ConnectError::Nothing { looked: "a byte stream is made of no files".to_owned() }))
            }
            ClusterAccess::Kubeconfig(path) => {
                let source = files::read_file(path).map_err(|error| unusable(&path.display().to_string(), error));
                let content = source.map(|content| (Box::new(content), path.display().to_string()));
                (vec![path.clone()], content.map(|(content, path)| Source::Kubeconfig { content, path }))
            }
            ClusterAccess::Inferred { kubeconfigs, account } => {
                (kubeconfigs.clone(), infer(kubeconfigs, account.as_ref()))
            }
        };
        match &found {
            Err(_) => {}
            Ok(Source::Account(account)) => {
                paths.extend([account.folder.join(AUTHORITY), account.folder.join(TOKEN)]);
            }
            Ok(Source::Kubeconfig { content, .. }) => paths.extend(files::named_files(content)),
        }
        let read = |path: PathBuf| {
            let digest = std::fs::read(&path).ok().map(|bytes| Sha256::digest(bytes).into());
            (path, digest)
        };
        Self { files: paths.into_iter().map(read).collect(), found }
    }

    /// Makes the access of what was found; a program runs for that.
    pub(super) async fn access(self) -> Result<Access, ConnectError> {
        let (mut config, proxy_url) = match self.found? {
            Source::Account(account) => (of_account(&account)?, None),
            Source::Kubeconfig { content, path } => {
                of_kubeconfig(*content).await.map_err(|error| unusable(&path, error))?
            }
        };
        let (user, what) = (&mut config.auth_info, "token of the credentials");
        files::read_token(user).map_err(|(path, source)| ConnectError::File { what, path, source })?;
        let is_of_program = user.exec.is_some();
        let expires = exec::complete(user).await?;
        Ok(Access { config, proxy_url, is_of_program, expires })
    }
}

const AUTHORITY: &str = "ca.crt";
const TOKEN: &str = "token";

fn unusable(path: &str, error: KubeconfigError) -> ConnectError {
    ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(error) }
}

/// As kubectl: a kubeconfig with a context, else the service account.
fn infer(kubeconfigs: &[PathBuf], account: Option<&ServiceAccount>) -> Result<Source, ConnectError> {
    let list = |paths: &[PathBuf]| {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        paths.join(", ")
    };
    let found = files::read_list(kubeconfigs).map_err(|(path, error)| unusable(&path.display().to_string(), error))?;
    if found.content.current_context.is_none()
        && let Some(account) = account
    {
        return Ok(Source::Account(account.clone()));
    }
    if found.files.is_empty() {
        let looked = match kubeconfigs {
            [] => "neither KUBECONFIG nor HOME is set".to_owned(),
            paths => format!("no {} is there", list(paths)),
        };
        return Err(ConnectError::Nothing { looked });
    }
    Ok(Source::Kubeconfig { path: list(&found.files), content: Box::new(found.content) })
}

fn of_account(account: &ServiceAccount) -> Result<kube::Config, ConnectError> {
    let server = account
        .server
        .parse()
        .map_err(|error| unusable("of the pod's service account", KubeconfigError::ParseClusterUrl(error)))?;
    let path = account.folder.join(AUTHORITY);
    let authorities = std::fs::read(&path).map_err(|source| ConnectError::File {
        what: "certificate authority of the pod's service account",
        path: path.clone(),
        source,
    })?;
    let authorities = CertificateDer::pem_slice_iter(&authorities).filter_map(Result::ok);
    let mut config = kube::Config::new(server);
    config.root_cert = Some(authorities.map(|found| found.to_vec()).collect());
    config.root_cert_file = Some(path);
    let token = account.folder.join(TOKEN).display().to_string();
    config.auth_info = AuthInfo { token_file: Some(token), ..AuthInfo::default() };
    config.apply_debug_overrides();
    Ok(config)
}

/// kube puts `HTTPS_PROXY` in the place of a `proxy-url` that is not there, without a look at `NO_PROXY`:
/// [`Proxies`](crate::process::Proxies) decides.
async fn of_kubeconfig(mut content: Kubeconfig) -> Result<(kube::Config, Option<String>), KubeconfigError> {
    files::complete_address(&mut content);
    let proxy_url = files::cluster(&mut content).and_then(|cluster| cluster.proxy_url.clone());
    let made = kube::Config::from_custom_kubeconfig(content.clone(), &KubeConfigOptions::default()).await;
    let mut config = match made {
        // Of the variable: it may be that `NO_PROXY` makes it meaningless.
        Err(KubeconfigError::ParseProxyUrl(_)) if proxy_url.is_none() => {
            if let Some(cluster) = files::cluster(&mut content) {
                cluster.proxy_url = Some("http://none.invalid".to_owned());
            }
            kube::Config::from_custom_kubeconfig(content, &KubeConfigOptions::default()).await?
        }
        made => made?,
    };
    config.proxy_url = None;
    Ok((config, proxy_url))
}

/// The access of a configuration as it is.
#[cfg(test)]
pub(super) fn of_pod(config: kube::Config) -> Access {
    Access { config, proxy_url: None, is_of_program: false, expires: None }
}

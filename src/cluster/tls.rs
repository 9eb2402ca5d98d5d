//! TLS to the API server: as kubectl, where rustls can; else with an error that names the certificate.
//!
//! | | kubectl | here |
//! |---|---|---|
//! | the server's own certificate as authority | accepted | the same, see [`Verifier`] |
//! | an authority that is no certificate beside one that is | left out | the same |
//! | a client certificate of X.509 version 1 | sent | the same: only the server has to read it |
//! | a client's key that is not the certificate's | an error | the same |
//! | RSA below 2048 bits | accepted | an error: rustls has no such key |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::client::ConfigExt as _;
use kube::config::AuthInfo;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use secrecy::ExposeSecret;

use super::certificate::Certificate;
use super::verifier::{SUPPORTED, Verifier};

/// Why there can be no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// None of the authorities is a certificate.
    #[error(
        "{origin} has no certificate that can be an authority; expected a PEM file with the certificate that has signed the API server's"
    )]
    NoAuthority {
        /// The file, or the key of the kubeconfig.
        origin: String,
    },
    /// The client certificate or its key cannot be read.
    #[error("cannot read {origin} of the kubeconfig's user")]
    Unreadable {
        /// The key of the kubeconfig.
        origin: &'static str,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// One is there without the other.
    #[error("the kubeconfig's user has {has}, and no {lacks}: give both, or neither")]
    Half {
        /// The key that is there.
        has: &'static str,
        /// The key that is not.
        lacks: &'static str,
    },
    /// The client certificate is none.
    #[error(
        "{origin} of the kubeconfig's user is not an X.509 certificate; expected PEM that begins with the client's own certificate"
    )]
    NotACertificate {
        /// The key of the kubeconfig.
        origin: &'static str,
    },
    /// The key of the client certificate has a form that cannot be used.
    #[error(
        "the client certificate {certificate} has a key that cannot be used: {key}; {SUPPORTED} can be used, not encrypted: have the certificate \
         issued anew for such a key"
    )]
    Key {
        /// The certificate.
        certificate: String,
        /// What the key is.
        key: String,
    },
    /// The key is another certificate's.
    #[error(
        "the client certificate {certificate} and {origin} do not belong together; expected the key that it was issued for"
    )]
    OtherKey {
        /// The certificate.
        certificate: String,
        /// The kubeconfig's key with the key.
        origin: &'static str,
    },
    /// What kube refuses.
    #[error("cannot use the credentials for the Kubernetes API")]
    Credentials(#[source] Box<kube::Error>),
}

/// The TLS settings of a configuration.
pub(super) fn client_config(config: &kube::Config) -> Result<rustls::ClientConfig, TlsError> {
    // An error means that a provider is already installed, which is fine.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let identity = identity(&config.auth_info, &provider)?;
    let verifier = if config.accept_invalid_certs { None } else { verifier(config, provider)? };

    // kube makes the rest: the system's authorities.
    let mut rest = config.clone();
    if verifier.is_some() {
        (rest.root_cert, rest.root_cert_file) = (Some(Vec::new()), None);
    }
    if identity.is_some() {
        let user = &mut rest.auth_info;
        (user.client_certificate, user.client_certificate_data) = (None, None);
        (user.client_key, user.client_key_data) = (None, None);
    }
    let mut tls = rest.rustls_client_config().map_err(|error| TlsError::Credentials(Box::new(error)))?;
    if let Some(verifier) = verifier {
        tls.dangerous().set_certificate_verifier(Arc::new(verifier));
    }
    if let Some(identity) = identity {
        tls.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(identity));
    }
    Ok(tls)
}

/// `None`: the configuration names no authorities, and the system's count.
fn verifier(config: &kube::Config, provider: Arc<CryptoProvider>) -> Result<Option<Verifier>, TlsError> {
    let Some(authorities) = &config.root_cert else { return Ok(None) };
    let authorities = authorities.iter().cloned().map(CertificateDer::from).collect();
    let file: Option<&PathBuf> = config.root_cert_file.as_ref();
    let origin = || match file {
        Some(path) => path.display().to_string(),
        None => "`certificate-authority` of the kubeconfig's cluster".to_owned(),
    };
    let verifier = Verifier::new(authorities, file.cloned(), provider);
    verifier.map(Some).ok_or_else(|| TlsError::NoAuthority { origin: origin() })
}

const CERTIFICATE: [&str; 2] = ["client-certificate-data", "client-certificate"];
const KEY: [&str; 2] = ["client-key-data", "client-key"];

/// The certificate that is in the kubeconfig or in a file beside it.
fn identity(user: &AuthInfo, provider: &CryptoProvider) -> Result<Option<CertifiedKey>, TlsError> {
    let certificate = load(CERTIFICATE, user.client_certificate_data.as_deref(), user.client_certificate.as_deref())?;
    let key_data = user.client_key_data.as_ref().map(ExposeSecret::expose_secret);
    let key = load(KEY, key_data, user.client_key.as_deref())?;
    let ((origin, chain), (key_origin, key)) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some((has, _)), None) => return Err(TlsError::Half { has, lacks: "client-key" }),
        (None, Some((has, _))) => return Err(TlsError::Half { has, lacks: "client-certificate" }),
        (Some(certificate), Some(key)) => (certificate, key),
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&chain)
        .collect::<Result<_, _>>()
        .map_err(|error| TlsError::Unreadable { origin, source: error.into() })?;
    let leaf = chain.first().and_then(|first| Certificate::parse(first)).ok_or(TlsError::NotACertificate { origin })?;
    let unusable = |key: String| TlsError::Key { certificate: leaf.to_string(), key };
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| unusable(format!("{key_origin} has no PEM of a private key that is not encrypted")))?;
    let key = provider.key_provider.load_private_key(key).map_err(|_| unusable(leaf.key.to_string()))?;
    // Compared by their last bytes, because the rest can be written in several ways.
    let is_other = key.public_key().is_some_and(|info| {
        let tail = info.len().saturating_sub(32);
        !leaf.key_info.ends_with(&info[tail..])
    });
    if is_other {
        return Err(TlsError::OtherKey { certificate: leaf.to_string(), origin: key_origin });
    }
    Ok(Some(CertifiedKey::new(chain, key)))
}

/// The content of the first that is there, and the kubeconfig's key of it.
fn load(
    [of_data, of_file]: [&'static str; 2],
    data: Option<&str>,
    file: Option<&str>,
) -> Result<Option<(&'static str, Vec<u8>)>, TlsError> {
    let given = |text: &&str| !text.is_empty();
    if let Some(data) = data.filter(given) {
        let bytes =
            STANDARD.decode(data).map_err(|error| TlsError::Unreadable { origin: of_data, source: error.into() })?;
        return Ok(Some((of_data, bytes)));
    }
    let Some(path) = file.filter(given) else { return Ok(None) };
    let bytes = std::fs::read(Path::new(path)).map_err(|error| {
        let source = std::io::Error::new(error.kind(), format!("{path}: {error}"));
        TlsError::Unreadable { origin: of_file, source: source.into() }
    })?;
    Ok(Some((of_file, bytes)))
}

//! Checks the API server's certificate as kubectl does, and says what is wrong with one that is not accepted.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use tokio::time::Instant;
use tracing::warn;

use super::certificate::Certificate;
use crate::process::error_chain;

/// What aws-lc-rs verifies.
pub(super) const SUPPORTED: &str =
    "RSA from 2048 bits, ECDSA with P-256, P-384 or P-521 and SHA-256, SHA-384 or SHA-512, and Ed25519";

/// How long a file of authorities counts before it is read again: a cluster renews its authority without a restart of its pods.
const REREAD: Duration = Duration::from_secs(60);

/// Checks by the authorities of a kubeconfig, or of a file that is read again.
///
/// Go accepts the certificate that is itself among the authorities, whoever has signed it, if its name, time and purpose are
/// right. webpki wants it to be an authority of its own, and refuses a server whose certificate is an authority.
#[derive(Debug)]
pub(super) struct Verifier {
    file: Option<PathBuf>,
    trust: RwLock<(Arc<Trust>, Instant)>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
struct Trust {
    authorities: Vec<CertificateDer<'static>>,
    webpki: Arc<WebPkiServerVerifier>,
}

impl Trust {
    /// `None`: there is no usable authority.
    fn new(authorities: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities.iter().cloned());
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build().ok()?;
        Some(Self { authorities, webpki })
    }

    fn parsed(&self) -> impl Iterator<Item = Certificate> {
        self.authorities.iter().filter_map(|authority| Certificate::parse(authority))
    }
}

impl Verifier {
    /// `None`: there is no usable authority.
    pub(super) fn new(
        authorities: Vec<CertificateDer<'static>>,
        file: Option<PathBuf>,
        provider: Arc<CryptoProvider>,
    ) -> Option<Self> {
        let trust = Trust::new(authorities, &provider)?;
        Some(Self { file, trust: RwLock::new((Arc::new(trust), Instant::now())), provider })
    }

    fn trust(&self) -> Arc<Trust> {
        let is_new = |read: &Instant| read.elapsed() < REREAD;
        let (trust, read) = self.trust.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(path) = self.file.as_ref().filter(|_| !is_new(&read)) else { return trust };
        let mut held = self.trust.write().unwrap_or_else(PoisonError::into_inner);
        if is_new(&held.1) {
            return Arc::clone(&held.0);
        }
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
        match authorities.map(|authorities| Trust::new(authorities, &self.provider)) {
            Ok(Some(trust)) => held.0 = Arc::new(trust),
            Ok(None) => warn!(path = %path.display(), "no usable certificate authority: the last ones count on"),
            Err(error) => {
                warn!(path = %path.display(), error = error_chain(&error), "cannot read the certificate authorities: the last ones count on");
            }
        }
        held.1 = Instant::now();
        Arc::clone(&held.0)
    }

    fn reason(&self, trust: &Trust, chain: &[Certificate], error: &CertificateError) -> String {
        let place = match &self.file {
            Some(path) => path.display().to_string(),
            None => "`certificate-authority-data` of the kubeconfig".to_owned(),
        };
        let after = |time: UnixTime, found: &Certificate| found.not_after.as_second() < seconds(time);
        let text = error.to_string();
        match error {
            CertificateError::ExpiredContext { time, .. } => match chain.iter().find(|found| after(*time, found)) {
                Some(found) => {
                    format!("{found} has expired at {}: renew it, or set this machine's clock", found.not_after)
                }
                None => format!("an authority has expired: {text}"),
            },
            CertificateError::NotValidYetContext { time, .. } => {
                match chain.iter().find(|found| found.not_before.as_second() > seconds(*time)) {
                    Some(found) => format!("{found} is valid only from {}: set this machine's clock", found.not_before),
                    None => text,
                }
            }
            CertificateError::NotValidForNameContext { .. } | CertificateError::NotValidForName => {
                format!("{text}: use such a name for the server, or set `tls-server-name` in the kubeconfig")
            }
            CertificateError::InvalidPurposeContext { .. } | CertificateError::InvalidPurpose => {
                "it is not meant for servers: have one issued with the extended key usage serverAuth".to_owned()
            }
            CertificateError::UnknownIssuer => unsigned(trust, "", &place),
            _ if chain.first().is_some_and(|leaf| leaf.version < 3) => {
                "it is of X.509 version 1, which has no names of servers: have one issued with version 3".to_owned()
            }
            _ if text.contains("CaUsedAsEndEntity") => {
                format!(
                    "it is an authority's: have one issued without CA:TRUE, or put this certificate itself into {place}"
                )
            }
            CertificateError::BadSignature => unsupported(trust, chain)
                .unwrap_or_else(|| unsigned(trust, "; the one with its issuer's name has another key", &place)),
            _ => unsupported(trust, chain).unwrap_or(text),
        }
    }
}

/// No authority has signed a certificate. `twin` says more, for an authority that only has the name of one that has.
fn unsigned(trust: &Trust, twin: &str, place: &str) -> String {
    let known: Vec<String> = trust.parsed().map(|authority| format!("\"{}\"", authority.subject)).take(5).collect();
    format!(
        "none of the trusted authorities has signed it ({}{twin}): put its issuer's certificate, or this certificate itself, into {place}",
        known.join(", ")
    )
}

/// What in a chain cannot be verified here.
fn unsupported(trust: &Trust, chain: &[Certificate]) -> Option<String> {
    let issuers = |authority: &Certificate| chain.iter().any(|found| found.issuer == authority.subject);
    // How an authority is signed does not matter: nobody checks it.
    let of_authority = |authority: Certificate| {
        authority.unsupported_key().map(|what| format!("of the authority {authority}, {what}"))
    };
    let of_chain = |found: &Certificate| found.unsupported().map(|what| format!("of {found}, {what}"));
    let what = trust.parsed().filter(issuers).find_map(of_authority).or_else(|| chain.iter().find_map(of_chain))?;
    Some(format!("{what}, and only {SUPPORTED} can be verified: have it issued anew with one of these"))
}

fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// A certificate that is trusted by itself.
fn verify_own(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), CertificateError> {
    let refused = |error| match error {
        Error::InvalidCertificate(error) => error,
        other => CertificateError::Other(OtherError(Arc::new(other))),
    };
    let parsed = ParsedCertificate::try_from(certificate).map_err(refused)?;
    let read = Certificate::parse(certificate).ok_or(CertificateError::BadEncoding)?;
    let second = |time: jiff::Timestamp| {
        UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(time.as_second()).unwrap_or_default()))
    };
    if read.not_before.as_second() > seconds(now) {
        return Err(CertificateError::NotValidYetContext { time: now, not_before: second(read.not_before) });
    }
    if read.not_after.as_second() < seconds(now) {
        return Err(CertificateError::ExpiredContext { time: now, not_after: second(read.not_after) });
    }
    if !read.is_for_servers {
        return Err(CertificateError::InvalidPurpose);
    }
    verify_server_name(&parsed, name).map_err(refused)
}

/// The error of a handshake, in words.
#[derive(Debug, thiserror::Error)]
#[error("the API server's certificate {certificate} is not accepted: {reason}")]
struct Refused {
    certificate: String,
    reason: String,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let trust = self.trust();
        let chain = || -> Vec<Certificate> {
            std::iter::once(end_entity).chain(intermediates).filter_map(|found| Certificate::parse(found)).collect()
        };
        let refused = |error: CertificateError| {
            let chain = chain();
            let Some(leaf) = chain.first() else { return Error::InvalidCertificate(error) };
            let refused = Refused { certificate: leaf.to_string(), reason: self.reason(&trust, &chain, &error) };
            // Not as `InvalidCertificate`: its text would show the fields of this error.
            Error::Other(OtherError(Arc::new(refused)))
        };
        if trust.authorities.iter().any(|authority| authority.as_ref() == end_entity.as_ref()) {
            verify_own(end_entity, server_name, now).map_err(refused)?;
            // Its key is asked for when the handshake's signature is checked, with an error that names nothing.
            return match chain().first().and_then(Certificate::unsupported_key) {
                Some(_) => Err(refused(CertificateError::BadSignature)),
                None => Ok(ServerCertVerified::assertion()),
            };
        }
        match trust.webpki.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(Error::InvalidCertificate(error)) => Err(refused(error)),
            // The same as above.
            Ok(_) if chain().first().is_some_and(|leaf| leaf.unsupported_key().is_some()) => {
                Err(refused(CertificateError::BadSignature))
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust().webpki.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust().webpki.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust().webpki.supported_verify_schemes()
    }
}

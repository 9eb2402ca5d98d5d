//! The certificates of API servers and clients that kubectl takes: taken here, or refused with an error that names them.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use super::wire::{NAME, api_server, data, kubeconfig};
use crate::cluster::{ClientOptions, Clients, ClusterAccess, ConnectError};
use crate::process::error_chain;

macro_rules! file {
    ($name:literal) => {
        include_str!(concat!("certificates/", $name))
    };
}

async fn clients(cluster: &Value, user: &Value) -> Result<Clients, ConnectError> {
    let (_directory, path) = kubeconfig(cluster, user);
    Clients::connect(&ClusterAccess::Kubeconfig(path), &ClientOptions::default()).await
}

/// What the API server with this certificate says to a client that trusts this authority.
async fn asked_with(certificate: &str, key: &str, authority: &str, name: Option<&str>) -> Result<String, String> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let (server, _heads) = api_server(config);
    let mut cluster = json!({ "server": format!("https://{server}"), "certificate-authority-data": data(authority) });
    if let Some(name) = name {
        cluster["tls-server-name"] = name.into();
    }
    let clients = clients(&cluster, &json!({ "token": "t" })).await.map_err(|error| error_chain(&error))?;
    let request = http::Request::get("/version").body(Vec::new()).unwrap();
    clients.work.request_text(request).await.map_err(|error| error_chain(&error))
}

async fn asked(certificate: &str, key: &str, authority: &str) -> Result<String, String> {
    asked_with(certificate, key, authority, None).await
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A server's certificate and its key.
fn issued(issuer: &CertifiedIssuer<'_, KeyPair>, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
    let mut params = CertificateParams::new(vec![NAME.to_owned(), "127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "server");
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, issuer).unwrap().pem(), key.serialize_pem())
}

#[tokio::test]
async fn the_servers_own_certificate_is_an_authority_whoever_has_signed_it() {
    let issuer = authority("not told");
    for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
        let (certificate, key) = issued(&issuer, |params| params.is_ca = is_ca);
        assert_eq!(asked(&certificate, &key, &certificate).await.as_deref(), Ok("ok"), "{is_ca:?}");
        // Beside what is no certificate, and what is another.
        let noise = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let several = format!("{noise}{}{certificate}", authority("other").pem());
        assert_eq!(asked(&certificate, &key, &several).await.as_deref(), Ok("ok"), "{is_ca:?}");
    }
}

#[tokio::test]
async fn the_servers_own_certificate_needs_its_name_time_and_purpose() {
    type Change = fn(&mut CertificateParams);
    let issuer = authority("not told");
    for (change, expected) in [
        (
            (|params| params.subject_alt_names.truncate(1)) as Change,
            "certificate not valid for name \"127.0.0.1\"; certificate is only valid for DnsName(\"api.example.test\"): use such a name",
        ),
        (
            |params| params.not_after = rcgen::date_time_ymd(2020, 1, 2),
            "\"CN=server\" (issued by \"CN=not told\") has expired at 2020-01-02T00:00:00Z: renew it",
        ),
        (|params| params.not_before = rcgen::date_time_ymd(3000, 1, 2), "is valid only from 3000-01-02T00:00:00Z"),
        (
            |params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth],
            "it is not meant for servers: have one issued with the extended key usage serverAuth",
        ),
    ] {
        let (certificate, key) = issued(&issuer, change);
        // The same whether it is its own authority or has one.
        for trusted in [&certificate, &issuer.pem()] {
            let error = asked(&certificate, &key, trusted).await.unwrap_err();
            let begin = "the API server's certificate \"CN=server\" (issued by \"CN=not told\") is not accepted: ";
            assert!(error.contains(begin) && error.contains(expected), "{error}");
        }
    }
    let (certificate, key) = issued(&issuer, |params| params.subject_alt_names.truncate(1));
    assert_eq!(asked_with(&certificate, &key, &certificate, Some(NAME)).await.as_deref(), Ok("ok"));
}

#[tokio::test]
async fn an_issuer_that_is_not_trusted_is_named_with_those_that_are() {
    let (certificate, key) = issued(&authority("theirs"), |_| {});
    let error = asked(&certificate, &key, &authority("ours").pem()).await.unwrap_err();
    let expected = "the API server's certificate \"CN=server\" (issued by \"CN=theirs\") is not accepted: none of the trusted authorities has \
                    signed it (\"CN=ours\"): put its issuer's certificate, or this certificate itself, into `certificate-authority-data` of \
                    the kubeconfig";
    assert!(error.ends_with(expected), "{error}");
    let error = asked(&certificate, &key, &authority("theirs").pem()).await.unwrap_err();
    let expected = "none of the trusted authorities has signed it (\"CN=theirs\"; the one with its issuer's name has another key): put";
    assert!(error.contains(expected), "{error}");
    let issuer = authority("ours");
    let (certificate, key) = issued(&issuer, |params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let error = asked(&certificate, &key, &issuer.pem()).await.unwrap_err();
    assert!(
        error.contains("it is an authority's: have one issued without CA:TRUE, or put this certificate itself"),
        "{error}"
    );
}

#[tokio::test]
async fn curves_and_hashes_of_each_length_are_taken() {
    for (certificate, key, authority) in [
        (file!("server-of-p521.pem"), file!("server-of-p521.key"), file!("authority-p521.pem")),
        (file!("server-p521.pem"), file!("server-p521.key"), file!("authority-p256.pem")),
        (file!("server-sha512.pem"), file!("server-sha512.key"), file!("authority-p256.pem")),
        (file!("server-p384-sha512.pem"), file!("server-p384-sha512.key"), file!("authority-p384.pem")),
    ] {
        assert_eq!(asked(certificate, key, authority).await.as_deref(), Ok("ok"));
        assert_eq!(asked(certificate, key, certificate).await.as_deref(), Ok("ok"));
    }
}

#[tokio::test]
async fn what_rustls_cannot_verify_is_said_of_the_certificate_that_has_it() {
    let (certificate, key) = (file!("server-of-rsa1024.pem"), file!("server-of-rsa1024.key"));
    let error = asked(certificate, key, file!("authority-rsa1024.pem")).await.unwrap_err();
    let expected =
        "of the authority \"CN=authority-rsa1024\" (self-signed), the key is RSA with 1024 bits, and only RSA";
    assert!(
        error.contains(expected) && error.ends_with("can be verified: have it issued anew with one of these"),
        "{error}"
    );
    // Nobody has to verify what is trusted by itself.
    assert_eq!(asked(certificate, key, certificate).await.as_deref(), Ok("ok"));
}

/// The user of a kubeconfig with a client certificate.
fn user(certificate: &str, key: &str) -> Value {
    json!({ "client-certificate-data": data(certificate), "client-key-data": data(key) })
}

#[tokio::test]
async fn a_client_certificate_of_version_1_or_with_a_key_of_p521_is_sent() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let shown = std::sync::Arc::new(Shown(std::sync::Mutex::default()));
    let config = rustls::ServerConfig::builder()
        .with_client_cert_verifier(shown.clone())
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let (server, _heads) = api_server(config);
    let cluster =
        json!({ "server": format!("https://{server}"), "certificate-authority-data": data(&made.cert.pem()) });
    for (certificate, key) in
        [(file!("client-v1.pem"), file!("client-v1.key")), (file!("client-p521.pem"), file!("client-p521.key"))]
    {
        let clients = clients(&cluster, &user(certificate, key)).await.unwrap();
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        assert_eq!(clients.work.request_text(request).await.unwrap(), "ok");
        let sent = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        assert_eq!(std::mem::take(&mut *shown.0.lock().unwrap()), [sent.to_vec()]);
    }
}

/// Takes any client certificate, as a kube-apiserver does in the handshake, and keeps it.
#[derive(Debug, Default)]
pub(super) struct Shown(std::sync::Mutex<Vec<Vec<u8>>>);

impl rustls::server::danger::ClientCertVerifier for Shown {
    fn root_hint_subjects(&self) -> &[rustls::DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::server::danger::ClientCertVerified, rustls::Error> {
        self.0.lock().unwrap().push(end_entity.to_vec());
        Ok(rustls::server::danger::ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        vec![rustls::SignatureScheme::ECDSA_NISTP256_SHA256, rustls::SignatureScheme::ECDSA_NISTP521_SHA512]
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_client_certificate_or_an_authority_is_said_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (good, good_key) = (file!("client-v1.pem"), file!("client-v1.key"));
    let named = "the client certificate \"CN=client-v1, O=system:masters\" (issued by \"CN=authority-p256\")";
    for (user, expected) in [
        (user(good, file!("server-sha512.key")), format!("{named} and client-key-data do not belong together; expected the key that it was issued for")),
        (
            user(file!("client-rsa1024.pem"), file!("client-rsa1024.key")),
            "the client certificate \"CN=client-rsa1024\" (issued by \"CN=authority-p256\") has a key that cannot be used: RSA with 1024 bits; RSA".to_owned(),
        ),
        (
            user(good, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"),
            format!("{named} has a key that cannot be used: client-key-data has no PEM of a private key that is not encrypted"),
        ),
        (user("no PEM", good_key), "client-certificate-data of the kubeconfig's user is not an X.509 certificate".to_owned()),
        (
            json!({ "client-certificate": path("c.pem", good) }),
            "the kubeconfig's user has client-certificate, and no client-key: give both, or neither".to_owned(),
        ),
        (
            json!({ "client-certificate": path("c.pem", good), "client-key": "/no/such/key" }),
            "cannot read client-key of the kubeconfig's user: /no/such/key: No such file or directory".to_owned(),
        ),
    ] {
        let error = error_chain(&clients(&json!({ "server": "https://127.0.0.1:1" }), &user).await.unwrap_err());
        assert!(error.starts_with(&expected), "{error}");
    }
    let files = json!({ "client-certificate": path("c.pem", good), "client-key": path("c.key", good_key) });
    assert!(clients(&json!({ "server": "https://127.0.0.1:1" }), &files).await.is_ok());

    let none = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let cluster = json!({ "server": "https://127.0.0.1:1", "certificate-authority-data": data(none) });
    let error = error_chain(&clients(&cluster, &json!({ "token": "t" })).await.unwrap_err());
    assert!(
        error.starts_with(
            "`certificate-authority` of the kubeconfig's cluster has no certificate that can be an authority"
        ),
        "{error}"
    );
}

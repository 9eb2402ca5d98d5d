//! Certificates: one authority, and the certificates that it signs.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// A certificate and its key, as PEM.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Whom to trust, as PEM.
    pub(crate) certificate: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = named("cluster-tests", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// For a server on loopback, which may be a client too. Pods find the API server at the first address of the services.
    pub(crate) fn server(&self, name: &str) -> Pair {
        let names = ["localhost", "127.0.0.1", "10.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        self.sign(params, &[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth])
    }

    /// For a user of a group.
    pub(crate) fn client(&self, user: &str, group: Option<&str>) -> Pair {
        self.sign(named(user, group), &[ExtendedKeyUsagePurpose::ClientAuth])
    }

    fn sign(&self, mut params: CertificateParams, purposes: &[ExtendedKeyUsagePurpose]) -> Pair {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = purposes.to_vec();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

/// Writes the keys and certificates of etcd and of the API server.
pub(crate) fn write_keys(folder: &Path, authority: &Authority) {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    // etcd and the API server among themselves, and whom the API server trusts.
    write("authority.crt", &authority.certificate);
    write("clients.crt", &authority.certificate);
    let (private, public) = signing_key();
    write("service-accounts.key", &private);
    write("service-accounts.pub", &public);
    for (name, pair) in [
        ("etcd", authority.server("etcd")),
        ("api", authority.server("kube-apiserver")),
        ("api-etcd", authority.client("kube-apiserver", None)),
    ] {
        write(&format!("{name}.crt"), &pair.certificate);
        write(&format!("{name}.key"), &pair.key);
    }
}

/// A key pair to sign service accounts' tokens with: the private and the public half.
fn signing_key() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    (key.serialize_pem(), key.public_key_pem())
}

fn named(name: &str, organisation: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(organisation) = organisation {
        params.distinguished_name.push(DnType::OrganizationName, organisation);
    }
    params
}

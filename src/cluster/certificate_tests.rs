//! Certificates of each kind, as errors name them.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::*;

fn read(pem: &str) -> Certificate {
    Certificate::parse(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap()
}

macro_rules! pem {
    ($name:literal) => {
        include_str!(concat!("tests/certificates/", $name, ".pem"))
    };
}

#[test]
fn names_keys_and_signatures_are_read() {
    for (pem, version, shown, key, signature) in [
        (
            pem!("client-v1"),
            1,
            "\"CN=client-v1, O=system:masters\" (issued by \"CN=authority-p256\")",
            "P-256",
            "ECDSA with SHA-256",
        ),
        (pem!("client-p521"), 1, "\"CN=client-p521\" (issued by \"CN=authority-p256\")", "P-521", "ECDSA with SHA-256"),
        (pem!("authority-p521"), 3, "\"CN=authority-p521\" (self-signed)", "P-521", "ECDSA with SHA-512"),
        (pem!("authority-p384"), 3, "\"CN=authority-p384\" (self-signed)", "P-384", "ECDSA with SHA-384"),
        (
            pem!("server-sha512"),
            3,
            "\"CN=server-sha512, O=example\" (issued by \"CN=authority-p256\")",
            "P-256",
            "ECDSA with SHA-512",
        ),
    ] {
        let found = read(pem);
        assert_eq!((found.version, found.to_string().as_str()), (version, shown));
        assert_eq!(found.key.to_string(), format!("ECDSA with {key}"), "{shown}");
        assert_eq!(found.signature.to_string(), signature, "{shown}");
        assert_eq!(found.unsupported(), None, "{shown}");
        assert!(found.not_before.as_second() > 1_700_000_000 && found.not_after.as_second() > 4_800_000_000, "{shown}");
        assert!(found.is_for_servers, "{shown}");
    }
    let rsa = read(pem!("authority-rsa1024"));
    assert_eq!(
        (rsa.key.to_string().as_str(), rsa.signature.to_string().as_str()),
        ("RSA with 1024 bits", "RSA with SHA-256")
    );
    assert_eq!(rsa.unsupported().as_deref(), Some("the key is RSA with 1024 bits"));
}

#[test]
fn purposes_and_times_of_both_forms_are_read() {
    let mut wanted = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    wanted.not_before = rcgen::date_time_ymd(1999, 12, 31);
    wanted.not_after = rcgen::date_time_ymd(2050, 1, 2);
    for (purposes, is_for_servers) in [
        (vec![], true),
        (vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth], false),
        (vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth, rcgen::ExtendedKeyUsagePurpose::ServerAuth], true),
        (vec![rcgen::ExtendedKeyUsagePurpose::Any], true),
    ] {
        wanted.extended_key_usages = purposes;
        let made = wanted.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let found = Certificate::parse(made.der()).unwrap();
        assert_eq!(found.is_for_servers, is_for_servers, "{:?}", wanted.extended_key_usages);
        assert_eq!(
            (found.not_before.to_string(), found.not_after.to_string()),
            ("1999-12-31T00:00:00Z".to_owned(), "2050-01-02T00:00:00Z".to_owned())
        );
    }
}

#[test]
fn what_is_cut_or_changed_is_no_certificate_and_no_panic() {
    let whole = CertificateDer::from_pem_slice(pem!("server-p521").as_bytes()).unwrap();
    for length in 0..whole.len() {
        assert_eq!(Certificate::parse(&whole[..length]), None, "{length}");
    }
    for place in 0..whole.len() {
        for value in [0, 0x7f, 0x80, 0xff] {
            let mut changed = whole.to_vec();
            changed[place] = value;
            let _ = Certificate::parse(&changed);
        }
    }
}

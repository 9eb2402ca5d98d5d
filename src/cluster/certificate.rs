//! What errors say of an X.509 certificate. Pure.
//!
//! TLS itself is checked by rustls. This file reads certificates again, those too that rustls refuses, so that an error can name
//! the certificate and what is wrong with it.

use std::fmt::{self, Write as _};

use jiff::Timestamp;

/// The parts of a certificate that errors name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Certificate {
    /// 1 or 3 in practice.
    pub(super) version: u8,
    pub(super) subject: String,
    pub(super) issuer: String,
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
    pub(super) key: Key,
    pub(super) signature: Signature,
    /// Whether it may be a server's: without a list of purposes, any certificate may.
    pub(super) is_for_servers: bool,
    /// The key as it stands in the certificate.
    pub(super) key_info: Vec<u8>,
}

/// The kind of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Key {
    /// RSA, with its length in bits.
    Rsa(usize),
    /// An elliptic curve.
    Curve(&'static str),
    /// Ed25519.
    Ed25519,
    /// Another kind.
    Other(String),
}

/// How a certificate is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signature {
    /// A kind that has a name here.
    Known(&'static str),
    /// Another kind.
    Other(String),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "RSA with {bits} bits"),
            Self::Curve(name) => write!(f, "ECDSA with {name}"),
            Self::Ed25519 => f.write_str("Ed25519"),
            Self::Other(identifier) => write!(f, "the algorithm {identifier}"),
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(name) => f.write_str(name),
            Self::Other(identifier) => write!(f, "the algorithm {identifier}"),
        }
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.subject)?;
        if self.subject == self.issuer {
            f.write_str(" (self-signed)")
        } else {
            write!(f, " (issued by \"{}\")", self.issuer)
        }
    }
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const BOOLEAN: u8 = 0x01;

impl Certificate {
    /// Reads a certificate in DER. `None`: it is none.
    pub(super) fn parse(der: &[u8]) -> Option<Self> {
        let mut outer = Reader(Reader(der).expect(SEQUENCE)?);
        let mut inner = Reader(outer.expect(SEQUENCE)?);
        let signature = signature(&algorithm(outer.expect(SEQUENCE)?)?.0);
        let version = match inner.optional(VERSION) {
            Some(version) => Reader(version).expect(INTEGER)?.first()?.checked_add(1)?,
            None => 1,
        };
        inner.expect(INTEGER)?;
        inner.expect(SEQUENCE)?;
        let issuer = name(inner.expect(SEQUENCE)?)?;
        let mut validity = Reader(inner.expect(SEQUENCE)?);
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let subject = name(inner.expect(SEQUENCE)?)?;
        let before = inner.0;
        let key = key(inner.expect(SEQUENCE)?)?;
        let key_info = before.get(..before.len() - inner.0.len())?.to_vec();
        let mut is_for_servers = true;
        while let Some((tag, content)) = inner.next() {
            if tag == EXTENSIONS {
                is_for_servers = purposes(content)?;
            }
        }
        Some(Self { version, subject, issuer, not_before, not_after, key, signature, is_for_servers, key_info })
    }

    /// What of its key cannot be verified here, though the certificate may be sound.
    pub(super) fn unsupported_key(&self) -> Option<String> {
        match &self.key {
            Key::Rsa(bits) if *bits < 2048 => Some(format!("the key is {}", self.key)),
            Key::Other(_) => Some(format!("the key is {}", self.key)),
            _ => None,
        }
    }

    /// The same of its signature, too.
    pub(super) fn unsupported(&self) -> Option<String> {
        self.unsupported_key().or_else(|| match &self.signature {
            Signature::Known("RSA with SHA-1") | Signature::Other(_) => {
                Some(format!("the signature is {}", self.signature))
            }
            Signature::Known(_) => None,
        })
    }
}

/// Whether an extension lists the purposes of the key without that of a server.
fn purposes(extensions: &[u8]) -> Option<bool> {
    let mut list = Reader(Reader(extensions).expect(SEQUENCE)?);
    while let Some((_, extension)) = list.next() {
        let mut extension = Reader(extension);
        if identifier(extension.expect(IDENTIFIER)?) != "2.5.29.37" {
            continue;
        }
        extension.optional(BOOLEAN);
        let mut purposes = Reader(Reader(extension.expect(OCTET_STRING)?).expect(SEQUENCE)?);
        let mut found = false;
        while let Some((_, purpose)) = purposes.next() {
            // The server's, and any.
            found |= ["1.3.6.1.5.5.7.3.1", "2.5.29.37.0"].contains(&identifier(purpose).as_str());
        }
        return Some(found);
    }
    Some(true)
}

fn key(info: &[u8]) -> Option<Key> {
    let mut info = Reader(info);
    let (kind, parameters) = algorithm(info.expect(SEQUENCE)?)?;
    Some(match kind.as_str() {
        "1.2.840.113549.1.1.1" => {
            let bits = info.expect(BIT_STRING)?.get(1..)?;
            let modulus = Reader(Reader(bits).expect(SEQUENCE)?).expect(INTEGER)?;
            let modulus = modulus.strip_prefix(&[0]).unwrap_or(modulus);
            Key::Rsa(modulus.len() * 8 - modulus.first()?.leading_zeros() as usize)
        }
        "1.2.840.10045.2.1" => match identifier(Reader(parameters).expect(IDENTIFIER)?).as_str() {
            "1.2.840.10045.3.1.7" => Key::Curve("P-256"),
            "1.3.132.0.34" => Key::Curve("P-384"),
            "1.3.132.0.35" => Key::Curve("P-521"),
            other => Key::Other(other.to_owned()),
        },
        "1.3.101.112" => Key::Ed25519,
        other => Key::Other(other.to_owned()),
    })
}

fn signature(identifier: &str) -> Signature {
    Signature::Known(match identifier {
        "1.2.840.113549.1.1.5" => "RSA with SHA-1",
        "1.2.840.113549.1.1.10" => "RSA-PSS",
        "1.2.840.113549.1.1.11" => "RSA with SHA-256",
        "1.2.840.113549.1.1.12" => "RSA with SHA-384",
        "1.2.840.113549.1.1.13" => "RSA with SHA-512",
        "1.2.840.10045.4.3.2" => "ECDSA with SHA-256",
        "1.2.840.10045.4.3.3" => "ECDSA with SHA-384",
        "1.2.840.10045.4.3.4" => "ECDSA with SHA-512",
        "1.3.101.112" => "Ed25519",
        other => return Signature::Other(other.to_owned()),
    })
}

/// An algorithm and its parameters.
fn algorithm(content: &[u8]) -> Option<(String, &[u8])> {
    let mut reader = Reader(content);
    let kind = identifier(reader.expect(IDENTIFIER)?);
    Some((kind, reader.0))
}

/// A name as OpenSSL and kubectl print it: `CN=api, O=example`.
fn name(content: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    let mut sets = Reader(content);
    while let Some((SET, set)) = sets.next() {
        let mut set = Reader(set);
        while let Some((SEQUENCE, pair)) = set.next() {
            let mut pair = Reader(pair);
            let kind = identifier(pair.expect(IDENTIFIER)?);
            let kind = match kind.as_str() {
                "2.5.4.3" => "CN",
                "2.5.4.6" => "C",
                "2.5.4.7" => "L",
                "2.5.4.8" => "ST",
                "2.5.4.10" => "O",
                "2.5.4.11" => "OU",
                other => other,
            };
            let text = String::from_utf8_lossy(pair.next()?.1);
            // The name comes from the other side, and ends in a log.
            let text: String = text.chars().filter(|letter| !letter.is_control()).take(100).collect();
            parts.push(format!("{kind}={text}"));
        }
    }
    // The most significant part comes last in DER and first for people.
    parts.reverse();
    Some(parts.join(", "))
}

/// An object identifier in dots.
fn identifier(content: &[u8]) -> String {
    let mut text = String::new();
    let mut value: u64 = 0;
    for byte in content.iter().take(32) {
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 != 0 {
            continue;
        }
        if text.is_empty() {
            let first = (value / 40).min(2);
            let _ = write!(text, "{first}.{}", value - first * 40);
        } else {
            let _ = write!(text, ".{value}");
        }
        value = 0;
    }
    text
}

/// Reads DER.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = match usize::from(*first) {
            length @ 0..=0x7f => (length, rest),
            bytes @ 0x81..=0x84 => {
                let (length, rest) = rest.split_at_checked(bytes - 0x80)?;
                (length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }

    fn expect(&mut self, wanted: u8) -> Option<&'a [u8]> {
        self.next().filter(|(tag, _)| *tag == wanted).map(|(_, content)| content)
    }

    fn optional(&mut self, wanted: u8) -> Option<&'a [u8]> {
        if self.0.first() == Some(&wanted) { self.expect(wanted) } else { None }
    }

    fn time(&mut self) -> Option<Timestamp> {
        let (tag, content) = self.next()?;
        let text = std::str::from_utf8(content).ok()?;
        let text = match tag {
            // Two digits of a year are those of 1950 to 2049.
            UTC_TIME => format!("{}{text}", if text.get(..2)? < "50" { "20" } else { "19" }),
            GENERALIZED_TIME => text.to_owned(),
            _ => return None,
        };
        let part = |range| text.get(range);
        let (date, time) = ((part(0..4)?, part(4..6)?, part(6..8)?), (part(8..10)?, part(10..12)?, part(12..15)?));
        format!("{}-{}-{}T{}:{}:{}", date.0, date.1, date.2, time.0, time.1, time.2).parse().ok()
    }
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
mod tests;

//! What tells one request from another. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use super::Request;
use crate::roles::provisioner::topology::Segment;

impl Request {
    /// What tells this request from another for the same claim: 16 hexadecimal digits over all that is sent, but for secrets'
    /// values. No secret: whoever may read the claim and its class can compute it.
    pub fn digest(&self) -> String {
        let mut digest = Framed(Sha256::new());
        digest.text(&self.volume_name);
        digest.map(&self.parameters);
        digest.bytes(&self.required_bytes.to_le_bytes());
        digest.count(self.capabilities.len());
        for capability in &self.capabilities {
            digest.bytes(&capability.encode_to_vec());
        }
        digest.bytes(&self.content_source.as_ref().map(|source| source.to_proto().encode_to_vec()).unwrap_or_default());
        digest.count(usize::from(self.requirement.is_some()));
        if let Some(requirement) = &self.requirement {
            digest.terms(&requirement.requisite);
            digest.terms(&requirement.preferred);
        }
        digest.map(&self.mutable_parameters);
        digest.count(usize::from(self.secret.is_some()));
        if let Some(secret) = &self.secret {
            digest.text(&secret.namespace);
            digest.text(&secret.name);
        }
        let mut hex = String::with_capacity(16);
        for byte in digest.0.finalize().iter().take(8) {
            // Writing to a text can't fail.
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }
}

/// Length before content, so that no two requests run together into the same text.
struct Framed(Sha256);

impl Framed {
    fn count(&mut self, count: usize) {
        self.0.update((count as u64).to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn map(&mut self, map: &BTreeMap<String, String>) {
        self.count(map.len());
        for (key, value) in map {
            self.text(key);
            self.text(value);
        }
    }

    fn terms(&mut self, terms: &[Segment]) {
        self.count(terms.len());
        for term in terms {
            self.count(term.pairs().count());
            for (key, value) in term.pairs() {
                self.text(key);
                self.text(value);
            }
        }
    }
}

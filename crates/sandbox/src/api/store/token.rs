//! The `continue` token of a paged list: which version the list is of, and after which object it goes on. Pure.
//!
//! Clients must not look inside, so it is only text that survives a URL: hexadecimal digits.

use serde_json::{Value, json};

use super::Key;

/// A parsed token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Continue {
    /// The version of the whole list. `None`: continue with the latest version.
    pub(crate) version: Option<u64>,
    /// The last object of the page before.
    pub(crate) after: Key,
}

impl Continue {
    /// The form on the wire.
    pub(crate) fn encode(&self) -> String {
        let version = self.version.map_or_else(|| json!(-1), |version| json!(version));
        let text = json!([version, self.after.namespace, self.after.name]).to_string();
        text.bytes().fold(String::new(), |mut digits, byte| {
            use std::fmt::Write as _;
            // Writing into a String cannot fail.
            let _ = write!(digits, "{byte:02x}");
            digits
        })
    }

    /// From what a client sent; `None` if this server never sent it.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let bytes: Option<Vec<u8>> = (0..text.len())
            .step_by(2)
            .map(|at| text.get(at..at + 2).and_then(|digits| u8::from_str_radix(digits, 16).ok()))
            .collect();
        let value: Value = serde_json::from_slice(&bytes?).ok()?;
        let [version, namespace, name] = value.as_array()?.as_slice() else { return None };
        let version = if version.as_i64() == Some(-1) { None } else { Some(version.as_u64()?) };
        Some(Self { version, after: Key::new(namespace.as_str()?, name.as_str()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_journey_and_nonsense_does_not() {
        for version in [None, Some(42)] {
            let token = Continue { version, after: Key::new("default", "ä-1") };
            assert_eq!(Continue::decode(&token.encode()), Some(token));
        }
        for text in ["x", "abc", "7b7d", "ééé"] {
            assert_eq!(Continue::decode(text), None, "{text}");
        }
    }
}

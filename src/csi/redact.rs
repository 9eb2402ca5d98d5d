//! Secrets never print. Pure.
//!
//! Messages that carry the specification's `csi_secret` option get a `Debug` from `crates/base/build.rs` that shows
//! [`Stripped`](base::redact::Stripped) in the option's place, at any depth, because a message prints its parts by their own `Debug`. This file does the rest:
//! it prints a message on one line of bounded length (`Line`), and removes a request's secrets from the driver's error
//! text (`Secrets`), because more people can read a status or an Event than the Secret.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use base::redact::MARKER;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What stands in a URL as it is (RFC 3986, 2.3).
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Prints a message on one line, cut after so many characters (`None`: never).
///
/// Formatting stops at the cut: a page of ten thousand volumes costs no more than what is shown of it.
pub(super) struct Line<'a, T> {
    message: &'a T,
    limit: Option<usize>,
}

impl<'a, T: fmt::Debug> Line<'a, T> {
    pub(super) fn whole(message: &'a T) -> Self {
        Self { message, limit: None }
    }

    pub(super) fn cut(message: &'a T, limit: Option<usize>) -> Self {
        Self { message, limit }
    }
}

impl<T: fmt::Debug> fmt::Display for Line<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(limit) = self.limit else { return write!(f, "{:?}", self.message) };
        let mut cut = Cut { out: f, left: limit, is_over: false };
        match write!(cut, "{:?}", self.message) {
            Err(fmt::Error) if cut.is_over => write!(f, "... (cut at {limit} characters)"),
            result => result,
        }
    }
}

/// Passes on so many characters, then refuses more.
struct Cut<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    left: usize,
    is_over: bool,
}

impl fmt::Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match text.char_indices().nth(self.left) {
            None => {
                self.left -= text.chars().count();
                self.out.write_str(text)
            }
            Some((end, _)) => {
                self.left = 0;
                self.is_over = true;
                self.out.write_str(&text[..end])?;
                Err(fmt::Error)
            }
        }
    }
}

/// The values of one request's secrets, kept for as long as the call lasts.
pub(super) struct Secrets(Vec<String>);

/// Shorter values are ordinary words (`admin`, `true`) that an error message may contain without revealing a secret.
const SHORTEST_SECRET: usize = 6;

impl Secrets {
    pub(super) fn of(secrets: Option<&HashMap<String, String>>) -> Self {
        // A driver may use a value without its trailing newline, or a key line by line.
        let parts = |value: &str| {
            [value, value.trim()].into_iter().chain(value.lines().map(str::trim)).map(str::to_owned).collect::<Vec<_>>()
        };
        let mut values: Vec<String> =
            secrets.into_iter().flatten().flat_map(|(_, v)| parts(v)).filter(|v| v.len() >= SHORTEST_SECRET).collect();
        values.sort();
        values.dedup();
        Self(values)
    }

    /// `text` with each secret value in it stripped, as it is and as drivers quote or encode one.
    pub(super) fn strip(&self, text: &str) -> String {
        let mut forms: Vec<String> = self.0.iter().flat_map(|secret| forms(secret)).collect();
        // The longest first, because one may be part of another.
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.iter().fold(text.to_owned(), |text, form| text.replace(form.as_str(), MARKER))
    }
}

/// A value as it is, and as it stands in a quoted text, in JSON, in a URL, and in base64 of it alone.
fn forms(value: &str) -> Vec<String> {
    let quoted = format!("{value:?}");
    let json = serde_json::Value::from(value).to_string();
    // Go's JSON may stand in HTML.
    let in_html = json.replace('&', r"\u0026").replace('<', r"\u003c").replace('>', r"\u003e");
    let [quoted, json, in_html] = [&quoted, &json, &in_html].map(|text| unquoted(text).to_owned());
    let in_url = utf8_percent_encode(value, UNRESERVED).to_string();
    let in_form = in_url.replace("%20", "+");
    let [plain, for_url] = [STANDARD_NO_PAD.encode(value), URL_SAFE_NO_PAD.encode(value)];
    let mut forms = vec![value.to_owned(), quoted, json, in_html, in_url, in_form, plain, for_url];
    forms.sort();
    forms.dedup();
    forms
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto;

    fn secrets() -> HashMap<String, String> {
        HashMap::from([("user".into(), "admin".into()), ("key".into(), "hunter2-hunter2".into())])
    }

    #[test]
    fn a_request_prints_on_one_line_without_its_secrets() {
        let request = proto::ControllerPublishVolumeRequest {
            volume_id: "vol\n1".into(),
            secrets: secrets(),
            ..Default::default()
        };
        let line = Line::whole(&request).to_string();
        assert!(line.contains("secrets: ***stripped***") && line.contains(r"vol\n1"), "{line}");
        assert!(!line.contains("hunter2") && !line.contains("admin") && !line.contains('\n'), "{line}");
    }

    #[test]
    fn nested_messages_strip_their_secrets_too_r40() {
        let requests = vec![Some(proto::NodePublishVolumeRequest { secrets: secrets(), ..Default::default() })];
        let line = Line::whole(&requests).to_string();
        assert!(line.contains(MARKER) && !line.contains("hunter2"), "{line}");
    }

    #[test]
    fn an_absent_secret_is_shown_as_absent() {
        let line = Line::whole(&proto::DeleteVolumeRequest::default()).to_string();
        assert!(line.contains("secrets: {}"), "{line}");
    }

    #[test]
    fn unknown_enum_numbers_print_as_numbers_r40() {
        use proto::volume_capability::{AccessMode, access_mode::Mode};
        let mode = |mode: i32| Line::whole(&AccessMode { mode }).to_string();
        assert!(mode(Mode::MultiNodeMultiWriter as i32).contains("MultiNodeMultiWriter"));
        assert!(mode(4711).contains("4711"));
    }

    #[test]
    fn huge_responses_are_cut_by_characters_r34() {
        let text = "é".repeat(5000);
        assert_eq!(Line::cut(&text, Some(3)).to_string(), "\"éé... (cut at 3 characters)");
        assert_eq!(Line::cut(&"ab", Some(4)).to_string(), "\"ab\"");
        assert_eq!(Line::cut(&"ab", Some(0)).to_string(), "... (cut at 0 characters)");
        assert_eq!(Line::cut(&"ab", None).to_string(), "\"ab\"");
    }

    #[test]
    fn a_driver_that_echoes_a_secret_is_stripped() {
        let secrets = Secrets::of(Some(&secrets()));
        assert_eq!(secrets.strip("admin: bad key hunter2-hunter2"), "admin: bad key ***stripped***");
        assert_eq!(Secrets::of(None).strip("as it is"), "as it is");
    }

    #[test]
    fn a_driver_that_echoes_a_secret_as_it_read_it_is_stripped() {
        let key = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA\n  wJalrXUtnFEMI\r\nend\n-----END KEY-----\n";
        let secrets = HashMap::from([("password".into(), "hunter2-hunter2\n".into()), ("key".into(), key.into())]);
        let secrets = Secrets::of(Some(&secrets));
        assert_eq!(secrets.strip("bad key \"hunter2-hunter2\""), "bad key \"***stripped***\"");
        assert_eq!(secrets.strip("bad line `MIIEpAIBAAKCAQEA`"), "bad line `***stripped***`");
        assert_eq!(secrets.strip("bad line wJalrXUtnFEMI"), "bad line ***stripped***");
        assert_eq!(secrets.strip(&format!("<{key}>")), "<***stripped***>");
        assert_eq!(secrets.strip("the end"), "the end", "a word that gives nothing away");
    }

    #[test]
    fn a_driver_that_echoes_a_secret_in_quotes_or_encoded_is_stripped() {
        let secrets = HashMap::from([("key".into(), "a\"b<c>&d e\\f?".into())]);
        let secrets = Secrets::of(Some(&secrets));
        for echoed in [
            r#"bad key "a\"b<c>&d e\\f?""#,
            r#"{"key":"a\"b\u003cc\u003e\u0026d e\\f?"}"#,
            "GET /login?key=a%22b%3Cc%3E%26d%20e%5Cf%3F",
            "key=a%22b%3Cc%3E%26d+e%5Cf%3F&user=",
            "Authorization: YSJiPGM+JmQgZVxmPw==",
            "YSJiPGM-JmQgZVxmPw",
        ] {
            let stripped = secrets.strip(echoed);
            assert!(stripped.contains(MARKER), "{echoed}: {stripped}");
            assert!(!["b<c", "u003c", "%22", "YSJ"].iter().any(|part| stripped.contains(part)), "{stripped}");
        }
    }

    #[test]
    fn the_longer_of_two_overlapping_secrets_is_stripped_first() {
        let secrets = HashMap::from([("a".into(), "abcdef".into()), ("b".into(), "abcdefgh".into())]);
        assert_eq!(Secrets::of(Some(&secrets)).strip("<abcdefgh>"), "<***stripped***>");
    }
}

//! Transcripts that can be compared between two servers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// Members that only one of two servers has, or that a case isn't about: `managedFields` is shown where a case asks for it.
const NOISE: [&str; 1] = ["managedFields"];

/// What the version of a list is called that comes in pages.
const PAGED: &str = "PAGED";

/// What the version of the whole store is called, which others write to: it may be the last object's or any later one.
const OF_THE_LIST: &str = "OF-THE-LIST";

/// The transcript of one conversation.
pub(crate) struct Transcript {
    case: String,
    text: String,
    seen: BTreeMap<&'static str, Vec<String>>,
    /// Where the last watch begins in the text.
    begun: usize,
    /// Whether `managedFields` are shown.
    pub(crate) managed_fields: bool,
}

impl Transcript {
    pub(crate) fn new(case: &str) -> Self {
        Self { case: case.to_owned(), text: String::new(), seen: BTreeMap::new(), begun: 0, managed_fields: false }
    }

    /// Something begins that may be withdrawn.
    pub(crate) fn begin(&mut self) {
        self.begun = self.text.len();
    }

    /// It is left out after all.
    pub(crate) fn withdraw(&mut self) {
        self.text.truncate(self.begun);
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// One request and its answer.
    #[expect(clippy::too_many_arguments, reason = "an exchange has that many parts")]
    pub(crate) fn exchange(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        media: &str,
        body: Option<&Value>,
        code: u16,
        answer: &Value,
    ) {
        let _ = writeln!(self.text, "{method} {path}");
        for (name, value) in headers {
            let _ = writeln!(self.text, "  {name}: {value}");
        }
        if let Some(body) = body {
            let short = media.strip_prefix("application/").unwrap_or(media);
            let body = self.normal(body);
            let _ = writeln!(self.text, "  {short} {}", shortened(&body));
        }
        let answer = self.normal(answer);
        let shown = serde_yaml::to_string(&answer).unwrap_or_default();
        let _ = writeln!(self.text, "-> {code}");
        for line in shown.lines() {
            let _ = writeln!(self.text, "   {line}");
        }
        self.text.push('\n');
    }

    /// One event of a watch.
    pub(crate) fn event(&mut self, path: &str, code: u16, event: &Value) {
        let mut event = event.clone();
        let bookmark = if event["type"] == "BOOKMARK" { event.pointer_mut("/object/metadata") } else { None };
        // How far the store has come, and not the version of an object.
        let version = bookmark.and_then(|metadata| metadata.as_object_mut()?.remove("resourceVersion"));
        let mut event = self.normal(&event);
        if version.is_some_and(|version| version != "") {
            event["object"]["metadata"]["resourceVersion"] = OF_THE_LIST.into();
        }
        let _ = writeln!(self.text, "WATCH {path}\n-> {code} {}\n", shortened(&event));
    }

    /// A text with everything peculiar to this run named by its number.
    pub(crate) fn clean(&self, text: &str) -> String {
        let mut clean = text.replace(&self.case, "CASE");
        for (kind, values) in &self.seen {
            for (i, value) in values.iter().enumerate() {
                let name = format!("{kind}{}", i + 1);
                let is_version = ["VERSION", PAGED].contains(kind);
                clean = if is_version { replace_version(&clean, value, &name) } else { clean.replace(value, &name) };
            }
        }
        clean
    }

    fn numbered(&mut self, kind: &'static str, value: &str) -> String {
        let values = self.seen.entry(kind).or_default();
        let i = values.iter().position(|it| it == value).unwrap_or_else(|| {
            values.push(value.to_owned());
            values.len() - 1
        });
        format!("{kind}{}", i + 1)
    }

    fn member(&mut self, key: &str, value: &Value) -> Value {
        match (key, value) {
            ("uid", Value::String(uid)) if !uid.is_empty() => self.numbered("UID", uid).into(),
            ("resourceVersion", Value::String(version)) if !version.is_empty() && version != "0" => {
                self.numbered("VERSION", version).into()
            }
            ("continue", Value::String(token)) if !token.is_empty() => self.numbered("CONTINUE", token).into(),
            ("message", Value::String(text)) => self.clean(&plain(text)).into(),
            // The same fault is shown once.
            ("causes", Value::Array(causes)) => {
                let mut distinct: Vec<Value> = Vec::new();
                for cause in causes.iter().map(|cause| self.normal(cause)) {
                    if !distinct.contains(&cause) {
                        distinct.push(cause);
                    }
                }
                distinct.into()
            }
            // Documentation of the fields that a table's columns show.
            ("description", Value::String(_)) => "".into(),
            (_, value) => self.normal(value),
        }
    }

    /// The metadata of a list.
    fn list_metadata(&mut self, metadata: &Value) -> Value {
        let version = metadata["resourceVersion"].as_str().unwrap_or_default();
        let is_page = metadata.get("continue").is_some_and(|token| *token != "");
        // The transcript shows that the pages of one list have one version.
        let version = if is_page { self.numbered(PAGED, version) } else { OF_THE_LIST.to_owned() };
        let others = metadata.as_object().into_iter().flatten().filter(|(key, _)| *key != "resourceVersion");
        let mut normal: Value = others.map(|(key, value)| (key.clone(), self.member(key, value))).collect();
        normal["resourceVersion"] = version.into();
        normal
    }

    fn normal(&mut self, value: &Value) -> Value {
        match value {
            Value::Object(members) => {
                let mut normal = serde_json::Map::new();
                let is_list = ["items", "rows"].iter().any(|key| members.get(*key).is_some_and(Value::is_array));
                let is_of_version = is_patch_of_version(members);
                for (key, value) in members {
                    if is_of_version && key == "value" {
                        normal.insert(key.clone(), self.member("resourceVersion", value));
                        continue;
                    }
                    if is_list && key == "metadata" {
                        normal.insert(key.clone(), self.list_metadata(value));
                        continue;
                    }
                    if self.managed_fields || !NOISE.contains(&key.as_str()) {
                        // A quota has the name of a class in its keys.
                        normal.insert(key.replace(&self.case, "CASE"), self.member(key, value));
                    }
                }
                without_ages(&mut normal);
                Value::Object(normal)
            }
            Value::Array(items) => items.iter().map(|item| self.normal(item)).collect(),
            Value::String(text) if is_time(text) => "TIME".into(),
            Value::String(text) => self.clean(text).into(),
            _ => value.clone(),
        }
    }
}

/// A body on one line; a very long text in it by its length.
fn shortened(body: &Value) -> String {
    fn short(value: &Value) -> Value {
        match value {
            Value::String(text) if text.len() > 300 => format!("({} bytes)", text.len()).into(),
            Value::Array(items) => items.iter().map(short).collect(),
            Value::Object(members) => members.iter().map(|(key, value)| (key.clone(), short(value))).collect(),
            _ => value.clone(),
        }
    }
    short(body).to_string()
}

/// A message without what comes from the inside of a Go program: dumps of structs, differences of dumps, a parser's state.
fn plain(message: &str) -> String {
    let mut text = message.to_owned();
    for (begin, end) in [("Invalid value: {", "}: "), ("Invalid value: \"{", "}\": ")] {
        if let (Some(from), Some(to)) = (text.find(begin), text.rfind(end)) {
            text.replace_range(from + begin.len()..to, "...");
        }
    }
    for (end, keep) in [
        ("\n@@", ""),
        (": cannot parse ", ""),
        ("continue key is not valid", "continue key is not valid"),
        ("json parse error", "json parse error"),
    ] {
        if let Some(at) = text.find(end) {
            text.truncate(at + keep.len());
        }
    }
    text
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok()
}

/// Whether this is an operation of a JSON patch on an object's version.
fn is_patch_of_version(members: &serde_json::Map<String, Value>) -> bool {
    members.get("path").and_then(Value::as_str).is_some_and(|path| path.ends_with("/resourceVersion"))
}

/// A table's cells that tell how long ago an object was made: a busy machine takes its time.
fn without_ages(table: &mut serde_json::Map<String, Value>) {
    let columns = table.get("columnDefinitions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let ages: Vec<usize> = (0..columns.len()).filter(|&at| columns[at]["name"] == "Age").collect();
    for row in table.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        for at in &ages {
            if let Some(cell) = row["cells"].get_mut(*at).filter(|cell| cell.as_str().is_some_and(is_age)) {
                *cell = "AGE".into();
            }
        }
    }
}

/// As `kubectl` tells a young object's: `7s`, `2m`, `2m5s`.
fn is_age(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_digit() || "ms".contains(c))
}

/// Names a version in a text that is about versions. In any other the same number would be there by chance.
fn replace_version(text: &str, version: &str, name: &str) -> String {
    const PARAMETER: &str = "resourceVersion=";
    if text.contains(PARAMETER) {
        let parts: Vec<String> = text
            .split('&')
            .map(|part| match part.split_once(PARAMETER) {
                Some((before, value)) if value == version => format!("{before}{PARAMETER}{name}"),
                _ => part.to_owned(),
            })
            .collect();
        return parts.join("&");
    }
    if text.to_lowercase().contains("resourceversion") { replace_number(text, version, name) } else { text.to_owned() }
}

/// Replaces `number` where it isn't part of a longer word.
fn replace_number(text: &str, number: &str, name: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(number) {
        let (before, after) = (&rest[..at], &rest[at + number.len()..]);
        let part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let alone = !before.ends_with(part) && !after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '-');
        out.push_str(before);
        out.push_str(if alone { name } else { number });
        rest = after;
    }
    out.push_str(rest);
    out
}

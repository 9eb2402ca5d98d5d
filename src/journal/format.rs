//! The format of a segment: reads an object into entries, and makes requests from changes of entries. Pure.
//!
//! ```text
//! metadata:
//!   labels:      { csi-control-plane.io/journal: <driver> }
//!   annotations: { csi-control-plane.io/journal-version: "1", csi-control-plane.io/node: <node> }
//! data:
//!   <key>: {"in":"<uid of this object>","since":"<version>","at":"2026-01-01T00:00:00.000Z", <the content's members>}
//! ```
//!
//! The API gives each object a uid, so `in` proves that the daemon wrote the entry for this object (J9). An entry with another uid, or
//! without one, is a *copy*: a backup tool or a person has put it there, perhaps from another cluster. `since` is the version of the object
//! before the entry was first written: all that came of the request has a later version, so the API's history from there on proves what
//! came of it (J10).
//!
//! A write contains only what it changes. Its patch names the uid and the version of the object that it builds on, so the
//! server refuses the patch if the object has changed since.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::place::{Place, VERSION};
use super::unreadable::{Unreadable, UnreadableReason};
use crate::cluster::names::{ANNOTATION_JOURNAL_NODE, ANNOTATION_JOURNAL_VERSION, LABEL_JOURNAL};
use crate::cluster::{ConfigMap, Meta, Patch, SmolStr};

/// The longest key of a ConfigMap.
const LONGEST_KEY: usize = 253;

/// An entry's content: a type of the role. It must be a struct that accepts unknown members and has no member `at`. People
/// read its JSON in `kubectl get configmap`.
pub trait Content: Serialize + DeserializeOwned + Clone + PartialEq + Debug + Send + Sync + 'static {
    /// What the entry is about, in one line for the log.
    fn subject(&self) -> String;
}

/// An entry's key: a claim's uid.
pub(super) type Key = Arc<str>;

/// An object at one of its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) uid: Box<str>,
    pub(super) version: SmolStr,
}

/// An entry as an object holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) key: Key,
    pub(super) text: Arc<str>,
    pub(super) at: Timestamp,
    /// A version of the API from before the entry was first written. Empty: unknown.
    pub(super) since: SmolStr,
}

/// A segment that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) object: Version,
    /// The entries that were written for this object.
    pub(super) entries: Vec<Stored>,
    /// The entries that were not.
    pub(super) copies: Vec<Stored>,
}

/// The JSON of an entry.
#[derive(Serialize, Deserialize)]
struct Line<C> {
    at: Timestamp,
    #[serde(flatten)]
    content: C,
}

/// The members of an entry's JSON that say for which object it was written, and since when.
#[derive(Deserialize)]
struct Mark {
    #[serde(rename = "in")]
    object: Option<String>,
    #[serde(default)]
    since: SmolStr,
}

impl Version {
    pub(super) fn of(meta: &Meta) -> Self {
        Self { uid: meta.uid.clone(), version: meta.resource_version.clone().unwrap_or_default() }
    }
}

/// The text of an entry.
pub(super) fn text<E: Content>(at: Timestamp, content: &E) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Line { at, content })
}

/// Reads an entry.
pub(super) fn parse<E: Content>(text: &str) -> Result<(Timestamp, E), serde_json::Error> {
    serde_json::from_str(text).map(|Line { at, content }| (at, content))
}

/// The most bytes that [`marked`] adds to a text: a uid has 36, a version up to 20.
pub(super) const MARK: usize = r#""in":"","since":"","#.len() + 56;

/// The text of an entry as the object with this uid has it.
fn marked(uid: &str, since: &str, text: &str) -> String {
    let members = text.strip_prefix('{').unwrap_or(text);
    format!(r#"{{"in":{},"since":{},{members}"#, Value::from(uid), Value::from(since))
}

/// The text of an entry as it was before [`marked`], and since when the entry was there. `None`: the entry was not written for the object
/// with this uid.
fn unmarked<E: Content>(uid: &str, text: &str) -> Result<Option<(String, SmolStr)>, serde_json::Error> {
    let Mark { object, since } = serde_json::from_str(text)?;
    if uid.is_empty() || object.as_deref() != Some(uid) {
        return Ok(None);
    }
    let mark = marked(uid, &since, "{");
    if let Some(members) = text.strip_prefix(&mark) {
        return Ok(Some((format!("{{{members}"), since)));
    }
    // A person has changed the order of the members.
    let (at, content) = parse::<E>(text)?;
    Ok(Some((self::text(at, &content)?, since)))
}

/// Whether an entry can have this key.
pub(super) fn is_key(key: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    !key.is_empty() && key.len() <= LONGEST_KEY && key != "." && !key.starts_with("..") && key.chars().all(is_plain)
}

/// Reads segment `n` from its object. Each value must be an entry with this content. Which of them were written for this object, their
/// marks say.
pub(super) fn read<E: Content>(place: &Place, n: usize, object: ConfigMap) -> Result<Contents, Unreadable> {
    let unreadable = |reason, source| Unreadable { object: place.segment(n), reason, source };
    if let Some(reason) = misfit(place, &object) {
        return Err(unreadable(reason, None));
    }
    let version = Version::of(&object.metadata);
    let (mut entries, mut copies) = (Vec::with_capacity(object.data.len()), Vec::new());
    for (key, text) in object.data {
        match parse::<E>(&text).and_then(|(at, _)| Ok((at, unmarked::<E>(&version.uid, &text)?))) {
            Ok((at, Some((text, since)))) => entries.push(Stored { key: key.into(), text: text.into(), at, since }),
            Ok((at, None)) => {
                copies.push(Stored { key: key.into(), text: text.into(), at, since: SmolStr::default() });
            }
            Err(error) => return Err(unreadable(UnreadableReason::Value { key }, Some(Arc::new(error)))),
        }
    }
    Ok(Contents { object: version, entries, copies })
}

/// What is wrong with an object besides its values.
fn misfit(place: &Place, object: &ConfigMap) -> Option<UnreadableReason> {
    let meta = &object.metadata;
    let owned = |text: Option<&str>| text.map(str::to_owned);
    // The version first: a newer version may do anything else otherwise.
    match meta.annotation(ANNOTATION_JOURNAL_VERSION) {
        Some(VERSION) => {}
        found => {
            let newer = found.and_then(|found| found.parse().ok()).filter(|found| *found > 1);
            let unknown = || UnreadableReason::Version { found: owned(found) };
            return Some(newer.map_or_else(unknown, |version| UnreadableReason::Newer { version }));
        }
    }
    let driver = meta.labels.as_ref().and_then(|labels| labels.get(LABEL_JOURNAL));
    if driver != Some(&place.driver) {
        return Some(UnreadableReason::Driver { found: driver.cloned(), expected: place.driver.clone() });
    }
    let node = meta.annotation(ANNOTATION_JOURNAL_NODE);
    if node != place.node.as_deref() {
        return Some(UnreadableReason::Node { found: owned(node), expected: place.node.clone() });
    }
    if let Some(key) = object.binary_keys.first() {
        return Some(UnreadableReason::Binary { key: key.clone() });
    }
    object.is_immutable.then_some(UnreadableReason::Immutable)
}

/// The object that creates segment `n`. It has no entries: an entry names the uid, which the API gives the object with this request.
pub(super) fn creation(place: &Place, n: usize) -> Value {
    let mut annotations = BTreeMap::from([(ANNOTATION_JOURNAL_VERSION, VERSION)]);
    if let Some(node) = &place.node {
        annotations.insert(ANNOTATION_JOURNAL_NODE, node);
    }
    let name = place.segment(n);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name.name(),
            "namespace": name.namespace(),
            "labels": { LABEL_JOURNAL: place.driver },
            "annotations": annotations,
        },
        "data": {},
    })
}

/// The patch that sets and removes entries of an object, if it still has this version.
///
/// `since` has the entries among them that were written before, with the version from before that.
pub(super) fn change(
    basis: &Version,
    set: &[(Key, Arc<str>)],
    since: &BTreeMap<Key, SmolStr>,
    remove: &[Key],
) -> Patch {
    let removed = remove.iter().map(|key| (key.to_string(), Value::Null));
    let written = set.iter().map(|(key, text)| {
        let since = since.get(key).unwrap_or(&basis.version);
        (key.to_string(), Value::from(marked(&basis.uid, since, text)))
    });
    Patch::Merge(json!({
        "metadata": { "uid": basis.uid, "resourceVersion": basis.version },
        "data": removed.chain(written).collect::<Map<_, _>>(),
    }))
}

//! The request to the driver as the content itself records it: [`names::ANNOTATION_SNAPSHOTTING`] (snapshotter spec 14.1). Pure.
//!
//! Read again after a crash, it gives the same name whatever the configuration says by then, and the same parameters although the
//! class was changed or deleted. Who may edit contents may forge it; so it counts only if the name is made of the uid of the
//! content's own `VolumeSnapshot` or `VolumeGroupSnapshot`, and if its digest fits.
//!
//! It names the uid of the content that it was written for, which no backup tool can bring back. On another content it is a copy, and
//! so is that content: its snapshot may be in use, in this cluster or in another one. The uid alone stays when the request leaves, in
//! [`names::ANNOTATION_CONTENT_UID`]. See [`is_copied`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::roles::snapshotter::names;

use super::{facts, kind::Content};

/// The version that this program writes and understands.
const VERSION: u32 = 1;
/// Parameters whose JSON is longer are left out: all annotations of an object together may have 256 KiB.
const MOST_PARAMETERS: usize = 64 << 10;

/// What the driver is asked, and for which class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Intent {
    v: u32,
    /// The uid of the content that it was written for.
    pub uid: String,
    /// The driver that is asked.
    pub driver: String,
    /// The snapshot's name.
    pub name: String,
    /// The class that the parameters are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<IntentClass>,
    /// The parameters; `None`: they were too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<BTreeMap<String, String>>,
    /// Of name, source volumes and parameters.
    pub digest: String,
    /// The content bore a mark and no request when this was written: another program had called the driver for it, or for the content
    /// that it is a copy of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_inherited: bool,
}

/// The class of an intent, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntentClass {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// Why what stands on a content is not our intent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IntentFault {
    /// No JSON of this shape.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// Of another version.
    #[error("it has version {0}")]
    Version(u32),
    /// Of another content.
    #[error("it was written for the content with the uid {0}")]
    Copied(String),
    /// Of another driver.
    #[error("it is for driver {0}")]
    Driver(String),
    /// A name that no configuration makes.
    #[error("the name {0:?} is not made of the uid that the content refers to")]
    Name(String),
    /// Edited.
    #[error("its digest does not fit")]
    Digest,
}

impl Intent {
    /// The intent of a request for the content with this uid.
    pub fn new(
        uid: &str,
        driver: &str,
        name: &str,
        sources: &[String],
        parameters: &BTreeMap<String, String>,
        class: Option<IntentClass>,
    ) -> Self {
        let fits = serde_json::to_string(parameters).is_ok_and(|text| text.len() <= MOST_PARAMETERS);
        Self {
            v: VERSION,
            uid: uid.to_owned(),
            driver: driver.to_owned(),
            name: name.to_owned(),
            class,
            parameters: fits.then(|| parameters.clone()),
            digest: digest(name, sources, parameters),
            is_inherited: false,
        }
    }

    /// The same for a content that bore a mark already.
    #[must_use]
    pub fn inherited(self, is_inherited: bool) -> Self {
        Self { is_inherited, ..self }
    }

    /// The same for the content with this uid.
    #[must_use]
    pub fn for_content(self, uid: &str) -> Self {
        Self { uid: uid.to_owned(), ..self }
    }

    /// As the annotation has it. All of it is text, so it can be written.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The digest of a request. Each part is led by its length, and the volumes by their number, so that no two requests share one.
pub fn digest(name: &str, sources: &[String], parameters: &BTreeMap<String, String>) -> String {
    let mut hash = Sha256::new();
    let pairs = parameters.iter().flat_map(|(key, value)| [key.as_str(), value.as_str()]);
    hash.update(sources.len().to_be_bytes());
    for part in [name].into_iter().chain(sources.iter().map(String::as_str)).chain(pairs) {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

/// The intent that stands on a content, if one does.
pub fn read(content: &impl Content, driver: &str) -> Result<Option<Intent>, IntentFault> {
    let Some(text) = content.meta().annotation(names::ANNOTATION_SNAPSHOTTING) else { return Ok(None) };
    let intent: Intent = serde_json::from_str(text).map_err(|error| IntentFault::Unreadable(error.to_string()))?;
    if intent.v != VERSION {
        return Err(IntentFault::Version(intent.v));
    }
    if intent.uid != *content.meta().uid {
        return Err(IntentFault::Copied(intent.uid));
    }
    if intent.driver != driver {
        return Err(IntentFault::Driver(intent.driver));
    }
    if !is_made_of(&intent.name, &content.owner().uid) {
        return Err(IntentFault::Name(intent.name));
    }
    let fits = |parameters| digest(&intent.name, content.sources(), parameters) == intent.digest;
    if intent.parameters.as_ref().is_some_and(|parameters| !fits(parameters)) {
        return Err(IntentFault::Digest);
    }
    Ok(Some(intent))
}

/// Whether the content is a copy of another one: the request on it, or the uid, was written for that one. The snapshot belongs to the
/// original, so it is neither taken nor deleted for the copy. A content whose spec names a snapshot needs no request and is no copy.
pub fn is_copied(content: &impl Content) -> bool {
    #[derive(Deserialize)]
    struct WrittenFor {
        uid: String,
    }
    if facts::given_handle(content).is_some() {
        return false;
    }
    let (meta, is_of_another) = (content.meta(), |uid: &str| uid != &*content.meta().uid);
    let request = meta.annotation(names::ANNOTATION_SNAPSHOTTING);
    let request: Option<WrittenFor> = request.and_then(|text| serde_json::from_str(text).ok());
    request.is_some_and(|read| is_of_another(&read.uid))
        || meta.annotation(names::ANNOTATION_CONTENT_UID).is_some_and(is_of_another)
}

/// Whether the request on a content was written beside another writer's mark. See [`Intent::is_inherited`].
pub fn is_inherited(content: &impl Content) -> bool {
    let text = content.meta().annotation(names::ANNOTATION_SNAPSHOTTING);
    text.is_some_and(|text| serde_json::from_str(text).is_ok_and(|intent: Intent| intent.is_inherited))
}

/// Whether some configuration makes this name of the uid: a prefix, a dash, and the uid, or the first of its digits.
fn is_made_of(name: &str, uid: &str) -> bool {
    let digits = uid.replace('-', "");
    let is_prefix = |prefix: Option<&str>| prefix.is_some_and(|prefix| prefix.len() > 1 && prefix.ends_with('-'));
    let mut short = (1..=digits.len()).filter_map(|length| digits.get(..length));
    !digits.is_empty() && (is_prefix(name.strip_suffix(uid)) || short.any(|short| is_prefix(name.strip_suffix(short))))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixtures::{DRIVER, SNAPSHOT_UID, content};
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn volumes(ids: &[&str]) -> Vec<String> {
        ids.iter().map(|&id| id.to_owned()).collect()
    }

    fn intent() -> Intent {
        let class = IntentClass { name: "fast".into(), uid: "class-uid".into() };
        Intent::new(
            "content-uid",
            DRIVER,
            &format!("snapshot-{SNAPSHOT_UID}"),
            &volumes(&["vol-1"]),
            &parameters(&[("tier", "1")]),
            Some(class),
        )
    }

    fn found(text: &str) -> Result<Option<Intent>, IntentFault> {
        let content = content(json!({ "metadata": { "annotations": { names::ANNOTATION_SNAPSHOTTING: text } } }));
        read(&content, DRIVER)
    }

    #[test]
    fn s41_an_intent_is_read_as_it_was_written_and_tells_one_request_from_another() {
        assert_eq!(found(&intent().to_text()), Ok(Some(intent())));
        assert_eq!(read(&content(json!({})), DRIVER), Ok(None));
        let one = |name, sources: &[&str], pairs| digest(name, &volumes(sources), &parameters(pairs));
        let same = one("n", &["v"], &[("a", "b")]);
        let others = [
            one("nv", &[""], &[("a", "b")]),
            one("n", &["v"], &[("ab", "")]),
            one("n", &["v"], &[]),
            one("n", &["v", "a", "b"], &[]),
        ];
        for other in others {
            assert_ne!(same, other);
        }
    }

    #[test]
    fn what_was_forged_or_edited_does_not_count() {
        let changed = |key: &str, value: Value| {
            let mut text = serde_json::to_value(intent()).unwrap();
            text[key] = value;
            found(&text.to_string())
        };
        assert_eq!(changed("v", json!(2)), Err(IntentFault::Version(2)));
        assert_eq!(changed("uid", json!("other")), Err(IntentFault::Copied("other".into())));
        assert_eq!(changed("driver", json!("other")), Err(IntentFault::Driver("other".into())));
        assert_eq!(changed("name", json!("snapshot-x")), Err(IntentFault::Name("snapshot-x".into())));
        assert_eq!(changed("parameters", json!({ "tier": "2" })), Err(IntentFault::Digest));
        assert!(matches!(changed("parameters", json!({ "tier": 1 })), Err(IntentFault::Unreadable(_))));
        assert!(matches!(found("snapshot-1"), Err(IntentFault::Unreadable(_))));
    }

    #[test]
    fn j9_a_request_that_was_written_for_another_content_makes_a_copy_of_the_one_that_carries_it() {
        let on = |metadata: Value, spec: Value| {
            let text = intent().to_text();
            let annotated =
                json!({ "metadata": { "annotations": { names::ANNOTATION_SNAPSHOTTING: text } }, "spec": spec });
            is_copied(&content(crate::roles::kit::fixtures::merged(annotated, json!({ "metadata": metadata }))))
        };
        assert!(!on(json!({}), json!({})), "the one that it was written for");
        assert!(on(json!({ "uid": "restored" }), json!({})));
        let given = json!({ "source": { "volumeHandle": null, "snapshotHandle": "old-1" } });
        assert!(!on(json!({ "uid": "restored" }), given), "it says by itself which snapshot it is of");
        for text in ["{}", "snapshot-1", "{\"uid\":7}"] {
            let annotations = json!({ "metadata": { "annotations": { names::ANNOTATION_SNAPSHOTTING: text } } });
            assert!(!is_copied(&content(annotations)), "{text} names nobody, and is replaced");
        }
        for (uid, expected) in [("content-uid", false), ("of another", true)] {
            let written = json!({ "metadata": { "annotations": { names::ANNOTATION_CONTENT_UID: uid } } });
            assert_eq!(is_copied(&content(written)), expected, "{uid}: also without the request");
        }
    }

    #[test]
    fn a_name_is_made_of_a_prefix_and_the_uid_or_its_first_digits() {
        let uid = "123e4567-e89b-12d3-a456-426614174000";
        for (name, expected) in [
            ("snapshot-123e4567-e89b-12d3-a456-426614174000", true),
            ("s-123e4567e89b12d3a456426614174000", true),
            ("s-1", true),
            ("s-2", false),
            ("123e4567", false),
            ("-1", false),
            ("s-", false),
        ] {
            assert_eq!(is_made_of(name, uid), expected, "{name}");
        }
        assert!(!is_made_of("s-", ""), "an unbound content has no name");
    }

    #[test]
    fn parameters_that_are_too_long_are_left_out_and_their_digest_stays() {
        let long = parameters(&[("key", &"x".repeat(MOST_PARAMETERS))]);
        let name = format!("snapshot-{SNAPSHOT_UID}");
        let intent = Intent::new("content-uid", DRIVER, &name, &volumes(&["vol-1"]), &long, None);
        assert_eq!(intent.parameters, None);
        assert!(intent.to_text().len() < 300);
        let read = found(&intent.to_text()).unwrap().unwrap();
        assert_eq!(read.digest, digest(&intent.name, &volumes(&["vol-1"]), &long));
    }
}

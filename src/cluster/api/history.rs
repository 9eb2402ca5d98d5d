//! What has become of the objects of a kind since a version: the API's own history.
//!
//! A watch that begins at an old version tells every change since then, or refuses because it no longer has them all: etcd forgets after
//! five minutes by default. So its answer is a proof where a list is none: an object that is not there may never have been there, or may
//! have come and gone.
//!
//! Versions of different kinds can be compared, because a server keeps its kinds in one etcd (all but Events).

use std::collections::BTreeMap;

use kube::Resource as _;
use serde::Deserialize;

use super::{Api, Call};
use crate::cluster::error::{ApiError, ApiErrorKind, Verb};
use crate::cluster::meta::Meta;
use crate::cluster::names::ObjectName;
use crate::cluster::objects::Object;

/// How long a server may keep the watch open, in seconds. It sends a bookmark two seconds before the end, and with it the proof that it has
/// told everything up to there. Nothing is read after that.
const SECONDS: u32 = 3;
/// How often it is asked again if its bookmark is older than the present.
const TRIES: u32 = 4;
/// The code of an error inside a watch: the version is too old.
const EXPIRED: u16 = 410;

/// What has become of the objects of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum History<K> {
    /// All objects that were created, changed or deleted, by name and uid, as the last change shows them.
    Whole(Changed<K>),
    /// The server no longer has all changes since that version, or cannot prove that it has told all.
    Unknown,
}

/// Objects by name and uid: those that had the same name one after the other differ in their uid.
type Changed<K> = BTreeMap<String, BTreeMap<String, K>>;

/// A change, in a watch.
#[derive(Deserialize)]
struct WireChange {
    #[serde(rename = "type")]
    what: String,
    object: serde_json::Value,
}

/// What one watch has told.
#[derive(Debug)]
struct Told<K> {
    changed: Changed<K>,
    /// Everything up to this version was told.
    until: Option<u128>,
    is_too_old: bool,
}

impl Api {
    /// Reads what has become of the objects of a kind that has no namespace since this version, up to the present. Takes a second or more:
    /// the server says late that it has told everything.
    pub async fn history<K: Object>(&self, since: &str) -> Result<History<K>, ApiError> {
        let Some(now) = self.present::<K>().await? else { return Ok(History::Unknown) };
        // A version from the future is of another server, or of this one before it was restored from a backup.
        if since.parse::<u128>().map_or(true, |since| since > now) {
            return Ok(History::Unknown);
        }
        for _ in 0..TRIES {
            let told = match self.told::<K>(since).await {
                Err(error) if error.kind() == ApiErrorKind::Gone => return Ok(History::Unknown),
                told => told?,
            };
            if told.is_too_old {
                return Ok(History::Unknown);
            }
            if told.until.is_some_and(|until| until >= now) {
                return Ok(History::Whole(told.changed));
            }
        }
        Ok(History::Unknown)
    }

    /// The last state of an object that is gone, by the API's own history since the version in which it was last seen. `None`: the server
    /// no longer has that history, or knows of no end of the object.
    pub async fn last_state<K: Object>(
        &self,
        name: &ObjectName,
        uid: &str,
        since: &str,
    ) -> Result<Option<K>, ApiError> {
        let url = self.kind_url::<K::Kind>(name);
        let last = self.call_for(
            Call {
                verb: Verb::Watch,
                resource: K::Kind::plural(&()).into_owned(),
                object: name,
                url: format!(
                    "{url}?watch=true&resourceVersion={since}&fieldSelector=metadata.name%3D{}&timeoutSeconds={SECONDS}",
                    name.name()
                ),
                content: None,
            },
            |body| matches!(end_of::<K>(body, uid), Ok(Some(_))),
            |body| end_of(body, uid),
        );
        match last.await {
            Err(error) if error.kind() == ApiErrorKind::Gone => Ok(None),
            last => last,
        }
    }

    async fn told<K: Object>(&self, since: &str) -> Result<Told<K>, ApiError> {
        let name = ObjectName::cluster("");
        let url = self.kind_url::<K::Kind>(&name);
        self.call_for(
            Call {
                verb: Verb::Watch,
                resource: K::Kind::plural(&()).into_owned(),
                object: &name,
                url: format!(
                    "{url}?watch=true&resourceVersion={since}&allowWatchBookmarks=true&timeoutSeconds={SECONDS}"
                ),
                content: None,
            },
            |body| read::<K>(body).is_ok_and(|told| told.until.is_some() || told.is_too_old),
            read,
        )
        .await
    }
}

/// The object with this uid as the body of a watch shows it when it was deleted.
fn end_of<K: Object>(body: &[u8], uid: &str) -> Result<Option<K>, serde_json::Error> {
    for change in serde_json::Deserializer::from_slice(body).into_iter::<WireChange>() {
        let WireChange { what, object } = match change {
            Err(error) if error.is_eof() => break,
            change => change?,
        };
        if what == "DELETED" && object["metadata"]["uid"] == uid {
            return serde_json::from_value(object).map(Some);
        }
    }
    Ok(None)
}

/// Reads the body of a watch: one change on each line. The last one may be cut off.
fn read<K: Object>(body: &[u8]) -> Result<Told<K>, serde_json::Error> {
    let mut told = Told { changed: Changed::new(), until: None, is_too_old: false };
    for change in serde_json::Deserializer::from_slice(body).into_iter::<WireChange>() {
        let WireChange { what, object } = match change {
            Err(error) if error.is_eof() => break,
            change => change?,
        };
        match what.as_str() {
            "BOOKMARK" => told.until = Meta::deserialize(&object["metadata"])?.version(),
            "ERROR" => told.is_too_old |= object["code"] == EXPIRED,
            _ => {
                let object: K = serde_json::from_value(object)?;
                let (name, uid) = (object.meta().name.to_string(), object.meta().uid.to_string());
                told.changed.entry(name).or_default().insert(uid, object);
            }
        }
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::PersistentVolume;

    #[test]
    fn a_watch_tells_changes_and_up_to_where_it_has_told_all() {
        let body = concat!(
            r#"{"type":"ADDED","object":{"kind":"PersistentVolume","metadata":{"name":"a","uid":"u1","resourceVersion":"5"},"spec":{}}}"#,
            "\n",
            r#"{"type":"DELETED","object":{"kind":"PersistentVolume","metadata":{"name":"a","uid":"u1","resourceVersion":"6"},"spec":{}}}"#,
            "\n",
            r#"{"type":"MODIFIED","object":{"kind":"PersistentVolume","metadata":{"name":"b","uid":"u2","resourceVersion":"7"},"spec":{}}}"#,
            "\n",
            r#"{"type":"BOOKMARK","object":{"kind":"PersistentVolume","metadata":{"resourceVersion":"9"}}}"#,
            "\n",
            r#"{"type":"ADDED","object":{"kind":"Persist"#,
        );
        let told = read::<PersistentVolume>(body.as_bytes()).unwrap();
        assert_eq!((told.until, told.is_too_old), (Some(9), false));
        let names: Vec<&str> = told.changed.keys().map(String::as_str).collect();
        assert_eq!(names, ["a", "b"]);
        let last = &told.changed["a"]["u1"].metadata;
        assert_eq!(last.version(), Some(6), "as the last change shows it");
    }

    #[test]
    fn the_last_state_of_an_object_is_that_of_its_deletion() {
        let line = |what: &str, uid: &str, policy: &str| {
            format!(
                r#"{{"type":"{what}","object":{{"metadata":{{"name":"a","uid":"{uid}","resourceVersion":"6"}},"spec":{{"driver":"d","deletionPolicy":"{policy}"}}}}}}"#
            )
        };
        let body = [line("MODIFIED", "u1", "Delete"), line("DELETED", "u1", "Retain"), line("ADDED", "u2", "Delete")];
        let end = |body: &[String], uid: &str| {
            end_of::<crate::cluster::VolumeSnapshotContent>(body.join("\n").as_bytes(), uid).unwrap()
        };
        assert_eq!(end(&body, "u1").unwrap().deletion_policy, "Retain");
        assert_eq!(end(&body[..1], "u1"), None, "it is still there, as far as this tells");
        assert_eq!(end(&body, "u2"), None, "a namesake");
        let expired = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        assert_eq!(end(&[expired.to_owned()], "u1"), None);
    }

    #[test]
    fn a_watch_that_has_not_said_that_it_is_whole_proves_nothing() {
        assert_eq!(read::<PersistentVolume>(b"").unwrap().until, None);
        let expired = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#;
        assert!(read::<PersistentVolume>(expired.as_bytes()).unwrap().is_too_old);
        assert!(read::<PersistentVolume>(b"no json").is_err());
    }
}

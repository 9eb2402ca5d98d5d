//! What a watch shows: a JSON document in each line.
//!
//! The type of an event may stand behind its object, so the text of the object is kept until the type is known. kube's own reader keeps
//! the object as serde's buffer of values instead. That is code for each kind, together a thirtieth of the daemon's program, and an object
//! that cannot be read comes out as an empty `Status`.

use std::error::Error;
use std::io;

use futures::{AsyncBufReadExt as _, Stream, StreamExt as _};
use kube::core::Status;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::value::RawValue;
use smol_str::SmolStr;
use tracing::trace;

use super::names::ObjectName;

/// An event of a watch.
#[derive(Debug)]
pub enum WatchEvent<K> {
    /// An object was created or changed.
    Applied(K),
    /// An object was deleted; as it was last.
    Deleted(K),
    /// Nothing else has happened up to this version.
    Reached(SmolStr),
    /// The server ends the watch, and says why.
    Ended(Box<Status>),
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Type {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct Line<'a> {
    r#type: Type,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// An object of any kind, of which a part may be missing.
#[derive(Deserialize)]
struct AnyObject {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    namespace: Option<SmolStr>,
    name: SmolStr,
    resource_version: SmolStr,
}

/// Begins a watch. A connection that is cut ends it without an error.
pub async fn watch_events<K: DeserializeOwned>(
    client: &kube::Client,
    request: http::Request<Vec<u8>>,
) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<K>>> + use<K>> {
    trace!(request = %request.uri(), "a watch begins");
    let lines = client.request_stream(request).await?.lines();
    Ok(lines.filter_map(async |line| match line {
        Ok(line) => read(&line).map_err(kube::Error::SerdeError).transpose(),
        Err(error) if is_cut(&error) => None,
        Err(error) => Some(Err(kube::Error::ReadEvents(error))),
    }))
}

/// `None`: the connection was cut within the line.
fn read<K: DeserializeOwned>(line: &str) -> serde_json::Result<Option<WatchEvent<K>>> {
    let Line { r#type, object } = match serde_json::from_str(line) {
        Err(error) if error.is_eof() => return Ok(None),
        line => line?,
    };
    let object = object.get();
    let parsed = || serde_json::from_str(object).map_err(|error| of_object(object, error));
    Ok(Some(match r#type {
        Type::Added | Type::Modified => WatchEvent::Applied(parsed()?),
        Type::Deleted => WatchEvent::Deleted(parsed()?),
        Type::Bookmark => WatchEvent::Reached(version_of(object)?),
        Type::Error => WatchEvent::Ended(serde_json::from_str(object)?),
    }))
}

fn version_of(bookmark: &str) -> serde_json::Result<SmolStr> {
    let AnyObject { metadata: Metadata { resource_version, .. } } = serde_json::from_str(bookmark)?;
    if resource_version.is_empty() {
        return Err(serde_json::Error::custom("a bookmark without a version"));
    }
    Ok(resource_version)
}

/// The error that an object cannot be read, with the object's name.
fn of_object(object: &str, error: serde_json::Error) -> serde_json::Error {
    let Ok(AnyObject { metadata: Metadata { namespace, name, .. } }) = serde_json::from_str(object) else {
        return error;
    };
    let name =
        namespace.map_or_else(|| ObjectName::cluster(&name), |namespace| ObjectName::namespaced(namespace, &name));
    serde_json::Error::custom(format_args!("{name}: {error}"))
}

/// Whether the connection has ended in the middle of an answer, as it does with the server's process or a proxy's patience. hyper tells a
/// cut chunk in words alone.
fn is_cut(error: &io::Error) -> bool {
    let is_end = |error: &(dyn Error + 'static)| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
    };
    let first = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
    let mut chain = std::iter::successors(first, |&error| error.source());
    is_end(error) || chain.any(is_end) || error.to_string().contains("unexpected EOF during chunk")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Deserialize)]
    struct WithSize {
        #[serde(rename = "size")]
        _size: u32,
    }

    #[test]
    fn an_event_is_read_whichever_comes_first_and_what_cannot_be_read_says_why() {
        let read = |line: &str| read::<Value>(line);
        let object = json!({ "metadata": { "name": "pv", "resourceVersion": "7" } });
        for line in
            [format!(r#"{{"type":"ADDED","object":{object}}}"#), format!(r#"{{"object":{object},"type":"MODIFIED"}}"#)]
        {
            assert!(matches!(read(&line), Ok(Some(WatchEvent::Applied(it))) if it == object), "{line}");
        }
        let deleted = json!({ "type": "DELETED", "object": object }).to_string();
        assert!(matches!(read(&deleted), Ok(Some(WatchEvent::Deleted(it))) if it == object));
        let bookmark = json!({ "type": "BOOKMARK", "object": object }).to_string();
        assert!(matches!(read(&bookmark), Ok(Some(WatchEvent::Reached(version))) if version == "7"));
        let status = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" });
        let ended = json!({ "type": "ERROR", "object": status }).to_string();
        assert!(matches!(read(&ended), Ok(Some(WatchEvent::Ended(status))) if status.code == 410));
        assert!(matches!(read(&deleted[..20]), Ok(None)), "the connection was cut");
        for (object, told) in [
            (r#"{"size":"x"}"#, "invalid type: string"),
            (r#"{"metadata":{"name":"pv"},"size":"x"}"#, "pv: invalid type: string"),
            (r#"{"metadata":{"namespace":"ns","name":"claim"},"size":"x"}"#, "ns/claim: invalid type: string"),
        ] {
            let broken = super::read::<WithSize>(&format!(r#"{{"type":"ADDED","object":{object}}}"#)).unwrap_err();
            assert!(broken.to_string().starts_with(told), "{broken}");
        }
        for object in [json!({ "metadata": {} }), json!({ "metadata": { "name": "pv", "resourceVersion": "" } })] {
            let bookmark = json!({ "type": "BOOKMARK", "object": object }).to_string();
            assert_eq!(read(&bookmark).unwrap_err().to_string(), "a bookmark without a version", "{bookmark}");
        }
        assert!(read(r#"{"type":"RENAMED","object":{}}"#).unwrap_err().to_string().contains("RENAMED"));
    }

    #[test]
    fn a_connection_that_is_cut_is_told_from_one_that_fails() {
        let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
        for (error, expected) in [
            (end(), true),
            (io::Error::other(end()), true),
            (io::Error::other("unexpected EOF during chunk size line"), true),
            (io::Error::other("refused"), false),
            (io::Error::from(io::ErrorKind::ConnectionReset), false),
        ] {
            assert_eq!(is_cut(&error), expected, "{error}");
        }
    }
}

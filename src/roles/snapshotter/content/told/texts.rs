//! What users read of a failure: in the status of the content and in Events (snapshotter spec 8). Pure.
//!
//! The beginnings, with `group snapshot` where `snapshot` stands for one, and the driver's line are csi-snapshotter's, byte for byte; quoted parts are escaped as Go's `%q` does.

use std::fmt::Write as _;

use crate::cluster::{ApiError, ApiErrorKind};
use crate::process::error_chain;
use crate::roles::kit::{AttemptError, OpError};

use crate::roles::snapshotter::content::record::error::{
    CLEAR, LOAD_DELETION_SECRET, LOAD_LIST_SECRET, LOAD_SECRET, READ_OWNER, RELEASE,
};
use crate::roles::snapshotter::content::record::{Content, ContentError, InvalidSnapshot, Operation, facts};

/// An Event's reason, and its text, which is also the status' message.
pub type Told = (String, String);

/// What users are told; `None`: the failure is about a write that only has to be repeated.
pub fn told<K: Content>(content: &K, operation: Operation, error: &ContentError) -> Option<Told> {
    if !is_told(error) {
        return None;
    }
    let (reason, word) = (K::NAMES.reason, K::NAMES.word);
    if operation == Operation::Delete {
        return Some((format!("{reason}DeleteError"), of_deletion::<K>(error)));
    }
    let text = text(content, error);
    let has_handle = facts::handle(content).is_some();
    Some(if has_handle {
        let text = format!("Failed to check and update {word} content: {text}");
        (format!("{reason}ContentCheckandUpdateFailed"), text)
    } else {
        (format!("{reason}CreationFailed"), format!("Failed to create {word}: {text}"))
    })
}

/// Users hear of what the driver says, of what is wrong with the objects, and of secrets. What the API refuses for good is told where
/// it keeps a content that should be gone.
fn is_told(error: &ContentError) -> bool {
    match error {
        AttemptError::Reason(InvalidSnapshot::Waits(..))
        | AttemptError::Unseen(..)
        | AttemptError::Replaced(..)
        | AttemptError::Endless(_) => false,
        AttemptError::Reason(_) | AttemptError::Driver(_) => true,
        AttemptError::Op(failed) if is_of_secret(error) => failed.is_of_missing_secret(),
        AttemptError::Op(failed) => [CLEAR, RELEASE, READ_OWNER].contains(&failed.op) && is_lasting(failed),
    }
}

fn is_lasting(failed: &OpError) -> bool {
    let is_passing = |error: &ApiError| error.is_transient() || error.kind().is_stale();
    failed.api().is_some_and(|error| !is_passing(error) && error.kind() != ApiErrorKind::NotFound)
}

/// Whether a secret could not be read.
pub fn is_of_secret(error: &ContentError) -> bool {
    [LOAD_SECRET, LOAD_LIST_SECRET, LOAD_DELETION_SECRET].into_iter().any(|op| error.is_of(op))
}

fn of_deletion<K: Content>(error: &ContentError) -> String {
    let is_reference = matches!(error, AttemptError::Reason(InvalidSnapshot::Secret { .. }));
    let begin = match error {
        _ if is_reference || is_of_secret(error) => "Failed to get snapshot credentials".to_owned(),
        AttemptError::Op(failed) if failed.op != READ_OWNER => "Failed to clear content status".to_owned(),
        _ => format!("Failed to delete {}", K::NAMES.word),
    };
    format!("{begin}: {}", error.message())
}

/// The part behind the colon.
fn text<K: Content>(content: &K, error: &ContentError) -> String {
    let (name, word, looked_up) = (&*content.meta().name, K::NAMES.word, K::NAMES.looked_up);
    let taking = |text: &str| format!("failed to take {word} of {}: {}", volumes(content), quoted(text));
    let listing = |text: &str| format!("failed to list {word} for {looked_up} {name}: {}", quoted(text));
    let input = |text: &str| {
        format!("failed to get input parameters to create {word} for {looked_up} {name}: {}", quoted(text))
    };
    // A snapshot of a group is looked up with the secret of its own annotations.
    let is_member = !K::NAMES.is_group && facts::group_handle(content).is_some();
    let annotated = |text: &str| format!("failed to get credentials from annotation for {word} content {name}: {text}");
    let is_asked_by_id =
        facts::given_handle(content).is_some() || (K::IS_ASKED_BY_ID && facts::stored_handle(content).is_some());
    match error {
        AttemptError::Driver(failed) if failed.method.ends_with(K::NAMES.call) => taking(&failed.to_string()),
        AttemptError::Driver(failed) => listing(&failed.to_string()),
        AttemptError::Reason(reason) => match reason {
            InvalidSnapshot::UnknownParameter(_) => {
                format!("failed to remove CSI Parameters of prefixed keys: {reason}")
            }
            InvalidSnapshot::ListClassMissing(_, class) | InvalidSnapshot::ClassUnread(_, class, _)
                if facts::handle(content).is_some() =>
            {
                format!("failed to get {word} class {class} for {word} content {name}: {reason}")
            }
            InvalidSnapshot::ListSecret(_) => {
                format!("failed to get secret reference for {word} content {name}: {reason}")
            }
            InvalidSnapshot::NotListed(_) => listing(&reason.to_string()),
            InvalidSnapshot::OddAnswer(_) | InvalidSnapshot::OddMembers(_) | InvalidSnapshot::Unsupported { .. }
                if is_asked_by_id =>
            {
                listing(&reason.to_string())
            }
            InvalidSnapshot::OddAnswer(_)
            | InvalidSnapshot::OddMembers(_)
            | InvalidSnapshot::OtherSnapshot { .. }
            | InvalidSnapshot::NameTaken { .. }
            | InvalidSnapshot::Unbound { .. }
            | InvalidSnapshot::Unsupported { .. } => taking(&reason.to_string()),
            InvalidSnapshot::Secret { .. } if is_member => annotated(&reason.to_string()),
            _ => input(&reason.to_string()),
        },
        AttemptError::Op(failed) if error.is_of(LOAD_LIST_SECRET) => {
            format!("failed to get credentials for {word} content {name}: {}", cause(failed))
        }
        AttemptError::Op(failed) if is_of_secret(error) => {
            let text = format!("cannot get credentials for {word} content \"{name}\": {}", cause(failed));
            if is_member { annotated(&text) } else { input(&text) }
        }
        AttemptError::Op(_) | AttemptError::Unseen(..) | AttemptError::Replaced(..) | AttemptError::Endless(_) => {
            error.message()
        }
    }
}

/// The volumes of a content, as Go prints them.
fn volumes<K: Content>(content: &K) -> String {
    match content.sources() {
        [] => "the volume ".to_owned(),
        [volume] if !K::NAMES.is_group => format!("the volume {volume}"),
        volumes => format!("the volumes [{}]", volumes.join(" ")),
    }
}

fn cause(failed: &OpError) -> String {
    error_chain(&failed.source)
}

/// As Go's `%q`, but for characters that do not print.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Writing to a text cannot fail.
            c if c.is_ascii_control() => drop(write!(out, "\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tonic::Code;

    use super::*;
    use crate::cluster::VolumeSnapshotContent;
    use crate::csi::RpcError;
    use crate::roles::snapshotter::content::record::fixtures::{CLASSES, content, cut, given};
    use crate::roles::snapshotter::secrets::SecretFault;

    fn driver(method: &'static str, message: &str) -> ContentError {
        RpcError { method, code: Code::Internal, message: message.to_owned() }.into()
    }

    const CREATE: &str = "/csi.v1.Controller/CreateSnapshot";
    const LIST: &str = "/csi.v1.Controller/ListSnapshots";
    const DELETE: &str = "/csi.v1.Controller/DeleteSnapshot";

    #[test]
    fn s19_texts_are_the_sidecars_byte_for_byte() {
        let bare = content(json!({}));
        let of = |error: ContentError| told(&bare, Operation::Create, &error).unwrap().1;
        let input =
            "Failed to create snapshot: failed to get input parameters to create snapshot for content content-1: ";
        for (error, expected) in [
            (
                driver(CREATE, "no \"room\""),
                "Failed to create snapshot: failed to take snapshot of the volume vol-1: \"rpc error: code = Internal desc \
                 = no \\\"room\\\"\""
                    .to_owned(),
            ),
            (
                InvalidSnapshot::NoClass { of: "snapshot", content: "content-1".into() }.into(),
                format!("{input}\"failed to take snapshot content-1 without a snapshot class\""),
            ),
            (
                InvalidSnapshot::ClassMissing(CLASSES, "fast".into()).into(),
                format!("{input}\"volumesnapshotclass.snapshot.storage.k8s.io \\\"fast\\\" not found\""),
            ),
            (
                InvalidSnapshot::Secret { of: "snapshot", content: "content-1".into(), fault: SecretFault::Half }.into(),
                format!(
                    "{input}\"cannot retrieve secrets for snapshot content \\\"content-1\\\", err: secret name or \
                     namespace not specified\""
                ),
            ),
            (
                InvalidSnapshot::Unbound { of: "snapshot", content: "content-1".into() }.into(),
                "Failed to create snapshot: failed to take snapshot of the volume vol-1: \"cannot create snapshot. Snapshot \
                 content content-1 not bound to a snapshot\""
                    .to_owned(),
            ),
            (
                InvalidSnapshot::UnknownParameter("csi.storage.k8s.io/x".into()).into(),
                "Failed to create snapshot: failed to remove CSI Parameters of prefixed keys: found unknown parameter key \
                 \"csi.storage.k8s.io/x\" with reserved namespace csi.storage.k8s.io/"
                    .to_owned(),
            ),
        ] {
            assert_eq!(of(error), expected);
        }
    }

    #[test]
    fn the_texts_of_a_snapshot_of_a_group_are_the_sidecars_byte_for_byte() {
        let member = cut(json!({ "status": { "volumeGroupSnapshotHandle": "group-1" } }));
        let fault = InvalidSnapshot::Secret { of: "snapshot", content: "content-1".into(), fault: SecretFault::Half };
        assert_eq!(
            told(&member, Operation::Ready, &fault.into()).unwrap().1,
            "Failed to check and update snapshot content: failed to get credentials from annotation for snapshot content \
             content-1: cannot retrieve secrets for snapshot content \"content-1\", err: secret name or namespace not specified"
        );
    }

    #[test]
    fn the_reason_says_whether_there_is_a_handle() {
        let told = |content: &VolumeSnapshotContent, error| told(content, Operation::Ready, &error).unwrap();
        assert_eq!(told(&content(json!({})), driver(CREATE, "no")).0, "SnapshotCreationFailed");
        assert_eq!(told(&cut(json!({})), driver(CREATE, "no")).0, "SnapshotContentCheckandUpdateFailed");
        let (reason, text) = told(&given(json!({})), InvalidSnapshot::NotListed("old-1".into()).into());
        assert_eq!(reason, "SnapshotContentCheckandUpdateFailed");
        assert_eq!(
            text,
            "Failed to check and update snapshot content: failed to list snapshot for content content-1: \"can not find \
             snapshot for snapshotID old-1\""
        );
        assert!(
            told(&given(json!({})), driver(LIST, "no")).1.contains("failed to list snapshot for content content-1")
        );
        let class = told(&given(json!({})), InvalidSnapshot::ListClassMissing(CLASSES, "fast".into()).into()).1;
        assert!(class.contains("failed to get snapshot class fast for snapshot content content-1: "), "{class}");
    }

    #[test]
    fn a_deletion_says_what_the_driver_said() {
        let (reason, text) = told(&cut(json!({})), Operation::Delete, &driver(DELETE, "in use")).unwrap();
        assert_eq!(
            (&*reason, &*text),
            ("SnapshotDeleteError", "Failed to delete snapshot: rpc error: code = Internal desc = in use")
        );
        let fault = InvalidSnapshot::Secret { of: "snapshot", content: "c".into(), fault: SecretFault::Half };
        let text = told(&cut(json!({})), Operation::Delete, &fault.into()).unwrap().1;
        assert!(text.starts_with("Failed to get snapshot credentials: "), "{text}");
    }

    #[test]
    fn quoted_parts_are_escaped_as_go_does() {
        assert_eq!(quoted("a\"b\\c\nd\te\u{1}größe"), "\"a\\\"b\\\\c\\nd\\te\\x01größe\"");
    }
}

//! Whether an attach belongs to the trace of the claim of its volume. Pure.
//!
//! A volume that we created while traces were on has the claim's `traceparent`, which was written with the object,
//! without an extra write. With it, a claim and its first attach are one trace, even if two processes do them. These
//! rules limit the length of a trace:
//!
//! | operation | its trace |
//! |---|---|
//! | an attach that was requested within `FRESH` after the volume was created, and is not done yet | the claim's |
//! | any other operation within `REMEMBERED` | its own, with a link to the claim's |
//! | any later operation | its own: trace stores do not keep traces that long |
//!
//! Both times are the API server's timestamps of creation and deletion, so our clock does not matter. If the attachment
//! arrives before its volume, it has begun its own trace, with a link to the claim's. An attachment that is already
//! attached, for example after a restart of the daemon, does not continue the claim's trace.

use std::time::Duration;

use jiff::Timestamp;

use crate::cluster::{PersistentVolume, VolumeAttachment};
use crate::roles::attacher::names;

use super::attachment::{Attachment, Direction};

/// A pod's volume is attached within seconds, or within minutes if a new node is created for the pod.
const FRESH: Duration = Duration::from_secs(10 * 60);
/// About as long as trace stores keep a trace.
const REMEMBERED: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How an operation belongs to the trace of its volume's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceLink {
    /// It continues the trace.
    Continues,
    /// It links to the trace.
    Points,
}

/// How this attachment belongs to the trace of its volume's claim, and that trace's `traceparent`.
pub fn trace_link<'a>(
    volume: &'a PersistentVolume,
    object: &VolumeAttachment,
    attachment: &Attachment,
) -> Option<(TraceLink, &'a str)> {
    let text = volume.metadata.annotations.as_ref()?.get(names::ANNOTATION_TRACEPARENT)?;
    let asked = object.metadata.deletion_timestamp.or(object.metadata.creation_timestamp)?;
    let age = since(volume.metadata.creation_timestamp?.timestamp(), asked.timestamp());
    let is_first = attachment.direction == Direction::Attach && !attachment.attached;
    match age {
        age if age <= FRESH && is_first => Some((TraceLink::Continues, text)),
        age if age <= REMEMBERED => Some((TraceLink::Points, text)),
        _ => None,
    }
}

/// Zero if they come in the wrong order: two servers may have stamped them.
fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const TEXT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(annotations: &Value, created: Option<&str>, asked: &Value, attached: bool) -> Option<(TraceLink, String)> {
        let volume = json!({"metadata": {"name": "v", "annotations": annotations, "creationTimestamp": created}});
        let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
        let mut object = json!({"metadata": {"name": "a"}, "status": {"attached": attached},
            "spec": {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}}});
        object["metadata"].as_object_mut().unwrap().extend(asked.as_object().unwrap().clone());
        let object: VolumeAttachment = serde_json::from_value(object).unwrap();
        let attachment = Attachment::parse(&object, "f");
        trace_link(&volume, &object, &attachment).map(|(link, text)| (link, text.to_owned()))
    }

    #[test]
    fn the_first_attach_continues_the_claims_trace_and_nothing_years_later_does() {
        let (made, marked) = (Some("2026-01-01T00:00:00Z"), json!({ names::ANNOTATION_TRACEPARENT: TEXT }));
        let asked = |at: &str| json!({"creationTimestamp": at});
        let deleted = |at: &str| json!({"creationTimestamp": "2026-01-01T00:00:05Z", "deletionTimestamp": at});
        for (asked, attached, expected) in [
            (asked("2026-01-01T00:00:05Z"), false, Some(TraceLink::Continues)),
            (asked("2026-01-01T00:10:00Z"), false, Some(TraceLink::Continues)),
            // Another server's clock.
            (asked("2025-12-31T23:59:59Z"), false, Some(TraceLink::Continues)),
            (asked("2026-01-01T00:10:01Z"), false, Some(TraceLink::Points)),
            (asked("2026-01-08T00:00:00Z"), false, Some(TraceLink::Points)),
            (asked("2026-01-08T00:00:01Z"), false, None),
            (asked("2029-01-01T00:00:00Z"), false, None),
            // Found attached, by a daemon that starts, or attached once more because it drifted.
            (asked("2026-01-01T00:00:05Z"), true, Some(TraceLink::Points)),
            (deleted("2026-01-01T00:00:30Z"), true, Some(TraceLink::Points)),
            (deleted("2026-01-01T00:00:30Z"), false, Some(TraceLink::Points)),
            (deleted("2029-01-01T00:00:00Z"), true, None),
            (json!({}), false, None),
        ] {
            let found = of(&marked, made, &asked, attached);
            assert_eq!(found, expected.map(|it| (it, TEXT.to_owned())), "{asked} {attached}");
        }
        assert_eq!(of(&json!({}), made, &asked("2026-01-01T00:00:05Z"), false), None);
        assert_eq!(of(&marked, None, &asked("2026-01-01T00:00:05Z"), false), None);
    }
}

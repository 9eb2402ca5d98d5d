//! What the log says of entries that the daemon does not act on: which, of what, and what a person can do.

use tracing::warn;

use super::format::{self, Content, Stored};
use super::place::Place;
use crate::cluster::ObjectName;

/// Logs that an entry was not written for the object that it is on.
pub(super) fn warn_foreign<E: Content>(place: &Place, n: usize, stored: &Stored) {
    let told = Told::of::<E>(place, n, stored);
    let Told { segment, key, subject, remedy } = &told;
    warn!(%segment, key, subject, remedy, "an entry of the journal was not written for the object that it is on: it is a copy, and the daemon does not act on it");
}

/// Logs that an entry has appeared that no daemon has written.
pub(super) fn warn_appeared<E: Content>(place: &Place, n: usize, stored: &Stored) {
    let told = Told::of::<E>(place, n, stored);
    let Told { segment, key, subject, remedy } = &told;
    warn!(%segment, key, subject, remedy, "an entry of the journal has appeared that no daemon has written: the daemon does not act on it");
}

/// What the log tells of an entry that the daemon does not act on.
struct Told {
    segment: ObjectName,
    key: String,
    subject: String,
    remedy: String,
}

impl Told {
    fn of<E: Content>(place: &Place, n: usize, stored: &Stored) -> Self {
        let (segment, key) = (place.segment(n), stored.key.to_string());
        // Only texts that can be read get into a ledger.
        let subject = format::parse::<E>(&stored.text).map(|(_, content)| content.subject()).unwrap_or_default();
        let remedy = remedy(&segment, &key);
        Self { segment, key, subject, remedy }
    }
}

/// What a person can do about an entry that the daemon does not act on.
pub fn remedy(segment: &ObjectName, key: &str) -> String {
    let (name, namespace) = (segment.name(), segment.namespace().unwrap_or_default());
    format!(
        "look for the volume at the driver, delete it there if nobody needs its data, and then: \
         kubectl -n {namespace} patch configmap {name} --type=merge -p '{{\"data\":{{\"{key}\":null}}}}'"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::fixtures::{Asked, place};
    use crate::journal::format;

    #[test]
    fn j9_the_log_names_the_entry_its_subject_and_what_to_do() {
        let text = format::text("2026-01-02T03:04:05Z".parse().unwrap(), &Asked::volume("1")).unwrap();
        let stored = Stored { key: "u1".into(), text: text.into(), at: jiff::Timestamp::UNIX_EPOCH, since: "5".into() };
        let told = Told::of::<Asked>(&place(), 3, &stored);
        assert_eq!((told.segment.name(), &*told.key, &*told.subject), ("demo-csi-journal-3", "u1", "volume pvc-1"));
        assert!(told.remedy.contains("kubectl -n storage patch configmap demo-csi-journal-3 "), "{}", told.remedy);
        assert!(told.remedy.ends_with(r#"-p '{"data":{"u1":null}}'"#), "{}", told.remedy);
    }
}

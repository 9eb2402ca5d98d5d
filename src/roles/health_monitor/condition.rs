//! The condition of a volume, from the answers of both generations of drivers (spec C1, C4). Pure.
//!
//! What the driver says is cut to what the API stores and otherwise shown as it is, never interpreted (I6). A kind that is not known is
//! not healthy.

use std::collections::BTreeSet;

use crate::cluster::HealthCondition;
use crate::cluster::patch::{MESSAGE_LIMIT, truncate_message};
use crate::proto::volume_health::VolumeHealthEntry;
use crate::proto::{VolumeCondition, VolumeHealth, VolumeHealthErrorType};

/// The API's limit for a reason, in bytes.
const REASON_LIMIT: usize = 256;
/// The API's limit for the conditions of one claim.
const MOST: usize = 16;
/// The reason of a condition that has none: the API demands one.
const UNSPECIFIED: &str = "Unspecified";
/// The text for a fault that the driver reports without a message.
const WORDLESS: &str = "the driver reports an abnormal volume condition without a message";

/// What a driver's answer says of a volume. No answer is no condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Nothing is wrong.
    Normal,
    /// Something is wrong.
    Abnormal(Abnormal),
}

/// What is wrong with a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Abnormal {
    /// What a claim's status can say of it, in its order: by status, then reason. A driver before CSI 1.13 has no such kinds.
    pub kinds: Vec<HealthCondition>,
    /// The numbers of the kinds that no version of the specification known here has.
    pub unknown: BTreeSet<i32>,
    /// The words for people. Empty: only unknown kinds are wrong.
    pub text: String,
}

impl Condition {
    /// Of an answer of CSI 1.13: an empty list is healthy.
    pub fn of_health(health: &VolumeHealth) -> Self {
        if health.health_statuses.is_empty() {
            Self::Normal
        } else {
            Self::Abnormal(Abnormal::of(&health.health_statuses))
        }
    }

    /// Of an answer of a driver before.
    pub fn of_condition(condition: &VolumeCondition) -> Self {
        if !condition.abnormal {
            return Self::Normal;
        }
        let text = if condition.message.is_empty() { WORDLESS } else { &condition.message };
        Self::Abnormal(Abnormal { text: truncate_message(text, MESSAGE_LIMIT).into_owned(), ..Abnormal::default() })
    }

    /// What is wrong, if anything is.
    pub fn abnormal(&self) -> Option<&Abnormal> {
        if let Self::Abnormal(abnormal) = self { Some(abnormal) } else { None }
    }
}

impl Abnormal {
    /// From what a driver of CSI 1.13 says of one volume.
    pub fn of(entries: &[VolumeHealthEntry]) -> Self {
        let known = |entry: &VolumeHealthEntry| VolumeHealthErrorType::try_from(entry.status).ok().and_then(name);
        let unknown = entries.iter().filter(|entry| known(entry).is_none()).map(|entry| entry.status).collect();
        let (mut kinds, mut seen) = (Vec::new(), BTreeSet::new());
        for (entry, status) in entries.iter().filter_map(|entry| Some((entry, known(entry)?))) {
            let reason = reason(&entry.reason);
            // The driver must not repeat a status with its reason; the API refuses that.
            if seen.insert((status, reason.clone())) {
                let message = truncate_message(&entry.message, MESSAGE_LIMIT).into();
                kinds.push(HealthCondition { status: status.into(), reason: reason.into(), message });
            }
        }
        kinds.sort_by_key(|kind| (severity(&kind.status), kind.reason.clone()));
        leave_out(&mut kinds);
        kinds.sort_by_key(identity);
        let text = kinds.iter().map(in_words).collect::<Vec<_>>().join("; ");
        Self { kinds, unknown, text: truncate_message(&text, MESSAGE_LIMIT).into_owned() }
    }
}

/// What a condition is by; its message may change.
pub fn identity(condition: &HealthCondition) -> (String, String) {
    (condition.status.to_string(), condition.reason.to_string())
}

/// A kind as the API spells it. The specification's zero says nothing.
fn name(kind: VolumeHealthErrorType) -> Option<&'static str> {
    match kind {
        VolumeHealthErrorType::Degraded => Some("Degraded"),
        VolumeHealthErrorType::Inaccessible => Some("Inaccessible"),
        VolumeHealthErrorType::DataLoss => Some("DataLoss"),
        VolumeHealthErrorType::UnknownVolumeHealthType => None,
    }
}

/// What counts most comes first.
fn severity(status: &str) -> usize {
    ["DataLoss", "Inaccessible", "Degraded"].iter().position(|it| *it == status).unwrap_or(usize::MAX)
}

/// Keeps as many as the API stores; the last one says how many more there are.
fn leave_out(kinds: &mut Vec<HealthCondition>) {
    let more = kinds.len().saturating_sub(MOST);
    kinds.truncate(MOST);
    if let Some(last) = kinds.last_mut().filter(|_| more > 0) {
        let note = format!(" (and {more} more conditions)");
        let message = truncate_message(&last.message, MESSAGE_LIMIT - note.len()) + note.as_str();
        last.message = message.trim_start().into();
    }
}

fn in_words(kind: &HealthCondition) -> String {
    let colon = if kind.message.is_empty() { "" } else { ": " };
    format!("{} ({}){colon}{}", kind.status, kind.reason, kind.message)
}

/// A reason that the API accepts: a letter, then letters, digits and `_,:`, and none of the last two at its end. Theirs sends any, and the
/// API refuses it for ever.
fn reason(sent: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "_,:".contains(c);
    let mut reason: String = sent.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    if reason.is_empty() {
        return UNSPECIFIED.to_owned();
    }
    if !reason.starts_with(|c: char| c.is_ascii_alphabetic()) {
        reason.insert_str(0, "Reason_");
    }
    reason.truncate(REASON_LIMIT);
    if reason.ends_with([',', ':']) {
        reason.pop();
        reason.push('_');
    }
    reason
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(status: i32, reason: &str, message: &str) -> VolumeHealthEntry {
        VolumeHealthEntry { status, reason: reason.to_owned(), message: message.to_owned() }
    }

    fn shown(abnormal: &Abnormal) -> Vec<String> {
        abnormal.kinds.iter().map(in_words).collect()
    }

    #[test]
    fn an_answer_of_1_13_is_healthy_only_if_its_list_is_empty() {
        let health = |entries: &[VolumeHealthEntry]| {
            Condition::of_health(&VolumeHealth { volume_id: "v".to_owned(), health_statuses: entries.to_vec() })
        };
        assert_eq!(health(&[]), Condition::Normal);
        let told = health(&[entry(3, "Torn", "block 7"), entry(1, "", ""), entry(2, "Gone", "no path")]);
        let text = "DataLoss (Torn): block 7; Degraded (Unspecified); Inaccessible (Gone): no path";
        assert_eq!(told.abnormal().map(|it| it.text.as_str()), Some(text));
    }

    #[test]
    fn h19_a_kind_that_is_not_known_is_kept_apart_and_is_not_healthy() {
        for status in [0, 4, 9, -1] {
            let told = Abnormal::of(&[entry(status, "New", "odd")]);
            assert_eq!(told, Abnormal { unknown: [status].into(), ..Abnormal::default() });
        }
        let both = Abnormal::of(&[entry(9, "New", "odd"), entry(1, "Slow", "one path")]);
        assert_eq!((shown(&both), both.unknown), (vec!["Degraded (Slow): one path".to_owned()], [9].into()));
    }

    #[test]
    fn a_condition_of_1_12_is_its_words() {
        let told = |abnormal, message: &str| {
            Condition::of_condition(&VolumeCondition { abnormal, message: message.to_owned() })
        };
        assert_eq!(told(false, "fine"), Condition::Normal);
        for (message, text) in [("no path", "no path"), ("", WORDLESS)] {
            let condition = told(true, message);
            let abnormal = condition.abnormal().unwrap();
            assert_eq!((abnormal.text.as_str(), abnormal.kinds.len(), abnormal.unknown.len()), (text, 0, 0));
        }
    }

    #[test]
    fn h17_what_counts_least_is_left_out_and_counted() {
        let degraded = (0..18).map(|number| entry(1, &format!("Slow{number:02}"), "slow"));
        let told = Abnormal::of(&[degraded.collect(), vec![entry(3, "Torn", ""), entry(2, "Gone", "")]].concat());
        let shown = shown(&told);
        assert_eq!((shown.len(), &*shown[0], &*shown[15]), (16, "DataLoss (Torn)", "Inaccessible (Gone)"));
        assert_eq!(shown[14], "Degraded (Slow13): slow (and 4 more conditions)");
    }

    #[test]
    fn h17_a_reason_that_the_api_refuses_is_spelled_as_it_takes_it() {
        for (told, written) in [
            ("DiskLost", "DiskLost"),
            ("A,B:c_", "A,B:c_"),
            ("", "Unspecified"),
            ("disk lost!", "disk_lost_"),
            ("7of9", "Reason_7of9"),
            ("größe", "gr__e"),
            ("-", "Reason__"),
            ("Lost:", "Lost_"),
        ] {
            assert_eq!(reason(told), written, "{told}");
        }
    }

    #[test]
    fn h17_of_a_status_and_reason_that_come_twice_the_first_counts() {
        let long = "r".repeat(300);
        let told =
            Abnormal::of(&[entry(1, &long, "first"), entry(1, &(long.clone() + "x"), "second"), entry(2, &long, "")]);
        assert_eq!(told.kinds.len(), 2);
        assert_eq!((&*told.kinds[0].message, told.kinds[0].reason.len()), ("first", 256));
    }

    proptest! {
        #[test]
        fn h17_the_api_takes_whatever_a_driver_says(
            told in prop::collection::vec((-1..6_i32, "[aß,: 7]{0,300}|[a-c]?", ".{0,5}", 0..300_usize), 1..40),
        ) {
            let entry = |(status, reason, word, times): &(i32, String, String, usize)| entry(*status, reason, &word.repeat(*times));
            let entries: Vec<_> = told.iter().map(entry).collect();
            let told = Abnormal::of(&entries);
            prop_assert!(!told.kinds.is_empty() || !told.unknown.is_empty(), "what is wrong is never nothing");
            prop_assert!(told.kinds.len() <= MOST && told.text.len() <= MESSAGE_LIMIT);
            let is_taken = |reason: &str| {
                reason.len() <= REASON_LIMIT
                    && reason.starts_with(|c: char| c.is_ascii_alphabetic())
                    && !reason.ends_with([',', ':'])
                    && reason.chars().all(|c| c.is_ascii_alphanumeric() || "_,:".contains(c))
            };
            prop_assert!(told.kinds.iter().all(|it| is_taken(&it.reason)));
            prop_assert!(told.kinds.iter().all(|it| it.message.len() <= MESSAGE_LIMIT));
            prop_assert!(told.kinds.windows(2).all(|pair| identity(&pair[0]) < identity(&pair[1])), "sorted, none twice");
            let mut turned = entries.clone();
            turned.reverse();
            let identities = |abnormal: &Abnormal| abnormal.kinds.iter().map(identity).collect::<Vec<_>>();
            prop_assert_eq!(identities(&Abnormal::of(&turned)), identities(&told), "the driver's order is of no matter");
        }
    }
}

//! What the handlers of a queue have done last, for people who look whether anything happens at all.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;

/// How many are remembered: as many as a person reads. The memory of a queue is bounded by it.
const KEPT: usize = 20;

/// Something that was done for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneItem {
    /// The key.
    pub key: String,
    /// What was done, as a past participle: `attached`.
    pub what: &'static str,
    /// A description of the object for people, because it may be gone.
    pub subject: Option<String>,
    /// When.
    pub at: Timestamp,
    /// The time since the key was first added, with all retries.
    pub took: Duration,
    /// Number of failed runs before.
    pub attempts: u32,
}

/// The last ones, newest first.
#[derive(Debug, Default)]
pub(super) struct Done(VecDeque<DoneItem>);

impl Done {
    pub(super) fn note(&mut self, item: DoneItem) {
        self.0.truncate(KEPT - 1);
        self.0.push_front(item);
    }

    pub(super) fn items(&self) -> Vec<DoneItem> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_twenty_are_kept_newest_first() {
        let mut done = Done::default();
        for number in 0..50 {
            let (at, took) = (Timestamp::UNIX_EPOCH, Duration::ZERO);
            done.note(DoneItem { key: number.to_string(), what: "attached", subject: None, at, took, attempts: 0 });
        }
        let keys: Vec<String> = done.items().into_iter().map(|item| item.key).collect();
        assert_eq!((keys.len(), keys[0].as_str(), keys[19].as_str()), (KEPT, "49", "30"));
    }
}

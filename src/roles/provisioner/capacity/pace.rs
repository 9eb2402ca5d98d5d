//! How often slots are asked for because of volumes: at once, then at most once per [`PAUSE`], and once after the last one. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::desired::Slot;

/// The least time between two rounds for the same slot. A thousand claims that are created in ten seconds cost each class of their
/// segment at most eleven `GetCapacity` calls. A scheduler that looks later than this sees the room after the last of them.
pub const PAUSE: Duration = Duration::from_secs(1);

/// The slots that wait for their turn, and those whose turn was within the last [`PAUSE`].
#[derive(Debug, Default)]
pub struct Pace {
    waiting: BTreeSet<Slot>,
    taken: BTreeMap<Slot, Instant>,
}

impl Pace {
    /// The capacity of these slots may have changed.
    pub fn add(&mut self, slots: impl IntoIterator<Item = Slot>) {
        self.waiting.extend(slots);
    }

    /// Takes the slots whose turn it is.
    pub fn take(&mut self, now: Instant) -> Vec<Slot> {
        self.taken.retain(|_, at| now < *at + PAUSE);
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (later, due): (BTreeSet<Slot>, BTreeSet<Slot>) = waiting.partition(|slot| self.taken.contains_key(slot));
        self.waiting = later;
        self.taken.extend(due.iter().map(|slot| (slot.clone(), now)));
        due.into_iter().collect()
    }

    /// When it is the turn of the next slot that waits.
    pub fn next(&self) -> Option<Instant> {
        self.waiting.iter().filter_map(|slot| self.taken.get(slot)).min().map(|at| *at + PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::roles::provisioner::topology::Segment;

    fn slot(zone: &str) -> Slot {
        Slot { class: "fast".into(), segment: Arc::new(Segment::new([("zone", zone)])) }
    }

    #[test]
    fn a_slot_is_taken_at_once_then_once_per_pause_and_after_its_last_change() {
        let (mut pace, begun) = (Pace::default(), Instant::now());
        let at = |millis| begun + Duration::from_millis(millis);
        // When the zones change, which of them are taken then, and when the next one is due.
        for (now, changed, taken, next) in [
            (0, &["z1"][..], &["z1"][..], None),
            (10, &["z1", "z2"], &["z2"], Some(1000)),
            (999, &["z1"], &[], Some(1000)),
            (1000, &[], &["z1"], None),
            (1010, &["z1", "z2"], &["z2"], Some(2000)),
            (1500, &["z2"], &[], Some(2000)),
            (2000, &[], &["z1"], Some(2010)),
            (2010, &[], &["z2"], None),
            (9000, &[], &[], None),
        ] {
            pace.add(changed.iter().map(|zone| slot(zone)));
            let expected: Vec<Slot> = taken.iter().map(|zone| slot(zone)).collect();
            assert_eq!((pace.take(at(now)), pace.next()), (expected, next.map(at)), "at {now} ms");
        }
        assert!(pace.waiting.is_empty() && pace.taken.is_empty(), "nothing is kept of what is over");
    }

    #[test]
    fn a_thousand_changes_in_ten_seconds_are_eleven_turns_of_which_the_last_comes_after_all_of_them() {
        let (mut pace, begun, mut turns) = (Pace::default(), Instant::now(), Vec::new());
        let mut turn = |pace: &mut Pace, now: Instant| turns.extend(pace.take(now).iter().map(|_| now));
        for change in 0..1000 {
            let now = begun + Duration::from_millis(10 * change);
            while let Some(due) = pace.next().filter(|due| *due <= now) {
                turn(&mut pace, due);
            }
            pace.add([slot("z1")]);
            turn(&mut pace, now);
        }
        while let Some(due) = pace.next() {
            turn(&mut pace, due);
        }
        assert_eq!(turns.len(), 11);
        assert_eq!(turns.last(), Some(&(begun + Duration::from_secs(10))));
    }
}

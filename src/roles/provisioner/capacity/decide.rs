//! The next step for one slot: ask the driver, then write what differs. Pure.

use std::sync::Arc;

use crate::cluster::{CsiStorageCapacity, StorageClass};
use crate::roles::kit::Next;

use super::desired::Slot;
use super::diff::Write;

/// What the caches and the index say about a slot.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The slot.
    pub slot: Slot,
    /// The slot's class. `None`: the slot is not wanted, because its class or its segment is gone.
    pub class: Option<Arc<StorageClass>>,
    /// The slot's objects.
    pub objects: Vec<Arc<CsiStorageCapacity>>,
    /// Those of them that this process created and the watch has not shown.
    pub unwatched: Vec<Arc<CsiStorageCapacity>>,
    /// The writes that are missing, by the driver's last answer.
    pub writes: Vec<Write>,
}

/// What one attempt knows beside the view.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State {
    /// Whether the attempt must ask the API about objects that the watch has not shown: at each poll.
    pub confirms: bool,
    /// Whether the driver has answered.
    pub is_answered: bool,
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Ask the driver for the capacity of this class.
    Ask(Arc<StorageClass>),
    /// Ask the API whether these objects still exist.
    Confirm(Vec<Arc<CsiStorageCapacity>>),
    /// Write.
    Write(Write),
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The driver has answered, and the index holds the answer.
    Answered,
    /// The index holds no object any more that the API does not have.
    Confirmed,
    /// The index holds what the API answered to a write, or to another look after a failed one.
    Written,
}

/// What to do next.
pub fn next_step(view: &View, state: &State) -> Next<Step, ()> {
    if let Some(class) = view.class.as_ref().filter(|_| !state.is_answered) {
        return Next::Do(Step::Ask(Arc::clone(class)));
    }
    if state.confirms && !view.unwatched.is_empty() {
        return Next::Do(Step::Confirm(view.unwatched.clone()));
    }
    // The class or the segment may have gone while the driver was asked: then only deletes are left.
    view.writes.first().map_or(Next::Done(()), |write| Next::Do(Step::Write(write.clone())))
}

/// What the attempt knows after a step.
pub fn apply(state: &mut State, event: Event) {
    match event {
        Event::Answered => state.is_answered = true,
        Event::Confirmed => state.confirms = false,
        Event::Written => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::provisioner::topology::Segment;

    fn view(is_wanted: bool, unwatched: usize, deletes: usize) -> View {
        let object = Arc::new(CsiStorageCapacity::default());
        let writes = (0..deletes).map(|_| Write::Delete(vec![Arc::clone(&object)])).collect();
        let slot = Slot { class: "fast".into(), segment: Arc::new(Segment::default()) };
        let class = is_wanted.then(Arc::default);
        View { slot, class, objects: Vec::new(), unwatched: vec![object; unwatched], writes }
    }

    fn shown(view: &View, state: State) -> &'static str {
        match next_step(view, &state) {
            Next::Do(Step::Ask(_)) => "ask",
            Next::Do(Step::Confirm(_)) => "confirm",
            Next::Do(Step::Write(_)) => "write",
            Next::Done(()) => "done",
        }
    }

    #[test]
    fn the_driver_is_asked_first_then_the_api_is_and_then_it_is_written() {
        let before = |confirms| State { confirms, is_answered: false };
        let after = |confirms| State { confirms, is_answered: true };
        for (is_wanted, unwatched, writes, state, expected) in [
            (true, 1, 1, before(true), "ask"),
            (true, 0, 0, before(false), "ask"),
            (true, 1, 1, after(true), "confirm"),
            (true, 1, 1, after(false), "write"),
            (true, 0, 1, after(true), "write"),
            (true, 1, 0, after(false), "done"),
            // Nobody wants the slot: the driver is not asked, and what is left is deleted.
            (false, 1, 1, before(true), "confirm"),
            (false, 0, 1, before(false), "write"),
            (false, 0, 0, before(true), "done"),
        ] {
            let view = view(is_wanted, unwatched, writes);
            assert_eq!(shown(&view, state), expected, "{is_wanted} {unwatched} {writes} {state:?}");
        }
    }

    #[test]
    fn an_attempt_asks_and_confirms_once() {
        let view = view(true, 1, 1);
        let mut state = State { confirms: true, is_answered: false };
        for (expected, event) in [("ask", Event::Answered), ("confirm", Event::Confirmed), ("write", Event::Written)] {
            assert_eq!(shown(&view, state), expected);
            apply(&mut state, event);
        }
        assert_eq!(shown(&view, state), "write", "until the index shows that it is written");
    }
}

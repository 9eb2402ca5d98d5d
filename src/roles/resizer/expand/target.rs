//! Which size a claim's volume should have: the table of resizer spec 3.2. Pure.

use crate::roles::resizer::claim::{ResizeState, Sizes};

/// What must be done about a claim's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Nothing: the claim has what it asks for.
    Done,
    /// Nothing: the node has to act first.
    Node,
    /// The driver must expand the volume to this size.
    Size(i64),
}

/// What must be done. `is_real`: the controller expands volumes by a call. Otherwise only nodes do.
pub fn target(sizes: &Sizes, is_real: bool) -> Target {
    use ResizeState::{
        ControllerInProgress, ControllerInfeasible, NodeInProgress, NodeInfeasible, NodePending, None as Idle, Unknown,
    };
    let Sizes { requested, capacity, allocated, volume, state, .. } = *sizes;
    if requested <= capacity {
        return Target::Done;
    }
    let begun = allocated.unwrap_or(requested);
    if volume < requested {
        match state {
            NodePending | NodeInProgress if volume >= begun => Target::Node,
            NodeInfeasible | NodePending | NodeInProgress => Target::Size(begun),
            // Without a final error the call may still be running: it is finished first, even if the claim now asks for less (I4).
            ControllerInProgress | ControllerInfeasible if !sizes.has_failed => Target::Size(begun),
            ControllerInProgress | ControllerInfeasible | Idle | Unknown => Target::Size(requested),
        }
    } else {
        match (state, allocated) {
            (NodePending | NodeInProgress, _) => Target::Node,
            (NodeInfeasible, _) if is_real => Target::Size(begun),
            // The claim asks for less than was refused, and the volume has enough: only the claim is to say so.
            (ControllerInProgress | ControllerInfeasible, Some(begun)) if sizes.has_failed && volume < begun => {
                Target::Size(volume)
            }
            // A state that is not known is no node's: an older or later API may have left it, and nobody else would end it.
            (ControllerInProgress | ControllerInfeasible | Unknown, _) => Target::Size(begun),
            // A smaller size than the requested one would not be enough for the claim.
            (Idle, Some(begun)) => Target::Size(begun.max(requested)),
            (Idle, None) if sizes.waits_for_file_system => Target::Node,
            // For a driver that only expands on nodes, the size is a record that no storage has reached: a smaller request is allowed.
            (NodeInfeasible, _) | (Idle, None) => Target::Size(requested),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ResizeState::{
        ControllerInProgress, ControllerInfeasible, NodeInProgress, NodeInfeasible, NodePending, None as Idle, Unknown,
    };
    use Target::{Done, Node, Size};

    /// A claim that has 1, with a final error of its last call or without.
    fn of(requested: i64, allocated: Option<i64>, volume: i64, state: ResizeState, has_failed: bool) -> Sizes {
        Sizes { requested, capacity: 1, allocated, volume, state, has_failed, waits_for_file_system: false }
    }

    #[test]
    fn every_row_of_the_table() {
        // (R, A, P, St, F, target of a real expansion, target of a node-only one)
        let same = |target| (target, target);
        for (row, requested, allocated, volume, state, failed, (real, node)) in [
            ("gate", 1, None, 1, Idle, false, same(Done)),
            ("1", 8, Some(4), 1, NodeInfeasible, false, same(Size(4))),
            ("1 A absent", 8, None, 1, NodeInfeasible, false, same(Size(8))),
            ("2 stop (Z15)", 8, Some(4), 4, NodePending, false, same(Node)),
            ("2 stop", 8, Some(4), 4, NodeInProgress, false, same(Node)),
            ("2 call", 8, Some(4), 2, NodePending, false, same(Size(4))),
            ("2 call, A absent", 8, None, 2, NodeInProgress, false, same(Size(8))),
            ("3 F (Z14)", 3, Some(8), 1, ControllerInProgress, true, same(Size(3))),
            ("3 not F (Z13)", 3, Some(8), 1, ControllerInProgress, false, same(Size(8))),
            ("3 A absent", 3, None, 1, ControllerInProgress, false, same(Size(3))),
            ("4 F (Z12)", 3, Some(8), 1, ControllerInfeasible, true, same(Size(3))),
            ("4 not F", 3, Some(8), 1, ControllerInfeasible, false, same(Size(8))),
            ("4 A absent", 3, None, 1, ControllerInfeasible, false, same(Size(3))),
            ("4 empty", 8, Some(4), 1, Idle, false, same(Size(8))),
            ("5", 4, Some(4), 4, NodePending, false, same(Node)),
            ("5", 4, Some(4), 8, NodeInProgress, false, same(Node)),
            ("6 (Z17)", 3, Some(8), 8, NodeInfeasible, false, (Size(8), Size(3))),
            ("6 A absent", 3, None, 8, NodeInfeasible, false, same(Size(3))),
            ("7", 3, Some(8), 8, ControllerInProgress, true, same(Size(8))),
            ("7", 3, Some(8), 8, ControllerInfeasible, false, same(Size(8))),
            ("7 F, refused beyond P", 3, Some(9), 8, ControllerInfeasible, true, same(Size(8))),
            ("7 F, refused beyond P", 3, Some(9), 8, ControllerInProgress, true, same(Size(8))),
            ("7 not F", 3, Some(9), 8, ControllerInfeasible, false, same(Size(9))),
            ("7 A absent", 3, None, 8, ControllerInProgress, false, same(Size(3))),
            ("8", 3, Some(8), 8, Idle, false, same(Size(8))),
            ("8 A < R", 3, Some(2), 8, Idle, false, same(Size(3))),
            ("9", 3, None, 8, Idle, false, same(Size(3))),
            ("10", 8, Some(4), 1, Unknown, false, same(Size(8))),
            ("10 A absent", 8, None, 1, Unknown, false, same(Size(8))),
            ("10 P >= R", 3, Some(4), 4, Unknown, false, same(Size(4))),
            ("10 P >= R, A absent", 3, None, 4, Unknown, false, same(Size(3))),
        ] {
            let sizes = of(requested, allocated, volume, state, failed);
            assert_eq!(target(&sizes, true), real, "row {row}, with calls");
            assert_eq!(target(&sizes, false), node, "row {row}, node-only");
        }
        let pending = Sizes { waits_for_file_system: true, ..of(3, None, 8, Idle, false) };
        assert_eq!(target(&pending, true), Node, "row 9, an older server");
    }

    #[test]
    fn i4_no_less_than_what_was_begun_is_asked_for_while_the_last_calls_outcome_is_unknown() {
        for requested in 2..6 {
            for begun in 2..6 {
                for volume in 1..6 {
                    for state in [ControllerInProgress, ControllerInfeasible] {
                        let sizes = of(requested, Some(begun), volume, state, false);
                        assert_eq!(target(&sizes, true), Size(begun), "{sizes:?}");
                    }
                }
            }
        }
    }
}

//! What an attempt that failed leaves behind: the four states of a claim, and what a gRPC code means for them. Pure.
//!
//! The question behind each state is whether a volume may exist that no PersistentVolume names. Only a *final* answer says
//! that there is none; everything else keeps the journal's entry and the request.

use tonic::Code;

use crate::roles::kit::finality::{Call, is_final};

/// How a failed attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Finality {
    /// A final answer: nothing exists and nothing goes on. The next attempt starts afresh.
    Finished,
    /// The driver may still be at it, or has created the volume unseen: the same request again, until a final answer.
    InBackground,
    /// The driver was not asked. What an earlier attempt left stands as it was.
    NoChange,
    /// Final, and another node may fare better: the scheduler has to choose again.
    Reschedule,
}

impl Finality {
    /// Whether the journal's entry may be removed, and the next request may differ.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Finished | Self::Reschedule)
    }

    /// A word for logs, metrics and the status page.
    pub fn label(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::InBackground => "in background",
            Self::NoChange => "no change",
            Self::Reschedule => "reschedule",
        }
    }
}

/// What a failed `CreateVolume` means. `topology`: the driver has `VOLUME_ACCESSIBILITY_CONSTRAINTS`; `node_known`: the
/// scheduler has selected a node.
///
/// An error that is no answer of the driver (no connection, a message that can't be read) is to be passed as
/// [`Code::Unavailable`].
pub fn after_create(code: Code, topology: bool, node_known: bool) -> Finality {
    match code {
        // A driver without space on one node's side of the world may have it on another's.
        Code::ResourceExhausted if topology && node_known => Finality::Reschedule,
        code if is_final(Call::Create, code) => Finality::Finished,
        _ => Finality::InBackground,
    }
}

/// Whether the driver says that this request can never succeed as it is: such a claim is tried again rarely, and at once when
/// something that the request is made of changes.
pub fn is_infeasible(code: Code) -> bool {
    code == Code::InvalidArgument
}

#[cfg(test)]
mod tests {
    use super::Finality::{Finished, InBackground, Reschedule};
    use super::*;

    /// Every code by number, and what it leaves without and with a node to choose again.
    const TABLE: [(i32, Finality, Finality); 17] = [
        (0, InBackground, InBackground),
        (1, InBackground, InBackground),
        (2, Finished, Finished),
        (3, Finished, Finished),
        (4, InBackground, InBackground),
        (5, Finished, Finished),
        (6, Finished, Finished),
        (7, Finished, Finished),
        (8, Finished, Reschedule),
        (9, Finished, Finished),
        (10, InBackground, InBackground),
        (11, Finished, Finished),
        (12, Finished, Finished),
        (13, Finished, Finished),
        (14, InBackground, InBackground),
        (15, Finished, Finished),
        (16, Finished, Finished),
    ];

    #[test]
    fn all_seventeen_codes_leave_what_the_go_sidecar_leaves() {
        for (number, plain, with_node) in TABLE {
            let code = Code::from_i32(number);
            assert_eq!(code as i32, number);
            assert_eq!(after_create(code, true, true), with_node, "{code:?}");
            for (topology, node_known) in [(false, false), (false, true), (true, false)] {
                assert_eq!(after_create(code, topology, node_known), plain, "{code:?} {topology} {node_known}");
            }
        }
    }

    #[test]
    fn row_51_a_full_driver_sends_the_pod_to_another_node() {
        assert_eq!(after_create(Code::ResourceExhausted, true, true), Reschedule);
    }

    #[test]
    fn row_33_a_full_driver_is_a_final_answer() {
        for (topology, node_known) in [(false, false), (false, true), (true, false), (true, true)] {
            assert!(after_create(Code::ResourceExhausted, topology, node_known).is_final());
        }
    }

    #[test]
    fn row_56_a_timeout_lets_go_of_nothing() {
        assert!(!after_create(Code::DeadlineExceeded, true, true).is_final());
    }

    #[test]
    fn row_10_only_an_invalid_argument_is_infeasible() {
        for (number, _, _) in TABLE {
            assert_eq!(is_infeasible(Code::from_i32(number)), number == 3);
        }
    }

    #[test]
    fn only_final_states_let_go() {
        assert!(Finished.is_final() && Reschedule.is_final());
        assert!(!InBackground.is_final() && !Finality::NoChange.is_final());
    }
}

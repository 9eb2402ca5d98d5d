//! What a failed attempt leaves behind: the four outcomes, and the gRPC codes that lead to them. Pure.
//!
//! Each outcome says whether a volume may exist that no PersistentVolume names. Only a *final* answer says that there is no such
//! volume. Every other outcome keeps the journal's entry and the request.

use tonic::Code;

use crate::roles::kit::finality::{Call, is_final};

/// The outcome of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Finality {
    /// A final answer: no volume exists, and none is being created. The next attempt builds a new request.
    Finished,
    /// The driver may still create the volume, or has created it: the same request is sent again until a final answer.
    InBackground,
    /// The driver was not called. The outcome of an earlier attempt still holds.
    NoChange,
    /// A final answer, and another node may be able to serve the claim: the scheduler has to select again.
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
        // A driver without space in one topology segment may have space in another one.
        Code::ResourceExhausted if topology && node_known => Finality::Reschedule,
        code if is_final(Call::Create, code) => Finality::Finished,
        _ => Finality::InBackground,
    }
}

/// Whether the driver may have refused the call for its secret alone, before it looked whether it is at work on the volume.
pub fn is_about_secret(code: Code) -> bool {
    matches!(code, Code::PermissionDenied | Code::Unauthenticated)
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
    use crate::testing::codes;

    #[test]
    fn all_seventeen_codes_leave_what_the_go_sidecar_leaves() {
        for (topology, node_known) in [(false, false), (false, true), (true, false), (true, true)] {
            let leave = |finality| codes(|code| after_create(code, topology, node_known) == finality);
            let full = if topology && node_known { vec![8] } else { Vec::new() };
            assert_eq!(leave(InBackground), [0, 1, 4, 10, 14], "{topology} {node_known}");
            assert_eq!(leave(Reschedule), full, "{topology} {node_known}");
            assert_eq!(
                leave(Finality::NoChange),
                Vec::<i32>::new(),
                "{topology} {node_known}: all others are finished"
            );
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
        assert_eq!(codes(is_infeasible), [3]);
    }

    #[test]
    fn two_codes_may_be_about_the_secret_alone() {
        assert_eq!(codes(is_about_secret), [7, 16]);
    }

    #[test]
    fn only_final_states_let_go() {
        assert!(Finished.is_final() && Reschedule.is_final());
        assert!(!InBackground.is_final() && !Finality::NoChange.is_final());
    }
}

//! Decides which gRPC codes are the driver's final answer: the call is over and can have no later effect. Pure.
//!
//! The Go sidecars have a classifier each, and they differ in one code. `ResourceExhausted` to an attach may mean "too
//! many calls at once" (attacher spec 2.7); to a `CreateVolume` it means that there is no free capacity (provisioner
//! R33). `AlreadyExists` to a `CreateSnapshot` says that a snapshot of the name exists: to forget the call would leak it
//! (snapshotter spec 5.5).

use tonic::Code;

/// The kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `ControllerPublishVolume` or `ControllerUnpublishVolume`.
    Publish,
    /// `CreateVolume`.
    Create,
    /// `ControllerExpandVolume` or `ControllerModifyVolume` (resizer spec 3.6).
    Change,
    /// `CreateSnapshot` (snapshotter spec 5.5).
    Cut,
}

/// Whether an error of this call is the driver's final answer. An error that does not come from the driver (no
/// connection, an unreadable message) has [`Code::Unavailable`].
pub fn is_final(call: Call, code: Code) -> bool {
    match code {
        // `Ok` is no error: an error with this code is not an answer.
        Code::Ok | Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => false,
        Code::ResourceExhausted => call == Call::Create,
        Code::AlreadyExists => call != Call::Cut,
        Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::Internal
        | Code::DataLoss
        | Code::Unauthenticated => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::codes;

    #[test]
    fn all_seventeen_codes_are_final_where_the_go_sidecars_say_so() {
        let open = |call| codes(|code| !is_final(call, code));
        assert_eq!(open(Call::Publish), [0, 1, 4, 8, 10, 14]);
        assert_eq!(open(Call::Change), [0, 1, 4, 8, 10, 14]);
        assert_eq!(open(Call::Create), [0, 1, 4, 10, 14]);
        assert_eq!(open(Call::Cut), [0, 1, 4, 6, 8, 10, 14]);
    }
}

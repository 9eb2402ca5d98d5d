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

    /// Every code by number, and whether it is final for a publish and a change, for a create, and for a cut.
    const TABLE: [(i32, bool, bool, bool); 17] = [
        (0, false, false, false),
        (1, false, false, false),
        (2, true, true, true),
        (3, true, true, true),
        (4, false, false, false),
        (5, true, true, true),
        (6, true, true, false),
        (7, true, true, true),
        (8, false, true, false),
        (9, true, true, true),
        (10, false, false, false),
        (11, true, true, true),
        (12, true, true, true),
        (13, true, true, true),
        (14, false, false, false),
        (15, true, true, true),
        (16, true, true, true),
    ];

    #[test]
    fn all_seventeen_codes_are_final_where_the_go_sidecars_say_so() {
        for (number, publish, create, cut) in TABLE {
            let code = Code::from_i32(number);
            assert_eq!(code as i32, number);
            assert_eq!(is_final(Call::Publish, code), publish, "{code:?}");
            assert_eq!(is_final(Call::Change, code), publish, "{code:?}");
            assert_eq!(is_final(Call::Create, code), create, "{code:?}");
            assert_eq!(is_final(Call::Cut, code), cut, "{code:?}");
        }
    }
}

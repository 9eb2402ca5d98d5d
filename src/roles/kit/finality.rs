//! Decides which gRPC codes are the driver's final answer: the call is over and can have no later effect. Pure.
//!
//! The Go sidecars have a classifier each, and they differ in one code. `ResourceExhausted` to an attach may mean "too
//! many calls at once" (attacher spec 2.7); to a `CreateVolume` it means that there is no free capacity (provisioner
//! R33).

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
}

/// Whether an error of this call is the driver's final answer. An error that does not come from the driver (no
/// connection, an unreadable message) has [`Code::Unavailable`].
pub fn is_final(call: Call, code: Code) -> bool {
    match code {
        // `Ok` is no error: an error with this code is not an answer.
        Code::Ok | Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted => false,
        Code::ResourceExhausted => call == Call::Create,
        Code::Unknown
        | Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
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

    /// Every code by number, and whether it is final for a publish, and a change, and for a create.
    const TABLE: [(i32, bool, bool); 17] = [
        (0, false, false),
        (1, false, false),
        (2, true, true),
        (3, true, true),
        (4, false, false),
        (5, true, true),
        (6, true, true),
        (7, true, true),
        (8, false, true),
        (9, true, true),
        (10, false, false),
        (11, true, true),
        (12, true, true),
        (13, true, true),
        (14, false, false),
        (15, true, true),
        (16, true, true),
    ];

    #[test]
    fn all_seventeen_codes_are_final_where_the_go_sidecars_say_so() {
        for (number, publish, create) in TABLE {
            let code = Code::from_i32(number);
            assert_eq!(code as i32, number);
            assert_eq!(is_final(Call::Publish, code), publish, "{code:?}");
            assert_eq!(is_final(Call::Change, code), publish, "{code:?}");
            assert_eq!(is_final(Call::Create, code), create, "{code:?}");
        }
    }
}

//! The codes of gRPC for which something holds.

use tonic::Code;

/// The numbers of the codes, of all seventeen, for which this holds.
pub(crate) fn codes(holds: impl Fn(Code) -> bool) -> Vec<i32> {
    (0..=16).filter(|number| holds(Code::from_i32(*number))).collect()
}

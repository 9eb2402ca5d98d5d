//! The driver's errors: their names, and how soon a retry makes sense. Pure. Whether a code is the driver's final
//! answer depends on the call: see the table in `roles/kit`.

use std::time::Duration;

pub use base::code_name;
use tonic::Code;

/// The driver should be available again within seconds: a back-off of minutes would only delay a pod.
const SOON: Duration = Duration::from_secs(10);

/// The longest wait before a retry, if the configured maximum is too long for this code.
fn retry_cap(code: Code) -> Option<Duration> {
    // Another operation on this volume is running, or the driver restarts or can't be reached. If the driver throttles
    // or is full, an early retry would make it worse.
    matches!(code, Code::Aborted | Code::Unavailable).then_some(SOON)
}

/// A failed RPC, with the same text as in the Go sidecars.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rpc error: code = {} desc = {message}", code_name(*code))]
pub struct RpcError {
    /// The RPC's full path, such as `/csi.v1.Controller/ControllerPublishVolume`.
    pub method: &'static str,
    /// The driver's code, or ours if the call got no answer.
    pub code: Code,
    /// The driver's message. Values of the request's secrets are stripped from it.
    pub message: String,
}

impl RpcError {
    /// The code's name, for metrics, events and the status page.
    pub fn label(&self) -> &'static str {
        code_name(self.code)
    }

    /// The code's number, as `errorCode` in a `VolumeAttachment`'s status holds it.
    pub fn number(&self) -> i32 {
        self.code as i32
    }

    /// The longest wait before a retry, if the configured maximum is too long.
    pub fn retry_cap(&self) -> Option<Duration> {
        retry_cap(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code by number, with its name in gRPC for Go and whether it is tried again soon.
    const TABLE: [(i32, &str, bool); 17] = [
        (0, "OK", false),
        (1, "Canceled", false),
        (2, "Unknown", false),
        (3, "InvalidArgument", false),
        (4, "DeadlineExceeded", false),
        (5, "NotFound", false),
        (6, "AlreadyExists", false),
        (7, "PermissionDenied", false),
        (8, "ResourceExhausted", false),
        (9, "FailedPrecondition", false),
        (10, "Aborted", true),
        (11, "OutOfRange", false),
        (12, "Unimplemented", false),
        (13, "Internal", false),
        (14, "Unavailable", true),
        (15, "DataLoss", false),
        (16, "Unauthenticated", false),
    ];

    #[test]
    fn all_seventeen_codes_have_their_go_name_and_pace() {
        for (number, name, soon) in TABLE {
            let error = RpcError { method: "/x/Y", code: Code::from_i32(number), message: "no such disk".into() };
            assert_eq!(error.number(), number);
            assert_eq!(error.label(), name);
            assert_eq!(error.to_string(), format!("rpc error: code = {name} desc = no such disk"));
            assert_eq!(error.retry_cap().is_some(), soon, "{name}");
        }
    }

    #[test]
    fn a_short_cap_is_far_below_the_default_maximum_of_five_minutes() {
        assert!(retry_cap(Code::Aborted) < Some(Duration::from_secs(60)));
    }
}

//! What each gRPC code means for the operation that got it.
//!
//! One table, [`Fate::of`], walks all 17 codes. An outcome is *final* when the driver has answered for good: the operation has
//! failed and nothing of it goes on behind the answer. Otherwise it may still be running, or may have been done.

use std::time::Duration;

use tonic::Code;

/// What a failed attempt means for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    /// Whether the driver is done with the operation. If not, it may still happen, or has happened unseen.
    pub is_final: bool,
    /// The longest wait before the next attempt, where the configured maximum would be too long for what the code says.
    pub retry_cap: Option<Duration>,
}

/// The driver is expected back, or free again, within seconds: waiting the usual maximum of minutes would only delay a pod.
const SOON: Option<Duration> = Some(Duration::from_secs(10));

impl Fate {
    /// The one table. The set of codes that are not final is the Go sidecars'.
    pub fn of(code: Code) -> Self {
        let (is_final, retry_cap) = match code {
            // Cut short by us or by the driver: it may have been done. Throttled or full: more haste would make it worse.
            Code::Cancelled | Code::DeadlineExceeded | Code::ResourceExhausted => (false, None),
            // Another operation on this volume goes on; a driver that is restarting or can't be reached.
            Code::Aborted | Code::Unavailable => (false, SOON),
            Code::Ok
            | Code::Unknown
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::Internal
            | Code::DataLoss
            | Code::Unauthenticated => (true, None),
        };
        Self { is_final, retry_cap }
    }
}

/// A code's name as gRPC for Go prints it: what metrics, events and users' runbooks know.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

/// An RPC that did not succeed, in the words that users of the Go sidecars know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rpc error: code = {} desc = {message}", code_name(*code))]
pub struct RpcError {
    /// The RPC's full path, such as `/csi.v1.Controller/ControllerPublishVolume`.
    pub method: &'static str,
    /// The driver's code, or ours where the call never got an answer.
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

    /// What the code means for the operation and its next attempt.
    pub fn fate(&self) -> Fate {
        Fate::of(self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every code by number, with its name in gRPC for Go and whether the Go sidecars call it final.
    const TABLE: [(i32, &str, bool, bool); 17] = [
        (0, "OK", true, false),
        (1, "Canceled", false, false),
        (2, "Unknown", true, false),
        (3, "InvalidArgument", true, false),
        (4, "DeadlineExceeded", false, false),
        (5, "NotFound", true, false),
        (6, "AlreadyExists", true, false),
        (7, "PermissionDenied", true, false),
        (8, "ResourceExhausted", false, false),
        (9, "FailedPrecondition", true, false),
        (10, "Aborted", false, true),
        (11, "OutOfRange", true, false),
        (12, "Unimplemented", true, false),
        (13, "Internal", true, false),
        (14, "Unavailable", false, true),
        (15, "DataLoss", true, false),
        (16, "Unauthenticated", true, false),
    ];

    #[test]
    fn all_seventeen_codes_have_their_go_name_and_fate() {
        for (number, name, is_final, soon) in TABLE {
            let error = RpcError { method: "/x/Y", code: Code::from_i32(number), message: "no such disk".into() };
            assert_eq!(error.number(), number);
            assert_eq!(error.label(), name);
            assert_eq!(error.to_string(), format!("rpc error: code = {name} desc = no such disk"));
            assert_eq!(error.fate().is_final, is_final, "{name}");
            assert_eq!(error.fate().retry_cap.is_some(), soon, "{name}");
        }
    }

    #[test]
    fn a_short_cap_is_far_below_the_default_maximum_of_five_minutes() {
        assert!(Fate::of(Code::Aborted).retry_cap < Some(Duration::from_secs(60)));
    }
}

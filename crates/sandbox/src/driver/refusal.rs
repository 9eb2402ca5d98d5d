//! Why the demo driver refuses a call: a gRPC code and a sentence. Pure.

use std::fmt;

use tonic::Code;

pub use base::code_name;

/// A refused call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The gRPC code of the answer.
    pub code: Code,
    /// The message of the answer.
    pub message: String,
}

impl Refusal {
    /// A refusal with `code`.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(super) fn not_found(what: &str, id: &str) -> Self {
        Self::new(Code::NotFound, format!("{what} {id:?} does not exist"))
    }

    pub(super) fn precondition(message: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, message)
    }

    pub(super) fn out_of_range(message: impl Into<String>) -> Self {
        Self::new(Code::OutOfRange, message)
    }

    pub(super) fn exists(message: impl Into<String>) -> Self {
        Self::new(Code::AlreadyExists, message)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", code_name(self.code), self.message)
    }
}

impl From<Refusal> for tonic::Status {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, refusal.message)
    }
}

/// Spells a gRPC code by its name in fault scripts.
pub(super) mod code_as_name {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;
    use tonic::Code;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's `with` passes a reference")]
    pub(crate) fn serialize<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(super::code_name(*code))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Code, D::Error> {
        let name = String::deserialize(deserializer)?;
        // gRPC numbers its codes from 0 to 16.
        (0..=16)
            .map(Code::from)
            .find(|code| super::code_name(*code) == name)
            .ok_or_else(|| Error::custom(format!("{name:?} is not the name of a gRPC code")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_the_name_that_go_prints() {
        assert_eq!(code_name(Code::Ok), "OK");
        assert_eq!(code_name(Code::Cancelled), "Canceled");
        assert_eq!(code_name(Code::Unauthenticated), "Unauthenticated");
        for number in 0..17 {
            assert_eq!(Code::from(number) as i32, number);
        }
    }
}

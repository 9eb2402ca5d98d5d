//! Changes the attributes of a claim's volume: resizer spec 4.

pub mod policy;
#[cfg(test)]
mod policy_tests;
pub(super) mod writes;

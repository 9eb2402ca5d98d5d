//! Makes the volume of a claim larger: resizer spec 3.

pub mod begin;
pub mod policy;
#[cfg(test)]
mod policy_tests;
pub mod target;
pub(super) mod writes;

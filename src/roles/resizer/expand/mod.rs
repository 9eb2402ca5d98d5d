//! Makes the volume of a claim larger: resizer spec 3.

pub mod begin;
pub mod decide;
#[cfg(test)]
mod decide_tests;
mod perform;
pub mod reconcile;
pub mod target;
mod writes;

//! Changes the attributes of a claim's volume: resizer spec 4.

pub mod decide;
#[cfg(test)]
mod decide_tests;
mod perform;
pub mod reconcile;
mod writes;

//! Changes the attributes of a claim's volume: resizer spec 4.

pub mod decide;
#[cfg(test)]
mod decide_tests;
pub mod done;
mod perform;
pub mod reconcile;
mod writes;

//! Creates volumes for claims and deletes them again.

pub mod capacity;
pub mod competition;
#[cfg(test)]
mod fixtures;
pub mod intent;
pub mod parameters;
pub mod request;
pub mod secrets;
pub mod source;
pub mod state;
pub mod topology;
pub mod volume;

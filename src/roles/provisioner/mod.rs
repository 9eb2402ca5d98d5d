//! Creates volumes for claims and deletes them again.

pub mod topology;

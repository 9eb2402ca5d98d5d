//! Data sources: what a claim's volume is created from, and which claims need a source.
//!
//! ```text
//! source.rs, status.rs   what a claim names, and how far that is known: pure
//! protection.rs          which claim needs a source: pure
//! memory.rs              what the attempts of a term share
//! ```
//!
//! `unprotect/` removes the finalizer from a source that no claim needs any more.

pub mod memory;
pub mod protection;
pub mod source;
pub mod status;

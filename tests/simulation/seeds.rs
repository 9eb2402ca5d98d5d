//! Seeds that found something once, and what it was. They are played in every test run.

/// A seed, and what it found.
pub(crate) const FOUND: &[(u64, &str)] = &[];

//! Seeds that found something once, and what it was. They are played in every test run.

/// A seed, and what it found.
pub(crate) const FOUND: &[(u64, &str)] = &[
    (1, "a node id that was written over while a publish to it might have succeeded was never unpublished (I3)"),
    (50, "the same, by another way: the driver never answered"),
];

//! The invariants of resizer spec 14. `histories` has at least one history for each that breaks it.

/// Something that must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    I11,
    I12,
    I13,
    I14,
    I15,
    Lease,
    Quota,
}

impl Rule {
    /// Each with what holds, as far as it is seen here.
    pub(super) const ALL: [(Self, &str); 17] = [
        (Self::I1, "one call at a time changes a volume; two calls of a pair count as one"),
        (
            Self::I2,
            "the driver is called with a size only when the claim has it as allocated and does not say that it was refused",
        ),
        (Self::I3, "the driver is called with a class only when the claim says that this modification is in progress"),
        (Self::I4, "no less than the last size while the outcome of the last call is unknown"),
        (
            Self::I5,
            "sizes do not sink, but for what only nodes expand; no object has more than its volume, no volume more than the driver's",
        ),
        (Self::I6, "a node is told to act only when the volume's object has the size that the node must reach"),
        (Self::I7, "a claim has a class only after the driver and then the volume's object have it"),
        (Self::I8, "the state of a node changes only after the node has failed, or when another size begins"),
        (Self::I9, "nothing but the resizer's own fields is written"),
        (
            Self::I10,
            "no request about a volume that is another driver's or another claim's, or about another driver's class",
        ),
        (Self::I11, "failures in a row are ever further apart"),
        (Self::I12, "secrets are in no object, no Event, no metric and no log line"),
        (
            Self::I13,
            "after any crash or lost answer each claim gets what it asks for, and a call is repeated with the same request",
        ),
        (Self::I14, "in a quiet cluster there is no write, no call, no read of a claim and no request for pods"),
        (Self::I15, "when a change is done, no condition of the resizer is left"),
        (Self::Lease, "only the leader calls the driver and writes (spec 8.3)"),
        (Self::Quota, "a quota refuses no write of the resizer (spec 11)"),
    ];
}

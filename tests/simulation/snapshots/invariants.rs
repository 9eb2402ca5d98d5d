//! The invariants of snapshotter spec 16. `histories` has at least one history for each that breaks it.

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
    Quiet,
}

impl Rule {
    /// Each with what holds, as far as it is seen here.
    pub(super) const ALL: [(Self, &str); 15] = [
        (Self::I1, "the driver is asked for a snapshot only once finalizer and mark, or a handle, are on the content"),
        (Self::I2, "the finalizer leaves only without an unanswered call, and after the snapshot if that goes with it"),
        (Self::I3, "one call at a time for a content, for its volume and for its snapshot"),
        (Self::I4, "one request for a content while it may be running, and one handle for life"),
        (Self::I5, "a snapshot is ready to use only after the driver has said so"),
        (Self::I6, "no snapshot is deleted whose content does not ask for it"),
        (Self::I7, "nothing but what is ours is written"),
        (Self::I8, "the driver is asked and contents are written by who leads, and for our driver's contents alone"),
        (Self::I9, "failures in a row are ever further apart"),
        (Self::I10, "secrets are seen nowhere"),
        (Self::I11, "whoever dies: once nothing goes wrong any more, no content says that a call is unanswered"),
        (
            Self::I12,
            "whatever is refused or lost: each snapshot that lives is ready, and each that was deleted is gone",
        ),
        (Self::I13, "whatever the driver says: it holds one snapshot of a content, or none"),
        (Self::I14, "each snapshot that the driver made for us has its content, or was given up knowingly"),
        (Self::Quiet, "a quiet cluster is left in peace (S7, S9)"),
    ];
}

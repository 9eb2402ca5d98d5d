//! The invariants of snapshotter spec 16. `histories` has at least one history for each that breaks it.

crate::smaller::rules! {
    I1 "the driver is asked for a snapshot only once finalizer and mark, or a handle, are on the content",
    I2 "the finalizer leaves only without an unanswered call, and after the snapshot if that goes with it",
    I3 "one call at a time for a content, for its volume and for its snapshot",
    I4 "one request for a content while it may be running, and one handle for life",
    I5 "a snapshot is ready to use only after the driver has said so",
    I6 "no snapshot is deleted whose content does not ask for it",
    I7 "nothing but what is ours is written",
    I8 "the driver is asked and contents are written by who leads, and for our driver's contents alone",
    I9 "failures in a row are ever further apart",
    I10 "secrets are seen nowhere",
    I11 "whoever dies: once nothing goes wrong any more, no content says that a call is unanswered",
    I12 "whatever is refused or lost: each snapshot that lives is ready, and each that was deleted is gone",
    I13 "whatever the driver says: it holds one snapshot of a content, or none",
    I14 "each snapshot that the driver made for us has its content, or was given up knowingly",
    Quiet "a quiet cluster is left in peace (S7, S9)",
}

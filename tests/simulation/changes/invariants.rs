//! The invariants of resizer spec 14. `histories` has at least one history for each that breaks it.

crate::smaller::rules! {
    I1 "one call at a time changes a volume; two calls of a pair count as one",
    I2 "the driver is called with a size only when the claim has it as allocated and does not say that it was refused",
    I3 "the driver is called with a class only when the claim says that this modification is in progress",
    I4 "no less than the last size while the outcome of the last call is unknown",
    I5 "sizes do not sink, but for what only nodes expand; no object has more than its volume, no volume more than the driver's",
    I6 "a node is told to act only when the volume's object has the size that the node must reach",
    I7 "a claim has a class only after the driver and then the volume's object have it",
    I8 "the state of a node changes only after the node has failed, or when another size begins",
    I9 "nothing but the resizer's own fields is written",
    I10 "no request about a volume that is another driver's or another claim's, or about another driver's class",
    I11 "failures in a row are ever further apart",
    I12 "secrets are in no object, no Event, no metric and no log line",
    I13 "after any crash or lost answer each claim gets what it asks for, and a call is repeated with the same request",
    I14 "in a quiet cluster there is no write, no call, no read of a claim and no request for pods",
    I15 "when a change is done, no condition of the resizer is left",
    Lease "only the leader calls the driver and writes (spec 8.3)",
    Quota "a quota refuses no write of the resizer (spec 11)",
}

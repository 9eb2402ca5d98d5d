//! The invariants of node-and-health spec C7, and what follows from spec C4. `mutants` has one for each that breaks it.

crate::smaller::rules! {
    I1 "a volume is called healthy only after an answer of the driver that says so, given after the last bad one",
    I2 "a daemon makes one list at a time, and asks for a volume once at a time",
    I3 "no health is written for a claim of another uid or of another driver, nor for one that is being deleted",
    I4 "nothing is written when nothing has changed, and the time changes only with statuses and reasons",
    I5 "only the leader asks the driver and writes",
    I6 "what is written is what the driver has said",
    Own "nothing of a claim but its health is written",
    End "once nothing goes wrong any more, each claim says within the stated time how its volume is",
}

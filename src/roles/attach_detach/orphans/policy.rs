//! What becomes of an attachment of an unknown volume: attach-detach spec 10. Pure.

use std::time::Duration;

use crate::roles::attach_detach::guard::Permit;
use crate::roles::kit::drive::Next;

/// An attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact")]
pub struct Facts {
    /// It is known by now which volume it attaches: ordinary rules.
    pub is_known: bool,
    /// Its deletion was requested, or this was done already.
    pub is_done: bool,
    /// The node's volumes are managed by this controller.
    pub is_managed: bool,
    /// A pod on the node has a claim that leads to no volume yet, or one that names the `PersistentVolume` of the attachment.
    pub may_be_wanted: bool,
    /// What may be done now.
    pub permit: Permit,
    /// For how long its volume was not known; `None`: since now.
    pub unknown: Option<Duration>,
    /// `orphanGrace`.
    pub grace: Duration,
}

/// One request, or what is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Note that its volume is not known from now on.
    Note,
    /// Forget that.
    Forget,
    /// Delete it, and say so.
    Delete,
    /// Nothing can be done before this time is over.
    Wait(Duration),
}

/// The policy.
pub fn next_step(facts: Facts) -> Next<Step> {
    match facts.permit {
        Permit::Yes => {}
        Permit::After(left) => return Next::Do(Step::Wait(left)),
        Permit::No => return Next::Done,
    }
    if facts.is_done || !facts.is_managed {
        return Next::Done;
    }
    let is_kept = facts.is_known || facts.may_be_wanted;
    match facts.unknown {
        None if is_kept => Next::Done,
        None => Next::Do(Step::Note),
        Some(_) if is_kept => Next::Do(Step::Forget),
        Some(unknown) if unknown < facts.grace => Next::Do(Step::Wait(facts.grace.saturating_sub(unknown))),
        Some(_) => Next::Do(Step::Delete),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(120);
    const ORPHAN: Facts = Facts {
        is_known: false,
        is_done: false,
        is_managed: true,
        may_be_wanted: false,
        permit: Permit::Yes,
        unknown: Some(GRACE),
        grace: GRACE,
    };

    #[test]
    fn d32_each_case_of_the_table_of_orphans() {
        let (young, left) = (Duration::from_secs(20), Duration::from_secs(100));
        for (row, facts, expected) in [
            ("10.1, recovered", Facts { is_known: true, ..ORPHAN }, Next::Do(Step::Forget)),
            ("known from the beginning", Facts { is_known: true, unknown: None, ..ORPHAN }, Next::Done),
            ("10.2", Facts { may_be_wanted: true, ..ORPHAN }, Next::Do(Step::Forget)),
            ("10.2, from the beginning", Facts { may_be_wanted: true, unknown: None, ..ORPHAN }, Next::Done),
            ("10.3, seen first", Facts { unknown: None, ..ORPHAN }, Next::Do(Step::Note)),
            ("10.3, grace", Facts { unknown: Some(young), ..ORPHAN }, Next::Do(Step::Wait(left))),
            ("10.3", ORPHAN, Next::Do(Step::Delete)),
            ("once", Facts { is_done: true, ..ORPHAN }, Next::Done),
            ("frozen node", Facts { is_managed: false, ..ORPHAN }, Next::Done),
            ("guard", Facts { permit: Permit::No, ..ORPHAN }, Next::Done),
            ("delay", Facts { permit: Permit::After(young), ..ORPHAN }, Next::Do(Step::Wait(young))),
        ] {
            assert_eq!(next_step(facts), expected, "{row}");
        }
    }
}

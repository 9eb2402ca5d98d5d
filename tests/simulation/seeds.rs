//! Seeds that once found a fault, with a description of the fault. Every test run includes them.

use crate::world::Scope;

/// A seed, what it plays, and what it found.
pub(crate) const FOUND: &[(u64, Scope, &str)] = &[
    (
        1,
        Scope::Attach,
        "a node id that was written over while a publish to it might have succeeded was never unpublished (I3)",
    ),
    (50, Scope::Attach, "the same, by another way: the driver never answered"),
    (
        135,
        Scope::Attach,
        "a new leader whose watch was late published to the node id of an intent that had been written over (I2)",
    ),
    (
        292,
        Scope::Attach,
        "a new leader whose watch was late published for an attachment that the last leader had released (I2)",
    ),
    (849, Scope::Attach, "the same, after a partition"),
    (991, Scope::Attach, "a new leader whose watch was late released a volume that an attachment still named (I4)"),
    (2400, Scope::Attach, "the same, by another way"),
    (428, Scope::Attach, "a consequence of the same: the volume was gone when its attachment was to be detached"),
    (
        250,
        Scope::Claims,
        "a driver that made a volume without telling its id, and then failed for good, left it behind (I12)",
    ),
    (431, Scope::Claims, "a capacity object that a write met in conflict was taken for gone, and got a twin (I13)"),
    (
        296,
        Scope::Claims,
        "a claim went round between the scheduler's stand-in and the daemon, and time stood still (I11)",
    ),
    (98, Scope::Claims, "the same as 250, with a new leader between the two answers"),
    (1409, Scope::Claims, "the same, by another way"),
    (
        2231,
        Scope::Claims,
        "a new leader whose watch was late asked for the volume of a claim that the last leader had let go (P4)",
    ),
    (2108, Scope::Claims, "the same, by another way"),
    (
        146,
        Scope::Claims,
        "a new leader stored a volume that its predecessor had found unfit, and whose deletion was still to come (I13)",
    ),
    (
        922,
        Scope::Claims,
        "a new leader whose watches were late wrote an error beside what the last leader had recorded as attached (I11-I13)",
    ),
    (
        218,
        Scope::Claims,
        "a volume object whose storing was answered with an error was stored again after its deletion, late watch of claims (P2)",
    ),
    (1022, Scope::Claims, "a write of the last leader to a segment that was not there landed in the next term (J3)"),
    (1268, Scope::Claims, "the same, by another way"),
    (451, Scope::Claims, "users gave up a source and waited for its clone"),
    (
        1807,
        Scope::Claims,
        "an entry that people had taken away was missed after its claim was recorded again in a later term",
    ),
    (
        1814,
        Scope::Claims,
        "a volume object whose storing was not answered was stored again after its user had kept the volume, late watches (J10)",
    ),
];

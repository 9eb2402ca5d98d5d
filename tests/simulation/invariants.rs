//! The invariants: the I's are those of attacher spec 10, R37 is one of that file's rows, the P's are those of provisioner
//! spec 10, and the J's are the journal's. Each has a mutant that breaks it.

use std::fmt;

/// Names the invariants, each with what holds.
macro_rules! invariants {
    ($($name:ident $label:literal $holds:literal,)*) => {
        /// Something that must hold.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Invariant {
            $(#[doc = $holds] $name,)*
        }

        impl Invariant {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            fn label(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)*
                }
            }

            /// The invariant, in words.
            pub(crate) fn holds(self) -> &'static str {
                match self {
                    $(Self::$name => $holds,)*
                }
            }
        }
    };
}

invariants! {
    I1 "I1" "one mutating call per volume at a time, and one listing",
    I2 "I2" "our finalizer and the node's id are durable before a publish",
    I3 "I3" "our finalizer leaves an attachment only after the driver has let go",
    I4 "I4" "our finalizer leaves a volume only when nothing names it any more",
    I5 "I5" "nothing but what is ours is changed",
    I6 "I6" "what is recorded as attached is what the driver answered",
    I7 "I7" "an error has a code if and only if the driver gave one",
    I8 "I8" "the driver is asked and attachments are written by who leads, and only about our own",
    I9 "I9" "failures in a row are ever further apart",
    I10 "I10" "secrets are seen nowhere",
    I11 "I11" "daemons do not end by themselves, and come to rest",
    End "I11-I13" "once nothing goes wrong any more, what is attached is what is wanted",
    R37 "R37" "an orderly stop fails nowhere, and hands the Lease back",
    P1 "P1" "one volume per claim, and none for nobody",
    P2 "P2" "a volume object only for a volume that exists, made as it was asked for, until the driver has deleted it",
    P3 "P3" "nothing is deleted that is attached, or that a claim still wants; nor twice",
    P5 "P5" "while an answer is owed the request is the same",
    P6 "P6" "what a volume is made from is protected meanwhile",
    P7 "P7" "nothing but what is ours is written, and by who leads",
    P8 "P8" "a volume object tells where its volume is, which is a place that was asked for",
    P9 "P9" "once nothing goes wrong any more, each object has its volume, and each claim what it wants",
    P10 "P10" "once nothing goes wrong any more, each class times each place has one object that says how much room there is",
    J1 "J1" "the driver is asked only for what the journal holds",
    J2 "J2" "an entry leaves the journal only when no volume can be lost by that",
    J3 "J3" "once nothing goes wrong any more, no volume is without an object, and no entry is left, but for those that are reported because the API has forgotten what came of them",
    J4 "J4" "a segment is written once at a time, and never upon an answer that is not known",
    J8 "J8" "an entry leaves the journal before its volume's object can go",
    J9 "J9" "what was not written for a segment is neither acted on there nor removed",
    J10 "J10" "what a user has kept is there in the end, was not asked for again, and has no new object",
}

impl fmt::Display for Invariant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.label())
    }
}

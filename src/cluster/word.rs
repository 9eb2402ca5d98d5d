//! Short texts, of which every object has many and most objects the same.

use super::names;

/// A text that takes no memory of its own up to 23 bytes: classes, modes, phases, quantities, versions.
pub type Word = smol_str::SmolStr;

/// What is longer than that, and on most objects.
const WELL_KNOWN: [&str; 4] = [
    "kubernetes.io/pv-protection",
    "kubernetes.io/pvc-protection",
    names::FINALIZER_PROVISIONER,
    names::FINALIZER_CLONING,
];

/// The same text, without memory of its own if it is well known.
pub(super) fn well_known(word: Word) -> Word {
    WELL_KNOWN.into_iter().find(|known| word == *known).map_or(word, Word::new_static)
}

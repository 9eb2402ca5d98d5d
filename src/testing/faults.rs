//! What a section of the configuration says of itself, for the tests of the sections.

use crate::process::{Faults, Section};

/// The keys of all faults of a section that stands alone.
pub(crate) fn faulty_keys(section: &impl Section) -> Vec<String> {
    let mut faults = Faults::below("");
    section.check(&mut faults);
    faults.into_vec().into_iter().map(|fault| fault.key).collect()
}

/// The same of the default section, changed like this.
pub(crate) fn faulty_keys_with<S: Section>(change: impl FnOnce(&mut S)) -> Vec<String> {
    let mut section = S::default();
    change(&mut section);
    faulty_keys(&section)
}

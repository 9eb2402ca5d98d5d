//! Finds out which volumes were written during the term. Pure.

use std::sync::OnceLock;

use crate::cluster::Meta;

/// The resourceVersion of the volumes at the start of the term, once it is known. A cached object may be old, because a
/// watch can be late. But if the cached version is newer than this one, the object was written during the term, and
/// needs no read. This is true for each volume that is created during the term; the provisioner of the same daemon
/// creates them with our finalizer.
#[derive(Debug, Default)]
pub struct TermStartVersion(OnceLock<u128>);

impl TermStartVersion {
    /// Sets the version. Call it after the term has begun.
    pub fn at(&self, version: u128) {
        // The first version is the better one.
        let _ = self.0.set(version);
    }

    /// Whether this version of the object was written during the term. If unknown: false.
    pub fn is_before(&self, object: &Meta) -> bool {
        self.0.get().zip(object.version()).is_some_and(|(term_start, version)| *term_start < version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::SmolStr;

    #[test]
    fn only_a_later_version_than_one_that_is_known_is_of_the_term() {
        for (term_start, version, of_term) in [
            (Some(7), Some("8"), true),
            // Numbers, not texts.
            (Some(9), Some("10"), true),
            (Some(10), Some("9"), false),
            // It was there when the term began.
            (Some(7), Some("7"), false),
            (Some(7), Some("6"), false),
            (Some(7), Some("later"), false),
            (Some(7), Some(""), false),
            (Some(7), None, false),
            (None, Some("8"), false),
            (None, None, false),
        ] {
            let begun = TermStartVersion::default();
            if let Some(version) = term_start {
                begun.at(version);
            }
            let object = Meta { resource_version: version.map(SmolStr::from), ..Meta::default() };
            assert_eq!(begun.is_before(&object), of_term, "{term_start:?} {version:?}");
        }
    }

    #[test]
    fn the_first_version_that_is_told_counts() {
        let begun = TermStartVersion::default();
        begun.at(7);
        begun.at(9);
        assert!(begun.is_before(&Meta { resource_version: Some("8".into()), ..Meta::default() }));
    }
}

//! Which volumes were written during the term. Pure.

use std::sync::OnceLock;

use crate::cluster::Meta;

/// The version that the volumes were at when the term had begun, once it is known.
///
/// What a cache says of an object may be old: a watch can be late. But if the version that it shows is later than this one, then
/// the API had it during the term, as certainly as if it had been read. So it is for each volume that is made during the term;
/// the provisioner beside us makes them with our finalizer.
#[derive(Debug, Default)]
pub struct TermStartVersion(OnceLock<u128>);

impl TermStartVersion {
    /// The volumes are at this version, and the term has begun.
    pub fn at(&self, version: u128) {
        // An earlier one says more.
        let _ = self.0.set(version);
    }

    /// Whether the object as it is here was written during the term. Where nobody can say: no.
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

//! The names and uids that the server generates.

use serde_json::Value;

use super::{State, Target, meta};
use crate::api::pure::rejection::{Cause, Rejection};

/// Names from a `generateName` are tried this often.
const NAME_ATTEMPTS: usize = 8;
/// The characters of generated suffixes: no vowels, so no words.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// The longest `generateName` that is kept before the suffix.
const LONGEST_BASE: usize = 58;

impl State {
    /// Gives a new object its name: the path's, its own, or a generated one.
    pub(super) fn name(&self, target: Target<'_>, object: &mut Value) -> Result<(), Rejection> {
        if !target.name.is_empty() {
            meta::set(object, "name", Some(target.name.into()));
            return Ok(());
        }
        if !meta::text(object, "name").is_empty() {
            return Ok(());
        }
        let base = meta::text(object, "generateName");
        if base.is_empty() {
            let cause = Cause::required("metadata.name", "name or generateName is required");
            return Err(Rejection::invalid(target.resource, "", &[cause]));
        }
        let base: String = base.chars().take(LONGEST_BASE).collect();
        let mut name = String::new();
        for _ in 0..NAME_ATTEMPTS {
            let suffix: String = (0..5).map(|_| self.letter()).collect();
            name = format!("{base}{suffix}");
            if self.get(target.resource, target.namespace, &name).is_none() {
                break;
            }
        }
        meta::set(object, "name", Some(name.into()));
        Ok(())
    }

    fn letter(&self) -> char {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a fraction of 27 is a small positive number"
        )]
        let at = (self.rng.fraction() * SUFFIX_LETTERS.len() as f64) as usize;
        char::from(*SUFFIX_LETTERS.get(at).unwrap_or(&b'x'))
    }

    /// A version 4 UUID that the seed decides.
    pub(super) fn uid(&self) -> String {
        let digits: String = (0..4).map(|_| self.rng.suffix()).collect();
        let number = u128::from_str_radix(&digits, 16).unwrap_or_default();
        uuid::Builder::from_random_bytes(number.to_be_bytes()).into_uuid().to_string()
    }
}

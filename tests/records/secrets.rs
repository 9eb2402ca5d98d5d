//! No secret is in a record or a log. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::violation::{Invariant, Violation};

/// What every token of a service account begins with: `{"alg":` in base64.
const TOKEN: &str = "eyJhbGciOi";
/// A shorter value would be found by chance.
const SHORTEST: usize = 6;

/// The texts by which a value is known, plain and as the API has it.
pub(super) fn forms(value: &str) -> Vec<String> {
    if value.len() < SHORTEST { Vec::new() } else { vec![value.to_owned(), STANDARD.encode(value)] }
}

/// What a line of a file shows.
pub(super) fn shown(file: &str, number: usize, line: &str, secrets: &[String]) -> Option<Violation> {
    let found = secrets.iter().map(String::as_str).chain([TOKEN]).find_map(|secret| line.find(secret));
    let at = found?;
    // Enough to find it, and not the secret itself.
    let before = line[..at].char_indices().rev().nth(79).map_or(0, |(place, _)| place);
    let told = format!("a secret is in line {number}, after {:?}", &line[before..at]);
    Some(Violation::new(Invariant::NoSecret, file, told, []))
}

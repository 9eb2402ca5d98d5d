//! The tables in documents, each between two comments that mark its place.

use std::path::Path;

const BEGIN: &str = "<!-- compare: begin -->\n";
const END: &str = "<!-- compare: end -->\n";

/// The README of the project: the few figures that a visitor wants first.
pub(crate) const FRONT: &str = "README.md";
/// The README of the benches: every figure that has a target.
pub(crate) const BENCHES: &str = "benches/README.md";

/// Puts figures into a document.
pub(crate) fn put(document: &str, figures: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    let text = std::fs::read_to_string(&path).unwrap();
    let text = between(&text, figures)
        .unwrap_or_else(|| panic!("{document} must have the two comments that the table goes between"));
    std::fs::write(path, text).unwrap();
}

/// The text with `figures` between the marks. `None`: it does not have both.
pub(crate) fn between(text: &str, figures: &str) -> Option<String> {
    let (head, rest) = text.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}{figures}\n{END}{tail}"))
}

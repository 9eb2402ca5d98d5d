//! The table in the README, between two comments that mark its place.

use std::path::Path;

const BEGIN: &str = "<!-- compare: begin -->\n";
const END: &str = "<!-- compare: end -->\n";

/// Puts the figures into the README.
pub(crate) fn put(figures: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = between(&text, figures).expect("the README has the two comments that the table goes between");
    std::fs::write(path, text).unwrap();
}

/// The text with `figures` between the marks. `None`: it does not have both.
pub(crate) fn between(text: &str, figures: &str) -> Option<String> {
    let (head, rest) = text.split_once(BEGIN)?;
    let (_, tail) = rest.split_once(END)?;
    Some(format!("{head}{BEGIN}{figures}\n{END}{tail}"))
}

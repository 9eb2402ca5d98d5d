//! Sidecars that another program starts: a wrapper, an init system, a shell. Pure.
//!
//! What such a program does before, beside and after the sidecar is not known, so that the container stays.

use serde_yaml::Value;

use super::document::strings;
use super::known::{self, Known};

/// The sidecar that the arguments of another program name, as in `dumb-init -- /csi-resizer` and `sh -c "… exec /csi-attacher …"`.
pub(super) fn sidecar(container: &Value) -> Option<Known> {
    let texts = strings(container, "command").into_iter().skip(1).chain(strings(container, "args"));
    texts.collect::<Vec<_>>().iter().find_map(|text| words(text).find_map(named))
}

/// The words of a text, as a shell divides it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || ";&|()<>{}\"'`".contains(c))
}

/// The sidecar that a word names: as a program, or as the whole value of a flag, since a flag may have the name of a service.
fn named(word: &str) -> Option<Known> {
    if word.starts_with('-') {
        let (_, value) = word.split_once('=')?;
        return Known::all().find(|known| known.words().contains(&base(value)));
    }
    let name = base(word);
    // A socket, a file with settings or an image is no program.
    let is_program = name.strip_suffix(".sh").unwrap_or(name).chars().all(|c| !".:@".contains(c));
    known::named(name).filter(|_| is_program)
}

/// The last part of a path.
pub(super) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a program reads a script.
pub(super) fn is_shell(program: &str) -> bool {
    ["sh", "bash", "ash", "dash", "zsh", "ksh", "busybox"].contains(&program)
}

/// Why a sidecar stays that `program` starts.
pub(super) fn why(program: &str) -> String {
    format!(
        "{program} starts it, and what that does besides is not known: give the container the sidecar's own command and flags, then \
         migrate, or replace it by hand"
    )
}

/// Why a container stays that has a sidecar's image and runs `program`.
pub(super) fn why_image(program: &str) -> String {
    format!(
        "its image is called as a sidecar's, and {program} runs in it: if it starts the sidecar, replace it by hand"
    )
}

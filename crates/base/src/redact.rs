//! What stands in the place of a secret. Pure.

use std::fmt;

/// The text instead of a stripped value: the marker of the Go sidecars.
pub const MARKER: &str = "***stripped***";

/// What a secret field prints instead of its value. It holds how many there are.
#[derive(Clone, Copy)]
pub struct Stripped(pub usize);

impl fmt::Debug for Stripped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == 0 { "{}" } else { MARKER })
    }
}

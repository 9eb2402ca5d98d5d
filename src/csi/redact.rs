//! Secrets never print.

use std::fmt;

/// What a secret field prints instead of its value: the marker of the Go sidecars.
#[derive(Clone, Copy)]
pub struct Stripped(pub usize);

impl fmt::Debug for Stripped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == 0 { "{}" } else { "***stripped***" })
    }
}

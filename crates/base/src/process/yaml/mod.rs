//! Kubernetes manifests as YAML: read as kubectl reads them, and written so that every reader reads the same.
//!
//! kubectl and the API server read YAML 1.1: `yes` is a switch, `0400` is 256, `1_000` is a number, and a key called `<<` merges a
//! mapping into another. The crates of this language read YAML 1.2, where these are texts. So the types of plain scalars are
//! resolved here (`scalar`), on top of a parser that only finds the structure ([`read()`]). What is written ([`write()`]) is quoted
//! wherever one of both would take it for something else than a text.
//!
//! The structure differs, too: what that reader takes and the parser refuses is spelled anew (`dialect`), and of a key that stands
//! twice in a mapping the last counts, which is told.
//!
//! The configuration file is not read here: it is our own format, in YAML 1.2.

mod dialect;
mod read;
mod scalar;
#[cfg(test)]
mod tests;
mod write;

pub use read::{Document, Unreadable, read, read_document};
pub use write::{is_plain, quoted, text, write};

//! The decisions of a Kubernetes API server, without I/O: no sockets, no store, no clock, no randomness.
//!
//! ```text
//!   request ─> resources (which kind?) ─> selector (which objects?) ─> patch (what would it become?)
//!                                                                         │
//!   Status <── rejection <── strict (what does it drop?) <── validate (may it?) <──┘
//!   Table  <── table                    discovery (what is there at all?)      quota (what does a claim count?)
//! ```
//!
//! Objects are `serde_json::Value` throughout: the sandbox is generic over kinds, and a typed detour would lose which
//! fields a client sent. The store passes the old object and gets the new one or a [`rejection::Rejection`] with the real
//! server's text, because clients (and people) match on it.

pub mod base64;
pub mod definitions;
pub mod discovery;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod quota;
pub mod rejection;
pub mod resources;
pub mod selector;
pub mod strict;
pub mod table;
pub mod validate;

mod access;

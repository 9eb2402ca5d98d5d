//! Independent snapshots, and the members of groups as far as they are looked up and released: what their contents have of their own
//! beside [`super::content`].
//!
//! ```text
//! kind.rs      names, and what a content says: pure      look_up.rs   when its driver is asked: pure
//! call.rs      the calls                                 found.rs     the driver's answer: pure
//! ```

mod call;
mod found;
mod kind;
mod look_up;

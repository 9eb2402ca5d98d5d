//! The daemon in a whole world: an API over real HTTP, a driver over a real socket.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_docs_in_private_items,
    reason = "tests may"
)]

mod attach;
mod drift;
mod errors;
mod ground;
mod http;
mod nodes;
mod objects;
mod secrets;
mod volumes;
mod world;

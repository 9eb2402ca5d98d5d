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
mod driver;
mod errors;
mod ground;
mod http;
mod leading;
mod logs;
mod nodes;
mod objects;
mod sandbox_only;
mod secrets;
mod volumes;
mod world;

//! The one connection to the driver.

mod config;
pub mod redact;

pub use config::CsiSection;

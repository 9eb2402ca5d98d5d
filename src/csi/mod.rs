//! The one connection to the driver.

pub mod redact;

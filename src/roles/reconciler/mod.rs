//! Lists the driver's volumes now and then, so that other roles can compare.

mod config;

pub use config::ReconcilerSection;

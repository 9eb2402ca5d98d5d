//! Work queues: what is to be done, in which order, and when again.

mod config;

pub use config::RetrySection;

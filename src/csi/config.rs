//! `csi:` in the configuration file.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::channel::{Endpoint, EndpointError};
use super::client::{Concurrency, CsiOptions};
use crate::process::{Faults, MAX_SOCKET_PATH, Section, duration};
use crate::telemetry::Propagation;

/// The connection to the CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CsiSection {
    /// The driver's unix socket: `unix:///absolute/path`, or the path alone.
    pub endpoint: String,
    /// Deadline of one RPC to the driver.
    #[serde(with = "duration::Text")]
    pub timeout: Duration,
    /// The largest response accepted from the driver, in bytes.
    #[schemars(range(min = 65_536, max = 1_073_741_824))]
    pub max_message_bytes: usize,
    /// How many characters of a driver's answer are logged. null: all.
    #[schemars(range(min = 1))]
    pub max_log_length: Option<usize>,
    /// How many calls of one RPC may be in flight at once.
    pub concurrency: ConcurrencySection,
}

/// How many calls of one RPC may be in flight at once: fewer while the driver refuses calls or does not answer in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConcurrencySection {
    /// Whether there are fewer while the driver answers `ResourceExhausted`, `Aborted` or `Unavailable`, or not before the deadline.
    pub adaptive: bool,
    /// So many always may be in flight, or `max` if that is fewer.
    #[schemars(range(min = 1, max = 10_000))]
    pub min: u32,
    /// More than these are never in flight, whatever the number of workers.
    #[schemars(range(min = 1, max = 10_000))]
    pub max: u32,
}

impl Default for ConcurrencySection {
    fn default() -> Self {
        // A call that hangs holds its place until its deadline: it must not hold the only one.
        Self { adaptive: true, min: 4, max: 1000 }
    }
}

impl Default for CsiSection {
    fn default() -> Self {
        Self {
            endpoint: "unix:///run/csi/socket".to_owned(),
            timeout: Duration::from_secs(15),
            // Some 50 000 volumes in one ListVolumes answer; gRPC's own 4 MiB were too few for drivers that don't page.
            max_message_bytes: 16 << 20,
            max_log_length: Some(8192),
            concurrency: ConcurrencySection::default(),
        }
    }
}

impl CsiSection {
    /// How calls are made.
    pub fn options(&self, propagation: Propagation) -> CsiOptions {
        CsiOptions {
            timeout: self.timeout,
            max_message_bytes: self.max_message_bytes,
            max_log_length: self.max_log_length,
            propagation,
            concurrency: self.concurrency.options(),
        }
    }
}

impl ConcurrencySection {
    fn options(&self) -> Concurrency {
        Concurrency { min: if self.adaptive { self.min.min(self.max) } else { self.max }, max: self.max }
    }
}

impl Default for CsiOptions {
    fn default() -> Self {
        CsiSection::default().options(Propagation::default())
    }
}

impl Section for CsiSection {
    fn check(&self, faults: &mut Faults) {
        match Endpoint::parse(&self.endpoint) {
            Ok(_) => {}
            Err(EndpointError::TooLong(bytes)) => faults.add(
                "endpoint",
                format_args!("a path of {bytes} bytes"),
                format_args!("a socket path of at most {MAX_SOCKET_PATH} bytes"),
            ),
            Err(_) => faults.add(
                "endpoint",
                format_args!("{:?}", self.endpoint),
                "a unix socket: unix:///absolute/path or /absolute/path",
            ),
        }
        duration::check_some("timeout", self.timeout, faults);
        let ConcurrencySection { min, max, .. } = self.concurrency;
        if min == 0 {
            faults.add("concurrency.min", min, "at least 1");
        }
        if max == 0 {
            faults.add("concurrency.max", max, "at least 1");
        }
    }
}

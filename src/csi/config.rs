//! `csi:` in the configuration file.

use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section, duration};

/// The longest path that fits into a unix socket's address (`sun_path`, less its closing zero).
const LONGEST_SOCKET_PATH: usize = 107;

/// The connection to the CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CsiSection {
    /// The driver's unix socket: `unix:///absolute/path`, or the path alone.
    pub endpoint: String,
    /// Deadline of one RPC to the driver.
    #[serde(with = "duration")]
    #[schemars(with = "duration::Text")]
    pub timeout: Duration,
    /// The largest answer accepted from the driver, in bytes.
    #[schemars(range(min = 65_536, max = 1_073_741_824))]
    pub max_message_bytes: usize,
    /// How many characters of a driver's answer are logged. null: all.
    #[schemars(range(min = 1))]
    pub max_log_length: Option<usize>,
}

impl Default for CsiSection {
    fn default() -> Self {
        Self {
            endpoint: "unix:///run/csi/socket".to_owned(),
            timeout: Duration::from_secs(15),
            // Some 50 000 volumes in one ListVolumes answer; gRPC's own 4 MiB were too few for drivers that don't page.
            max_message_bytes: 16 << 20,
            max_log_length: Some(8192),
        }
    }
}

impl Section for CsiSection {
    fn check(&self, faults: &mut Faults) {
        let path = socket_path(&self.endpoint);
        match path {
            None => faults.add(
                "endpoint",
                format_args!("{:?}", self.endpoint),
                "a unix socket: unix:///absolute/path or /absolute/path",
            ),
            Some(path) if path.as_os_str().len() > LONGEST_SOCKET_PATH => faults.add(
                "endpoint",
                format_args!("a path of {} bytes", path.as_os_str().len()),
                format_args!("a socket path of at most {LONGEST_SOCKET_PATH} bytes"),
            ),
            Some(_) => {}
        }
        if self.timeout.is_zero() {
            faults.add("timeout", duration::format(self.timeout), "longer than 0s");
        }
    }
}

/// The socket's path, if the endpoint names one.
fn socket_path(endpoint: &str) -> Option<&Path> {
    let path = match endpoint.strip_prefix("unix:") {
        // After `//` stands a host, and a socket has none: the path begins at the third slash.
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None => endpoint,
    };
    (path.starts_with('/') && path.len() > 1 && !path.ends_with('/') && !path.contains('\0')).then(|| Path::new(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_unix_sockets_are_endpoints() {
        for (endpoint, path) in [
            ("unix:///run/csi/socket", Some("/run/csi/socket")),
            ("unix:/run/csi/socket", Some("/run/csi/socket")),
            ("/run/csi/socket", Some("/run/csi/socket")),
            ("unix://run/csi/socket", None),
            ("tcp://127.0.0.1:10000", None),
            ("127.0.0.1:10000", None),
            ("run/csi/socket", None),
            ("unix:///", None),
            ("/run/csi/", None),
            ("", None),
        ] {
            assert_eq!(socket_path(endpoint), path.map(Path::new), "{endpoint}");
        }
    }
}

//! `diagnostics:` in the configuration file.

use std::net::{Ipv6Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::process::{Faults, Section};

/// The HTTP server of probes, metrics and the status page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DiagnosticsSection {
    /// Address and port to listen on; port 0: any free one. null: no server.
    #[schemars(with = "Option<String>", extend("format" = "socket-address"))]
    pub listen: Option<SocketAddr>,
}

impl Default for DiagnosticsSection {
    fn default() -> Self {
        Self { listen: Some(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 8080))) }
    }
}

impl Section for DiagnosticsSection {
    /// Any socket address will do.
    fn check(&self, _: &mut Faults) {}
}

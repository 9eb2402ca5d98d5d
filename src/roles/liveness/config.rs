//! `roles.liveness:` in the configuration file.

use std::net::SocketAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names;
use crate::config::{Rest, RoleSection};
use crate::process::{Faults, Section, duration};

/// The answer to the kubelet's probe of the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LivenessSection {
    /// Address and port for the kubelet's probe of the driver's container.
    #[schemars(with = "String", extend("format" = "socket-address"))]
    pub listen: SocketAddr,
    /// The probe's path.
    pub path: String,
    /// Limit for one check: connecting and Probe together.
    #[serde(with = "duration::Text")]
    pub probe_timeout: Duration,
}

impl Default for LivenessSection {
    fn default() -> Self {
        Self { listen: names::address(), path: names::PATH.to_owned(), probe_timeout: Duration::from_secs(3) }
    }
}

/// A probe's `timeoutSeconds` is rarely above it; the kubelet hangs up first, and the reason is lost.
const LONG: Duration = Duration::from_secs(10);

impl Section for LivenessSection {
    fn check(&self, faults: &mut Faults) {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~".contains(c);
        if !self.path.starts_with('/') || !self.path.chars().all(is_plain) {
            faults.add("path", format_args!("{:?}", self.path), "a path such as /healthz");
        }
        duration::check_some("probeTimeout", self.probe_timeout, faults);
    }
}

/// What is allowed, and probably not intended.
pub(super) fn warnings(section: &Value, _: Rest<'_>) -> Vec<String> {
    let section: Option<LivenessSection> = RoleSection::read(section).ok();
    let long = section.map(|section| section.probe_timeout).filter(|timeout| *timeout >= LONG);
    let text = |timeout| {
        format!(
            "roles.liveness.probeTimeout is {}: the probe's timeoutSeconds on the driver's container must be longer, or the \
             kubelet hangs up first and the reason is lost",
            duration::format(timeout)
        )
    };
    long.map(text).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Config;
    use crate::testing::faulty_keys;

    #[test]
    fn what_makes_no_sense_is_refused() {
        for path in ["", "healthz", "/a b", "/{any}", "/:x"] {
            let section = LivenessSection { path: path.to_owned(), ..LivenessSection::default() };
            assert_eq!(faulty_keys(&section), ["path"], "{path}");
        }
        let section = LivenessSection { probe_timeout: Duration::ZERO, ..LivenessSection::default() };
        assert_eq!(faulty_keys(&section), ["probeTimeout"]);
        assert_eq!(faulty_keys(&LivenessSection::default()), Vec::<String>::new());
    }

    #[test]
    fn a_check_that_outlasts_the_kubelets_patience_is_warned_of() {
        let warned = |seconds| {
            let probe_timeout = Duration::from_secs(seconds);
            let section = LivenessSection { probe_timeout, ..LivenessSection::default() };
            let rest = Rest { config: &Config::default(), roles: &BTreeMap::new() };
            warnings(&serde_json::to_value(section).unwrap(), rest)
        };
        assert_eq!(warned(9), Vec::<String>::new());
        assert!(warned(10)[0].contains("probeTimeout is 10s"));
    }
}

//! `roles.registrar:` in the configuration file.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names;
use crate::config::{Need, Rest, RoleSection};
use crate::process::{Faults, MAX_SOCKET_PATH, Section, duration};

/// The registration of the driver with this node's kubelet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RegistrarSection {
    /// Path of the driver's socket on the host, where the kubelet calls the driver. null:
    /// `/var/lib/kubelet/plugins/<driver>/<last part of csi.endpoint>`.
    pub kubelet_registration_path: Option<String>,
    /// The kubelet's `plugins_registry`, as this process sees it.
    pub directory: String,
    /// Withdraws the driver from the kubelet when it has not answered for so long. 0s: never.
    #[serde(with = "duration::Text")]
    pub withdraw_after: Duration,
    /// What happens to the registration when the daemon stops.
    pub on_shutdown: OnShutdown,
    /// How often this node's `CSINode` is read; a driver that is missing there twice is announced again. 0s: never.
    #[serde(with = "duration::Text")]
    pub csi_node_interval: Duration,
    /// Address and port of `/healthz` as node-driver-registrar has it. null: no such port.
    #[schemars(with = "Option<String>", extend("format" = "socket-address"))]
    pub health_listen: Option<SocketAddr>,
}

/// What happens to the registration when the daemon stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OnShutdown {
    /// The socket is removed: the kubelet forgets the driver.
    Withdraw,
    /// The socket's file stays: no gap in an upgrade, but after an uninstall the kubelet knows the driver until it restarts.
    Keep,
}

impl Default for RegistrarSection {
    fn default() -> Self {
        Self {
            kubelet_registration_path: None,
            directory: "/registration".to_owned(),
            withdraw_after: Duration::ZERO,
            on_shutdown: OnShutdown::Withdraw,
            csi_node_interval: Duration::ZERO,
            health_listen: None,
        }
    }
}

/// The role that answers the kubelet's probe of the driver, on an address of its own.
const LIVENESS: &str = "liveness";
/// `withdrawAfter`: shorter than a driver's restart would unregister the driver in each of them. `csiNodeInterval`: each node asks
/// the API server so often.
const SHORTEST: Duration = Duration::from_secs(10);

/// `directory`: a longer one has no room for a slash and the socket of a driver whose name is one letter.
const LONGEST_DIRECTORY: usize = MAX_SOCKET_PATH - "/d-reg.sock".len();

impl Section for RegistrarSection {
    fn check(&self, faults: &mut Faults) {
        let is_absolute = |path: &str| path.starts_with('/') && !path.contains('\0');
        if let Some(path) = self.kubelet_registration_path.as_deref()
            && (!is_absolute(path) || path.ends_with('/'))
        {
            let allowed = "the absolute path of a socket on the host";
            faults.add("kubeletRegistrationPath", format_args!("{path:?}"), allowed);
        } else if let Some(path) = self.kubelet_registration_path.as_deref()
            && path.len() > MAX_SOCKET_PATH
        {
            let allowed = format_args!("a socket path of at most {MAX_SOCKET_PATH} bytes");
            faults.add("kubeletRegistrationPath", format_args!("a path of {} bytes", path.len()), allowed);
        }
        if !is_absolute(&self.directory) {
            faults.add("directory", format_args!("{:?}", self.directory), "an absolute path");
        } else if self.directory.strip_suffix('/').unwrap_or(&self.directory).len() > LONGEST_DIRECTORY {
            let allowed = format_args!(
                "a path of at most {LONGEST_DIRECTORY} bytes: <directory>/<driver>-reg.sock is a unix socket, of at most \
                 {MAX_SOCKET_PATH}"
            );
            faults.add("directory", format_args!("a path of {} bytes", self.directory.len()), allowed);
        }
        if !self.withdraw_after.is_zero() && self.withdraw_after < SHORTEST {
            faults.add("withdrawAfter", duration::format(self.withdraw_after), "at least 10s, or 0s for never");
        }
        if !self.csi_node_interval.is_zero() && self.csi_node_interval < SHORTEST {
            faults.add("csiNodeInterval", duration::format(self.csi_node_interval), "at least 10s, or 0s for never");
        }
    }
}

/// Its node's `CSINode` has the node's name.
pub(super) fn needs(section: &Value) -> Vec<Need> {
    let section: Option<RegistrarSection> = RoleSection::read(section).ok();
    let reads = section.is_some_and(|section| !section.csi_node_interval.is_zero());
    reads.then(|| Need::node("csiNodeInterval")).into_iter().collect()
}

/// An address that another part of this process listens on never gets free.
pub(super) fn conflicts(section: &Value, rest: Rest<'_>, faults: &mut Faults) {
    let section: Option<RegistrarSection> = RoleSection::read(section).ok();
    let Some(wanted) = section.and_then(|section| section.health_listen) else { return };
    let of_role = |role: &str| rest.roles.get(role)?["listen"].as_str()?.parse::<SocketAddr>().ok();
    let others = [("diagnostics.listen", rest.config.diagnostics.listen), ("roles.liveness.listen", of_role(LIVENESS))];
    for (key, taken) in others {
        if let Some(taken) = taken.filter(|taken| excludes(wanted, *taken)) {
            faults.add(
                "healthListen",
                wanted,
                format_args!("an address beside that of {key}, which is {taken}; or null"),
            );
        }
    }
}

/// Whether only one of both can be listened on. Port 0 is any free one.
fn excludes(one: SocketAddr, other: SocketAddr) -> bool {
    // `[::]` takes the addresses of IPv4, too.
    let takes_all = |ip: IpAddr, of: IpAddr| ip.is_unspecified() && (ip.is_ipv6() || of.is_ipv4());
    let (ip, of) = (one.ip(), other.ip());
    one.port() == other.port() && one.port() != 0 && (ip == of || takes_all(ip, of) || takes_all(of, ip))
}

/// What is allowed, and probably not intended.
pub(super) fn warnings(section: &Value, rest: Rest<'_>) -> Vec<String> {
    let section: Option<RegistrarSection> = RoleSection::read(section).ok();
    let Some(path) = section.and_then(|section| section.kubelet_registration_path) else { return Vec::new() };
    let (there, here) = (names::last_part(&path), names::last_part(&rest.config.csi.endpoint));
    if there == here {
        return Vec::new();
    }
    vec![format!(
        "roles.registrar.kubeletRegistrationPath ends with {there:?} and csi.endpoint with {here:?}: both name the driver's socket, \
         on the host and in this container"
    )]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Config;
    use crate::testing::faulty_keys;

    #[test]
    fn what_makes_no_sense_is_refused() {
        for path in ["", "csi.sock", "unix:///csi.sock", "/plugins/"] {
            let section =
                RegistrarSection { kubelet_registration_path: Some(path.to_owned()), ..RegistrarSection::default() };
            assert_eq!(faulty_keys(&section), ["kubeletRegistrationPath"], "{path}");
        }
        let of = |length: usize| format!("/{}", "x".repeat(length - 1));
        for (directory, path, expected) in [
            (of(96) + "/", of(107), &[][..]),
            (of(97), of(107), &["directory"]),
            (of(96), of(108), &["kubeletRegistrationPath"]),
        ] {
            let section =
                RegistrarSection { directory, kubelet_registration_path: Some(path), ..RegistrarSection::default() };
            assert_eq!(faulty_keys(&section), expected);
        }
        let section = RegistrarSection {
            directory: "registration".to_owned(),
            withdraw_after: Duration::from_secs(1),
            csi_node_interval: Duration::from_secs(9),
            ..RegistrarSection::default()
        };
        assert_eq!(faulty_keys(&section), ["directory", "withdrawAfter", "csiNodeInterval"]);
        assert_eq!(faulty_keys(&RegistrarSection::default()), Vec::<String>::new());
    }

    #[test]
    fn an_address_that_this_process_listens_on_itself_is_refused() {
        let found = |wanted: &str, diagnostics: &str, liveness: &str| {
            let section =
                RegistrarSection { health_listen: Some(wanted.parse().unwrap()), ..RegistrarSection::default() };
            let mut config = Config::default();
            config.diagnostics.listen = Some(diagnostics.parse().unwrap());
            let roles = [("liveness", serde_json::json!({ "listen": liveness }))].into();
            let mut faults = Faults::below("roles.registrar");
            conflicts(&serde_json::to_value(section).unwrap(), Rest { config: &config, roles: &roles }, &mut faults);
            faults.into_vec().into_iter().map(|fault| format!("{}: {}", fault.key, fault.allowed)).collect::<Vec<_>>()
        };
        let (free, none) = ("127.0.0.1:1", Vec::<String>::new());
        for (wanted, taken, excludes) in [
            ("0.0.0.0:9809", "0.0.0.0:9809", true),
            ("127.0.0.1:9809", "0.0.0.0:9809", true),
            ("127.0.0.1:9809", "[::]:9809", true),
            ("[::]:9809", "127.0.0.1:9809", true),
            ("[::1]:9809", "0.0.0.0:9809", false),
            ("127.0.0.1:9809", "127.0.0.2:9809", false),
            ("127.0.0.1:9809", "127.0.0.1:9808", false),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let says = |key: &str| {
                let text =
                    format!("roles.registrar.healthListen: an address beside that of {key}, which is {taken}; or null");
                if excludes { vec![text] } else { none.clone() }
            };
            assert_eq!(found(wanted, taken, free), says("diagnostics.listen"), "{wanted} {taken}");
            assert_eq!(found(wanted, free, taken), says("roles.liveness.listen"), "{wanted} {taken}");
        }
    }

    #[test]
    fn two_names_of_one_socket_are_warned_of_if_they_differ() {
        let warned = |path: &str| {
            let section =
                RegistrarSection { kubelet_registration_path: Some(path.to_owned()), ..RegistrarSection::default() };
            let mut config = Config::default();
            config.csi.endpoint = "unix:///run/csi/csi.sock".to_owned();
            let rest = Rest { config: &config, roles: &BTreeMap::new() };
            warnings(&serde_json::to_value(section).unwrap(), rest)
        };
        assert_eq!(warned("/var/lib/kubelet/plugins/demo/csi.sock"), Vec::<String>::new());
        assert!(warned("/var/lib/kubelet/plugins/demo/plugin.sock")[0].contains("\"plugin.sock\""));
    }
}

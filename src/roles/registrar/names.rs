//! The names that the kubelet and people see of this role. All are node-driver-registrar's, so that either can take over from the
//! other.

/// The kind of plugin that a CSI driver is to the kubelet.
pub const TYPE: &str = "CSIPlugin";

/// The versions of the plugin protocol: the first, and no other (N11).
pub const VERSIONS: [&str; 1] = ["1.0.0"];

/// The path that node-driver-registrar's health port has.
pub const HEALTH: &str = "/healthz";

/// The name of a driver's registration socket in the kubelet's directory.
pub fn socket(driver: &str) -> String {
    format!("{driver}-reg.sock")
}

/// The same before it is announced: the kubelet ignores names that begin with a dot.
pub fn hidden_socket(driver: &str, suffix: &str) -> String {
    format!(".{}.{suffix}", socket(driver))
}

/// Whether a file's name is that of a hidden socket of this driver. A driver's name may begin like another's socket.
pub fn is_hidden_socket(name: &str, driver: &str) -> bool {
    let suffix = name.strip_prefix(&hidden_socket(driver, ""));
    suffix.is_some_and(|suffix| !suffix.is_empty() && suffix.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// Where the driver's socket is on the host by convention, if the configuration does not say it: in a folder of the driver's name, with
/// the name that the socket has in our own endpoint.
pub fn usual_endpoint(driver: &str, endpoint: &str) -> String {
    format!("/var/lib/kubelet/plugins/{driver}/{}", last_part(endpoint))
}

/// What stands behind the last slash.
pub fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_go_sidecar() {
        assert_eq!(socket("demo.csi"), "demo.csi-reg.sock");
        assert_eq!(hidden_socket("demo.csi", "x1"), ".demo.csi-reg.sock.x1");
        assert!(is_hidden_socket(".demo.csi-reg.sock.x1", "demo.csi"));
        for other in [
            "demo.csi-reg.sock",
            ".demo.csi-reg.sock",
            ".demo.csi-reg.sock.",
            ".demo.csi.two-reg.sock.x1",
            ".demo.csi-reg.sock.two-reg.sock.x1",
        ] {
            assert!(!is_hidden_socket(other, "demo.csi"), "{other}");
        }
        let endpoint = usual_endpoint("demo.csi", "unix:///run/csi/csi.sock");
        assert_eq!(endpoint, "/var/lib/kubelet/plugins/demo.csi/csi.sock");
    }
}

//! The names that the kubelet and people see of this role. All are node-driver-registrar's, so that either can take over from the
//! other.

use sha2::{Digest as _, Sha256};

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

/// The same before it is announced: the kubelet ignores names that begin with a dot. It has ten bytes, as the socket of a driver with
/// the shortest name, so that it fits into every path that the final name fits into. The first five digits say whose it is.
pub fn hidden_socket(driver: &str, random: u16) -> String {
    let digest = Sha256::digest(driver);
    format!(".{:02x}{:02x}{:01x}{random:04x}", digest[0], digest[1], digest[2] >> 4)
}

/// Whether a file's name is that of a hidden socket of this driver.
pub fn is_hidden_socket(name: &str, driver: &str) -> bool {
    let random = name.get(name.len().saturating_sub(4)..).and_then(|digits| u16::from_str_radix(digits, 16).ok());
    random.is_some_and(|random| name == hidden_socket(driver, random))
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
        let endpoint = usual_endpoint("demo.csi", "unix:///run/csi/csi.sock");
        assert_eq!(endpoint, "/var/lib/kubelet/plugins/demo.csi/csi.sock");
    }

    #[test]
    fn a_hidden_name_is_never_longer_than_the_final_one_and_says_whose_it_is() {
        for driver in ["d", "demo.csi", &"d".repeat(63)] {
            let hidden = hidden_socket(driver, 0x0a);
            assert!(hidden.starts_with('.') && hidden.len() <= socket(driver).len(), "{hidden}");
            assert!(is_hidden_socket(&hidden, driver), "{hidden}");
        }
        let hidden = hidden_socket("demo.csi", 0xbeef);
        assert_ne!(hidden, hidden_socket("demo.csi.two", 0xbeef), "two drivers may announce at the same moment");
        let upper = hidden.to_uppercase();
        let longer = format!("{hidden}0");
        for other in ["", ".", ".é", "demo.csi-reg.sock", &hidden[..9], &hidden[1..], &upper, &longer] {
            assert!(!is_hidden_socket(other, "demo.csi"), "{other}");
        }
        assert!(!is_hidden_socket(&hidden, "demo.csi.two"));
    }
}

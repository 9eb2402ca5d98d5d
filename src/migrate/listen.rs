//! A listen address as Go takes it, as one of ours. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Services of /etc/services that an address of HTTP could name.
const SERVICES: [(&str, u16); 2] = [("http", 80), ("https", 443)];

/// Reads `host:port` as Go's `net.Listen("tcp", …)` does, or says what is expected.
///
/// No host is all addresses of both families, and so is `0.0.0.0`: Go opens one socket for both. The pod's own address is not known
/// before the pod exists, and all addresses hold it.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = split(text)?;
    let ip = match host {
        "" | "0.0.0.0" | "::" | "{status.podIP}" | "{status.podIPs}" | "{status.hostIP}" | "{status.hostIPs}" => {
            Ipv6Addr::UNSPECIFIED.into()
        }
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host if host.contains('%') => return Err("address:port, with an address that names no interface".to_owned()),
        host => host
            .parse::<IpAddr>()
            .map_err(|_| "address:port, with an address that is written in the manifest".to_owned())?,
    };
    Ok(SocketAddr::new(ip, self::port(port)?))
}

/// As `net.SplitHostPort` does.
fn split(text: &str) -> Result<(&str, &str), String> {
    const EXPECTED: &str = "address:port, with an address of IPv6 in brackets";
    let parts = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').and_then(|(host, port)| Some((host, port.strip_prefix(':')?))),
        None => text.rsplit_once(':').filter(|(host, _)| !host.contains([':', '[', ']'])),
    };
    parts.filter(|(_, port)| !port.contains([':', '[', ']'])).ok_or_else(|| EXPECTED.to_owned())
}

/// None is any free one.
fn port(text: &str) -> Result<u16, String> {
    let service = SERVICES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, port)| *port);
    let number = || if text.is_empty() { Some(0) } else { text.parse().ok() };
    service.or_else(number).ok_or_else(|| "address:port, with a port from 0 to 65535".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_gos_listen_address_is_read() {
        for (text, expected) in [
            (":8090", "[::]:8090"),
            ("[]:8090", "[::]:8090"),
            ("[::]:8090", "[::]:8090"),
            ("0.0.0.0:8090", "[::]:8090"),
            ("[0.0.0.0]:8090", "[::]:8090"),
            ("{status.podIP}:8090", "[::]:8090"),
            ("[{status.podIP}]:8090", "[::]:8090"),
            ("{status.hostIP}:8090", "[::]:8090"),
            ("[{status.podIPs}]:8090", "[::]:8090"),
            ("localhost:8090", "127.0.0.1:8090"),
            ("127.0.0.1:8090", "127.0.0.1:8090"),
            ("[127.0.0.1]:8090", "127.0.0.1:8090"),
            ("[::1]:8090", "[::1]:8090"),
            ("[fd00::7]:8090", "[fd00::7]:8090"),
            ("[::ffff:10.0.0.1]:8090", "[::ffff:10.0.0.1]:8090"),
            ("10.0.0.7:08090", "10.0.0.7:8090"),
            (":+80", "[::]:80"),
            (":http", "[::]:80"),
            (":HTTPS", "[::]:443"),
            (":0", "[::]:0"),
            (":", "[::]:0"),
        ] {
            assert_eq!(address(text).map(|address| address.to_string()).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_and_what_only_the_node_knows_is_refused() {
        for text in [
            "",
            "8090",
            "localhost",
            "::1:8090",
            "[::1]",
            "[::1]8090",
            "[::1:8090",
            "::1]:8090",
            "a:b:80",
            ":65536",
            ":-1",
            ":x",
            "node.example.com:80",
            "{spec.nodeName}:80",
            "[fe80::1%eth0]:80",
            "[[::1]]:80",
            "256.0.0.1:80",
        ] {
            assert!(address(text).is_err(), "{text}: {:?}", address(text));
        }
    }
}

//! A listen address as Go takes it, as one of ours. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The services of TCP that Go knows without /etc/services, which the sidecars' images need not have (`net/lookup.go`).
const SERVICES: [(&str, u16); 15] = [
    ("domain", 53),
    ("ftp", 21),
    ("ftps", 990),
    ("gopher", 70),
    ("http", 80),
    ("https", 443),
    ("imap2", 143),
    ("imap3", 220),
    ("imaps", 993),
    ("pop3", 110),
    ("pop3s", 995),
    ("smtp", 25),
    ("ssh", 22),
    ("submissions", 465),
    ("telnet", 23),
];

/// Reads `host:port` as Go's `net.Listen("tcp", …)` does, or says what is expected.
///
/// No host is all addresses of both families, and so is `0.0.0.0`: Go opens one socket for both. The pod's own address is not known
/// before the pod exists, and all addresses hold it.
///
/// The name of a host is refused: which address it has is known only where the daemon runs, and may change, while a listener stays
/// where it is. So is the name of an interface: its number is the node's. Both refusals say what to write.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let (host, port) = split(text)?;
    let port = self::port(port)?;
    let ip = match host {
        "" | "0.0.0.0" | "::" | "{status.podIP}" | "{status.podIPs}" | "{status.hostIP}" | "{status.hostIPs}" => {
            Ipv6Addr::UNSPECIFIED.into()
        }
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => match host.split_once('%') {
            Some((ip, zone)) => return zoned(ip, zone, port),
            None => host.parse::<IpAddr>().map_err(|_| {
                format!("address:port, with the address of \"{host}\" instead of its name, or none for all addresses")
            })?,
        },
    };
    Ok(SocketAddr::new(ip, port))
}

/// An address of one link, with the number of the interface.
fn zoned(ip: &str, zone: &str, port: u16) -> Result<SocketAddr, String> {
    let expected = || {
        format!("address:port, with the number of the interface instead of \"{zone}\" (ip link), or no address for all")
    };
    let ip = ip.parse::<Ipv6Addr>().map_err(|_| "address:port, with an address of IPv6 before the %".to_owned())?;
    let zone = zone.parse().map_err(|_| expected())?;
    Ok(SocketAddrV6::new(ip, port, 0, zone).into())
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
            (":ssh", "[::]:22"),
            (":telnet", "[::]:23"),
            (":0", "[::]:0"),
            ("[fe80::1%2]:80", "[fe80::1%2]:80"),
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

    #[test]
    fn a_refusal_says_what_to_write_instead() {
        for (text, expected) in [
            ("node.example.com:80", "with the address of \"node.example.com\" instead of its name"),
            ("[fe80::1%eth0]:80", "with the number of the interface instead of \"eth0\""),
            ("[10.0.0.1%2]:80", "with an address of IPv6 before the %"),
            (":nfs", "with a port from 0 to 65535"),
        ] {
            let error = address(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

//! The names that other programs see of this role. It has no Lease, writes no object and no Event.

use std::net::{Ipv6Addr, SocketAddr};

/// livenessprobe's port.
pub const PORT: u16 = 9808;

/// livenessprobe's path. Probes of driver containers name it.
pub const PATH: &str = "/healthz";

/// Where the kubelet finds us, over IPv4 and IPv6.
pub fn address() -> SocketAddr {
    SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT))
}

/// The body of a healthy answer.
pub const OK: &str = "ok";

/// The body if the driver answers that it is not ready.
pub const NOT_READY: &str = "driver responded but is not ready";

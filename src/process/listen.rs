//! TCP listeners on the addresses of the configuration.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted: what Go and tokio take, too.
const BACKLOG: u32 = 1024;

/// Listens. `[::]` is every address of both families, whatever `net.ipv6.bindv6only` says, as with Go; where the kernel has no IPv6
/// it is every address of IPv4.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if address.ip() != IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
        return TcpListener::bind(address).await;
    }
    match both_families(address) {
        Err(error) if is_without_ipv6(&error) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await,
        bound => bound,
    }
}

fn both_families(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v6()?;
    SockRef::from(&socket).set_only_v6(false)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Whether the error may mean that there is no IPv6. A port that is taken or forbidden is so for IPv4, too.
fn is_without_ipv6(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        let listener = listen("[::]:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        TcpStream::connect(("127.0.0.1", address.port())).await.unwrap();
        if address.is_ipv6() {
            TcpStream::connect(("::1", address.port())).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_port_that_ipv4_has_is_taken_for_both() {
        let first = listen("0.0.0.0:0".parse().unwrap()).await.unwrap();
        let address = format!("[::]:{}", first.local_addr().unwrap().port());
        let error = listen(address.parse().unwrap()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn only_a_kernel_without_ipv6_falls_back() {
        // EAFNOSUPPORT: no IPv6 in the kernel. EADDRNOTAVAIL: switched off. EADDRINUSE, EACCES: as they are.
        for (number, falls_back) in [(97, true), (99, true), (98, false), (13, false)] {
            assert_eq!(is_without_ipv6(&io::Error::from_raw_os_error(number)), falls_back, "{number}");
        }
    }
}

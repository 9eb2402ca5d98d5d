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
    listen_by(address, both_families).await
}

async fn listen_by(
    address: SocketAddr,
    both_families: impl FnOnce(SocketAddr) -> io::Result<TcpListener>,
) -> io::Result<TcpListener> {
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

    #[tokio::test]
    async fn only_a_kernel_without_ipv6_falls_back_to_every_address_of_ipv4() {
        let all: SocketAddr = "[::]:0".parse().unwrap();
        let fails = |number: i32| move |_: SocketAddr| Err(io::Error::from_raw_os_error(number));
        // EAFNOSUPPORT: no IPv6 in the kernel. EADDRNOTAVAIL: switched off.
        for number in [97, 99] {
            let listener = listen_by(all, fails(number)).await.unwrap();
            let address = listener.local_addr().unwrap();
            assert_eq!(address.ip(), Ipv4Addr::UNSPECIFIED, "{number}");
            TcpStream::connect(("127.0.0.1", address.port())).await.unwrap();
        }
        // EADDRINUSE, EACCES: as they are.
        for number in [98, 13] {
            let error = listen_by(all, fails(number)).await.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(number));
        }
        // Whoever has chosen an address gets that one.
        let chosen = listen_by("127.0.0.1:0".parse().unwrap(), fails(97)).await.unwrap();
        assert_eq!(chosen.local_addr().unwrap().ip(), Ipv4Addr::LOCALHOST);
    }
}

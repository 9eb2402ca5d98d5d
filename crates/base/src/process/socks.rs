//! The client's half of SOCKS 5 (RFC 1928 and 1929), as Go's programs speak it.
//!
//! ```text
//! client: the methods that it offers ──> proxy: the one that it chooses
//! client: user and password          ──> proxy: whether it accepts them     (only if it has chosen this method)
//! client: connect to a host and port ──> proxy: whether it is connected
//! ```
//!
//! With a user and a password both methods are offered, because the proxy may want neither: kubectl connects then, too. Own code,
//! because hyper-util's client offers one method alone, tokio-socks refuses an empty password, and fast-socks5 brings second
//! versions of two crates.

use std::fmt;
use std::io;
use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::proxy::Credentials;

const VERSION: u8 = 5;
/// That of the exchange of user and password.
const LOGIN_VERSION: u8 = 1;

const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xff;

const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Why a SOCKS proxy has not connected.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocksError {
    /// The connection to the proxy broke or ended.
    #[error("its connection ended before its answer")]
    Io(#[from] io::Error),
    /// What answers is something else.
    #[error("it answered with version {0} of a protocol that is not SOCKS 5: check its port and scheme")]
    Version(u8),
    /// The proxy takes no offered method.
    #[error("it accepts {}", match .has_credentials {
        true => "neither a user and password nor a client without them",
        false => "no client without a user and password: give its address both, as socks5://USER:PASSWORD@HOST:PORT",
    })]
    NoMethod {
        /// Whether its address has a user and a password.
        has_credentials: bool,
    },
    /// The proxy chose a method that was not offered.
    #[error("it chose the authentication method {0}, which was not offered")]
    Method(u8),
    /// The protocol has no room for the user or the password.
    #[error(
        "it wants its user and password, and SOCKS 5 has room for a user of 1 to 255 bytes and a password of up to 255"
    )]
    Credentials,
    /// They are not the right ones.
    #[error("it does not accept the user and password of its address")]
    Login,
    /// The protocol has no room for the name.
    #[error("SOCKS 5 has room for names of up to 255 bytes")]
    Name,
    /// The proxy has not connected.
    #[error("it answered: {}", Answer(*.0))]
    Refused(u8),
}

/// The codes of a proxy, in the words of RFC 1928.
struct Answer(u8);

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("general SOCKS server failure"),
            2 => f.write_str("connection not allowed by ruleset"),
            3 => f.write_str("network unreachable"),
            4 => f.write_str("host unreachable"),
            5 => f.write_str("connection refused"),
            6 => f.write_str("TTL expired"),
            7 => f.write_str("command not supported"),
            8 => f.write_str("address type not supported"),
            code => write!(f, "unknown code {code}"),
        }
    }
}

/// Has the proxy at the other end of a stream connect to a host. What follows in the stream is the host's.
pub(super) async fn connect<S>(
    stream: &mut S,
    credentials: Option<&Credentials>,
    host: &str,
    port: u16,
) -> Result<(), SocksError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = request(host, port)?;
    stream.write_all(offer(credentials.is_some())).await?;
    let [version, method] = read(stream).await?;
    expect_version(version)?;
    match (method, credentials) {
        (NO_AUTHENTICATION, _) => {}
        (USER_AND_PASSWORD, Some(credentials)) => {
            stream.write_all(&login(credentials)?).await?;
            let [_, code] = read(stream).await?;
            if code != 0 {
                return Err(SocksError::Login);
            }
        }
        (NONE_ACCEPTABLE, _) => return Err(SocksError::NoMethod { has_credentials: credentials.is_some() }),
        (method, _) => return Err(SocksError::Method(method)),
    }
    stream.write_all(&request).await?;
    let [version, code, _, kind] = read(stream).await?;
    expect_version(version)?;
    if code != 0 {
        return Err(SocksError::Refused(code));
    }
    // From which address it has connected: of no use, but before what the host sends.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        _ => usize::from(stream.read_u8().await?),
    };
    stream.read_exact(&mut vec![0; length + size_of::<u16>()]).await?;
    Ok(())
}

async fn read<const N: usize>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

fn expect_version(version: u8) -> Result<(), SocksError> {
    if version == VERSION { Ok(()) } else { Err(SocksError::Version(version)) }
}

/// In the order of Go, which a proxy may take for that of preference.
fn offer(has_credentials: bool) -> &'static [u8] {
    if has_credentials { &[VERSION, 2, NO_AUTHENTICATION, USER_AND_PASSWORD] } else { &[VERSION, 1, NO_AUTHENTICATION] }
}

fn login(Credentials { user, password }: &Credentials) -> Result<Vec<u8>, SocksError> {
    let length = |text: &[u8]| u8::try_from(text.len()).map_err(|_| SocksError::Credentials);
    if user.is_empty() {
        return Err(SocksError::Credentials);
    }
    Ok([&[LOGIN_VERSION, length(user)?], &**user, &[length(password)?], &**password].concat())
}

fn request(host: &str, port: u16) -> Result<Vec<u8>, SocksError> {
    let mut request = vec![VERSION, CONNECT, 0];
    match host.parse() {
        Ok(IpAddr::V4(ip)) => {
            request.push(IPV4);
            request.extend(ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            request.push(IPV6);
            request.extend(ip.octets());
        }
        Err(_) => {
            request.extend([NAME, u8::try_from(host.len()).map_err(|_| SocksError::Name)?]);
            request.extend(host.as_bytes());
        }
    }
    request.extend(port.to_be_bytes());
    Ok(request)
}

#[cfg(test)]
#[path = "socks_tests.rs"]
mod tests;

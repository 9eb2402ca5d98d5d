//! Which proxy a connection goes through: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as Go's programs read them. Pure.
//!
//! | variable | means |
//! |---|---|
//! | `HTTPS_PROXY`, else `https_proxy` | the proxy for `https://` addresses: `http://`, `https://`, `socks5://` or `socks5h://` |
//! | `HTTP_PROXY`, else `http_proxy` | the same for `http://` addresses |
//! | `NO_PROXY`, else `no_proxy` | a list of what is reached without a proxy, see [`Proxies::of`] |
//!
//! `localhost` and the loopback addresses never go through the proxy of a variable. An empty variable is an unset one.
//! `ALL_PROXY` has no meaning, as in Go. Credentials in an address are never shown.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

/// What the variables say.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<(&'static str, String)>,
    https: Option<(&'static str, String)>,
    bypass: String,
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The addresses may have passwords in them.
        let name = |found: &Option<(&'static str, String)>| found.as_ref().map(|(name, _)| *name);
        f.debug_struct("Proxies")
            .field("http", &name(&self.http))
            .field("https", &name(&self.https))
            .field("bypass", &self.bypass)
            .finish()
    }
}

/// What a proxy wants to know of its user: bytes, as they may be encoded in any way.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) user: Vec<u8>,
    /// Empty if the address has none, as in Go.
    pub(super) password: Vec<u8>,
}

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    uri: Uri,
    credentials: Option<Credentials>,
    origin: String,
}

impl Proxy {
    /// Reads an address. `origin` says for people where it was found.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ProxyError> {
        let address = || ProxyError::Address { origin: origin.to_owned() };
        // As in Go: without a scheme it is HTTP.
        let text = text.trim();
        let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let uri: Uri = text.parse().map_err(|_| address())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else { return Err(address()) };
        let default = match scheme {
            "http" => 80,
            "https" => 443,
            "socks5" | "socks5h" => 1080,
            _ => return Err(ProxyError::Scheme { scheme: scheme.to_owned(), origin: origin.to_owned() }),
        };
        let credentials = match authority.as_str().rsplit_once('@') {
            Some((text, _)) => Some(credentials(text).ok_or_else(address)?),
            None => None,
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(address)?;
        // `http` takes a port that is no number for none.
        let rest = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, rest)| rest);
        let port = match (rest.strip_prefix(host), uri.port_u16()) {
            (Some("" | ":"), None) => default,
            (_, Some(port)) => port,
            _ => return Err(address()),
        };
        let uri = Uri::builder().scheme(scheme).authority(format!("{host}:{port}")).path_and_query("/").build();
        Ok(Self { uri: uri.map_err(|_| address())?, credentials, origin: origin.to_owned() })
    }

    /// Where the proxy listens, without credentials; it always has a port.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// The same for a connector, which knows no SOCKS: its connection begins as one without TLS does.
    pub(super) fn dialled(&self) -> Uri {
        let mut parts = self.uri.clone().into_parts();
        if self.is_socks() {
            parts.scheme = Some(http::uri::Scheme::HTTP);
        }
        Uri::from_parts(parts).unwrap_or_else(|_| self.uri.clone())
    }

    /// Whether it speaks SOCKS, and not HTTP.
    pub fn is_socks(&self) -> bool {
        self.uri.scheme_str().is_some_and(|scheme| scheme.starts_with("socks5"))
    }

    /// The user's name and password.
    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The value of `Proxy-Authorization`.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let Credentials { user, password } = self.credentials.as_ref()?;
        let text = STANDARD.encode([user, &b":"[..], password].concat());
        let mut value = HeaderValue::try_from(format!("Basic {text}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

/// `None`: a percent sign is not followed by two hexadecimal digits, and so stands for nothing.
fn credentials(text: &str) -> Option<Credentials> {
    let mut after_percent = text.split('%').skip(1);
    let is_encoded = |after: &str| after.len() >= 2 && after.bytes().take(2).all(|digit| digit.is_ascii_hexdigit());
    if !after_percent.all(is_encoded) {
        return None;
    }
    let decoded = |text: &str| percent_decode_str(text).collect();
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    Some(Credentials { user: decoded(user), password: decoded(password) })
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, authority) = (self.uri.scheme_str().unwrap_or_default(), self.uri.authority());
        write!(f, "{scheme}://{} ({})", authority.map_or("", http::uri::Authority::as_str), self.origin)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An address is not a proxy's. It is not shown, because it may have a password in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// It makes no sense.
    #[error(
        "{origin} is not the address of a proxy; expected http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT, with special \
         characters of a user or password percent-encoded"
    )]
    Address {
        /// Where it was found.
        origin: String,
    },
    /// A protocol that nothing here speaks.
    #[error("{origin} names a proxy with the scheme `{scheme}`; expected http, https or socks5")]
    Scheme {
        /// What is not supported.
        scheme: String,
        /// Where it was found.
        origin: String,
    },
}

impl Proxies {
    /// Reads the variables.
    pub fn read(variables: &BTreeMap<String, String>) -> Self {
        let first = |names: [&'static str; 2]| {
            let found = |name: &'static str| variables.get(name).filter(|value| !value.trim().is_empty());
            names.into_iter().find_map(|name| found(name).map(|value| (name, value.clone())))
        };
        Self {
            http: first(["HTTP_PROXY", "http_proxy"]),
            https: first(["HTTPS_PROXY", "https_proxy"]),
            bypass: first(["NO_PROXY", "no_proxy"]).map(|(_, value)| value).unwrap_or_default(),
        }
    }

    /// The proxy for an address, `None` for a direct connection.
    ///
    /// An entry of `NO_PROXY` is `*` for all, an IP address, a network such as `10.0.0.0/8`, a name for this host and all below
    /// it, or `.name` and `*.name` for those below it alone. An entry with a port, as `name:6443`, means this port alone.
    pub fn of(&self, target: &Uri) -> Result<Option<Proxy>, ProxyError> {
        let found = match target.scheme_str() {
            Some("https") => &self.https,
            Some("http") => &self.http,
            _ => return Ok(None),
        };
        let (Some((name, address)), Some(host)) = (found, target.host()) else { return Ok(None) };
        if is_bypassed(&self.bypass, host, port(target)) { Ok(None) } else { Proxy::parse(address, name).map(Some) }
    }
}

/// The port of an address, its scheme's if it has none.
pub(super) fn port(target: &Uri) -> u16 {
    target.port_u16().unwrap_or_else(|| if target.scheme_str() == Some("http") { 80 } else { 443 })
}

fn address(text: &str) -> Option<IpAddr> {
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    // An IPv4 address that is written as one of IPv6 is the same.
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

fn is_bypassed(list: &str, host: &str, port: u16) -> bool {
    let host = host.to_ascii_lowercase();
    let ip = address(&host);
    if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
        return true;
    }
    let mut entries = list.split(',').map(|entry| entry.trim().to_lowercase()).filter(|entry| !entry.is_empty());
    entries.any(|entry| is_meant(&entry, &host, ip, port))
}

fn is_meant(entry: &str, host: &str, ip: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some((network, bits)) = network(entry) {
        return ip.is_some_and(|ip| is_inside(ip, network, bits));
    }
    let (name, wanted) = match entry.rsplit_once(':') {
        // A bare IPv6 address has several colons, and no port.
        Some((name, wanted)) if !name.contains(':') || (name.starts_with('[') && name.ends_with(']')) => (name, wanted),
        _ => (entry, ""),
    };
    if !wanted.is_empty() && wanted != port.to_string() {
        return false;
    }
    if let Some(known) = address(name) {
        return ip == Some(known);
    }
    let below = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
    match below.strip_prefix('.') {
        Some(_) => host.ends_with(below),
        None => !below.is_empty() && (host == below || host.ends_with(&format!(".{below}"))),
    }
}

/// A network in CIDR notation.
fn network(entry: &str) -> Option<(IpAddr, u32)> {
    let (network, bits) = entry.split_once('/')?;
    let network: IpAddr = network.parse().ok()?;
    let bits: u32 = bits.parse().ok()?;
    (bits <= if network.is_ipv4() { 32 } else { 128 }).then_some((network, bits))
}

fn is_inside(ip: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            (ip.to_bits() ^ network.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            (ip.to_bits() ^ network.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "proxy_tests.rs"]
mod tests;

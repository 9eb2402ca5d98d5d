//! The id of an EBS volume in what Kubernetes calls it (migration spec 4.3). Pure.
//!
//! Go's `net/url` decides what a URL is, so that is repeated here as far as it can be met: with a host in brackets, which no
//! availability zone is, a text is refused that Go takes.

use super::error::EbsIdError;

/// The id of a volume: `vol-1`, `aws:///vol-1` and `aws://us-east-1a/vol-1` are one volume. A text that is no such URL is an id.
pub(super) fn ebs_id(text: &str) -> Result<String, EbsIdError> {
    let Some(rest) = text.strip_prefix("aws://") else { return Ok(text.to_owned()) };
    let path = path(rest).map_err(|cause| EbsIdError::Url { id: text.to_owned(), cause })?;
    let id = path.trim_matches('/');
    if !id.starts_with("vol-") || id.contains('/') {
        return Err(EbsIdError::Format(text.to_owned()));
    }
    Ok(id.to_owned())
}

/// The decoded path of a URL whose scheme is taken off.
fn path(rest: &str) -> Result<String, &'static str> {
    const ESCAPE: &str = "invalid URL escape";
    let (url, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    if url.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("invalid control character in URL");
    }
    let url = url.split('?').next().unwrap_or_default();
    let (authority, path) = url.find('/').map_or((url, ""), |at| url.split_at(at));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    check_host(host)?;
    let is_of_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(is_of_user) {
        return Err("invalid userinfo");
    }
    if unescaped(user).is_none() || unescaped(fragment).is_none() {
        return Err(ESCAPE);
    }
    String::from_utf8(unescaped(path).ok_or(ESCAPE)?).map_err(|_| "the path is not UTF-8")
}

/// Refuses what cannot be a host and its port.
fn check_host(host: &str) -> Result<(), &'static str> {
    if host.contains('[') {
        return Err("a host in brackets");
    }
    if host.rsplit_once(':').is_some_and(|(_, port)| !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err("invalid port after host");
    }
    if host.contains([' ', '\\', '^', '`', '{', '|', '}']) {
        return Err("invalid character in host name");
    }
    // In a host, only bytes that are not ASCII may be escaped, and the percent sign.
    let escapes = host.match_indices('%').map(|(at, _)| &host.as_bytes()[at + 1..]);
    for escape in escapes {
        match escape {
            [b'2', b'5', ..] => {}
            [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() && *high >= b'8' => {}
            _ => return Err("invalid URL escape"),
        }
    }
    Ok(())
}

/// The bytes of a text with its escapes resolved; `None` if one of them is broken.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut out) = (text.bytes(), Vec::with_capacity(text.len()));
    while let Some(byte) = bytes.next() {
        out.push(if byte == b'%' { hex(bytes.next()?)? << 4 | hex(bytes.next()?)? } else { byte });
    }
    Some(out)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

//! Values of options that are checked before anything is done. Pure.

/// The name of a CSI driver: the specification's rules.
pub(super) fn driver_name(text: &str) -> Result<String, String> {
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let fits = text.len() <= 63 && text.chars().all(is_allowed);
    if fits && is_end(text.chars().next()) && is_end(text.chars().next_back()) {
        return Ok(text.to_owned());
    }
    Err("expected the name that the driver itself gives, such as ebs.csi.aws.com: at most 63 letters, digits, - and ."
        .to_owned())
}

/// A secret's namespace and name. Neither may be empty or contain a slash or a star, because RBAC names have no
/// patterns.
pub(super) fn secret(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        let of_a_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        !name.is_empty() && name.chars().all(of_a_name)
    };
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok((namespace.to_owned(), name.to_owned())),
        _ => Err("expected NAMESPACE/NAME of a secret".to_owned()),
    }
}

/// A sidecar's or a container's name and the version of it: `4.0.1`, `v4.0`, `4`.
pub(super) fn assumed(text: &str) -> Result<(String, String), String> {
    let is_number = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_version = |version: &str| {
        let parts: Vec<&str> = version.strip_prefix('v').unwrap_or(version).split('.').collect();
        parts.len() <= 3 && parts.into_iter().all(is_number)
    };
    match text.split_once('=') {
        Some((name, version)) if !name.is_empty() && is_version(version) => Ok((name.to_owned(), version.to_owned())),
        _ => Err("expected NAME=VERSION of a sidecar, with a version such as 4.0.1".to_owned()),
    }
}

/// The name of an image, as a kubelet takes it: `[HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST]`.
pub(super) fn image(text: &str) -> Result<String, String> {
    if is_image(text) {
        return Ok(text.to_owned());
    }
    Err("expected an image, such as registry.example.com/csi-control-plane:0.1.0: a path of a-z, 0-9, ., - and _, then a tag, a \
         digest, or both"
        .to_owned())
}

fn is_image(text: &str) -> bool {
    let (text, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    let is_digest = |digest: &str| {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    // A colon before the last slash is the registry's port.
    let (name, tag) = match text.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (text, None),
    };
    let is_tag = |tag: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        (1..=128).contains(&tag.len()) && !tag.starts_with(['.', '-']) && tag.chars().all(is_allowed)
    };
    let is_part = |part: &str| {
        let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_allowed = |c: char| is_end(c) || "._-".contains(c);
        part.starts_with(is_end) && part.ends_with(is_end) && part.chars().all(is_allowed)
    };
    let is_host = |host: &str| {
        let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c));
        is_name && port.is_none_or(|port| port.parse::<u16>().is_ok())
    };
    let (first, rest) = name.split_once('/').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let has_host = rest.is_some() && (first.contains(['.', ':']) || first == "localhost");
    let path = if has_host { rest.unwrap_or_default() } else { name };
    (!has_host || is_host(first))
        && path.split('/').all(is_part)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_what_a_kubelet_could_pull() {
        let digest = format!("x@sha256:{}", "0a".repeat(32));
        let both = format!("registry.example.com:5000/a/b_c:v1@sha256:{}", "f".repeat(64));
        for text in ["x", "x:v1", "a/b", "localhost/x", "localhost:5000/x:1", "Registry.example.com/x", &digest, &both]
        {
            assert_eq!(image(text).as_deref(), Ok(text));
        }
        let odd = [
            "",
            " ",
            "a b",
            "UP/x:v1",
            "x:",
            "x@sha256:1",
            "http://x/y",
            "x:-a",
            "a//b",
            "host:port/x",
            "a/",
            "@",
            "é",
        ];
        for text in odd {
            assert!(image(text).is_err(), "{text:?}");
        }
    }
}

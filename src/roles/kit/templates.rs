//! Templates of a class for the place of a Secret, and what a namespace or an object can be called. Pure.

/// Replaces `${name}` and `$name` as Go's `os.Expand` does, with its answers to what is malformed: the classes that are out
/// there were written against it. `${}` and an unclosed `${` vanish, a `$` before anything else stays.
pub fn expand<'v>(template: &str, mut value: impl FnMut(&str) -> &'v str) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let after = &from[1..];
        if after.is_empty() {
            // A last `$` stands for itself.
            return out + from;
        }
        let (name, used) = shell_name(after);
        match (name, used) {
            ("", 0) => out.push('$'),
            ("", _) => {}
            _ => out.push_str(value(name)),
        }
        rest = &after[used..];
    }
    out + rest
}

/// The name at the beginning of what follows a `$`, and how many bytes it takes.
fn shell_name(text: &str) -> (&str, usize) {
    let is_special = |byte: u8| matches!(byte, b'*' | b'#' | b'$' | b'@' | b'!' | b'?' | b'-' | b'0'..=b'9');
    let bytes = text.as_bytes();
    match bytes {
        [b'{', special, b'}', ..] if is_special(*special) => (&text[1..2], 3),
        [b'{', ..] => match text.find('}') {
            Some(1) => ("", 2),
            Some(end) => (&text[1..end], end + 1),
            None => ("", 1),
        },
        [special, ..] if is_special(*special) => (&text[..1], 1),
        _ => {
            let end = bytes.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
            let end = end.unwrap_or(bytes.len());
            (&text[..end], end)
        }
    }
}

/// Whether a text can be a namespace's name: a DNS-1123 label.
pub fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_end = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    bytes.len() <= 63
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

/// Whether a text can be most objects' name: a DNS-1123 subdomain, whose parts may be longer than a label.
pub fn is_subdomain(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        is_end(part.chars().next())
            && is_end(part.chars().last())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

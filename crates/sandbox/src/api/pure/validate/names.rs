//! The grammars of names, with the texts of `k8s.io/apimachinery/pkg/util/validation`.

use super::super::rejection::Cause;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
    start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// The expression is the one for small letters.
const SUBDOMAIN_OF_ANY_CASE: &str = "an RFC 1123 subdomain must consist of alphanumeric characters, '-' or '.', and must start \
    and end with an alphanumeric character (e.g. 'Example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
    end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
    'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

fn framed(text: &str, inner: fn(char) -> bool) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric() && inner(c);
    !text.is_empty() && text.chars().all(inner) && text.starts_with(edge) && text.ends_with(edge)
}

fn lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

fn wide(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// The server's two generations of validators count in different words.
fn too_long(text: &str, limit: usize, unit: &str) -> Option<String> {
    (text.len() > limit).then(|| format!("must be no more than {limit} {unit}"))
}

/// Whether this is a name such as `pv-1` or `example.com`.
pub fn is_dns_subdomain(name: &str) -> bool {
    subdomain(name).is_empty()
}

/// Whether this is a name without dots, as namespaces have.
pub fn is_dns_label(name: &str) -> bool {
    label(name).is_empty()
}

/// The fault of a DNS subdomain.
pub(super) fn subdomain(name: &str) -> Vec<String> {
    let shaped = name.split('.').all(|part| framed(part, lower));
    too_long(name, 253, "characters").into_iter().chain((!shaped).then(|| SUBDOMAIN.to_owned())).collect()
}

/// The fault of a DNS subdomain but for its case.
pub(super) fn subdomain_of_any_case(name: &str) -> Vec<String> {
    let faults = subdomain(&name.to_lowercase()).into_iter();
    faults.map(|fault| if fault == SUBDOMAIN { SUBDOMAIN_OF_ANY_CASE.to_owned() } else { fault }).collect()
}

/// The fault of a DNS label.
pub(super) fn label(name: &str) -> Vec<String> {
    let shape = match framed(name, lower) {
        true => None,
        false if subdomain(name).is_empty() => Some("must not contain dots".to_owned()),
        false => Some(LABEL.to_owned()),
    };
    too_long(name, 63, "characters").into_iter().chain(shape).collect()
}

/// The fault of `prefix/name` or `name`: keys of labels and annotations, finalizers.
pub(in super::super) fn qualified(text: &str) -> Vec<String> {
    let (prefix, name) = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => (None, *name),
        [prefix, name] => (Some(*prefix), *name),
        _ => {
            return vec![
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                 alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
                    .to_owned(),
            ];
        }
    };
    let mut faults = Vec::new();
    match prefix {
        Some("") => faults.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => faults.extend(subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}"))),
        None => {}
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(too_long(name, 63, "bytes").map(|fault| format!("name part {fault}")));
    if !framed(name, wide) {
        faults.push(QUALIFIED.to_owned());
    }
    faults
}

/// The fault of a label's value.
pub(super) fn label_value(value: &str) -> Vec<String> {
    let shaped = value.is_empty() || framed(value, wide);
    too_long(value, 63, "bytes").into_iter().chain((!shaped).then(|| LABEL_VALUE.to_owned())).collect()
}

/// The fault of a key of a Secret's or a ConfigMap's data.
pub(super) fn config_key(key: &str) -> Vec<String> {
    let mut faults: Vec<String> = too_long(key, 253, "characters").into_iter().collect();
    if key.is_empty() || !key.chars().all(wide) {
        faults.push(CONFIG_KEY.to_owned());
    }
    if key == "." {
        faults.push("must not be '.'".to_owned());
    } else if key == ".." {
        faults.push("must not be '..'".to_owned());
    } else if key.starts_with("..") {
        faults.push("must not start with '..'".to_owned());
    }
    faults
}

/// A driver's name: required, at most 63 bytes, a DNS subdomain but for its case.
pub(super) fn driver(name: &str, field: &str, causes: &mut Vec<Cause>) {
    if name.is_empty() {
        causes.push(Cause::required(field, ""));
        return;
    }
    if name.len() > 63 {
        causes.push(Cause::too_long(field, 63));
    }
    causes.extend(subdomain(&name.to_lowercase()).into_iter().map(|why| Cause::invalid(field, &name.into(), why)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_by_their_grammar() {
        for name in ["a", "pv-1", "example.com", "csi-0a1b", "1.2.3"] {
            assert!(is_dns_subdomain(name), "{name}");
        }
        for name in ["", "A", "a_b", "-a", "a-", "a..b", "a.-b", "a/b", &"a".repeat(254)] {
            assert!(!is_dns_subdomain(name), "{name}");
        }
        assert!(is_dns_label("kube-system") && !is_dns_label("a.b") && !is_dns_label(&"a".repeat(64)));
        for name in ["foregroundDeletion", "external-attacher/csi-example-com", "example.com/My_Name"] {
            assert_eq!(qualified(name), Vec::<String>::new());
        }
        for name in ["", "/x", "x/", "a/b/c", "UPPER.com/x", "-x"] {
            assert!(!qualified(name).is_empty(), "{name}");
        }
        assert!(config_key("tls.crt").is_empty() && !config_key("a/b").is_empty() && !config_key("..a").is_empty());
        assert!(label_value("").is_empty() && label_value("a_b").is_empty() && !label_value("a b").is_empty());
    }
}

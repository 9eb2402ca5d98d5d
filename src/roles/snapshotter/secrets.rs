//! Which Secret goes with a call (snapshotter spec 7). Pure: only references, never a secret's text.
//!
//! | call | from |
//! |---|---|
//! | `CreateSnapshot`, `DeleteSnapshot` | two annotations of the content, which the snapshot-controller resolves from the class |
//! | look-up of a snapshot that was there before its content | two keys of the class, with the token `${volumesnapshotcontent.name}` |
//! | `CreateVolumeGroupSnapshot`, `DeleteVolumeGroupSnapshot` | two annotations of the group's content |
//! | `GetVolumeGroupSnapshot` | two keys of the class, with the token `${volumegroupsnapshotcontent.name}` |

use std::collections::BTreeMap;

use thiserror::Error;

use crate::cluster::{Meta, SecretRef};
use crate::roles::kit::templates::{expand, is_label, is_subdomain};

/// The class' key of the name of the Secret for look-ups.
pub const LIST_SECRET_NAME: &str = "csi.storage.k8s.io/snapshotter-list-secret-name";
/// The class' key of the namespace of that Secret.
pub const LIST_SECRET_NAMESPACE: &str = "csi.storage.k8s.io/snapshotter-list-secret-namespace";

/// The class' key of the name of the Secret for look-ups of a group.
pub const GROUP_GET_SECRET_NAME: &str = "csi.storage.k8s.io/group-snapshotter-get-secret-name";
/// The class' key of the namespace of that Secret.
pub const GROUP_GET_SECRET_NAMESPACE: &str = "csi.storage.k8s.io/group-snapshotter-get-secret-namespace";

/// The only token of the templates for look-ups.
const CONTENT_NAME: &str = "volumesnapshotcontent.name";
/// The same for look-ups of groups.
const GROUP_CONTENT_NAME: &str = "volumegroupsnapshotcontent.name";

/// Why the place of a Secret is not known.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SecretFault {
    /// One of two, or one that is empty.
    #[error("secret name or namespace not specified")]
    Half,
    /// What no object can be called.
    #[error("{field} \"{value}\" is not valid")]
    Invalid {
        /// `name` or `namespace`.
        field: &'static str,
        /// The text.
        value: String,
    },
    /// A namespace that the configuration does not allow.
    #[error("secret {namespace}/{name} is in a namespace that deletionSecretNamespaces does not allow")]
    Forbidden {
        /// Where it is.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A template names what is not known.
    #[error("the template \"{template}\" has the unknown token \"{token}\"; known is ${{{known}}}")]
    UnknownToken {
        /// The only one that there is.
        known: &'static str,
        /// The class' text.
        template: String,
        /// What it names.
        token: String,
    },
}

/// The Secret that two annotations name; `None`: neither is there. `allowed`: the namespaces that it may be in; none given, any.
pub fn from_annotations(
    meta: &Meta,
    (name, namespace): (&str, &str),
    allowed: &[String],
) -> Result<Option<SecretRef>, SecretFault> {
    let Some(place) = pair(meta.annotation(name), meta.annotation(namespace))? else { return Ok(None) };
    if allowed.is_empty() || allowed.contains(&place.namespace) {
        return Ok(Some(place));
    }
    Err(SecretFault::Forbidden { namespace: place.namespace, name: place.name })
}

/// The Secret for look-ups of the content `name`, as its class says.
pub fn for_listing(parameters: &BTreeMap<String, String>, name: &str) -> Result<Option<SecretRef>, SecretFault> {
    of_class(parameters, (LIST_SECRET_NAME, LIST_SECRET_NAMESPACE), CONTENT_NAME, name)
}

/// The Secret for look-ups of the group with the content `name`, as its class says.
pub fn for_group(parameters: &BTreeMap<String, String>, name: &str) -> Result<Option<SecretRef>, SecretFault> {
    of_class(parameters, (GROUP_GET_SECRET_NAME, GROUP_GET_SECRET_NAMESPACE), GROUP_CONTENT_NAME, name)
}

fn of_class(
    parameters: &BTreeMap<String, String>,
    (name_key, namespace_key): (&str, &str),
    known: &'static str,
    content: &str,
) -> Result<Option<SecretRef>, SecretFault> {
    let filled = |key| parameters.get(key).map(|template| fill(template, known, content)).transpose();
    let (secret, namespace) = (filled(name_key)?, filled(namespace_key)?);
    pair(secret.as_deref(), namespace.as_deref())
}

fn fill(template: &str, known: &'static str, content: &str) -> Result<String, SecretFault> {
    let mut unknown = None;
    let filled = expand(template, |token| {
        if token == known {
            return content;
        }
        unknown.get_or_insert_with(|| token.to_owned());
        ""
    });
    match unknown {
        Some(token) => Err(SecretFault::UnknownToken { known, template: template.to_owned(), token }),
        None => Ok(filled),
    }
}

fn pair(name: Option<&str>, namespace: Option<&str>) -> Result<Option<SecretRef>, SecretFault> {
    let (name, namespace) = match (name, namespace) {
        (None, None) => return Ok(None),
        (Some(name), Some(namespace)) if !name.is_empty() && !namespace.is_empty() => (name, namespace),
        _ => return Err(SecretFault::Half),
    };
    for (field, value, is_valid) in [("namespace", namespace, is_label(namespace)), ("name", name, is_subdomain(name))]
    {
        if !is_valid {
            return Err(SecretFault::Invalid { field, value: value.to_owned() });
        }
    }
    Ok(Some(SecretRef { name: name.to_owned(), namespace: namespace.to_owned() }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(name: &str, namespace: &str) -> SecretRef {
        SecretRef { name: name.to_owned(), namespace: namespace.to_owned() }
    }

    #[test]
    fn s18_the_secret_of_a_content_is_where_its_annotations_say_and_half_of_them_is_an_error() {
        let found = |name: Option<&str>, namespace: Option<&str>, allowed: &[&str]| {
            let meta: Meta = serde_json::from_value(
                json!({ "name": "c", "annotations": { "n": name, "s": namespace } })
                    .as_object()
                    .map(|meta| {
                        let mut meta = meta.clone();
                        let annotations = meta["annotations"].as_object().unwrap().clone();
                        let kept = annotations.into_iter().filter(|(_, value)| !value.is_null()).collect();
                        meta.insert("annotations".into(), serde_json::Value::Object(kept));
                        serde_json::Value::Object(meta)
                    })
                    .unwrap(),
            )
            .unwrap();
            let allowed: Vec<String> = allowed.iter().map(|&one| one.to_owned()).collect();
            from_annotations(&meta, ("n", "s"), &allowed)
        };
        assert_eq!(found(None, None, &[]), Ok(None));
        assert_eq!(found(Some("a"), Some("b"), &[]), Ok(Some(place("a", "b"))));
        assert_eq!(found(Some("a"), Some("b"), &["b"]), Ok(Some(place("a", "b"))));
        assert_eq!(found(Some("a"), None, &[]), Err(SecretFault::Half));
        assert_eq!(found(None, Some("b"), &[]), Err(SecretFault::Half));
        assert_eq!(found(Some(""), Some("b"), &[]), Err(SecretFault::Half));
        let forbidden = SecretFault::Forbidden { namespace: "b".into(), name: "a".into() };
        assert_eq!(found(Some("a"), Some("b"), &["c"]), Err(forbidden));
        let invalid = |field, value: &str| Err(SecretFault::Invalid { field, value: value.into() });
        assert_eq!(found(Some("a/b"), Some("b"), &[]), invalid("name", "a/b"));
        assert_eq!(found(Some("a"), Some("b.c"), &[]), invalid("namespace", "b.c"));
    }

    #[test]
    fn s16_the_secret_for_look_ups_is_the_class_s_with_one_token() {
        let found = |pairs: &[(&str, &str)]| {
            let parameters = pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
            for_listing(&parameters, "content-1")
        };
        assert_eq!(found(&[]), Ok(None));
        let template = "list-${volumesnapshotcontent.name}";
        let both = [(LIST_SECRET_NAME, template), (LIST_SECRET_NAMESPACE, "kube-system")];
        assert_eq!(found(&both), Ok(Some(place("list-content-1", "kube-system"))));
        assert_eq!(found(&both[..1]), Err(SecretFault::Half));
        let unknown = found(&[(LIST_SECRET_NAME, "x-${volumesnapshot.name}"), (LIST_SECRET_NAMESPACE, "n")]);
        assert!(matches!(unknown, Err(SecretFault::UnknownToken { token, .. }) if token == "volumesnapshot.name"));
    }

    #[test]
    fn s17_the_secret_for_look_ups_of_a_group_is_the_class_s_with_one_token() {
        let pairs = [
            (GROUP_GET_SECRET_NAME, "get-${volumegroupsnapshotcontent.name}"),
            (GROUP_GET_SECRET_NAMESPACE, "kube-system"),
        ];
        let parameters = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        assert_eq!(for_group(&parameters, "content-1"), Ok(Some(place("get-content-1", "kube-system"))));
        assert_eq!(for_listing(&parameters, "content-1"), Ok(None));
        let odd = [(GROUP_GET_SECRET_NAME.to_owned(), "${volumesnapshotcontent.name}".to_owned())].into();
        assert!(matches!(for_group(&odd, "content-1"), Err(SecretFault::UnknownToken { .. })));
    }
}

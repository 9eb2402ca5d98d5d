//! The version of a sidecar, from the tag of its image. Pure.
//!
//! A tag counts only if the image is called as upstream calls it: a distribution may rename the image, and then the tag
//! is the version of the distribution. `ose-csi-external-provisioner:v4.14` is no csi-provisioner v4.14.

use std::fmt;

use crate::config::changes::{self, Absence, Change};
use crate::config::defaults::{OldDefault, Since, Version};

/// The version of a sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Release {
    /// The tag says it.
    Known(Tag),
    /// Nothing says it; the text says why.
    Unknown(String),
}

/// A tag that is a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tag {
    text: String,
    major: u32,
    /// A tag such as `v4` moves with the minor versions.
    minor: Option<u32>,
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Release {
    /// The version that an image says; `words` are upstream's names of the image.
    pub(super) fn of(image: &str, words: &[&str]) -> Self {
        let (name, tag) = parts(image);
        if !is_upstreams(name, words) {
            return Self::Unknown(format!("the tag of the image {name:?} may count other releases than upstream's"));
        }
        let Some(tag) = tag else { return Self::Unknown(format!("the image {image} has no tag")) };
        match parse(tag) {
            Some(tag) => Self::Known(tag),
            None => Self::Unknown(format!("the tag {tag} is no version")),
        }
    }

    /// The version that the user says.
    pub(super) fn assumed(version: &str) -> Option<Self> {
        parse(version).map(Self::Known)
    }

    /// Why this version does not know a flag or a feature gate, if it certainly does not.
    pub(super) fn absence(&self, changes: &[Change], name: &str) -> Option<Absence> {
        match self {
            Self::Known(tag) => changes::absence(changes, name, tag.range()),
            Self::Unknown(_) => None,
        }
    }

    /// The default that this version has; `None` if it cannot be known.
    pub(super) fn default<'a>(&self, old: &'a OldDefault) -> Option<&'a Since> {
        let [earliest, latest] = match self {
            Self::Known(tag) => tag.range(),
            Self::Unknown(_) => [Version(0, 0), Version(u32::MAX, u32::MAX)],
        };
        let (first, last) = (old.at(earliest)?, old.at(latest)?);
        (std::ptr::eq(first, last)).then_some(first)
    }

    /// Whether this version is certainly older than another.
    pub(super) fn is_before(&self, version: Version) -> bool {
        matches!(self, Self::Known(tag) if tag.range()[1] < version)
    }

    /// Whether this version is, or may be, older than another.
    pub(super) fn may_be_before(&self, version: Version) -> bool {
        match self {
            Self::Known(tag) => tag.range()[0] < version,
            Self::Unknown(_) => true,
        }
    }

    /// The tag, if it is a version.
    pub(super) fn tag(&self) -> Option<&str> {
        match self {
            Self::Known(tag) => Some(&tag.text),
            Self::Unknown(_) => None,
        }
    }
}

impl Tag {
    fn range(&self) -> [Version; 2] {
        [Version(self.major, self.minor.unwrap_or(0)), Version(self.major, self.minor.unwrap_or(u32::MAX))]
    }
}

/// `registry:5000/team/csi-attacher:v4.6.1@sha256:…` is `csi-attacher` and `v4.6.1`.
pub(super) fn parts(image: &str) -> (&str, Option<&str>) {
    let image = image.split_once('@').map_or(image, |(image, _)| image);
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':').map_or((last, None), |(name, tag)| (name, Some(tag)))
}

/// Mirrors put the path of the original in front of the name.
fn is_upstreams(name: &str, words: &[&str]) -> bool {
    let is_mirror = |rest: &str| rest.is_empty() || (rest.starts_with("mirrored-") && rest.ends_with('-'));
    words.iter().any(|word| name.strip_suffix(word).is_some_and(is_mirror))
}

/// `v4.6.1`, `4.6`, `v4`, `v4.0.1-eksbuild.2`. A date or a commit is no version.
fn parse(tag: &str) -> Option<Tag> {
    let bare = tag.strip_prefix('v').unwrap_or(tag);
    let numbers = bare.split(['-', '_', '+']).next()?;
    let mut parts = numbers.split('.').map(|part| part.parse::<u32>().ok().filter(|_| part.len() < 4));
    let major = parts.next()??;
    let minor = match parts.next() {
        Some(minor) => Some(minor?),
        None => None,
    };
    Some(Tag { text: tag.to_owned(), major, minor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::defaults::DefaultValue::Switch;
    use crate::config::defaults::defaults;

    const WORDS: &[&str] = &["csi-x", "external-x"];

    #[test]
    fn tags_of_upstreams_images_are_versions() {
        for (image, tag) in [
            ("registry.k8s.io/sig-storage/csi-x:v4.6.1", Some("v4.6.1")),
            ("registry:5000/csi-x:4.6.1@sha256:0123", Some("4.6.1")),
            ("public.ecr.aws/eks-distro/kubernetes-csi/external-x:v4.0.0-eks-1-29-5", Some("v4.0.0-eks-1-29-5")),
            ("rancher/mirrored-sig-storage-csi-x:v5", Some("v5")),
            ("longhornio/csi-x:v4.0.1-20250204", Some("v4.0.1-20250204")),
            ("quay.io/openshift/ose-csi-external-x:v4.14", None),
            ("x/csi-x@sha256:0123", None),
            ("x/csi-x:canary", None),
            ("x/csi-x:20250204", None),
            ("x/csi-x:v4.x", None),
            ("x/all-in-one:v4.0.0", None),
            ("", None),
        ] {
            assert_eq!(Release::of(image, WORDS).tag(), tag, "{image}");
        }
    }

    #[test]
    fn a_default_is_known_where_the_tag_leaves_no_choice() {
        let [changed, unchanged]: &[OldDefault; 2] = defaults! {
            "--f", Key("k"), [0, 0, Switch(false), ""], [4, 12, Switch(true), ""];
            "--f", Key("k"), [0, 0, Switch(false), ""];
        };
        for (tag, value) in [
            ("v3", Some(false)),
            ("v4", None),
            ("v4.11.9", Some(false)),
            ("v4.12", Some(true)),
            ("v5", Some(true)),
            ("latest", None),
        ] {
            let found = Release::of(&format!("csi-x:{tag}"), WORDS).default(changed).map(|since| since.value);
            assert_eq!(found, value.map(Switch), "{tag}");
        }
        assert!(Release::Unknown(String::new()).default(unchanged).is_some(), "no version changed it");
        assert!(Release::of("csi-x:v1.2.1", WORDS).is_before(Version(2, 0)));
        assert!(!Release::of("csi-x:v2", WORDS).is_before(Version(2, 1)));
        for (tag, may_be) in [("v2", true), ("v3.0.9", true), ("v3.1.0", false), ("v4", false), ("latest", true)] {
            assert_eq!(Release::of(&format!("csi-x:{tag}"), WORDS).may_be_before(Version(3, 1)), may_be, "{tag}");
        }
    }
}

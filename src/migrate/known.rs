//! The Go sidecars that containers are compared with, and their names. Pure.

use super::version;
use crate::config::sidecar::{Sidecar, Signs, Unhosted};
use crate::roles::sidecars::{UNHOSTED, hosted};

/// A sidecar that containers are compared with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Known {
    /// Roles do its work.
    Hosted(&'static Sidecar),
    /// It stays.
    Unhosted(&'static Unhosted),
}

impl Known {
    /// Those that are replaced first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        hosted().into_iter().map(Self::Hosted).chain(UNHOSTED.iter().map(Self::Unhosted))
    }

    /// The words by which its image and its binary are called.
    pub(super) fn words(self) -> &'static [&'static str] {
        self.signs().words
    }

    /// Upstream's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hosted(sidecar) => sidecar.name,
            Self::Unhosted(sidecar) => sidecar.name,
        }
    }

    /// Whether roles do its work.
    pub(super) fn is_hosted(self) -> bool {
        matches!(self, Self::Hosted(_))
    }

    /// How a container of it is recognised.
    pub(super) fn signs(self) -> &'static Signs {
        match self {
            Self::Hosted(sidecar) => &sidecar.signs,
            Self::Unhosted(sidecar) => &sidecar.signs,
        }
    }
}

/// The sidecar whose word is in a name.
pub(super) fn named(name: &str) -> Option<Known> {
    Known::all().find(|known| known.words().iter().any(|word| name.contains(word)))
}

/// The sidecar that an image is called by. A mirror may keep the parts of the name as folders: `csi/attacher`.
pub(super) fn of_image(image: &str) -> Option<Known> {
    let (name, _) = version::parts(image);
    let folders = image.split('@').next().unwrap_or_default().rsplit('/').nth(1).unwrap_or_default();
    let joined = format!("{folders}-{name}");
    let ends = |known: &Known| known.words().iter().any(|word| joined.ends_with(word));
    named(name).or_else(|| Known::all().find(ends))
}

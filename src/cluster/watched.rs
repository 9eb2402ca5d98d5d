//! The objects of a watch as kube's watcher sees them, and the version of the API in which their kind is read.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};

use super::objects::Cached;
use super::watch_error::Failure;

/// The version in which a kind is read; `None`: that of its URL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Version(pub(super) Option<&'static str>);

/// An object for kube's watcher, which needs only the version.
#[derive(Debug, Clone)]
pub(super) struct Watched<K> {
    version: ObjectMeta,
    pub(super) object: K,
}

impl<'de, K: Cached> Deserialize<'de> for Watched<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let object = K::deserialize(from)?;
        let resource_version = object.meta().resource_version.as_deref().map(str::to_owned);
        Ok(Self { version: ObjectMeta { resource_version, ..ObjectMeta::default() }, object })
    }
}

impl<K: Cached> Resource for Watched<K> {
    type DynamicType = Version;
    type Scope = <K::Kind as Resource>::Scope;

    fn kind(_: &Version) -> Cow<'_, str> {
        K::Kind::kind(&())
    }

    fn group(_: &Version) -> Cow<'_, str> {
        K::Kind::group(&())
    }

    fn version(version: &Version) -> Cow<'_, str> {
        version.0.map_or_else(|| K::Kind::version(&()), Cow::Borrowed)
    }

    fn plural(_: &Version) -> Cow<'_, str> {
        K::Kind::plural(&())
    }

    fn metadata_api() -> bool {
        K::Kind::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.version
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.version
    }
}

/// Which version of a kind is read.
#[derive(Debug, Default)]
pub(super) struct Pass {
    pub(super) version: usize,
    /// How many versions in a row could not be read.
    pub(super) unread: usize,
    /// Why the first of them could not be read, unless the server lacks it.
    pub(super) earlier: Option<Failure>,
    /// A better version is there, and could not be read.
    is_makeshift: bool,
}

impl Pass {
    /// The version of this pass could not be read: the next one is tried.
    pub(super) fn next(&mut self, versions: usize, failure: Failure) {
        self.unread += 1;
        self.version = (self.version + 1) % versions.max(1);
        if self.earlier.is_none() && !failure.is_unserved() {
            (self.earlier, self.is_makeshift) = (Some(failure), true);
        }
    }

    /// The list has been made, or given up. The next one tries the better version again.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_makeshift) {
            self.version = 0;
        }
        (self.unread, self.earlier) = (0, None);
    }
}

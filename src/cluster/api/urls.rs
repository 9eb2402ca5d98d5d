//! Where the objects of a kind are, in the version that the server has.

use kube::Resource;

use super::{Api, Call, body};
use crate::cluster::cache::Cache;
use crate::cluster::error::Verb;
use crate::cluster::names::{ObjectName, PROGRAM};
use crate::cluster::objects::Cached;
use crate::cluster::outage::Outage;
use crate::cluster::patch::Patch;

/// A kind by group and plural, and the version in which it is read and written.
pub(super) type OfKind = (String, String, &'static str);

/// Where the objects of a kind are, in this version of it or else in that of its type.
pub(in crate::cluster) fn url_in_version<K: Resource<DynamicType = ()>>(
    namespace: Option<&str>,
    version: Option<&str>,
) -> String {
    let (url, group) = (K::url_path(&(), namespace), K::group(&()));
    let of = |version: &str| format!("/apis/{group}/{version}/");
    match version {
        Some(version) => url.replacen(&of(&K::version(&())), &of(version), 1),
        None => url,
    }
}

impl Api {
    /// The same client. Its errors say whether they are of this outage.
    #[must_use]
    pub fn with_outage(&self, outage: &Outage) -> Self {
        Self { outage: outage.clone(), ..self.clone() }
    }

    /// Whether the API answers.
    pub fn outage(&self) -> &Outage {
        &self.outage
    }

    /// The same client, which reads and writes this kind in the version that its cache has found.
    #[must_use]
    pub fn in_version_of<K: Cached>(&self, cache: &Cache<K>) -> Self {
        let of_kind = |version| (K::Kind::group(&()).into_owned(), K::Kind::plural(&()).into_owned(), version);
        Self { version: cache.version().map(of_kind), ..self.clone() }
    }

    /// Gives a cache what this API has answered before the watch shows it, so that the next decision uses it. Who has no client of the API
    /// has no answer of it either.
    pub fn give<K: Cached>(&self, cache: &Cache<K>, answer: K) {
        cache.apply_own_write(answer);
    }

    /// Where the objects of a kind are.
    pub(super) fn kind_url<K: Resource<DynamicType = ()>>(&self, name: &ObjectName) -> String {
        let is_of = |of: &&OfKind| of.0 == K::group(&()) && of.1 == K::plural(&());
        let version = self.version.as_ref().filter(is_of).map(|of| of.2);
        url_in_version::<K>(name.namespace(), version)
    }

    pub(super) fn object_url<K: Resource<DynamicType = ()>>(&self, name: &ObjectName) -> String {
        format!("{}/{}", self.kind_url::<K>(name), name.name())
    }

    pub(super) fn patching<'a, K: Resource<DynamicType = ()>>(
        &self,
        name: &'a ObjectName,
        subresource: &str,
        patch: &Patch,
    ) -> Call<'a> {
        Call {
            verb: Verb::Patch,
            resource: format!("{}{subresource}", K::plural(&())),
            object: name,
            url: format!("{}{subresource}?fieldManager={PROGRAM}", self.object_url::<K>(name)),
            content: Some((patch.content_type(), body(patch))),
        }
    }
}

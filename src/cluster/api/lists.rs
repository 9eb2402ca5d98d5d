//! Reads of a whole kind: consistent reads, without a resourceVersion.

use kube::Resource;
use kube::core::Request;
use kube::core::params::ListParams;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Api, Call};
use crate::cluster::error::{ApiError, Verb};
use crate::cluster::meta::Meta;
use crate::cluster::names::ObjectName;
use crate::cluster::objects::Object;

/// A list's wire format. Go writes an empty list as null.
#[derive(Deserialize)]
struct WireList<K> {
    items: Option<Vec<K>>,
}

/// A list's metadata.
#[derive(Deserialize)]
struct WireListMeta {
    metadata: Meta,
}

impl Api {
    /// Reads all objects of a kind, in `namespace` and with `labels` if given: consistently, in one answer. Only for
    /// kinds with few objects. Kinds with many objects have a cache.
    pub async fn list<K>(&self, namespace: Option<&str>, labels: Option<&str>) -> Result<Vec<K>, ApiError>
    where
        K: Object,
    {
        let params = ListParams { label_selector: labels.map(str::to_owned), ..ListParams::default() };
        let list: WireList<K> = self.list_as::<K::Kind, _>(namespace, &params).await?;
        Ok(list.items.unwrap_or_default())
    }

    /// Reads the objects of a kind that a field selector matches, in all namespaces. Only for fields that the kind's storage indexes.
    pub async fn find<K: Object>(&self, fields: &str) -> Result<Vec<K>, ApiError> {
        let list: WireList<K> = self.list_as::<K::Kind, _>(None, &ListParams::default().fields(fields)).await?;
        Ok(list.items.unwrap_or_default())
    }

    /// Reads the current resourceVersion of a kind. An object of the kind with a later version ([`Meta::version`]) was
    /// written after this call began. `None`: the versions are not numbers and have no order.
    pub async fn latest_version<K>(&self) -> Result<Option<u128>, ApiError>
    where
        K: Object,
    {
        // The version is the whole list's, however short the page.
        let list: WireListMeta = self.list_as::<K::Kind, _>(None, &ListParams::default().limit(1)).await?;
        Ok(list.metadata.version())
    }

    /// The same, of a server that answers from memory: a list without pages makes it catch up with etcd first. The list is empty, because
    /// no object has such a name.
    pub(super) async fn present<K: Object>(&self) -> Result<Option<u128>, ApiError> {
        let params = ListParams::default().fields("metadata.name=of-no-object");
        let list: WireListMeta = self.list_as::<K::Kind, _>(None, &params).await?;
        Ok(list.metadata.version())
    }

    async fn list_as<K, T>(&self, namespace: Option<&str>, params: &ListParams) -> Result<T, ApiError>
    where
        K: Resource<DynamicType = ()>,
        T: DeserializeOwned,
    {
        let name = namespace.map_or_else(|| ObjectName::cluster(""), |namespace| ObjectName::namespaced(namespace, ""));
        let url = Request::new(K::url_path(&(), namespace)).list(params);
        self.call(Call {
            verb: Verb::List,
            resource: K::plural(&()).into_owned(),
            object: &name,
            url: url.map(|request| request.uri().to_string()).unwrap_or_default(),
            content: None,
        })
        .await
    }
}

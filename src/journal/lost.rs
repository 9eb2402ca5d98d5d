//! The journals of nodes that are gone. A segment goes once nothing in it may be left over. Otherwise it stays, and is reported, until a
//! person has deleted its entries, or until the node is back and its daemon finishes them.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::format::{Content, parse};
use super::place::{Place, selector};
use crate::cluster::names::ANNOTATION_JOURNAL_NODE;
use crate::cluster::{Api, ApiError, ApiErrorKind, ConfigMap, ConfigMapMeta, Object as _, ObjectName};

/// The nodes that have segments of this driver's journals, with node deployment.
pub async fn nodes(api: &Api, namespace: &str, driver: &str) -> Result<BTreeSet<String>, ApiError> {
    let found: Vec<ConfigMapMeta> = api.list(Some(namespace), Some(&selector(driver))).await?;
    let node = |segment: &ConfigMapMeta| segment.meta().annotation(ANNOTATION_JOURNAL_NODE).map(str::to_owned);
    Ok(found.iter().filter_map(node).collect())
}

/// What [`clear_lost`] has found in the journal of a node that is gone.
#[derive(Debug, PartialEq)]
pub struct Lost<E> {
    /// How many ConfigMaps it has deleted.
    pub deleted: usize,
    /// The entries of the ConfigMaps that stay, and whose request may not be over.
    pub entries: Vec<LostEntry<E>>,
}

/// An entry that nobody can finish, because its node is gone.
#[derive(Debug, Clone, PartialEq)]
pub struct LostEntry<E> {
    /// The object that has it.
    pub segment: ObjectName,
    /// Its key.
    pub key: String,
    /// When it was first recorded, and its content. `None`: the value is no entry.
    pub content: Option<(Timestamp, E)>,
}

/// Deletes the segments of a journal that no daemon uses any more if the request of each of their entries is over. It touches no object of
/// another driver or node, even under these names, and none that somebody has changed meanwhile.
pub async fn clear_lost<E: Content>(
    api: &Api,
    place: &Place,
    is_over: impl Fn(&E) -> bool + Send,
) -> Result<Lost<E>, ApiError> {
    let names = Place::names(&place.stem);
    let found: Vec<ConfigMapMeta> = api.list(Some(&place.namespace), Some(&selector(&place.driver))).await?;
    let mut lost = Lost { deleted: 0, entries: Vec::new() };
    for segment in found {
        let meta = segment.meta();
        let is_meant = names.iter().any(|name| **name == *meta.name)
            && meta.annotation(ANNOTATION_JOURNAL_NODE) == place.node.as_deref();
        if !is_meant {
            continue;
        }
        let name = ObjectName::of(&segment);
        let object = api.get_opt::<ConfigMap>(&name).await?.filter(|object| object.metadata.uid == meta.uid);
        let Some(ConfigMap { metadata, data, binary_keys, .. }) = object else { continue };
        let texts = data.into_iter().map(|(key, text)| (key, parse::<E>(&text).ok()));
        let left = texts.chain(binary_keys.into_iter().map(|key| (key, None)));
        let left = left.filter(|(_, content)| content.as_ref().is_none_or(|(_, content)| !is_over(content)));
        let left: Vec<_> = left.map(|(key, content)| LostEntry { segment: name.clone(), key, content }).collect();
        if !left.is_empty() {
            lost.entries.extend(left);
            continue;
        }
        match api.delete_unchanged::<ConfigMapMeta>(&name, &metadata).await {
            Ok(_) => lost.deleted += 1,
            // Another daemon was faster, or the node's own daemon lives: the next look shows which.
            Err(error) if matches!(error.kind(), ApiErrorKind::NotFound | ApiErrorKind::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(lost)
}

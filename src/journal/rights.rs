//! The rights that a journal needs, and the deletion of segments that no daemon uses any more.

use std::collections::BTreeSet;

use super::format::{Content, parse};
use super::place::{Place, selector};
use crate::cluster::names::ANNOTATION_JOURNAL_NODE;
use crate::cluster::rbac::Rule;
use crate::cluster::{Api, ApiError, ApiErrorKind, ConfigMap, ConfigMapMeta, Object as _, ObjectName};

/// The rights for the journal with this stem, in the daemon's own namespace; without a stem, for any journal. With node
/// deployment the rights are for all names, because no Role can list the names of all nodes in advance, and they include the
/// right to delete the segments of a node that is gone.
pub fn rules(stem: Option<&str>, per_node: bool) -> Vec<Rule> {
    let configmaps = |verbs: &[&str], reason| Rule::namespaced("", "configmaps", verbs, reason);
    let mut rules = vec![
        configmaps(&["create"], "create a missing segment of the journal"),
        configmaps(&["get", "patch"], "save each request in the journal before the driver is called")
            .named(stem.filter(|_| !per_node).map(Place::names).unwrap_or_default()),
    ];
    if per_node {
        rules.push(configmaps(&["list", "delete"], "delete the journal of a node that is gone"));
    }
    rules
}

/// The nodes that have segments of this driver's journals, with node deployment.
pub async fn nodes(api: &Api, namespace: &str, driver: &str) -> Result<BTreeSet<String>, ApiError> {
    let found: Vec<ConfigMapMeta> = api.list(Some(namespace), Some(&selector(driver))).await?;
    let node = |segment: &ConfigMapMeta| segment.meta().annotation(ANNOTATION_JOURNAL_NODE).map(str::to_owned);
    Ok(found.iter().filter_map(node).collect())
}

/// What [`delete_segments`] has deleted.
#[derive(Debug)]
pub struct Deleted<E> {
    /// How many ConfigMaps.
    pub objects: usize,
    /// Their entries, by key: requests that nobody will finish. `None`: the value was no entry.
    pub entries: Vec<(String, Option<E>)>,
}

/// Deletes the segments of a journal that no daemon uses any more, such as the journal of a node that is gone. It keeps objects of another
/// driver or node, even under these names.
pub async fn delete_segments<E: Content>(api: &Api, place: &Place) -> Result<Deleted<E>, ApiError> {
    let names = Place::names(&place.stem);
    let found: Vec<ConfigMapMeta> = api.list(Some(&place.namespace), Some(&selector(&place.driver))).await?;
    let mut deleted = Deleted { objects: 0, entries: Vec::new() };
    for segment in found {
        let meta = segment.meta();
        let is_meant = names.iter().any(|name| **name == *meta.name)
            && meta.annotation(ANNOTATION_JOURNAL_NODE) == place.node.as_deref();
        if !is_meant {
            continue;
        }
        let name = ObjectName::of(&segment);
        let object = api.get_opt::<ConfigMap>(&name).await?.filter(|object| object.metadata.uid == meta.uid);
        match api.delete::<ConfigMapMeta>(&name, &meta.uid).await {
            Ok(_) => {
                deleted.objects += 1;
                let values = object.into_iter().flat_map(|object| object.data);
                deleted.entries.extend(values.map(|(key, text)| (key, parse(&text).ok().map(|(_, entry)| entry))));
            }
            // Another daemon was faster.
            Err(error) if matches!(error.kind(), ApiErrorKind::NotFound | ApiErrorKind::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(deleted)
}

//! Lists: by selector, in pages, at the latest or at an old version.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

use super::{Continue, Key, State, kind};
use crate::api::pure::rejection::Rejection;
use crate::api::pure::resources::Resource;
use crate::api::pure::selector::{Fields, Labels};

/// Which version a list is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// The latest version.
    Latest,
    /// Exactly this version.
    Exactly(u64),
}

/// The query of a list.
#[derive(Debug)]
pub(crate) struct ListQuery<'a> {
    pub(crate) resource: &'static Resource,
    /// Empty: every namespace.
    pub(crate) namespace: &'a str,
    pub(crate) labels: &'a Labels,
    pub(crate) fields: &'a Fields,
    pub(crate) at: At,
    pub(crate) after: Option<&'a Key>,
    /// 0: no limit.
    pub(crate) limit: usize,
}

/// A page of a list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) objects: Vec<Arc<Value>>,
    pub(crate) version: u64,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
}

/// A list that can't be given.
#[derive(Debug)]
pub(crate) struct ListRefusal {
    pub(crate) rejection: Rejection,
    /// A token with which the rest can be had, inconsistent with the pages before.
    pub(crate) next: Option<String>,
}

impl From<Rejection> for ListRefusal {
    fn from(rejection: Rejection) -> Self {
        Self { rejection, next: None }
    }
}

/// The server's message when a page's version is forgotten.
const CONTINUE_TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can \
     start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder \
     of the results. Continuing with the provided token results in an inconsistent list - objects that were created, \
     modified, or deleted between the time the first chunk was returned and now may show up in the list.";
/// The server's message when the exact version of a list is forgotten.
const LIST_TOO_OLD: &str = "The resourceVersion for the provided list is too old.";

impl State {
    /// One page.
    pub(crate) fn list(&self, query: &ListQuery<'_>) -> Result<Listed, ListRefusal> {
        let empty = BTreeMap::new();
        let now = self.objects.get(&kind(query.resource)).unwrap_or(&empty);
        let version = match query.at {
            At::Latest => self.version(),
            At::Exactly(version) => version,
        };
        if version == self.version() {
            return Ok(page(query, now, version));
        }
        let mut then = now.clone();
        if self.history().rewind(kind(query.resource), &mut then, version) {
            return Ok(page(query, &then, version));
        }
        Err(match query.after {
            Some(after) => ListRefusal {
                rejection: Rejection::expired(CONTINUE_TOO_OLD),
                next: Some(Continue { version: None, after: after.clone() }.encode()),
            },
            None => Rejection::expired(LIST_TOO_OLD).into(),
        })
    }

    /// Every object of a kind that a watch begins with.
    pub(crate) fn matching(
        &self,
        resource: &'static Resource,
        namespace: &str,
        matches: impl Fn(&Value) -> bool,
    ) -> Vec<Arc<Value>> {
        let objects = self.objects.get(&kind(resource));
        objects
            .into_iter()
            .flatten()
            .filter(|(key, object)| (namespace.is_empty() || key.namespace == namespace) && matches(object))
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }
}

fn page(query: &ListQuery<'_>, objects: &BTreeMap<Key, Arc<Value>>, version: u64) -> Listed {
    let start = query.after.map_or(Bound::Unbounded, |key| Bound::Excluded(key.clone()));
    let mut matching = objects
        .range((start, Bound::Unbounded))
        .filter(|(key, _)| query.namespace.is_empty() || key.namespace == query.namespace)
        .filter(|(_, object)| query.labels.matches(object) && query.fields.matches(object));
    if query.limit == 0 {
        let objects = matching.map(|(_, object)| Arc::clone(object)).collect();
        return Listed { objects, version, next: None, remaining: None };
    }
    let page: Vec<(&Key, &Arc<Value>)> = matching.by_ref().take(query.limit).collect();
    let rest = matching.count();
    let next = page
        .last()
        .filter(|_| rest > 0)
        .map(|(key, _)| Continue { version: Some(version), after: (*key).clone() }.encode());
    // Only an unselected list can say how much is left.
    let counted = query.labels.is_empty() && query.fields.is_empty();
    Listed {
        objects: page.into_iter().map(|(_, object)| Arc::clone(object)).collect(),
        version,
        next,
        remaining: (rest > 0 && counted).then_some(rest),
    }
}

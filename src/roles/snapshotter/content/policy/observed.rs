//! What an attempt at a content reads before each decision. Pure.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::cluster::EventTarget;
use crate::roles::snapshotter::config::SnapshotterSection;
use crate::roles::snapshotter::content::record::{ClassView, Content, facts};

use super::decide::{Phase, phase};
use super::progress::{Progress, Who};
use super::view::{Known, Rules, View};

/// The objects that one decision is made from.
#[derive(Debug)]
pub struct Objects<K: Content> {
    /// The content, or what was last seen of it.
    pub content: Arc<K>,
    /// The class that it names, if the cache has one.
    pub class: Option<Arc<K::Class>>,
    /// Whether the cluster still has the content.
    pub exists: bool,
    /// Why classes are not known; `None`: they are.
    pub why_no_classes: Option<String>,
}

impl<K: Content> Objects<K> {
    /// The content's uid.
    pub fn uid(&self) -> &str {
        &self.content.meta().uid
    }

    /// The class, as the decisions see it. `driver` is ours.
    pub fn class(&self, driver: &str) -> ClassView<'_, K::Class> {
        match (ClassView::of(&*self.content, self.class.as_deref(), driver), &self.why_no_classes) {
            (ClassView::Missing(name), Some(why)) => ClassView::Unread(name, why),
            (view, _) => view,
        }
    }
}

/// What an attempt reads before each decision.
#[derive(Debug)]
pub struct Observed<K: Content> {
    /// The objects.
    pub now: Objects<K>,
    /// What the term knows.
    pub known: Known,
    /// The term's rules.
    pub rules: Arc<Rules>,
    /// The role's configuration.
    pub section: Arc<SnapshotterSection>,
    /// The version in which contents are read, if they have several.
    pub version: Option<&'static str>,
    /// When this was read.
    pub at: Instant,
    /// The same moment by the wall clock.
    pub wall: Timestamp,
}

impl<K: Content> Observed<K> {
    /// What the decision is made from.
    pub fn view<'a>(&'a self, progress: &'a Progress) -> View<'a, K> {
        View {
            content: &*self.now.content,
            exists: self.now.exists,
            class: self.class(),
            known: &self.known,
            rules: &self.rules,
            progress,
        }
    }

    /// The content's class.
    pub fn class(&self) -> ClassView<'_, K::Class> {
        self.now.class(&self.rules.request.driver)
    }

    /// The row that the content is at.
    pub fn phase(&self) -> Phase {
        phase(&*self.now.content, self.class(), &self.rules, self.known.unanswered.is_some())
    }

    /// What an attempt that begins with this knows.
    pub fn begin(&self) -> Progress {
        let (content, known) = (&*self.now.content, &self.known);
        let is_marked = facts::has_mark(content) && facts::stored_handle(content).is_none();
        Progress {
            who: self.who(),
            first_operation: self.phase().operation(),
            began: Some(self.at),
            wall: self.wall,
            found: known.found.clone(),
            is_answered: known.found.is_some(),
            is_resumed: is_marked && known.unanswered.is_none() && !known.is_refused,
            ..Progress::default()
        }
    }

    /// The content, for reports.
    fn who(&self) -> Who {
        let content = &*self.now.content;
        let mut target = EventTarget::of(content);
        if let Some(version) = self.version {
            target.api_version = format!("{}/{version}", K::NAMES.group);
        }
        let named = content.owner();
        let owner = (!named.uid.is_empty() && !named.name.is_empty()).then(|| EventTarget {
            api_version: target.api_version.clone(),
            kind: K::NAMES.owner.to_owned(),
            namespace: Some(named.namespace.clone()),
            name: named.name.clone(),
            uid: named.uid.clone(),
        });
        Who {
            name: content.meta().name.to_string(),
            owner: format!("{}/{}", named.namespace, named.name),
            targets: [target].into_iter().chain(owner).collect(),
        }
    }
}

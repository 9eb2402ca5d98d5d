//! What the tables of the decisions are made of.

use serde_json::json;

use crate::cluster::{SecretRef, VolumeSnapshotContent};
use crate::roles::kit::Secret;
use crate::roles::snapshotter::content::record::ClassView;
use crate::roles::snapshotter::content::record::fixtures::{DRIVER, asked, class, request_rules};

use super::look_up::LookUp;
use super::view::{Known, Rules, Step, View};
use super::{decide::next_step, progress::Progress};

pub(super) fn rules() -> Rules {
    Rules {
        request: request_rules(),
        node: None,
        takes: true,
        lists: true,
        gets: false,
        groups: true,
        secret_namespaces: Vec::new(),
        delete_without_secret: false,
    }
}

/// What one decision is made from, and changed by a test.
pub(in crate::roles::snapshotter) struct CaseOf<K: LookUp> {
    pub(in crate::roles::snapshotter) content: K,
    pub(in crate::roles::snapshotter) exists: bool,
    pub(in crate::roles::snapshotter) class: Option<K::Class>,
    pub(in crate::roles::snapshotter) known: Known,
    pub(in crate::roles::snapshotter) rules: Rules,
    pub(in crate::roles::snapshotter) progress: Progress,
}

impl<K: LookUp> CaseOf<K> {
    /// A content that the API has shown, with its class.
    pub(in crate::roles::snapshotter) fn shown(content: K, class: K::Class, rules: Rules, progress: Progress) -> Self {
        let known = Known { is_confirmed: true, is_relisted: true, ..Known::default() };
        Self { content, exists: true, class: Some(class), known, rules, progress }
    }

    /// The same, changed.
    pub(in crate::roles::snapshotter) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The decision.
    pub(in crate::roles::snapshotter) fn next(&self) -> Step {
        next_step(&View {
            content: &self.content,
            exists: self.exists,
            class: ClassView::of(&self.content, self.class.as_ref(), DRIVER),
            known: &self.known,
            rules: &self.rules,
            progress: &self.progress,
        })
    }
}

/// A case of a single snapshot.
pub(super) type Case = CaseOf<VolumeSnapshotContent>;

impl Case {
    /// A content that the API has shown, with its class, at its turn.
    pub(super) fn of(content: VolumeSnapshotContent) -> Self {
        let progress = Progress { volume_turn: Some(vec!["vol-1".into()]), ..Progress::default() };
        Self::shown(content, class(json!({})), rules(), progress)
    }

    /// The same while a call is remembered as unanswered.
    pub(super) fn unanswered(self) -> Self {
        self.with(|case| case.known.unanswered = Some(asked()))
    }

    /// The same with a secret that was read.
    pub(super) fn secret(self, name: &str, namespace: &str) -> Self {
        let place = SecretRef { name: name.into(), namespace: namespace.into() };
        self.with(|case| case.progress.secret = Some((place, Secret::default())))
    }
}

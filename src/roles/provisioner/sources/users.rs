//! Which sources claims still need, by the caches.

use crate::cluster::{BY_SOURCE, Meta, ObjectName, names};
use crate::roles::kit::look_at_each;
use crate::roles::provisioner::claims::memory::used;
use crate::roles::provisioner::context::Context;

use super::protection::{SourceKey, SourceKind, is_releasable, is_user};

impl SourceKind {
    /// The finalizer that protects a source of this kind.
    pub(super) fn finalizer(self) -> &'static str {
        match self {
            Self::Claim => names::FINALIZER_CLONING,
            Self::Snapshot => crate::roles::provisioner::names::FINALIZER_SNAPSHOT_SOURCE,
        }
    }
}

/// Whether a claim needs a source.
pub(super) fn is_used(cx: &Context, key: &SourceKey) -> bool {
    let memory = &cx.claims.memory;
    if memory.has(&used(key)) {
        return true;
    }
    let found = cx.stores.claims.find(BY_SOURCE, &key.index_value());
    // The index knows no API groups: a populator's kind may have the same name.
    let mut naming = found.iter().filter(|claim| SourceKey::of(claim).as_ref() == Some(key));
    naming.any(|claim| {
        let (is_begun, is_admitted) = memory.read(&claim.metadata.uid, |it| (it.is_begun(), it.admitted.is_some()));
        is_user(claim, is_begun, is_admitted, &cx.scope.driver_name)
    })
}

/// The sources that have the finalizer and that no claim needs.
pub(in crate::roles::provisioner) async fn sweep(cx: &Context) -> Vec<SourceKey> {
    let mut free = Vec::new();
    let mut look = |kind: SourceKind, name: ObjectName, meta: &Meta| {
        let key = SourceKey { kind, name };
        if is_releasable(meta.finalizers(), kind.finalizer(), || is_used(cx, &key)) {
            free.push(key);
        }
    };
    look_at_each(cx.stores.claims.own(), |claim| {
        look(SourceKind::Claim, ObjectName::of(claim.as_ref()), &claim.metadata);
    })
    .await;
    look_at_each(cx.stores.snapshots.each(), |snapshot| {
        look(SourceKind::Snapshot, ObjectName::of(snapshot.as_ref()), &snapshot.metadata);
    })
    .await;
    free
}

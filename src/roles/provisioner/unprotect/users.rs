//! Which sources claims still need, by the caches.

use crate::cluster::{BY_SOURCE, Meta, ObjectName};
use crate::roles::kit::look_at_each;
use crate::roles::provisioner::claims::context::ClaimsContext;
use crate::roles::provisioner::claims::memory::used;

use crate::roles::provisioner::sources::protection::{SourceKey, SourceKind, is_releasable, is_user};

/// Whether a claim needs a source.
pub(super) fn is_used(cx: &ClaimsContext, key: &SourceKey) -> bool {
    let memory = &cx.memory;
    if memory.has(&used(key)) {
        return true;
    }
    let found = cx.shared.caches.claims.find(BY_SOURCE, &key.index_value());
    // The index knows no API groups: a populator's kind may have the same name.
    let mut naming = found.iter().filter(|claim| SourceKey::of(claim).as_ref() == Some(key));
    naming.any(|claim| {
        let (is_begun, is_admitted) = memory.read(&claim.metadata.uid, |it| (it.is_begun(), it.admitted.is_some()));
        is_user(claim, is_begun, is_admitted, &cx.shared.scope.driver_name)
    })
}

/// The sources that have the finalizer and that no claim needs.
pub(in crate::roles::provisioner) async fn sweep(cx: &ClaimsContext) -> Vec<SourceKey> {
    let mut free = Vec::new();
    let mut look = |kind: SourceKind, name: ObjectName, meta: &Meta| {
        let key = SourceKey { kind, name };
        if is_releasable(meta.finalizers(), kind.finalizer(), || is_used(cx, &key)) {
            free.push(key);
        }
    };
    look_at_each(cx.shared.caches.claims.own(), |claim| {
        look(SourceKind::Claim, ObjectName::of(claim.as_ref()), &claim.metadata);
    })
    .await;
    look_at_each(cx.shared.caches.snapshots.each(), |snapshot| {
        look(SourceKind::Snapshot, ObjectName::of(snapshot.as_ref()), &snapshot.metadata);
    })
    .await;
    free
}

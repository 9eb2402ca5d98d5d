//! Changes claims and volume objects, one request at a time. No decisions: what to do comes from [`super::decide`].
//!
//! Every write goes through the fence of the term, carries a precondition, and hands the server's answer to the cache, so
//! that the next look sees it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tracing::warn;

use crate::cluster::patch::{self, MetaChange};
use crate::cluster::{ApiErrorKind, Cache, Cached, Object, ObjectName, PersistentVolumeClaim, ReferenceGrant, names};
use crate::roles::attempt::read_again;
use crate::roles::kit::Op;
use crate::roles::kit::secrets::{self as secret, Secret};

use super::claim::Claim;
use super::decide::SourceStep;
use super::error::{
    AttemptError, BECOME_OWNER, PROTECT_SOURCE, READ_SECRET, READ_SOURCE, REFRESH, RELEASE, RELEASE_OWNERSHIP,
    SAVE_INTENT,
};
use super::observe::Observed;
use super::reconcile::{Attempt, Stop};
use super::request::{RequestInput, build};
use crate::roles::provisioner::context::Context;
use crate::roles::provisioner::parameters::secrets::SecretReference;
use crate::roles::provisioner::sources::protection::{SourceKey, SourceKind};
use crate::roles::provisioner::sources::source::Source;

/// Puts our mark on the claim, and what is about to be asked: all of it, or nothing if the claim got a volume meanwhile.
/// A claim that is being deleted takes no new finalizer: then nothing is begun. One that carries the mark already is only
/// told more, whatever became of it.
pub(in crate::roles::provisioner) async fn save_intent(cx: &Context, claim: &Claim, text: &str) -> Result<(), Stop> {
    let annotations = BTreeMap::from([(names::ANNOTATION_PROVISIONING.to_owned(), text.to_owned())]);
    let change = MetaChange {
        add_finalizers: &[&cx.rules.mark],
        set_annotations: &annotations,
        require: if claim.guarded { Vec::new() } else { vec![patch::test("/spec/volumeName", &Value::Null)] },
        ..MetaChange::default()
    };
    patch_claim(cx, claim, &change, SAVE_INTENT).await
}

/// Takes our mark off the claim, and the node that the scheduler chose, where another may do better. A claim that is gone
/// carries nothing any more.
pub(in crate::roles::provisioner) async fn release(cx: &Context, claim: &Claim, reschedule: bool) -> Result<(), Stop> {
    let all = [names::ANNOTATION_PROVISIONING, names::ANNOTATION_SELECTED_NODE, names::ANNOTATION_ALPHA_SELECTED_NODE];
    let change = MetaChange {
        remove_finalizers: &[&cx.rules.mark],
        remove_annotations: if reschedule { &all } else { &all[..1] },
        ..MetaChange::default()
    };
    patch_claim(cx, claim, &change, RELEASE).await
}

/// Writes this node's name on the claim, if nobody else has written theirs.
pub(in crate::roles::provisioner) async fn write_owner(cx: &Context, claim: &Claim) -> Result<(), Stop> {
    let Some(node) = cx.scope.node() else { return Ok(()) };
    let annotations = BTreeMap::from([(names::ANNOTATION_SELECTED_NODE.to_owned(), node.to_owned())]);
    let mut require = vec![patch::test("/spec/volumeName", &Value::Null)];
    require.extend(same_node(claim));
    let change = MetaChange { set_annotations: &annotations, require, ..MetaChange::default() };
    patch_claim(cx, claim, &change, BECOME_OWNER).await
}

/// Takes off the claim what a node that is gone has left there: its mark with what it has asked, and its name, so that another
/// node can have the claim. Each daemon may try, and one of them succeeds: a claim that is another node's by then, or whose mark
/// says anything else, stays as it is.
pub(in crate::roles::provisioner) async fn remove_owner(cx: &Context, claim: &Claim) -> Result<(), Stop> {
    let all = [names::ANNOTATION_PROVISIONING, names::ANNOTATION_SELECTED_NODE, names::ANNOTATION_ALPHA_SELECTED_NODE];
    let change = MetaChange {
        remove_finalizers: &[&cx.rules.mark],
        remove_annotations: if claim.volume_name.is_none() { &all } else { &all[..1] },
        require: same_node(claim).into_iter().collect(),
        ..MetaChange::default()
    };
    patch_claim(cx, claim, &change, RELEASE_OWNERSHIP).await
}

/// The condition that the node that is written on the claim, or that there is none, is as we have seen it.
fn same_node(claim: &Claim) -> Option<Value> {
    let path = format!("/metadata/annotations/{}", names::ANNOTATION_SELECTED_NODE.replace('/', "~1"));
    let held = claim.object.metadata.annotations.as_ref()?;
    Some(patch::test(&path, &json!(held.get(names::ANNOTATION_SELECTED_NODE))))
}

async fn patch_claim(cx: &Context, claim: &Claim, change: &MetaChange<'_>, op: Op) -> Result<(), Stop> {
    let Some(patch) = patch::change_meta(&claim.object.metadata, change) else { return Ok(()) };
    let api = cx.api.use_now()?;
    let written: PersistentVolumeClaim = api.patch(&claim.key.name, &patch).await.map_err(|error| op.failed(error))?;
    cx.stores.claims.apply_own_write(written);
    Ok(())
}

/// Reads the claim again. `false`: there is nothing newer than what `seen` was made from, so another look would see the
/// same.
pub(in crate::roles::provisioner) async fn refresh(cx: &Context, seen: &Claim) -> Result<bool, Stop> {
    let api = cx.api.use_now()?;
    Ok(read_again(api, &cx.stores.claims, seen.object.as_ref()).await.map_err(|error| REFRESH.failed(error))?)
}

/// Reads what may not be there.
pub(in crate::roles::provisioner) async fn read<K: Object>(
    cx: &Context,
    name: &ObjectName,
    op: Op,
) -> Result<Option<K>, Stop> {
    let api = cx.api.use_now()?;
    Ok(api.get_opt(name).await.map_err(|error| op.failed(error))?)
}

impl Attempt<'_> {
    /// Reads the secret for the driver. Never logged, and kept only while the driver owes an answer to a request that it was sent
    /// with: where the secret goes meanwhile, as with its namespace, the same is asked with the same. A volume that is to be
    /// deleted may go without it.
    pub(in crate::roles::provisioner) async fn read_secret(
        &mut self,
        reference: &SecretReference,
        now: &Observed,
    ) -> Result<(), Stop> {
        let cx = self.cx;
        let failure = match secret::read(cx.api.use_now()?, reference).await {
            Ok(secret) => {
                self.secrets = Some(secret);
                return Ok(());
            }
            Err(failure) => failure,
        };
        let is_withheld = failure.is_withheld();
        let error = AttemptError::from(READ_SECRET.failed(failure));
        if !is_withheld {
            return Err(error.into());
        }
        if self.state.kept.is_some() {
            warn!(error = error.message(), "the secret is gone: going on with the one that the driver was asked with");
            self.secrets.clone_from(&self.state.kept);
            return Ok(());
        }
        let is_over = self.is_over(&now.claim, now.present);
        if !cx.section.delete_without_secret || !(self.state.has_answer() || is_over) {
            return Err(error.into());
        }
        warn!(error = error.message(), "deleting without the secret");
        if is_over {
            // Without it the driver says no to what it may have made with it.
            self.state.doubtful = true;
            self.rewrite();
        }
        self.secrets = Some(Secret::default());
        Ok(())
    }

    /// One request about the content source.
    pub(in crate::roles::provisioner) async fn source_step(
        &mut self,
        step: SourceStep,
        now: &Observed,
    ) -> Result<(), Stop> {
        let cx = self.cx;
        match step {
            SourceStep::ListGrants(namespace) => {
                let api = cx.api.use_now()?;
                let grants = api.list::<ReferenceGrant>(Some(&namespace), None).await;
                self.found.grants = Some(grants.map_err(|error| READ_SOURCE.failed(error))?);
            }
            SourceStep::GetSnapshot => {
                if let Ok(Source::Snapshot { namespace, name }) = &now.source {
                    self.found.snapshot = Some(read(cx, &ObjectName::namespaced(namespace, name), READ_SOURCE).await?);
                }
            }
            SourceStep::GetContent(name) => {
                self.found.content = Some(read(cx, &ObjectName::cluster(name), READ_SOURCE).await?);
            }
            SourceStep::GetClaim => {
                if let Ok(Source::Claim { namespace, name }) = &now.source {
                    self.found.claim = Some(read(cx, &ObjectName::namespaced(namespace, name), READ_SOURCE).await?);
                }
            }
            SourceStep::GetVolume(name) => {
                self.found.volume = Some(read(cx, &ObjectName::cluster(name), READ_SOURCE).await?);
            }
            SourceStep::Protect => return self.protect_source(now).await,
        }
        Ok(())
    }

    /// Puts the finalizer on the source that keeps it until its last user is done. Whoever takes one off has the source's
    /// turn, too, and has counted this claim as a user.
    async fn protect_source(&mut self, now: &Observed) -> Result<(), Stop> {
        let cx = self.cx;
        if let Some(class) = &now.class {
            // By now nothing but the driver may say no: a source is not held up by a claim that is hopeless.
            let attributes_class = self.attributes_class.as_ref();
            let claim = &now.claim.object;
            let rules = &cx.asking;
            let input = RequestInput { claim, class, rules, source: None, requirement: None, attributes_class };
            if let Err(error) = build(&input) {
                return self.fail_before_asking(error.into(), now);
            }
        }
        let Some(source) = now.source.as_ref().ok().and_then(SourceKey::of_source) else {
            self.found.protected = true;
            return Ok(());
        };
        let _turn = cx.source_turns.take(&source, self.ticket, &cx.term).await?;
        let claim = &now.claim.key;
        let is_strange = source.name.namespace() != claim.name.namespace();
        if is_strange {
            // From here on it counts as a user. Until now it did not, so that what was read of the source may be from before
            // somebody took the finalizer off.
            cx.admitted.note(&claim.uid);
        }
        match source.kind {
            SourceKind::Snapshot => {
                if let Some(Some(seen)) = &self.found.snapshot {
                    let cache = &cx.stores.snapshots;
                    let done = protect(cx, cache, seen, is_strange, names::FINALIZER_SNAPSHOT_SOURCE).await;
                    self.even_if_forbidden(done)?;
                }
            }
            SourceKind::Claim => {
                if let Some(Some(seen)) = &self.found.claim {
                    protect(cx, &cx.stores.claims, seen, is_strange, names::FINALIZER_CLONING).await?;
                }
            }
        }
        self.found.protected = true;
        Ok(())
    }

    /// A snapshot that we are not allowed to change is restored all the same, and that is told (spec 2.5, step 15). Should it go
    /// meanwhile, the driver has the last word. Without the right to change claims, nothing would be begun anyway.
    fn even_if_forbidden(&mut self, protected: Result<(), Stop>) -> Result<(), Stop> {
        match protected {
            Err(Stop::Failed(failure)) => match failure.api() {
                Some(error) if failure.is_of(PROTECT_SOURCE) && error.kind() == ApiErrorKind::Forbidden => {
                    self.tell_unprotected(error);
                    Ok(())
                }
                _ => Err(failure.into()),
            },
            other => other,
        }
    }
}

/// Adds a finalizer to a source, as it is now: what was read of it before its turn came may be old. `afresh`: it is read again
/// first, because even a finalizer that was seen on it may be gone.
async fn protect<K: Cached>(
    cx: &Context,
    cache: &Cache<K>,
    seen: &K,
    afresh: bool,
    finalizer: &str,
) -> Result<(), Stop> {
    let api = cx.api.use_now()?;
    let name = ObjectName::of(seen);
    let mut now =
        if afresh { api.get::<K>(&name).await.map_err(|error| PROTECT_SOURCE.failed(error))? } else { seen.clone() };
    for is_last in [false, true] {
        let Some(patch) = patch::add_finalizer(now.meta(), finalizer, &BTreeMap::new()) else { return Ok(()) };
        match api.patch::<K>(&name, &patch).await {
            Ok(written) => {
                cache.apply_own_write(written);
                return Ok(());
            }
            Err(error) if !is_last && error.kind() == ApiErrorKind::PreconditionFailed => {
                now = api.get::<K>(&name).await.map_err(|error| PROTECT_SOURCE.failed(error))?;
            }
            Err(error) => return Err(PROTECT_SOURCE.failed(error).into()),
        }
    }
    Ok(())
}

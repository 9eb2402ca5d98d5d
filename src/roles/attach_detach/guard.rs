//! Keeps away where the attach/detach controller of kube-controller-manager works: attach-detach spec 1.
//!
//! Two owners of a node's `volumesAttached`, which is an atomic list, cannot be made safe. That the other controller runs is proven by an
//! attachment that it makes, or by a node whose list it writes after this leader has. The time of such an entry, and the Lease of
//! kube-controller-manager, prove nothing: its other controllers share them.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::cluster::{Change, Managers, NodeState, Origin, VolumeAttachment};

use super::config::ExclusiveCheck;

/// What this leader may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// All that it decides.
    Yes,
    /// Nothing before this time is over.
    After(Duration),
    /// Nothing until the other controller is gone.
    No,
}

/// What is known of the other controller during a term.
#[derive(Debug)]
pub struct Guard {
    check: ExclusiveCheck,
    begun: Instant,
    state: Mutex<State>,
    /// Whether the role has to keep away.
    refused: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// The object that it has written.
    proof: Option<String>,
    /// How long nothing is done from the beginning, because it has been active shortly before.
    delay: Duration,
}

impl Guard {
    /// Nothing is known yet.
    pub fn new(check: ExclusiveCheck, begun: Instant) -> Self {
        Self { check, begun, state: Mutex::default(), refused: CancellationToken::new() }
    }

    /// It has been active shortly before this term: nothing is done for this long.
    pub fn delay(&self, delay: Duration) {
        if self.check == ExclusiveCheck::Refuse {
            let mut state = self.state.lock();
            state.delay = state.delay.max(delay);
        }
    }

    /// It has written this object, if any.
    pub fn found(&self, object: Option<String>) {
        let Some(object) = object.filter(|_| self.check != ExclusiveCheck::Off) else { return };
        let mut state = self.state.lock();
        if state.proof.is_none() {
            warn!("{}", text(&object));
            state.proof = Some(object);
            if self.check == ExclusiveCheck::Refuse {
                self.refused.cancel();
            }
        }
    }

    /// What may be done now.
    pub fn permit(&self, now: Instant) -> Permit {
        if self.refused.is_cancelled() {
            return Permit::No;
        }
        let left = self.state.lock().delay.saturating_sub(self.age(now));
        if left.is_zero() { Permit::Yes } else { Permit::After(left) }
    }

    /// How long the term has lasted.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.begun)
    }

    /// Waits until nothing may be done any more.
    pub async fn refused(&self) {
        self.refused.cancelled().await;
    }

    /// Why the role fails, if it does; a warning that writes go on is shown, too.
    pub fn failure(&self) -> Option<String> {
        self.state.lock().proof.as_deref().map(text)
    }
}

fn text(object: &str) -> String {
    format!(
        "the attach/detach controller of kube-controller-manager is active (it wrote {object}); start it with \
         --controllers=*,-persistentvolume-attach-detach-controller"
    )
}

/// The attachment that the other controller has made during the term, if this is one.
pub fn made_by_other(change: &Change<VolumeAttachment>) -> Option<String> {
    let new = change.new.as_deref().filter(|new| new.metadata.managers.contains(Managers::SPEC))?;
    let is_young = change.origin != Origin::Replay && change.old.is_none();
    is_young.then(|| format!("volumeattachment {}", new.metadata.name))
}

/// The node whose list the other controller has written after this leader has, if this is one. `written` is the version of this leader's
/// last write.
pub fn written_by_other(node: &NodeState, written: Option<u128>) -> Option<String> {
    let is_theirs = node.metadata.managers.contains(Managers::VOLUMES_ATTACHED);
    let is_later = written.zip(node.metadata.version()).is_some_and(|(written, now)| written < now);
    (is_theirs && is_later).then(|| format!("node {}", node.metadata.name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::roles::kit::fixtures::change;

    const SECOND: Duration = Duration::from_secs(1);

    fn attachment(manager: &str) -> Value {
        json!({ "metadata": { "name": "csi-1", "uid": "u", "managedFields": [{ "manager": manager,
            "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { "f:attacher": {} } } }] },
            "spec": { "attacher": "demo", "nodeName": "n", "source": { "persistentVolumeName": "pv" } } })
    }

    #[test]
    fn an_attachment_proves_it_only_if_the_other_has_made_it_since_the_term_began() {
        let theirs = attachment("kube-controller-manager");
        let proof = |old: Option<&Value>, new: &Value, origin| {
            made_by_other(&Change { origin, ..change::<VolumeAttachment>(old, Some(new)) })
        };
        assert_eq!(proof(None, &theirs, Origin::Watch).as_deref(), Some("volumeattachment csi-1"));
        assert_eq!(proof(None, &theirs, Origin::Relist).as_deref(), Some("volumeattachment csi-1"));
        for (old, new, origin) in [
            (None, &theirs, Origin::Replay),
            (Some(&theirs), &theirs, Origin::Watch),
            (None, &attachment("csi-control-plane"), Origin::Watch),
        ] {
            assert_eq!(proof(old, new, origin), None, "{origin:?}");
        }
    }

    #[test]
    fn d28_a_node_proves_it_only_if_the_other_has_written_its_list_after_this_leader() {
        let node = |manager: &str, version: &str| -> NodeState {
            serde_json::from_value(json!({ "metadata": { "name": "n", "resourceVersion": version,
                "managedFields": [{ "manager": manager, "fieldsType": "FieldsV1",
                    "fieldsV1": { "f:status": { "f:volumesAttached": {} } } }] } }))
            .unwrap()
        };
        let theirs = node("kube-controller-manager", "8");
        assert_eq!(written_by_other(&theirs, Some(7)).as_deref(), Some("node n"));
        assert_eq!(written_by_other(&theirs, Some(8)), None, "this leader's own write has left it so");
        assert_eq!(written_by_other(&theirs, None), None, "it may be what is left of an earlier time");
        assert_eq!(written_by_other(&node("csi-control-plane", "8"), Some(7)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_proven_ends_all_writes_or_is_only_said_or_is_not_looked_for() {
        let now = Instant::now();
        for (check, expected, is_said) in [
            (ExclusiveCheck::Refuse, Permit::No, true),
            (ExclusiveCheck::Warn, Permit::Yes, true),
            (ExclusiveCheck::Off, Permit::Yes, false),
        ] {
            let guard = Guard::new(check, now);
            guard.found(None);
            assert_eq!((guard.permit(now), guard.failure()), (Permit::Yes, None));
            guard.found(Some("node n".to_owned()));
            guard.found(Some("node m".to_owned()));
            assert_eq!(guard.permit(now), expected, "{check:?}");
            let said = guard.failure();
            assert_eq!(said.is_some(), is_said);
            assert!(said.is_none_or(|text| text.contains("(it wrote node n); start it with --controllers=*,-")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn activity_shortly_before_the_term_delays_its_beginning() {
        let now = Instant::now();
        let guard = Guard::new(ExclusiveCheck::Refuse, now);
        guard.delay(30 * SECOND);
        guard.delay(10 * SECOND);
        assert_eq!(guard.permit(now + SECOND), Permit::After(29 * SECOND));
        assert_eq!(guard.permit(now + 30 * SECOND), Permit::Yes);
        let warned = Guard::new(ExclusiveCheck::Warn, now);
        warned.delay(30 * SECOND);
        assert_eq!(warned.permit(now), Permit::Yes);
    }
}

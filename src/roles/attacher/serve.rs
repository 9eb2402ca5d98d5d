//! One term of the attacher: its queues, their triggers, and its tasks.

use std::sync::Arc;

use tracing::field::Empty;
use tracing::{info, info_span};

use crate::election::Term;
use crate::roles::attacher::names;
use crate::roles::csi_attacher;
use crate::roles::kit::unknown_values::of_served_volumes;
use crate::roles::kit::{Controllers, Memory, Store, TermScope, UnknownValues, queues};
use crate::roles::role::{RoleContext, RoleError, Serve};

use super::attachment::Direction;
use super::config::AttacherSection;
use super::context::{Caches, Context, Stores};
use super::drift_watch::DriftWatch;
use super::failure::TellingRules;
use super::policy::Rules;
use super::reconcile::Attachments;
use super::triggers::Queues;
use super::volumes::Volumes;
use super::{NAME, metrics};

/// The role.
#[derive(Debug)]
pub(super) struct Attacher {
    pub(super) section: AttacherSection,
    pub(super) caches: Caches,
}

impl Serve for Attacher {
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        let begun = role.clock.now();
        if term.unless_over(self.caches.synced()).await.is_err() {
            return Ok(());
        }
        let cx = Arc::new(self.context(role, &term));
        let queues = self.queues(role);
        let publishes = cx.rules.publishes;
        info!(handler = if publishes { "csi" } else { "trivial" }, "serving attachments");

        let mut controllers = Controllers::new(NAME, &role.board, &cx.scope);
        let subject = {
            let cx = Arc::clone(&cx);
            move |name: &String| cx.find(name).map(|objects| objects.subject())
        };
        cx.stores.follow(&mut controllers);
        controllers.drive(&queues.attachments, "Volumes to attach and detach", subject, Attachments(Arc::clone(&cx)));
        let volumes = cx.stores.volumes.clone();
        let subject = move |name: &String| volumes.named(name)?.subject();
        controllers.drive(&queues.volumes, "Volumes to look after", subject, Volumes::of(&cx));
        queues.follow(&cx, &mut controllers);
        let unknown = UnknownValues::shown(role.clock, &mut controllers);
        controllers.on_store(&cx.stores.volumes, unknown.of(of_served_volumes(role.driver.name.clone())));
        controllers.resync(self.section.resync, (queues.clone(), Arc::clone(&cx)), |(queues, cx)| async move {
            queues.look_at_all(&cx).await;
        });
        if publishes {
            controllers.task("term-start", cx.stores.volumes.clone().note_term_start(Arc::clone(&cx.scope)));
        }
        let drift = DriftWatch { cx: Arc::clone(&cx), queues, begun };
        controllers.task("drift", drift.run(role.driver.listings.subscribe()));
        let served = controllers.serve().await;
        cx.memory.end();
        served
    }
}

impl Attacher {
    fn queues(&self, role: &RoleContext) -> Queues {
        let (section, backoff) = (&self.section, self.section.retry.backoff());
        let lanes = [("attach", section.workers), ("detach", section.detach_workers())];
        let span = |key: &String| info_span!(parent: None, "attachment", role = NAME, volume_attachment = %key, operation = Empty);
        let attachments = queues::make(role, names::QUEUE_ATTACHMENTS, &lanes, backoff, span);
        let lanes = [("release", section.workers)];
        let span = |key: &String| info_span!(parent: None, "volume", role = NAME, persistent_volume = %key);
        Queues { attachments, volumes: queues::make(role, names::QUEUE_VOLUMES, &lanes, backoff, span) }
    }

    pub(super) fn context(&self, role: &RoleContext, term: &Term) -> Context {
        let capabilities = &role.driver.capabilities;
        let rules = Rules {
            driver: role.driver.name.clone(),
            finalizer: csi_attacher::finalizer(&role.driver.name),
            publish_readonly: capabilities.publish_readonly(),
            multi_writer: capabilities.single_node_multi_writer(),
            default_fs_type: self.section.default_fs_type.clone(),
            publishes: capabilities.controller_service() && capabilities.publish_unpublish(),
            telling: TellingRules { error_codes: self.section.error_codes, events: self.section.events },
            longest_pause: self.section.retry.max,
        };
        let directions = [Direction::Attach, Direction::Detach].map(Direction::label);
        let scope = TermScope::with_timeout(role, term, self.section.timeout).with_events(self.section.events);
        Context {
            scope: Arc::new(scope),
            rules: Arc::new(rules),
            stores: self.caches.during_term(),
            memory: Memory::shown(role, &metrics::OPERATION_FAILING, "operation", &directions),
        }
    }
}

impl Caches {
    async fn synced(&self) {
        self.attachments.synced().await;
        self.volumes.synced().await;
        self.nodes.synced().await;
    }

    fn during_term(&self) -> Stores {
        Stores {
            attachments: Store::of(&self.attachments),
            volumes: Store::of(&self.volumes),
            nodes: Store::of(&self.nodes),
        }
    }
}

impl Stores {
    /// Forgets objects that go.
    pub(super) fn follow(&self, controllers: &mut Controllers) {
        controllers.follow(&self.attachments);
        controllers.follow(&self.volumes);
    }
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "serve_tests.rs"]
mod tests;

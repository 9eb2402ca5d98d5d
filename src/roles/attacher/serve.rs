//! One term of the attacher: its queues, their triggers, and its tasks.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tracing::field::Empty;
use tracing::{debug, info, info_span};

use crate::cluster::PersistentVolume;
use crate::election::Term;
use crate::process::ErrorChain;
use crate::roles::attacher::names;
use crate::roles::csi_attacher;
use crate::roles::kit::freshness::ListedOnce;
use crate::roles::kit::report::FailureLog;
use crate::roles::kit::unknown_values::of_served_volume;
use crate::roles::kit::{Controllers, TermScope, UidSet, UnknownValues, queues};
use crate::roles::role::{Role, RoleContext, RoleError};

use super::NAME;
use super::config::AttacherSection;
use super::context::{Context, Stores};
use super::decide::Rules;
use super::drift_watch::DriftWatch;
use super::handler::Attachments;
use super::reporter::Reporter;
use super::term_start::TermStartVersion;
use super::triggers::Queues;
use super::volumes::Volumes;

/// Pause between two attempts to get the term's start version, which saves reads. No task waits for it.
const TERM_START_PAUSE: Duration = Duration::from_secs(5);

/// The role.
#[derive(Debug)]
pub(super) struct Attacher {
    pub(super) section: AttacherSection,
    pub(super) stores: Stores,
}

impl Role for Attacher {
    fn serve<'a>(&'a self, role: &'a RoleContext, term: Term) -> BoxFuture<'a, Result<(), RoleError>> {
        self.serve_term(role, term).boxed()
    }
}

impl Attacher {
    async fn serve_term(&self, role: &RoleContext, term: Term) -> Result<(), RoleError> {
        let begun = role.clock.now();
        if term.unless_over(self.stores.synced()).await.is_err() {
            return Ok(());
        }
        let cx = Arc::new(self.context(role, &term));
        let queues = self.queues(role);
        let publishes = cx.rules.publishes;
        info!(handler = if publishes { "csi" } else { "trivial" }, "serving attachments");

        let mut controllers = Controllers::new(NAME, &role.board, &term);
        let subject = {
            let cx = Arc::clone(&cx);
            move |name: &String| cx.find(name).map(|objects| objects.subject())
        };
        controllers.reconcile(
            &queues.attachments,
            "Volumes to attach and detach",
            subject,
            Attachments(Arc::clone(&cx)),
        );
        controllers.reconcile(&queues.volumes, "Volumes to look after", |_| None, Volumes(Arc::clone(&cx)));
        queues.follow(&cx, &mut controllers);
        let unknown = UnknownValues::shown(role.clock, &mut controllers);
        controllers.on(&cx.stores.volumes, {
            let driver = role.driver.name.clone();
            unknown.of(
                move |volume: &PersistentVolume| {
                    if volume.served_by() == Some(driver.as_str()) { of_served_volume(volume) } else { Vec::new() }
                },
            )
        });
        controllers.resync(self.section.resync, {
            let (queues, cx) = (queues.clone(), Arc::clone(&cx));
            move || queues.look_at_all(&cx)
        });
        if publishes {
            controllers.task("term-start", find_term_start(Arc::clone(&cx)));
        }
        let drift = DriftWatch { cx: Arc::clone(&cx), queues, begun };
        controllers.task("drift", drift.run(role.driver.listings.subscribe()));
        let served = controllers.serve().await;
        cx.reporter.retire();
        served
    }

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
        };
        Context {
            scope: TermScope::with_timeout(NAME, role, term, self.section.timeout).with_events(self.section.events),
            rules,
            section: self.section.clone(),
            stores: self.stores.clone(),
            reporter: Reporter::new(role.meter.clone(), role.driver.name.clone()),
            failures: FailureLog::default(),
            confirmed: UidSet::default(),
            term_start: TermStartVersion::default(),
            lost: UidSet::default(),
            relisted: ListedOnce::default(),
        }
    }
}

impl Stores {
    async fn synced(&self) {
        self.attachments.synced().await;
        self.volumes.synced().await;
        self.nodes.synced().await;
    }
}

/// Reads the volumes' current version after the term has begun. Until then, each volume is read before it is published.
async fn find_term_start(cx: Arc<Context>) {
    while let Ok(api) = cx.scope.api.use_now() {
        match api.latest_version::<PersistentVolume>().await {
            Ok(Some(version)) => cx.term_start.at(version),
            Ok(None) => {}
            Err(error) => {
                debug!(error = %ErrorChain(&error), "cannot tell yet which volumes are written during the term");
                tokio::time::sleep(TERM_START_PAUSE).await;
                continue;
            }
        }
        break;
    }
    // Runs on, because the end of a task counts as a failure.
    std::future::pending::<()>().await;
}

#[cfg(test)]
#[cfg(feature = "sandbox")]
#[path = "serve_tests.rs"]
mod tests;
